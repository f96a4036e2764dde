//! Events that may be missing, and those on objects whose own ceiling has no effect.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use tenure_index::{Bearer, Ineffective, NoEffect};
use tenure_policy::{pause, reason::EventReason};
use tracing::warn;

use crate::{cluster::ClusterState, events::EventRecord, handles::Handles};

/// The time between two looks for acts whose events may not have been written.
const BETWEEN_LOOKS: Duration = Duration::from_secs(5);

/// The most acts at a time whose events may be missing: any user can write a journal.
const MOST_ACTS: usize = 1_000;

/// The most events about own ceilings at a time: they must not hold up the events of pauses.
const MOST_OWN_CEILINGS: usize = 16;

/// Has events written that may have been lost, and those about own ceilings.
pub async fn tell_owed(handles: &Handles) {
    let Handles { cluster, events, dry_run, .. } = handles;
    loop {
        // what has no room stays owed: it would be dropped, or another in its place
        if events.has_room() {
            if !dry_run {
                events.repair(cluster.outbox.owed(handles.now(), MOST_ACTS));
            }
            events.extend(without_effect(cluster, handles.now()));
        }
        tokio::time::sleep(BETWEEN_LOOKS).await;
    }
}

/// Returns the events on objects whose own ceiling has no effect. Each value has one event.
fn without_effect(cluster: &ClusterState, now: Timestamp) -> Vec<EventRecord> {
    let notes = cluster.with(|index| index.take_ineffective(MOST_OWN_CEILINGS, now));
    let event = |Ineffective { bearer, namespace, name, uid, why }| {
        let (api_version, kind) = kind_of(cluster, bearer)?;
        let (reason, note) = match why {
            NoEffect::Invalid { value, error } => {
                (EventReason::InvalidMaxDuration, pause::own_invalid(&value, &error))
            }
            NoEffect::Longer { own, ceiling } => {
                (EventReason::MaxDurationIgnored, pause::own_ignored(own, &ceiling))
            }
        };
        warn!(%namespace, %name, %kind, note, "An own ceiling has no effect");
        let object = ObjectReference {
            api_version: Some(api_version),
            kind: Some(kind),
            name: Some(name),
            namespace: Some(namespace).filter(|namespace| !namespace.is_empty()),
            uid: Some(uid.text()),
            ..ObjectReference::default()
        };
        Some(EventRecord::new(&object, reason, "Reading", note, now))
    };
    notes.into_iter().filter_map(event).collect()
}

/// The `apiVersion` and the kind of an object.
fn kind_of(cluster: &ClusterState, bearer: Bearer) -> Option<(String, String)> {
    match bearer {
        Bearer::Pod => Some(("v1".into(), "Pod".into())),
        Bearer::PodGroup(kind) => {
            Some((format!("{}/{}", kind.group(), kind.versions().first()?), "PodGroup".into()))
        }
        Bearer::Owner(source) => {
            let kind = cluster.kind(source)?;
            Some((kind.api_version, kind.kind))
        }
    }
}
