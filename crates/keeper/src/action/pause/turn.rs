//! The turn of a write that ends a run.

use tenure_index::{DuePod, Task};
use tenure_types::projection::Pod;

use super::{
    super::{Done, Failure, Pauser},
    Attempt,
};

impl Pauser {
    /// Waits until the rate limit allows a write, and lists the extensions; returns the result in place of the end of a run that
    /// was granted more time.
    pub(super) async fn take_turn(
        &self,
        (task, pod): (Task, &Pod),
        due: &DuePod,
    ) -> Result<Option<Attempt>, Failure> {
        self.await_turn().await;
        Ok(self.is_extended(task, due, pod).await?.then(|| Attempt::Done(Done::extended())))
    }

    /// Waits until the rate limit allows a write. A dry run writes nothing.
    pub(super) async fn await_turn(&self) {
        if !self.dry_run {
            self.limit.until_ready().await;
        }
    }
}
