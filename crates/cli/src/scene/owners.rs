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

use super::{DEFAULT, decode};
use crate::{
    args::tell,
    input::Document,
    kinds::Kinds,
    server::{code, explain},
    target::is_segment,
};

/// Where owners are looked up.
pub enum Owners {
    /// In files: by group, kind, namespace and name.
    Files(HashMap<Name, ObjectMeta>),
    Cluster(Client, Kinds),
}

type Name = (String, String, String, String);

impl Owners {
    /// All objects that have a name may own others.
    pub fn of_files(documents: &[Document]) -> Result<Self> {
        let mut owners = HashMap::new();
        for document in documents {
            let Some(name) = document.name() else { continue };
            let namespace = document.namespace().unwrap_or(DEFAULT);
            let group = group_of(&document.api_version);
            let key = (group.to_owned(), document.kind.clone(), namespace.to_owned(), name.to_owned());
            let object: PartialObjectMeta = decode(document)?;
            owners.insert(key, object.metadata);
        }
        Ok(Self::Files(owners))
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
    let key =
        |namespace: &str| (group.to_owned(), owner.kind.clone(), namespace.to_owned(), owner.name.clone());
    if let Some(metadata) = owners.get(&key(namespace)).or_else(|| owners.get(&key(DEFAULT))) {
        let uid = metadata.uid.clone().unwrap_or_else(|| owner.uid.clone());
        return (found(owner, metadata), Some(ObjectMeta { uid: Some(uid), ..metadata.clone() }));
    }
    tell(&format!(
        "Warning: {} {:?}, an owner, is not among the objects that were read: it is taken to exist and to have no owner itself",
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
