//! Events that may be missing, and events about ceilings and queues that users wrote where they
//! have no effect.
//!
//! The `ExpiryController` runs [`record_owed`] while this keeper leads. An event that isn't added now
//! is owed at a later check.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use tenure_index::{AnnotatedKind, IneffectiveReason, IneffectiveValue};
use tenure_policy::{creation, naming::reference, pause, reason::EventReason};
use tenure_service::{call::ApiError, log::with_causes};
use tracing::{debug, warn};

use crate::{
    action::{ActionFailure, Pauser},
    api::{if_found, refer},
    cluster::ClusterState,
    events::EventRecord,
    handles::Handles,
};

/// The time between two checks for missing events and for values without effect.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// The most acts per check whose events may be missing: any user can write a journal.
const MOST_ACTS: usize = 1_000;

/// The most events per check about values without effect: they must not hold up the events of
/// pauses.
const MOST_INEFFECTIVE: usize = 16;

/// The number of failures after which a refusal to read an object is final. An API server that has
/// just started forbids everything for a moment.
const REFUSALS: u8 = 3;

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
            match without_effect(pauser, &note).await {
                Ok(event) => events.extend(event),
                Err(failure) => put_back(cluster, note, &failure, handles.now()),
            }
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Gives a note to the index again, whose object couldn't be read. A note is dropped if reads of its
/// object are refused.
fn put_back(cluster: &ClusterState, note: IneffectiveValue, failure: &ActionFailure, now: Timestamp) {
    let (namespace, name, error) = (&note.namespace, &note.name, with_causes(failure));
    let is_final = note.failures >= REFUSALS && is_refused(failure);
    debug!(%namespace, %name, is_final, error, "Failed to read an object with a value without effect");
    if !is_final {
        cluster.with(|index| index.put_back_ineffective(note, now));
    }
}

/// True if the API server has refused to let the keeper read an object.
const fn is_refused(failure: &ActionFailure) -> bool {
    match failure {
        ActionFailure::Api(error) | ActionFailure::Unreadable { source: error, .. } => error.is_refusal(),
        _ => false,
    }
}

/// Returns the event about a value of a user that has no effect, and logs the value. Each value has
/// one event. None: the object that gets the event isn't known any more. An error decides nothing.
async fn without_effect(
    pauser: &Pauser,
    of: &IneffectiveValue,
) -> Result<Option<EventRecord>, ActionFailure> {
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
            let Some(key) = unused_label(pauser, of).await? else { return Ok(None) };
            (EventReason::QueueLabelUnused, pause::unused_label(key))
        }
    };
    let object = match of.why {
        IneffectiveReason::UnknownQueue { .. } => pauser.object_of(&of.namespace, &of.name).await?,
        _ => owner_of(pauser, of),
    };
    let Some(object) = object else { return Ok(None) };
    let IneffectiveValue { namespace, name, .. } = of;
    warn!(%namespace, %name, kind = object.kind, note, "What a user wrote has no effect");
    let object = reference(&object, Some(namespace.as_str()).filter(|namespace| !namespace.is_empty()));
    Ok(Some(EventRecord::new(&object, reason, "Reading", note, pauser.handles.now())))
}

/// Returns the object that bears the value. None: no watch shows its kind.
fn owner_of(pauser: &Pauser, of: &IneffectiveValue) -> Option<OwnerReference> {
    let (api_version, kind) = kind_of(&pauser.handles.cluster, of.bearer)?;
    Some(refer(&api_version, &kind, &of.name, &of.uid.text()))
}

/// Returns the label of a queue that an owner has itself, and its pods lack. None: there is no such
/// label, or no such owner.
async fn unused_label(pauser: &Pauser, of: &IneffectiveValue) -> Result<Option<&'static str>, ApiError> {
    let Some(owner) = owner_of(pauser, of) else { return Ok(None) };
    let found = if_found(pauser.handles.objects.get(&of.namespace, &owner).await)?;
    let config = pauser.handles.config.get();
    Ok(found.and_then(|found| creation::unused_label(&owner, &found.value, &config.table)))
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

    use jiff::SignedDuration;
    use serde_json::json;
    use tenure_policy::expiry::Scope;
    use tenure_types::keys;
    use tokio::time::timeout;

    use super::*;
    use crate::{events::record::tests::event, testing::Keeper};

    fn pauser(keeper: &Keeper) -> Pauser {
        Pauser::new(Arc::clone(&keeper.handles), Scope::default())
    }

    #[tokio::test(start_paused = true)]
    async fn a_note_is_kept_while_its_object_cannot_be_read_unless_that_is_gone_or_forbidden_for_long() {
        let keeper = Keeper::new();
        let labels = json!({"scheduler.tensorstack.dev/queue": "typo"});
        let typo = json!({"labels": labels, "creationTimestamp": "2025-12-31T23:59:00Z"});
        for (namespace, pod) in [("fine-0", "a"), ("gone-0", "b"), ("unread-0", "c"), ("forbids-0", "d")] {
            keeper.add_pod(namespace, pod, &typo);
        }
        let pauser = pauser(&keeper);
        timeout(POLL_INTERVAL / 2, record_owed(&pauser)).await.unwrap_err();
        let all = keeper.handles.events.clear();
        let told: Vec<_> = all.iter().map(|event| (event.namespace(), event.reason.name())).collect();
        assert_eq!(told, [("fine-0", "QueueNotFound")]);
        let mut now = keeper.handles.now();
        let mut failures: Vec<Vec<(String, u8)>> = Vec::new();
        for _ in 0..5 {
            now += SignedDuration::from_mins(10);
            let notes = keeper.handles.cluster.with(|index| index.take_ineffective(10, now));
            failures.push(notes.iter().map(|note| (note.namespace.clone(), note.failures)).collect());
            for note in notes {
                let failure = without_effect(&pauser, &note).await.unwrap_err();
                put_back(&keeper.handles.cluster, note, &failure, now);
            }
        }
        let of = |namespace: &str, failures: u8| (namespace.to_owned(), failures);
        let expected = [
            vec![of("forbids-0", 1), of("unread-0", 1)],
            vec![of("forbids-0", 2), of("unread-0", 2)],
            vec![of("forbids-0", 3), of("unread-0", 3)],
            vec![of("unread-0", 4)],
            vec![of("unread-0", 5)],
        ];
        assert_eq!(failures, expected);
    }

    #[tokio::test(start_paused = true)]
    async fn while_one_namespace_fills_the_queue_users_of_others_learn_what_has_no_effect() {
        let keeper = Keeper::new();
        let pauser = pauser(&keeper);
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
