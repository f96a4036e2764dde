//! Owners that aren't paused by a field of their spec. The tests play their controllers.

use jiff::Timestamp;
use kube::core::DynamicObject;
use serde_json::{Value, json};
use tenure_policy::{
    owner_table::TIME,
    pause::{OwnerObject, command},
};
use tenure_testbed::eventually;
use tenure_tests::{
    DEADLINE, World, audit,
    plugin::{plugin_of, plugin_prints},
    workloads::{Namespace, bare_pod, controller, distinct, in_runai_queue, owned, workload},
};

use super::{scene::place, world};

const PHASE: &str = "status.state.phase";
const STOPPED: &str = "metadata.annotations.kubeflow-resource-stopped";

/// Time slices of a second.
fn slices() -> Value {
    json!({"maxDuration": "1s", "maxDurationAction": "Requeue", "requeueDelay": "4s"})
}

/// A Notebook of Kubeflow and its `StatefulSet`, in a queue of their own.
struct Notebook {
    world: &'static World,
    namespace: Namespace,
    owner: DynamicObject,
    stateful_set: DynamicObject,
}

impl Notebook {
    async fn start(spec: &Value) -> Self {
        let world = world().await;
        let namespace = place(world, spec).await;
        let owner = namespace.chain(&[("kubeflow.org/v1", "Notebook")]).await.remove(0);
        let labels = in_runai_queue(namespace.name());
        let set = distinct(workload("StatefulSet", namespace.name(), "set", &labels, &Value::Null), "set");
        let stateful_set = namespace.create(&owned(set, &[controller(&owner)])).await;
        Self { world, namespace, owner, stateful_set }
    }

    /// Waits until the Notebook is stopped, and does what its controller does then. Returns the record of the pause.
    async fn stop(&self) -> Value {
        let record = self.namespace.await_pause_of(&self.owner, STOPPED, &json!(TIME)).await;
        self.scale(0).await;
        self.namespace.await_pods(&[]).await;
        record
    }

    async fn scale(&self, replicas: u32) {
        self.namespace.patch(&self.stateful_set, &json!({"spec": {"replicas": replicas}})).await;
    }

    async fn await_start(&self) {
        let started = async || Ok(self.namespace.field(&self.owner, STOPPED).await.is_null().then_some(()));
        eventually("the annotation to be gone", DEADLINE, started).await.unwrap();
    }

    async fn plugin(&self, arguments: &[&str]) -> String {
        plugin_prints(self.world, self.namespace.name(), arguments).await
    }
}

#[tokio::test]
async fn a_notebook_of_kubeflow_is_stopped_listed_explained_and_resumed_by_its_annotation() {
    let scene = Notebook::start(&json!({"maxDuration": "1s"})).await;
    let record = scene.stop().await;
    let [set, at] = ["value", "at"].map(|of| record[of].as_str().unwrap().parse::<Timestamp>().unwrap());
    assert_eq!(set.as_second(), at.as_second());
    let events = scene.namespace.await_events_of("MaxDurationExceeded", 1).await;
    let expected = format!(
        "Notebook/notebook: Set {STOPPED} to {set} because its pod's lifetime exceeded maxDuration defined in Queue"
    );
    assert_eq!(events, [expected]);
    let listed: Vec<Value> = serde_json::from_str(&scene.plugin(&["list", "-o", "json"]).await).unwrap();
    assert_eq!((&listed[0]["name"], &listed[0]["state"]), (&json!("notebook"), &json!("Paused")));
    let name = "notebook.kubeflow.org/notebook";
    let explained = scene.plugin(&["explain", name]).await;
    assert!(explained.contains(&format!("{STOPPED} was set from unset to {set}")), "{explained}");
    let resumed = scene.plugin(&["resume", name]).await;
    assert_eq!(resumed, format!("{name} resumed ({STOPPED}: unset)\n"));
    scene.await_start().await;
    audit::assert_changes(&scene.world.cluster, scene.namespace.name(), &["patch notebooks/notebook"]).await;
}

#[tokio::test]
async fn a_notebook_of_kubeflow_comes_back_for_its_next_time_slice() {
    let scene = Notebook::start(&slices()).await;
    scene.stop().await;
    scene.await_start().await;
    scene.scale(2).await;
    // the next slice ends as well
    scene.stop().await;
}

#[tokio::test]
async fn a_notebook_of_kubeflow_is_deactivated_and_activated_by_its_annotation() {
    let scene = Notebook::start(&json!({})).await;
    let name = "notebook.kubeflow.org/notebook";
    let deactivated = scene.plugin(&["deactivate", name]).await;
    assert!(deactivated.starts_with(&format!("{name} deactivated ({STOPPED}: 20")), "{deactivated}");
    scene.stop().await;
    let activated = scene.plugin(&["activate", name]).await;
    assert_eq!(activated, format!("{name} activated ({STOPPED}: unset)\n"));
    scene.await_start().await;
}

/// A Job of Volcano in a queue of its own.
struct VolcanoJob {
    world: &'static World,
    namespace: Namespace,
    job: DynamicObject,
    first: Option<DynamicObject>,
}

impl VolcanoJob {
    async fn start(spec: &Value) -> Self {
        let world = world().await;
        let namespace = place(world, spec).await;
        let job = namespace.chain(&[("batch.volcano.sh/v1alpha1", "Job")]).await.remove(0);
        let mut scene = Self { world, namespace, job, first: None };
        scene.first = Some(scene.run("first").await);
        scene
    }

    async fn phase(&self, phase: &str) {
        self.namespace.patch_status(&self.job, &json!({"state": {"phase": phase}})).await;
    }

    /// Begins a run with one pod.
    async fn run(&self, pod: &str) -> DynamicObject {
        self.phase("Running").await;
        let labels = in_runai_queue(self.namespace.name());
        let object = distinct(bare_pod(self.namespace.name(), pod, &labels, &Value::Null), pod);
        self.namespace.create(&owned(object, &[controller(&self.job)])).await
    }

    /// Waits until a Command is there, and takes it away as Volcano does before it carries it out.
    async fn take(&self, action: &str) {
        let job = serde_json::to_value(&self.job).unwrap();
        let expected = command(OwnerObject(&job), action);
        let named: DynamicObject = serde_json::from_value(expected.clone()).unwrap();
        let found = async || Ok(self.namespace.try_find(&named).await);
        let found = eventually(&format!("Command {action}"), DEADLINE, found).await.unwrap();
        assert_eq!((&found.data["action"], &found.data["target"]), (&json!(action), &expected["target"]));
        self.namespace.delete(&found).await;
    }

    /// Aborts the Job by a Command, as Volcano does.
    async fn abort(&self, pod: &DynamicObject) {
        self.take("AbortJob").await;
        self.phase("Aborting").await;
        self.namespace.delete(pod).await;
        self.namespace.await_pods(&[]).await;
        self.phase("Aborted").await;
    }

    async fn record(&self) -> Value {
        super::scene::annotation(&self.namespace, &self.job, super::scene::PAUSED).await.unwrap_or_default()
    }

    async fn plugin(&self, arguments: &[&str]) -> String {
        plugin_prints(self.world, self.namespace.name(), arguments).await
    }
}

const VOLCANO_JOB: &str = "job.batch.volcano.sh/job";

#[tokio::test]
async fn a_job_of_volcano_is_aborted_listed_explained_and_resumed_by_commands() {
    let scene = VolcanoJob::start(&json!({"maxDuration": "1s"})).await;
    scene.take("AbortJob").await;
    let record = scene.record().await;
    assert_eq!((&record["field"], &record["previousValue"]), (&json!(PHASE), &json!("Running")));
    let events = scene.namespace.await_events_of("MaxDurationExceeded", 1).await;
    let expected = "Job/job: Sent a Command to set status.state.phase to Aborted because its pod's lifetime exceeded maxDuration defined in Queue";
    assert_eq!(events, [expected]);
    // it was not carried out
    scene.abort(scene.first.as_ref().unwrap()).await;
    assert_eq!(scene.record().await["at"], record["at"], "a Command that is sent again is no other pause");

    let listed: Vec<Value> = serde_json::from_str(&scene.plugin(&["list", "-o", "json"]).await).unwrap();
    assert_eq!((&listed[0]["name"], &listed[0]["state"]), (&json!("job"), &json!("Paused")));
    let explained = scene.plugin(&["explain", VOLCANO_JOB]).await;
    assert!(explained.contains("status.state.phase was set from Running to Aborted"), "{explained}");
    let resumed = scene.plugin(&["resume", VOLCANO_JOB, "--dry-run"]).await;
    assert_eq!(resumed, format!("{VOLCANO_JOB} resumed (Command ResumeJob) (server dry run)\n"));
    let resumed = scene.plugin(&["resume", VOLCANO_JOB]).await;
    assert_eq!(resumed, format!("{VOLCANO_JOB} resumed (Command ResumeJob)\n"));
    scene.take("ResumeJob").await;
    assert_eq!(scene.record().await, Value::Null);
}

#[tokio::test]
async fn a_job_of_volcano_comes_back_for_its_next_time_slice() {
    let scene = VolcanoJob::start(&slices()).await;
    scene.abort(scene.first.as_ref().unwrap()).await;
    scene.take("ResumeJob").await;
    let events = scene.namespace.await_events_of("Requeued", 1).await;
    let expected =
        "Job/job: Sent a Command to set status.state.phase back to Running: its next time slice begins";
    assert_eq!(events, [expected]);
    let second = scene.run("second").await;
    scene.abort(&second).await;
    assert_eq!(scene.record().await["reversals"], Value::Null, "it was resumed by Tenure");
}

#[tokio::test]
async fn a_job_of_volcano_that_a_user_has_resumed_is_paused_again_at_its_next_ceiling() {
    let scene = VolcanoJob::start(&json!({"maxDuration": "1s"})).await;
    scene.abort(scene.first.as_ref().unwrap()).await;
    let at: Timestamp = scene.record().await["at"].as_str().unwrap().parse().unwrap();
    // a run that begins in the second of the pause counts as the one that was paused
    let later = async || Ok((Timestamp::now().as_second() > at.as_second()).then_some(()));
    eventually("the next second", DEADLINE, later).await.unwrap();
    let second = scene.run("second").await;
    scene.abort(&second).await;
    assert_eq!(scene.record().await["reversals"], json!(1));
}

#[tokio::test]
async fn a_job_of_volcano_is_deactivated_and_activated_by_commands() {
    let scene = VolcanoJob::start(&json!({})).await;
    let deactivated = scene.plugin(&["deactivate", VOLCANO_JOB]).await;
    assert_eq!(deactivated, format!("{VOLCANO_JOB} deactivated (status.state.phase: Aborted)\n"));
    scene.take("AbortJob").await;
    scene.phase("Aborted").await;
    let activated = scene.plugin(&["activate", VOLCANO_JOB]).await;
    assert_eq!(activated, format!("{VOLCANO_JOB} activated (Command ResumeJob)\n"));
    scene.take("ResumeJob").await;
}

#[tokio::test]
async fn a_deactivation_whose_command_is_refused_leaves_no_record() {
    let scene = VolcanoJob::start(&json!({})).await;
    let (cluster, name) = (&scene.world.cluster, scene.namespace.name());
    // may change the Job, and create no Command
    for arguments in [
        ["create", "serviceaccount", "user"].as_slice(),
        &["create", "role", "user", "--verb=get,list,patch", "--resource=jobs.batch.volcano.sh"],
        &["create", "rolebinding", "user", "--role=user", &format!("--serviceaccount={name}:user")],
    ] {
        cluster.kubectl(&[arguments, &["-n", name]].concat()).await.unwrap().success().unwrap();
    }
    let user = cluster.service_account_kubeconfig(name, "user").await.unwrap();
    let refusal =
        "To deactivate job.batch.volcano.sh/job requires the right to create commands.bus.volcano.sh";
    let refused = async || {
        let (is_success, _, stderr) = plugin_of(scene.world, &user, name, &["deactivate", VOLCANO_JOB]).await;
        assert!(!is_success, "{stderr}");
        // the role counts a little after it was bound
        Ok(stderr.contains(refusal).then_some(()))
    };
    eventually("the refusal", DEADLINE, refused).await.unwrap();
    assert_eq!(scene.record().await, Value::Null);
}
