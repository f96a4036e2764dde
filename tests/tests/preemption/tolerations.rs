//! The scenarios by which the scheduler plugin `PreemptionToleration` is tested: a node of three processors, and a victim
//! and a preemptor of two each.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tenure_tests::scheduling::{Arena, UNREADABLE, Wish};

use super::world;

const MINIMUM: &str = "minimum-preemptable-priority";
const SECONDS: &str = "toleration-seconds";

struct Scenario<'a> {
    annotations: &'a [(&'a str, &'a str)],
    preemptor: i32,
    policy: &'a str,
    /// The time since the victim was scheduled, if not a moment ago.
    age: Option<SignedDuration>,
    tolerates: bool,
}

impl Scenario<'_> {
    async fn play(&self) {
        let arena = Arena::new(world().await, 3).await;
        let tolerant = match self.annotations {
            [(MINIMUM, "a")] => UNREADABLE.to_owned(),
            annotations => arena.class("tolerant", 1000, "PreemptLowerPriority", annotations).await,
        };
        let eager = arena.class("eager", self.preemptor, self.policy, &[]).await;
        let wish = |name, class| Wish { name, class, cpu: 2, queue: "", priority: 0, more: Value::Null };
        let victim = arena.placed(&wish("victim", &tolerant)).await;
        if let Some(age) = self.age {
            arena.schedule_at(&victim, Timestamp::now() - age).await;
        }
        let preemptor = arena.pod(&wish("preemptor", &eager)).await;
        if self.tolerates {
            arena.await_refused(&preemptor).await;
            arena.assert_untouched(&victim).await;
        } else {
            arena.await_preempted(&victim).await;
            arena.await_placed(&preemptor).await;
        }
    }
}

const ANYBODY: Scenario<'_> = Scenario {
    annotations: &[],
    preemptor: 1010,
    policy: "PreemptLowerPriority",
    age: None,
    tolerates: false,
};

const A_YEAR: Option<SignedDuration> = Some(SignedDuration::from_hours(365 * 24));

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
    Scenario { annotations, preemptor: 1009, age: A_YEAR, tolerates: true, ..ANYBODY }.play().await;
}

#[tokio::test]
async fn within_its_seconds_a_lower_priority_is_tolerated() {
    let annotations = &[(MINIMUM, "1010"), (SECONDS, "300")];
    Scenario { annotations, preemptor: 1005, tolerates: true, ..ANYBODY }.play().await;
}

#[tokio::test]
async fn after_its_seconds_a_lower_priority_preempts() {
    let annotations = &[(MINIMUM, "1010"), (SECONDS, "5")];
    let age = Some(SignedDuration::from_secs(10));
    Scenario { annotations, preemptor: 1005, age, ..ANYBODY }.play().await;
}

#[tokio::test]
async fn an_annotation_that_cannot_be_read_protects_no_pod() {
    Scenario { annotations: &[(MINIMUM, "a")], preemptor: 1001, ..ANYBODY }.play().await;
}

#[tokio::test]
async fn a_pod_that_never_preempts_does_not_preempt_here_either() {
    let annotations = &[(MINIMUM, "a")];
    Scenario { annotations, preemptor: 1001, policy: "Never", age: A_YEAR, tolerates: true }.play().await;
}
