//! Events that may be missing, and those about what users wrote of ceilings and queues where it has no effect.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use tenure_index::{Bearer, Ineffective, NoEffect};
use tenure_policy::{creation, naming::reference, pause, reason::EventReason};
use tracing::warn;

use crate::{action::Pauser, api::refer, cluster::ClusterState, events::EventRecord, handles::Handles};

/// The time between two looks for acts whose events may not have been written.
const BETWEEN_LOOKS: Duration = Duration::from_secs(5);

/// The most acts at a time whose events may be missing: any user can write a journal.
const MOST_ACTS: usize = 1_000;

/// The most events about what has no effect at a time: they must not hold up the events of pauses.
const MOST_INEFFECTIVE: usize = 16;

/// Has events written that may have been lost, and those about what has no effect.
pub async fn tell_owed(pauser: &Pauser) {
    let handles = &*pauser.handles;
    let Handles { cluster, events, dry_run, .. } = handles;
    loop {
        // what has no room stays owed: it would be dropped, or another in its place
        if events.has_room() {
            if !dry_run {
                events.repair(cluster.outbox.owed(handles.now(), MOST_ACTS));
            }
            for note in cluster.with(|index| index.take_ineffective(MOST_INEFFECTIVE, handles.now())) {
                events.extend(without_effect(pauser, note).await);
            }
        }
        tokio::time::sleep(BETWEEN_LOOKS).await;
    }
}

/// Returns the event about what a user wrote of a ceiling or a queue, where it has no effect. Each value has one.
async fn without_effect(pauser: &Pauser, of: Ineffective) -> Option<EventRecord> {
    let (reason, note) = match &of.why {
        NoEffect::Invalid { value, error } => {
            (EventReason::InvalidMaxDuration, pause::own_invalid(value, error))
        }
        NoEffect::Longer { own, ceiling } => {
            (EventReason::MaxDurationIgnored, pause::own_ignored(*own, ceiling))
        }
        NoEffect::UnknownQueue { family, queue } => {
            (EventReason::QueueNotFound, pause::unknown_queue(*family, queue))
        }
        NoEffect::LabelOnOwner => {
            let key = unused_label(pauser, &of).await?;
            (EventReason::QueueLabelUnused, pause::unused_label(key))
        }
    };
    let object = match of.why {
        NoEffect::UnknownQueue { .. } => pauser.object_of(&of.namespace, &of.name).await.ok()??,
        _ => owner_of(pauser, &of)?,
    };
    let Ineffective { namespace, name, .. } = of;
    warn!(%namespace, %name, kind = object.kind, note, "What a user wrote has no effect");
    let object = reference(&object, Some(namespace.as_str()).filter(|namespace| !namespace.is_empty()));
    Some(EventRecord::new(&object, reason, "Reading", note, pauser.handles.now()))
}

/// The object that bears what has no effect.
fn owner_of(pauser: &Pauser, of: &Ineffective) -> Option<OwnerReference> {
    let (api_version, kind) = kind_of(&pauser.handles.cluster, of.bearer)?;
    Some(refer(&api_version, &kind, &of.name, &of.uid.text()))
}

/// The label of a queue that an owner has itself, and its pods lack.
async fn unused_label(pauser: &Pauser, of: &Ineffective) -> Option<&'static str> {
    let owner = owner_of(pauser, of)?;
    let found = pauser.handles.objects.get(&of.namespace, &owner).await.ok()?;
    creation::unused_label(&owner, &found.value, &pauser.handles.config.get().table)
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
