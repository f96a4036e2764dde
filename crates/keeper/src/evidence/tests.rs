use tenure_types::{podgroup::PodGroupKind, runai::v3alpha1};

use super::*;
use crate::testing::{Keeper, Server, terminating, until};

mod histories;

/// Has pods whose group names their queue.
fn members(failing: &str, count: usize) -> (EvidenceWriter, Server) {
    let keeper = Keeper::new();
    let queue: v3alpha1::QueueSpec = serde_json::from_value(json!({"maxDuration": "1m"})).unwrap();
    keeper.handles.cluster.with(|index| index.apply_queue("short", &queue));
    keeper.add_pods(failing, count, &json!({"labels": null, "annotations": {"pod-group-name": "gang"}}));
    let namespaces = (0..3).map(|number| format!("{failing}{number}"));
    for namespace in namespaces.chain((0..10).map(|number| format!("fine-{number}"))) {
        let group = json!({
            "metadata": {"name": "gang", "namespace": namespace, "uid": "g", "creationTimestamp": "2025-12-31T22:00:00Z"},
            "spec": {"queue": "short", "minMember": 1},
        });
        keeper.handles.cluster.with(|index| {
            index.apply_group(PodGroupKind::Runai, &serde_json::from_value(group).unwrap());
        });
    }
    let Keeper { handles, server } = keeper;
    let retry_full = Wait { first: Duration::from_secs(5), last: Duration::from_secs(40) };
    (EvidenceWriter { limit: handles.limit(), handles, retry_full }, server)
}

#[tokio::test(start_paused = true)]
async fn pods_whose_evidence_hangs_hold_up_no_other_namespace() {
    let (lead, shutdown) = (Leadership::always(), CancellationToken::new());
    let (evidence, server) = members("hangs-", 40);
    let waited = until(evidence.run(&lead, &shutdown), server.written("fine-", 10)).await;
    assert!(waited <= Duration::from_secs(3), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_could_not_be_annotated_is_tried_again_after_a_minute_or_an_hour_after_a_refusal() {
    let (lead, shutdown) = (Leadership::always(), CancellationToken::new());
    for (failing, minutes) in [("fails-", 1), ("refuses-", 60)] {
        let (evidence, server) = members(failing, 1);
        let passed = sleep(Duration::from_secs(150 * minutes));
        until(evidence.run(&lead, &shutdown), passed).await;
        assert_eq!(server.writes(&format!("{failing}0")), 3, "{failing}");
        assert!(server.0.lock().deleted.is_empty(), "{failing}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_has_no_room_for_its_evidence_is_deleted_after_all_tries() {
    let (lead, shutdown) = (Leadership::always(), CancellationToken::new());
    let (evidence, server) = members("full-", 1);
    let events = &evidence.handles.events;
    let told = async {
        while events.clear().iter().all(|event| event.reason != EventReason::EvidenceRefused) {
            sleep(Duration::from_millis(10)).await;
        }
    };
    let waited = until(evidence.run(&lead, &shutdown), told).await;
    // jitter shortens each of the nine waits by up to a half
    assert!((Duration::from_secs(137)..Duration::from_mins(5)).contains(&waited), "{waited:?}");
    let pod = server.0.lock().deleted.first().cloned().unwrap();
    assert_eq!(server.writes(&pod), usize::from(TRIES) + 2, "one more try, and the deletion");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_has_no_room_for_its_evidence_is_deleted_at_the_next_try_once_its_group_is_gone() {
    let (lead, shutdown) = (Leadership::always(), CancellationToken::new());
    for is_replaced in [false, true] {
        let (evidence, server) = members("full-", 1);
        let cluster = evidence.handles.cluster.clone();
        let deleted = async {
            server.written("full-0", 1).await;
            cluster.with(|index| index.delete_group(PodGroupKind::Runai, "full-0", "gang"));
            if is_replaced {
                let metadata = json!({"name": "gang", "namespace": "full-0", "uid": "another"});
                let group = serde_json::from_value(json!({"metadata": metadata, "spec": {}})).unwrap();
                cluster.with(|index| index.apply_group(PodGroupKind::Runai, &group));
            }
            while server.0.lock().deleted.is_empty() {
                sleep(Duration::from_millis(10)).await;
            }
        };
        let waited = until(evidence.run(&lead, &shutdown), deleted).await;
        assert!(waited <= Duration::from_secs(45), "{waited:?}");
        assert_eq!(server.0.lock().deleted, ["full-0/pods/full-0-0"], "the others have their groups");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_was_deleted_before_its_evidence_was_written_gets_it_or_has_its_grace_shortened() {
    let (lead, shutdown) = (Leadership::always(), CancellationToken::new());
    let (evidence, server) = members("full-", 1);
    let keeper = Keeper { server: server.clone(), handles: Arc::clone(&evidence.handles) };
    let mut deleted = terminating();
    (deleted["labels"], deleted["annotations"]) = (json!(null), json!({"pod-group-name": "gang"}));
    keeper.add_pods("full-", 1, &deleted);
    let is_done = || {
        let state = server.0.lock();
        state.deleted.len() >= 3 && state.evidence.len() == 10
    };
    let done = async {
        while !is_done() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    let waited = until(evidence.run(&lead, &shutdown), done).await;
    assert!(waited <= Duration::from_secs(3), "{waited:?}");
    let state = server.0.lock();
    assert!(state.deleted.iter().all(|pod| pod.starts_with("full-")), "{:?}", state.deleted);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_has_no_room_for_its_evidence_is_deleted_even_if_it_needs_none_now_and_then() {
    let (lead, shutdown) = (Leadership::always(), CancellationToken::new());
    let keeper = Keeper::new();
    keeper.add_pod("full-0", "pod", &json!({"annotations": {"pod-group-name": "gang"}}));
    let Keeper { handles, server } = keeper;
    let cluster = handles.cluster.clone();
    let toggled = async {
        while server.0.lock().deleted.is_empty() {
            // evidence is needed of a ceiling that the group has noted, while the group notes it no more
            for annotations in [json!({"tenure.dev/max-duration": "30s"}), json!({})] {
                let metadata =
                    json!({"name": "gang", "namespace": "full-0", "uid": "g", "annotations": annotations});
                let group = serde_json::from_value(json!({"metadata": metadata, "spec": {}})).unwrap();
                cluster.with(|index| index.apply_group(PodGroupKind::Runai, &group));
                sleep(Duration::from_secs(4)).await;
            }
        }
    };
    let retry_full = Wait { first: Duration::from_secs(5), last: Duration::from_secs(40) };
    let evidence = EvidenceWriter { limit: handles.limit(), handles, retry_full };
    let waited = until(evidence.run(&lead, &shutdown), toggled).await;
    assert!(waited <= Duration::from_mins(3), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_run_nothing_ends_is_not_deleted_for_want_of_evidence() {
    let (lead, shutdown) = (Leadership::always(), CancellationToken::new());
    let (evidence, server) = members("full-", 1);
    evidence.handles.cluster.with(|index| index.apply_queue("short", &v3alpha1::QueueSpec::default()));
    // by then it would have been deleted
    until(evidence.run(&lead, &shutdown), sleep(Duration::from_mins(6))).await;
    let state = server.0.lock();
    assert!(state.deleted.is_empty() && !state.written.is_empty(), "{:?}", state.written);
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_controller_exempts_it_is_not_deleted_for_want_of_evidence_if_the_controller_exists() {
    let (lead, shutdown) = (Leadership::always(), CancellationToken::new());
    for (failing, exists) in [("full-daemons-", true), ("full-forged-", false)] {
        let (evidence, server) = members(failing, 1);
        until(evidence.run(&lead, &shutdown), sleep(Duration::from_mins(30))).await;
        assert_eq!(server.0.lock().deleted.is_empty(), exists, "{failing}");
    }
}
