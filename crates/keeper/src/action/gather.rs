//! Gathers the facts of a case: from the API server once, and from the index and the clock before
//! each judgement.
//!
//! `Pauser::act` gathers for each try. A tenant writes owner references, so an owner that can't be
//! read counts as absent after a number of tries.

use std::{collections::BTreeMap, sync::Arc};

use jiff::SignedDuration;
use k8s_openapi::{api::scheduling::v1::PriorityClass, apimachinery::pkg::apis::meta::v1::OwnerReference};
use kube::Api;
use serde_json::Value;
use tenure_index::{DueBatch, DuePod, Uid};
use tenure_policy::{
    climb::{self, Climb, OwnerLookup},
    creation::{PodClaim, own_claim, priority_classes},
    expiry::exemption,
    judge::{CaseFacts, Climbed, TRIES},
    kueue::{self, Lookup},
    naming::{group_of, of_pod},
    owner_table::{OwnerShape, OwnerTable, is_subdomain},
};
use tenure_service::{
    call::{ApiError, call},
    log::with_causes,
};
use tenure_types::{extension::Extension, projection::Pod};

use super::{
    Act, ActionFailure, Case, MissingFact, OwnerObject, Pauser, RunState, Task, WholeObject, act_events,
    describe, judge, kept::LATE, warn,
};
use crate::{
    api::{FoundWorkloads, if_found},
    events::EventCause,
    handles::Handles,
};

/// The number of tries after which an owner of a kind that can't be paused, or a Workload of Kueue,
/// counts as absent if it can't be read: any user may name an owner in an API that is broken.
const READING_TRIES: u8 = 3;

/// The most pods exempt by priority that are checked before an owner is paused. Any tenant may
/// create more.
const EXEMPT_PODS: usize = 64;

/// The most priority classes of an owner's templates that are looked up.
const MOST_CLASSES: usize = 4;

/// A case that is being worked on.
pub(super) struct CaseWork<'b> {
    /// The due pods. The first is the one that is judged.
    pub batch: &'b DueBatch,
    /// The task, the configuration, and the answers of the API server so far.
    pub case: Case,
    /// The state of the run, as of the last `refresh`.
    pub state: RunState,
    /// The granted extensions of the namespace, listed a moment ago. None: they weren't listed.
    pub granted: Option<Arc<Vec<Extension>>>,
}

impl CaseWork<'_> {
    /// Returns the pod, as it was read. None: the pod wasn't read, or is gone or exempt.
    pub(super) fn pod(&self) -> Option<&Pod> {
        self.case.answers.pod.as_ref()?.as_ref()
    }

    /// Returns the object to act on, as it was read. None: the object wasn't read, or is gone.
    pub(super) fn found(&self) -> Option<&WholeObject> {
        self.case.answers.object.as_ref()?.1.as_ref()
    }

    /// Has the object to act on read again, and after it whether the pod is still there.
    pub(super) fn read_again(&mut self) {
        (self.case.answers.object, self.case.answers.is_still_there) = (None, None);
    }

    /// Returns the cause of the act for its events: the pod and its queue.
    pub(super) fn cause(&self) -> EventCause {
        act_events::cause(self.batch, self.pod())
    }
}

impl Pauser {
    /// Begins a case for which nothing is known.
    pub(super) fn begin<'b>(&self, batch: &'b DueBatch) -> CaseWork<'b> {
        // the same for the whole case: the climb and the pause must use the same table
        let config = self.handles.config.get();
        let case = Case { task: batch.task, due: batch.due(), config, answers: CaseFacts::default() };
        CaseWork { batch, case, state: RunState::default(), granted: None }
    }

    /// Answers the questions of the judgement until there is an act.
    pub(super) async fn gather(&self, work: &mut CaseWork<'_>) -> Result<Act, ActionFailure> {
        loop {
            match judge(&work.case, &work.state, self.handles.now()) {
                Ok(act) => return Ok(act),
                Err(question) => {
                    self.answer(work, question).await?;
                    self.refresh(work);
                }
            }
        }
    }

    /// Brings a case up to date from the index, the gate and the clock, once its pod was read.
    pub(super) fn refresh(&self, work: &mut CaseWork<'_>) {
        let Handles { gate, cluster, .. } = &*self.handles;
        let (due, is_fresh) = (&work.batch.first, gate.is_open());
        let Some(pod) = work.pod() else { return };
        let owner = work.found().map(|found| &found.metadata);
        let granted = work.granted.as_ref().map(|granted| granted.as_slice());
        let queue = (due.family, due.queue.as_str());
        let state = cluster.with(|index| index.run_state(pod, queue, owner, granted, self.handles.now()));
        work.state = RunState { is_fresh, ..state };
    }

    /// Answers one question of the judgement from the API server.
    async fn answer(&self, work: &mut CaseWork<'_>, question: MissingFact) -> Result<(), ActionFailure> {
        let due = &work.batch.first;
        match question {
            MissingFact::Pod => work.case.answers.pod = Some(self.pod(due).await?),
            MissingFact::StillThere => {
                work.case.answers.is_still_there = Some(self.pod(due).await?.is_some());
            }
            MissingFact::Queues => {
                let mut are_as_known = true;
                for queue in
                    [Some(due.queue.as_str()), work.state.absent_queue.as_deref()].into_iter().flatten()
                {
                    are_as_known &= self.handles.queues.are_as_known(due.family, queue).await?;
                }
                work.case.answers.queues_are_as_known = Some(are_as_known);
            }
            MissingFact::Climb => {
                let Some(pod) = work.pod() else { return Ok(()) };
                let is_own = work.state.ceiling.as_ref().is_some_and(|of| of.queue.is_none());
                let own = if is_own { own_claim(pod) } else { None };
                let (of, table) = ((due.namespace.as_str(), due.attempts), &work.case.config.table);
                let climbed = self.climb(of, pod, own, table).await?;
                work.case.answers.climbed = Some(climbed);
            }
            MissingFact::Workload(of) => {
                let workload = self.workload(work, of.as_ref()).await?;
                work.case.answers.workload = Some(workload);
            }
            MissingFact::ExemptPod(owner) => {
                let has_one = self.has_an_exempt_pod(work, &owner).await?;
                work.case.answers.exempt_pods.insert(owner.uid, has_one);
            }
            MissingFact::Stopped(owner) => {
                // one that can't be read may go on
                let has_stopped = self.has_stopped(due, &owner, &work.case.config.table).await;
                let has_stopped = has_stopped.unwrap_or(false);
                work.case.answers.stopped.insert(owner.uid, has_stopped);
            }
            MissingFact::Object(object) => {
                let found = match if_found(self.handles.objects.get(&due.namespace, &object).await) {
                    Err(source) if work.batch.task.ends_run() => {
                        return Err(ActionFailure::Pause { owner: object, source });
                    }
                    found => found?,
                };
                work.case.answers.object = Some((object, found));
            }
        }
        Ok(())
    }

    /// Reads a due pod. None: the pod is gone, another pod has its name, or it is exempt by now.
    pub(super) async fn pod(&self, due: &DuePod) -> Result<Option<Pod>, ApiError> {
        let pod = if_found(self.handles.objects.pod(&due.namespace, &due.name).await)?;
        let is_meant = |pod: &Pod| pod.metadata.uid.as_deref().is_some_and(|uid| Uid::of(uid) == due.uid);
        Ok(pod.filter(|pod| is_meant(pod) && exemption(pod, &self.scope).is_none()))
    }

    /// Returns the object that gets an event about a pod: the topmost owner that can be paused, or
    /// the pod itself. None: the pod is gone.
    pub async fn object_of(
        &self,
        namespace: &str,
        pod: &str,
    ) -> Result<Option<OwnerReference>, ActionFailure> {
        let Some(pod) = if_found(self.handles.objects.pod(namespace, pod).await)? else { return Ok(None) };
        let config = self.handles.config.get();
        let mut climbed = self.climb((namespace, 0), &pod, None, &config.table).await?;
        Ok(Some(climbed.pausable.pop().unwrap_or_else(|| of_pod(&pod))))
    }

    /// Looks up the owners of a pod, from its controller upwards. `own` is the pod's own ceiling,
    /// if that has ended its run. An owner that can't be read is an error while `attempts` are few.
    async fn climb(
        &self,
        (namespace, attempts): (&str, u8),
        pod: &Pod,
        own: Option<SignedDuration>,
        table: &OwnerTable,
    ) -> Result<Climbed, ActionFailure> {
        let none = BTreeMap::new();
        let labels = pod.metadata.labels.as_ref().unwrap_or(&none);
        let mut climb = Climb::above(None, climb::controller(pod), table);
        // the nearest owner with a template has made the pod, itself or by way of another: an owner
        // further up may have another template by now
        let mut judged = Some((PodClaim { labels, own }, table));
        while let Some(owner) = climb.next() {
            let tries = if table.knows(owner) { TRIES } else { READING_TRIES };
            let has_templates = OwnerShape::of(group_of(&owner.api_version), &owner.kind, table).is_some();
            let (selected, judged) =
                (climb.pod_labels.as_ref().unwrap_or(labels), judged.take_if(|_| has_templates));
            let found = self.handles.objects.find_owner(namespace, owner, selected, judged).await;
            let answer = match found {
                Ok(answer) => answer,
                // the pod was read just now, so the API server answers: it is this owner that can't
                // be read
                Err(source) if attempts < tries => {
                    return Err(ActionFailure::Unreadable { owner: owner.clone(), source });
                }
                Err(_) => OwnerLookup::Absent,
            };
            climb.answer(answer);
        }
        let (pausable, ended) = (climb.pausable.clone(), climb.ended.clone());
        Ok(Climbed { action: climb.action(), pausable, ended })
    }

    /// True if this owner's templates make pods that are exempt by priority, and one of them is
    /// live. Such an owner isn't paused. An exempt pod whose priority is not from a template
    /// doesn't count: otherwise one such pod would keep all pods running.
    async fn has_an_exempt_pod(
        &self,
        work: &CaseWork<'_>,
        owner: &OwnerReference,
    ) -> Result<bool, ActionFailure> {
        let namespace = &work.batch.first.namespace;
        let exempt = self.handles.cluster.with(|index| index.exempt_pods(namespace, Uid::of(&owner.uid)));
        for pod in exempt.into_iter().take(EXEMPT_PODS) {
            if self.owners_of_exempt(work, &pod).await?.contains(&owner.uid) {
                if !self.makes_exempt_pods(work, owner).await? {
                    return Ok(false);
                }
                let owner = describe(owner);
                warn!(%namespace, owner, pod, "Not paused, because it has a pod that is exempt by priority");
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// True if a template of an owner names a class that is exempt, or if its templates aren't
    /// known.
    async fn makes_exempt_pods(
        &self,
        work: &CaseWork<'_>,
        owner: &OwnerReference,
    ) -> Result<bool, ActionFailure> {
        let found = if_found(self.handles.objects.get(&work.batch.first.namespace, owner).await)?;
        let Some(found) = found else { return Ok(false) };
        let classes: Api<PriorityClass> = Api::all(self.handles.client.clone());
        let Some(named) = priority_classes(owner, &found.value, &work.case.config.table) else {
            return Ok(true);
        };
        // templates of kinds of definitions may name any text
        for class in named.into_iter().filter(|name| is_subdomain(name)).take(MOST_CLASSES) {
            let found = call(classes.get_opt(&class)).await?;
            if found.is_some_and(|class| class.value.unwrap_or(0) >= self.scope.priority_threshold) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the uids of an exempt pod's owners that can be paused, as they were a moment ago.
    async fn owners_of_exempt(&self, work: &CaseWork<'_>, name: &str) -> Result<Vec<String>, ActionFailure> {
        let (due, config) = (&work.batch.first, &work.case.config);
        let key = (due.namespace.clone(), name.to_owned());
        let known = self.exempt_owners.lock().get(&key, config);
        if let Some(owners) = known {
            return Ok(owners);
        }
        let pod = if_found(self.handles.objects.pod(&due.namespace, name).await)?;
        let Some(pod) = pod else { return Ok(Vec::new()) };
        let of = (due.namespace.as_str(), due.attempts);
        let climbed = self.climb(of, &pod, None, &config.table).await?;
        let owners = climbed.pausable.into_iter().map(|owner| owner.uid).collect::<Vec<_>>();
        self.exempt_owners.lock().insert(key, owners.clone(), config);
        Ok(owners)
    }

    /// True if an owner is paused, being deleted or gone.
    pub(super) async fn has_stopped(
        &self,
        due: &DuePod,
        owner: &OwnerReference,
        table: &OwnerTable,
    ) -> Result<bool, ApiError> {
        let is_paused =
            |found: WholeObject| table.rules(owner).any(|rule| OwnerObject(&found.value).is_paused(rule));
        Ok(self.handles.objects.live(&due.namespace, owner).await?.is_none_or(is_paused))
    }

    /// Returns the Workload of Kueue to pause in place of a topmost owner, or in place of deleting
    /// the pod if there is no owner. None: there is no Workload, it can't be read after some tries,
    /// or it belongs to a group of pods one of which is exempt by priority.
    async fn workload(
        &self,
        work: &CaseWork<'_>,
        owner: Option<&OwnerReference>,
    ) -> Result<Option<OwnerReference>, ActionFailure> {
        let (due, table) = (&work.batch.first, &work.case.config.table);
        let Some(pod) = work.pod() else { return Ok(None) };
        let lookup = owner.map_or_else(|| kueue::of_pod(pod, table), |owner| kueue::of_owner(owner, table));
        let Some(lookup) = lookup else { return Ok(None) };
        let uid =
            owner.map_or_else(|| pod.metadata.uid.clone().unwrap_or_default(), |owner| owner.uid.clone());
        let found = self.workloads(due, lookup, &uid).await?;
        let Some(found) = kueue::chosen(&found, &uid) else { return Ok(None) };
        let workload = kueue::refer_to(OwnerObject(found));
        let exempt =
            self.handles.cluster.with(|index| index.exempt_pods(&due.namespace, Uid::of(&workload.uid)));
        if owner.is_none() && kueue::is_owned_by_any(OwnerObject(found), &exempt) {
            let (namespace, owner) = (&due.namespace, describe(&workload));
            warn!(%namespace, owner, "Not paused, because it has a pod that is exempt by priority");
            return Ok(None);
        }
        Ok(Some(workload))
    }

    /// Looks for the Workload of Kueue for the owner or pod with this uid. A failure is an error for
    /// the first tries, and then counts as no Workload.
    async fn workloads(
        &self,
        due: &DuePod,
        lookup: Lookup<'_>,
        uid: &str,
    ) -> Result<Vec<Value>, ActionFailure> {
        match self.try_to_find_workloads(&due.namespace, lookup, uid).await {
            Ok(found) => Ok(found),
            Err(source) if due.attempts < READING_TRIES => {
                Err(ActionFailure::Unreadable { owner: lookup.workload(), source })
            }
            Err(error) => {
                let (namespace, error) = (&due.namespace, with_causes(&error));
                warn!(%namespace, error, "Can't read Workloads of Kueue: going on without them");
                Ok(Vec::new())
            }
        }
    }

    /// Returns the Workload of Kueue for the owner or pod with this uid, and the parts of the
    /// Workloads that can't be read whole. Kueue resumes a job whose Workload is admitted, so such a
    /// Workload is chosen, too: the job isn't paused in its place. The keeper can't pause the
    /// Workload, and deletes the pods after all tries.
    async fn try_to_find_workloads(
        &self,
        namespace: &str,
        lookup: Lookup<'_>,
        uid: &str,
    ) -> Result<Vec<Value>, ApiError> {
        let chosen = |found: &[WholeObject]| -> Vec<Option<String>> {
            let workload = kueue::chosen(found.iter().map(|found| &found.value), uid).map(OwnerObject);
            workload.map(|workload| Some(kueue::refer_to(workload).uid)).into_iter().collect()
        };
        let FoundWorkloads { chosen, unreadable } =
            self.handles.objects.workloads(namespace, lookup, chosen).await?;
        let mut found: Vec<Value> = chosen.into_iter().map(|workload| workload.value).collect();
        for workload in &unreadable {
            let parts = if_found(self.handles.objects.workload_parts(namespace, workload, uid).await)?;
            // users may make hundreds of others
            found.extend(parts.filter(|parts| kueue::chosen([parts], uid).is_some()));
        }
        Ok(found)
    }

    /// Lists the granted extensions of a namespace, if the run may get more time: grants up to this
    /// moment count. None: the run gets no more time, or the list was refused, or the run is late.
    /// Then the extensions count that the watch has shown: a tenant may make as many extensions as
    /// take any time to list.
    pub(super) async fn granted(
        &self,
        work: &CaseWork<'_>,
    ) -> Result<Option<Arc<Vec<Extension>>>, ActionFailure> {
        if work.batch.task != Task::Expire || !work.state.may_be_extended {
            return Ok(None);
        }
        let (due, began) = (&work.batch.first, self.handles.now());
        let known = self.extensions.lock().get(&due.namespace, due.deadline, began);
        if known.is_some() || began.duration_since(due.deadline) > LATE {
            return Ok(known);
        }
        match self.handles.objects.granted_extensions(&due.namespace).await {
            Ok(listed) => {
                let listed = Arc::new(listed);
                self.extensions.lock().insert(&due.namespace, began, &listed);
                Ok(Some(listed))
            }
            // a list that fails must not hold up an end for long
            Err(error) if error.is_refusal() || self.handles.now().duration_since(due.deadline) > LATE => {
                let (namespace, pod) = (&due.namespace, &due.name);
                warn!(%namespace, %pod, %error, "Failed to list extensions: using those that the watch has shown");
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }
}
