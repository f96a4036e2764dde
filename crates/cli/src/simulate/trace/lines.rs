//! The lines of a file, of which none can take much memory.
//!
//! Called by `trace`. Texts that aren't UTF-8, such as UTF-16 and compressed files, are recognized,
//! so that the error can say what to do.

use std::io::{self, BufRead, Read};

/// The longest line that is read, in bytes. Nothing of a longer line is kept.
const LONGEST: u64 = 64 * 1024;

/// A line without its end, or the reason why it can't be read.
pub type Line<'l> = Result<&'l str, &'static str>;

/// A reader of lines with their numbers, from 1.
pub struct Lines<'r> {
    source: &'r mut dyn BufRead,
    buffer: Vec<u8>,
    number: u64,
}

impl<'r> Lines<'r> {
    pub fn new(source: &'r mut dyn BufRead) -> Self {
        Self { source, buffer: Vec::new(), number: 0 }
    }

    /// Returns the number of the next line, and the line. None: the file is at its end.
    pub fn next(&mut self) -> io::Result<Option<(u64, Line<'_>)>> {
        self.buffer.clear();
        if Read::take(&mut *self.source, LONGEST).read_until(b'\n', &mut self.buffer)? == 0 {
            return Ok(None);
        }
        self.number = self.number.saturating_add(1);
        let is_cut = self.buffer.last() != Some(&b'\n') && self.source.skip_until(b'\n')? > 0;
        let line = match self.buffer.as_slice() {
            _ if is_cut => Err("the line is longer than 64 KiB"),
            [0xff, 0xfe, ..] | [0xfe, 0xff, ..] if self.number == 1 => {
                Err("the text is UTF-16: convert it with iconv -f UTF-16 -t UTF-8")
            }
            [0x1f, 0x8b, ..] if self.number == 1 => {
                Err("the file is compressed: use zcat FILE | … --trace -")
            }
            line if line.contains(&0) => Err("the line has a byte of zero: the text may be UTF-16"),
            line => str::from_utf8(line).map_err(|_| "the line isn't UTF-8"),
        };
        // a byte order mark may stand at the beginning of a file
        Ok(Some((self.number, line.map(|line| line.trim_matches(['\u{feff}', '\r', '\n'])))))
    }
}
