//! Events of the end of a run.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_run_that_ends_without_the_notice_that_it_was_to_get_has_an_event_that_says_so() {
    let late = "It got no notice beforehand, since the keeper could not write one in time";
    for (notice, given, expected) in [
        (Some("10m"), Value::Null, true),
        (Some("10m"), json!("2026-01-01T00:00:00Z"), true),
        (Some("10m"), json!("2026-01-02T03:54:07Z"), false),
        (None, Value::Null, false),
    ] {
        let (server, pauser, group) = undone(0, LATER, json!({"maxDuration": "1h", "expiryNotice": notice}));
        let annotations = json!({
            "tenure.dev/paused": null, "tenure.dev/expires-at": "2026-01-02T04:04:07Z", "tenure.dev/notice-given-at": given,
        });
        server.merge(DEPLOYMENT, &json!({"metadata": {"annotations": annotations}}));
        let events = pauser.act(&group).await.unwrap_or_else(|failure| panic!("{failure}")).events;
        let ended = events.iter().find(|event| event.reason.name() == "RunEnded").unwrap();
        assert_eq!(ended.note.ends_with(late), expected, "{notice:?} {given}: {}", ended.note);
    }
}

/// A journal with a notice that another keeper gave two minutes before the end, and its event may be missing.
fn notice_of_another(uid: &str) -> String {
    let notice = json!({
        "act": "noticed", "queue": "demo", "end": "2026-01-02T04:04:07Z", "at": "2026-01-02T04:02:07Z", "then": "paused",
    });
    json!({"uid": uid, "acts": [notice]}).to_string()
}

#[tokio::test(start_paused = true)]
async fn a_pause_leaves_what_another_keeper_may_not_have_recorded_in_the_journal() {
    let (server, mut pauser, group) = undone(0, LATER, json!({"maxDuration": "1h"}));
    handles(&mut pauser).clock = ServerClock::starting_at("2026-01-02T04:04:08Z".parse().unwrap());
    let uid = server.0.lock().objects[DEPLOYMENT]["metadata"]["uid"].as_str().unwrap().to_owned();
    let annotations = json!({"tenure.dev/paused": null, "tenure.dev/acts": notice_of_another(&uid)});
    server.merge(DEPLOYMENT, &json!({"metadata": {"annotations": annotations}}));
    assert_eq!(events(&pauser, &group).await.len(), 2, "the end, and the same in words");
    let metadata = serde_json::from_value(server.0.lock().objects[DEPLOYMENT]["metadata"].clone()).unwrap();
    let acts = pause::acts_on(&metadata, pauser.handles.now());
    assert!(matches!(acts[..], [JournalAct::Noticed(_), JournalAct::Paused { .. }]), "{acts:?}");
}

#[tokio::test(start_paused = true)]
async fn what_the_journal_of_a_pod_owes_is_recorded_before_the_pod_is_deleted() {
    let (server, mut pauser, group) = undone(0, LATER, json!({"maxDuration": "1h", "expiryNotice": "2m"}));
    handles(&mut pauser).clock = ServerClock::starting_at("2026-01-02T04:04:08Z".parse().unwrap());
    let annotations = json!({"tenure.dev/acts": notice_of_another("web-1-a")});
    server.merge(POD, &json!({"metadata": {"ownerReferences": null, "annotations": annotations}}));
    let mut reasons: Vec<_> = events(&pauser, &group).await.iter().map(|event| event.reason.name()).collect();
    reasons.sort_unstable();
    assert_eq!(reasons, ["MaxDurationApproaching", "MaxDurationExceeded", "RunEnded"]);
    assert_eq!(server.changes(), [DELETED]);
}

#[tokio::test(start_paused = true)]
async fn what_the_journal_of_a_pod_owes_is_recorded_after_the_deletion_where_its_dry_run_is_refused() {
    let (server, mut pauser, group) = undone(0, LATER, json!({"maxDuration": "1h", "expiryNotice": "2m"}));
    handles(&mut pauser).clock = ServerClock::starting_at("2026-01-02T04:04:08Z".parse().unwrap());
    let annotations = json!({"tenure.dev/acts": notice_of_another("web-1-a")});
    server.merge(POD, &json!({"metadata": {"ownerReferences": null, "annotations": annotations}}));
    server.0.lock().refused_dry_run = Some(400);
    let done = pauser.act(&group).await.unwrap();
    let reasons: Vec<_> = done.events.iter().map(|event| event.reason.name()).collect();
    assert_eq!(reasons, ["MaxDurationApproaching", "MaxDurationExceeded", "RunEnded"]);
    assert_eq!(server.changes(), [DELETED]);
}

#[tokio::test(start_paused = true)]
async fn the_events_of_a_deletion_are_tried_before_it_since_nothing_is_left_to_note_them_on() {
    let server = Server::new();
    let pauser = pauser(&server);
    server.merge(POD, &json!({"metadata": {"ownerReferences": null}}));
    let group = due(0);
    let recorder = async {
        for _ in 0..2 {
            while pauser.handles.events.work.waiting() == 0 {
                pauser.handles.events.work.changed().await;
            }
            assert_eq!(server.changes(), [""; 0]);
            assert!(pauser.handles.events.written().is_some());
        }
    };
    let (done, ()) = tokio::join!(pauser.act(&group), recorder);
    assert!(done.is_ok_and(|done| done.events.is_empty()));
    assert_eq!(server.changes(), [DELETED]);
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_the_api_server_refuses_is_not_recorded() {
    let server = Server::new();
    let pauser = pauser(&server);
    server.merge(POD, &json!({"metadata": {"ownerReferences": null}}));
    server.refuse(Method::DELETE, POD, 403);
    assert!(pauser.act(&due(0)).await.is_err());
    assert_eq!(pauser.handles.events.work.waiting(), 0);
}

#[tokio::test(start_paused = true)]
async fn no_deletion_goes_unrecorded_where_its_dry_run_alone_fails() {
    let server = Server::new();
    let pauser = pauser(&server);
    server.merge(POD, &json!({"metadata": {"ownerReferences": null}}));
    // the API server doesn't answer
    server.0.lock().refused_dry_run = Some(500);
    assert!(pauser.act(&due(0)).await.is_err());
    assert_eq!((server.changes(), pauser.handles.events.work.waiting()), (Vec::new(), 0));
    // it refuses dry runs, as it does where a webhook has side effects
    server.0.lock().refused_dry_run = Some(400);
    let done = pauser.act(&due(0)).await;
    assert_eq!(done.map(|done| done.events.len()).ok(), Some(2));
    assert_eq!((server.changes(), pauser.handles.events.work.waiting()), (vec![DELETED.into()], 0));
}
