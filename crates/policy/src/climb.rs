//! The way from a pod up to its topmost owner that can be paused.

use std::collections::HashSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use crate::owners::OwnerTable;

/// What the cluster says of an owner. A timeout or a server's error is no answer: ask again, decide nothing.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// It exists.
    Found {
        /// Its uid, which may be another than the reference's if the name was used again.
        uid: String,
        /// Whether it is being deleted.
        deleting: bool,
        /// Its own controller.
        controller: Option<OwnerReference>,
    },
    /// There is no such object, or no such kind.
    Absent,
    /// We may not look at it.
    Forbidden,
}

/// What is to be done about an expired pod.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Pause this ancestor.
    Pause(OwnerReference),
    /// Delete the pod: nothing above it can be paused.
    DeletePod,
    /// Do nothing now: an ancestor is being deleted, and the pod will follow it.
    AwaitDeletion(OwnerReference),
    /// Do nothing, and complain: this ancestor could be paused but may not even be read. Acting on something
    /// below would only start a quarrel with its controller.
    Forbidden(OwnerReference),
}

/// The way from a pod up to its topmost ancestor that can be paused. Ask [`Climb::next`], look that owner up,
/// and tell [`Climb::answer`], until nothing is left to ask; then [`Climb::action`] says what is to be done.
#[derive(Clone, Debug)]
pub struct Climb<'t> {
    table: &'t OwnerTable,
    next: Option<OwnerReference>,
    best: Option<OwnerReference>,
    stop: Option<Action>,
    seen: HashSet<String>,
}

/// More ancestors than any real chain has.
const MAX_DEPTH: usize = 16;

impl<'t> Climb<'t> {
    /// From a pod's controller.
    pub fn from(controller: Option<&OwnerReference>, table: &'t OwnerTable) -> Self {
        Self { table, next: controller.cloned(), best: None, stop: None, seen: HashSet::new() }
    }

    /// The owner to look up next.
    pub const fn next(&self) -> Option<&OwnerReference> {
        self.next.as_ref()
    }

    /// Takes what was found out about [`Climb::next`].
    pub fn answer(&mut self, answer: Answer) {
        let Some(owner) = self.next.take() else { return };
        match answer {
            Answer::Found { uid, .. } if uid != owner.uid => {}
            Answer::Found { deleting: true, .. } if self.table.knows(&owner) => {
                self.stop = Some(Action::AwaitDeletion(owner));
            }
            Answer::Found { deleting: false, controller, .. } => self.climb(owner, controller),
            Answer::Forbidden if self.table.knows(&owner) => {
                self.stop = Some(Action::Forbidden(owner));
            }
            Answer::Found { deleting: true, .. } | Answer::Absent | Answer::Forbidden => {}
        }
    }

    fn climb(&mut self, owner: OwnerReference, controller: Option<OwnerReference>) {
        self.seen.insert(owner.uid.clone());
        let new = |above: &OwnerReference| self.seen.len() < MAX_DEPTH && !self.seen.contains(&above.uid);
        self.next = controller.filter(new);
        if self.table.knows(&owner) {
            self.best = Some(owner);
        }
    }

    /// What is to be done, once nothing is left to ask.
    pub fn action(self) -> Action {
        let Self { best, stop, .. } = self;
        stop.or(best.map(Action::Pause)).unwrap_or(Action::DeletePod)
    }
}

#[cfg(test)]
mod tests {
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

    fn found(owner: &OwnerReference, controller: Option<&OwnerReference>) -> Answer {
        Answer::Found { uid: owner.uid.clone(), deleting: false, controller: controller.cloned() }
    }

    /// Climbs a chain, lowest owner first, of which every link is there; `last` is said of the topmost.
    fn climb(chain: &[&OwnerReference], last: impl Fn(&OwnerReference) -> Answer) -> Action {
        let table = OwnerTable::default();
        let mut climb = Climb::from(chain.first().copied(), &table);
        while let Some(owner) = climb.next().cloned() {
            let place = chain.iter().position(|link| **link == owner).unwrap();
            let answer =
                chain.get(place + 1).map_or_else(|| last(&owner), |above| found(&owner, Some(above)));
            climb.answer(answer);
        }
        climb.action()
    }

    fn top(owner: &OwnerReference) -> Answer {
        found(owner, None)
    }

    #[test]
    fn the_topmost_owner_in_the_table_is_paused() {
        let (set, deployment) = (owner("apps/v1", "ReplicaSet"), owner("apps/v1", "Deployment"));
        assert_eq!(climb(&[&set, &deployment], top), Action::Pause(deployment.clone()));
        assert_eq!(climb(&[&set], top), Action::Pause(set));
    }

    #[test]
    fn unknown_owners_are_climbed_through_but_never_paused() {
        let (job, cron) = (owner("batch/v1", "Job"), owner("batch/v1", "CronJob"));
        assert_eq!(climb(&[&job, &cron], top), Action::Pause(job));
        let (pod, unknown) = (owner("v1", "Pod"), owner("example.com/v1", "Thing"));
        assert_eq!(climb(&[&pod, &unknown], top), Action::DeletePod);
        let (middle, above) = (owner("example.com/v1", "Thing"), owner("apps/v1", "Deployment"));
        assert_eq!(climb(&[&middle, &above], top), Action::Pause(above));
    }

    #[test]
    fn a_kind_of_another_group_is_another_kind() {
        let volcano = owner("batch.volcano.sh/v1alpha1", "Job");
        assert_eq!(climb(&[&volcano], top), Action::DeletePod);
    }

    #[test]
    fn a_pod_without_controller_is_deleted() {
        assert_eq!(climb(&[], top), Action::DeletePod);
    }

    #[test]
    fn an_absent_owner_and_a_namesake_end_the_chain() {
        let (set, deployment) = (owner("apps/v1", "ReplicaSet"), owner("apps/v1", "Deployment"));
        let namesake =
            |_: &OwnerReference| Answer::Found { uid: "other".into(), deleting: false, controller: None };
        for last in [&(|_: &OwnerReference| Answer::Absent) as &dyn Fn(&OwnerReference) -> Answer, &namesake]
        {
            assert_eq!(climb(&[&set, &deployment], last), Action::Pause(set.clone()));
            assert_eq!(climb(&[&set], last), Action::DeletePod);
        }
    }

    #[test]
    fn nothing_is_done_under_an_owner_that_is_being_deleted() {
        let (set, deployment) = (owner("apps/v1", "ReplicaSet"), owner("apps/v1", "Deployment"));
        let deleting =
            |o: &OwnerReference| Answer::Found { uid: o.uid.clone(), deleting: true, controller: None };
        assert_eq!(climb(&[&set, &deployment], deleting), Action::AwaitDeletion(deployment));
    }

    #[test]
    fn another_owner_that_is_being_deleted_ends_the_chain() {
        let (job, cron) = (owner("batch/v1", "Job"), owner("batch/v1", "CronJob"));
        let deleting =
            |o: &OwnerReference| Answer::Found { uid: o.uid.clone(), deleting: true, controller: None };
        assert_eq!(climb(&[&job, &cron], deleting), Action::Pause(job));
    }

    #[test]
    fn a_forbidden_owner_of_the_table_is_never_bypassed() {
        let (set, deployment) = (owner("apps/v1", "ReplicaSet"), owner("apps/v1", "Deployment"));
        assert_eq!(climb(&[&set, &deployment], |_| Answer::Forbidden), Action::Forbidden(deployment));
    }

    #[test]
    fn a_forbidden_owner_of_another_kind_ends_the_chain() {
        let (set, rollout) = (owner("apps/v1", "ReplicaSet"), owner("argoproj.io/v1alpha1", "Rollout"));
        assert_eq!(climb(&[&set, &rollout], |_| Answer::Forbidden), Action::Pause(set));
    }

    #[test]
    fn a_cycle_of_owners_ends() {
        let (a, b) = (owner("example.com/v1", "A"), owner("apps/v1", "ReplicaSet"));
        assert_eq!(climb(&[&a, &b], |o| found(o, Some(&a))), Action::Pause(b.clone()));
    }

    #[test]
    fn a_chain_without_end_ends() {
        let table = OwnerTable::default();
        let mut climb = Climb::from(Some(&owner("example.com/v1", "K0")), &table);
        let mut depth = 0;
        while let Some(next) = climb.next().cloned() {
            depth += 1;
            climb.answer(found(&next, Some(&owner("example.com/v1", &format!("K{depth}")))));
        }
        assert_eq!(depth, MAX_DEPTH);
    }
}
