//! The version of the API server, by which etcd that was restored from a backup is known.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use kube::{Api, Resource, api::ListParams, core::Request};
use serde::Deserialize;
use tokio::time::timeout;

use super::failure::Failure;

/// The time that an answer may take beyond the length of a watch.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// A list, of which only the version is read: an object that can't be read must not hide it.
#[derive(Deserialize)]
struct VersionedList {
    metadata: ListMeta,
}

/// Asks for the API server's version of a kind.
///
/// # Errors
/// If the API server doesn't answer soon: on a connection that has died silently the answer never comes.
pub(super) async fn ask_for_version<K: Resource + Clone>(api: &Api<K>) -> Result<String, Failure> {
    let request = Request::new(api.resource_url()).list(&ListParams::default().limit(1));
    let request = request.map_err(|error| Failure::Begin(kube::Error::BuildRequest(error)))?;
    let answer = timeout(PATIENCE, api.clone().into_client().request::<VersionedList>(request)).await;
    let list = answer.map_err(|_| Failure::Silent)?.map_err(Failure::List)?;
    Ok(list.metadata.resource_version.unwrap_or_default())
}

/// Looks at the API server's version before a watch goes on from one that it has seen; false if it wasn't told. A watch from a
/// version that lies ahead shows none of the changes until then, and doesn't say so.
///
/// # Errors
/// If the API server doesn't answer soon, or if it is at an earlier version: etcd was restored from a backup.
pub(super) async fn look_back<K: Resource + Clone>(api: &Api<K>, watched: &str) -> Result<bool, Failure> {
    let now = match ask_for_version(api).await {
        Ok(now) => now,
        // the watch says what is wrong
        Err(Failure::List(kube::Error::Api(_))) => return Ok(false),
        Err(Failure::List(error)) => return Err(Failure::Begin(error)),
        Err(failure) => return Err(failure),
    };
    // of one resource, versions can be compared as numbers
    match (now.parse::<u128>(), watched.parse::<u128>()) {
        (Ok(at), Ok(last)) if at < last => Err(Failure::Restored { now, watched: watched.to_owned() }),
        _ => Ok(true),
    }
}
