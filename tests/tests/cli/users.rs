//! Users with a built-in role in their namespace.

use std::path::{Path, PathBuf};

use serde_json::json;
use tenure_testbed::{RELEASE_NAMESPACE, eventually};
use tenure_tests::{
    DEADLINE, World,
    workloads::{Namespace, distinct, in_runai_queue, runai_queue, workload},
};

use super::{NOTHING, Said, tenure, world};

const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../charts/tenure");

/// The output of a review of access: only the verdict.
const ALLOWED: &str = "--output=jsonpath={.status.allowed}";

/// The warning to a user whose only rights come from a `RoleBinding`.
const LEFT_OUT: &str = "Warning: you may not list queues.scheduling.run.ai, queues.scheduler.tensorstack.dev: what they say isn't shown\n";

/// That of `explain`.
const CLASSES_LEFT_OUT: &str = "Warning: you may not list queues.scheduling.run.ai, priorityclasses.scheduling.k8s.io, queues.scheduler.tensorstack.dev: what they say isn't shown\n";

/// A kubeconfig of a service account that has a role in its namespace.
pub async fn with_role(world: &World, namespace: &str, role: &str) -> PathBuf {
    let account = format!("--serviceaccount={namespace}:{role}");
    for create in [
        ["create", "serviceaccount", role].as_slice(),
        &["create", "rolebinding", role, "--clusterrole", role, &account],
    ] {
        let arguments = [create, &["-n", namespace]].concat();
        world.cluster.kubectl(&arguments).await.unwrap().success().unwrap();
    }
    world.cluster.service_account_kubeconfig(namespace, role).await.unwrap()
}

/// Waits until a command succeeds with no other words on standard error.
async fn await_said(world: &World, kubeconfig: &Path, arguments: &[&str], complaints: &str) -> String {
    eventually(&format!("{arguments:?} to say {complaints:?}"), DEADLINE, async || {
        let said = Said::of(tenure(&world.cluster, kubeconfig, arguments).await).await;
        anyhow::ensure!((said.code, said.stderr.as_str()) == (Some(0), complaints), "{said:?}");
        Ok(Some(said.stdout))
    })
    .await
    .unwrap()
}

#[tokio::test]
async fn users_with_view_or_edit_in_a_namespace_see_their_workloads_and_queues_once_they_may() {
    let world = world().await;
    let namespace = Namespace::new(world).await;
    let name = namespace.name();
    world.apply(&runai_queue("cli-users", "", "1d")).await;
    let labels = in_runai_queue("cli-users");
    let deployment = namespace.create(&workload("Deployment", name, "test", &labels, &NOTHING)).await;
    namespace.await_running(2).await;
    let pod = format!("{name}/{}", namespace.pod_names().await.pop_first().unwrap());
    let (list, queue) = (["list", "-n", name], ["queue", "cli-users", "-n", name]);
    let explain = ["explain", "pod", &pod];
    let users = [with_role(world, name, "view").await, with_role(world, name, "edit").await];
    let end = eventually("the end on the workload", DEADLINE, async || {
        let annotations = namespace.field(&deployment, "metadata.annotations").await;
        Ok(annotations.get("tenure.dev/expires-at").and_then(|end| Some(end.as_str()?.to_owned())))
    })
    .await
    .unwrap();
    for user in &users {
        for command in [list.as_slice(), &queue] {
            let said = await_said(world, user, command, LEFT_OUT).await;
            assert!(said.contains("deployment/test") && said.contains(&end), "{said}");
            assert!(said.contains("<unknown>"), "its floor: {said}");
        }
        for command in [explain.as_slice(), &["explain", "deployment/test", "-n", name]] {
            let said = await_said(world, user, command, CLASSES_LEFT_OUT).await;
            assert!(
                said.contains(&format!("it expires at {end}")) && said.contains("which you may not read"),
                "{said}"
            );
        }
        let preemption = ["explain", "preemption", "--preemptor", &pod, "--victim", &pod];
        let output = Said::of(tenure(&world.cluster, user, &preemption).await).await.bad();
        assert_eq!(output.lines().count(), 1, "no verdict rather than a wrong one: {output}");
    }

    world.apply(&runai_queue("cli-users-short", "", "1s")).await;
    let short = workload("Deployment", name, "short", &in_runai_queue("cli-users-short"), &NOTHING);
    let short = namespace.create(&distinct(short, "short")).await;
    namespace.await_pause_of(&short, "spec.replicas", &json!(0)).await;
    let explain_short = ["explain", "deployment/short", "-n", name];
    let said = await_said(world, &users[1], &explain_short, CLASSES_LEFT_OUT).await;
    assert!(said.contains("Tenure paused it at 20"), "{said}");

    let subject = json!([{
        "kind": "Group", "name": format!("system:serviceaccounts:{name}"), "apiGroup": "rbac.authorization.k8s.io",
    }]);
    let see = format!("users.seeQueues={subject}");
    let release = ["upgrade", "tenure", CHART, "--namespace", RELEASE_NAMESPACE, "--reuse-values"];
    let upgrade = world.cluster.helm(&[&release[..], &["--set-json", &see]].concat()).await;
    upgrade.unwrap().success().unwrap();
    for user in &users {
        for command in [list.as_slice(), &queue, &explain] {
            let said = await_said(world, user, command, "").await;
            assert!(!said.is_empty(), "{command:?}");
        }
    }
    let [view, edit] = users.map(|user| user.to_str().unwrap().to_owned());
    let patch = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {
            "namespace": name, "verb": "patch", "group": "jobset.x-k8s.io", "resource": "jobsets",
        }},
    });
    for (user, may) in [(view, "false"), (edit, "true")] {
        let ask = ["--kubeconfig", &user, "create", "--validate=false", "-f", "-", ALLOWED];
        let answer = world.cluster.kubectl_with_input(&ask, &patch.to_string()).await;
        assert_eq!(answer.unwrap().success().unwrap().trim(), may);
    }
}
