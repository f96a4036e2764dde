//! All of Tenure together on one cluster: a day of three teams that share a node.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::fs;

use jiff::{SignedDuration, Timestamp};
use kube::{ResourceExt, core::DynamicObject};
use serde_json::{Value, json};
use tenure_testbed::{UNREADY, eventually};
use tenure_tests::{
    DEADLINE, World,
    asker::Asker,
    audit, fixtures,
    scheduling::{self, Arena, Wish},
    workloads::{distinct, workload},
};

const FLOOR: SignedDuration = SignedDuration::from_secs(15);
const CEILING: SignedDuration = SignedDuration::from_secs(30);
const STAMP: &str = "kai.scheduler/last-start-timestamp";

/// The queues of the three teams, below that of the company.
struct Day<'w> {
    arena: Arena<'w>,
    vision: String,
    language: String,
    batch: String,
}

async fn started() -> World {
    let values = [
        "schedulerExtender.enabled=true",
        "guard.enabled=true",
        "guard.schedulers[0]=system:kube-scheduler",
        "webhook.failurePolicy=Ignore",
    ];
    let world = Box::pin(World::installed("day", &values)).await.unwrap();
    fixtures::install(&world, fixtures::definitions("scheduling.run.ai")).await;
    world.tenure.start_webhook(&world.cluster).await.unwrap();
    world.tenure.start_keeper().await.unwrap();
    scheduling::configure(&world, &json!({})).await.unwrap();
    world
}

impl<'w> Day<'w> {
    async fn new(world: &'w World) -> Self {
        // the company's workloads together need more than this
        let arena = Arena::new(world, 12).await;
        let company = arena.queue("company", json!({"reclaimMinRuntime": "15s"})).await;
        let vision = json!({
            "parentQueue": company, "preemptMinRuntime": "15s",
            "maxDuration": "30s", "expiryNotice": "15s", "maxDurationAction": "Requeue", "requeueDelay": "5s",
        });
        let language = json!({
            "parentQueue": company,
            "waitForPodsReady": {"timeout": "5s", "requeuingStrategy": {"backoffBaseSeconds": 5}},
        });
        let [vision, language, batch] = [
            arena.queue("vision", vision).await,
            arena.queue("language", language).await,
            arena.queue("batch", json!({"parentQueue": company})).await,
        ];
        for (name, priority) in [("low", 100), ("middle", 500), ("high", 900), ("urgent", 1000)] {
            arena.class(name, priority, "PreemptLowerPriority", &[]).await;
        }
        Self { arena, vision, language, batch }
    }

    /// A workload whose pods request this many processors of the node.
    async fn create(&self, kind: &str, name: &str, queue: &str, class: &str, cpu: u32) -> DynamicObject {
        let spec = json!({
            "nodeSelector": {"arena": self.arena.node()},
            "priorityClassName": format!("{}-{class}", self.arena.node()),
            "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "main", "image": "example.com/image",
                "resources": {"requests": {"cpu": cpu.to_string()}},
            }],
        });
        let labels = json!({"kai.scheduler/queue": queue});
        let namespace = &self.arena.namespace;
        let mut object = distinct(workload(kind, namespace.name(), name, &labels, &spec), name);
        match name {
            "gang" => {
                (object["spec"]["parallelism"], object["spec"]["completions"]) = (json!(2), json!(2));
                object["spec"]["template"]["metadata"]["annotations"] = json!({"pod-group-name": name});
            }
            "fragile" => object["spec"]["template"]["metadata"]["labels"][UNREADY] = json!("true"),
            _ => object["spec"]["replicas"] = json!(1),
        }
        namespace.create(&object).await
    }

    /// The pods of a workload that are on the node, with the times at which they came there.
    async fn placed(&self, name: &str) -> Vec<(DynamicObject, Timestamp)> {
        let mut placed = Vec::new();
        for pod in self.arena.namespace.pod_names().await {
            let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod}});
            let pod = self.arena.namespace.try_find(&serde_json::from_value(pod).unwrap()).await;
            let Some(pod) = pod.filter(|pod| pod.labels().get("app").is_some_and(|app| app == name)) else {
                continue;
            };
            let conditions = pod.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let is_placed = |of: &&Value| of["type"] == "PodScheduled" && of["status"] == "True";
            if let Some(condition) = conditions.iter().find(is_placed) {
                let at = condition["lastTransitionTime"].as_str().unwrap().parse().unwrap();
                placed.push((pod, at));
            }
        }
        placed
    }

    /// Waits until this many pods of a workload have come to the node since `after`; returns the time of the last one.
    async fn await_placed(&self, name: &str, count: usize, after: Timestamp) -> Timestamp {
        let all = async || {
            let mut placed = self.placed(name).await;
            placed.retain(|(_, at)| *at >= after);
            Ok(placed.iter().map(|(_, at)| *at).max().filter(|_| placed.len() == count))
        };
        eventually(&format!("{count} pods of {name} on the node"), DEADLINE, all).await.unwrap()
    }

    /// The value of an annotation of an object.
    async fn annotation(&self, object: &DynamicObject, key: &str) -> Option<String> {
        self.arena.namespace.get(object).await?.annotations().get(key).cloned()
    }
}

#[tokio::test]
async fn three_teams_share_a_node_for_a_day() {
    let world = started().await;
    let day = Day::new(&world).await;
    let namespace = &day.arena.namespace;
    let beginning = Timestamp::MIN;

    // in the morning all three start: 4 + 2 * 2 + 2 of 12 processors
    day.create("Deployment", "sweep", &day.batch, "low", 4).await;
    let swept = day.await_placed("sweep", 1, beginning).await;
    // so that the floor of the sweep ends first, by whole seconds
    eventually("the next second", DEADLINE, async || {
        Ok((Timestamp::now() > swept + SignedDuration::from_secs(2)).then_some(()))
    })
    .await
    .unwrap();
    let group = namespace
        .create(&fixtures::object(
            "scheduling.run.ai/v2alpha2",
            "PodGroup",
            namespace.name(),
            "gang",
            &json!({"queue": day.vision, "minMember": 2}),
        ))
        .await;
    let gang = day.create("Job", "gang", &day.vision, "middle", 2).await;
    let fragile = day.create("Job", "fragile", &day.language, "high", 2).await;
    let ganged = day.await_placed("gang", 2, beginning).await;
    let stamped = async || Ok(day.annotation(&group, STAMP).await);
    let start: Timestamp = eventually("the gang's start", DEADLINE, stamped).await.unwrap().parse().unwrap();
    assert!(start >= ganged, "the gang started at {start}, before its last pod came at {ganged}");

    // an admin who wants the node is told to wait
    let admin = Asker::admin(&world).await;
    let (member, _) = day.placed("gang").await.remove(0);
    let refused = async || Ok(admin.would_evict(&member).await.err());
    let refusal = eventually("the gang to be held", DEADLINE, refused).await.unwrap();
    assert_eq!(refusal.code, 429, "{}", refusal.message);

    // so is an urgent pod, which has to wait for the sweep's floor
    let urgent = Wish {
        name: "urgent",
        cpu: 6,
        queue: &day.language,
        class: &format!("{}-urgent", day.arena.node()),
        ..Wish::default()
    };
    let urgent = day.arena.pod(&urgent).await;
    day.arena.await_refused(&urgent).await;

    // a workload that doesn't get ready makes room; it is repaired, and comes back
    let record = namespace.await_paused("Job", "fragile").await;
    assert_eq!(record["reason"], "PodsReadyTimeout");
    let repair = json!({"spec": {"template": {"metadata": {"labels": {UNREADY: null}}}}});
    let repaired = async || {
        namespace.try_patch(&fragile, &repair).await.map_err(|status| anyhow::anyhow!(status.message))?;
        Ok(Some(()))
    };
    eventually("the Job to be suspended, so that its template can change", DEADLINE, repaired).await.unwrap();

    // at noon the floor ends, and the urgent pod runs
    day.arena.await_placed(&urgent).await;
    let placed = day.arena.scheduled_at(&urgent).await;
    assert!(placed >= swept + FLOOR, "at {placed}, though the sweep came at {swept}");
    let ready = async || Ok((namespace.field(&fragile, "status.ready").await == json!(1)).then_some(()));
    eventually("the repaired Job to be ready", DEADLINE, ready).await.unwrap();

    // in the afternoon the gang is told of its end, and paused; the sweep gets its room
    let end = start + CEILING;
    let annotation = async || Ok(day.annotation(&gang, "tenure.dev/expires-at").await);
    let announced_end: Timestamp =
        eventually("the notice", DEADLINE, annotation).await.unwrap().parse().unwrap();
    assert_eq!(announced_end, ganged.min(start) + CEILING);
    let record = namespace.await_paused("Job", "gang").await;
    assert_eq!(record["reason"], "MaxDurationExceeded");
    let paused: Timestamp = record["at"].as_str().unwrap().parse().unwrap();
    assert!(
        paused >= end.min(announced_end) && paused <= end + SignedDuration::from_secs(10),
        "{paused}, not {end}"
    );
    let swept = day.await_placed("sweep", 1, swept + SignedDuration::from_secs(1)).await;

    // it comes back by itself, and waits in its turn for the floor of the sweep
    let returned = day.await_placed("gang", 2, paused).await;
    assert!(returned >= swept + FLOOR, "the gang was back at {returned}, the sweep came at {swept}");
    let again = async || {
        let again = day.annotation(&group, STAMP).await.filter(|again| *again != start.to_string());
        Ok(again.and_then(|again| again.parse::<Timestamp>().ok()).filter(|again| *again >= returned))
    };
    eventually("another start of the gang", DEADLINE, again).await.unwrap();

    // in the evening each team has been told once what happened
    let events = [
        ("MaxDurationApproaching", 1),
        ("MaxDurationExceeded", 1),
        ("EvictedDueToPodsReadyTimeout", 1),
        ("Requeued", 2),
    ];
    for (reason, count) in events {
        let recorded = namespace.await_events_of(reason, count).await;
        assert!(recorded.len() == count || reason == "MaxDurationApproaching", "{recorded:?}");
    }
    let mut paused_jobs = audit::of_keeper(&world.cluster, "patch", "jobs", namespace.name());
    paused_jobs.sort_unstable();
    // a pause and a return each, and the gang's notice; its second run may have one as well
    assert!(paused_jobs.starts_with(&["fragile"; 2].map(str::to_owned)), "{paused_jobs:?}");
    assert!([5, 6].contains(&paused_jobs.len()), "{paused_jobs:?}");
    for log in ["tenure-webhook.log", "tenure-keeper.log"] {
        let log = fs::read_to_string(world.cluster.directory().join(log)).unwrap();
        let errors: Vec<_> = log.lines().filter(|line| line.starts_with("level=error ")).collect();
        assert!(errors.is_empty(), "{errors:#?}");
    }
}
