//! Install, upgrade, uninstall.

use serde_json::json;
use tenure_tests::pages::{Page, commands, run};

use crate::{
    CHART, NAMESPACE, NOWHERE, helm, installed,
    keeper::{everything_set, rollout},
    kubectl, shared, start_api_server,
};

#[tokio::test]
async fn queues_outlive_an_uninstall() {
    let cluster = start_api_server("chart-uninstall").await.unwrap();
    // else the queues below would wait for a webhook
    let webhook = json!({"url": NOWHERE, "failurePolicy": "Ignore"});
    let values = json!({"webhook": webhook, "crds": {"tensorstack": true}});
    let install =
        async |release: &str, flags: &[&str]| helm(&cluster, "install", release, &values, flags).await;
    install("tenure", &[]).await.success().unwrap();
    // it isn't another release of its own
    let alone = ["upgrade", "tenure", CHART, "--namespace", NAMESPACE, "--reuse-values"];
    let alone = [&alone[..], &["--set", "allowOtherReleases=false"]].concat();
    cluster.helm(&alone).await.unwrap().success().unwrap();
    for group in ["scheduling.run.ai/v3alpha1", "scheduler.tensorstack.dev/v1beta1"] {
        let queue = json!({"apiVersion": group, "kind": "Queue", "metadata": {"name": "kept"}, "spec": {}});
        kubectl(&cluster, &["apply", "-f", "-"], &queue.to_string()).await;
    }
    let queues = async || {
        // v2 of the former waits for a webhook
        let kinds = "queues.v3alpha1.scheduling.run.ai,queues.scheduler.tensorstack.dev";
        kubectl(&cluster, &["get", kinds, "--output=jsonpath={.items[*].metadata.uid}"], "").await
    };
    let before = queues().await;
    assert_eq!(before.split(' ').count(), 2);

    // as the keeper makes it
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "tenure-keeper", "namespace": NAMESPACE},
        "spec": {"holderIdentity": "tenure-keeper-0", "leaseDurationSeconds": 15},
    });
    let create = ["create", "-f", "-"];
    kubectl(&cluster, &create, &lease.to_string()).await;
    let uninstall = ["uninstall", "tenure", "--namespace", NAMESPACE, "--wait"];
    cluster.helm(&uninstall).await.unwrap().success().unwrap();
    let leases = ["get", "lease", "--namespace", NAMESPACE, "--output=name"];
    assert_eq!(kubectl(&cluster, &leases, "").await, "");
    let rest = "deployment,secret,serviceaccount,clusterrole,clusterrolebinding,validatingwebhookconfiguration,\
        validatingadmissionpolicy,validatingadmissionpolicybinding";
    let list = ["get", rest, "-A", "--output=name", "-l", "app.kubernetes.io/part-of=tenure"];
    assert_eq!(kubectl(&cluster, &list, "").await, "");
    assert_eq!(queues().await, before);

    install("tenure", &[]).await.success().unwrap();
    assert_eq!(queues().await, before);
    cluster.helm(&uninstall).await.unwrap().success().unwrap();
    let refused = install("another", &[]).await;
    assert!(refused.stderr.contains("queues.scheduling.run.ai"), "{}", refused.stderr);
    install("another", &["--take-ownership"]).await.success().unwrap();
    assert_eq!(queues().await, before);

    // left to kubectl, they and their queues stay, and Helm has no say in them any more
    let mut applied = values.clone();
    applied["crds"] = json!({"install": false});
    helm(&cluster, "upgrade", "another", &applied, &[]).await.success().unwrap();
    assert_eq!(queues().await, before);
    cluster.helm(&["uninstall", "another", "--namespace", NAMESPACE]).await.unwrap().success().unwrap();
    helm(&cluster, "install", "third", &applied, &[]).await.success().unwrap();
    assert_eq!(queues().await, before);
}

#[tokio::test]
async fn pods_run_where_pod_security_is_restricted() {
    // whose pods were admitted
    let (cluster, _) = installed().await;
    let run = ["run", "plain", "--image=example.com/plain", "--namespace", NAMESPACE];
    let plain = cluster.kubectl(&run).await.unwrap();
    assert!(plain.stderr.contains("violates PodSecurity"), "{}", plain.stderr);
}

#[tokio::test]
async fn upgrade_takes_a_release_from_any_values_to_any_others() {
    let cluster = shared().await;
    let crds = json!({"runai": false, "tensorstack": false, "extensions": false});
    let name = "changing-tenure-keeper";
    let of = async |kind: &str, path: &str| {
        let path = format!("--output=jsonpath={path}");
        let get = ["get", kind, name, "--namespace", NAMESPACE, "--ignore-not-found", &path];
        kubectl(cluster, &get, "").await
    };
    let mut verb = "install";
    for (keeper, replicas, role, budget, owners) in [
        (json!({"replicas": 1}), "1", name, "", ""),
        (json!({"replicas": 3}), "3", name, name, ""),
        (everything_set(), "3", name, name, "owners:"),
        (json!({"dryRun": true, "owners": [rollout()]}), "1", "", "", "owners:"),
        (json!({}), "2", name, name, ""),
    ] {
        let values = json!({"crds": crds, "keeper": keeper});
        helm(cluster, verb, "changing", &values, &["--wait"]).await.success().unwrap();
        verb = "upgrade";
        assert_eq!(of("deployment", "{.status.readyReplicas}").await, replicas, "{keeper}");
        assert_eq!(of("role", "{.metadata.name}").await, role, "{keeper}");
        assert_eq!(of("rolebinding", "{.metadata.name}").await, role, "{keeper}");
        assert_eq!(of("poddisruptionbudget", "{.metadata.name}").await, budget, "{keeper}");
        let config = ["get", "configmap", "changing-tenure-config", "-n", NAMESPACE, "-o=jsonpath={.data}"];
        assert!(kubectl(cluster, &config, "").await.contains(owners), "{keeper}");
    }
    let off = json!({"crds": crds, "options": {"durationKeeper": {"enabled": false}}});
    helm(cluster, verb, "changing", &off, &[]).await.success().unwrap();
    for kind in ["deployment", "serviceaccount", "role", "clusterrole", "clusterrolebinding"] {
        assert_eq!(of(kind, "{.metadata.name}").await, "", "{kind}");
    }
    assert!(
        !kubectl(cluster, &["get", "deployment", "-n", NAMESPACE, "changing-tenure-webhook"], "")
            .await
            .is_empty()
    );
}

#[tokio::test]
async fn a_second_release_is_refused_unless_a_value_allows_it() {
    let (cluster, _) = installed().await;
    let release = async |arguments: &[&str]| {
        let of_chart = [CHART, "--namespace", NAMESPACE, "--set", "crds.install=false", "--dry-run=server"];
        cluster.helm(&[arguments, &of_chart].concat()).await.unwrap()
    };
    let refused = release(&["install", "second"]).await;
    let words = "Tenure is installed already, as release ";
    assert!(!refused.status.success() && refused.stderr.contains(words), "{}", refused.stderr);
    release(&["install", "second", "--set", "allowOtherReleases=true"]).await.success().unwrap();
}

/// Here no controller runs the Job of the hook.
#[tokio::test]
async fn an_uninstall_whose_job_does_not_end_is_finished_by_the_commands_of_the_page() {
    let cluster = start_api_server("chart-stuck").await.unwrap();
    // the webhook isn't there to convert queues, or to review them
    let values = json!({
        "crds": {"serveV2": true}, "webhook": {"failurePolicy": "Ignore"}, "keeper": {"enabled": false},
    });
    helm(&cluster, "install", "tenure", &values, &[]).await.success().unwrap();
    let uninstall = ["uninstall", "tenure", "--namespace", NAMESPACE, "--timeout", "5s"];
    let stuck = cluster.helm(&uninstall).await.unwrap();
    assert!(!stuck.status.success());
    let page = Page::read("uninstall.md");
    for said in [
        "resource Job/tenure-system/tenure-uninstall not ready. status: InProgress",
        "context deadline exceeded",
    ] {
        assert!(stuck.stderr.contains(said) && page.text.contains(said), "{}", stuck.stderr);
    }
    run(&cluster, &commands("uninstall.md", "# An uninstall that fails").concat()).await;
    let left = ["get", "job,serviceaccount,clusterrole,clusterrolebinding", "-n", NAMESPACE, "-o", "name"];
    let left = kubectl(&cluster, &left, "").await;
    assert!(!left.contains("tenure-uninstall"), "{left}");

    let conflict = helm(&cluster, "install", "tenure", &values, &[]).await;
    assert!(!conflict.status.success() && conflict.stderr.contains("conflict"), "{}", conflict.stderr);
    let again = helm(&cluster, "install", "tenure", &values, &["--force-conflicts"]).await;
    let taken = "cannot reuse a name that is still in use";
    assert!(again.stderr.contains(taken) && page.text.replace('\n', " ").contains(taken), "{}", again.stderr);
    let install = commands("uninstall.md", "Install it again").concat();
    run(&cluster, &format!("{} --set-json '{values}'", install.trim_end())).await;
}
