//! Pauses that are taken back in bulk.

use jiff::{SignedDuration, Timestamp};
use kube::core::DynamicObject;
use serde_json::json;
use tenure_tests::workloads::Namespace;

use super::{Said, deployment, in_namespace, record_of, run, world};

/// A Deployment that was paused in a queue `minutes` minutes ago, by a record that names a field.
async fn paused(namespace: &Namespace, name: &str, queue: &str, minutes: i64, field: &str) -> DynamicObject {
    let at = Timestamp::now().checked_sub(SignedDuration::from_mins(minutes)).unwrap();
    let record = json!({
        "reason": "MaxDurationExceeded", "at": at, "queue": queue,
        "field": field, "value": 0, "previousValue": 3,
    });
    let mut object = deployment(namespace, name);
    object["metadata"]["annotations"] = json!({"tenure.dev/paused": record.to_string()});
    object["metadata"]["labels"] = json!({"name": name});
    object["spec"]["replicas"] = json!(0);
    namespace.create(&object).await
}

const REPLICAS: &str = "spec.replicas";

#[tokio::test]
async fn pauses_are_taken_back_by_queue_labels_and_time() {
    let world = world().await;
    let (here, there) = (Namespace::new(world).await, Namespace::new(world).await);
    let [recent, old] = [("recent", 10), ("old", 180)];
    let recent = paused(&here, recent.0, "cli-bulk", recent.1, REPLICAS).await;
    let old = paused(&here, old.0, "cli-bulk", old.1, REPLICAS).await;
    let other = paused(&here, "other", "cli-other", 10, REPLICAS).await;
    let inactive = paused(&here, "inactive", "cli-bulk", 10, REPLICAS).await;
    here.patch(&inactive, &json!({"metadata": {"annotations": {"tenure.dev/active": "false"}}})).await;
    let forged = paused(&here, "forged", "cli-bulk", 180, "spec.minReadySeconds").await;
    let elsewhere = paused(&there, "elsewhere", "cli-bulk", 10, REPLICAS).await;
    let (name, far) = (here.name(), there.name());

    let recently = ["resume", "--queue", "cli-bulk", "--since", "1h"];
    let dry = in_namespace(world, name, &[&recently[..], &["--dry-run"]].concat()).await;
    let out = "deployment.apps/recent resumed (spec.replicas: 3) (server dry run)\n1 would be resumed\n";
    let left_out = "1 deactivated left out: kubectl tenure activate lets them run again.\n";
    assert_eq!((dry.code, dry.stdout.as_str(), dry.stderr.as_str()), (Some(0), out, left_out));
    assert!(record_of(&here, &recent).await.is_some());
    let done = in_namespace(world, name, &recently).await;
    let out = "deployment.apps/recent resumed (spec.replicas: 3)\n1 resumed\n";
    assert_eq!((done.code, done.stdout.as_str(), done.stderr.as_str()), (Some(0), out, left_out));

    let everywhere = run(world, &["resume", "-A", "--queue", "cli-bulk"]).await;
    let mut lines = [
        format!("deployment.apps/old in namespace {name} resumed (spec.replicas: 3)\n"),
        format!("deployment.apps/elsewhere in namespace {far} resumed (spec.replicas: 3)\n"),
    ];
    if name > far {
        lines.reverse();
    }
    assert_eq!(everywhere.stdout, lines.concat() + "2 resumed, 1 refused\n");
    assert_eq!(everywhere.code, Some(1));
    let refusal = "error: deployment.apps/forged: annotation tenure.dev/paused names spec.minReadySeconds, which Tenure doesn't set for this kind: ";
    assert!(
        everywhere.stderr.starts_with(refusal) && everywhere.stderr.ends_with(left_out),
        "{everywhere:?}"
    );
    assert_eq!(here.field(&forged, "spec.minReadySeconds").await, json!(null));

    let labelled =
        in_namespace(world, name, &["resume", "--all", "-l", "name in (other, forged),name!=forged"]);
    let labelled = labelled.await.good();
    assert_eq!(labelled, "deployment.apps/other resumed (spec.replicas: 3)\n1 resumed\n");
    for (namespace, object) in [(&here, &recent), (&here, &old), (&here, &other), (&there, &elsewhere)] {
        assert_eq!(namespace.field(object, REPLICAS).await, 3);
        assert_eq!(record_of(namespace, object).await, None);
    }
    assert!(record_of(&here, &inactive).await.is_some());

    let again = in_namespace(world, far, &["resume", "--all"]).await;
    let nothing = format!("No paused workloads to resume found in {far} namespace.\n");
    assert_eq!((again.code, again.stdout.as_str(), again.stderr), (Some(0), "", nothing));
    for flags in [&["resume"][..], &["resume", "-A"], &["resume", "--since", "1h"], &["resume", "-l", ""]] {
        let Said { code, stderr, .. } = run(world, flags).await;
        assert_eq!(code, Some(2), "{flags:?}");
        assert!(stderr.starts_with("error: no workloads: name them as in deployment/test"), "{stderr}");
    }
}
