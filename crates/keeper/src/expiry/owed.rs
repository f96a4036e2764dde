//! Events that may be missing, and events about ceilings and queues that users wrote where they
//! have no effect.
//!
//! The `ExpiryController` runs [`record_owed`] while this keeper leads. An event that isn't added now
//! is owed at the next check.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use tenure_index::{AnnotatedKind, IneffectiveReason, IneffectiveValue};
use tenure_policy::{creation, naming::reference, pause, reason::EventReason};
use tracing::warn;

use crate::{action::Pauser, api::refer, cluster::ClusterState, events::EventRecord, handles::Handles};

/// The time between two checks for missing events and for values without effect.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// The most acts per check whose events may be missing: any user can write a journal.
const MOST_ACTS: usize = 1_000;

/// The most events per check about values without effect: they must not hold up the events of
/// pauses.
const MOST_INEFFECTIVE: usize = 16;

/// Adds events that may have been lost, and events about values without effect. Never returns. A
/// dry run repairs no lost events.
pub async fn record_owed(pauser: &Pauser) {
    let handles = &*pauser.handles;
    let Handles { cluster, events, dry_run, .. } = handles;
    loop {
        if !dry_run {
            // without room these events stay owed: the queue would drop them, or others of the
            // namespace in their place
            let has_room = |namespace: &str| events.has_room(namespace);
            events.repair(cluster.outbox.owed(handles.now(), MOST_ACTS, has_room));
        }
        for note in cluster.with(|index| index.take_ineffective(MOST_INEFFECTIVE, handles.now())) {
            events.extend(without_effect(pauser, note).await);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Returns the event about a value of a user that has no effect, and logs the value. Each value has
/// one event. None: the object that gets the event isn't known any more.
async fn without_effect(pauser: &Pauser, of: IneffectiveValue) -> Option<EventRecord> {
    let (reason, note) = match &of.why {
        IneffectiveReason::Invalid { value, error } => {
            (EventReason::InvalidMaxDuration, pause::own_invalid(value, error))
        }
        IneffectiveReason::Longer { own, ceiling } => {
            (EventReason::MaxDurationIgnored, pause::own_ignored(*own, ceiling))
        }
        IneffectiveReason::UnknownQueue { family, queue } => {
            (EventReason::QueueNotFound, pause::unknown_queue(*family, queue))
        }
        IneffectiveReason::LabelOnOwner => {
            let key = unused_label(pauser, &of).await?;
            (EventReason::QueueLabelUnused, pause::unused_label(key))
        }
    };
    let object = match of.why {
        IneffectiveReason::UnknownQueue { .. } => pauser.object_of(&of.namespace, &of.name).await.ok()??,
        _ => owner_of(pauser, &of)?,
    };
    let IneffectiveValue { namespace, name, .. } = of;
    warn!(%namespace, %name, kind = object.kind, note, "What a user wrote has no effect");
    let object = reference(&object, Some(namespace.as_str()).filter(|namespace| !namespace.is_empty()));
    Some(EventRecord::new(&object, reason, "Reading", note, pauser.handles.now()))
}

/// Returns the object that bears the value. None: no watch shows its kind.
fn owner_of(pauser: &Pauser, of: &IneffectiveValue) -> Option<OwnerReference> {
    let (api_version, kind) = kind_of(&pauser.handles.cluster, of.bearer)?;
    Some(refer(&api_version, &kind, &of.name, &of.uid.text()))
}

/// Returns the label of a queue that an owner has itself, and its pods lack. None: there is no such
/// label, or the owner can't be read.
async fn unused_label(pauser: &Pauser, of: &IneffectiveValue) -> Option<&'static str> {
    let owner = owner_of(pauser, of)?;
    let found = pauser.handles.objects.get(&of.namespace, &owner).await.ok()?;
    creation::unused_label(&owner, &found.value, &pauser.handles.config.get().table)
}

/// Returns the `apiVersion` and the kind of an object. None: no watch of owners has this number.
fn kind_of(cluster: &ClusterState, bearer: AnnotatedKind) -> Option<(String, String)> {
    match bearer {
        AnnotatedKind::Pod => Some(("v1".into(), "Pod".into())),
        AnnotatedKind::PodGroup(kind) => {
            Some((format!("{}/{}", kind.group(), kind.versions().first()?), "PodGroup".into()))
        }
        AnnotatedKind::Owner(source) => {
            let kind = cluster.kind(source)?;
            Some((kind.api_version, kind.kind))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;
    use tenure_types::keys;
    use tokio::time::timeout;

    use super::*;
    use crate::{events::record::tests::event, testing::Keeper};

    #[tokio::test(start_paused = true)]
    async fn while_one_namespace_fills_the_queue_users_of_others_learn_what_has_no_effect() {
        let keeper = Keeper::new().await;
        let (scope, exempt_owners, extensions) = Default::default();
        let (handles, limit) = (Arc::clone(&keeper.handles), keeper.handles.limit());
        let pauser = Pauser { handles, limit, scope, exempt_owners, extensions };
        let events = &keeper.handles.events;
        events.extend((0..30_000).map(|number| event("many", &number.to_string())));
        keeper.add_pod("few", "a", &json!({"annotations": {keys::MAX_DURATION_ANNOTATION: "soon"}}));
        timeout(POLL_INTERVAL / 2, record_owed(&pauser)).await.unwrap_err();
        let all = events.clear();
        let of_few = all.iter().filter(|event| event.namespace() == "few");
        let reasons: Vec<_> = of_few.map(|event| event.reason.name()).collect();
        assert_eq!(reasons, ["InvalidMaxDuration"]);
    }
}
