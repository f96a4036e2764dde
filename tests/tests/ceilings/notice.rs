//! Workloads are told beforehand when their run will end, where their queue says so.

mod floors;
mod mistakes;
mod pods;
mod points;
mod shown;

use jiff::{SignedDuration, Timestamp};
use kube::core::DynamicObject;
use serde_json::{Value, json};
use tenure_testbed::eventually;
use tenure_tests::{
    DEADLINE, World, audit,
    plugin::plugin_prints,
    workloads::{Namespace, bare_pod, distinct, in_queue, in_runai_queue, queue, runai_queue, workload},
};
use tokio::sync::{Mutex, MutexGuard, OnceCell};

use crate::world;

/// With notices and floors on pods. One test at a time has it, and may restart its keeper and change its configuration file.
async fn world_with_pods() -> MutexGuard<'static, World> {
    static WORLD: OnceCell<Mutex<World>> = OnceCell::const_new();
    let start = async || {
        let values = ["keeper.noticeOnPods=true", "keeper.floorOnPods=true"];
        let world = World::running_with("notice-on-pods", &values, &[]).await?;
        Ok::<_, anyhow::Error>(Mutex::new(world))
    };
    WORLD.get_or_try_init(start).await.unwrap().lock().await
}

fn with_notice(mut queue: Value, notice: &str) -> Value {
    queue["spec"]["expiryNotice"] = json!(notice);
    queue
}

const APPROACHING: &str = "MaxDurationApproaching";

/// When an object says that its run will end.
async fn announced(namespace: &Namespace, object: &DynamicObject) -> Option<Timestamp> {
    let annotations = namespace.field(object, "metadata.annotations").await;
    annotations.get("tenure.dev/expires-at")?.as_str()?.parse().ok()
}

async fn await_announced(namespace: &Namespace, object: &DynamicObject) -> Timestamp {
    let shown = async || Ok(announced(namespace, object).await);
    eventually("the end of the run to be announced", DEADLINE, shown).await.unwrap()
}

/// The time at which the first pod of a namespace reaches this age.
async fn first_end(namespace: &Namespace, seconds: i64) -> Timestamp {
    *namespace.created().await.iter().min().unwrap() + SignedDuration::from_secs(seconds)
}

#[tokio::test]
async fn a_workloads_end_is_announced_once_a_run_and_the_pause_takes_the_announcement_away() {
    let world = world().await;
    let namespace = Namespace::new(world).await;
    // long enough to see the announcement also where pods take seconds to start
    namespace.apply(&with_notice(queue("told", "20s"), "18s")).await;
    let deployment = workload("Deployment", namespace.name(), "test", &in_queue("told"), &Value::Null);
    let deployment = namespace.create(&deployment).await;
    let resume = format!("tenure resume deployment.apps/test -n {}", namespace.name());
    let expected = format!(
        "Deployment/test: Its run in Queue told has reached the ceiling of 20s, set by that queue. It stays paused until you resume it, with a full ceiling again: kubectl {resume}"
    );
    for run in 1..=2 {
        namespace.await_running(2).await;
        let end = first_end(&namespace, 20).await;
        assert_eq!(await_announced(&namespace, &deployment).await, end);
        assert!(Timestamp::now() < end, "told only at {}", Timestamp::now());
        let events = namespace.await_events_of(APPROACHING, run).await;
        assert!(
            events.iter().all(|event| event.starts_with("Deployment/test: Its run in Queue told ends in 1")),
            "{events:?}"
        );
        let clock = end.strftime(", at %H:%M:%S UTC: ").to_string();
        assert!(events.iter().any(|event| event.contains(&clock)), "{events:?}");
        let then = format!("Then it is paused until kubectl {resume}");
        assert!(events.iter().all(|event| event.ends_with(&then)), "{events:?}");
        namespace.await_pause_of(&deployment, "spec.replicas", &json!(0)).await;
        let ended = namespace.await_events_of("RunEnded", run).await;
        assert!(ended.iter().all(|event| *event == expected), "{ended:?}");
        assert_eq!(announced(&namespace, &deployment).await, None);
        assert_eq!(namespace.events_of(APPROACHING).await.len(), run);
        namespace.await_pods(&[]).await;
        namespace.patch(&deployment, &json!({"spec": {"replicas": 2}})).await;
    }
    let patches = audit::of_keeper(&world.cluster, "patch", "deployments", namespace.name());
    assert_eq!(patches, ["test"; 5], "an announcement and a pause a run, and the first record is taken away");
    let on_pods = audit::of_keeper(&world.cluster, "patch", "pods", namespace.name());
    assert_eq!(on_pods, [""; 0], "off by default");
    let describe = ["describe", "deployment", "test", "-n", namespace.name()];
    let described = world.cluster.kubectl(&describe).await.unwrap().success().unwrap();
    assert!(described.contains("RunEnded") && described.contains(&resume), "{described}");
}

#[tokio::test]
async fn a_workload_of_any_kind_and_a_pod_without_owner_get_a_notice() {
    let namespace = Namespace::new(world().await).await;
    namespace.apply(&with_notice(queue("told-kinds", "1d"), "2d")).await;
    let job = namespace.chain(&[("batch.tensorstack.dev/v1beta1", "GenericJob")]).await.remove(0);
    namespace.pod_of(&job, "worker", "told-kinds").await;
    let pod = bare_pod(namespace.name(), "alone", &in_queue("told-kinds"), &Value::Null);
    let pod = namespace.create(&pod).await;
    for object in [&job, &pod] {
        await_announced(&namespace, object).await;
    }
    let recorded = namespace.await_events_of(APPROACHING, 2).await;
    let objects: Vec<_> = recorded.iter().map(|event| event.split(':').next().unwrap()).collect();
    assert_eq!(objects, ["GenericJob/genericjob", "Pod/alone"]);
}

#[tokio::test]
async fn a_runai_queue_inherits_its_notice() {
    let namespace = Namespace::new(world().await).await;
    namespace.apply(&with_notice(runai_queue("told-root", "", "1d"), "2d")).await;
    namespace.apply(&runai_queue("told-leaf", "told-root", "2h")).await;
    let pod = bare_pod(namespace.name(), "test", &in_runai_queue("told-leaf"), &Value::Null);
    let pod = namespace.create(&pod).await;
    await_announced(&namespace, &pod).await;
    assert_eq!(namespace.await_events_of(APPROACHING, 1).await.len(), 1);
}

#[tokio::test]
async fn without_a_notice_or_with_one_of_zero_no_end_is_announced() {
    let world = world().await;
    let namespace = Namespace::new(world).await;
    namespace.apply(&queue("untold", "2s")).await;
    namespace.apply(&with_notice(queue("untold-zero", "2s"), "0")).await;
    for name in ["untold", "untold-zero"] {
        namespace.create(&bare_pod(namespace.name(), name, &in_queue(name), &Value::Null)).await;
    }
    namespace.await_pods(&[]).await;
    namespace.await_events(2).await;
    // what is left of them
    let trace = namespace.await_events_of("RunEnded", 2).await;
    let expected = ["untold-zero", "untold"].map(|name| {
        format!("Pod/{name}: Its run in Queue {name} has reached the ceiling of 2s, set by that queue. The pod was deleted, because it has no owner that could be paused and come back. To run it again, create it again")
    });
    assert_eq!(trace, expected);
    let shown = world.cluster.kubectl(&["get", "events", "-n", namespace.name()]).await.unwrap();
    assert_eq!(shown.success().unwrap().matches("RunEnded").count(), 2);
    assert_eq!(namespace.events_of(APPROACHING).await, [""; 0]);
    assert!(audit::of_keeper(&world.cluster, "patch", "pods", namespace.name()).is_empty());
}

#[tokio::test]
async fn an_end_that_moves_is_shown_by_the_annotation_alone_and_one_that_goes_takes_it_away() {
    let namespace = Namespace::new(world().await).await;
    namespace.apply(&with_notice(queue("moved", "1h"), "2d")).await;
    let deployment = workload("Deployment", namespace.name(), "test", &in_queue("moved"), &Value::Null);
    let deployment = namespace.create(&deployment).await;
    namespace.await_running(2).await;
    assert_eq!(await_announced(&namespace, &deployment).await, first_end(&namespace, 3600).await);
    namespace.await_events_of(APPROACHING, 1).await;
    let moved = first_end(&namespace, 7200).await;
    namespace.apply(&with_notice(queue("moved", "2h"), "2d")).await;
    let shown = async || Ok((announced(&namespace, &deployment).await == Some(moved)).then_some(()));
    eventually("the new end to be announced", DEADLINE, shown).await.unwrap();
    namespace.apply(&with_notice(queue("moved", ""), "2d")).await;
    let gone = async || Ok(announced(&namespace, &deployment).await.is_none().then_some(()));
    eventually("the announcement to be taken back", DEADLINE, gone).await.unwrap();
    assert_eq!(namespace.events_of(APPROACHING).await.len(), 1);
}

#[tokio::test]
async fn an_own_ceiling_without_effect_draws_one_event_a_value_on_what_has_it() {
    let world = world().await;
    let namespace = Namespace::new(world).await;
    let name = namespace.name();
    namespace.apply(&runai_queue("own-ceilings", "", "1d")).await;
    let labels = in_runai_queue("own-ceilings");
    let mut deployment = workload("Deployment", name, "longer", &labels, &Value::Null);
    deployment["metadata"]["annotations"] = json!({"tenure.dev/max-duration": "2d"});
    let deployment = namespace.create(&deployment).await;
    let mut pod = bare_pod(name, "invalid", &labels, &Value::Null);
    pod["metadata"]["annotations"] = json!({"tenure.dev/max-duration": "nonsense"});
    namespace.create(&pod).await;
    let longer = |own: &str| {
        format!(
            "Deployment/longer: Annotation tenure.dev/max-duration of {own} has no effect: Queue own-ceilings ends a run after 1d, and a workload can only shorten that"
        )
    };
    assert_eq!(namespace.await_events_of("MaxDurationIgnored", 1).await, [longer("2d")]);
    let invalid = namespace.await_events_of("InvalidMaxDuration", 1).await;
    let begin =
        "Pod/invalid: metadata.annotations[tenure.dev/max-duration]: Invalid value: \"nonsense\": must be";
    assert!(invalid[0].starts_with(begin) && invalid[0].ends_with(": it has no effect"), "{invalid:?}");
    // another value of the one, and nothing new of the other
    let own = |value: &str| json!({"metadata": {"annotations": {"tenure.dev/max-duration": value}}});
    namespace.patch(&deployment, &own("3d")).await;
    let events = namespace.await_events_of("MaxDurationIgnored", 2).await;
    assert!(events.contains(&longer("3d")), "{events:?}");
    assert_eq!(namespace.events_of("InvalidMaxDuration").await.len(), 1);
    let describe = ["describe", "deployment", "longer", "-n", name];
    let described = world.cluster.kubectl(&describe).await.unwrap().success().unwrap();
    assert!(described.contains("MaxDurationIgnored"), "{described}");
}

/// Values of other schedulers and of people.
#[tokio::test]
async fn an_own_ceiling_that_is_no_duration_is_reported_with_what_would_be_right_and_lengthens_nothing() {
    const DAY: SignedDuration = SignedDuration::from_hours(24);
    let world = world().await;
    let namespace = Namespace::new(world).await;
    namespace.apply(&runai_queue("no-durations", "", "1d")).await;
    let no_durations = [
        ("forever", "forever"),
        ("absolute", "2027-01-01T00:00:00Z"),
        ("slurm", "0-00:30:00"),
        ("iso", "PT30M"),
        ("seconds", "1800"),
        ("people", "half an hour"),
    ];
    for (name, value) in no_durations.into_iter().chain([("longer", "2d")]) {
        let mut pod = bare_pod(namespace.name(), name, &in_runai_queue("no-durations"), &Value::Null);
        pod["metadata"]["annotations"] = json!({"tenure.dev/max-duration": value});
        namespace.create(&pod).await;
    }
    let events = namespace.await_events_of("InvalidMaxDuration", no_durations.len()).await;
    assert_eq!(events.len(), no_durations.len());
    for (name, value) in no_durations {
        let expected = format!(
            "Pod/{name}: metadata.annotations[tenure.dev/max-duration]: Invalid value: \"{value}\": must be a duration such as 90m, 1h30m or 7d"
        );
        assert!(events.iter().any(|event| event.starts_with(&expected)), "{expected}: {events:?}");
    }
    let listed = plugin_prints(world, namespace.name(), &["list", "-o", "json"]).await;
    let rows: Vec<Value> = serde_json::from_str(&listed).unwrap();
    assert_eq!(rows.len(), 1 + no_durations.len());
    for row in &rows {
        let time = |key: &str| row[key].as_str().unwrap().parse::<Timestamp>().unwrap();
        assert_eq!(time("expiresAt"), time("startedAt") + DAY, "{row}");
    }
    // versions before took it, so it doesn't become no ceiling, and is told as well
    let mut former = bare_pod(namespace.name(), "former", &in_runai_queue("no-durations"), &Value::Null);
    former["metadata"]["annotations"] = json!({"tenure.dev/max-duration": "2 hours 30m"});
    namespace.create(&former).await;
    let events = namespace.await_events_of("InvalidMaxDuration", no_durations.len() + 1).await;
    let expected = ": it counts as 2h30m, write that";
    assert!(
        events.iter().any(|event| event.starts_with("Pod/former: ") && event.ends_with(expected)),
        "{events:?}"
    );
    let listed = plugin_prints(world, namespace.name(), &["list", "-o", "json"]).await;
    let rows: Vec<Value> = serde_json::from_str(&listed).unwrap();
    let row = rows.iter().find(|row| row["workload"] == "pod/former").unwrap();
    let time = |key: &str| row[key].as_str().unwrap().parse::<Timestamp>().unwrap();
    assert_eq!(time("expiresAt"), time("startedAt") + SignedDuration::from_mins(150), "{row}");
}

#[tokio::test]
async fn a_shortened_ceiling_ends_no_run_without_its_notice() {
    let world = world().await;
    let namespace = Namespace::new(world).await;
    namespace.apply(&with_notice(runai_queue("graced", "", "10h"), "5s")).await;
    namespace.apply(&runai_queue("ungraced", "", "10h")).await;
    let pod =
        |name: &str| distinct(bare_pod(namespace.name(), name, &in_runai_queue(name), &Value::Null), name);
    let graced = namespace.create(&pod("graced")).await;
    namespace.create(&pod("ungraced")).await;
    namespace.await_running(2).await;
    // the change is of another second than the start, which is in whole seconds, also by the keeper's clock, which may be a
    // second behind
    let started = Timestamp::now();
    let later = async || Ok((Timestamp::now() > started + SignedDuration::from_secs(3)).then_some(()));
    eventually("another second", DEADLINE, later).await.unwrap();
    for (name, notice) in [("graced", "5s"), ("ungraced", "0s")] {
        namespace.apply(&with_notice(runai_queue(name, "", "1s"), notice)).await;
    }
    let changed = Timestamp::now();
    // as by default, a minute after the change, of which it is told at once
    let end = await_announced(&namespace, &graced).await;
    assert!((50..=61).contains(&end.duration_since(changed).as_secs()), "{changed} {end}");
    namespace.await_events_of(APPROACHING, 1).await;
    namespace.await_pods(&["graced"]).await;
    // another change, such as one that is taken back, doesn't lengthen it
    namespace.apply(&with_notice(runai_queue("graced", "", "2s"), "5s")).await;
    namespace.apply(&with_notice(runai_queue("graced", "", "1s"), "0s")).await;
    namespace.await_pods(&[]).await;
    assert!(Timestamp::now() < end, "without a notice it ends at once");
}
