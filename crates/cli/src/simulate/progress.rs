//! A bar on a terminal, for files that take a while.

use std::{
    io::{self, IsTerminal, Read, Write},
    time::{Duration, Instant},
};

/// The time between two lines, and before the first.
const PACE: Duration = Duration::from_millis(200);
const WIDTH: usize = 30;

/// A file of known size that tells how much of it was read.
pub struct Progress<R> {
    inner: R,
    size: u64,
    read: u64,
    shown: Instant,
    is_terminal: bool,
    is_there: bool,
}

impl<R> Progress<R> {
    pub fn new(inner: R, size: u64) -> Self {
        let is_terminal = io::stderr().is_terminal();
        Self { inner, size, read: 0, shown: Instant::now(), is_terminal, is_there: false }
    }

    fn show(&mut self) {
        let filled = |of: u64| of.saturating_mul(self.read).checked_div(self.size).unwrap_or(0);
        let (percent, full) = (filled(100).min(100), usize::try_from(filled(30)).unwrap_or(WIDTH).min(WIDTH));
        // an error can't be told
        let _ = write!(io::stderr(), "\r[{:<WIDTH$}] {percent:3} %", "#".repeat(full));
        (self.shown, self.is_there) = (Instant::now(), true);
    }
}

impl<R: Read> Read for Progress<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.read = self.read.saturating_add(u64::try_from(read).unwrap_or(0));
        if self.is_terminal && self.shown.elapsed() > PACE {
            self.show();
        }
        Ok(read)
    }
}

impl<R> Drop for Progress<R> {
    fn drop(&mut self) {
        if self.is_there {
            let _ = write!(io::stderr(), "\r{:width$}\r", "", width = WIDTH + 8);
        }
    }
}
