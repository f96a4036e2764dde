//! `status`: whether Tenure works, what doesn't, and what the user may not know.

use serde_json::{Value, json};
use tenure_testbed::{RELEASE_NAMESPACE, eventually};
use tenure_tests::{
    DEADLINE, World,
    workloads::{Namespace, bare_pod, in_runai_queue, runai_queue},
};

use super::{NOTHING, Said, in_namespace, run, tenure, users::with_role};

fn checks(said: &Said) -> Vec<[String; 3]> {
    let checks: Vec<Value> = serde_json::from_str(&said.stdout).unwrap();
    let text = |check: &Value, key: &str| check[key].as_str().unwrap_or_default().to_owned();
    checks.iter().map(|check| ["check", "status", "message"].map(|key| text(check, key))).collect()
}

fn of<'c>(checks: &'c [[String; 3]], name: &str) -> (&'c str, &'c str) {
    let [_, status, message] = checks.iter().find(|[check, ..]| check == name).unwrap();
    (status, message)
}

/// The lines that depend on where keepers are looked for.
fn said_of_keepers(checks: &[[String; 3]]) -> Vec<[String; 2]> {
    let of_keepers = checks.iter().filter(|[check, ..]| ["keeper", "leader"].contains(&check.as_str()));
    of_keepers.map(|[check, status, _]| [check.clone(), status.clone()]).collect()
}

/// A Deployment of a tenant with the labels of the chart's.
fn forged_keeper(namespace: &str) -> Value {
    let labels = json!({"app.kubernetes.io/part-of": "tenure", "app.kubernetes.io/component": "keeper"});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "forged", "namespace": namespace, "labels": labels},
        "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels},
            "spec": {"containers": [{"name": "keeper", "image": "forged"}]},
        }},
    })
}

/// A Lease whose holder would lead a request for a pod elsewhere.
fn forged_lease(namespace: &str) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "forged", "namespace": namespace},
        "spec": {"holderIdentity": "../../kube-system/pods/other"},
    })
}

#[tokio::test]
async fn what_works_and_what_does_not_is_reported_with_what_helps() {
    let world = Box::pin(World::running("cli-status")).await.unwrap();
    let namespace = Namespace::new(&world).await;
    let name = namespace.name();
    let status = ["status", "-o", "json"];
    // the keepers of a test are no pods
    let healthy = async || {
        let said = run(&world, &status).await;
        Ok((said.code == Some(0)).then(|| checks(&said)))
    };
    let healthy = eventually("no problem", DEADLINE, healthy).await.unwrap();
    for (check, expected) in [
        ("definitions", "queues.scheduling.run.ai (v3alpha1)"),
        ("leader", "keeper-0 leads, and has renewed Lease tenure-system/tenure-keeper"),
        ("webhook", "the API server calls it at https://127.0.0.1:"),
        ("certificate", "good until 20"),
        ("admission", "the API server asks the webhook"),
        ("queues", "every queue that a pod names exists"),
        ("config", "every queue that the configuration names exists"),
        ("ceilings", "no pod runs"),
        ("refusals", "no return"),
    ] {
        let (status, message) = of(&healthy, check);
        assert_eq!(status, "OK", "{check}: {message}");
        assert!(message.contains(expected), "{check}: {message}");
    }
    let (unknown, message) = of(&healthy, "watches");
    assert!(
        unknown == "UNKNOWN" && message.contains("keeper-0 isn't a pod of namespace tenure-system"),
        "{message}"
    );

    // a tenant's keeper that looks like Tenure's doesn't count
    let leads = said_of_keepers(&healthy);
    namespace.create(&forged_keeper(name)).await;
    namespace.create(&forged_lease(name)).await;
    let forged = checks(&run(&world, &status).await);
    assert_eq!(said_of_keepers(&forged), leads);
    let named = run(&world, &[&status[..], &["--tenure-namespace", name]].concat()).await;
    let named = checks(&named);
    let (unknown, message) = of(&named, "watches");
    assert!(unknown == "UNKNOWN" && message.ends_with("isn't the name of a pod"), "{message}");

    // a user sees what they may see, and that is no failure
    let user = with_role(&world, name, "view").await;
    let said = Said::of(tenure(&world.cluster, &user, &status).await).await;
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""), "{said:?}");
    let of_user = checks(&said);
    for (check, right) in [
        ("keeper", "you may not list clusterrolebindings.rbac.authorization.k8s.io"),
        ("webhook", "you may not list validatingwebhookconfigurations.admissionregistration.k8s.io"),
        ("admission", "you may not create queues.scheduling.run.ai"),
        ("queues", "you may not list queues.scheduling.run.ai"),
        ("refusals", "you may not list events in all namespaces"),
    ] {
        let (status, message) = of(&of_user, check);
        assert!(status == "UNKNOWN" && message.starts_with(right), "{check}: {status} {message}");
    }

    // what is wrong is a problem, with a remedy
    namespace.create(&bare_pod(name, "lost", &in_runai_queue("no-such-queue"), &NOTHING)).await;
    namespace.apply(&runai_queue("dry", "", "1s")).await;
    world.apply(&granted("dry")).await;
    world.apply(&granted("reserch")).await;
    world.tenure.stop_webhook().await.unwrap();
    world.tenure.stop_keeper().await.unwrap();
    let said = run(&world, &[&status[..], &["--tenure-namespace", RELEASE_NAMESPACE]].concat()).await;
    assert_eq!((said.code, said.stderr.as_str()), (Some(1), ""), "{said:?}");
    let broken = checks(&said);
    for (check, expected) in [
        ("leader", "no keeper leads: Lease tenure-system/tenure-keeper has no holder"),
        ("admission", "the API server can't ask the webhook: "),
        ("queues", &format!("\"no-such-queue\" (by pods in {name})")),
        ("grants", "the chart grants the use of queues that don't exist: reserch"),
    ] {
        let (status, message) = of(&broken, check);
        assert!(status == "PROBLEM" && message.contains(expected), "{check}: {status} {message}");
    }
    let text = run(&world, &["status"]).await;
    assert!(text.code == Some(1) && text.stdout.contains("-> kubectl logs"), "{text:?}");
    a_dry_run_is_told(&world, &namespace).await;
}

/// The right to use a queue, as the chart renders it.
fn granted(queue: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {
            "name": format!("tenure-use-{queue}"),
            "labels": {"app.kubernetes.io/part-of": "tenure", "app.kubernetes.io/component": "tenancy"},
        },
        "rules": [{
            "apiGroups": ["scheduling.run.ai", "scheduler.tensorstack.dev"], "resources": ["queues"],
            "resourceNames": [queue], "verbs": ["use"],
        }],
    })
}

/// A keeper in dry-run mode, with the arguments that the chart renders.
async fn a_dry_run_is_told(world: &World, namespace: &Namespace) {
    let of_release = Namespace::of(world, RELEASE_NAMESPACE);
    let keeper = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "tenure-keeper", "namespace": RELEASE_NAMESPACE}});
    let keeper = of_release.find(&serde_json::from_value(keeper).unwrap()).await;
    let mut dry = keeper.data["spec"]["template"]["spec"]["containers"].clone();
    let flags = [json!("--dry-run"), json!("--t9k-system-namespace=t9k-sytem")];
    dry[0]["args"].as_array_mut().unwrap().extend(flags);
    of_release.patch(&keeper, &json!({"spec": {"template": {"spec": {"containers": dry}}}})).await;
    let leader = checks(&run(world, &["status", "-o", "json"]).await);
    let (status, message) = of(&leader, "leader");
    assert!(status == "OK" && message.contains("is in dry-run mode"), "{status} {message}");
    let (status, message) = of(&leader, "namespace");
    assert!(status == "PROBLEM" && message.contains("\"t9k-sytem\""), "{status} {message}");

    namespace.create(&bare_pod(namespace.name(), "overdue", &in_runai_queue("dry"), &NOTHING)).await;
    let expired = async || {
        let said = in_namespace(world, namespace.name(), &["list", "dry", "-o", "json"]).await;
        Ok(said.stdout.contains("\"Expired\"").then_some(said))
    };
    let said = eventually("the pod to be overdue", DEADLINE, expired).await.unwrap();
    assert!(
        said.stderr.contains("Expired workloads would be paused") && said.stdout.contains("DryRun"),
        "{said:?}"
    );
    let explained = in_namespace(world, namespace.name(), &["explain", "pod/overdue"]).await.good();
    assert!(explained.contains("the keeper is in dry-run mode"), "{explained}");
}
