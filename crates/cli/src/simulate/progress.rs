//! A progress bar on a terminal, for reads that take a while.
//!
//! Used for traces and for Prometheus. Nothing is shown if standard error isn't a terminal.

use std::{
    io::{self, IsTerminal, Read, Write},
    time::{Duration, Instant},
};

/// The time between two updates, and before the first.
const PACE: Duration = Duration::from_millis(200);

/// A bar that shows the part of a known amount that is done, and the reader that does it, if any.
pub struct ProgressBar<R = ()> {
    inner: R,
    size: u64,
    done: u64,
    shown: Instant,
    /// True if the bar is on the terminal, and must be wiped.
    is_there: bool,
}

impl<R> ProgressBar<R> {
    /// Returns a bar that isn't shown yet.
    pub fn new(inner: R, size: u64) -> Self {
        Self { inner, size, done: 0, shown: Instant::now(), is_there: false }
    }

    /// Adds to the amount that is done, and updates the bar from time to time.
    pub fn advance(&mut self, more: u64) {
        self.done = self.done.saturating_add(more);
        if self.shown.elapsed() > PACE && io::stderr().is_terminal() {
            let filled = |of: u64| of.saturating_mul(self.done).checked_div(self.size).unwrap_or(0).min(of);
            let bar: String = (0..30).map(|place| if place < filled(30) { '#' } else { ' ' }).collect();
            // there is no place to report an error
            let _ = write!(io::stderr(), "\r[{bar}] {:3} %", filled(100));
            (self.shown, self.is_there) = (Instant::now(), true);
        }
    }
}

impl<R> Drop for ProgressBar<R> {
    fn drop(&mut self) {
        if self.is_there {
            let _ = write!(io::stderr(), "\r{:38}\r", "");
        }
    }
}

impl<R: Read> Read for ProgressBar<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.advance(u64::try_from(read).unwrap_or(0));
        Ok(read)
    }
}
