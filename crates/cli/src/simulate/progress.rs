//! A progress bar on a terminal, for reads that take a while.
//!
//! Used for traces and for Prometheus. Nothing is shown if standard error isn't a terminal.

use std::{
    io::{self, IsTerminal, Read, Write},
    time::{Duration, Instant},
};

/// The time between two updates, and before the first.
const PACE: Duration = Duration::from_millis(200);
/// The number of characters of the bar.
const WIDTH: usize = 30;

/// A bar that shows the part of a known amount that is done.
pub struct ProgressBar {
    size: u64,
    done: u64,
    shown: Instant,
    is_terminal: bool,
    /// True if the bar is on the terminal, and must be wiped.
    is_there: bool,
}

impl ProgressBar {
    /// Returns a bar that isn't shown yet.
    pub fn new(size: u64) -> Self {
        Self {
            size,
            done: 0,
            shown: Instant::now(),
            is_terminal: io::stderr().is_terminal(),
            is_there: false,
        }
    }

    /// Adds to the amount that is done, and updates the bar from time to time.
    pub fn advance(&mut self, more: u64) {
        self.done = self.done.saturating_add(more);
        if self.is_terminal && self.shown.elapsed() > PACE {
            self.show();
        }
    }

    /// Draws the bar over the last one.
    fn show(&mut self) {
        let filled = |of: u64| of.saturating_mul(self.done).checked_div(self.size).unwrap_or(0);
        let (percent, full) = (filled(100).min(100), usize::try_from(filled(30)).unwrap_or(WIDTH).min(WIDTH));
        // there is no place to report an error
        let _ = write!(io::stderr(), "\r[{:<WIDTH$}] {percent:3} %", "#".repeat(full));
        (self.shown, self.is_there) = (Instant::now(), true);
    }
}

impl Drop for ProgressBar {
    fn drop(&mut self) {
        if self.is_there {
            let _ = write!(io::stderr(), "\r{:width$}\r", "", width = WIDTH + 8);
        }
    }
}

/// A file of known size, in bytes, with a bar of the part that was read.
pub struct ProgressReader<R> {
    inner: R,
    bar: ProgressBar,
}

impl<R> ProgressReader<R> {
    /// Returns a reader of `inner`.
    pub fn new(inner: R, size: u64) -> Self {
        Self { inner, bar: ProgressBar::new(size) }
    }
}

impl<R: Read> Read for ProgressReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.bar.advance(u64::try_from(read).unwrap_or(0));
        Ok(read)
    }
}
