//! A progress bar on a terminal, for reads that take a while.
//!
//! Used for traces and for Prometheus. Nothing is shown if standard error isn't a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// The time between two updates.
const PACE: Duration = Duration::from_millis(200);

/// Returns a bar that shows the part of an amount that is done. It is wiped when it is dropped. The
/// amount of a pipe is 0: no part of it is known, and nothing is shown.
pub fn progress_bar(size: u64) -> ProgressBar {
    let bar = if size > 0 { ProgressBar::new(size) } else { ProgressBar::hidden() };
    if let Ok(style) = ProgressStyle::with_template("[{bar:30}] {percent:>3} %") {
        bar.set_style(style.progress_chars("# "));
    }
    if !bar.is_hidden() {
        bar.enable_steady_tick(PACE);
    }
    bar
}
