//! `matrix` and `explain`, about a cluster.

use jiff::SignedDuration;
use serde_json::{Value, json};
use tenure_tests::{
    fixtures,
    workloads::{Namespace, bare_pod, in_runai_queue, runai_queue, workload},
};

use super::{NOTHING, Said, await_state, in_namespace, run, tenure, time, user, world};

fn queue(name: &str, parent: &str, reclaim: &str) -> Value {
    json!({
        "apiVersion": "scheduling.run.ai/v3alpha1", "kind": "Queue", "metadata": {"name": name},
        "spec": {"parentQueue": parent, "preemptMinRuntime": "1h", "reclaimMinRuntime": reclaim, "maxDuration": "1d"},
    })
}

fn object(said: Said) -> Value {
    serde_json::from_str(&said.good()).unwrap()
}

#[tokio::test]
async fn a_pair_of_queues_has_the_floor_of_the_cluster() {
    let world = world().await;
    for (name, parent, reclaim) in [("ex-a", "", "2h"), ("ex-b", "", "3h"), ("ex-leaf", "ex-b", "4h")] {
        world.apply(&queue(name, parent, reclaim)).await;
    }
    let pair = ["matrix", "-o", "json", "--preemptor-queue", "ex-a", "--victim-queue", "ex-leaf"];
    let matrix = object(run(world, &pair).await);
    let expected =
        json!([{"preemptor": "ex-a", "victim": "ex-leaf", "value": "3h", "from": "queue \"ex-b\""}]);
    assert_eq!(matrix["reclaim"], expected);
    assert_eq!(matrix["queues"][1]["path"], json!(["ex-b", "ex-leaf"]));
    let missing = run(world, &["matrix", "--victim-queue", "ex-gone"]).await.bad();
    assert_eq!(
        missing,
        "error: there is no queue \"ex-gone\" of group scheduling.run.ai: kubectl tenure matrix lists the queues\n"
    );
}

#[tokio::test]
async fn a_requeue_schedule_is_that_of_the_clusters_queue() {
    let world = world().await;
    let mut above = queue("ex-requeue", "", "2h");
    above["spec"]["waitForPodsReady"] =
        json!({"timeout": "10m", "requeuingStrategy": {"backoffLimitCount": 2}});
    world.apply(&above).await;
    world.apply(&queue("ex-requeue-leaf", "ex-requeue", "2h")).await;
    let schedule =
        object(run(world, &["requeue-schedule", "--queue", "ex-requeue-leaf", "-o", "json"]).await);
    assert_eq!(schedule["from"], "queue \"ex-requeue\"", "{schedule:#}");
    let cumulative = schedule["schedule"].as_array().unwrap().iter().map(|row| &row["cumulativeSeconds"]);
    assert_eq!(cumulative.collect::<Vec<_>>(), [1201, 1802]);
}

#[tokio::test]
async fn a_preemption_is_explained_by_what_the_cluster_shows() {
    let world = world().await;
    let namespace = Namespace::new(world).await;
    let name = namespace.name();
    fixtures::install(world, fixtures::definitions("scheduling.run.ai")).await;
    world.apply(&queue("ex-prod", "", "2h")).await;
    world.apply(&queue("ex-dev", "", "2h")).await;
    let spec = json!({"queue": "ex-prod", "minMember": 1});
    let group = fixtures::object("scheduling.run.ai/v2alpha2", "PodGroup", name, "elastic", &spec);
    namespace.create(&group).await;
    for pod in ["elastic-0", "elastic-1"] {
        let mut pod = bare_pod(name, pod, &json!({}), &Value::Null);
        pod["metadata"]["annotations"] = json!({"pod-group-name": "elastic"});
        namespace.create(&pod).await;
    }
    for (pod, queue) in [("victim", "ex-prod"), ("preemptor", "ex-dev")] {
        namespace.create(&bare_pod(name, pod, &in_runai_queue(queue), &Value::Null)).await;
    }
    namespace.await_running(4).await;

    let explain = async |victims: &[&str]| {
        let preemptor = format!("{name}/preemptor");
        let mut arguments = vec!["explain", "preemption", "-o", "json", "--preemptor", &preemptor];
        // without a namespace, that of the flag
        arguments.extend(victims.iter().flat_map(|victim| ["--victim", victim]));
        object(in_namespace(world, name, &arguments).await)
    };
    let verdict = explain(&["victim"]).await;
    assert_eq!((&verdict["allowed"], &verdict["kind"]), (&json!(false), &json!("reclaim")), "{verdict:#}");
    assert_eq!(verdict["victims"][0]["rule"], "reclaimMinRuntime");
    // the pod that was scheduled first is all that the group takes, and the other one may go
    let mut rules = Vec::new();
    for victim in ["elastic-0", "elastic-1"] {
        let one = explain(&[victim]).await;
        assert_eq!(one["allowed"], json!(one["victims"][0]["rule"].is_null()), "{one:#}");
        rules.push(one["victims"][0]["rule"].clone());
    }
    assert!(rules.contains(&Value::Null) && rules.contains(&json!("reclaimMinRuntime")), "{rules:?}");
    let both = explain(&["elastic-0", "elastic-1"]).await;
    let is_too_few = |of: &Value| of["rule"] == "minAvailable";
    assert!(both["victims"].as_array().unwrap().iter().any(is_too_few), "{both:#}");
    assert_eq!(both["allowed"], json!(false));

    let missing = in_namespace(world, name, &["explain", "pod", "gone"]).await.bad();
    assert_eq!(missing, "Error from server (NotFound): pods \"gone\" not found\n");
}

#[tokio::test]
async fn a_pod_is_explained_as_the_keeper_sees_it() {
    let world = world().await;
    let namespace = Namespace::new(world).await;
    let name = namespace.name();
    world.apply(&queue("ex-pod", "", "2h")).await;
    namespace.create(&workload("Deployment", name, "web", &in_runai_queue("ex-pod"), &Value::Null)).await;
    namespace.await_running(2).await;
    let row = await_state(world, name, "Running").await;
    let pods = namespace.pod_names().await;
    let mut all = Vec::new();
    for pod in &pods {
        all.push(object(in_namespace(world, name, &["explain", "pod", pod, "-o", "json"]).await));
    }
    // one may have been scheduled a second later
    let explained = all.into_iter().min_by_key(|of| of["expiresAt"].to_string()).unwrap();
    assert_eq!(explained["expiresAt"], row["expiresAt"]);
    assert_eq!(explained["would"]["field"], "spec.replicas", "{explained:#}");
    assert_eq!(explained["would"]["name"], format!("{name}/web"));
    assert_eq!(explained.get("queueAccess"), None, "queues take no right");
    let until = time(&explained["protected"][0]["until"]).duration_since(time(&explained["startedAt"]));
    assert_eq!(until, SignedDuration::from_hours(1));
    let text = in_namespace(world, name, &["explain", "pod", pods.first().unwrap()]).await.good();
    assert!(text.contains("then Deployment") && text.contains("spec.replicas is set to 0"), "{text}");
}

#[tokio::test]
async fn without_the_right_to_see_queues_there_is_no_verdict_rather_than_a_wrong_one() {
    let world = world().await;
    let namespace = Namespace::new(world).await;
    let name = namespace.name();
    for pod in ["ours", "theirs"] {
        namespace.create(&bare_pod(name, pod, &in_runai_queue("ex-unseen"), &NOTHING)).await;
    }
    let kubeconfig = user(world, name, "get,list", "pods").await;
    let file = kubeconfig.to_str().unwrap();
    let set = ["--kubeconfig", file, "config", "set-context", "--current", "--namespace", name];
    world.cluster.kubectl(&set).await.unwrap().success().unwrap();
    // a name by itself is one in the namespace of the context, which is the user's own
    for (arguments, missing) in [
        (["explain", "pod", "ours"].as_slice(), "podgroups"),
        (&["explain", "preemption", "--preemptor=ours", "--victim=theirs"], "queues"),
    ] {
        let output = Said::of(tenure(&world.cluster, &kubeconfig, arguments).await).await.bad();
        assert!(output.contains(&format!("can't list {missing}.scheduling.run.ai")), "{output}");
        assert!(output.contains("(Forbidden)"), "{output}");
    }
}

#[tokio::test]
async fn a_workload_is_explained_while_it_runs_and_when_it_was_paused() {
    let world = world().await;
    let namespace = Namespace::new(world).await;
    let name = namespace.name();
    world.apply(&queue("ex-workload", "", "2h")).await;
    let labels = in_runai_queue("ex-workload");
    let deployment = namespace.create(&workload("Deployment", name, "web", &labels, &Value::Null)).await;
    namespace.await_running(2).await;
    let explain = async || object(in_namespace(world, name, &["explain", "deploy/web", "-o", "json"]).await);
    let running = explain().await;
    let row = await_state(world, name, "Running").await;
    assert_eq!((&running["pods"], &running["paused"]), (&json!(2), &Value::Null), "{running:#}");
    assert_eq!(running["firstPod"]["expiresAt"], row["expiresAt"]);
    assert_eq!(running["firstPod"]["would"]["kind"], "Deployment");
    let sets = world.cluster.kubectl(&["get", "replicasets", "-n", name, "-o", "name"]).await.unwrap();
    let set = sets.success().unwrap();
    let below = in_namespace(world, name, &["explain", set.trim()]).await.bad();
    assert!(below.ends_with("is controlled by deployment/web, which Tenure pauses instead: explain that\n"));

    world.apply(&runai_queue("ex-workload", "", "1s")).await;
    namespace.await_pause_of(&deployment, "spec.replicas", &json!(0)).await;
    namespace.await_pods(&[]).await;
    let text = in_namespace(world, name, &["explain", "deployment", "web"]).await.good();
    let resume = format!("kubectl tenure resume deployment.apps/web -n {name}");
    for expected in [
        "(MaxDurationExceeded): spec.replicas was set from 2 to 0\n",
        &format!(
            "has reached the ceiling of 1s, set by that queue. It stays paused until you resume it, with a full ceiling again: {resume}\n"
        ),
        "none of its pods is left in a queue\n",
    ] {
        assert!(text.contains(expected), "{expected:?} should be in {text}");
    }
    let paused = explain().await;
    assert_eq!((&paused["paused"]["command"], &paused["firstPod"]), (&json!(resume), &Value::Null));
    let command: Vec<&str> = resume.split_whitespace().skip(2).collect();
    run(world, &command).await;
    assert_eq!(namespace.field(&deployment, "spec.replicas").await, 2, "the command works as printed");
}
