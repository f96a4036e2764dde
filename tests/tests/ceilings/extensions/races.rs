//! Grants that come about when a run ends.

use futures::future::join_all;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt, core::DynamicObject};
use serde_json::{Value, json};
use tenure_testbed::eventually;
use tenure_tests::{DEADLINE, workloads::Namespace};

use super::{await_state, decision, extension, job, queue, seconds};
use crate::world;

/// The ceiling of each run, and the time that it is granted beyond, in seconds.
const CEILING: i64 = 12;
const GRANTED: i64 = 6;

/// The longest time from the end of a run to its pause.
const LATE: i64 = 30;

/// The races that are run at the same time.
const AT_ONCE: usize = 20;

/// The result of a race.
#[derive(Debug)]
struct Race {
    /// The end of the run without the grant.
    end: Timestamp,
    /// The time at which the API server had taken the grant. None: it refused the grant.
    granted: Option<Timestamp>,
    paused: Timestamp,
}

/// Grants more time to each of some runs, at times around its end.
#[tokio::test]
async fn a_grant_that_comes_before_the_end_of_a_run_prevents_the_pause_and_no_run_outlasts_it() {
    let races = std::env::var("EXTENSION_RACES").map_or(20, |text| text.parse().unwrap());
    let namespace = Namespace::new(world().await).await;
    let allowed = json!({"maxTotal": format!("{GRANTED}s")});
    namespace.apply(&queue("races", &format!("{CEILING}s"), allowed)).await;
    let numbers: Vec<i64> = (0..races).collect();
    let mut races = Vec::new();
    for at_once in numbers.chunks(AT_ONCE) {
        races.extend(join_all(at_once.iter().map(|number| race(&namespace, *number))).await);
    }
    let (mut in_time, mut too_late) = (0, 0);
    for race in &races {
        let Race { end, granted, paused } = race;
        let is_extended = *paused > *end + seconds(GRANTED);
        assert!(paused > end, "never early: {race:?}");
        assert!(*paused < *end + seconds(GRANTED + LATE), "never beyond the grant: {race:?}");
        if granted.is_some_and(|granted| granted < *end) {
            assert!(is_extended, "granted in time: {race:?}");
            in_time += 1;
        }
        too_late += i32::from(!is_extended);
    }
    println!("{} races: {in_time} granted before the end, {too_late} paused before the grant", races.len());
    assert!(in_time > 0, "{races:?}");
}

async fn race(namespace: &Namespace, number: i64) -> Race {
    let name = format!("race-{number}");
    let mut owner = job(namespace, &name, "races");
    // a pod goes at once when its Job is suspended
    owner["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = json!(0);
    let owner = namespace.create(&owner).await;
    let end = start(&name, namespace).await + seconds(CEILING);
    let asked = namespace.create(&extension(&owner, &name, &format!("{GRANTED}s"))).await;
    await_state(namespace, &asked, "Pending").await;
    // the race itself: from 400 milliseconds before the end until as much after it, but some come in time by far
    let early = if number % 4 == 0 { 2_000 } else { 0 };
    let offset = SignedDuration::from_millis((number * 37).rem_euclid(800) - 400 - early);
    let until = (end + offset).duration_since(Timestamp::now());
    tokio::time::sleep(until.try_into().unwrap_or_default()).await;
    let grant = decision("admin", "Granted", &format!("{GRANTED}s"));
    let granted =
        namespace.try_patch_subresource(&asked, "status", &grant).await.ok().map(|_| Timestamp::now());
    Race { end, granted, paused: paused(namespace, &owner).await }
}

/// The time at which the pod of a Job was scheduled.
async fn start(job: &str, namespace: &Namespace) -> Timestamp {
    let client = world().await.cluster.client().unwrap();
    let pods: Api<Pod> = Api::namespaced(client, namespace.name());
    let labels = format!("batch.kubernetes.io/job-name={job}");
    let scheduled = async || {
        let list = pods.list(&kube::api::ListParams::default().labels(&labels)).await?;
        let conditions = list.items.into_iter().filter_map(|pod| pod.status?.conditions).flatten();
        let mut scheduled = conditions.filter(|of| of.type_ == "PodScheduled" && of.status == "True");
        Ok(scheduled.next().and_then(|of| of.last_transition_time).map(|time| time.0))
    };
    eventually(&format!("the pod of {job} to be scheduled"), DEADLINE, scheduled).await.unwrap()
}

async fn paused(namespace: &Namespace, owner: &DynamicObject) -> Timestamp {
    let what = format!("{} to be paused", owner.name_any());
    let record = async || Ok(namespace.pause("Job", &owner.name_any()).await);
    let record: Value = eventually(&what, DEADLINE, record).await.unwrap();
    record["at"].as_str().unwrap().parse().unwrap()
}
