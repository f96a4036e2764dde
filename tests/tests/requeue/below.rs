//! What is paused below an owner that doesn't obey its own pause, and how it is taken back.

use std::time::Duration;

use kube::core::DynamicObject;
use serde_json::{Value, json};
use tenure_testbed::eventually;
use tenure_tests::{
    DEADLINE, World,
    plugin::plugin_prints,
    workloads::{Namespace, bare_pod, controller, distinct, in_runai_queue, owned},
};
use tokio::join;

use super::brisk_world;

const SUSPEND: &str = "spec.suspend";

/// The longest time that all tries to pause an owner take here.
pub const TRIES: Duration = Duration::from_mins(2);

/// A `TrainJob` and a `JobSet` that no controller obeys, with a pod in a queue of their own.
struct Scene {
    namespace: Namespace,
    train_job: DynamicObject,
    job_set: DynamicObject,
}

impl Scene {
    async fn start(world: &World, spec: &Value) -> Self {
        let namespace = Namespace::new(world).await;
        let (name, labels) = (namespace.name(), in_runai_queue(namespace.name()));
        let queue = json!({
            "apiVersion": "scheduling.run.ai/v3alpha1", "kind": "Queue", "metadata": {"name": name}, "spec": spec,
        });
        namespace.apply(&queue).await;
        let kinds = [("trainer.kubeflow.org/v1alpha1", "TrainJob"), ("jobset.x-k8s.io/v1alpha2", "JobSet")];
        let [train_job, job_set] = namespace.chain(&kinds).await.try_into().unwrap();
        let pod = distinct(bare_pod(name, "node-0", &labels, &Value::Null), "node-0");
        namespace.create(&owned(pod, &[controller(&job_set)])).await;
        Self { namespace, train_job, job_set }
    }

    /// Waits until both are paused, and the pod has ended.
    async fn await_pauses(&self) {
        self.namespace.await_pause_of(&self.train_job, SUSPEND, &json!(true)).await;
        let paused = async || Ok(self.namespace.pause_of(&self.job_set, SUSPEND, &json!(true)).await);
        let record = eventually("the JobSet to be paused", TRIES, paused).await.unwrap();
        assert_eq!(record["uid"], json!(self.job_set.metadata.uid));
        self.namespace.await_pods(&[]).await;
    }

    async fn are_suspended(&self) -> [Value; 2] {
        [
            self.namespace.field(&self.train_job, SUSPEND).await,
            self.namespace.field(&self.job_set, SUSPEND).await,
        ]
    }

    async fn plugin(&self, world: &World, arguments: &[&str]) -> String {
        plugin_prints(world, self.namespace.name(), arguments).await
    }
}

#[tokio::test]
async fn what_is_paused_below_an_owner_that_does_not_obey_is_known_and_taken_back() {
    let world = brisk_world().await;
    join!(
        async {
            let scene = Scene::start(world, &json!({"maxDuration": "1s"})).await;
            scene.await_pauses().await;
            assert_named_and_resumed(world, &scene).await;
        },
        async {
            let slices = json!({"maxDuration": "1s", "maxDurationAction": "Requeue", "requeueDelay": "2s"});
            let scene = Scene::start(world, &slices).await;
            scene.await_pauses().await;
            let are_back = async || Ok((!scene.are_suspended().await.contains(&json!(true))).then_some(()));
            eventually("both to come back", DEADLINE, are_back).await.unwrap();
        }
    );
}

async fn assert_named_and_resumed(world: &World, scene: &Scene) {
    let [train_job, job_set] = ["trainjob/trainjob", "jobset/jobset"];
    let listed: Vec<Value> =
        serde_json::from_str(&scene.plugin(world, &["list", "-o", "json"]).await).unwrap();
    let states: Vec<_> = listed.iter().map(|row| (&row["name"], &row["state"])).collect();
    let paused = json!("Paused");
    assert_eq!(states, [(&json!("jobset"), &paused), (&json!("trainjob"), &paused)]);
    let queue = scene.plugin(world, &["queue", scene.namespace.name()]).await;
    assert!(queue.contains("jobset.jobset.x-k8s.io/jobset"), "{queue}");
    let explained = scene.plugin(world, &["explain", job_set]).await;
    assert!(explained.contains("Tenure paused it at "), "{explained}");
    let all = scene.plugin(world, &["resume", "--all", "--dry-run"]).await;
    assert!(all.ends_with("2 would be resumed\n"), "{all}");

    let resumed = scene.plugin(world, &["resume", train_job]).await;
    let expected = "trainjob.trainer.kubeflow.org/trainjob resumed (spec.suspend: false)\n\
        jobset.jobset.x-k8s.io/jobset, paused below trainjob.trainer.kubeflow.org/trainjob, resumed (spec.suspend: unset)\n";
    assert_eq!(resumed, expected);
    assert!(!scene.are_suspended().await.contains(&json!(true)));
}
