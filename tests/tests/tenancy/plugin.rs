//! The words of the plugin about the right to use a queue.

use std::path::Path;

use serde_json::{Value, json};
use tenure_testbed::{eventually, program};
use tenure_tests::{DEADLINE, World, workloads::runai_queue};
use tokio::{process::Command, task::spawn_blocking};

use crate::access::{LABEL, RUNAI, accounts_of, in_queue, let_use, seen_by, user, world};

/// Runs the plugin as a user; returns what it prints, and its complaints.
async fn plugin(kubeconfig: &Path, arguments: &[&str]) -> (String, String) {
    let plugin = spawn_blocking(|| program("kubectl-tenure")).await.unwrap().unwrap();
    let output = Command::new(plugin).args(arguments).env("KUBECONFIG", kubeconfig).output().await.unwrap();
    let [stdout, stderr] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    (stdout, stderr)
}

/// Lets a user read objects of the whole cluster.
async fn let_list(world: &World, subject: &str, (group, resources): (&str, &[&str])) {
    let of = "rbac.authorization.k8s.io";
    let (version, metadata) = (format!("{of}/v1"), json!({"name": format!("{subject}-lists-{group}")}));
    let rule = json!({"apiGroups": [group], "resources": resources, "verbs": ["get", "list"]});
    world
        .apply(&json!({"apiVersion": version, "kind": "ClusterRole", "metadata": metadata, "rules": [rule]}))
        .await;
    world
        .apply(&json!({
            "apiVersion": version, "kind": "ClusterRoleBinding", "metadata": metadata, "subjects": [user(subject)],
            "roleRef": {"apiGroup": of, "kind": "ClusterRole", "name": metadata["name"]},
        }))
        .await;
}

/// Waits until the plugin says these words to a user, on either output.
async fn await_said(kubeconfig: &Path, arguments: &[&str], words: &str) {
    eventually(&format!("{arguments:?} to say {words:?}"), DEADLINE, async || {
        let (stdout, stderr) = plugin(kubeconfig, arguments).await;
        anyhow::ensure!(format!("{stdout}{stderr}").contains(words), "{stdout}{stderr}");
        Ok(Some(()))
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn administrators_see_who_may_use_a_queue_and_others_whether_they_may_and_which_right_they_lack() {
    let world = world().await;
    let name = &world.namespace().await;
    world.apply(&runai_queue("asked", "", "1d")).await;
    let_use(name, (RUNAI, "queues", "asked"), accounts_of(name)).await;
    let asker = &seen_by(name, "asker").await;
    asker.create(&in_queue(name, "train", LABEL, "asked")).await;

    let admin = world.cluster.kubeconfig();
    let (said, _) = plugin(admin, &["queue", "asked", "-n", name, "-o", "json"]).await;
    let grants = serde_json::from_str::<Value>(&said).unwrap()["grants"].take();
    let group = format!("Group system:serviceaccounts:{name}");
    let expected = json!({"namespace": name, "subject": group, "binding": "RoleBinding use-queues-asked"});
    let everything = json!({
        "namespace": null, "subject": "Group system:masters", "binding": "ClusterRoleBinding cluster-admin",
    });
    let grants = grants.as_array().unwrap();
    assert!(grants.contains(&expected) && grants.contains(&everything), "{grants:#?}");
    assert!(!grants.iter().any(|grant| grant["subject"].to_string().contains("asker")), "{grants:#?}");
    let (said, _) = plugin(admin, &["queue", "asked"]).await;
    let (_, table) = said.split_once("MAY USE ").unwrap();
    assert!(table.contains(&group) && table.contains("<all> "), "{said}");
    let (said, _) = plugin(admin, &["explain", "pod/train", "-n", name]).await;
    let right = format!(
        "it takes a right to use queue \"asked\" in namespace \"{name}\" (tenancy.queueAccess.mode is Deny)"
    );
    let expected = format!("{right}: service account \"default\" has the right, you have it\n");
    assert!(said.contains(&expected), "{said}");

    let poor = &world.cluster.user_kubeconfig("asker", None).unwrap();
    let [queue, explain] = [["queue", "asked", "-n", name], ["explain", "pod/train", "-n", name]];
    let unseen =
        "who may use queue asked isn't shown, because you may not list roles.rbac.authorization.k8s.io";
    await_said(poor, &queue, &format!("{unseen}: you don't have the right to use it in namespace {name}\n"))
        .await;
    for right in [(RUNAI, &["queues", "podgroups"][..]), ("scheduling.k8s.io", &["priorityclasses"])] {
        let_list(world, "asker", right).await;
    }
    let unknown = "whether service account \"default\" has the right isn't known, because you may not create subjectaccessreviews.authorization.k8s.io, you don't have it\n";
    await_said(poor, &explain, &format!("{right}: {unknown}")).await;
    let_use(name, (RUNAI, "queues", "asked"), user("asker")).await;
    await_said(poor, &queue, &format!("{unseen}: you may use it in namespace {name}\n")).await;
    let (said, _) = plugin(admin, &["explain", "pod/train", "-n", name]).await;
    assert!(said.contains("service account \"default\" doesn't have the right, you have it\n"), "{said}");
}
