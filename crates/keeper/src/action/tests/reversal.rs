//! Pauses that another writer has undone.

use super::*;

#[tokio::test(start_paused = true)]
async fn where_three_pauses_were_undone_for_a_full_run_each_the_pod_is_deleted_if_its_queue_says_so() {
    let deletes = || json!({"maxDuration": "1h", "onReversal": "DeletePods"});
    let by_pause = || saw("paused Deployment", &["PATCH deployments/web"]);
    for (full, scheduled, spec, expected) in [
        (2, LATER, deletes(), saw("deleted", &[DELETED])),
        (9, LATER, deletes(), saw("deleted", &[DELETED])),
        (1, LATER, deletes(), by_pause()),
        (2, "2026-01-02T03:04:04Z", deletes(), by_pause()),
        (2, LATER, json!({"maxDuration": "1h"}), by_pause()),
        (9, LATER, json!({"maxDuration": "1h", "onReversal": "Pause"}), by_pause()),
        (
            9,
            LATER,
            json!({"maxDuration": "1h", "onReversal": "DeletePods", "maxDurationAction": "Requeue"}),
            by_pause(),
        ),
    ] {
        let (server, pauser, group) = undone(full, scheduled, spec.clone());
        assert_eq!(act_on(&pauser, &server, &group).await, expected, "{full} {scheduled} {spec}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_eviction_pauses_however_often_pauses_of_the_owner_were_undone() {
    let spec =
        json!({"maxDuration": "1h", "onReversal": "DeletePods", "waitForPodsReady": {"timeout": "1s"}});
    let (server, pauser, group) = undone(9, LATER, spec);
    show_pod(&pauser, &server);
    let group = DueBatch { task: Task::Evict, ..group };
    assert_eq!(act_on(&pauser, &server, &group).await, saw("paused Deployment", &["PATCH deployments/web"]));
}

#[tokio::test(start_paused = true)]
async fn what_the_owners_row_says_of_undone_pauses_comes_before_its_queue() {
    let row = |on_reversal| {
        let row = format!(
            "owners: [{{group: apps, kind: Deployment, path: spec.replicas, value: 0, onReversal: {on_reversal}}}]"
        );
        Config::parse(&row).unwrap()
    };
    let by_pause = saw("paused Deployment", &["PATCH deployments/web"]);
    for (of_row, of_queue, expected) in
        [("DeletePods", "Pause", saw("deleted", &[DELETED])), ("Pause", "DeletePods", by_pause)]
    {
        let spec = json!({"maxDuration": "1h", "onReversal": of_queue});
        let (server, pauser, group) = undone(2, LATER, spec);
        pauser.handles.config.set(row(of_row));
        assert_eq!(act_on(&pauser, &server, &group).await, expected, "{of_row} {of_queue}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_says_that_the_pod_would_be_deleted_and_nothing_of_its_owner() {
    let spec = json!({"maxDuration": "1h", "onReversal": "DeletePods"});
    let (server, mut pauser, group) = undone(2, LATER, spec);
    handles(&mut pauser).dry_run = true;
    let records = pauser.act(&group).await.unwrap_or_else(|failure| panic!("{failure}")).events;
    let recorded: Vec<_> =
        records.iter().map(|event| (event.object.kind.as_deref(), event.reason.name())).collect();
    assert_eq!(recorded, [(Some("Pod"), "MaxDurationExceeded")]);
    assert_eq!(server.changes(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn the_events_of_an_undone_pause_name_who_wrote_the_field_last() {
    let by = "last by field manager \"argocd\" (Update at 2026-01-02T03:04:06Z)";
    for (full, on_reversal) in [(1, "Pause"), (2, "DeletePods")] {
        let (_, pauser, group) = undone(full, LATER, json!({"maxDuration": "1h", "onReversal": on_reversal}));
        let events = events(&pauser, &group).await;
        let event = events.iter().find(|event| event.reason.name() == "PauseReversed").unwrap();
        assert_eq!(event.object.name.as_deref(), Some("web"));
        assert!(event.note.contains(by), "{}", event.note);
        assert_eq!(
            event.note.contains("onReversal: DeletePods"),
            on_reversal == "DeletePods",
            "{}",
            event.note
        );
        let ended = events.iter().find(|event| event.reason.name() == "RunEnded").unwrap();
        let reached = "Its run in Queue q has reached the ceiling of 1h, set by that queue. ";
        let (kind, then) = match on_reversal {
            "Pause" => (
                "Deployment",
                "It stays paused until you resume it, with a full ceiling again: kubectl tenure resume deployment.apps/web -n ns",
            ),
            _ => (
                "Pod",
                "The pod was deleted, because Deployment web (apps/v1) was resumed by another writer after each pause. To run it again, create it again",
            ),
        };
        assert_eq!(ended.object.kind.as_deref(), Some(kind));
        assert_eq!(ended.note, format!("{reached}{then}"));
    }
}
