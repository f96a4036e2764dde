//! The end of a run on the pods of a workload, and a program in a pod that saves its work before it.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
};

use jiff::{SignedDuration, Timestamp};
use kube::core::DynamicObject;
use serde_json::{Value, json};
use tenure_testbed::eventually;
use tenure_tests::{
    DEADLINE, audit,
    workloads::{Namespace, in_queue, queue, workload},
};
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    time::timeout,
};

use super::{await_announced, first_end, with_notice, world_with_pods};

/// The ends that the pods of a namespace show.
async fn shown(namespace: &Namespace) -> Vec<Option<String>> {
    let pods = namespace.pod_names().await;
    let mut shown = Vec::new();
    for name in pods {
        let pod = pod(namespace, &name);
        if let Some(pod) = namespace.try_find(&pod).await {
            let annotations = pod.metadata.annotations.unwrap_or_default();
            shown.push(annotations.get("tenure.dev/expires-at").cloned());
        }
    }
    shown
}

/// A reference to a pod.
fn pod(namespace: &Namespace, name: &str) -> DynamicObject {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace.name()},
    });
    serde_json::from_value(pod).unwrap()
}

async fn await_shown(namespace: &Namespace, count: usize, end: Option<Timestamp>) {
    let expected = vec![end.map(|end| end.to_string()); count];
    let what = format!("{count} pods to show {end:?}");
    eventually(&what, DEADLINE, async || Ok((shown(namespace).await == expected).then_some(())))
        .await
        .unwrap();
}

#[tokio::test]
async fn the_pods_of_a_workload_show_its_end_as_it_moves_and_goes() {
    let world = &*world_with_pods().await;
    let namespace = Namespace::new(world).await;
    let change = async |ceiling: &str| {
        namespace.apply(&with_notice(queue("shown", ceiling), "2d,1d")).await;
    };
    change("2h").await;
    let deployment = workload("Deployment", namespace.name(), "test", &in_queue("shown"), &Value::Null);
    let deployment = namespace.create(&deployment).await;
    namespace.await_running(2).await;
    let end = await_announced(&namespace, &deployment).await;
    await_shown(&namespace, 2, Some(end)).await;
    // a user's value moves nothing, and goes when the end moves
    let forged = namespace.pod_names().await.pop_first().unwrap();
    let forged = namespace.find(&pod(&namespace, &forged)).await;
    let never = json!({"metadata": {"annotations": {"tenure.dev/expires-at": "9999-01-01T00:00:00Z"}}});
    namespace.patch(&forged, &never).await;
    for (ceiling, hours) in [("4h", 4), ("3h", 3)] {
        change(ceiling).await;
        let end = first_end(&namespace, hours * 3600).await;
        await_shown(&namespace, 2, Some(end)).await;
        assert_eq!(await_announced(&namespace, &deployment).await, end);
    }
    let patches = audit::of_keeper(&world.cluster, "patch", "pods", namespace.name());
    assert_eq!(patches.len(), 6, "one write a pod and end: {patches:?}");
    // a pod that comes later ends with the others
    let end = first_end(&namespace, 3 * 3600).await;
    namespace.patch(&deployment, &json!({"spec": {"replicas": 3}})).await;
    namespace.await_running(3).await;
    await_shown(&namespace, 3, Some(end)).await;
    change("").await;
    await_shown(&namespace, 3, None).await;
    let patches = audit::of_keeper(&world.cluster, "patch", "pods", namespace.name());
    assert_eq!(patches.len(), 10, "{patches:?}");
}

fn example() -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/checkpoint.yaml");
    std::fs::read_to_string(file).unwrap()
}

#[tokio::test]
async fn the_pod_of_the_checkpoint_example_shows_its_end() {
    let world = &*world_with_pods().await;
    let (as_it_is, turned_on) = (Namespace::new(world).await, Namespace::new(world).await);
    let apply = async |namespace: &Namespace, text: &str| {
        let apply = ["apply", "--namespace", namespace.name(), "-f", "-"];
        let output = world.cluster.kubectl_with_input(&apply, text).await.unwrap();
        assert_eq!(output.stderr, "", "it is accepted without a warning");
        output.success().unwrap();
    };
    apply(&as_it_is, &example()).await;
    as_it_is.await_running(1).await;
    // told half an hour before an end in eight hours, and here two hours before one in two hours and a second
    let text = example().replace("maxDuration: 8h", "maxDuration: 2h1s").replace("30m,10m", "2h,10m");
    apply(&turned_on, &text).await;
    let shown = async || Ok(shown(&turned_on).await.into_iter().flatten().next());
    let end = eventually("the pod to show its end", DEADLINE, shown).await.unwrap();
    let left = end.parse::<Timestamp>().unwrap().duration_since(Timestamp::now());
    assert!(left <= SignedDuration::from_hours(2), "{left:#}");
}

/// The training loop of the example, as a process.
struct Training {
    directory: PathBuf,
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Training {
    /// None where there is no Python.
    fn start(directory: &Path, steps: u32) -> Option<Self> {
        let objects = example();
        let maps = objects.split("\n---\n").map(|text| serde_saphyr::from_str::<Value>(text).unwrap());
        let map = maps.into_iter().find(|object| object["kind"] == "ConfigMap").unwrap();
        let script = directory.join("train.py");
        std::fs::write(&script, map["data"]["train.py"].as_str().unwrap()).unwrap();
        let mut child = Command::new("python3")
            .arg(script)
            .env("EXPIRES_AT_FILE", directory.join("expires-at"))
            .env("STATE_FILE", directory.join("state.json"))
            .env("STEPS", steps.to_string())
            .env("STEP_SECONDS", "0.01")
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .inspect_err(|error| eprintln!("python3: {error}: not tried"))
            .ok()?;
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Some(Self { directory: directory.to_owned(), child, lines })
    }

    /// The next line that it prints.
    async fn line(&mut self) -> String {
        timeout(DEADLINE, self.lines.next_line()).await.unwrap().unwrap().unwrap()
    }

    /// Writes the file as a kubelet does: another one in its place.
    fn write_end(&self, seconds: i64) {
        let end = Timestamp::now() + SignedDuration::from_secs(seconds);
        let new = self.directory.join("new");
        std::fs::write(&new, end.to_string()).unwrap();
        std::fs::rename(new, self.directory.join("expires-at")).unwrap();
    }

    fn step(&self) -> u64 {
        let state = std::fs::read_to_string(self.directory.join("state.json")).unwrap();
        serde_json::from_str::<Value>(&state).unwrap()["step"].as_u64().unwrap()
    }
}

#[tokio::test]
async fn a_training_loop_saves_before_the_end_that_the_file_says() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("checkpoint-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join("expires-at"), "").unwrap();
    let Some(mut training) = Training::start(&directory, 1_000_000) else { return };
    assert_eq!(training.line().await, "at step 0");
    // an end that is far, one that is near, a later one and again one that is near
    training.write_end(36_000);
    training.write_end(120);
    let first = training.line().await;
    assert!(first.starts_with("saved step ") && first.contains(": the run ends in "), "{first}");
    let saved = training.step();
    training.write_end(36_000);
    training.write_end(100);
    let second = training.line().await;
    assert!(second.contains(": the run ends in "), "{second}");
    assert!(training.step() > saved, "{second}");
    let pid = training.child.id().unwrap().to_string();
    let stopped = Command::new("bash").args(["-c", &format!("kill -TERM {pid}")]).status().await.unwrap();
    assert!(stopped.success());
    assert!(training.line().await.ends_with(": told to stop"));
    assert!(timeout(DEADLINE, training.child.wait()).await.unwrap().unwrap().success());
    let saved = training.step();
    let mut resumed = Training::start(&directory, u32::try_from(saved).unwrap() + 1).unwrap();
    assert_eq!(resumed.line().await, format!("at step {saved}"));
    assert!(
        resumed.line().await.starts_with(&format!("saved step {}: ", saved + 1)),
        "once it is near the end"
    );
    assert!(resumed.line().await.ends_with(": done"));
    std::fs::remove_dir_all(directory).unwrap();
}
