//! Owners that are deleted at their ceiling, where their row says so.

use super::*;

#[tokio::test(start_paused = true)]
async fn where_its_row_says_so_the_owner_is_deleted_at_its_ceiling_as_it_was_read() {
    let server = Server::new();
    let pauser = pauser(&server);
    pauser.handles.config.set(deletes());
    let events = events(&pauser, &due(0)).await;
    assert_eq!(server.changes(), [DELETED_OWNER]);
    let line = |event: &EventRecord| {
        let of = event.object.name.clone().unwrap_or_default();
        format!("{} {of}: {}", event.reason.name(), event.note)
    };
    let expected = [
        "MaxDurationExceeded web: Deleted because its lifetime exceeded maxDuration defined in Queue, and the configuration of Tenure has onExpiry: Delete for Deployment",
        "RunEnded web: Its run in Queue demo has reached the ceiling of 1s, set by that queue. Deployment web was deleted with its pods, because the configuration of Tenure says so of this kind (onExpiry: Delete). It doesn't come back: to run it again, create it again",
    ];
    assert_eq!(events.iter().map(line).collect::<Vec<_>>(), expected);
    // after all tries the next one below is paused, and then the pod is deleted
    server.merge(DEPLOYMENT, &json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}));
    assert_eq!(act(&pauser, &server, 1).await, saw("an owner is being deleted", &[]));
    assert_eq!(act(&pauser, &server, TRIES).await, saw("paused ReplicaSet", &["PATCH replicasets/web-1"]));
    assert_eq!(act(&pauser, &server, TRIES + 1).await, saw("deleted", &[DELETED]));
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_says_that_the_owner_would_be_deleted_and_deletes_nothing() {
    let server = Server::new();
    let mut pauser = pauser(&server);
    handles(&mut pauser).dry_run = true;
    pauser.handles.config.set(deletes());
    let done = pauser.act(&due(0)).await.unwrap_or_else(|failure| panic!("{failure}"));
    let notes: Vec<_> = done.events.iter().map(|event| (event.reason.name(), event.note.as_str())).collect();
    let expected = "Dry run, nothing was done: Deleted because its lifetime exceeded maxDuration defined in Queue, and the configuration of Tenure has onExpiry: Delete for Deployment";
    assert_eq!(notes, [("MaxDurationExceeded", expected)]);
    assert_eq!(server.changes(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn an_owner_whose_row_says_delete_is_paused_when_it_is_evicted() {
    let (server, pauser, group) =
        undone(0, LATER, json!({"maxDuration": "1h", "waitForPodsReady": {"timeout": "1s"}}));
    pauser.handles.config.set(deletes());
    show_pod(&pauser, &server);
    let group = DueBatch { task: Task::Evict, ..group };
    assert_eq!(act_on(&pauser, &server, &group).await, saw("paused Deployment", &["PATCH deployments/web"]));
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_is_paused_or_may_not_be_deleted_is_left_until_its_pod_is_deleted_after_all_tries() {
    let server = Server::new();
    let pauser = pauser(&server);
    pauser.handles.config.set(deletes());
    server.refuse(Method::DELETE, DEPLOYMENT, 403);
    let failed = saw("failed: failed to delete Deployment web (apps/v1)", &[]);
    assert_eq!(act(&pauser, &server, 0).await, failed);
    assert_eq!(act(&pauser, &server, TRIES).await, saw("deleted", &[DELETED]));
    server.merge(DEPLOYMENT, &json!({"spec": {"replicas": 0}}));
    assert_eq!(act(&pauser, &server, 0).await, saw("paused before", &[]));
}
