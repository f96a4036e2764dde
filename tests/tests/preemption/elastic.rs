//! Gangs: pods above their minimum may be preempted within their floor, the others may not.

use futures::future::join_all;
use jiff::Timestamp;
use kube::core::DynamicObject;
use serde_json::{Value, json};
use tenure_testbed::eventually;
use tenure_tests::{
    DEADLINE,
    scheduling::{Arena, Wish},
    tenant::Tenant,
    workloads::{bare_pod, distinct, workload},
};

use super::world;

const MEMBERS: [&str; 4] = ["member-0", "member-1", "member-2", "member-3"];

/// A gang of four that fill the node, of which two are enough, in a queue with a long floor.
async fn gang(arena: &Arena<'_>) -> (String, Vec<DynamicObject>) {
    let queue = arena.queue("team", json!({"preemptMinRuntime": "1h", "reclaimMinRuntime": "1h"})).await;
    let group = json!({
        "apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup",
        "metadata": {"name": "gang", "namespace": arena.namespace.name()}, "spec": {"minMember": 2, "queue": queue},
    });
    arena.namespace.create(&group).await;
    let mut members = Vec::new();
    for name in MEMBERS {
        let more = json!({"metadata": {"annotations": {"pod-group-name": "gang"}}});
        members.push(arena.placed(&Wish { more, ..wish(name, &queue, 100) }).await);
    }
    (queue, members)
}

fn wish<'a>(name: &'a str, queue: &'a str, priority: i32) -> Wish<'a> {
    Wish { name, queue, priority, cpu: 1, ..Wish::default() }
}

async fn alive(arena: &Arena<'_>, members: &[DynamicObject]) -> usize {
    let mut alive = 0;
    for member in members {
        alive += usize::from(arena.namespace.get(member).await.is_some());
    }
    alive
}

/// Waits until `count` members are left. A pod has its place before its victims are gone.
async fn await_alive(arena: &Arena<'_>, members: &[DynamicObject], count: usize) {
    let left = async || Ok((alive(arena, members).await == count).then_some(()));
    eventually(&format!("{count} members to be left"), DEADLINE, left).await.unwrap();
}

/// Waits until a pod that is scheduled now is junior to all that are. Times of the API server are whole seconds.
async fn next_second() {
    let second = Timestamp::now().as_second();
    let is_later = async || Ok((Timestamp::now().as_second() > second).then_some(()));
    eventually("the next second", DEADLINE, is_later).await.unwrap();
}

#[tokio::test]
async fn an_elastic_workload_shrinks_to_its_minimum_and_no_further() {
    let arena = Arena::new(world().await, 4).await;
    let (queue, members) = gang(&arena).await;
    let first = arena.pod(&wish("first", &queue, 200)).await;
    arena.await_room(&first).await;
    let second = arena.pod(&wish("second", &queue, 200)).await;
    arena.await_room(&second).await;
    await_alive(&arena, &members, 2).await;
    let third = arena.pod(&wish("third", &queue, 200)).await;
    arena.await_refused(&third).await;
    assert_eq!(alive(&arena, &members).await, 2);
    for member in members {
        if arena.namespace.get(&member).await.is_some() {
            arena.assert_untouched(&member).await;
        }
    }
}

/// A stranger of the namespace joins, so that the group has one pod more than it takes.
#[tokio::test]
async fn a_pod_that_joins_a_neighbours_gang_takes_no_floor_from_it() {
    let world = world().await;
    let arena = Arena::new(world, 3).await;
    let queue = arena.queue("team", json!({"preemptMinRuntime": "1h", "reclaimMinRuntime": "1h"})).await;
    let group = json!({
        "apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup",
        "metadata": {"name": "gang", "namespace": arena.namespace.name()}, "spec": {"minMember": 2, "queue": queue},
    });
    arena.namespace.create(&group).await;
    let container =
        json!({"name": "main", "image": "example.com/image", "resources": {"requests": {"cpu": "1"}}});
    let spec = json!({
        "nodeSelector": {"arena": arena.node()}, "terminationGracePeriodSeconds": 0, "containers": [container],
    });
    let in_queue = json!({"kai.scheduler/queue": queue});
    let mut job = workload("Job", arena.namespace.name(), "neighbour", &in_queue, &spec);
    (job["spec"]["parallelism"], job["spec"]["completions"]) = (json!(2), json!(2));
    job["spec"]["template"]["metadata"]["annotations"] = json!({"pod-group-name": "gang"});
    let job = arena.namespace.create(&job).await;
    arena.namespace.await_running(2).await;
    let neighbours = arena.namespace.pods().await;

    let tenant = Tenant::of(world, arena.namespace.name()).await;
    next_second().await;
    let mut stranger = bare_pod(arena.namespace.name(), "stranger", &in_queue, &spec);
    stranger["metadata"]["annotations"] = json!({"pod-group-name": "gang"});
    let stranger = tenant.create(&distinct(stranger, "stranger")).await;
    arena.await_placed(&stranger).await;

    // the stranger is the only pod that the gang can spare
    let first = arena.pod(&wish("first", &queue, 200)).await;
    arena.await_room(&first).await;
    arena.await_preempted(&stranger).await;
    let second = arena.pod(&wish("second", &queue, 200)).await;
    arena.await_refused(&second).await;
    let left = arena.namespace.pods().await;
    assert!(neighbours.iter().all(|uid| left.contains(uid)), "{neighbours:?} were there, {left:?} are left");
    assert_eq!(arena.namespace.field(&job, "status.active").await, json!(2));
}

/// The same, where the gang's pods have no controller.
#[tokio::test]
async fn a_pod_that_joins_a_gang_of_pods_without_a_controller_takes_no_floor_from_it() {
    let world = world().await;
    let arena = Arena::new(world, 3).await;
    let queue = arena.queue("team", json!({"preemptMinRuntime": "1h", "reclaimMinRuntime": "1h"})).await;
    let group = json!({
        "apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup",
        "metadata": {"name": "gang", "namespace": arena.namespace.name()}, "spec": {"minMember": 2, "queue": queue},
    });
    arena.namespace.create(&group).await;
    let joins = || json!({"metadata": {"annotations": {"pod-group-name": "gang"}}});
    let mut gang = Vec::new();
    for name in ["member-0", "member-1"] {
        gang.push(arena.placed(&Wish { more: joins(), ..wish(name, &queue, 100) }).await);
    }
    let tenant = Tenant::of(world, arena.namespace.name()).await;
    next_second().await;
    // more important than the gang: the scheduler would rather have that pod stay
    let stranger = arena.wanted(&Wish { more: joins(), ..wish("stranger", &queue, 150) }).await;
    let stranger = tenant.create(&stranger).await;
    arena.await_placed(&stranger).await;

    let first = arena.pod(&wish("first", &queue, 200)).await;
    arena.await_room(&first).await;
    arena.await_preempted(&stranger).await;
    let second = arena.pod(&wish("second", &queue, 200)).await;
    arena.await_refused(&second).await;
    for member in &gang {
        arena.assert_untouched(member).await;
    }
}

#[tokio::test]
async fn a_preemptor_that_needs_more_than_is_above_the_minimum_gets_nothing() {
    let arena = Arena::new(world().await, 4).await;
    let (queue, members) = gang(&arena).await;
    let large = arena.pod(&Wish { cpu: 3, ..wish("large", &queue, 200) }).await;
    arena.await_refused(&large).await;
    for member in &members {
        arena.assert_untouched(member).await;
    }
    let small = arena.pod(&Wish { cpu: 2, ..wish("small", &queue, 300) }).await;
    arena.await_room(&small).await;
    await_alive(&arena, &members, 2).await;
}

#[tokio::test]
async fn of_several_preemptors_at_once_only_as_many_get_room_as_the_minimum_leaves() {
    let arena = Arena::new(world().await, 1).await;
    for number in 1..MEMBERS.len() {
        arena.add_node(&format!("{}-{number}", arena.node()), 1).await;
    }
    let (queue, members) = gang(&arena).await;
    let wishes = ["first", "second", "third", "fourth"].map(|name| wish(name, &queue, 200));
    let preemptors = join_all(wishes.iter().map(|wish| arena.pod(wish))).await;
    let placed = async || {
        let mut placed = 0;
        for preemptor in &preemptors {
            placed += usize::from(arena.namespace.field(preemptor, "spec.nodeName").await != Value::Null);
        }
        placed
    };
    // a preemptor is refused, too, until the victims of the one before it are known: it is woken then, and tried again
    eventually("two preemptors to be placed", DEADLINE, async || Ok((placed().await >= 2).then_some(())))
        .await
        .unwrap();
    arena.await_refused(&arena.pod(&wish("fifth", &queue, 200)).await).await;
    assert_eq!(placed().await, 2);
    assert_eq!(alive(&arena, &members).await, 2);
}
