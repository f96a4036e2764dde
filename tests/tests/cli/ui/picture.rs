//! The picture of the page in the README: `make picture`.

use serde_json::{Value, json};
use tenure_tests::{pages::workspace, served::Ui};

use super::{
    browser::Chromium,
    files::{NOW, pod, written_alone},
};

/// An object of a controller, and its pods.
fn run(kind: &str, name: &str, queue: &str, started: &str, (pods, gpus): (usize, u32)) -> Vec<Value> {
    let api_version = if kind == "Job" { "batch/v1" } else { "apps/v1" };
    let metadata = json!({"name": name, "namespace": "vision", "uid": name});
    let owner = json!({"apiVersion": api_version, "kind": kind, "metadata": metadata});
    let pods = (0..pods).map(|number| {
        let mut pod = pod(&format!("{name}-{number}"), queue, started, gpus);
        pod["metadata"]["namespace"] = json!("vision");
        let reference =
            json!({"apiVersion": api_version, "kind": kind, "name": name, "uid": name, "controller": true});
        pod["metadata"]["ownerReferences"] = json!([reference]);
        pod
    });
    [owner].into_iter().chain(pods).collect()
}

fn queue(name: &str, parent: Option<&str>, mut spec: Value) -> Value {
    spec["parentQueue"] = json!(parent);
    json!({"apiVersion": "scheduling.run.ai/v3alpha1", "kind": "Queue", "metadata": {"name": name}, "spec": spec})
}

/// A Job that was paused, and may come back.
fn paused(name: &str, reason: &str, returns: Option<&str>) -> Value {
    let record = json!({
        "reason": reason, "at": "2026-01-02T01:40:00Z", "queue": "training", "queueGroup": "scheduling.run.ai",
        "field": "spec.suspend", "previousValue": false,
    });
    let mut annotations = json!({"tenure.dev/paused": record.to_string()});
    if let Some(at) = returns {
        let state = json!({"count": 1, "requeueAt": at, "priority": 0});
        annotations["tenure.dev/requeue-state"] = json!(state.to_string());
    }
    let metadata = json!({"name": name, "namespace": "vision", "uid": name, "annotations": annotations});
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"suspend": true}})
}

#[tokio::test]
#[ignore = "writes docs/ui.png"]
async fn the_picture_of_the_readme() {
    let queues = vec![
        queue("lab", None, json!({"maxDuration": "12h", "reclaimMinRuntime": "1h"})),
        queue("training", Some("lab"), json!({"maxDuration": "8h", "preemptMinRuntime": "2h"})),
        queue("notebooks", Some("lab"), json!({"maxDuration": "4h"})),
    ];
    let objects = [
        queues,
        run("Job", "train-resnet", "training", "2026-01-01T23:10:00Z", (4, 8)),
        run("Job", "finetune", "training", "2026-01-02T02:20:00Z", (1, 4)),
        run("Job", "sweep-17", "training", "2026-01-02T01:05:00Z", (2, 1)),
        run("Job", "evaluate", "training", "2026-01-01T19:35:00Z", (1, 1)),
        run("StatefulSet", "notebook-ana", "notebooks", "2026-01-01T23:40:00Z", (1, 1)),
        run("StatefulSet", "notebook-li", "notebooks", "2026-01-02T02:50:00Z", (1, 1)),
        run("StatefulSet", "demo", "trainig", "2026-01-02T00:30:00Z", (1, 1)),
        vec![
            paused("pretrain", "MaxDurationExceeded", None),
            paused("gang", "PodsReadyTimeout", Some("2026-01-02T03:40:00Z")),
            pod("old-server", "", "2026-01-01T09:00:00Z", 2),
        ],
    ];
    let file = written_alone("picture", &objects.concat());
    let ui = Ui::start(None, &["-f", file.to_str().unwrap(), "--now", NOW]).await;
    let cookie = ui.sign_in().await;
    let mut browser = Chromium::open("picture").await.expect("a browser");
    browser.cookie(&ui, &cookie).await;
    browser.goto(&format!("http://127.0.0.1:{}/", ui.port)).await;
    browser.sees("job/train-resnet").await;
    let taken = browser.picture().await;
    std::fs::copy(taken, workspace().join("docs/ui.png")).unwrap();
    browser.close().await;
}
