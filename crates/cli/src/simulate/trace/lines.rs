//! The lines of a file, of which none can take much memory.
//!
//! Called by `trace`. Texts that aren't UTF-8, such as UTF-16 and compressed files, are recognized,
//! so that the error can say what to do.

use std::io::{self, BufRead, Read};

/// The longest line that is read, in bytes. Nothing of a longer line is kept.
const LONGEST: u64 = 64 * 1024;

/// The byte order mark of UTF-8, which may stand at the beginning of a file.
const BOM: &[u8] = &[0xef, 0xbb, 0xbf];

/// A line without its end.
pub enum Line<'l> {
    Text(&'l str),
    /// A line that can't be read, and the reason.
    Bad(&'static str),
}

/// A reader of lines with their numbers, from 1.
pub struct Lines<'r> {
    source: &'r mut dyn BufRead,
    buffer: Vec<u8>,
    number: u64,
}

impl<'r> Lines<'r> {
    pub fn new(source: &'r mut dyn BufRead) -> Self {
        Self { source, buffer: Vec::new(), number: 1 }
    }

    /// Returns the number of the next line.
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// Returns the next line. None: the file is at its end.
    pub fn next(&mut self) -> io::Result<Option<Line<'_>>> {
        let is_first = self.number == 1;
        self.buffer.clear();
        let read = Read::take(&mut *self.source, LONGEST).read_until(b'\n', &mut self.buffer)?;
        if read == 0 {
            return Ok(None);
        }
        self.number = self.number.saturating_add(1);
        if self.buffer.last() != Some(&b'\n') && self.skip()? {
            return Ok(Some(Line::Bad("the line is longer than 64 KiB")));
        }
        let mut bytes = self.buffer.as_slice();
        if is_first {
            bytes = bytes.strip_prefix(BOM).unwrap_or(bytes);
            if let [0xff, 0xfe, ..] | [0xfe, 0xff, ..] = bytes {
                return Ok(Some(Line::Bad("the text is UTF-16: convert it with iconv -f UTF-16 -t UTF-8")));
            }
            if let [0x1f, 0x8b, ..] = bytes {
                return Ok(Some(Line::Bad("the file is compressed: use zcat FILE | … --trace -")));
            }
        }
        bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
        if bytes.contains(&0) {
            return Ok(Some(Line::Bad("the line has a byte of zero: the text may be UTF-16")));
        }
        Ok(Some(str::from_utf8(bytes).map_or(Line::Bad("the line isn't UTF-8"), Line::Text)))
    }

    /// Skips the rest of a line. True if there is a rest.
    fn skip(&mut self) -> io::Result<bool> {
        let mut has_rest = false;
        loop {
            let available = self.source.fill_buf()?;
            if available.is_empty() {
                return Ok(has_rest);
            }
            has_rest = true;
            let end = available.iter().position(|byte| *byte == b'\n');
            let used = end.map_or(available.len(), |end| end.saturating_add(1));
            self.source.consume(used);
            if end.is_some() {
                return Ok(true);
            }
        }
    }
}
