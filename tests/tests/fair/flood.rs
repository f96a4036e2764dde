//! A flood in one namespace: short-lived pods at the limit of writes and above, beside pods whose owners ignore their pauses.

use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client,
    api::{ListParams, PostParams},
};
use serde_json::json;
use tenure_testbed::eventually;
use tenure_tests::{
    World, fixtures,
    keeper::Keeper,
    neighbour::worst_lateness,
    scale,
    workloads::{Namespace, bare_pod, controller, in_queue, owned, queue},
};
use tokio::{
    join, select,
    task::JoinSet,
    time::{Instant, sleep_until},
};

/// The namespace of the flood, and its queue.
const FLOOD: &str = "flood";
const NEIGHBOUR: &str = "neighbour";

/// The label `app` of their pods.
const IGNORANT: &str = "ignorant";

struct Flood {
    /// The least time. It goes on until all overdue pods of its own are gone.
    lasts: Duration,
    /// The keeper's limit of writes a second.
    writes: u32,
    /// The owners that ignore their pauses, each with a pod.
    owners: usize,
    /// The keeper's first wait between tries.
    retry_after: &'static str,
    /// The most by which the end of a neighbour's run may be late.
    late: SignedDuration,
    /// The time for the overdue pods whose owners ignore their pauses.
    gone_within: Duration,
}

/// Creates pods that live for a second: at the limit of writes at first, and then half as many again.
async fn create(client: Client, writes: u32, half: Duration) {
    let (pods, begun) = (Api::<Pod>::namespaced(client, FLOOD), Instant::now());
    let (mut next, mut creations) = (begun, JoinSet::new());
    for number in 0_u64.. {
        let rate = if begun.elapsed() < half { writes } else { writes * 3 / 2 };
        let pods = pods.clone();
        creations.spawn(async move {
            let spec = json!({"schedulerName": "absent"});
            let pod = bare_pod(FLOOD, &format!("flood-{number}"), &in_queue(FLOOD), &spec);
            pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
        });
        while let Some(created) = creations.try_join_next() {
            created.unwrap();
        }
        next += Duration::from_secs(1) / rate;
        sleep_until(next).await;
    }
}

/// `JobSet`s that no controller obeys, each with a pod.
async fn ignorant_owners(world: &World, count: usize) {
    let namespace = &Namespace::of(world, FLOOD);
    for number in 0..count {
        let name = format!("{IGNORANT}-{number}");
        let owner = fixtures::object("jobset.x-k8s.io/v1alpha2", "JobSet", FLOOD, &name, &json!({}));
        let owner = namespace.create(&owner).await;
        let mut pod = bare_pod(FLOOD, &name, &in_queue(FLOOD), &json!({"schedulerName": "absent"}));
        pod["metadata"]["labels"]["app"] = json!(IGNORANT);
        namespace.create(&owned(pod, &[controller(&owner)])).await;
    }
}

/// Waits until all pods of these owners are gone. It asks for no other pods: lists of the whole flood would be a flood of their own.
async fn await_gone(world: &World, within: Duration) -> anyhow::Result<()> {
    let pods = Api::<Pod>::namespaced(world.cluster.client()?, FLOOD);
    let ignorant = ListParams::default().labels(&format!("app={IGNORANT}"));
    let gone = async || Ok(pods.list_metadata(&ignorant).await?.items.is_empty().then_some(()));
    eventually("the overdue pods of ignorant owners to be gone", within, gone).await
}

impl Flood {
    async fn play(self, name: &str) {
        let Self { lasts, writes, owners, retry_after, late, gone_within } = self;
        let world = &scale::world(name, &[]).await.unwrap();
        fixtures::install(world, fixtures::definitions("jobset.x-k8s.io")).await;
        for namespace in [FLOOD, NEIGHBOUR] {
            scale::namespace(world, namespace).await;
        }
        world.apply(&queue(FLOOD, "1s")).await;
        let flags = [
            format!("--writes-per-second={writes}"),
            format!("--burst={writes}"),
            format!("--retry-after={retry_after}"),
            "--threadiness=8".to_owned(),
        ];
        let keeper = Keeper::start(world, &flags.each_ref().map(String::as_str)).await;
        ignorant_owners(world, owners).await;
        let flood = create(world.cluster.client().unwrap(), writes, lasts / 2);
        let count = usize::try_from(lasts.as_secs()).unwrap();
        let all = async { join!(worst_lateness(world, NEIGHBOUR, count), await_gone(world, gone_within)) };
        let (worst, gone) = select! {
            () = flood => unreachable!("it has no end"),
            ends = all => ends,
        };
        let worst = worst.unwrap();
        println!("The end of a neighbour's run was {worst:#} late");
        assert!(worst <= late, "the end of a neighbour's run was {worst:#} late");
        gone.unwrap();
        keeper.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_one_namespace_delays_no_end_of_another_and_none_of_its_own_overdue_pods_for_long() {
    let flood = Flood {
        lasts: Duration::from_secs(40),
        writes: 5,
        owners: 5,
        // nine tries take a minute
        retry_after: "1s",
        // other tests run beside this one: by itself it takes 2 s, and a minute
        late: SignedDuration::from_secs(30),
        gone_within: Duration::from_mins(8),
    };
    Box::pin(flood.play("fair-flood")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "six minutes on a machine that does nothing else: make floods"]
async fn a_flood_of_five_minutes_delays_no_end_of_another_by_more_than_two_seconds() {
    let flood = Flood {
        lasts: Duration::from_mins(5),
        writes: 50,
        owners: 10,
        retry_after: "5s",
        late: SignedDuration::from_secs(2),
        gone_within: Duration::from_mins(10),
    };
    Box::pin(flood.play("fair-flood-long")).await;
}
