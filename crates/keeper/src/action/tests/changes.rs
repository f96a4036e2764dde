//! Facts that have changed since a run was judged.

use tenure_index::CeilingOptions;
use tenure_types::podgroup::PodGroupKind;

use super::*;

#[tokio::test(start_paused = true)]
async fn by_a_tree_of_queues_that_lacks_one_nothing_is_paused_for_a_moment() {
    let leaf = json!({"maxDuration": "1h", "parentQueue": "root"});
    let (server, pauser, group) = undone(0, LATER, leaf.clone());
    let now = pauser.handles.clock.now();
    pauser.handles.cluster.with(|index| {
        index.know_queues();
        let root = serde_json::from_value::<QueueSpec>(json!({})).unwrap();
        index.change_queues(now, |index| index.apply_queue("root", &root));
        index.reschedule();
        index.change_queues(now, |index| index.delete_queue(Family::Runai, "root"));
    });
    let missing = "put off: a queue on its way to the root is missing for a moment";
    assert_eq!(act_on(&pauser, &server, &group).await, saw(missing, &[]));
    server.set_queues(RUNAI_QUEUES, &[("q", leaf), ("root", json!({}))]);
    pauser.handles.queues.forget();
    let root = serde_json::from_value::<QueueSpec>(json!({})).unwrap();
    pauser.handles.cluster.with(|index| index.change_queues(now, |index| index.apply_queue("root", &root)));
    assert_eq!(act_on(&pauser, &server, &group).await, saw("paused Deployment", &["PATCH deployments/web"]));
}

const POD_CHANGED: &str = "put off: the pod has changed since it was judged";
const QUEUE_CHANGED: &str = "put off: its queue has changed since it was judged";

#[tokio::test(start_paused = true)]
async fn a_pod_that_has_changed_since_it_was_judged_is_not_acted_on() {
    let long = json!({"maxDuration": "10y"});
    for (change, expected) in [
        (json!({"metadata": {"labels": {"scheduler.tensorstack.dev/queue": null}}}), POD_CHANGED),
        (json!({"metadata": {"labels": {"scheduler.tensorstack.dev/queue": "long"}}}), POD_CHANGED),
        (json!({"metadata": {"labels": {"scheduler.tensorstack.dev/group-name": "group"}}}), POD_CHANGED),
        (json!({"spec": {"priority": 2_000_000_000}}), "the pod is gone or exempt"),
        (json!({"metadata": {"creationTimestamp": "2026-02-01T00:00:00Z"}}), POD_CHANGED),
    ] {
        let server = Server::new();
        let pauser = pauser(&server);
        let group =
            json!({"metadata": {"name": "group", "namespace": "ns", "uid": "g"}, "spec": {"queue": "long"}});
        pauser.handles.cluster.with(|index| {
            index.apply_queue("long", &serde_json::from_value::<v1beta1::QueueSpec>(long.clone()).unwrap());
            index.apply_group(PodGroupKind::Tensorstack, &serde_json::from_value(group).unwrap());
        });
        server.merge(POD, &change);
        for attempts in [0, TRIES] {
            assert_eq!(act(&pauser, &server, attempts).await, saw(expected, &[]), "{change}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn by_a_queue_that_has_changed_since_it_was_judged_nothing_is_paused() {
    let server = Server::new();
    let pauser = pauser(&server);
    for changed in [&[("demo", json!({"maxDuration": "1d"}))][..], &[("demo", json!({}))], &[]] {
        server.set_queues(T9K_QUEUES, changed);
        pauser.handles.queues.forget();
        assert_eq!(act(&pauser, &server, 0).await, saw(QUEUE_CHANGED, &[]), "{changed:?}");
    }
    let demo = json!({"maxDuration": "2s"});
    server.set_queues(T9K_QUEUES, &[("demo", demo.clone())]);
    pauser.handles.queues.forget();
    pauser.handles.cluster.with(|index| {
        index.apply_queue("demo", &serde_json::from_value::<v1beta1::QueueSpec>(demo).unwrap())
    });
    assert_eq!(act(&pauser, &server, 0).await, saw("paused Deployment", &["PATCH deployments/web"]));
}

#[tokio::test(start_paused = true)]
async fn by_the_default_queue_nothing_is_paused_once_the_queue_that_the_pod_names_exists() {
    let server = Server::new();
    server.merge(POD, &json!({"metadata": {"labels": {"scheduler.tensorstack.dev/queue": "typo"}}}));
    let pauser = pauser(&server);
    let mut settings = CeilingOptions::default();
    settings.default_queues[Family::Tensorstack] = Some("demo".into());
    pauser.handles.cluster.with(|index| index.configure(settings));
    let demo = ("demo", json!({"maxDuration": "1s"}));
    server.set_queues(T9K_QUEUES, &[demo.clone(), ("typo", json!({}))]);
    assert_eq!(act(&pauser, &server, 0).await, saw(QUEUE_CHANGED, &[]));
    server.set_queues(T9K_QUEUES, &[demo]);
    pauser.handles.queues.forget();
    assert_eq!(act(&pauser, &server, 0).await, saw("paused Deployment", &["PATCH deployments/web"]));
}

#[tokio::test(start_paused = true)]
async fn the_api_server_is_not_asked_for_a_queue_that_cannot_exist() {
    let server = Server::new();
    let pauser = pauser(&server);
    server.refuse(Method::GET, T9K_QUEUES, 400);
    for name in ["no,pe", "demo,", "a=b", "a\\", "Q", "..", "a/b", &"q".repeat(254)] {
        assert_eq!(
            pauser.handles.queues.are_as_known(Family::Tensorstack, name).await.ok(),
            Some(true),
            "{name}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_queue_is_lengthened_while_a_dry_run_hangs_goes_on() {
    let server = Server::new();
    server.merge(POD, &json!({"metadata": {"ownerReferences": null}}));
    server.0.lock().dry_run = Duration::from_secs(6);
    let pauser = pauser(&server);
    let lengthened = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        let longer: v1beta1::QueueSpec = serde_json::from_value(json!({"maxDuration": "9000h"})).unwrap();
        pauser.handles.cluster.with(|index| index.apply_queue("demo", &longer));
    };
    let (acted, ()) = tokio::join!(act(&pauser, &server, 0), lengthened);
    assert_eq!(acted, saw("put off: its facts have just changed", &[]));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_gets_ready_while_the_dry_run_of_its_eviction_hangs_goes_on() {
    let changed = saw("put off: its facts have just changed", &[]);
    for (ready, expected) in [("False", saw("deleted", &[DELETED])), ("True", changed)] {
        let (server, pauser, group) = undone(0, LATER, json!({"waitForPodsReady": {"timeout": "1s"}}));
        server.merge(POD, &json!({"metadata": {"ownerReferences": null}}));
        server.0.lock().dry_run = Duration::from_secs(6);
        show_pod(&pauser, &server);
        let group = DueBatch { task: Task::Evict, ..group };
        let shown = async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            let condition = |kind: &str, status: &str, since: &str| json!({"type": kind, "status": status, "lastTransitionTime": since});
            let conditions =
                [condition("PodScheduled", "True", LATER), condition("Ready", ready, "2026-02-01T00:00:05Z")];
            server.merge(POD, &json!({"status": {"conditions": conditions}}));
            show_pod(&pauser, &server);
        };
        let (acted, ()) = tokio::join!(act_on(&pauser, &server, &group), shown);
        assert_eq!(acted, expected, "{ready}");
    }
}

#[tokio::test(start_paused = true)]
async fn by_a_queue_below_one_that_has_changed_since_it_was_judged_nothing_is_paused() {
    let leaf = json!({"parentQueue": "root"});
    let (server, pauser, group) = undone(0, LATER, leaf.clone());
    let root = |max: &str| json!({"maxDuration": max});
    pauser
        .handles
        .cluster
        .with(|index| index.apply_queue("root", &serde_json::from_value::<QueueSpec>(root("1h")).unwrap()));
    server.set_queues(RUNAI_QUEUES, &[("q", leaf.clone()), ("root", root("2h"))]);
    assert_eq!(act_on(&pauser, &server, &group).await, saw(QUEUE_CHANGED, &[]));
    server.set_queues(RUNAI_QUEUES, &[("q", leaf), ("root", root("1h"))]);
    pauser.handles.queues.forget();
    let by_pause = saw("paused Deployment", &["PATCH deployments/web"]);
    assert_eq!(act_on(&pauser, &server, &group).await, by_pause);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_paused_before_its_time_by_the_clock_that_the_last_answer_has_set() {
    let server = Server::new();
    let mut pauser = pauser(&server);
    handles(&mut pauser).clock = ServerClock::starting_at("1969-12-31T00:00:00Z".parse().unwrap());
    for task in [Task::Expire, Task::Evict] {
        let group = DueBatch { task, ..due(TRIES) };
        assert_eq!(act_on(&pauser, &server, &group).await, saw("too early", &[]), "{task:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn while_a_watch_has_not_answered_nothing_is_paused_or_deleted() {
    let server = Server::new();
    let pauser = pauser(&server);
    let queues = pauser.handles.gate.freshness.watch("queues", true);
    for attempts in [0, TRIES] {
        let expected = saw("put off: not all watches have answered", &[]);
        assert_eq!(act(&pauser, &server, attempts).await, expected, "{attempts}");
    }
    queues.confirm(Instant::now());
    assert_eq!(act(&pauser, &server, 0).await, saw("paused Deployment", &["PATCH deployments/web"]));
}

#[tokio::test(start_paused = true)]
async fn by_a_ceiling_that_its_owner_has_given_up_no_run_ends_but_its_queues_ceiling_holds() {
    let own = |of: &Value| json!({"metadata": {"annotations": {"tenure.dev/paused": null, "tenure.dev/max-duration": of}}});
    let changed = || saw("put off: its owner's ceiling has changed since it was judged", &[]);
    let by_pause = || saw("paused Deployment", &["PATCH deployments/web"]);
    for (of_queue, annotation, expected) in [
        ("10y", json!("1h"), by_pause()),
        ("10y", json!("2h"), by_pause()),
        ("10y", json!("10y"), changed()),
        ("10y", Value::Null, changed()),
        ("1h", json!("10y"), by_pause()),
        ("1h", Value::Null, by_pause()),
    ] {
        let (server, pauser, group) = undone(0, LATER, json!({"maxDuration": of_queue}));
        server.merge(DEPLOYMENT, &own(&json!("1h")));
        for (source, object) in [(1, DEPLOYMENT), (2, SET)] {
            let metadata = server.0.lock().objects[object]["metadata"].clone();
            let metadata = serde_json::from_value(metadata).unwrap();
            pauser.handles.cluster.with(|index| index.apply_owner(source, &metadata));
        }
        server.merge(DEPLOYMENT, &own(&annotation));
        assert_eq!(act_on(&pauser, &server, &group).await, expected, "{of_queue} {annotation}");
    }
}
