//! A stand-in for Kueue: its acts on Jobs and plain pods, as far as a pause can meet them.

use std::{
    collections::HashMap,
    pin::pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use anyhow::Result;
use futures::{Stream, StreamExt, stream::select};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    core::{ApiResource, DynamicObject, GroupVersionKind},
    runtime::{WatchStreamExt, watcher},
};
use serde_json::{Value, json};
use tenure_tests::{
    World,
    workloads::{Namespace, controller},
};
use tokio::task::JoinHandle;

/// The longest time between two looks at all that there is: one may fail, and Workloads may not be served yet.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// In the place of Kueue, for one namespace and a quota of one Job. It makes a Workload of each Job that names a
/// `LocalQueue`; admits the oldest active one when nothing else runs; sets a suspended Job going whose Workload is
/// admitted; and evicts a Workload that isn't active: it suspends the Job, and gives the quota back once its pods are gone.
/// Plain pods of a Workload that isn't active are deleted.
pub struct Kueue {
    task: JoinHandle<()>,
    starts: Arc<Mutex<Vec<String>>>,
}

impl Kueue {
    /// Begins, with Workloads of this version.
    pub fn start(world: &World, namespace: &Namespace, version: &str) -> Self {
        let starts = Arc::default();
        let controller = Controller {
            client: world.cluster.client().unwrap(),
            namespace: namespace.name().to_owned(),
            workloads: workloads(version),
            starts: Arc::clone(&starts),
        };
        let task = tokio::spawn(async move {
            let mut changes = pin!(controller.changes());
            let mut ticks = tokio::time::interval(POLL_INTERVAL);
            loop {
                tokio::select! {
                    _ = changes.next() => {}
                    _ = ticks.tick() => {}
                }
                // what changes under its hands is looked at again
                let _ = controller.reconcile().await;
            }
        });
        Self { task, starts }
    }

    /// The Jobs that it has set going, each time that it has.
    pub fn starts(&self) -> Vec<String> {
        self.starts.lock().unwrap().clone()
    }
}

impl Drop for Kueue {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The resource of Workloads in a version.
pub fn workloads(version: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("kueue.x-k8s.io", version, "Workload"))
}

/// A Workload of a Job or a pod.
pub fn workload_of(version: &str, owner: &DynamicObject, name: &str) -> Value {
    json!({
        "apiVersion": format!("kueue.x-k8s.io/{version}"), "kind": "Workload",
        "metadata": {
            "name": name, "namespace": owner.namespace(), "ownerReferences": [controller(owner)],
            "labels": {"kueue.x-k8s.io/job-uid": owner.uid()},
        },
        "spec": {"queueName": "main"},
    })
}

/// The status of a Workload that is admitted, or that was evicted.
pub fn admitted(admitted: bool) -> Value {
    let condition =
        |kind: &str, status: bool| json!({"type": kind, "status": if status { "True" } else { "False" }});
    let conditions = [
        condition("QuotaReserved", admitted),
        condition("Admitted", admitted),
        condition("Evicted", !admitted),
    ];
    json!({"conditions": conditions})
}

struct Controller {
    client: Client,
    namespace: String,
    workloads: ApiResource,
    starts: Arc<Mutex<Vec<String>>>,
}

/// A Job and its Workload.
struct Managed {
    job: DynamicObject,
    workload: DynamicObject,
}

impl Managed {
    fn is_suspended(&self) -> bool {
        self.job.data.pointer("/spec/suspend") == Some(&json!(true))
    }

    fn is_active(&self) -> bool {
        is_active(&self.workload)
    }

    fn is_admitted(&self) -> bool {
        let conditions = self.workload.data.pointer("/status/conditions").and_then(Value::as_array);
        conditions.into_iter().flatten().any(|of| of["type"] == "Admitted" && of["status"] == "True")
    }

    /// True while it takes the quota.
    fn is_in_use(&self) -> bool {
        let has_pods = self.job.data.pointer("/status/active").and_then(Value::as_u64) > Some(0);
        self.is_admitted() || has_pods || !self.is_suspended()
    }
}

fn is_active(workload: &DynamicObject) -> bool {
    workload.data.pointer("/spec/active") != Some(&json!(false))
}

impl Controller {
    fn jobs(&self) -> Api<DynamicObject> {
        let jobs = ApiResource::erase::<k8s_openapi::api::batch::v1::Job>(&());
        Api::namespaced_with(self.client.clone(), &self.namespace, &jobs)
    }

    fn workloads(&self) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, &self.workloads)
    }

    /// The changes of Jobs and Workloads.
    fn changes(&self) -> impl Stream<Item = ()> {
        let of = |objects: Api<DynamicObject>| {
            watcher(objects, watcher::Config::default()).default_backoff().map(drop)
        };
        select(of(self.jobs()), of(self.workloads()))
    }

    async fn reconcile(&self) -> Result<()> {
        let jobs = self.jobs().list(&ListParams::default().labels("kueue.x-k8s.io/queue-name")).await?;
        let workloads = self.workloads().list(&ListParams::default()).await?;
        self.delete_pods_of_inactive(&workloads.items).await?;
        let mut by_job: HashMap<String, DynamicObject> = HashMap::new();
        for workload in workloads {
            if let Some(uid) = workload.labels().get("kueue.x-k8s.io/job-uid") {
                by_job.insert(uid.clone(), workload);
            }
        }
        let mut managed = Vec::new();
        for mut job in jobs {
            job.types = Some(kube::core::TypeMeta { api_version: "batch/v1".into(), kind: "Job".into() });
            match by_job.remove(&job.uid().unwrap_or_default()) {
                Some(workload) => managed.push(Managed { job, workload }),
                None => self.make_workload(&job).await?,
            }
        }
        for one in &managed {
            self.keep(one).await?;
        }
        if managed.iter().any(Managed::is_in_use) {
            return Ok(());
        }
        let waiting = managed.iter().filter(|one| one.is_active());
        let first = waiting.min_by_key(|one| (one.workload.creation_timestamp(), one.workload.name_any()));
        match first {
            Some(first) => self.admit(&first.workload, true).await,
            None => Ok(()),
        }
    }

    async fn make_workload(&self, job: &DynamicObject) -> Result<()> {
        let workload = workload_of(&self.workloads.version, job, &format!("job-{}", job.name_any()));
        self.workloads().create(&PostParams::default(), &serde_json::from_value(workload)?).await?;
        Ok(())
    }

    /// Has a Job be as its Workload says.
    async fn keep(&self, one: &Managed) -> Result<()> {
        match (one.is_admitted(), one.is_active(), one.is_suspended()) {
            (true, false, _) => self.admit(&one.workload, false).await,
            (true, true, true) => {
                self.suspend(&one.job, false).await?;
                self.starts.lock().unwrap().push(one.job.name_any());
                Ok(())
            }
            (false, _, false) => self.suspend(&one.job, true).await,
            _ => Ok(()),
        }
    }

    async fn suspend(&self, job: &DynamicObject, suspend: bool) -> Result<()> {
        let version = job.resource_version();
        let patch = json!({"metadata": {"resourceVersion": version}, "spec": {"suspend": suspend}});
        self.jobs().patch(&job.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    async fn admit(&self, workload: &DynamicObject, admit: bool) -> Result<()> {
        let patch = json!({
            "metadata": {"resourceVersion": workload.resource_version()}, "status": admitted(admit),
        });
        let (name, how) = (workload.name_any(), PatchParams::default());
        self.workloads().patch_status(&name, &how, &Patch::Merge(patch)).await?;
        Ok(())
    }

    async fn delete_pods_of_inactive(&self, workloads: &[DynamicObject]) -> Result<()> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &self.namespace);
        let inactive = workloads.iter().filter(|workload| !is_active(workload));
        let owners = inactive.flat_map(ResourceExt::owner_references);
        for pod in owners.filter(|owner| owner.kind == "Pod") {
            pods.delete(&pod.name, &DeleteParams::default()).await?;
        }
        Ok(())
    }
}
