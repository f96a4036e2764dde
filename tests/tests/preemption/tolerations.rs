//! The scenarios by which the scheduler plugin `PreemptionToleration` is tested: a node of three processors, and a victim
//! and a preemptor of two each.

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use serde_json::{Value, json};
use tenure_testbed::{eventually, program};
use tenure_tests::{
    DEADLINE,
    callers::Caller,
    scheduling::{Arena, UNREADABLE, Wish},
};
use tokio::{process::Command, task::spawn_blocking};

use super::world;

const MINIMUM: &str = "minimum-preemptable-priority";
const SECONDS: &str = "toleration-seconds";

struct Scenario<'a> {
    annotations: &'a [(&'a str, &'a str)],
    preemptor: i32,
    /// The least time since the victim was scheduled. A pod never counts as scheduled before its creation, so it passes.
    age: SignedDuration,
    tolerates: bool,
}

impl Scenario<'_> {
    /// Returns the arena with the victim, and the preemptor, as the decision leaves them.
    async fn play(&self) -> Arena<'static> {
        let arena = Arena::new(world().await, 3).await;
        let tolerant = match self.annotations {
            [(MINIMUM, "a")] => UNREADABLE.to_owned(),
            annotations => arena.class("tolerant", 1000, "PreemptLowerPriority", annotations).await,
        };
        let eager = arena.class("eager", self.preemptor, "PreemptLowerPriority", &[]).await;
        let wish = |name, class| Wish { name, class, cpu: 2, queue: "", priority: 0, more: Value::Null };
        let victim = arena.placed(&wish("victim", &tolerant)).await;
        let since = arena.scheduled_at(&victim).await;
        let is_old = async || Ok((Timestamp::now().duration_since(since) >= self.age).then_some(()));
        eventually("the victim to be old enough", DEADLINE, is_old).await.unwrap();
        let preemptor = arena.pod(&wish("preemptor", &eager)).await;
        if self.tolerates {
            arena.await_refused(&preemptor).await;
            arena.assert_untouched(&victim).await;
        } else {
            arena.await_preempted(&victim).await;
            arena.await_placed(&preemptor).await;
        }
        arena
    }
}

const ANYBODY: Scenario<'_> =
    Scenario { annotations: &[], preemptor: 1010, age: SignedDuration::ZERO, tolerates: false };

/// What the plugin says of the preemption at a time.
async fn explained(arena: &Arena<'_>, now: Timestamp) -> Value {
    let plugin = spawn_blocking(|| program("kubectl-tenure")).await.unwrap().unwrap();
    let mut command = Command::new(plugin);
    command.args(["explain", "preemption", "--preemptor=preemptor", "--victim=victim", "-o=json"]);
    command.args([format!("--now={now}"), format!("--namespace={}", arena.namespace.name())]);
    command.env("KUBECONFIG", arena.world.cluster.kubeconfig());
    let output = command.output().await.unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

#[tokio::test]
async fn a_priority_that_is_not_tolerated_preempts_at_once() {
    Scenario { annotations: &[(MINIMUM, "1010")], ..ANYBODY }.play().await;
}

#[tokio::test]
async fn a_priority_that_is_not_tolerated_preempts_within_the_toleration() {
    Scenario { annotations: &[(MINIMUM, "1010"), (SECONDS, "30")], ..ANYBODY }.play().await;
}

#[tokio::test]
async fn without_seconds_no_preemptor_is_tolerated() {
    Scenario { annotations: &[(MINIMUM, "1010")], preemptor: 1009, ..ANYBODY }.play().await;
}

#[tokio::test]
async fn negative_seconds_mean_no_limit() {
    let annotations = &[(MINIMUM, "1010"), (SECONDS, "-1")];
    let age = SignedDuration::from_secs(2);
    let arena = Scenario { annotations, preemptor: 1009, age, tolerates: true }.play().await;
    let verdict = explained(&arena, Timestamp::now() + SignedDuration::from_hours(365 * 24)).await;
    let victim = &verdict["victims"][0];
    assert_eq!(
        (&victim["rule"], &victim["until"]),
        (&json!("preemptionToleration"), &Value::Null),
        "{verdict:#}"
    );
}

#[tokio::test]
async fn within_its_seconds_a_lower_priority_is_tolerated() {
    let annotations = &[(MINIMUM, "1010"), (SECONDS, "300")];
    Scenario { annotations, preemptor: 1005, tolerates: true, ..ANYBODY }.play().await;
}

#[tokio::test]
async fn after_its_seconds_a_lower_priority_preempts() {
    let annotations = &[(MINIMUM, "1010"), (SECONDS, "2")];
    let age = SignedDuration::from_secs(3);
    Scenario { annotations, preemptor: 1005, age, ..ANYBODY }.play().await;
}

#[tokio::test]
async fn an_annotation_that_cannot_be_read_protects_no_pod() {
    Scenario { annotations: &[(MINIMUM, "a")], preemptor: 1001, ..ANYBODY }.play().await;
}

fn wish<'a>(name: &'a str, class: &'a str, more: Value) -> Wish<'a> {
    Wish { name, class, cpu: 1, queue: "", priority: 0, more }
}

/// kube-scheduler doesn't ask for such a pod, so this asks in its place.
#[tokio::test]
async fn a_pod_that_never_preempts_gets_no_victim_whose_class_would_not_tolerate_it() {
    let arena = Arena::new(world().await, 1).await;
    let scheduler = Caller::scheduler(arena.world);
    let class = arena.class("victim", 1000, "PreemptLowerPriority", &[(MINIMUM, "1001")]).await;
    let victim = arena.placed(&wish("victim", &class, Value::Null)).await;
    let mut preemptors = Vec::new();
    for (name, policy) in [("never", "Never"), ("eager", "PreemptLowerPriority")] {
        let class = arena.class(name, 1010, policy, &[]).await;
        let unseen = json!({"spec": {"schedulerName": "missing"}});
        let pod = arena.pod(&wish(name, &class, unseen)).await;
        preemptors.push(serde_json::to_value(pod).unwrap());
    }
    let victims = json!({arena.node(): {"Pods": [{"UID": victim.uid()}], "NumPDBViolations": 0}});
    // once the later one is known, so is the other
    let granted = async || Ok((scheduler.ask(&preemptors[1], &victims).await == victims).then_some(()));
    eventually("the victim for the other pod", DEADLINE, granted).await.unwrap();
    assert_eq!(scheduler.ask(&preemptors[0], &victims).await, json!({}));
}
