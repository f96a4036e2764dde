use super::*;
use crate::testing::{Keeper, terminating, until};

fn terminations(keeper: &Keeper) -> Terminations {
    let handles = Arc::clone(&keeper.handles);
    Terminations { limit: handles.limit(), handles }
}

#[tokio::test(start_paused = true)]
async fn pods_whose_deletion_hangs_hold_up_no_other_namespace_and_each_has_its_turn() {
    let keeper = Keeper::new();
    keeper.add_pods("hangs-", 40, &terminating());
    let (terminations, lead, shutdown) =
        (terminations(&keeper), Leadership::always(), CancellationToken::new());
    let waited = until(terminations.run(&lead, &shutdown), keeper.server.written("fine-", 10)).await;
    assert!(waited <= Duration::from_secs(3), "{waited:?}");
    let waited = until(terminations.run(&lead, &shutdown), keeper.server.written("hangs-", 120)).await;
    assert!(waited <= Duration::from_mins(3), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_may_terminate_for_longer_when_its_turn_has_come_is_not_shortened() {
    let keeper = Keeper::new();
    keeper.add_pods("fine-1", 40, &terminating());
    let (terminations, lead, shutdown) =
        (terminations(&keeper), Leadership::always(), CancellationToken::new());
    let lengthened = async {
        while keeper.server.0.lock().read.is_empty() {
            sleep(Duration::from_millis(1)).await;
        }
        keeper.set_ceiling("100h");
        sleep(Duration::from_mins(1)).await;
    };
    until(terminations.run(&lead, &shutdown), lengthened).await;
    assert_eq!(keeper.server.writes(""), 0);
}

#[tokio::test(start_paused = true)]
async fn at_the_end_calls_under_way_are_finished_and_no_other_begins() {
    let keeper = Keeper::new();
    keeper.add_pods("fine-1", 40, &terminating());
    let (terminations, lead, shutdown) =
        (terminations(&keeper), Leadership::always(), CancellationToken::new());
    let end = async {
        keeper.server.written("fine-", 3).await;
        shutdown.cancel();
    };
    tokio::join!(terminations.run(&lead, &shutdown), end);
    let state = keeper.server.0.lock();
    assert!(state.under_way.is_empty() && (3..100).contains(&state.written.len()));
}
