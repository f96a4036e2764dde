//! Writes that wait, that conflict, and that count for the rate limit.

use std::num::NonZeroU32;

use jiff::SignedDuration;
use tenure_service::limit::write_limit;

use super::*;

#[tokio::test(start_paused = true)]
async fn each_write_counts_for_the_rate_limit_also_those_that_come_too_late_and_these_are_few() {
    let server = Server::new();
    server.refuse(Method::PATCH, DEPLOYMENT, 409);
    let (slow, tokens) = (NonZeroU32::MIN, 100);
    let limit = write_limit(slow, NonZeroU32::new(tokens).unwrap());
    let pauser = Pauser { limit, ..pauser(&server) };
    assert!(pauser.act(&due(0)).await.is_err());
    let tries = server.0.lock().refusals;
    assert!((2..=4).contains(&tries), "{tries}");
    let left = std::iter::from_fn(|| pauser.limit.check().ok()).count();
    // one comes back each second
    assert!(left <= tokens as usize - tries + 1, "{left} of {tokens} are left after {tries} writes");
}

#[tokio::test(start_paused = true)]
async fn no_list_comes_between_the_reading_of_an_owner_and_its_pause_or_deletion() {
    let extensions = json!({"maxTotal": "1h", "maxCount": 1});
    for deletes_owner in [false, true] {
        let (server, pauser, mut group) =
            undone(0, LATER, json!({"maxDuration": "1h", "extensions": extensions}));
        group.first.deadline = pauser.handles.now();
        if deletes_owner {
            pauser.handles.config.set(deletes());
            server.refuse(Method::DELETE, DEPLOYMENT, 409);
        }
        server.refuse(Method::PATCH, DEPLOYMENT, 409);
        // as long as the tenant's extensions are many
        server.0.lock().listing = Duration::from_secs(2);
        // no list is young enough to be used again
        let forget = async {
            loop {
                *pauser.extensions.lock() = ListedExtensions::default();
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::select! {
            done = pauser.act(&group) => assert!(done.is_err()),
            () = forget => {}
        }
        let state = server.0.lock();
        assert!(state.gaps.iter().all(|gap| *gap < Duration::from_secs(1)), "{:?}", state.gaps);
        // before an owner is deleted, that is tried
        let least = 3 + usize::from(deletes_owner);
        assert!(state.gaps.len() >= least && state.listed.len() >= 3, "{:?} {:?}", state.gaps, state.listed);
    }
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_changes_while_its_pause_waits_is_read_again_and_paused_at_once() {
    let extensions = json!({"maxTotal": "1h", "maxCount": 1});
    let (server, pauser, mut group) =
        undone(0, LATER, json!({"maxDuration": "1h", "extensions": extensions}));
    group.first.deadline = pauser.handles.now() - SignedDuration::from_secs(1);
    server.0.lock().listing = Duration::from_secs(2);
    let changed = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        server.merge(DEPLOYMENT, &json!({"metadata": {"resourceVersion": "2"}}));
    };
    let (acted, ()) = tokio::join!(act_on(&pauser, &server, &group), changed);
    assert_eq!(acted, saw("paused Deployment", &["PATCH deployments/web"]));
    assert_eq!(server.0.lock().gaps.len(), 1, "no patch came too late");
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_is_paused_by_another_while_its_pause_waits_is_not_paused_again() {
    let extensions = json!({"maxTotal": "1h", "maxCount": 1});
    let (server, pauser, mut group) =
        undone(0, LATER, json!({"maxDuration": "1h", "extensions": extensions}));
    group.first.deadline = pauser.handles.now() - SignedDuration::from_secs(1);
    server.0.lock().listing = Duration::from_secs(2);
    let by_another = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let change = json!({"metadata": {"resourceVersion": "2"}, "spec": {"replicas": 0}});
        server.merge(DEPLOYMENT, &change);
    };
    let (acted, ()) = tokio::join!(act_on(&pauser, &server, &group), by_another);
    assert_eq!(acted, saw("paused before", &[]));
}

#[tokio::test(start_paused = true)]
async fn an_eviction_whose_owner_has_just_changed_is_put_off_until_it_is_late_and_then_counts() {
    let put_off = (1, saw("put off: its owner has just changed", &[]), 1);
    let failed = (61, saw("failed: failed to pause Deployment web (apps/v1)", &[]), 4);
    for (seconds, expected, writes) in [put_off, failed] {
        let (server, pauser, group) =
            undone(0, LATER, json!({"maxDuration": "1h", "waitForPodsReady": {"timeout": "1s"}}));
        show_pod(&pauser, &server);
        server.refuse(Method::PATCH, DEPLOYMENT, 409);
        let mut group = DueBatch { task: Task::Evict, ..group };
        group.first.deadline = pauser.handles.now() - SignedDuration::from_secs(seconds);
        assert_eq!(act_on(&pauser, &server, &group).await, expected, "{seconds}");
        assert_eq!(server.0.lock().refusals, writes, "{seconds}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_run_ends_by_the_extensions_that_the_watch_has_shown() {
    let extensions = json!({"maxTotal": "1h", "maxCount": 1});
    for (seconds, is_late) in [(29, false), (31, true)] {
        let (server, pauser, mut group) =
            undone(0, LATER, json!({"maxDuration": "1h", "extensions": extensions}));
        group.first.deadline = pauser.handles.now() - SignedDuration::from_secs(seconds);
        let acted = act_on(&pauser, &server, &group).await;
        assert_eq!(acted, saw("paused Deployment", &["PATCH deployments/web"]));
        assert_eq!(server.0.lock().listed.is_empty(), is_late, "{seconds}");
    }
}
