//! The devices that pods hold by claims of Dynamic Resource Allocation, for the ledger of usage.
//!
//! A [`Session`](super::session::Session) reads the claims of the version of the pods that it lists,
//! with all changes since. It asks the API server for the claims of later pods, once for each pod.

use std::{collections::HashMap, pin::pin, time::Duration};

use futures::StreamExt;
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, WatchParams},
    core::WatchEvent,
};
use tenure_index::{SeenClaim, Uid};
use tenure_service::pages::{ListPages, PageSize};
use tenure_types::{
    devices::{DeviceClass, DeviceResources, DevicesByClass, ResourceClaim},
    room::PodWithRoom,
};
use tokio::time::timeout;
use tracing::warn;

/// The length of the watch that shows the changes that were missed, in seconds.
const REPLAY_SECONDS: u32 = 1;
/// The timeout of that watch.
const PATIENCE: Duration = Duration::from_secs(10);

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
    /// The problem that was last logged.
    problem: Option<String>,
}

impl DeviceReader {
    /// Creates a reader that knows no claims.
    pub fn new(client: Client) -> Self {
        Self { client, resources: DeviceResources::default(), listed: HashMap::new(), problem: None }
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
        let mut size = PageSize::default();
        let classes = Api::<DeviceClass>::all(self.client.clone());
        let mut pages = ListPages::new(classes, ListParams::default(), None, &mut size);
        while let Some(page) = pages.next().await? {
            for class in page {
                self.resources.put(class);
            }
        }
        Ok(())
    }

    async fn list_claims(&mut self, exact: Option<&str>) -> Result<(), kube::Error> {
        let (claims, mut size) = (Api::<ResourceClaim>::all(self.client.clone()), PageSize::default());
        let mut pages = ListPages::new(claims.clone(), ListParams::default(), exact, &mut size);
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
            self.listed.insert(key, ReadClaim { uid: uid(claim), devices });
        }
    }

    /// Forgets the list: the session has seen all changes that were missed.
    pub fn forget(&mut self) {
        self.listed = HashMap::new();
    }

    /// Returns the claims that a bound pod holds. A claim that is gone is left out.
    pub async fn claims(&mut self, pod: &PodWithRoom) -> Result<Vec<SeenClaim>, kube::Error> {
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        let mut claims = Vec::new();
        // a bound pod needs no claim that was never made
        for name in pod.claims().into_iter().filter_map(|reference| reference.claim) {
            let key = (namespace.clone(), name);
            let listed = self.listed.get(&key).cloned();
            let claim = match listed {
                Some(listed) => Some(listed),
                None => self.read(&key).await?,
            };
            let seen = claim.map(|ReadClaim { uid, devices }| SeenClaim {
                uid,
                devices: self.resources.amounts(&devices),
            });
            claims.extend(seen);
        }
        Ok(claims)
    }

    /// Reads a claim and the classes of its devices. None: the claim is gone, or can't be read.
    async fn read(&mut self, (namespace, name): &(String, String)) -> Result<Option<ReadClaim>, kube::Error> {
        let claims = Api::<ResourceClaim>::namespaced(self.client.clone(), namespace);
        let read = claims.get_opt(name).await;
        let Some(claim) = self.tolerate(read)?.flatten() else {
            warn!(claim = format!("{namespace}/{name}"), "Counts no devices of a pod: its claim is gone");
            return Ok(None);
        };
        let devices = claim.devices();
        let classes = Api::<DeviceClass>::all(self.client.clone());
        for class in devices.keys() {
            let read = classes.get_opt(class).await;
            if let Some(class) = self.tolerate(read)?.flatten() {
                self.resources.put(class);
            }
        }
        Ok(Some(ReadClaim { uid: uid(&claim), devices }))
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

fn uid(claim: &ResourceClaim) -> Uid {
    Uid::of(claim.metadata.uid.as_deref().unwrap_or_default())
}
