//! Every parser that reads what others write, by name. The fuzzers of `make fuzz` and the tables of bad inputs in `bad`
//! call the same functions.
//!
//! A parser never panics. Where it has a law, such as "what is printed reads back", the function
//! here asserts it: so a fuzzer finds a broken law as it finds a crash.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    clippy::panic,
    reason = "a broken law is a finding, and so is an answer that lacks a field"
)]

mod annotations;
mod bodies;
mod objects;
mod scalars;

/// A short account of a value that was read, or the message of a refusal.
pub type Outcome = Result<String, String>;

/// A parser.
#[derive(Clone, Copy, Debug)]
pub struct Parser {
    /// Its name, as the fuzzers and the files of `bad`, `corpus` and `dictionaries` have it.
    pub name: &'static str,
    /// Reads an input.
    pub read: fn(&[u8]) -> Outcome,
}

/// All parsers.
pub const PARSERS: &[Parser] = &[
    Parser { name: "duration-v3alpha1", read: scalars::extended },
    Parser { name: "duration-v2", read: scalars::go },
    Parser { name: "duration-tensorstack", read: scalars::tensorstack },
    Parser { name: "own-ceiling", read: scalars::own_ceiling },
    Parser { name: "quantity", read: scalars::quantity },
    Parser { name: "notices", read: scalars::notices },
    Parser { name: "run-end", read: scalars::run_end },
    Parser { name: "backoff-factor", read: scalars::backoff_factor },
    Parser { name: "start-stamp", read: scalars::start_stamp },
    Parser { name: "selector", read: scalars::selector },
    Parser { name: "paused", read: annotations::paused },
    Parser { name: "requeue-state", read: annotations::requeue_state },
    Parser { name: "journal", read: annotations::journal },
    Parser { name: "owner", read: annotations::owner },
    Parser { name: "config", read: objects::config },
    Parser { name: "kai-config", read: objects::kai_config },
    Parser { name: "documents", read: objects::documents },
    Parser { name: "pod", read: objects::pod },
    Parser { name: "queue-round-trip", read: objects::round_trip },
    Parser { name: "extension", read: objects::extension },
    Parser { name: "usage-record", read: objects::usage_record },
    Parser { name: "queue-v3alpha1", read: bodies::queue_v3alpha1 },
    Parser { name: "queue-v2", read: bodies::queue_v2 },
    Parser { name: "queue-tensorstack", read: bodies::queue_tensorstack },
    Parser { name: "priority-class", read: bodies::priority_class },
    Parser { name: "pod-group", read: bodies::pod_group },
    Parser { name: "validate", read: bodies::validate },
    Parser { name: "mutate", read: bodies::mutate },
    Parser { name: "guard", read: bodies::guard },
    Parser { name: "convert", read: bodies::convert },
    Parser { name: "preempt", read: bodies::preempt },
];

/// Returns the parser of a name.
pub fn parser(name: &str) -> Option<Parser> {
    PARSERS.iter().find(|parser| parser.name == name).copied()
}

/// Returns the bytes as text.
fn text(bytes: &[u8]) -> Result<&str, String> {
    str::from_utf8(bytes).map_err(|error| format!("not UTF-8: {error}"))
}
