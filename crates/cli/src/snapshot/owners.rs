//! The owners of pods, and which of them is the workload.

use std::collections::{HashMap, HashSet};

use anyhow::Result;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::core::PartialObjectMeta;
use tenure_index::Uid;
use tenure_policy::{
    climb::{Action, Answer, Climb},
    owners::{OwnerTable, group_of},
};
use tenure_types::{keys::PAUSED_ANNOTATION, projection};

use super::{Source, decode};
use crate::{
    input::Document,
    kinds::Kind,
    server::{code, explain},
    tell::warn,
};

/// An object of a kind that was listed.
#[derive(Clone, Debug)]
pub struct Owner {
    pub namespace: String,
    pub reference: OwnerReference,
    pub deleting: bool,
    pub controller: Option<OwnerReference>,
    /// Its metadata, if it has the record of a pause.
    pub paused: Option<Box<ObjectMeta>>,
}

impl Owner {
    /// None if it has no name.
    pub fn read(kind: &Kind, metadata: &ObjectMeta) -> Option<Self> {
        let is_paused = metadata.annotations.as_ref().is_some_and(|all| all.contains_key(PAUSED_ANNOTATION));
        Some(Self {
            namespace: metadata.namespace.clone().unwrap_or_default(),
            reference: OwnerReference {
                uid: metadata.uid.clone()?,
                ..kind.reference(metadata.name.as_deref()?)
            },
            deleting: metadata.deletion_timestamp.is_some(),
            controller: projection::controller(metadata).cloned(),
            paused: is_paused.then(|| Box::new(metadata.clone())),
        })
    }
}

/// What is known of owners.
#[derive(Debug, Default)]
pub struct Owners {
    /// Group and kind of what was listed as a whole.
    listed: HashSet<(String, String)>,
    by_uid: HashMap<Uid, Owner>,
    /// What was asked for one by one.
    asked: HashMap<Uid, Answer>,
}

/// Where a climb has come to.
#[derive(Debug, PartialEq)]
pub enum Step {
    /// This owner is to be asked for first.
    Ask(OwnerReference),
    Done(Action),
}

impl Owners {
    /// All objects of a kind are known, once they were added.
    pub fn listed(&mut self, group: &str, kind: &str) {
        self.listed.insert((group.to_owned(), kind.to_owned()));
    }

    /// A kind may not be listed after all.
    pub fn not_listed(&mut self, group: &str, kind: &str) {
        self.listed.remove(&(group.to_owned(), kind.to_owned()));
    }

    pub fn extend(&mut self, owners: impl IntoIterator<Item = Owner>) {
        self.by_uid.extend(owners.into_iter().map(|owner| (Uid::of(&owner.reference.uid), owner)));
    }

    pub fn learn(&mut self, owner: &OwnerReference, answer: Answer) {
        self.asked.insert(Uid::of(&owner.uid), answer);
    }

    fn answer(&self, namespace: &str, owner: &OwnerReference) -> Option<Answer> {
        let uid = Uid::of(&owner.uid);
        let key = (group_of(&owner.api_version).to_owned(), owner.kind.clone());
        if !self.listed.contains(&key) {
            return self.asked.get(&uid).cloned();
        }
        let is_meant = |found: &&Owner| {
            let Owner { namespace: place, reference, .. } = found;
            (place.is_empty() || place == namespace)
                && (&reference.name, &reference.kind) == (&owner.name, &owner.kind)
        };
        Some(self.by_uid.get(&uid).filter(is_meant).map_or(Answer::Absent, |found| Answer::Found {
            uid: owner.uid.clone(),
            deleting: found.deleting,
            controller: found.controller.clone(),
        }))
    }

    /// Climbs from something that is controlled, as the keeper does.
    pub fn climb(&self, table: &OwnerTable, namespace: &str, controller: Option<&OwnerReference>) -> Step {
        let mut climb = Climb::from(controller, table);
        while let Some(owner) = climb.next() {
            match self.answer(namespace, owner) {
                Some(answer) => climb.answer(answer),
                None => return Step::Ask(owner.clone()),
            }
        }
        Step::Done(climb.action())
    }

    /// Those that have a record of a pause.
    pub fn paused(&self) -> impl Iterator<Item = (&Owner, &ObjectMeta)> {
        self.by_uid.values().filter_map(|owner| Some((owner, owner.paused.as_deref()?)))
    }
}

/// What is said of an owner by its metadata. Manifests have no uid.
pub fn found(owner: &OwnerReference, metadata: &ObjectMeta) -> Answer {
    Answer::Found {
        uid: metadata.uid.clone().unwrap_or_else(|| owner.uid.clone()),
        deleting: metadata.deletion_timestamp.is_some(),
        controller: projection::controller(metadata).cloned(),
    }
}

impl Source {
    /// Looks an owner up, with its metadata.
    pub(super) async fn look_up(
        &self,
        namespace: &str,
        owner: &OwnerReference,
    ) -> Result<(Answer, Option<ObjectMeta>)> {
        let cluster = match self {
            Self::Files(documents) => return Ok(in_files(documents, namespace, owner)),
            Self::Cluster(cluster) => cluster,
        };
        match cluster.look_up(namespace, owner).await {
            Ok(Some(metadata)) => Ok((found(owner, &metadata), Some(metadata))),
            Ok(None) => Ok((Answer::Absent, None)),
            Err(error) if code(&error) == Some(403) => Ok((Answer::Forbidden, None)),
            Err(error) => Err(explain(error)),
        }
    }
}

/// An owner that isn't there is taken to exist: whoever gives some objects needn't give all.
fn in_files(documents: &[Document], namespace: &str, owner: &OwnerReference) -> (Answer, Option<ObjectMeta>) {
    let (group, name) = (group_of(&owner.api_version), Some(owner.name.as_str()));
    let of = |namespace: Option<&str>| {
        let is_meant = |document: &&Document| {
            (document.group(), &document.kind) == (group, &owner.kind)
                && (document.name(), document.namespace()) == (name, namespace)
        };
        // the last one counts
        let mut found = documents.iter().rev().filter(is_meant);
        found.find_map(|document| decode::<PartialObjectMeta>(document).ok())
    };
    if let Some(PartialObjectMeta { mut metadata, .. }) = of(Some(namespace)).or_else(|| of(None)) {
        metadata.uid.get_or_insert_with(|| owner.uid.clone());
        return (found(owner, &metadata), Some(metadata));
    }
    warn(&format!(
        "{} {:?}, an owner, is not among the objects that were read: it is taken to exist and to have no owner itself",
        owner.kind, owner.name
    ));
    (found(owner, &ObjectMeta::default()), None)
}

#[cfg(test)]
mod tests {
    use super::*;

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

    fn owner(reference: &OwnerReference, controller: Option<&OwnerReference>) -> Owner {
        Owner {
            namespace: "ns".into(),
            reference: reference.clone(),
            deleting: false,
            controller: controller.cloned(),
            paused: None,
        }
    }

    #[test]
    fn what_was_not_listed_is_asked_for() {
        let (job, cron) = (reference("batch/v1", "Job", "j"), reference("batch/v1", "CronJob", "c"));
        let (table, mut owners) = (OwnerTable::default(), Owners::default());
        owners.listed("batch", "Job");
        owners.extend([owner(&job, Some(&cron))]);
        assert_eq!(owners.climb(&table, "ns", Some(&job)), Step::Ask(cron.clone()));
        owners.learn(&cron, Answer::Found { uid: "c".into(), deleting: false, controller: None });
        assert_eq!(owners.climb(&table, "ns", Some(&job)), Step::Done(Action::Pause(job)));
    }

    #[test]
    fn an_owner_of_another_namespace_or_name_is_none() {
        let job = reference("batch/v1", "Job", "j");
        let (table, mut owners) = (OwnerTable::default(), Owners::default());
        owners.listed("batch", "Job");
        owners.extend([owner(&job, None)]);
        assert_eq!(owners.climb(&table, "other", Some(&job)), Step::Done(Action::DeletePod));
        let misnamed = OwnerReference { name: "b".into(), ..job.clone() };
        assert_eq!(owners.climb(&table, "ns", Some(&misnamed)), Step::Done(Action::DeletePod));
        assert_eq!(owners.climb(&table, "ns", Some(&job)), Step::Done(Action::Pause(job)));
    }
}
