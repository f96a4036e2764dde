//! Sentences, as people read them.

use std::io::{self, Write};

use jiff::Timestamp;

use crate::{age::until, table::printable};

/// A heading and what follows from it.
pub fn paragraph(heading: &str, sentences: &[String], out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{}", printable(heading))?;
    sentences.iter().try_for_each(|sentence| writeln!(out, "  - {}", printable(sentence)))
}

/// To the second, and how long it is until then.
pub fn moment(at: Timestamp, now: Timestamp) -> String {
    format!("{} ({} from now)", at.strftime("%Y-%m-%dT%H:%M:%SZ"), until(at, now))
}
