//! Events on objects whose own ceiling has no effect.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use tenure_index::{Bearer, Ineffective, NoEffect};
use tenure_policy::{pause, reason::EventReason};
use tracing::warn;

use crate::{cluster::ClusterState, events::EventRecord};

/// The most events of this sort at a time: they must not hold up the events of pauses.
const AT_A_TIME: usize = 16;

/// Returns the events on objects whose own ceiling has no effect. Each value has one event.
pub fn without_effect(cluster: &ClusterState, now: Timestamp) -> Vec<EventRecord> {
    let notes = cluster.with(|index| index.take_ineffective(AT_A_TIME, now));
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
