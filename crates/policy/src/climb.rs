//! The climb from a pod over its owners to the topmost owner that can be paused.
//!
//! The keeper and `kubectl tenure` drive a [`Climb`]: they look up the owners, and this module
//! decides which owner is next and what to do with the pod.
//!
//! Tenants write owner references. So a reference counts only where a controller of that kind would
//! own such an object, and where the owner confirms the reference: it exists, has that uid, is in
//! the same namespace, and selects the pod below it. The pod below is the pod of the climb, or a
//! pod among the owners: the leader pod of a `LeaderWorkerSet` owns the workers' `StatefulSet`.

use std::collections::{BTreeMap, HashSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use tenure_types::projection::Pod;

use crate::{
    expiry::{claimed, exemption_by},
    kueue,
    naming::group_of,
    owner_table::OwnerTable,
};

/// The cluster's answer about an owner. A timeout or a server error is no answer: the caller asks
/// again before it decides.
#[derive(Clone, Debug, PartialEq)]
pub enum OwnerLookup {
    /// The owner exists.
    Found(FoundOwner),
    /// The object or its kind doesn't exist.
    Absent,
    /// Tenure may not read the owner.
    Forbidden,
}

/// An owner that exists.
#[derive(Clone, Debug, PartialEq)]
pub struct FoundOwner {
    /// The owner's uid. If the name was used again, this isn't the uid of the reference, and the
    /// climb ends.
    pub uid: String,
    /// Whether the owner still acts.
    pub state: OwnerState,
    /// True if the object has no namespace. Such an owner of a pod can be a node, but is never
    /// paused.
    pub cluster_scoped: bool,
    /// False if the owner has a selector that doesn't match the nearest pod below (see
    /// [`Climb::pod_labels`]), or if the pod claims what the owner's templates don't have. Then the
    /// climb ends.
    pub selects: bool,
    /// The owner's labels. They count only if the owner is a pod.
    pub labels: BTreeMap<String, String>,
    /// The owner's own controller. None: the climb ends at this owner.
    pub controller: Option<OwnerReference>,
}

/// Whether an owner still acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnerState {
    /// The owner may still act on the objects that it owns.
    Live,
    /// The owner has ended. The objects that it owns may go on: a `RayJob` leaves its `RayCluster`.
    Ended,
    /// The owner is being deleted. The objects that it owns will be deleted after it.
    Deleting,
}

/// The action for an expired pod, by its owners alone. `crate::judge` decides with more facts.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Pause this ancestor.
    Pause(OwnerReference),
    /// Delete the pod: nothing above it can be paused.
    DeletePod,
    /// Wait until the last try: this ancestor is being deleted, and the pod will be deleted after
    /// it.
    AwaitDeletion(OwnerReference),
    /// Wait until the last try, and report this ancestor: it could be paused, but Tenure may not
    /// read it. An action on an object below would only start a conflict with its controller.
    Forbidden(OwnerReference),
    /// Do nothing while this owner controls the pod: it is a `DaemonSet`, or the node of a static
    /// pod.
    Exempt,
}

/// A climb from a pod to its topmost ancestor that can be paused. Look up each owner that
/// [`Climb::next`] returns, and pass the result to [`Climb::answer`], until `next` returns None.
/// Then [`Climb::action`] decides.
#[derive(Clone, Debug)]
pub struct Climb<'t> {
    /// The kinds that can be paused.
    table: &'t OwnerTable,
    /// The owner to look up. None: the climb has ended.
    next: Option<OwnerReference>,
    /// The last owner found. None: the next owner is the controller of the pod itself.
    below: Option<OwnerReference>,
    /// The labels that the selector of [`Climb::next`] must match: the labels of the last pod among
    /// the owners found. None: the labels of the pod where the climb started.
    pub pod_labels: Option<BTreeMap<String, String>>,
    /// The owners that can be paused, the topmost last. If a pause of one doesn't stop the pod, a
    /// pause of the one below may.
    pub pausable: Vec<OwnerReference>,
    /// The topmost owner of a kind that can be paused, but that has ended.
    pub ended: Option<OwnerReference>,
    /// The action that takes the place of a pause. None: the owners found decide.
    stop: Option<Action>,
    /// The uids of the owners found, so that a cycle of references ends.
    seen: HashSet<String>,
}

/// The most ancestors that are looked up. No real chain has as many.
const MAX_DEPTH: usize = 16;

/// API group and kind of nodes, which control the mirrors of their static pods.
const NODE: (&str, &str) = ("", "Node");

const POD: (&str, &str) = ("", "Pod");

/// API group and kind of a controller that owns pods only through objects of [`REPLICA_SET`].
pub const DEPLOYMENT: (&str, &str) = ("apps", "Deployment");

/// API group and kind of the objects through which a [`DEPLOYMENT`] owns pods.
pub const REPLICA_SET: (&str, &str) = ("apps", "ReplicaSet");

/// API groups and kinds of controllers that make pods themselves, and own nothing else.
pub const POD_CONTROLLERS: [(&str, &str); 6] = [
    NODE,
    ("", "ReplicationController"),
    ("apps", "DaemonSet"),
    REPLICA_SET,
    ("apps", "StatefulSet"),
    ("batch", "Job"),
];

/// API groups and kinds of owners that are never paused, and that may be below one that is. All
/// other kinds that aren't in the table end a climb: any object that the keeper may read would do
/// for a tenant as a link to an owner whose name the API server doesn't let them write.
pub const LINKS: [(&str, &str); 16] = [
    POD,
    NODE,
    ("", "ReplicationController"),
    ("apps", "DaemonSet"),
    ("argoproj.io", "Rollout"),
    ("batch", "CronJob"),
    ("batch.tensorstack.dev", "BeamJob"),
    ("batch.tensorstack.dev", "CronWorkflowRun"),
    ("batch.tensorstack.dev", "WorkflowRun"),
    ("serving.knative.dev", "Configuration"),
    ("serving.knative.dev", "Revision"),
    ("serving.knative.dev", "Service"),
    ("serving.kserve.io", "InferenceService"),
    ("sparkoperator.k8s.io", "ScheduledSparkApplication"),
    ("tensorstack.dev", "AutoTuneExperiment"),
    ("tensorstack.dev", "Explorer"),
];

impl<'t> Climb<'t> {
    /// Starts a climb at the controller of `below`, an owner. `below` None: at the controller of a
    /// pod.
    pub fn above(
        below: Option<&OwnerReference>,
        controller: Option<&OwnerReference>,
        table: &'t OwnerTable,
    ) -> Self {
        let (below, pausable, seen) = (below.cloned(), Vec::new(), HashSet::new());
        let mut climb =
            Self { table, next: None, below, pod_labels: None, pausable, ended: None, stop: None, seen };
        climb.ascend(controller.cloned());
        climb
    }

    /// Returns the owner to look up next. None: the climb has ended.
    pub const fn next(&self) -> Option<&OwnerReference> {
        self.next.as_ref()
    }

    /// Takes the answer about the owner of [`Climb::next`], and goes on to that owner's controller
    /// or ends the climb.
    pub fn answer(&mut self, answer: OwnerLookup) {
        let Some(owner) = self.next.take() else { return };
        match answer {
            OwnerLookup::Found(found) => self.find(owner, found),
            OwnerLookup::Forbidden if self.table.knows(&owner) || exempts(&owner) => {
                self.stop = Some(Action::Forbidden(owner));
            }
            OwnerLookup::Absent | OwnerLookup::Forbidden => {}
        }
    }

    /// Takes an owner that exists. An owner that doesn't confirm the reference ends the climb.
    fn find(&mut self, owner: OwnerReference, found: FoundOwner) {
        let FoundOwner { uid, state, cluster_scoped, selects, labels, controller } = found;
        if uid != owner.uid {
            return;
        }
        if exempts(&owner) && selects {
            self.stop = Some(Action::Exempt);
            return;
        }
        if cluster_scoped || !selects {
            return;
        }
        let is_pausable = self.table.knows(&owner);
        // a pod that is being deleted still has the same owners above it
        if state == OwnerState::Deleting && !is(&owner, POD) {
            self.stop = is_pausable.then_some(Action::AwaitDeletion(owner));
            return;
        }
        self.seen.insert(owner.uid.clone());
        // a pause of an owner that has ended stops nothing: the climb goes through, as through
        // other kinds
        match state {
            OwnerState::Ended if is_pausable => self.ended = Some(owner.clone()),
            _ if is_pausable => self.pausable.push(owner.clone()),
            _ => {}
        }
        if is(&owner, POD) {
            self.pod_labels = Some(labels);
        }
        self.below = Some(owner);
        self.ascend(controller);
    }

    /// Makes a controller the next owner to look up. Ends the climb without a controller, at the
    /// depth limit, at an owner seen before, at a kind that is no link, and at a reference that
    /// can't be true.
    fn ascend(&mut self, controller: Option<OwnerReference>) {
        let new = |above: &OwnerReference| self.seen.len() < MAX_DEPTH && !self.seen.contains(&above.uid);
        let is_known =
            |above: &OwnerReference| self.table.knows(above) || LINKS.into_iter().any(|kind| is(above, kind));
        let above = controller.filter(new).filter(is_known);
        self.next = above.filter(|above| may_own(above, self.below.as_ref()));
    }

    /// Returns the action for the pod. The climb must have ended: [`Climb::next`] returns None.
    pub fn action(mut self) -> Action {
        let topmost = self.pausable.pop();
        self.stop.or(topmost.map(Action::Pause)).unwrap_or(Action::DeletePod)
    }
}

/// True if an owner is of this API group and kind, in any version.
fn is(owner: &OwnerReference, (group, kind): (&str, &str)) -> bool {
    owner.kind == kind && group_of(&owner.api_version) == group
}

/// True for the kinds whose pods are never touched.
fn exempts(owner: &OwnerReference) -> bool {
    exemption_by(owner).is_some()
}

/// Returns the controller from which a pod's climb starts. A node controls only its static pods,
/// whose mirrors show that, and an exemption takes a [claim](claimed). None: the pod has no such
/// controller.
pub fn controller(pod: &Pod) -> Option<&OwnerReference> {
    let needs_claim = |owner: &OwnerReference| is(owner, NODE) || exempts(owner);
    pod.controller().filter(|owner| claimed(pod).is_some() || !needs_claim(owner))
}

/// True if a controller of this kind could own `below`, an owner. `below` None: a pod. A Workload
/// of Kueue owns nothing here: `crate::kueue` finds it by other means.
pub fn may_own(owner: &OwnerReference, below: Option<&OwnerReference>) -> bool {
    if kueue::is_workload(owner) {
        return false;
    }
    if is(owner, DEPLOYMENT) {
        return below.is_some_and(|below| is(below, REPLICA_SET));
    }
    let makes_pods = POD_CONTROLLERS.into_iter().any(|kind| is(owner, kind));
    // a StatefulSet, a ReplicaSet or a Job above any object but a pod doesn't control that object;
    // a DaemonSet or a node exempts its own pods, and no objects that its pods own
    !makes_pods || below.is_none_or(|below| is(below, POD) && !exempts(owner))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn owner(api_version: &str, kind: &str) -> OwnerReference {
        OwnerReference {
            api_version: api_version.into(),
            kind: kind.into(),
            name: kind.to_lowercase(),
            uid: format!("{kind}-uid"),
            controller: Some(true),
            ..OwnerReference::default()
        }
    }

    fn found(owner: &OwnerReference, controller: Option<&OwnerReference>) -> OwnerLookup {
        OwnerLookup::Found(as_found(owner, controller))
    }

    fn as_found(owner: &OwnerReference, controller: Option<&OwnerReference>) -> FoundOwner {
        FoundOwner {
            uid: owner.uid.clone(),
            state: OwnerState::Live,
            cluster_scoped: false,
            selects: true,
            labels: BTreeMap::from([("of".to_owned(), owner.uid.clone())]),
            controller: controller.cloned(),
        }
    }

    fn deleting(owner: &OwnerReference) -> OwnerLookup {
        OwnerLookup::Found(FoundOwner { state: OwnerState::Deleting, ..as_found(owner, None) })
    }

    /// Climbs a chain, lowest owner first, of which every link is there; `last` is said of the topmost.
    fn climb(chain: &[&OwnerReference], last: impl Fn(&OwnerReference) -> OwnerLookup) -> Action {
        let table = OwnerTable::default();
        let mut climb = Climb::above(None, chain.first().copied(), &table);
        while let Some(owner) = climb.next().cloned() {
            let place = chain.iter().position(|link| **link == owner).unwrap();
            let answer =
                chain.get(place + 1).map_or_else(|| last(&owner), |above| found(&owner, Some(above)));
            climb.answer(answer);
        }
        climb.action()
    }

    fn top(owner: &OwnerReference) -> OwnerLookup {
        found(owner, None)
    }

    #[test]
    fn the_topmost_owner_in_the_table_is_paused() {
        let (set, deployment) = (owner("apps/v1", "ReplicaSet"), owner("apps/v1", "Deployment"));
        assert_eq!(climb(&[&set, &deployment], top), Action::Pause(deployment.clone()));
        assert_eq!(climb(&[&set], top), Action::Pause(set));
    }

    #[test]
    fn links_are_climbed_through_but_never_paused() {
        let (job, cron) = (owner("batch/v1", "Job"), owner("batch/v1", "CronJob"));
        assert_eq!(climb(&[&job, &cron], top), Action::Pause(job));
        let pod = owner("v1", "Pod");
        assert_eq!(climb(&[&pod], top), Action::DeletePod);
        let (middle, above) =
            (owner("batch.tensorstack.dev/v1beta1", "BeamJob"), owner("ray.io/v1", "RayJob"));
        assert_eq!(climb(&[&middle, &above], top), Action::Pause(above));
    }

    #[test]
    fn a_kind_that_is_neither_paused_nor_a_link_ends_the_chain() {
        let above = owner("ray.io/v1", "RayJob");
        for (api_version, kind) in
            [("events.k8s.io/v1", "Event"), ("example.com/v1", "Thing"), ("v1", "ConfigMap")]
        {
            let between = owner(api_version, kind);
            assert_eq!(climb(&[&between, &above], top), Action::DeletePod, "{kind}");
            let job = owner("batch/v1", "Job");
            assert_eq!(climb(&[&job, &between], top), Action::Pause(job), "{kind}");
        }
    }

    #[test]
    fn a_kind_of_another_group_is_another_kind() {
        let namesake = owner("batch.example.com/v1", "Job");
        assert_eq!(climb(&[&namesake], top), Action::DeletePod);
    }

    #[test]
    fn a_pod_without_controller_is_deleted() {
        assert_eq!(climb(&[], top), Action::DeletePod);
    }

    #[test]
    fn an_absent_owner_and_a_namesake_end_the_chain() {
        let (set, deployment) = (owner("apps/v1", "ReplicaSet"), owner("apps/v1", "Deployment"));
        let namesake =
            |o: &OwnerReference| OwnerLookup::Found(FoundOwner { uid: "other".into(), ..as_found(o, None) });
        for last in [
            &(|_: &OwnerReference| OwnerLookup::Absent) as &dyn Fn(&OwnerReference) -> OwnerLookup,
            &namesake,
        ] {
            assert_eq!(climb(&[&set, &deployment], last), Action::Pause(set.clone()));
            assert_eq!(climb(&[&set], last), Action::DeletePod);
        }
    }

    #[test]
    fn an_owner_that_is_being_deleted_is_awaited() {
        let (set, deployment) = (owner("apps/v1", "ReplicaSet"), owner("apps/v1", "Deployment"));
        assert_eq!(climb(&[&set, &deployment], deleting), Action::AwaitDeletion(deployment));
    }

    #[test]
    fn another_owner_that_is_being_deleted_ends_the_chain() {
        let (job, cron) = (owner("batch/v1", "Job"), owner("batch/v1", "CronJob"));
        assert_eq!(climb(&[&job, &cron], deleting), Action::Pause(job));
    }

    #[test]
    fn a_forbidden_owner_of_the_table_is_named() {
        let (set, deployment) = (owner("apps/v1", "ReplicaSet"), owner("apps/v1", "Deployment"));
        assert_eq!(climb(&[&set, &deployment], |_| OwnerLookup::Forbidden), Action::Forbidden(deployment));
    }

    #[test]
    fn a_forbidden_owner_of_another_kind_ends_the_chain() {
        let (set, rollout) = (owner("apps/v1", "ReplicaSet"), owner("argoproj.io/v1alpha1", "Rollout"));
        assert_eq!(climb(&[&set, &rollout], |_| OwnerLookup::Forbidden), Action::Pause(set));
    }

    #[test]
    fn a_cycle_of_owners_ends() {
        let (a, b) = (owner("argoproj.io/v1alpha1", "Rollout"), owner("ray.io/v1", "RayJob"));
        assert_eq!(climb(&[&a, &b], |o| found(o, Some(&a))), Action::Pause(b.clone()));
    }

    #[test]
    fn a_chain_without_end_ends() {
        let table = OwnerTable::default();
        let rollout = |number| OwnerReference {
            uid: format!("rollout-{number}"),
            ..owner("argoproj.io/v1alpha1", "Rollout")
        };
        let mut climb = Climb::above(None, Some(&rollout(0)), &table);
        let mut depth = 0;
        while let Some(next) = climb.next().cloned() {
            depth += 1;
            climb.answer(found(&next, Some(&rollout(depth))));
        }
        assert_eq!(depth, MAX_DEPTH);
    }

    #[test]
    fn an_owner_that_does_not_select_the_pod_or_is_of_the_cluster_ends_the_chain() {
        let (set, deployment) = (owner("apps/v1", "ReplicaSet"), owner("apps/v1", "Deployment"));
        let stranger =
            |o: &OwnerReference| OwnerLookup::Found(FoundOwner { selects: false, ..as_found(o, None) });
        let of_cluster =
            |o: &OwnerReference| OwnerLookup::Found(FoundOwner { cluster_scoped: true, ..as_found(o, None) });
        for last in [&stranger as &dyn Fn(&OwnerReference) -> OwnerLookup, &of_cluster] {
            assert_eq!(climb(&[&set, &deployment], last), Action::Pause(set.clone()));
            assert_eq!(climb(&[&set], last), Action::DeletePod);
        }
    }

    #[test]
    fn a_deployment_owns_pods_through_a_replica_set_alone() {
        let (set, deployment) = (owner("apps/v1", "ReplicaSet"), owner("apps/v1", "Deployment"));
        assert_eq!(climb(&[&deployment], top), Action::DeletePod);
        let stateful = owner("apps/v1", "StatefulSet");
        assert_eq!(climb(&[&stateful, &deployment], top), Action::Pause(stateful));
        let forged = owner("example.com/v1", "ReplicaSet");
        assert_eq!(climb(&[&forged, &deployment], top), Action::DeletePod);
        assert_eq!(climb(&[&set, &deployment], top), Action::Pause(deployment));
    }

    #[test]
    fn a_workload_of_kueues_owns_nothing() {
        let (job, workload) = (owner("batch/v1", "Job"), owner("kueue.x-k8s.io/v1beta2", "Workload"));
        assert_eq!(climb(&[&workload], top), Action::DeletePod);
        assert_eq!(climb(&[&job, &workload], top), Action::Pause(job));
    }

    #[test]
    fn what_makes_pods_owns_nothing_else() {
        let (set, deployment) = (owner("apps/v1", "ReplicaSet"), owner("apps/v1", "Deployment"));
        for kind in ["StatefulSet", "ReplicaSet", "DaemonSet"] {
            let above = OwnerReference { uid: "above".into(), ..owner("apps/v1", kind) };
            assert_eq!(climb(&[&set, &deployment, &above], top), Action::Pause(deployment.clone()), "{kind}");
        }
        let job = owner("batch/v1", "Job");
        assert_eq!(climb(&[&set, &deployment, &job], top), Action::Pause(deployment));
        let job_set = owner("jobset.x-k8s.io/v1alpha2", "JobSet");
        assert_eq!(climb(&[&job, &job_set], top), Action::Pause(job_set));
    }

    #[test]
    fn through_a_pod_its_owner_owns_what_the_pod_owns() {
        let (workers, leader) = (owner("apps/v1", "StatefulSet"), owner("v1", "Pod"));
        let leaders = OwnerReference { uid: "leaders".into(), ..owner("apps/v1", "StatefulSet") };
        let group = owner("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet");
        let chain = [&workers, &leader, &leaders, &group];
        assert_eq!(climb(&chain, top), Action::Pause(group.clone()));
        assert_eq!(
            climb(&[&leader, &owner("batch/v1", "Job")], top),
            Action::Pause(owner("batch/v1", "Job"))
        );
        let (table, mut labels) = (OwnerTable::default(), Vec::new());
        let mut climb = Climb::above(None, Some(&workers), &table);
        for (place, of) in chain.iter().enumerate() {
            labels.push(climb.pod_labels.as_ref().and_then(|labels| labels.get("of").cloned()));
            let controller = chain.get(place + 1).copied();
            // the leader may be ending
            let state = if *of == &leader { OwnerState::Deleting } else { OwnerState::Live };
            let answer = FoundOwner { state, ..as_found(of, controller) };
            climb.answer(OwnerLookup::Found(answer));
        }
        let of_leader = Some("Pod-uid".to_owned());
        assert_eq!(labels, [None, None, of_leader.clone(), of_leader], "the selectors are for these");
        assert_eq!(climb.pausable, [workers, leaders, group]);
    }

    #[test]
    fn no_pod_exempts_what_it_owns() {
        let (pod, daemons) = (owner("v1", "Pod"), owner("apps/v1", "DaemonSet"));
        assert_eq!(climb(&[&pod, &daemons], top), Action::DeletePod);
        assert_eq!(climb(&[&pod, &owner("v1", "Node")], top), Action::DeletePod);
    }

    #[test]
    fn a_real_daemon_set_exempts_its_pods() {
        let real = owner("apps/v1", "DaemonSet");
        assert_eq!(climb(&[&real], top), Action::Exempt);
        assert_eq!(climb(&[&real], |_| OwnerLookup::Absent), Action::DeletePod);
        assert_eq!(climb(&[&real], |_| OwnerLookup::Forbidden), Action::Forbidden(real.clone()));
        let stranger =
            |o: &OwnerReference| OwnerLookup::Found(FoundOwner { selects: false, ..as_found(o, None) });
        assert_eq!(climb(&[&real], stranger), Action::DeletePod);
        assert_eq!(climb(&[&owner("example.com/v1", "DaemonSet")], top), Action::DeletePod);
        let node = owner("v1", "Node");
        let of_cluster =
            |o: &OwnerReference| OwnerLookup::Found(FoundOwner { cluster_scoped: true, ..as_found(o, None) });
        assert_eq!(climb(&[&node], of_cluster), Action::Exempt);
        let set = owner("apps/v1", "ReplicaSet");
        assert_eq!(climb(&[&set, &node], of_cluster), Action::Pause(set), "no node controls a ReplicaSet");
    }

    #[test]
    fn a_node_controls_static_pods_alone() {
        let pod = |annotations| {
            let metadata = json!({"annotations": annotations, "ownerReferences": [owner("v1", "Node")]});
            serde_json::from_value::<Pod>(json!({"metadata": metadata})).unwrap()
        };
        assert!(controller(&pod(json!({"kubernetes.io/config.mirror": "x"}))).is_some());
        assert!(controller(&pod(json!(null))).is_none());
    }

    #[test]
    fn a_daemon_set_controls_no_pod_that_names_another_owner() {
        let owners =
            [owner("apps/v1", "DaemonSet"), OwnerReference { controller: None, ..owner("v1", "Thing") }];
        let pod = |owners: &[OwnerReference]| {
            serde_json::from_value::<Pod>(json!({"metadata": {"ownerReferences": owners}})).unwrap()
        };
        assert!(controller(&pod(&owners[..1])).is_some() && controller(&pod(&owners)).is_none());
    }

    #[test]
    fn below_an_owner_that_has_ended_the_next_one_is_paused_or_the_pod_is_deleted() {
        let [cluster, job] = ["RayCluster", "RayJob"].map(|kind| owner("ray.io/v1", kind));
        let table = OwnerTable::default();
        let end = |which: &OwnerReference, above: Option<&OwnerReference>, ended: bool| {
            let state = if ended { OwnerState::Ended } else { OwnerState::Live };
            OwnerLookup::Found(FoundOwner { state, ..as_found(which, above) })
        };
        for (cluster_ended, job_ended, action, ended) in [
            (false, false, Action::Pause(job.clone()), None),
            (false, true, Action::Pause(cluster.clone()), Some(&job)),
            (true, false, Action::Pause(job.clone()), Some(&cluster)),
            (true, true, Action::DeletePod, Some(&job)),
        ] {
            let mut climb = Climb::above(None, Some(&cluster), &table);
            climb.answer(end(&cluster, Some(&job), cluster_ended));
            climb.answer(end(&job, None, job_ended));
            assert_eq!(climb.ended.as_ref(), ended);
            assert_eq!(climb.action(), action);
        }
    }

    #[test]
    fn below_an_owner_that_is_held_in_deletion_there_may_be_another_to_pause() {
        let (set, deployment) = (owner("apps/v1", "ReplicaSet"), owner("apps/v1", "Deployment"));
        let table = OwnerTable::default();
        let mut climb = Climb::above(None, Some(&set), &table);
        climb.answer(found(&set, Some(&deployment)));
        climb.answer(deleting(&deployment));
        assert_eq!(climb.pausable, [set]);
        assert_eq!(climb.action(), Action::AwaitDeletion(deployment));
    }
}
