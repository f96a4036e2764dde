//! The effects of the keeper's flags and configuration file, on a real API server.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use serde_json::{Value, json};
use tenure_testbed::eventually;
use tenure_tests::{
    DEADLINE, World, audit, fixtures,
    keeper::Keeper,
    policies::keeper_user,
    workloads::{Namespace, bare_pod, controller, distinct, in_queue, owned, pause_event, queue, workload},
};
use tokio::{net::TcpListener, task::JoinSet, time::sleep};

use crate::world;

async fn assert_changes(world: &World, namespace: &Namespace, expected: &[impl AsRef<str>]) {
    audit::assert_changes(&world.cluster, namespace.name(), expected).await;
}

/// A pod without an owner.
async fn pod(namespace: &Namespace, name: &str, queue_name: &str, spec: &Value) {
    let pod = bare_pod(namespace.name(), name, &in_queue(queue_name), spec);
    namespace.create(&distinct(pod, name)).await;
}

/// An admission webhook that delays the keeper's changes of Deployments in one namespace, and counts those under way.
struct SlowChanges {
    _server: JoinSet<()>,
    most: Arc<AtomicUsize>,
}

impl SlowChanges {
    /// The delay of a change. The API server then goes on without the webhook.
    const DELAY: Duration = Duration::from_millis(300);

    async fn start(world: &World, namespace: &Namespace) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (url, most) =
            (format!("https://{}/", listener.local_addr().unwrap()), Arc::new(AtomicUsize::new(0)));
        let mut server = JoinSet::new();
        server.spawn(Self::serve(listener, Arc::clone(&most)));
        let rule = json!({"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["deployments"]});
        let by_keeper = format!("request.userInfo.username == '{}'", keeper_user());
        let webhook = json!({
            "name": "slow.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": {"url": url}, "failurePolicy": "Ignore", "rules": [rule],
            "matchConditions": [{"name": "by-keeper", "expression": by_keeper}],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace.name()}},
        });
        let metadata = json!({"name": format!("slow-{}", namespace.name())});
        world
            .apply(&json!({
                "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
                "metadata": metadata, "webhooks": [webhook],
            }))
            .await;
        let user = format!("--as={}", keeper_user());
        let patch =
            ["annotate", "deployment/owner-0", "probe=true", "--overwrite", "--dry-run=server", &user];
        let patch = [&patch[..], &["--namespace", namespace.name()]].concat();
        eventually("the API server to ask the webhook", DEADLINE, async || {
            world.cluster.kubectl(&patch).await?.success()?;
            Ok((most.load(Relaxed) > 0).then_some(()))
        })
        .await
        .unwrap();
        most.store(0, Relaxed);
        Self { _server: server, most }
    }

    async fn serve(listener: TcpListener, most: Arc<AtomicUsize>) {
        let mut under_way = JoinSet::new();
        loop {
            tokio::select! {
                accepted = listener.accept() => {
                    let (connection, _) = accepted.unwrap();
                    under_way.spawn(async { sleep(Self::DELAY).await; drop(connection); });
                    most.fetch_max(under_way.len(), Relaxed);
                }
                Some(_) = under_way.join_next() => {}
            }
        }
    }

    /// The most changes that were under way at a time.
    fn most(&self) -> usize {
        self.most.load(Relaxed)
    }
}

#[tokio::test]
async fn a_dry_run_says_what_it_would_do_and_does_nothing() {
    let world = &*world().await;
    let namespace = Namespace::new(world).await;
    let mut notice = queue("dry", "1s");
    notice["spec"]["expiryNotice"] = json!("1h");
    namespace.apply(&notice).await;
    let keeper = Keeper::start(world, &["--dry-run"]).await;
    let deployment = workload("Deployment", namespace.name(), "test", &in_queue("dry"), &Value::Null);
    let deployment = namespace.create(&deployment).await;
    pod(&namespace, "alone", "dry", &Value::Null).await;
    let events = namespace.await_events_of("MaxDurationExceeded", 2).await;
    let pause = pause_event(&deployment, "spec.replicas", "0");
    assert_eq!(events[0], pause.replace("Set ", "Dry run, nothing was done: Set "));
    assert!(events[1].starts_with("Pod/alone: Dry run, nothing was done: Deleted because"), "{events:?}");
    assert_changes(world, &namespace, &[""; 0]).await;
    assert_eq!(namespace.pods().await.len(), 3);
    assert_eq!(namespace.field(&deployment, "metadata.annotations").await.get("tenure.dev/expires-at"), None);
    assert!(keeper.log().contains("Dry run: would pause"), "{}", keeper.log());
    keeper.stop().await;
}

#[tokio::test]
async fn only_pods_of_the_listed_schedulers_are_touched() {
    let world = &*world().await;
    let namespace = Namespace::new(world).await;
    namespace.apply(&queue("schedulers", "1s")).await;
    let keeper = Keeper::start(world, &["-schedulers", "t9k-scheduler,kai-scheduler"]).await;
    for scheduler in ["default-scheduler", "t9k-scheduler", "kai-scheduler"] {
        pod(&namespace, scheduler, "schedulers", &json!({"schedulerName": scheduler})).await;
    }
    namespace.await_pods(&["default-scheduler"]).await;
    assert_changes(world, &namespace, &["delete pods/kai-scheduler", "delete pods/t9k-scheduler"]).await;
    keeper.stop().await;
}

#[tokio::test]
async fn pods_of_the_threshold_classes_priority_or_a_higher_one_are_untouched() {
    let world = &*world().await;
    let namespace = Namespace::new(world).await;
    namespace.apply(&queue("threshold", "1s")).await;
    let negative = [("negative", -7)];
    for (name, value) in [("below", 999), ("threshold", 1000), ("above", 1001)].iter().chain(&negative) {
        let class = json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name},
            "value": value,
        });
        namespace.create(&class).await;
    }
    let keeper = Keeper::start(world, &["--priority-class-threshold=threshold"]).await;
    for class in ["above", "threshold", "below", "negative"] {
        pod(&namespace, class, "threshold", &json!({"priorityClassName": class})).await;
    }
    pod(&namespace, "none", "threshold", &Value::Null).await;
    namespace.await_pods(&["above", "threshold"]).await;
    assert_changes(world, &namespace, &["delete pods/below", "delete pods/negative", "delete pods/none"])
        .await;
    keeper.stop().await;
}

#[tokio::test]
async fn with_any_number_of_threads_an_owner_is_paused_once_and_as_many_at_a_time_as_there_are_threads() {
    let world = &*world().await;
    for threads in ["1", "16"] {
        let namespace = Namespace::new(world).await;
        let queue_name = format!("threads-{threads}");
        namespace.apply(&queue(&queue_name, "1d")).await;
        let mut expected = Vec::new();
        for number in 0..8 {
            let name = format!("owner-{number}");
            let owner = workload("Deployment", namespace.name(), &name, &in_queue(&queue_name), &Value::Null);
            let owner = namespace.create(&distinct(owner, &name)).await;
            expected.push(pause_event(&owner, "spec.replicas", "0"));
        }
        namespace.await_running(16).await;
        namespace.apply(&queue(&queue_name, "1s")).await;
        let slow = SlowChanges::start(world, &namespace).await;
        let keeper = Keeper::start(world, &["-threadiness", threads]).await;
        assert_eq!(namespace.await_events_of("MaxDurationExceeded", 8).await, expected);
        namespace.await_pods(&[]).await;
        let patches: Vec<_> = (0..8).map(|number| format!("patch deployments/owner-{number}")).collect();
        assert_changes(world, &namespace, &patches).await;
        let most = slow.most();
        assert_eq!(most > 1, threads != "1", "{most} pauses at a time with {threads} threads");
        keeper.stop().await;
    }
}

#[tokio::test]
async fn rows_of_the_configuration_pause_kinds_that_the_keeper_does_not_know() {
    let world = &*world().await;
    let namespace = Namespace::new(world).await;
    namespace.apply(&queue("rows", "3s")).await;
    let config = world.cluster.directory().join("keeper.yaml");
    let text = "
expiryNotice: 1h
owners:
  - {group: argoproj.io, kind: Rollout, path: spec.replicas, value: 0}
  - {group: example.com, kind: Widget, path: spec.runMode, value: stopped}
";
    fs::write(&config, text).unwrap();
    let keeper = Keeper::start(world, &["--config", &config.display().to_string()]).await;
    let rollout = fixtures::object(
        "argoproj.io/v1alpha1",
        "Rollout",
        namespace.name(),
        "test",
        &json!({"replicas": 3}),
    );
    let rollout = namespace.create(&rollout).await;
    let set = workload("ReplicaSet", namespace.name(), "test", &in_queue("rows"), &Value::Null);
    namespace.create(&owned(set, &[controller(&rollout)])).await;
    let widget = namespace.chain(&[("example.com/v1", "Widget")]).await.remove(0);
    namespace.pod_of(&widget, "alone", "rows").await;
    let record = namespace.await_pause_of(&rollout, "spec.replicas", &json!(0)).await;
    assert_eq!(record["previousValue"], json!(3));
    namespace.await_pause_of(&widget, "spec.runMode", &json!("stopped")).await;
    let events = namespace.await_events_of("MaxDurationExceeded", 2).await;
    assert_eq!(
        events,
        [pause_event(&rollout, "spec.replicas", "0"), pause_event(&widget, "spec.runMode", "stopped")]
    );
    assert_eq!(namespace.await_events_of("MaxDurationApproaching", 2).await.len(), 2);
    // each is told of its end, and paused
    assert_changes(world, &namespace, &[["patch rollouts/test"; 2], ["patch widgets/widget"; 2]].concat())
        .await;
    keeper.stop().await;
}

#[tokio::test]
async fn t9k_queues_count_in_the_configured_system_namespace() {
    let world = &*world().await;
    let (namespace, system) = (Namespace::new(world).await, Namespace::new(world).await);
    let mut elsewhere = queue("system", "1s");
    elsewhere["metadata"]["namespace"] = json!(system.name());
    namespace.apply(&elsewhere).await;
    namespace.apply(&queue("not-system", "1s")).await;
    let keeper = Keeper::start(world, &["-t9kSystemNamespace", system.name()]).await;
    for queue_name in ["not-system", "system"] {
        pod(&namespace, queue_name, queue_name, &Value::Null).await;
    }
    namespace.await_pods(&["not-system"]).await;
    keeper.stop().await;
}

#[tokio::test]
async fn the_next_expiry_and_what_awaits_its_turn_are_metrics() {
    let world = &*world().await;
    let (namespace, system) = (Namespace::new(world).await, Namespace::new(world).await);
    let apply = async |ceiling: &str| {
        let mut queue = queue("next", ceiling);
        queue["metadata"]["namespace"] = json!(system.name());
        namespace.apply(&queue).await;
    };
    apply("1d").await;
    // so that no other test's pods count
    let keeper = Keeper::start(world, &["-t9kSystemNamespace", system.name()]).await;
    pod(&namespace, "test", "next", &Value::Null).await;
    let created = namespace.created().await.remove(0);
    let end = created.checked_add(jiff::SignedDuration::from_hours(24)).unwrap().as_duration().as_secs_f64();
    let gauge = async |name: &str| keeper.metrics().await.gauge(&format!("tenure_keeper_{name}"));
    let is_next = async || {
        let next = gauge("next_expiry_timestamp_seconds").await;
        Ok(next.filter(|next| (next - end).abs() < 1.0).map(drop))
    };
    eventually("the next expiry to be a day after the pod's creation", DEADLINE, is_next).await.unwrap();
    assert_eq!(gauge("pods_under_ceiling").await, Some(1.0));
    // events that keepers of earlier tests owed are written first
    let is_idle = async || Ok((gauge("pending_writes").await == Some(0.0)).then_some(()));
    eventually("nothing to await its turn", DEADLINE, is_idle).await.unwrap();
    apply("1s").await;
    let none = async || Ok(gauge("next_expiry_timestamp_seconds").await.is_none().then_some(()));
    eventually("no expiry to be next", DEADLINE, none).await.unwrap();
    assert_changes(world, &namespace, &["delete pods/test"]).await;
    let metrics = keeper.metrics().await;
    let gauge = |name: &str| metrics.gauge(&format!("tenure_keeper_{name}"));
    assert_eq!((gauge("leader"), gauge("pods_under_ceiling")), (Some(1.0), Some(0.0)));
    let deleted = [("queue", "next"), ("kind", "Pod"), ("result", "Deleted")];
    let count = |name: &str, labels: &[_]| metrics.count(&format!("tenure_keeper_{name}"), labels);
    assert_eq!((count("expirations_total", &deleted), count("expirations_total", &[])), (1, 1));
    assert_eq!(count("lateness_seconds_count", &[]), 1);
    let late = gauge("lateness_seconds_sum").unwrap();
    assert!((0.0..60.0).contains(&late), "{late}");
    keeper.stop().await;
}
