//! The message about the end of a run, read again.

/// The end of a run, as the message of its event tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunEnd<'m> {
    /// The queue of the workload.
    pub queue: &'m str,
    /// The ceiling that was reached, for people.
    pub ceiling: Option<&'m str>,
}

impl<'m> RunEnd<'m> {
    /// Reads what [`super::in_words`], [`super::deleted_in_words`] and [`super::owner_deleted_in_words`] write.
    pub fn read(message: &'m str) -> Option<Self> {
        let (sentence, _) = message.strip_prefix(ENDED_IN)?.split_once(". ")?;
        let (queue, rest) = sentence.split_once(ENDED_BY)?;
        let ceiling = rest.strip_prefix(" of ").and_then(|rest| rest.split_once(", set by"));
        Some(Self { queue, ceiling: ceiling.map(|(ceiling, _)| ceiling) })
    }

    /// True if a message is of a dry run.
    pub fn is_dry_run(message: &str) -> bool {
        message.starts_with(DRY_RUN)
    }
}

pub(super) const ENDED_IN: &str = "Its run in Queue ";

pub(super) const ENDED_BY: &str = " has reached the ceiling";

pub(super) const DRY_RUN: &str = "Dry run, nothing was done: ";
