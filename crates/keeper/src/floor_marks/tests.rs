use serde_json::json;
use tenure_types::runai::v3alpha1;

use super::*;
use crate::testing::{Keeper, until};

#[tokio::test(start_paused = true)]
async fn namespaces_whose_pods_can_not_be_written_hold_up_no_marks_in_another() {
    let (lead, shutdown) = (Leadership::always(), CancellationToken::new());
    for failing in ["fails-", "hangs-"] {
        let keeper = Keeper::new();
        let queue: v3alpha1::QueueSpec = serde_json::from_value(json!({"preemptMinRuntime": "1d"})).unwrap();
        keeper.handles.cluster.with(|index| index.apply_queue("careful", &queue));
        keeper.add_pods(failing, 40, &json!({"labels": {"kai.scheduler/queue": "careful"}}));
        let Keeper { handles, server } = keeper;
        let marks = FloorMarks { limit: handles.limit(), handles };
        let waited = until(marks.run(&lead, &shutdown), server.written("fine-", 10)).await;
        assert!(waited <= Duration::from_secs(3), "{failing}: {waited:?}");
    }
}
