//! The version of the API server, which shows that etcd was restored from a backup. `Follower` asks
//! for it before it resumes a broken watch.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use kube::{Api, Resource, api::ListParams, core::Request};
use serde::Deserialize;
use tokio::time::timeout;

use super::failure::WatchFailure;

/// The time that an answer may take, for a watch beyond its length.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// A list of which only the version is read, so that an object that can't be decoded doesn't hide
/// the version.
#[derive(Deserialize)]
struct VersionedList {
    metadata: ListMeta,
}

/// Returns the API server's current version of a kind, by a list of at most one object.
///
/// # Errors
/// If the API server doesn't answer soon. On a connection that has died silently the answer never
/// comes.
pub(super) async fn ask_for_version<K: Resource + Clone>(api: &Api<K>) -> Result<String, WatchFailure> {
    let request = Request::new(api.resource_url()).list(&ListParams::default().limit(1));
    let request = request.map_err(|error| WatchFailure::Begin(kube::Error::BuildRequest(error)))?;
    let answer = timeout(PATIENCE, api.clone().into_client().request::<VersionedList>(request)).await;
    let list = answer.map_err(|_| WatchFailure::Silent)?.map_err(WatchFailure::List)?;
    Ok(list.metadata.resource_version.unwrap_or_default())
}

/// Compares the API server's version with the version from which a watch resumes. True: the watch
/// may go on. False: the API server refuses to give its version. A watch from a version that lies
/// ahead shows none of the changes until then, and doesn't say so.
///
/// # Errors
/// If the API server doesn't answer soon, or if it is at an earlier version: etcd was restored from
/// a backup.
pub(super) async fn check_version<K: Resource + Clone>(
    api: &Api<K>,
    watched: &str,
) -> Result<bool, WatchFailure> {
    let now = match ask_for_version(api).await {
        Ok(now) => now,
        // the watch says what is wrong
        Err(WatchFailure::List(kube::Error::Api(_))) => return Ok(false),
        Err(WatchFailure::List(error)) => return Err(WatchFailure::Begin(error)),
        Err(failure) => return Err(failure),
    };
    // versions of one resource can be compared as numbers
    match (now.parse::<u128>(), watched.parse::<u128>()) {
        (Ok(at), Ok(last)) if at < last => Err(WatchFailure::Restored { now, watched: watched.to_owned() }),
        _ => Ok(true),
    }
}
