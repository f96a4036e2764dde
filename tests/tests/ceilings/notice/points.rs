//! Several notices a run.

use jiff::{SignedDuration, Timestamp};
use kube::core::DynamicObject;
use serde_json::Value;
use tenure_testbed::eventually;
use tenure_tests::{
    DEADLINE,
    workloads::{Namespace, bare_pod, in_runai_queue, runai_queue},
};

use super::{APPROACHING, announced, await_announced, with_notice, world_with_pods};

/// A ceiling by which, two seconds from now, an hour is left of a run that began earlier.
fn ceiling(from: Timestamp) -> String {
    let age = Timestamp::now().duration_since(from);
    format!("{}s", age.as_secs() + 2 + 3600)
}

/// The time of the last notice.
async fn given(namespace: &Namespace, pod: &DynamicObject) -> Timestamp {
    let annotations = namespace.field(pod, "metadata.annotations").await;
    annotations["tenure.dev/notice-given-at"].as_str().unwrap().parse().unwrap()
}

/// A pod in a queue with two notices.
struct NoticedPod {
    namespace: Namespace,
    pod: DynamicObject,
}

impl NoticedPod {
    async fn change(&self, ceiling: &str) {
        self.namespace.apply(&with_notice(runai_queue("told-twice", "", ceiling), "1h, 3h")).await;
    }

    /// Waits for `count` notices, and returns the time of the last.
    async fn await_notices(&self, count: usize) -> Timestamp {
        let events = self.namespace.await_events_of(APPROACHING, count).await;
        assert_eq!(events.len(), count, "{events:?}");
        let end = announced(&self.namespace, &self.pod).await.unwrap().strftime("%H:%M UTC").to_string();
        assert!(events.iter().any(|event| event.contains(&end)), "{end} in {events:?}");
        given(&self.namespace, &self.pod).await
    }

    async fn await_end(&self, end: Timestamp) {
        let shown = async || Ok((announced(&self.namespace, &self.pod).await == Some(end)).then_some(()));
        eventually("the moved end to be announced", DEADLINE, shown).await.unwrap();
    }
}

#[tokio::test]
async fn each_point_is_announced_once_though_the_keeper_is_killed_and_again_when_it_lies_ahead_again() {
    let world = &*world_with_pods().await;
    let namespace = Namespace::new(world).await;
    namespace.apply(&with_notice(runai_queue("told-twice", "", "2h"), "1h, 3h")).await;
    let pod = bare_pod(namespace.name(), "test", &in_runai_queue("told-twice"), &Value::Null);
    let pod = namespace.create(&pod).await;
    await_announced(&namespace, &pod).await;
    let workload = NoticedPod { namespace, pod };
    // three hours before an end in two hours have passed
    let first = workload.await_notices(1).await;
    let started = await_announced(&workload.namespace, &workload.pod).await - SignedDuration::from_hours(2);
    world.tenure.kill_keeper().await.unwrap();
    world.tenure.start_keeper().await.unwrap();
    workload.change(&ceiling(started)).await;
    let second = workload.await_notices(2).await;
    assert!(first < second, "{first} {second}");
    // neither the next keeper nor an end that moves away gives a notice
    workload.change("5h").await;
    workload.await_end(started + SignedDuration::from_hours(5)).await;
    assert_eq!(given(&workload.namespace, &workload.pod).await, second);
    world.tenure.stop_keeper().await.unwrap();
    world.tenure.start_keeper().await.unwrap();
    workload.change(&ceiling(started)).await;
    let third = workload.await_notices(3).await;
    assert!(second < third, "{second} {third}");
}
