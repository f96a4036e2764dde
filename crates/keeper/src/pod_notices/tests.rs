use serde_json::json;
use tokio::time::Instant;

use super::*;
use crate::testing::{Keeper, Server, until};

/// Has the pods that were added show an end.
fn notices(failing: &str) -> (PodNotices, Server) {
    let keeper = Keeper::new();
    keeper.add_pods(failing, 40, &json!({}));
    let Keeper { handles, server } = keeper;
    let notices = PodNotices { handles };
    let namespaces = (0..3).map(|number| format!("{failing}{number}"));
    for namespace in namespaces.chain((0..10).map(|number| format!("fine-{number}"))) {
        // those in trouble first
        let end =
            if namespace.starts_with("fine-") { "2026-01-02T00:00:00Z" } else { "2026-01-01T12:00:00Z" };
        let owner = (namespace.as_str(), Uid::of(&namespace));
        notices.handles.notified_workloads.note_end(
            owner,
            Some(end.parse().unwrap()),
            true,
            std::iter::empty(),
        );
    }
    (notices, server)
}

#[tokio::test(start_paused = true)]
async fn namespaces_whose_pods_can_not_be_written_hold_up_no_notice_in_another() {
    let (lead, shutdown) = (Leadership::always(), CancellationToken::new());
    for failing in ["fails-", "hangs-"] {
        let (notices, server) = notices(failing);
        let begun = Instant::now();
        let passed = async {
            server.written("fine-", 10).await;
            assert!(begun.elapsed() <= Duration::from_secs(3), "{failing}: {:?}", begun.elapsed());
            sleep(Duration::from_mins(10)).await;
        };
        until(notices.run(&lead, &shutdown), passed).await;
        assert_eq!(server.writes("fine-"), 10, "once each");
        let writes = server.writes(failing);
        assert!((30..=120).contains(&writes), "{failing} is tried again, but not all the time: {writes}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_notice_was_refused_is_not_asked_again_before_the_next_notice() {
    let (lead, shutdown) = (Leadership::always(), CancellationToken::new());
    let (notices, server) = notices("refuses-");
    for round in 1..=2 {
        let passed = async {
            server.written("refuses-", 120).await;
            sleep(Duration::from_mins(10)).await;
        };
        until(notices.run(&lead, &shutdown), passed).await;
        assert_eq!(server.writes("refuses-2"), round * 40);
        for number in 0..3 {
            let namespace = format!("refuses-{number}");
            let end = Some("2026-01-01T12:00:00Z".parse().unwrap());
            notices.handles.notified_workloads.note_end(
                (&namespace, Uid::of(&namespace)),
                end,
                true,
                std::iter::empty(),
            );
        }
    }
}
