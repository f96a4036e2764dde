//! The starts of workloads, on a real API server: the stamps that the keeper writes on `PodGroup`s of all kinds, the
//! ones that it leaves as they are, and ceilings that count from them. No webhook runs here.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "a failed helper is a failed test")]

use jiff::{SignedDuration, Timestamp};
use kube::core::DynamicObject;
use serde_json::{Value, json};
use tenure_testbed::{Cluster, eventually};
use tenure_tests::{
    DEADLINE, World, audit, fixtures,
    keeper::{Keeper, Metrics},
    workloads::{Namespace, bare_pod, distinct, in_runai_queue, runai_queue},
};
use tokio::sync::{Mutex, MutexGuard, OnceCell};

const STAMP: &str = "kai.scheduler/last-start-timestamp";

const RUNAI: &str = "scheduling.run.ai/v2alpha2";
const T9K: &str = "scheduler.tensorstack.dev/v1beta1";
const COSCHEDULING: &str = "scheduling.x-k8s.io/v1alpha1";
const VOLCANO: &str = "scheduling.volcano.sh/v1beta1";
const NATIVE: &str = "scheduling.k8s.io/v1beta1";

/// No webhook runs, and the API server doesn't wait for one.
const VALUES: &[&str] = &["webhook.failurePolicy=Ignore"];

async fn world() -> &'static World {
    static WORLD: OnceCell<World> = OnceCell::const_new();
    let start = async || {
        let world = without_keeper("start").await;
        world.tenure.start_keeper().await.unwrap();
        world
    };
    // the future is large, and would be in every future around it
    Box::pin(WORLD.get_or_init(start)).await
}

/// A cluster whose keepers a test starts and ends. One test at a time has it, and no keeper runs at first.
async fn own_keepers() -> MutexGuard<'static, World> {
    static WORLD: OnceCell<Mutex<World>> = OnceCell::const_new();
    let start = async || Mutex::new(without_keeper("start-keepers").await);
    let world = WORLD.get_or_init(start).await.lock().await;
    world.tenure.stop_keeper().await.unwrap();
    world
}

/// An API server that knows `PodGroup`s, those of Kubernetes itself too. The tests schedule their pods.
async fn without_keeper(name: &str) -> World {
    let flags =
        [("feature-gates", "GenericWorkload=true"), ("runtime-config", "scheduling.k8s.io/v1beta1=true")];
    let cluster = Cluster::start_api_server_with_flags(name, &flags).await.unwrap();
    let world = World::installed_on(cluster, VALUES, &[]).await.unwrap();
    for group in
        ["scheduling.run.ai", "scheduler.tensorstack.dev", "scheduling.x-k8s.io", "scheduling.volcano.sh"]
    {
        fixtures::install(&world, fixtures::definitions(group)).await;
    }
    world
}

/// A group of some kind in a namespace of its own, and its pods, which are scheduled when a test says so.
struct Gang {
    namespace: Namespace,
    group: DynamicObject,
    labels: Value,
    annotations: Value,
    more: Value,
}

impl Gang {
    async fn new(world: &World, api_version: &str, spec: Value) -> Self {
        let namespace = Namespace::new(world).await;
        let object = fixtures::object(api_version, "PodGroup", namespace.name(), "gang", &spec);
        let group = namespace.create(&object).await;
        let (labels, annotations, more) = match api_version {
            RUNAI => (json!({}), json!({"pod-group-name": "gang"}), json!({})),
            T9K => (json!({"scheduler.tensorstack.dev/group-name": "gang"}), json!({}), json!({})),
            COSCHEDULING => (json!({"scheduling.x-k8s.io/pod-group": "gang"}), json!({}), json!({})),
            VOLCANO => (json!({}), json!({"scheduling.k8s.io/group-name": "gang"}), json!({})),
            _ => (json!({}), json!({}), json!({"schedulingGroup": {"podGroupName": "gang"}})),
        };
        Self { namespace, group, labels, annotations, more }
    }

    /// Creates a pod that no scheduler places.
    async fn pod(&self, name: &str, labels: &Value) -> DynamicObject {
        let mut all = self.labels.as_object().unwrap().clone();
        all.extend(labels.as_object().unwrap().clone());
        let mut spec = self.more.as_object().unwrap().clone();
        spec.insert("schedulerName".into(), json!("missing"));
        let mut pod = bare_pod(self.namespace.name(), name, &Value::Object(all), &Value::Object(spec));
        pod["metadata"]["annotations"] = self.annotations.clone();
        self.namespace.create(&distinct(pod, name)).await
    }

    /// Has a pod show that it was scheduled at a time.
    async fn schedule(&self, pod: &DynamicObject, at: Timestamp) {
        let scheduled = json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": at});
        self.namespace.patch_status(pod, &json!({"conditions": [scheduled]})).await;
    }

    /// Pods that are all scheduled, each a second after the one before it; and the time of the last.
    async fn run(&self, names: &[&str]) -> (Vec<DynamicObject>, Timestamp) {
        let mut pods = Vec::new();
        for name in names {
            pods.push(self.pod(name, &json!({})).await);
        }
        let mut at = created(pods.last().unwrap());
        for pod in &pods {
            at = second_after(at);
            passed(at).await;
            self.schedule(pod, at).await;
        }
        (pods, at)
    }

    async fn write(&self, stamp: Timestamp) {
        let annotations = json!({"metadata": {"annotations": {STAMP: stamp.to_string()}}});
        self.namespace.patch(&self.group, &annotations).await;
    }

    async fn stamp(&self) -> Option<String> {
        let annotations = self.namespace.field(&self.group, "metadata.annotations").await;
        annotations[STAMP].as_str().map(str::to_owned)
    }

    async fn await_stamp(&self, at: Timestamp) {
        let expected = at.to_string();
        let stamped = async || Ok(self.stamp().await.filter(|stamp| *stamp == expected));
        let what = format!("stamp {expected} on {}", self.group.types.as_ref().unwrap().api_version);
        eventually(&what, DEADLINE, stamped).await.unwrap();
    }

    /// Asserts the number of the keeper's stamps, and that it changed nothing else but its notes on pods. Waits first until a
    /// group that came later is stamped.
    async fn assert_written(&self, world: &World, times: usize) {
        let later = Self::new(world, RUNAI, json!({"minMember": 1})).await;
        let (_, at) = later.run(&["later"]).await;
        later.await_stamp(at).await;
        let changes = async || {
            let mut changes = audit::changes_of_keeper(&world.cluster, self.namespace.name());
            changes.retain(|change| !change.starts_with("patch pods/"));
            Ok((changes.len() >= times).then_some(changes))
        };
        let changes = eventually("the stamps", DEADLINE, changes).await.unwrap();
        assert_eq!(changes, vec!["patch podgroups/gang"; times]);
    }
}

fn created(pod: &DynamicObject) -> Timestamp {
    pod.metadata.creation_timestamp.as_ref().unwrap().0
}

fn second_after(at: Timestamp) -> Timestamp {
    at + SignedDuration::from_secs(1)
}

/// Waits until a time has passed for a keeper, too: it knows the time from the Dates of answers, which are in whole
/// seconds, and writes no start that lies ahead of its clock.
async fn passed(at: Timestamp) {
    let passed = async || Ok((Timestamp::now() > second_after(at)).then_some(()));
    eventually("a time to pass", DEADLINE, passed).await.unwrap();
}

#[tokio::test]
async fn a_group_of_three_that_takes_two_starts_with_its_second_pod_and_keeps_that_as_it_grows() {
    let world = world().await;
    for api_version in [RUNAI, T9K, COSCHEDULING, VOLCANO] {
        let gang = Gang::new(world, api_version, json!({"minMember": 2})).await;
        let (pods, second) = gang.run(&["a", "b"]).await;
        gang.await_stamp(second).await;
        let third = gang.pod("c", &json!({})).await;
        let at = second_after(created(&third));
        passed(at).await;
        gang.schedule(&third, at).await;
        gang.assert_written(world, 1).await;
        gang.await_stamp(second).await;
        for pod in pods.iter().chain([&third]) {
            gang.namespace.delete(pod).await;
        }
        gang.namespace.await_pods(&[]).await;
        let (_, again) = gang.run(&["d", "e"]).await;
        gang.await_stamp(again).await;
        gang.assert_written(world, 2).await;
    }
}

#[tokio::test]
async fn every_subgroup_has_a_minimum_of_its_own() {
    let world = world().await;
    let parts = json!([{"name": "lead", "minMember": 1}, {"name": "worker", "minMember": 2}]);
    for (api_version, spec, label) in [
        (RUNAI, json!({"subGroups": parts}), "kai.scheduler/subgroup-name"),
        (T9K, json!({"minMember": 3, "roles": parts}), "scheduler.tensorstack.dev/role"),
    ] {
        let gang = Gang::new(world, api_version, spec).await;
        let mut pods = Vec::new();
        for (name, part) in [("a", "worker"), ("b", "worker"), ("c", "worker"), ("d", "lead")] {
            pods.push(gang.pod(name, &json!({label: part})).await);
        }
        let mut at = created(pods.last().unwrap());
        for pod in &pods {
            assert_eq!(gang.stamp().await, None, "{api_version}: it takes a lead");
            at = second_after(at);
            passed(at).await;
            gang.schedule(pod, at).await;
        }
        gang.await_stamp(at).await;
        gang.assert_written(world, 1).await;
    }
}

#[tokio::test]
async fn a_stamp_of_the_scheduler_of_the_present_run_stands() {
    let world = world().await;
    let gang = Gang::new(world, RUNAI, json!({"minMember": 1})).await;
    let pod = gang.pod("a", &json!({})).await;
    // as KAI-Scheduler does: before the pod is bound
    let (stamp, bound) = (second_after(created(&pod)), second_after(second_after(created(&pod))));
    gang.write(stamp).await;
    passed(bound).await;
    gang.schedule(&pod, bound).await;
    gang.assert_written(world, 0).await;
    gang.await_stamp(stamp).await;
}

#[tokio::test]
async fn a_stamp_that_cannot_be_true_is_repaired() {
    let world = world().await;
    let gang = Gang::new(world, T9K, json!({"minMember": 1})).await;
    gang.write("2099-01-01T00:00:00Z".parse().unwrap()).await;
    let (_, at) = gang.run(&["a"]).await;
    gang.await_stamp(at).await;
    gang.write("2099-01-01T00:00:00Z".parse().unwrap()).await;
    gang.await_stamp(at).await;
    let unreadable = json!({"metadata": {"annotations": {STAMP: "soon"}}});
    gang.namespace.patch(&gang.group, &unreadable).await;
    gang.await_stamp(at).await;
    gang.namespace.patch(&gang.group, &json!({"metadata": {"annotations": {STAMP: null}}})).await;
    gang.await_stamp(at).await;
    let labels = [("group", "scheduler.tensorstack.dev"), ("result", "Stamped")];
    assert!(Metrics::of_world(world).await.count("tenure_keeper_stamps_total", &labels) >= 4);
}

#[tokio::test]
async fn a_gangs_ceiling_counts_from_its_start_and_who_joins_late_ends_with_it() {
    let world = world().await;
    let gang = Gang::new(world, RUNAI, json!({"minMember": 2, "queue": "start-ceiling"})).await;
    gang.namespace.apply(&runai_queue("start-ceiling", "", "8s")).await;
    let labels = in_runai_queue("start-ceiling");
    let early = gang.pod("early", &labels).await;
    let at = second_after(created(&early));
    passed(at).await;
    gang.schedule(&early, at).await;
    let second = gang.pod("second", &labels).await;
    let start = second_after(created(&second)).max(at + SignedDuration::from_secs(4));
    passed(start).await;
    gang.schedule(&second, start).await;
    gang.await_stamp(start).await;
    let late = gang.pod("late", &labels).await;
    let joined = start + SignedDuration::from_secs(5);
    passed(joined).await;
    gang.schedule(&late, joined).await;
    // the first ends by its own clock: no group lengthens the run of a pod
    gang.namespace.await_pods(&["second", "late"]).await;
    gang.namespace.await_pods(&[]).await;
    let age = Timestamp::now().duration_since(start).as_secs_f64();
    assert!(8.0 < age && age < 12.0, "{age} s, and the last has run for 5 s less");
}

#[tokio::test]
async fn a_minimum_that_never_comes_true_does_not_put_a_ceiling_off() {
    let world = world().await;
    let gang = Gang::new(world, RUNAI, json!({"minMember": 9, "queue": "start-never"})).await;
    gang.namespace.apply(&runai_queue("start-never", "", "2s")).await;
    gang.run(&["a"]).await;
    gang.namespace.await_pods(&[]).await;
    assert_eq!(gang.stamp().await, None);
}

#[tokio::test]
async fn what_starts_while_no_keeper_runs_gets_its_pods_own_times() {
    let world = &own_keepers().await;
    world.tenure.start_keeper().await.unwrap();
    let gang = Gang::new(world, RUNAI, json!({"minMember": 2})).await;
    let (pods, first) = gang.run(&["a", "b"]).await;
    gang.await_stamp(first).await;
    world.tenure.kill_keeper().await.unwrap();

    let fresh = Gang::new(world, COSCHEDULING, json!({"minMember": 2})).await;
    let (_, start) = fresh.run(&["a", "b"]).await;
    for pod in &pods {
        gang.namespace.delete(pod).await;
    }
    gang.namespace.await_pods(&[]).await;
    let (_, again) = gang.run(&["c", "d"]).await;
    passed(second_after(second_after(again))).await;
    world.tenure.start_keeper().await.unwrap();
    fresh.await_stamp(start).await;
    gang.await_stamp(again).await;
    audit::assert_changes(&world.cluster, gang.namespace.name(), &["patch podgroups/gang"; 2]).await;
    audit::assert_changes(&world.cluster, fresh.namespace.name(), &["patch podgroups/gang"]).await;
}

#[tokio::test]
async fn however_often_the_keeper_is_killed_every_gang_has_its_stamp_once() {
    const GANGS: usize = 30;
    let world = &own_keepers().await;
    let mut gangs = Vec::new();
    for _ in 0..GANGS {
        let gang = Gang::new(world, RUNAI, json!({"minMember": 1})).await;
        let pod = gang.pod("a", &json!({})).await;
        gangs.push((gang, pod));
    }
    let start = second_after(created(&gangs.last().unwrap().1));
    passed(start).await;
    for (number, (gang, pod)) in gangs.iter().enumerate() {
        if number % 10 == 0 {
            world.tenure.start_keeper().await.unwrap();
        }
        gang.schedule(pod, start).await;
        if number % 10 == 7 {
            world.tenure.kill_keeper().await.unwrap();
        }
    }
    world.tenure.start_keeper().await.unwrap();
    for (gang, _) in &gangs {
        gang.await_stamp(start).await;
        // a patch during which a keeper died may be logged as failed
        let written = audit::changes_of_keeper(&world.cluster, gang.namespace.name());
        assert!(written.len() <= 1, "{written:?}");
    }
}

#[tokio::test]
async fn a_dry_run_stamps_nothing_and_says_so() {
    let world = &own_keepers().await;
    let keeper = Keeper::start(world, &["--dry-run"]).await;
    let gang = Gang::new(world, RUNAI, json!({"minMember": 1})).await;
    gang.run(&["a"]).await;
    let said = async || Ok(keeper.log().contains("Dry run: would stamp").then_some(()));
    eventually("the dry run to say it", DEADLINE, said).await.unwrap();
    let labels = [("group", "scheduling.run.ai"), ("result", "WouldStamp")];
    assert_eq!(keeper.metrics().await.count("tenure_keeper_stamps_total", &labels), 1);
    assert_eq!(gang.stamp().await, None);
    audit::assert_changes(&world.cluster, gang.namespace.name(), &[""; 0]).await;
    keeper.stop().await;
}

#[tokio::test]
async fn groups_of_kubernetes_itself_are_stamped_where_they_are_served() {
    let world = world().await;
    let gang = Gang::new(world, NATIVE, json!({"schedulingPolicy": {"gang": {"minCount": 2}}})).await;
    let (_, at) = gang.run(&["a", "b"]).await;
    gang.await_stamp(at).await;
    audit::assert_changes(&world.cluster, gang.namespace.name(), &["patch podgroups/gang"]).await;
}
