//! The owners of pods, the one of them that is the workload, and the workloads that a label
//! selector selects.
//!
//! Called by the climbs of [`Snapshot`](super::Snapshot). An owner is known from a list, or was
//! asked for by itself; the latter counts for more, because it shows whether the owner has ended.

use std::collections::{BTreeMap, HashMap, HashSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use tenure_index::Uid;
use tenure_policy::{
    climb::{Action, FoundOwner, OwnerLookup, OwnerState},
    naming::group_of,
    owner_table::{EndedWhen, PausableKinds},
    pause::{self, OwnerObject},
};
use tenure_types::{
    keys::{MAX_DURATION_ANNOTATION, PAUSED_ANNOTATION},
    projection::{self, Owner},
    selector::Selector,
};

use super::decode;
use crate::{cluster::ResourceKind, input::Document, print::warn};

/// An object of a kind that was listed as a whole.
#[derive(Clone, Debug)]
pub struct ListedOwner {
    pub namespace: String,
    pub reference: OwnerReference,
    /// The answer for a climb, which can't say whether the owner has ended.
    answer: OwnerLookup,
    /// The metadata with the record of a pause. None: there is no record.
    paused: Option<Box<ObjectMeta>>,
}

impl ListedOwner {
    /// Returns the owner of this metadata. None: the object has no name or uid.
    pub fn read(kind: &ResourceKind, metadata: &ObjectMeta) -> Option<Self> {
        let reference =
            OwnerReference { uid: metadata.uid.clone()?, ..kind.reference(metadata.name.as_deref()?) };
        Some(Self::of(reference, metadata))
    }

    /// Returns the owner with this reference.
    pub fn of(reference: OwnerReference, metadata: &ObjectMeta) -> Self {
        let is_paused = metadata.annotations.as_ref().is_some_and(|all| all.contains_key(PAUSED_ANNOTATION));
        Self {
            namespace: metadata.namespace.clone().unwrap_or_default(),
            reference,
            answer: found(metadata, false),
            paused: is_paused.then(|| Box::new(metadata.clone())),
        }
    }
}

/// An owner that is asked for by itself: the namespace of the objects below, group, kind and name, and
/// the uid. Any user may name the uid of another user's object, by a name that no object has.
pub type AskedOwner = (String, [String; 3], Uid);

/// Returns the owner that is asked for, where objects in a namespace name this one.
pub fn asked_owner(namespace: &str, owner: &OwnerReference) -> AskedOwner {
    let names = [group_of(&owner.api_version), &owner.kind, &owner.name].map(str::to_owned);
    (namespace.to_owned(), names, Uid::of(&owner.uid))
}

/// The owners that are known, and the kinds of which all objects are known.
#[derive(Debug, Default)]
pub struct KnownOwners {
    /// Group and kind of owners that were listed as a whole. An object of these that isn't in the
    /// list doesn't exist.
    listed: HashSet<(String, String)>,
    by_uid: HashMap<Uid, ListedOwner>,
    /// The answers about owners that were asked for one by one. They count for more than the list.
    asked: HashMap<AskedOwner, OwnerLookup>,
    /// The annotations `tenure.dev/max-duration` of owners.
    max_durations: HashMap<Uid, String>,
}

/// The state of a climb.
#[derive(Debug, PartialEq)]
pub enum ClimbStep {
    /// The owner that must be read before the climb can go on.
    Ask(OwnerReference),
    /// The action that the keeper would take.
    Done(Action),
}

impl KnownOwners {
    /// Notes that all objects of a kind are known, once they are added.
    pub fn listed(&mut self, group: &str, kind: &str) {
        self.listed.insert((group.to_owned(), kind.to_owned()));
    }

    /// Notes that a kind couldn't be listed after all.
    pub fn not_listed(&mut self, group: &str, kind: &str) {
        self.listed.remove(&(group.to_owned(), kind.to_owned()));
    }

    /// Adds objects of a list.
    pub fn extend(&mut self, owners: impl IntoIterator<Item = ListedOwner>) {
        self.by_uid.extend(owners.into_iter().map(|owner| (Uid::of(&owner.reference.uid), owner)));
    }

    /// Records the answer about an owner of objects in a namespace that was asked for by itself.
    pub fn learn(&mut self, namespace: &str, owner: &OwnerReference, answer: OwnerLookup) {
        self.asked.insert(asked_owner(namespace, owner), answer);
    }

    /// Records the annotation `tenure.dev/max-duration` of an owner.
    pub fn note(&mut self, metadata: &ObjectMeta) {
        let text = metadata.annotations.as_ref().and_then(|all| all.get(MAX_DURATION_ANNOTATION));
        let noted = metadata.uid.as_deref().zip(text);
        self.max_durations.extend(noted.map(|(uid, text)| (Uid::of(uid), text.clone())));
    }

    /// Returns the annotation `tenure.dev/max-duration` of an owner, if it was read.
    pub fn max_duration(&self, owner: &OwnerReference) -> Option<&str> {
        self.max_durations.get(&Uid::of(&owner.uid)).map(String::as_str)
    }

    /// Returns the answer about an owner of an object in a namespace. None: the owner must be asked
    /// for.
    pub fn answer(&self, namespace: &str, owner: &OwnerReference) -> Option<OwnerLookup> {
        let uid = Uid::of(&owner.uid);
        let key = (group_of(&owner.api_version).to_owned(), owner.kind.clone());
        let asked = self.asked.get(&asked_owner(namespace, owner));
        if asked.is_some() || !self.listed.contains(&key) {
            return asked.cloned();
        }
        let is_meant = |found: &&ListedOwner| {
            let ListedOwner { namespace: place, reference, .. } = found;
            (place.is_empty() || place == namespace)
                && (&reference.name, &reference.kind) == (&owner.name, &owner.kind)
        };
        let Some(found) = self.by_uid.get(&uid).filter(is_meant) else { return Some(OwnerLookup::Absent) };
        // a list has metadata alone, which don't show an owner's end
        (!may_outlive_its_end(owner)).then(|| found.answer.clone())
    }

    /// Returns a paused object that this one controls, as `job/nightly-1`. Of several, the last by
    /// name. None: no such object is known. A record that doesn't name its object may be a copy.
    pub fn paused_below(&self, above: &ObjectMeta) -> Option<String> {
        let is_below =
            |of: &ObjectMeta| projection::controller(of).map(|of| Some(&of.uid)) == Some(above.uid.as_ref());
        let below = self.paused().filter(|(_, of)| is_below(of) && pause::says_whose(of));
        let named =
            below.map(|(of, _)| format!("{}/{}", of.reference.kind.to_lowercase(), of.reference.name));
        named.max()
    }

    /// Returns the owners that have the record of a pause, with their metadata.
    pub fn paused(&self) -> impl Iterator<Item = (&ListedOwner, &ObjectMeta)> {
        self.by_uid.values().filter_map(|owner| Some((owner, owner.paused.as_deref()?)))
    }
}

/// True if objects below an owner of this kind may go on after the owner's end, which its status
/// shows. The controller of Jobs deletes the pods of an ended Job itself.
fn may_outlive_its_end(owner: &OwnerReference) -> bool {
    let group = group_of(&owner.api_version);
    let row = PausableKinds::of(group, &owner.kind);
    group != "batch" && row.is_some_and(|row| row.ended != EndedWhen::Never)
}

/// Returns the answer about an owner that exists, by its metadata. `has_ended`: its status shows an
/// end.
pub fn found(metadata: &ObjectMeta, has_ended: bool) -> OwnerLookup {
    OwnerLookup::Found(FoundOwner {
        uid: metadata.uid.clone().unwrap_or_default(),
        state: match metadata.deletion_timestamp {
            Some(_) => OwnerState::Deleting,
            None if has_ended => OwnerState::Ended,
            None => OwnerState::Live,
        },
        // a manifest, which has no resource version yet, may leave its namespace out
        cluster_scoped: metadata.namespace.is_none() && metadata.resource_version.is_some(),
        selects: true,
        labels: BTreeMap::new(),
        controller: projection::controller(metadata).cloned(),
    })
}

/// Returns true if an owner among the objects of files has ended, and its metadata. An owner that
/// isn't among them is taken to exist, with a warning: files needn't hold all objects of a cluster.
/// Manifests have no uid: the reference's counts.
pub fn in_files(documents: &[Document], namespace: &str, owner: &OwnerReference) -> (bool, ObjectMeta) {
    let (group, name) = (group_of(&owner.api_version), Some(owner.name.as_str()));
    let of = |namespace: Option<&str>| {
        let is_meant = |document: &&Document| {
            (document.group(), &document.kind) == (group, &owner.kind)
                && (document.name(), document.namespace()) == (name, namespace)
        };
        // of objects with the same name, the last one counts
        let mut found = documents.iter().rev().filter(is_meant);
        found.find_map(|document| {
            let metadata = decode::<Owner>(document).ok()?.metadata;
            Some((OwnerObject(&document.value).is_finished(), metadata))
        })
    };
    let known = of(Some(namespace)).or_else(|| of(None));
    if known.is_none() {
        warn(&format!(
            "owner {} {:?} is not among the objects that were read: it is assumed to exist and to have no owner",
            owner.kind, owner.name
        ));
    }
    let (has_ended, mut metadata) = known.unwrap_or_default();
    metadata.uid.get_or_insert_with(|| owner.uid.clone());
    (has_ended, metadata)
}

/// The objects that a label selector selects. Without a selector, all objects are selected.
#[derive(Debug, Default)]
pub struct SelectedObjects {
    pub selector: Option<Selector>,
    uids: HashSet<Uid>,
}

impl SelectedObjects {
    /// Adds an object if the selector selects its labels. Does nothing without a selector.
    pub fn take(&mut self, uid: Option<&str>, labels: Option<&BTreeMap<String, String>>) {
        let Self { selector: Some(selector), uids } = self else { return };
        let none = BTreeMap::new();
        if let Some(uid) = uid.filter(|_| selector.selects(labels.unwrap_or(&none))) {
            uids.insert(Uid::of(uid));
        }
    }

    /// True if the object with this uid is selected.
    pub fn contains(&self, uid: &Uid) -> bool {
        self.selector.is_none() || self.uids.contains(uid)
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use tenure_policy::config::Config;

    use super::*;
    use crate::snapshot::Snapshot;

    fn reference(api_version: &str, kind: &str, uid: &str) -> OwnerReference {
        OwnerReference {
            api_version: api_version.into(),
            kind: kind.into(),
            name: "a".into(),
            uid: uid.into(),
            controller: Some(true),
            ..OwnerReference::default()
        }
    }

    fn owner(reference: &OwnerReference, controller: Option<&OwnerReference>) -> ListedOwner {
        let (uid, controller) = (reference.uid.clone(), controller.cloned());
        ListedOwner {
            namespace: "ns".into(),
            reference: reference.clone(),
            answer: OwnerLookup::Found(FoundOwner {
                uid,
                state: OwnerState::Live,
                cluster_scoped: false,
                selects: true,
                labels: BTreeMap::new(),
                controller,
            }),
            paused: None,
        }
    }

    /// A snapshot with this Job among those that were listed.
    fn with_job(job: ListedOwner) -> Snapshot {
        let mut snapshot = Snapshot::new(&Config::default(), None, Timestamp::default());
        snapshot.owners.listed("batch", "Job");
        snapshot.owners.extend([job]);
        snapshot
    }

    #[test]
    fn what_was_not_listed_is_asked_for() {
        let (job, cron) = (reference("batch/v1", "Job", "j"), reference("batch/v1", "CronJob", "c"));
        let mut snapshot = with_job(owner(&job, Some(&cron)));
        assert_eq!(snapshot.climb_known("ns", None, Some(&job)), ClimbStep::Ask(cron.clone()));
        snapshot.owners.learn("ns", &cron, owner(&cron, None).answer);
        assert_eq!(snapshot.climb_known("ns", None, Some(&job)), ClimbStep::Done(Action::Pause(job)));
    }

    #[test]
    fn whether_an_owner_has_ended_is_asked_for_and_below_it_the_next_one_is_paused() {
        let (job, cluster) =
            (reference("ray.io/v1", "RayJob", "j"), reference("ray.io/v1", "RayCluster", "c"));
        let mut snapshot = Snapshot::new(&Config::default(), None, Timestamp::default());
        for kind in ["RayJob", "RayCluster"] {
            snapshot.owners.listed("ray.io", kind);
        }
        snapshot.owners.extend([owner(&job, None), owner(&cluster, Some(&job))]);
        let climb = |snapshot: &Snapshot| snapshot.climb_known("ns", None, Some(&cluster));
        assert_eq!(climb(&snapshot), ClimbStep::Ask(job.clone()));
        for (has_ended, expected) in [(false, &job), (true, &cluster)] {
            let metadata = ObjectMeta { uid: Some("j".into()), ..ObjectMeta::default() };
            snapshot.owners.learn("ns", &job, found(&metadata, has_ended));
            assert_eq!(climb(&snapshot), ClimbStep::Done(Action::Pause(expected.clone())));
        }
    }

    #[test]
    fn an_owner_of_another_namespace_or_name_is_none() {
        let job = reference("batch/v1", "Job", "j");
        let snapshot = with_job(owner(&job, None));
        assert_eq!(snapshot.climb_known("other", None, Some(&job)), ClimbStep::Done(Action::DeletePod));
        let misnamed = OwnerReference { name: "b".into(), ..job.clone() };
        assert_eq!(snapshot.climb_known("ns", None, Some(&misnamed)), ClimbStep::Done(Action::DeletePod));
        assert_eq!(snapshot.climb_known("ns", None, Some(&job)), ClimbStep::Done(Action::Pause(job)));
    }

    #[test]
    fn an_owner_whose_uid_other_pods_name_in_vain_counts_for_its_own_pods() {
        let job = reference("ray.io/v1", "RayJob", "j");
        let misnamed = OwnerReference { name: "b".into(), ..job.clone() };
        let forged = [("elsewhere", job.clone()), ("ns", misnamed), ("ns", reference("v1", "Pod", "j"))];
        let mut snapshot = Snapshot::new(&Config::default(), None, Timestamp::default());
        for (namespace, owner) in &forged {
            snapshot.owners.learn(namespace, owner, OwnerLookup::Absent);
            let climb = snapshot.climb_known(namespace, None, Some(owner));
            assert_eq!(climb, ClimbStep::Done(Action::DeletePod));
        }
        assert_eq!(snapshot.climb_known("ns", None, Some(&job)), ClimbStep::Ask(job.clone()));
        snapshot.owners.learn("ns", &job, owner(&job, None).answer);
        assert_eq!(snapshot.climb_known("ns", None, Some(&job)), ClimbStep::Done(Action::Pause(job)));
    }

    #[test]
    fn an_object_that_was_not_read_is_not_selected() {
        let labels = BTreeMap::from([("a".to_owned(), "1".to_owned())]);
        let mut selected =
            SelectedObjects { selector: Some("a=1".parse().unwrap()), ..SelectedObjects::default() };
        selected.take(Some("u"), Some(&labels));
        selected.take(Some("v"), None);
        assert_eq!(["u", "v", "w"].map(|uid| selected.contains(&Uid::of(uid))), [true, false, false]);
        assert!(SelectedObjects::default().contains(&Uid::of("w")));
    }
}
