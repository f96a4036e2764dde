//! Holds back Evictions of `lifecycle.k8s.io` until the floors of their pods end.
//!
//! `run.rs` starts this with `--eviction-responder`. A pod that names [`EVICTION_RESPONDER`] in
//! `spec.evictionResponders` waits for this responder before the next one evicts it. The guard
//! decides. Each replica responds: a write to a version that another replica has changed is
//! refused.

use std::{num::NonZeroU32, time::Duration};

use jiff::{SignedDuration, Timestamp};
use kube::{
    Api, Client,
    api::{ApiResource, ListParams, Patch, PatchParams},
    core::{Object, ObjectMeta},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tenure_policy::{
    guard::{GuardVerdict, Hold, Operation, VerdictReason},
    start::second_down,
    turns::in_turns,
};
use tenure_service::{
    call::{ApiError, call},
    limit::{WriteLimit, write_limit},
    log::with_causes,
    pages::ListPages,
};
use tenure_types::{
    keys::EVICTION_RESPONDER,
    tolerant::{Tolerant, UnreadableObject},
};
use tracing::{debug, warn};

use super::{Guard, subject::PodRemoval};

/// The time between two lists of all Evictions. An Eviction may be held back for this much too
/// long.
const BETWEEN: Duration = Duration::from_secs(10);

/// The writes to the API server: each second, and in a burst.
const WRITES_A_SECOND: NonZeroU32 = NonZeroU32::new(20).unwrap();
const WRITES_AT_ONCE: NonZeroU32 = NonZeroU32::new(40).unwrap();

/// The most writes between two lists. Writes that fail count, too: a user can make them fail by
/// changing an Eviction again and again. Namespaces take turns in each list.
const WRITES_A_LIST: usize = 1_000;

/// The time after which an entry is written again. Kubernetes passes over a responder that hasn't
/// written for 20 minutes.
const HEARTBEAT: SignedDuration = SignedDuration::from_mins(10);

/// The least time between two heartbeats, as the API asks.
const LEAST: SignedDuration = SignedDuration::from_secs(20);

/// The time after which all replicas know a pod. Before that, an unknown pod doesn't count as gone:
/// a completed entry can't be reverted.
const SETTLED: SignedDuration = SignedDuration::from_secs(30);

/// The latest expected completion that the API accepts is ten years from now.
const LONGEST: SignedDuration = SignedDuration::from_hours(9 * 365 * 24);

/// An Eviction of `lifecycle.k8s.io/v1alpha1`, with the fields that a responder needs.
type Eviction = Object<EvictionSpec, EvictionStatus>;

/// An Eviction that waits for this responder, with only the fields that it needs: tenants may create
/// many Evictions.
#[derive(Debug)]
struct WaitingEviction {
    namespace: String,
    name: String,
    version: Option<String>,
    pod: PodReference,
    entry: ResponderEntry,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
struct EvictionSpec {
    #[serde(default)]
    target: EvictionTarget,
}

/// The object to evict. None: it is no pod.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
struct EvictionTarget {
    pod: Option<PodReference>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
struct PodReference {
    name: String,
    uid: String,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct EvictionStatus {
    target_responders: Vec<TargetResponder>,
    responders: Vec<ResponderEntry>,
}

/// A responder, as Kubernetes chose it: one at a time is `Active`.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct TargetResponder {
    name: String,
    state: String,
}

/// The entry that a responder writes.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct ResponderEntry {
    name: String,
    start_time: Option<Timestamp>,
    heartbeat_time: Option<Timestamp>,
    expected_completion_time: Option<Timestamp>,
    completion_time: Option<Timestamp>,
}

impl EvictionStatus {
    /// Returns the entry of this responder if it is to respond now.
    fn active(self) -> Option<ResponderEntry> {
        let is_active = |of: &&TargetResponder| of.name == EVICTION_RESPONDER && of.state == "Active";
        self.target_responders.iter().find(is_active)?;
        let mut entries = self.responders.into_iter();
        entries.find(|of| of.name == EVICTION_RESPONDER && of.completion_time.is_none())
    }
}

impl WaitingEviction {
    /// Reads an Eviction. None: another responder is active, or the target is no pod.
    fn read(eviction: Eviction) -> Option<Self> {
        let entry = eviction.status?.active()?;
        let ObjectMeta { namespace, name, resource_version: version, .. } = eviction.metadata;
        let pod = eviction.spec.target.pod?;
        Some(Self { namespace: namespace?, name: name?, version, pod, entry })
    }

    /// Returns the place in the [turns](in_turns): of a namespace, those come first that were written
    /// longest ago.
    fn place(&self) -> (&str, Option<Timestamp>) {
        (&self.namespace, self.entry.heartbeat_time)
    }
}

impl ResponderEntry {
    /// Returns the fields to write by a verdict. None: the entry says the same already, or the
    /// verdict isn't certain yet.
    fn answer(&self, GuardVerdict { reason, hold, .. }: &GuardVerdict, now: Timestamp) -> Option<Value> {
        // the API keeps whole seconds, and no time may be before the start
        let start = self.start_time?;
        let now = second_down(now).max(start).max(self.heartbeat_time.unwrap_or(Timestamp::MIN));
        let Some(Hold { until, message, .. }) = hold else {
            let is_certain = match reason {
                VerdictReason::Syncing => false,
                VerdictReason::Unknown | VerdictReason::NotScheduled => now.duration_since(start) >= SETTLED,
                _ => true,
            };
            if !is_certain {
                return None;
            }
            let message = "tenure: the pod isn't protected, and may be evicted";
            return Some(json!({"heartbeatTime": now, "completionTime": now, "message": message}));
        };
        let until = until.map(second_down).filter(|at| *at > now && at.duration_since(now) < LONGEST);
        let is_within = |time| self.heartbeat_time.is_some_and(|at| now.duration_since(at) < time);
        let is_same = is_within(LEAST) || (is_within(HEARTBEAT) && self.expected_completion_time == until);
        let answer = json!({"heartbeatTime": now, "expectedCompletionTime": until, "message": message});
        (!is_same).then_some(answer)
    }
}

/// Responds to Evictions by the verdicts of a guard.
#[derive(Debug)]
pub struct EvictionResponder {
    guard: Guard,
    /// The limit of writes.
    limit: WriteLimit,
}

impl EvictionResponder {
    /// Creates a responder.
    pub fn new(guard: Guard) -> Self {
        Self { guard, limit: write_limit(WRITES_A_SECOND, WRITES_AT_ONCE) }
    }

    /// Responds to all Evictions every ten seconds, once the guard knows all pods. Never ends.
    pub async fn run(self, client: Client) {
        let mut is_served = true;
        loop {
            tokio::time::sleep(BETWEEN).await;
            if self.guard.sight.readiness.awaited().is_some() {
                continue;
            }
            match self.respond(&client).await {
                Ok(()) => is_served = true,
                Err(ApiError::NotFound) => {
                    if std::mem::replace(&mut is_served, false) {
                        warn!(
                            "--eviction-responder is on, but the API server doesn't serve lifecycle.k8s.io/v1alpha1: turn on its feature gate EvictionRequestAPI and this API, or turn the flag off"
                        );
                    }
                }
                Err(error) => warn!(error = with_causes(&error), "Failed to list Evictions: trying again"),
            }
        }
    }

    /// Responds to all Evictions that name this responder. Fails if they can't be listed.
    async fn respond(&self, client: &Client) -> Result<(), ApiError> {
        let api = Api::<Tolerant<Eviction>>::all_with(client.clone(), &resource());
        let labels = format!("{EVICTION_RESPONDER} in (responder,requester-responder)");
        let (mut all, mut unreadable) = (Vec::new(), None);
        let mut pages = ListPages::new(api, ListParams::default().labels(&labels), None);
        // all pages before the first write: a list ends if it takes minutes
        while let Some(page) = call(pages.next()).await? {
            for Tolerant(eviction) in page {
                match eviction {
                    Ok(eviction) => all.extend(WaitingEviction::read(eviction)),
                    Err(odd) => {
                        unreadable.get_or_insert(odd);
                    }
                }
            }
        }
        if let Some(UnreadableObject { error, metadata: ObjectMeta { namespace, name, .. } }) = unreadable {
            warn!(namespace, name, error, "An Eviction can't be read, and is left out");
        }
        let (mut has_failed, mut tried) = (false, 0_usize);
        for eviction in in_turns(all, WaitingEviction::place) {
            let result = Box::pin(self.respond_to(client, &eviction)).await;
            tried = tried.saturating_add(usize::from(!matches!(result, Ok(false))));
            // an Eviction that is gone, or that another replica has responded to, is no failure
            if let Err(error) = result
                && !matches!(error, ApiError::NotFound | ApiError::Stale(_))
            {
                if !std::mem::replace(&mut has_failed, true) {
                    let (WaitingEviction { namespace, name, .. }, error) = (&eviction, with_causes(&error));
                    warn!(namespace, name, error, "Failed to respond to an Eviction: trying again");
                }
                // the API server may be down: others would wait as long
                if !error.is_refusal() {
                    break;
                }
            }
            if tried >= WRITES_A_LIST {
                break;
            }
        }
        Ok(())
    }

    /// Responds to an Eviction. False: there is nothing new to say.
    async fn respond_to(&self, client: &Client, eviction: &WaitingEviction) -> Result<bool, ApiError> {
        let WaitingEviction { namespace, name, version, pod, entry } = eviction;
        let verdict = self.verdict(namespace, pod);
        let Some(mut answer) = entry.answer(&verdict, self.guard.sight.clock.now()) else { return Ok(false) };
        if let Some(fields) = answer.as_object_mut() {
            fields.insert("name".into(), EVICTION_RESPONDER.into());
        }
        let patch = json!({
            "metadata": {"resourceVersion": version},
            // strategic: other responders' entries stay as they are
            "status": {"responders": [answer]},
        });
        let api = Api::<Tolerant<Eviction>>::namespaced_with(client.clone(), namespace, &resource());
        self.limit.until_ready().await;
        call(api.patch_status(name, &PatchParams::default(), &Patch::Strategic(patch))).await?;
        let until = verdict.hold.and_then(|hold| hold.until).map(tracing::field::display);
        debug!(%namespace, pod = pod.name, reason = verdict.reason.name(), until, "Responded to an Eviction");
        Ok(true)
    }

    /// Returns the verdict on the eviction of a pod. A pod that is gone is unknown, also if another has
    /// its name.
    fn verdict(&self, namespace: &str, pod: &PodReference) -> GuardVerdict {
        if !self.guard.sight.placement.with(|index| index.has_pod(&pod.uid)) {
            return GuardVerdict::allowed(VerdictReason::Unknown);
        }
        let (namespace, name) = (namespace.to_owned(), pod.name.clone());
        // no user: an Eviction doesn't say who has asked for it
        let (operation, user, groups) = (Operation::Evict, "", Vec::new());
        self.guard.judge(&PodRemoval { operation, user, groups, namespace, name, pod: None })
    }
}

/// Returns the resource of Evictions.
fn resource() -> ApiResource {
    ApiResource {
        group: "lifecycle.k8s.io".into(),
        version: "v1alpha1".into(),
        api_version: "lifecycle.k8s.io/v1alpha1".into(),
        kind: "Eviction".into(),
        plural: "evictions".into(),
    }
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, future::ready, iter::repeat_n, sync::Arc};

    use axum::http::{Method, Request, Response};
    use kube::{client::Body, core::ObjectList};
    use parking_lot::Mutex;
    use tenure_policy::preemption::Rule;
    use tenure_service::clock::ServerClock;

    use super::*;
    use crate::{ClusterView, Permits};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    fn held(until: Option<Timestamp>) -> GuardVerdict {
        let hold = Hold { rule: Rule::ReclaimMinRuntime, until, retry_after: 1, message: "why".into() };
        GuardVerdict { hold: Some(hold), ..GuardVerdict::allowed(VerdictReason::Protected) }
    }

    fn entry(heartbeat: Option<i64>, expected: Option<i64>) -> ResponderEntry {
        ResponderEntry {
            name: EVICTION_RESPONDER.into(),
            start_time: Some(at(0)),
            heartbeat_time: heartbeat.map(at),
            expected_completion_time: expected.map(at),
            completion_time: None,
        }
    }

    #[test]
    fn an_entry_is_written_first_then_every_ten_minutes_and_when_the_end_moves() {
        let held = held(Some(at(3_600)));
        let written = |heartbeat, expected, now| entry(heartbeat, expected).answer(&held, at(now));
        let first = written(None, None, 5).unwrap();
        assert_eq!(
            first,
            json!({"heartbeatTime": at(5), "expectedCompletionTime": at(3_600), "message": "why"})
        );
        assert_eq!(written(Some(5), Some(3_600), 604), None);
        assert!(written(Some(5), Some(3_600), 605).is_some());
        assert_eq!(written(Some(5), Some(1_800), 24), None, "the API asks for twenty seconds between two");
        assert!(written(Some(5), Some(1_800), 25).is_some(), "the floor was made longer");
    }

    #[test]
    fn a_pod_that_may_go_completes_the_entry_and_an_unknown_one_once_replicas_would_know_it() {
        let completed = |reason, now| entry(None, None).answer(&GuardVerdict::allowed(reason), at(now));
        let answer = completed(VerdictReason::Unprotected, 1).unwrap();
        assert_eq!((&answer["completionTime"], &answer["heartbeatTime"]), (&json!(at(1)), &json!(at(1))));
        for reason in [VerdictReason::Unknown, VerdictReason::NotScheduled] {
            assert_eq!(completed(reason, 29), None);
            assert!(completed(reason, 30).is_some());
        }
        assert_eq!(completed(VerdictReason::Syncing, 3_600), None);
    }

    #[test]
    fn namespaces_take_turns_with_the_entries_first_that_were_written_longest_ago() {
        let waiting = |namespace: &str, heartbeat| WaitingEviction {
            namespace: namespace.into(),
            name: String::new(),
            version: None,
            pod: PodReference { name: String::new(), uid: String::new() },
            entry: entry(heartbeat, None),
        };
        let mut all: Vec<_> = (0..100).map(|number| waiting("a", Some(number))).collect();
        all.extend([waiting("a", None), waiting("b", Some(900)), waiting("b", Some(800))]);
        let turns = in_turns(all, WaitingEviction::place)
            .into_iter()
            .take(5)
            .map(|of| (of.namespace, of.entry.heartbeat_time));
        let expected = [("a", None), ("b", Some(800)), ("a", Some(0)), ("b", Some(900)), ("a", Some(1))];
        assert!(turns.eq(expected.map(|(namespace, heartbeat)| (namespace.to_owned(), heartbeat.map(at)))));
    }

    #[tokio::test]
    async fn writes_that_fail_count_too_so_that_no_namespace_keeps_the_next_list_waiting() {
        let status = json!({
            "targetResponders": [{"name": EVICTION_RESPONDER, "state": "Active"}],
            "responders": [{"name": EVICTION_RESPONDER, "startTime": at(0)}],
        });
        let eviction = |(number, namespace): (usize, &str)| {
            json!({
                "metadata": {"name": number.to_string(), "namespace": namespace},
                "spec": {"target": {"pod": {"name": "gone", "uid": "gone"}}}, "status": status,
            })
        };
        let namespaces = repeat_n("many", 2 * WRITES_A_LIST).chain(["other"]);
        let items: Vec<Value> = namespaces.enumerate().map(eviction).collect();
        let list = json!({"kind": "EvictionList", "apiVersion": "v1", "metadata": {}, "items": items});
        // their writer is always faster
        let conflict =
            json!({"kind": "Status", "status": "Failure", "code": 409, "message": "", "reason": "Conflict"});
        let asked = Arc::new(Mutex::new(Vec::<String>::new()));
        let tried = Arc::clone(&asked);
        let service = tower::service_fn(move |request: Request<Body>| {
            let (status, body) = if request.method() == Method::GET {
                (200, &list)
            } else {
                tried.lock().push(request.uri().path().split('/').nth(5).unwrap().to_owned());
                (409, &conflict)
            };
            let response = Response::builder().status(status);
            ready(Ok::<_, Infallible>(response.body(Body::from(body.to_string().into_bytes())).unwrap()))
        });
        let clock = ServerClock::starting_at(at(60));
        let guard = Guard::new(ClusterView { clock, ..ClusterView::default() }, Permits::default());
        let rate = NonZeroU32::new(1_000_000).unwrap();
        let responder = EvictionResponder { guard, limit: write_limit(rate, rate) };
        responder.respond(&Client::new(service, "ns")).await.unwrap();
        let asked = asked.lock();
        assert_eq!(asked.len(), WRITES_A_LIST);
        assert!(asked.iter().take(2).any(|namespace| namespace == "other"), "namespaces take turns");
    }

    #[test]
    fn times_are_whole_seconds_in_the_range_that_the_api_accepts() {
        let now = at(20) + SignedDuration::from_millis(999);
        let answer = |entry: ResponderEntry, until| entry.answer(&held(until), now).unwrap();
        assert_eq!(answer(entry(None, None), Some(at(30)))["heartbeatTime"], json!(at(20)));
        let slower = entry(Some(22), None).answer(&GuardVerdict::allowed(VerdictReason::Unprotected), now);
        assert_eq!(slower.unwrap()["completionTime"], json!(at(22)), "this clock is slower");
        for until in [Some(Timestamp::MAX), Some(at(20)), None] {
            assert_eq!(answer(entry(None, None), until)["expectedCompletionTime"], Value::Null);
        }
    }

    #[test]
    fn forged_managed_fields_make_no_eviction_unreadable_and_one_that_is_hides_no_other() {
        let late = json!([{"manager": "me", "time": "9999-12-31T23:59:59Z"}]);
        let list = json!({"kind": "EvictionList", "apiVersion": "v1", "metadata": {}, "items": [
            {"metadata": {"name": "a", "managedFields": late}, "spec": {}},
            {"metadata": {"name": "odd"}, "spec": 5},
            {"metadata": {"name": "c"}, "spec": {}},
        ]});
        let list: ObjectList<Tolerant<Eviction>> = serde_json::from_str(&list.to_string()).unwrap();
        assert_eq!(list.items.iter().map(|of| of.0.is_ok()).collect::<Vec<_>>(), [true, false, true]);
    }

    #[test]
    fn only_the_active_responder_responds_and_only_once() {
        let status = |state: &str, done: Value| {
            let status = json!({
                "targetResponders": [{"name": EVICTION_RESPONDER, "state": state}, {"name": "a.dev/b", "state": "Active"}],
                "responders": [{"name": "a.dev/b"}, {"name": EVICTION_RESPONDER, "startTime": at(0), "completionTime": done}],
            });
            serde_json::from_value::<EvictionStatus>(status).unwrap().active().is_some()
        };
        assert!(status("Active", Value::Null));
        assert!(!status("Active", json!(at(1))));
        for state in ["Inactive", "Interrupted", "Canceled", "Completed"] {
            assert!(!status(state, Value::Null), "{state}");
        }
    }
}
