//! Wakes preemptors when the floors in their way end.
//!
//! The end of a floor is no event in the cluster, so a pod that found no victim would wait for up
//! to five minutes, until its scheduler tries all unschedulable pods again. Labels and annotations
//! wake no pod. But when the nomination of a pod to a node is removed, kube-scheduler looks again
//! at this pod and at all waiting pods of no higher priority.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use tenure_index::Uid;
use tenure_service::{
    call::{ApiError, call, persist},
    limit::WriteLimit,
    log::with_causes,
};
use tenure_types::projection::Pod;
use tracing::{debug, info, warn};

use super::{Extender, waiters::Waiter};

/// The least time between wake-ups: floors that end at about the same time cost one wake-up.
const BETWEEN: Duration = Duration::from_secs(1);

/// The wait before a retry. By then, another pod's wake-up may have made it unnecessary.
const RETRY: SignedDuration = SignedDuration::from_secs(5);

/// The most pods of a scheduler that are tried one after the other. The others wait for the retry,
/// and those that have come by then take their turns with them.
const MOST_TRIES: usize = 20;

/// The most conflicts with other writers of a pod at the removal of its nomination. After more, the
/// pod waits for the retry: a tenant may write a pod all the time.
const MOST_CONFLICTS: u32 = 5;

/// Makes the scheduler try refused preemptors again: writes to their nominations when a floor ends.
#[derive(Debug)]
pub struct NominationNudger {
    pub(super) extender: Extender,
    /// The limit of all calls.
    pub(super) limit: WriteLimit,
}

/// The pods of a namespace on the API server, within the limit of all calls.
struct Pods<'w> {
    api: Api<Pod>,
    limit: &'w WriteLimit,
}

/// The result of an attempt to wake a pod.
#[derive(Debug, PartialEq, Eq)]
enum WakeResult {
    /// The scheduler tries the pod again, with all pods of no higher priority.
    Yes,
    /// The pod doesn't wait any more, or has a nomination that must stay.
    NotNeeded,
}

impl NominationNudger {
    /// Wakes preemptors as they become due. Never ends.
    pub async fn run(self, client: Client) {
        loop {
            tokio::time::sleep(BETWEEN).await;
            self.wake_due(&client, self.extender.sight.clock.now()).await;
        }
    }

    /// Wakes the waiters that are due, one scheduler after the other. Drops waiters whose pods wait
    /// no more.
    async fn wake_due(&self, client: &Client, now: Timestamp) {
        let Extender { sight, waiters, metrics, .. } = &self.extender;
        // locked in the same order as in the answer to a scheduler
        let due = sight.placement.with(|index| {
            let mut waiters = waiters.lock();
            waiters.by_uid.retain(|uid, _| index.waits(Uid::of(uid)));
            let due = waiters.take_due(now);
            metrics.waiting(waiters.by_uid.len());
            due
        });
        for of_one_scheduler in due {
            self.wake_all(client, of_one_scheduler, now).await;
        }
    }

    /// Wakes the pods of one scheduler in turn, until one pod is woken. That also wakes all pods of
    /// no higher priority; the other pods wait on. After a failure, the remaining pods of the
    /// namespace wait for a retry. So do all that remain after [`MOST_TRIES`].
    async fn wake_all(&self, client: &Client, due: Vec<Waiter>, now: Timestamp) {
        let waiting = due.len();
        let (mut due, mut again, mut woken) = (due.into_iter(), Vec::<Waiter>::new(), None);
        for waiter in due.by_ref().take(MOST_TRIES) {
            // all in `again` are of namespaces in which a call has failed
            if again.iter().any(|other| other.namespace == waiter.namespace) {
                again.push(waiter);
                continue;
            }
            let Waiter { namespace, name, priority, .. } = &waiter;
            // boxed because it is large, and would be part of every future around it
            match Box::pin(wake(client, &self.limit, &waiter)).await {
                Ok(WakeResult::Yes) => {
                    info!(%namespace, %name, waiting, "Woke a pod that waited for the end of a floor, and with it all that wait");
                    self.extender.metrics.woken();
                    woken = Some(*priority);
                    break;
                }
                Ok(WakeResult::NotNeeded) => debug!(%namespace, %name, "Doesn't wait any more"),
                Err(error) => {
                    warn!(%namespace, %name, error = with_causes(&error), "Failed to wake a pod: trying again");
                    again.push(failed(waiter));
                }
            }
        }
        // a failed call may have left a nomination, which the retry takes back
        let waits =
            |other: &Waiter| other.failures > 0 || woken.is_none_or(|priority| other.priority > priority);
        self.wait_on(again.into_iter().chain(due).filter(waits), now);
    }

    /// Puts waiters back, for a retry.
    fn wait_on(&self, those: impl Iterator<Item = Waiter>, now: Timestamp) {
        let until = now.checked_add(RETRY).unwrap_or(Timestamp::MAX);
        let mut waiters = self.extender.waiters.lock();
        for waiter in those {
            waiters.wait_again(Waiter { until, ..waiter });
        }
    }
}

/// Counts a failure. The nomination may have been written all the same, and must then be removed by
/// the retry.
fn failed(waiter: Waiter) -> Waiter {
    let nominated = waiter.nominated.or_else(|| Some(waiter.node.clone()));
    Waiter { nominated, failures: waiter.failures.saturating_add(1), ..waiter }
}

/// Wakes a pod: nominates it to a node, and removes the nomination.
async fn wake(client: &Client, limit: &WriteLimit, waiter: &Waiter) -> Result<WakeResult, ApiError> {
    let pods = Pods { api: Api::namespaced(client.clone(), &waiter.namespace), limit };
    let pod = match pods.get(&waiter.name).await {
        Err(ApiError::NotFound) => return Ok(WakeResult::NotNeeded),
        pod => pod?,
    };
    let nominated = nomination(&pod);
    if !still_waits(&pod, waiter) || nominated.is_some() && nominated != waiter.nominated.as_deref() {
        return Ok(WakeResult::NotNeeded);
    }
    let pod = match nominated {
        // of an earlier attempt that failed: otherwise the pod would not have been refused
        Some(_) => pod,
        None => match pods.nominate(&pod, json!(waiter.node)).await {
            // another client writes the pod: its scheduler, most likely, which then is awake
            Err(ApiError::NotFound | ApiError::Stale(_)) => return Ok(WakeResult::NotNeeded),
            pod => pod?,
        },
    };
    match pods.take_back(waiter, pod).await {
        Err(ApiError::NotFound) => Ok(WakeResult::NotNeeded),
        result => result,
    }
}

impl Pods<'_> {
    /// Removes the nomination of a pod, unless the pod is bound, gone or nominated to another node
    /// by then. Fails after [`MOST_CONFLICTS`]. Returns `NotNeeded` if the pod waits no more.
    async fn take_back(&self, waiter: &Waiter, mut pod: Pod) -> Result<WakeResult, ApiError> {
        let node = nomination(&pod).map(str::to_owned);
        let mut conflicts = 0_u32;
        while still_waits(&pod, waiter) && nomination(&pod) == node.as_deref() {
            match persist(async || self.nominate(&pod, Value::Null).await).await {
                // another client has written the pod meanwhile, and left the nomination
                Err(ApiError::Stale(_)) if conflicts < MOST_CONFLICTS => {
                    conflicts = conflicts.saturating_add(1);
                    pod = persist(async || self.get(&waiter.name).await).await?;
                }
                result => return result.map(|_| WakeResult::Yes),
            }
        }
        // not every scheduler tries others again because a nominated pod is gone
        Ok(if still_waits(&pod, waiter) { WakeResult::Yes } else { WakeResult::NotNeeded })
    }

    /// Reads a pod within the limit.
    async fn get(&self, name: &str) -> Result<Pod, ApiError> {
        self.limit.until_ready().await;
        call(self.api.get(name)).await
    }

    /// Sets or removes the nomination of a pod, unless the pod has changed since it was read.
    async fn nominate(&self, pod: &Pod, node: Value) -> Result<Pod, ApiError> {
        let metadata = &pod.metadata;
        let patch = json!({
            "metadata": {"uid": metadata.uid, "resourceVersion": metadata.resource_version},
            "status": {"nominatedNodeName": node},
        });
        let name = metadata.name.as_deref().unwrap_or_default();
        self.limit.until_ready().await;
        call(self.api.patch_status(name, &PatchParams::default(), &Patch::Merge(patch))).await
    }
}

/// True if this is the pod of the waiter, and it is neither bound nor being deleted.
fn still_waits(pod: &Pod, waiter: &Waiter) -> bool {
    let bound = pod.spec.node_name.is_some();
    pod.metadata.uid.as_deref() == Some(&waiter.uid) && pod.metadata.deletion_timestamp.is_none() && !bound
}

/// Returns the node to which a pod is nominated. None: no node.
fn nomination(pod: &Pod) -> Option<&str> {
    pod.status.nominated_node_name.as_deref().filter(|node| !node.is_empty())
}

#[cfg(test)]
mod tests;
