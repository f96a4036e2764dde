//! Whose a pod is, in a cluster or among the objects of files.

use std::collections::HashMap;

use anyhow::Result;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{Client, core::PartialObjectMeta};
use tenure_policy::{
    climb::{Action, Answer, Climb},
    owners::{OwnerTable, group_of},
};
use tenure_types::projection;

use super::decode;
use crate::{
    input::Document,
    kinds::Kinds,
    server::{code, explain},
    target::is_segment,
    tell::warn,
};

/// Where owners are looked up.
pub enum Owners {
    /// In files: by group, kind, namespace if they name one, and name.
    Files(HashMap<Name, ObjectMeta>),
    Cluster(Client, Kinds),
}

type Name = (String, String, Option<String>, String);

impl Owners {
    /// All objects that have a name may own others, but for pods.
    pub fn of_files(documents: &[Document]) -> Self {
        let owner = |document: &Document| {
            let (name, namespace) = (document.name()?.to_owned(), document.namespace().map(str::to_owned));
            let group = group_of(&document.api_version).to_owned();
            let object: PartialObjectMeta = decode(document).ok()?;
            Some(((group, document.kind.clone(), namespace, name), object.metadata))
        };
        let others = documents.iter().filter(|document| document.kind != "Pod");
        Self::Files(others.filter_map(owner).collect())
    }

    /// Climbs as the keeper does; with the metadata of all owners that it met.
    pub async fn climb(
        &self,
        table: &OwnerTable,
        namespace: &str,
        controller: Option<&OwnerReference>,
    ) -> Result<(Action, Vec<ObjectMeta>)> {
        let mut climb = Climb::from(controller, table);
        let mut met = Vec::new();
        while let Some(owner) = climb.next().cloned() {
            let (answer, metadata) = match self {
                Self::Files(owners) => in_files(owners, namespace, &owner),
                Self::Cluster(client, kinds) => in_cluster(client, kinds, namespace, &owner).await?,
            };
            climb.answer(answer);
            met.extend(metadata);
        }
        Ok((climb.action(), met))
    }
}

fn found(owner: &OwnerReference, metadata: &ObjectMeta) -> Answer {
    Answer::Found {
        // manifests have none
        uid: metadata.uid.clone().unwrap_or_else(|| owner.uid.clone()),
        deleting: metadata.deletion_timestamp.is_some(),
        controller: projection::controller(metadata).cloned(),
    }
}

/// An owner that isn't there is taken to exist: whoever gives some objects needn't give all.
fn in_files(
    owners: &HashMap<Name, ObjectMeta>,
    namespace: &str,
    owner: &OwnerReference,
) -> (Answer, Option<ObjectMeta>) {
    let group = group_of(&owner.api_version);
    let key = |namespace: Option<&str>| {
        (group.to_owned(), owner.kind.clone(), namespace.map(str::to_owned), owner.name.clone())
    };
    if let Some(metadata) = owners.get(&key(Some(namespace))).or_else(|| owners.get(&key(None))) {
        let uid = metadata.uid.clone().unwrap_or_else(|| owner.uid.clone());
        return (found(owner, metadata), Some(ObjectMeta { uid: Some(uid), ..metadata.clone() }));
    }
    warn(&format!(
        "{} {:?}, an owner, is not among the objects that were read: it is taken to exist and to have no owner itself",
        owner.kind, owner.name
    ));
    (found(owner, &ObjectMeta::default()), None)
}

async fn in_cluster(
    client: &Client,
    kinds: &Kinds,
    namespace: &str,
    owner: &OwnerReference,
) -> Result<(Answer, Option<ObjectMeta>)> {
    let Some(kind) = kinds.of(owner).filter(|_| is_segment(&owner.name)) else {
        return Ok((Answer::Absent, None));
    };
    match kind.api(client, Some(namespace)).get_metadata_opt(&owner.name).await {
        Ok(Some(object)) => Ok((found(owner, &object.metadata), Some(object.metadata))),
        Ok(None) => Ok((Answer::Absent, None)),
        Err(error) if code(&error) == Some(403) => Ok((Answer::Forbidden, None)),
        Err(error) => Err(explain(error)),
    }
}
