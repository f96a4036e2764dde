//! Floors where they bind, in the answers of the extender and of the guard: those that the chart configures, also after a
//! change while the webhook runs, and those of a queue in KAI-Scheduler's version.

use jiff::{SignedDuration, Timestamp};
use kube::{ResourceExt, core::DynamicObject};
use serde_json::{Value, json};
use tenure_testbed::{RELEASE_NAMESPACE, eventually};
use tenure_tests::{
    DEADLINE, World,
    asker::Asker,
    callers::Caller,
    scheduling::{self, Arena, Wish},
};

use crate::{guarded, installed};

const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../charts/tenure");

/// The label of node pools. It isn't the default.
const POOL: &str = "example.com/pool";

/// The protection of a place's pods: true if against a pod of queue `silent`, true if against one of queue `other`, and
/// the guard's words.
type Protection = (bool, bool, Option<&'static str>);

/// Two pods of one queue that fill a node, so that none goes in place of the other unless both may: the extender is asked
/// about the first, and a permit that follows doesn't cover the second, which a scheduler tries to delete.
struct Place {
    node: String,
    asked: DynamicObject,
    deleted: DynamicObject,
}

impl Place {
    async fn new(arena: &Arena<'_>, name: &str, queue: &str) -> Self {
        let node = format!("{}-{name}", arena.node());
        arena.add_node(&node, 2).await;
        let on_node = json!({"spec": {"nodeSelector": {"kubernetes.io/hostname": node}}});
        let pod = async |role: &str| {
            let name = format!("{name}-{role}");
            let wish = Wish { name: &name, cpu: 1, queue, more: on_node.clone(), ..Wish::default() };
            arena.placed(&wish).await
        };
        Self { asked: pod("asked").await, deleted: pod("deleted").await, node }
    }

    /// True if the extender doesn't give the pod to this preemptor.
    async fn is_kept_from(&self, world: &World, preemptor: &DynamicObject) -> bool {
        let nodes = json!({&self.node: {"Pods": [{"UID": self.asked.uid()}], "NumPDBViolations": 0}});
        let answer = Caller::scheduler(world).ask(&json!(preemptor), &nodes).await;
        answer.get(&self.node).is_none()
    }

    /// Returns the floor that the guard's refusal of the deletion names. A refusal that names no floor,
    /// as while the API server is busy, is returned whole. None: the deletion is allowed.
    async fn refusal(&self, world: &World) -> Option<String> {
        let refusal = Asker::scheduler(world).await.would_delete(&self.deleted).await.err()?;
        let floor = refusal.message.split_once("s: ").and_then(|(_, floor)| floor.split(';').next());
        Some(floor.unwrap_or(&refusal.message).to_owned())
    }
}

/// A pod that is more important, and that no scheduler looks at.
async fn preemptor(arena: &Arena<'_>, name: &str, queue: &str) -> DynamicObject {
    let more = json!({"spec": {"schedulerName": "missing"}});
    arena.pod(&Wish { name, queue, cpu: 1, priority: 1000, more, ..Wish::default() }).await
}

/// Queues `silent` and `other` have no floor. Each of the teams has the opposite of its department's.
struct Scene<'w> {
    arena: Arena<'w>,
    /// One on any node, one on a node of the pool, and one in each team.
    places: [Place; 4],
    silent: DynamicObject,
    other: DynamicObject,
}

impl<'w> Scene<'w> {
    async fn new(world: &'w World) -> Self {
        let arena = Arena::new(world, 1).await;
        let silent = arena.queue("silent", json!({})).await;
        let other = arena.queue("other", json!({})).await;
        let mut teams = Vec::new();
        for (team, own, departments) in [("sheltered", "1h", "0s"), ("exposed", "0s", "1h")] {
            let department = json!({"reclaimMinRuntime": departments});
            let parent = arena.queue(&format!("above-{team}"), department).await;
            teams.push(arena.queue(team, json!({"parentQueue": parent, "reclaimMinRuntime": own})).await);
        }
        let places = [
            Place::new(&arena, "any", &silent).await,
            Place::new(&arena, "pooled", &silent).await,
            Place::new(&arena, "sheltered", &teams[0]).await,
            Place::new(&arena, "exposed", &teams[1]).await,
        ];
        let label = ["label", "node", &places[1].node, &format!("{POOL}=a100")];
        world.cluster.kubectl(&label).await.unwrap().success().unwrap();
        let silent = preemptor(&arena, "silent", &silent).await;
        let other = preemptor(&arena, "other", &other).await;
        Self { arena, places, silent, other }
    }

    /// Waits until extender and guard protect the pods of each place as expected.
    async fn await_protection(&self, expected: [Protection; 4]) {
        let world = self.arena.world;
        let protected = async || {
            let mut wrong = Vec::new();
            for (place, (from_silent, from_other, floor)) in self.places.iter().zip(expected) {
                let kept = [&self.silent, &self.other].map(|preemptor| place.is_kept_from(world, preemptor));
                let [silent, other] = kept;
                let found = (silent.await, other.await, place.refusal(world).await);
                let floor = floor.map(|floor| floor.replace("ARENA", self.arena.node()));
                if found != (from_silent, from_other, floor) {
                    wrong.push(format!("{}: {found:?}", place.node));
                }
            }
            anyhow::ensure!(wrong.is_empty(), "{wrong:#?}");
            Ok(Some(()))
        };
        eventually(&format!("protection as {expected:#?}"), DEADLINE, protected).await.unwrap();
    }

    /// Upgrades the release to these floors and no others, and has the webhook's file follow.
    async fn configure(&self, floors: Value) {
        let nothing = json!({
            "defaultPreemptMinRuntime": "", "defaultReclaimMinRuntime": "",
            "reclaimResolveMethod": "lca", "nodePoolLabelKey": POOL, "nodePools": [],
        });
        let mut all = nothing.as_object().unwrap().clone();
        all.extend(floors.as_object().unwrap().clone());
        let floors = format!("floors={}", Value::Object(all));
        let release = ["upgrade", "tenure", CHART, "--namespace", RELEASE_NAMESPACE, "--reuse-values"];
        let World { cluster, tenure } = self.arena.world;
        let upgrade = cluster.helm(&[&release[..], &["--set-json", &floors]].concat()).await;
        upgrade.unwrap().success().unwrap();
        tenure.update_config(cluster).await.unwrap();
    }
}

/// The floors that the guard names: the team's own, and its department's.
const OWN: &str = "reclaimMinRuntime of its queue \"ARENA-sheltered\" is 1h, from queue \"ARENA-sheltered\"";
const DEPARTMENTS: &str =
    "reclaimMinRuntime of its queue \"ARENA-exposed\" is 1h, from queue \"ARENA-above-exposed\"";

#[tokio::test]
async fn floors_of_the_chart_hold_at_extender_and_guard_and_change_while_they_run() {
    let values = ["schedulerExtender.enabled=true", "floors.defaultPreemptMinRuntime=2h"];
    let world = &Box::pin(installed("guard-configured", &values)).await.unwrap();
    world.tenure.start_webhook(&world.cluster).await.unwrap();
    scheduling::configure(world, &json!({})).await.unwrap();
    let webhook = world.tenure.webhook_pid().await.unwrap();
    let scene = Scene::new(world).await;

    // the default against the same queue, as the chart was installed
    let silent = "preemptMinRuntime of its queue \"ARENA-silent\" is 2h, by default";
    let sheltered = "preemptMinRuntime of its queue \"ARENA-sheltered\" is 2h, by default";
    let exposed = "preemptMinRuntime of its queue \"ARENA-exposed\" is 2h, by default";
    scene
        .await_protection([
            (true, false, Some(silent)),
            (true, false, Some(silent)),
            (false, false, Some(sheltered)),
            (true, true, Some(exposed)),
        ])
        .await;

    // the default against other queues
    scene.configure(json!({"defaultReclaimMinRuntime": "3h"})).await;
    let silent = "reclaimMinRuntime of its queue \"ARENA-silent\" is 3h, by default";
    let teams = [(false, false, Some(OWN)), (true, true, Some(DEPARTMENTS))];
    scene
        .await_protection([(false, true, Some(silent)), (false, true, Some(silent)), teams[0], teams[1]])
        .await;

    // both defaults of a pool, the first the longer, and none elsewhere
    let pool = |preempt: &str, reclaim: &str| {
        json!({
            "name": "a100", "defaultPreemptMinRuntime": preempt, "defaultReclaimMinRuntime": reclaim,
        })
    };
    scene.configure(json!({"nodePools": [pool("5h", "4h")]})).await;
    let pooled = "preemptMinRuntime of its queue \"ARENA-silent\" is 5h, from node pool \"a100\"";
    scene.await_protection([(false, false, None), (true, true, Some(pooled)), teams[0], teams[1]]).await;
    scene.configure(json!({"nodePools": [pool("0s", "4h")]})).await;
    let pooled = "reclaimMinRuntime of its queue \"ARENA-silent\" is 4h, from node pool \"a100\"";
    scene.await_protection([(false, false, None), (false, true, Some(pooled)), teams[0], teams[1]]).await;

    // the search begins at the victim's own queue
    scene.configure(json!({"reclaimResolveMethod": "queue"})).await;
    scene
        .await_protection([
            (false, false, None),
            (false, false, None),
            (true, true, Some(OWN)),
            (false, false, None),
        ])
        .await;
    assert_eq!(world.tenure.webhook_pid().await.unwrap(), webhook, "it has run all the time");
}

/// The queue of the text on the `MinRuntime` plugin, and its example.
#[tokio::test]
async fn a_queue_of_v2_protects_its_pods_until_they_have_run_for_their_minimum() {
    let world = guarded().await;
    let production = json!({
        "apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": "production"},
        "spec": {"preemptMinRuntime": "20s", "reclaimMinRuntime": "30s"},
    });
    world.apply(&production).await;
    let arena = &Arena::new(world, 1).await;
    let other = arena.queue("other", json!({})).await;
    let [own, other] =
        [("own", "production"), ("other", &other)].map(|(name, queue)| preemptor(arena, name, queue));
    let (own, other) = (own.await, other.await);
    let place = Place::new(arena, "node", "production").await;
    let expected = "reclaimMinRuntime of its queue \"production\" is 30s, from queue \"production\"";
    let protected = async || {
        let kept = place.is_kept_from(world, &own).await && place.is_kept_from(world, &other).await;
        Ok((kept && place.refusal(world).await.as_deref() == Some(expected)).then_some(()))
    };
    eventually("the pods to be protected", DEADLINE, protected).await.unwrap();
    let ran = async |pod| Timestamp::now().duration_since(arena.scheduled_at(pod).await);

    let given = async |preemptor| Ok((!place.is_kept_from(world, preemptor).await).then_some(()));
    eventually("the floor against its own queue to end", DEADLINE, async || given(&own).await).await.unwrap();
    assert!(ran(&place.asked).await >= SignedDuration::from_secs(20));
    eventually("the floor against other queues to end", DEADLINE, async || given(&other).await)
        .await
        .unwrap();
    assert!(ran(&place.asked).await >= SignedDuration::from_secs(30));
    let let_go = async || Ok(place.refusal(world).await.is_none().then_some(()));
    eventually("the guard to let go", DEADLINE, let_go).await.unwrap();
    assert!(ran(&place.deleted).await >= SignedDuration::from_secs(30));
}
