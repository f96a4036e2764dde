//! Follows the notes that Helm shows after an install.

use std::{env, process::Command};

use serde_json::{Value, json};
use tenure_testbed::{Cluster, Process, eventually, free_port, program};
use tokio::task::spawn_blocking;

use crate::{CHART, DEADLINE, NAMESPACE, helm, installed, kubectl, shared, start_api_server};

#[tokio::test]
async fn notes_say_how_to_see_that_it_runs() {
    let (cluster, notes) = installed().await;
    let commands = commands(notes, "\n1. ", "\n2. ");
    let (rollouts, others): (Vec<_>, Vec<_>) =
        commands.lines().map(str::trim).partition(|command| command.contains("rollout"));
    // no keeper runs here that could take it
    assert_eq!(others, [format!("kubectl -n {NAMESPACE} get lease tenure-keeper")]);
    assert_eq!(rollouts.len(), 2, "{notes}");
    for check in rollouts {
        let arguments: Vec<_> = check.split_whitespace().skip(1).collect();
        let said = kubectl(cluster, &arguments, "").await;
        assert!(said.contains("successfully rolled out"), "{check}: {said}");
    }
}

#[tokio::test]
async fn commands_of_the_notes_bring_up_a_webhook_outside_of_the_cluster() {
    let cluster = start_api_server("chart-notes").await.unwrap();
    let (port, admin_port) = (free_port().unwrap(), free_port().unwrap());
    let values = json!({
        "webhook": {"url": format!("https://127.0.0.1:{port}")},
        "keeper": {"replicas": 0, "dryRun": true, "exemptNamespaces": ["prod"]},
    });
    let install = helm(&cluster, "install", "tenure", &values, &[]).await;
    let notes = install.success().unwrap();
    assert!(notes.contains("nothing is paused until a keeper runs elsewhere"), "{notes}");
    let keeper = notes.lines().find(|line| line.contains("tenure-keeper --kubeconfig FILE")).unwrap();
    for flag in
        [" --dry-run ", " --leader-elect=false", " --exempt-namespaces=prod,kube-system,tenure-system "]
    {
        assert!(keeper.contains(flag), "{flag} should be in: {keeper}");
    }

    // the last of them is the webhook; another program may have the admin port that it takes by default
    let serve =
        commands(&notes, "Fetch its configuration", "\n2. ").replace(" KUBECONFIG=", " exec env KUBECONFIG=");
    let serve = format!("{} --admin-listen 127.0.0.1:{admin_port}", serve.trim_end());
    let log = cluster.directory().join("by-hand.log");
    let webhook = Process::spawn("webhook", shell(&cluster, &serve).await, &log).unwrap();
    let admin = format!("--server=http://127.0.0.1:{admin_port}");
    // so it has the certificate, and its token is good for what it watches
    eventually("the webhook to be ready", DEADLINE, async || {
        let ready = cluster.kubectl(&[&admin, "get", "--raw=/ready"]).await?;
        ready.success().map(Some).map_err(|error| webhook.failure(&error.to_string()))
    })
    .await
    .unwrap();
    let make_queues = shell(&cluster, &commands(&notes, "\n2. ", "\n3. ")).await.output().unwrap();
    assert!(make_queues.status.success(), "{make_queues:?}");
}

#[tokio::test]
async fn notes_say_what_does_not_work_with_these_values() {
    let notes = async |values: Value| {
        let output = helm(shared().await, "install", "test", &values, &["--dry-run=client"]).await;
        let output = output.success().unwrap();
        let (_, notes) = output.split_once("NOTES:").expect("there are notes");
        notes.to_owned()
    };
    let off = notes(json!({"options": {"durationKeeper": {"enabled": false}}})).await;
    assert!(off.contains("there is no keeper, and nothing is paused"), "{off}");
    assert!(!off.contains("test-tenure-keeper"), "{off}");
    let outside = notes(json!({"webhook": {"url": "https://10.0.0.7:9443/validate"}})).await;
    let heading = "\n1. Run the webhook at https://10.0.0.7:9443, as said below, and see that the keeper runs\n\n     kubectl";
    assert!(outside.contains(heading), "{outside}");
    assert!(outside.contains("begin with a dry run: with keeper.dryRun=true nothing is paused"), "{outside}");
    let dry_run = notes(json!({"keeper": {"dryRun": true}})).await;
    assert!(dry_run.contains("keeper.dryRun is true: nothing is paused"), "{dry_run}");
    assert!(!dry_run.contains("get lease"), "{dry_run}");
    let t9k = json!({"systemNamespace": NAMESPACE});
    let keeper = json!({"schedulers": ["a", "b"]});
    let chosen = notes(json!({"keeper": keeper, "crds": {"tensorstack": true}, "t9k": t9k})).await;
    assert!(chosen.contains("spec.schedulerName must be a or b"), "{chosen}");
    assert!(!chosen.contains("create namespace"), "{chosen}");
    let by_kubectl = |serves_v2| json!({"crds": {"install": false, "serveV2": serves_v2}, "webhook": {"url": "https://10.0.0.7"}});
    let files = "     kubectl apply --server-side -f charts/tenure/files/crds/\n";
    let applied = notes(by_kubectl(json!("auto"))).await;
    assert!(applied.contains(files) && !applied.contains("conversion"), "{applied}");
    let applied = notes(by_kubectl(json!(true))).await;
    assert!(!applied.contains(files), "{applied}");
    for expected in [
        "     kubectl get queues.v3alpha1.scheduling.run.ai\n",
        "--show-only templates/crds.yaml --set crds.serveV2=true |\n       kubectl apply --server-side -f -\n",
        "-o jsonpath='{.data.conversion\\.json}' > conversion.json\n",
        " --conversion-patch-file conversion.json",
    ] {
        assert!(applied.contains(expected), "{expected:?} should be in: {applied}");
    }
    assert!(!applied.contains("kubectl delete crd"), "{applied}");
}

#[tokio::test]
async fn notes_name_queues_that_the_cluster_has() {
    const T9K: &str = "apiVersion: scheduler.tensorstack.dev/v1beta1";
    const RUNAI: &str = "apiVersion: scheduling.run.ai/v3alpha1";
    const KAI: &str = "     kubectl annotate queues.v2.scheduling.run.ai QUEUE tenure.dev/max-duration=12h\n";
    let on_kai = format!("{CHART}/values-kai.yaml");
    let on_t9k = format!("{CHART}/values-t9k.yaml");
    let both = json!({"crds": {"tensorstack": true}});
    let no_crd = json!({"crds": {"runai": false}});
    for (values, files, expected) in [
        (json!({}), &[][..], &[RUNAI, "kai.scheduler/queue: demo "][..]),
        (both, &[], &[T9K, RUNAI, "scheduler.tensorstack.dev/queue: demo "]),
        (no_crd, &[], &[KAI, "kai.scheduler/queue: QUEUE "]),
        (json!({}), &["--values", &on_kai], &[KAI, "kai.scheduler/queue: QUEUE "]),
        (json!({}), &["--values", &on_t9k], &[T9K, "scheduler.tensorstack.dev/queue: demo "]),
    ] {
        let flags = [&["--dry-run=client"], files].concat();
        let notes = helm(shared().await, "install", "test", &values, &flags).await.success().unwrap();
        let (_, notes) = notes.split_once("NOTES:").expect("there are notes");
        for of_kind in [T9K, RUNAI, KAI] {
            assert_eq!(notes.contains(of_kind), expected.contains(&of_kind), "{of_kind} {notes}");
        }
        for line in expected {
            assert!(notes.contains(line), "{line:?} should be in: {notes}");
        }
    }
}

/// The commands between two places of the notes, as they are pasted.
pub fn commands(notes: &str, from: &str, to: &str) -> String {
    let part = notes.split_once(from).and_then(|(_, rest)| rest.split_once(to));
    let (part, _) = part.unwrap_or_else(|| panic!("no {from:?} before {to:?} in {notes}"));
    part.split_inclusive('\n').filter(|line| line.starts_with("     ")).collect()
}

/// A shell with our programs and kubectl at hand.
pub async fn shell(cluster: &Cluster, script: &str) -> Command {
    let webhook = spawn_blocking(|| program("tenure-webhook")).await.unwrap().unwrap();
    let mut path = vec![webhook.parent().unwrap().to_owned(), cluster.binaries().directory().to_owned()];
    path.extend(env::split_paths(&env::var_os("PATH").unwrap()));
    let mut shell = Command::new("sh");
    shell
        .args(["-euc", script])
        .current_dir(cluster.directory())
        .env("KUBECONFIG", cluster.kubeconfig())
        .env("PATH", env::join_paths(path).unwrap());
    shell
}
