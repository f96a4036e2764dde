//! `kubectl tenure extend`, `extensions`, `approve` and `deny`, as users call them.

use serde_json::{Value, json};
use tenure_testbed::eventually;
use tenure_tests::{DEADLINE, plugin, workloads::Namespace};

use super::{job, queue};
use crate::world;

async fn plugin(namespace: &Namespace, arguments: &[&str]) -> (bool, String, String) {
    plugin::plugin(world().await, namespace.name(), arguments).await
}

/// The name of the request in what `extend` prints.
fn name_of(printed: &str) -> &str {
    printed.strip_prefix("extension.tenure.dev/").and_then(|rest| rest.split(' ').next()).unwrap()
}

#[tokio::test]
async fn users_ask_and_approvers_decide_by_the_plugin() {
    let namespace = Namespace::new(world().await).await;
    namespace.apply(&queue("plugin", "1h", json!({"autoApprove": "1h", "maxTotal": "3h"}))).await;
    let job = namespace.create(&job(&namespace, "train", "plugin")).await;
    namespace.await_running(1).await;

    let (done, granted, _) = plugin(&namespace, &["extend", "job/train", "1h", "--wait"]).await;
    assert!(done && granted.contains("tenure-keeper has granted 1h more for this run"), "{granted}");
    let asked = ["extend", "job/train", "2h", "--reason", "the last epoch"];
    let (done, asked, _) = plugin(&namespace, &asked).await;
    assert!(done && asked.ends_with("created for job.batch/train: 2h more\n"), "{asked}");
    let name = name_of(&asked);
    let waits = async || {
        let (_, listed, _) = plugin(&namespace, &["extensions", "-o", "wide"]).await;
        Ok(listed.contains("Waits for approval").then_some(listed))
    };
    let listed = eventually("a request that waits", DEADLINE, waits).await.unwrap();
    let first = listed.lines().nth(1).unwrap();
    assert!(
        first.starts_with(name) && first.contains("Pending") && first.contains("the last epoch"),
        "{listed}"
    );

    let (done, _, refused) = plugin(&namespace, &["approve", name, "--duration", "3h"]).await;
    assert!(!done && refused.contains("asks for 2h: --duration 3h is more"), "{refused}");
    let (done, approved, why) = plugin(&namespace, &["approve", name, "--duration", "90m"]).await;
    assert!(done, "{why}");
    let expected = format!("extension.tenure.dev/{name} approved: 90m for job/train, requested by ");
    assert!(approved.starts_with(&expected) && approved.ends_with(" (the last epoch)\n"), "{approved}");
    let (_, explained, _) = plugin(&namespace, &["explain", "job/train"]).await;
    assert!(explained.contains("its run was granted 2h30m beyond that ceiling"), "{explained}");
    let (done, denied, _) = plugin(&namespace, &["deny", name, "--message", "maintenance"]).await;
    assert!(done && denied.contains(" denied: job/train, requested by "), "{denied}");
    let (_, listed, _) = plugin(&namespace, &["extensions", "-o", "json"]).await;
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(
        (listed[0]["status"]["message"].as_str(), listed.as_array().unwrap().len()),
        (Some("maintenance"), 2)
    );

    let (done, _, refused) = plugin(&namespace, &["extend", "job/none", "1h"]).await;
    assert!(!done && refused.contains("NotFound"), "{refused}");
    namespace.patch(&job, &json!({"spec": {"suspend": true}})).await;
    let (done, _, refused) = plugin(&namespace, &["extend", "job/train", "1h"]).await;
    assert!(!done && refused.contains("is paused, and has no run that could be extended"), "{refused}");
}
