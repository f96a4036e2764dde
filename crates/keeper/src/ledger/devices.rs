//! The devices that pods hold by claims of Dynamic Resource Allocation, for the ledger of usage.
//!
//! A [`Session`](super::session::Session) reads the claims of the version of the pods that it lists,
//! with all changes since. It asks the API server for the claims of later pods, once for each pod.

use std::{
    collections::{BTreeSet, HashMap},
    pin::pin,
    time::Duration,
};

use futures::{StreamExt, future::join_all};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, WatchParams},
    core::WatchEvent,
};
use tenure_index::{SeenClaim, Uid};
use tenure_service::{log::of_callers, pages::ListPages};
use tenure_types::{
    devices::{DeviceClass, DeviceResources, DevicesByClass, ResourceClaim},
    room::PodWithRoom,
    store::ObjectKey,
};
use tokio::time::{Instant, timeout};
use tracing::warn;

/// The length of the watch that shows the changes that were missed, in seconds.
const REPLAY_SECONDS: u32 = 1;
/// The timeout of that watch.
const PATIENCE: Duration = Duration::from_secs(10);

/// The time for which a class isn't read again.
const CLASS_AGE: Duration = Duration::from_mins(1);

/// The uid and the devices of a claim.
#[derive(Clone)]
struct ReadClaim {
    uid: Uid,
    devices: DevicesByClass,
}

/// Reads the devices of claims.
pub struct DeviceReader {
    client: Client,
    resources: DeviceResources,
    /// The claims of the list and of the changes since, by namespace and name, until the session has
    /// seen all changes that were missed.
    listed: HashMap<(String, String), ReadClaim>,
    /// The classes that were read by themselves, and when.
    classes: HashMap<String, Instant>,
    /// The problem that was last logged.
    problem: Option<String>,
}

impl DeviceReader {
    /// Creates a reader that knows no claims.
    pub fn new(client: Client) -> Self {
        let (resources, listed, classes, problem) = Default::default();
        Self { client, resources, listed, classes, problem }
    }

    /// Lists all claims at exactly a version, and adds the claims that were allocated since then, also
    /// those that are deleted by now. None for `exact`: lists the present claims.
    pub async fn list(&mut self, exact: Option<&str>) -> Result<(), kube::Error> {
        self.listed = HashMap::new();
        let result = match self.list_classes().await {
            Ok(()) => self.list_claims(exact).await,
            failed => failed,
        };
        self.tolerate(result).map(Option::unwrap_or_default)
    }

    async fn list_classes(&mut self) -> Result<(), kube::Error> {
        let classes = Api::<DeviceClass>::all(self.client.clone());
        let mut pages = ListPages::new(classes, ListParams::default(), None);
        while let Some(page) = pages.next().await? {
            for class in page {
                self.resources.put(class);
            }
        }
        Ok(())
    }

    async fn list_claims(&mut self, exact: Option<&str>) -> Result<(), kube::Error> {
        let claims = Api::<ResourceClaim>::all(self.client.clone());
        let mut pages = ListPages::new(claims.clone(), ListParams::default(), exact);
        while let Some(page) = pages.next().await? {
            for claim in &page {
                self.keep(claim);
            }
        }
        let Some(version) = exact else { return Ok(()) };
        let params = WatchParams { timeout: Some(REPLAY_SECONDS), ..WatchParams::default() };
        let replay = async {
            let mut events = pin!(claims.watch(&params, version).await?);
            while let Some(event) = events.next().await {
                if let WatchEvent::Added(claim) | WatchEvent::Modified(claim) = event? {
                    self.keep(&claim);
                }
            }
            Ok(())
        };
        // a claim that the watch hasn't shown by then is read when it is needed
        timeout(PATIENCE, replay).await.unwrap_or(Ok(()))
    }

    /// Keeps an allocated claim. A claim that is no longer allocated stays: an earlier pod had the
    /// devices.
    fn keep(&mut self, claim: &ResourceClaim) {
        let devices = claim.devices();
        if !devices.is_empty() {
            let key = (claim.namespace().unwrap_or_default(), claim.name_any());
            self.listed.insert(key, ReadClaim { uid: Uid::of_object(&claim.metadata), devices });
        }
    }

    /// Forgets the list: the session has seen all changes that were missed.
    pub fn forget(&mut self) {
        self.listed = HashMap::new();
    }

    /// Returns the claims that a bound pod holds. A claim that is gone is left out, and so is one
    /// without devices: the first holder of a claim counts them, and a pod that was bound before the
    /// claim was allocated would count none.
    pub async fn claims(&mut self, pod: &PodWithRoom) -> Result<Vec<SeenClaim>, kube::Error> {
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        let api = &Api::<ResourceClaim>::namespaced(self.client.clone(), &namespace);
        // a bound pod needs no claim that was never made
        let names: BTreeSet<String> =
            pod.claims().into_iter().filter_map(|reference| reference.claim).collect();
        let (mut claims, mut others) = (Vec::new(), Vec::new());
        for name in names {
            match self.listed.get(&(namespace.clone(), name.clone())) {
                Some(listed) => claims.push(listed.clone()),
                None => others.push(name),
            }
        }
        let read = |name: String| async move { (api.get_opt(&name).await, name) };
        // at the same time, 32 at most: all other pods wait to be counted
        for (claim, name) in join_all(others.into_iter().map(read)).await {
            let Some(claim) = self.tolerate(claim)?.flatten() else {
                if of_callers() {
                    let claim = format!("{namespace}/{name}");
                    warn!(claim, "Counts no devices of a pod: its claim is gone");
                }
                continue;
            };
            claims.push(ReadClaim { uid: Uid::of_object(&claim.metadata), devices: claim.devices() });
        }
        self.read_classes(claims.iter().flat_map(|claim| claim.devices.keys())).await?;
        let with_devices = claims.into_iter().filter(|claim| !claim.devices.is_empty());
        let seen = with_devices
            .map(|ReadClaim { uid, devices }| SeenClaim { uid, devices: self.resources.amounts(&devices) });
        Ok(seen.collect())
    }

    /// Reads classes that weren't read lately.
    async fn read_classes(&mut self, names: impl Iterator<Item = &String>) -> Result<(), kube::Error> {
        let classes = Api::<DeviceClass>::all(self.client.clone());
        self.classes.retain(|_, read| read.elapsed() < CLASS_AGE);
        for name in names.collect::<BTreeSet<_>>() {
            if self.classes.contains_key(name) {
                continue;
            }
            let read = classes.get_opt(name).await;
            if let Some(class) = self.tolerate(read)?.flatten() {
                self.resources.put(class);
            }
            self.classes.insert(name.clone(), Instant::now());
        }
        Ok(())
    }

    /// Logs once that the API server doesn't serve claims, or that the keeper may not read them. The
    /// keeper goes on without them. None: that is so.
    fn tolerate<T>(&mut self, result: Result<T, kube::Error>) -> Result<Option<T>, kube::Error> {
        let problem = match &result {
            Err(kube::Error::Api(status)) if status.code == 404 => {
                "the API server has no resource.k8s.io/v1: Kubernetes 1.34 and later have it".to_owned()
            }
            Err(kube::Error::Api(status)) if status.code == 403 => status.message.clone(),
            _ => return result.map(Some),
        };
        if self.problem.as_ref() != Some(&problem) {
            warn!(error = problem, "Counts no devices of Dynamic Resource Allocation");
            self.problem = Some(problem);
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, future::ready, sync::Arc};

    use parking_lot::Mutex;
    use serde_json::{Value, json};
    use tokio::sync::Barrier;

    use super::*;
    use crate::testing;

    /// An API server with a claim that has two devices, and one that isn't allocated. It notes what is asked.
    fn client(asked: &Arc<Mutex<Vec<String>>>) -> Client {
        let asked = Arc::clone(asked);
        testing::client(move |head, _| {
            let name = head.uri.path().rsplit('/').next().unwrap_or_default().to_owned();
            let object = |spec: Value, status: Value| json!({"metadata": {"name": name, "namespace": "ns", "uid": name}, "spec": spec, "status": status});
            let requests =
                json!({"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "class"}}]}});
            let results =
                json!({"allocation": {"devices": {"results": [{"request": "gpu"}, {"request": "gpu"}]}}});
            let answer = match name.as_str() {
                "class" => (200, object(json!({"extendedResourceName": "nvidia.com/gpu"}), Value::Null)),
                "allocated" => (200, object(requests, results)),
                "waiting" => (200, object(requests, json!({}))),
                _ => (
                    404,
                    json!({"kind": "Status", "code": 404, "reason": "NotFound", "message": "", "status": "Failure"}),
                ),
            };
            asked.lock().push(name);
            ready(answer)
        })
    }

    fn pod(claims: &[&str]) -> PodWithRoom {
        let claims: Vec<Value> = claims
            .iter()
            .enumerate()
            .map(|(number, claim)| json!({"name": format!("c{number}"), "resourceClaimName": claim}))
            .collect();
        serde_json::from_value(
            json!({"metadata": {"name": "a", "namespace": "ns"}, "spec": {"resourceClaims": claims}}),
        )
        .unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn each_claim_of_a_pod_is_read_once_and_each_class_once_a_minute() {
        let asked = Arc::default();
        let mut reader = DeviceReader::new(client(&asked));
        for _ in 0..2 {
            let seen = reader.claims(&pod(&["allocated", "gone", "allocated", "gone"])).await.unwrap();
            let devices = BTreeMap::from([("nvidia.com/gpu".to_owned(), 2)]);
            assert_eq!(seen, [SeenClaim { uid: Uid::of("allocated"), devices }]);
        }
        assert_eq!(*asked.lock(), ["allocated", "gone", "class", "allocated", "gone"]);
        tokio::time::advance(CLASS_AGE).await;
        reader.claims(&pod(&["allocated"])).await.unwrap();
        assert_eq!(asked.lock().last().map(String::as_str), Some("class"));
    }

    #[tokio::test(start_paused = true)]
    async fn all_claims_of_a_pod_are_read_at_the_same_time() {
        let all = Arc::new(Barrier::new(32));
        let answer = move |_, _| {
            let all = Arc::clone(&all);
            async move {
                all.wait().await;
                let gone = json!({"kind": "Status", "code": 404, "reason": "NotFound", "message": "", "status": "Failure"});
                (404, gone)
            }
        };
        let mut reader = DeviceReader::new(testing::client(answer));
        let names: Vec<String> = (0..32).map(|number| format!("claim-{number}")).collect();
        let pod = pod(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let read = timeout(PATIENCE, reader.claims(&pod)).await;
        assert_eq!(read.unwrap().unwrap(), []);
    }

    #[tokio::test]
    async fn a_pod_holds_no_claim_that_was_not_allocated_when_the_pod_was_bound() {
        let mut reader = DeviceReader::new(client(&Arc::default()));
        assert_eq!(reader.claims(&pod(&["waiting"])).await.unwrap(), []);
    }
}
