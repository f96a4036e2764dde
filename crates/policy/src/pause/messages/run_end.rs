//! Reads the message about the end of a run. The plugin's list of ended runs is made from such
//! messages.

/// The end of a run, as the note of its event has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunEnd<'m> {
    /// The queue of the workload.
    pub queue: &'m str,
    /// The ceiling that was reached, for people: `2h30m`. None: the message names none.
    pub ceiling: Option<&'m str>,
}

impl<'m> RunEnd<'m> {
    /// Reads a note by [`super::in_words`], [`super::deleted_in_words`] or
    /// [`super::owner_deleted_in_words`]. None: the note is another one.
    pub fn read(message: &'m str) -> Option<Self> {
        let (sentence, _) = message.strip_prefix(ENDED_IN)?.split_once(". ")?;
        let (queue, rest) = sentence.split_once(ENDED_BY)?;
        let ceiling = rest.strip_prefix(" of ").and_then(|rest| rest.split_once(", set by"));
        Some(Self { queue, ceiling: ceiling.map(|(ceiling, _)| ceiling) })
    }

    /// True if a note is of a dry run.
    pub fn is_dry_run(message: &str) -> bool {
        message.starts_with(DRY_RUN)
    }
}

/// The beginning of each note about the end of a run. The queue follows.
pub(super) const ENDED_IN: &str = "Its run in Queue ";

/// The words after the queue. The ceiling follows.
pub(super) const ENDED_BY: &str = " has reached the ceiling";

/// The beginning of each note of a dry run.
pub(super) const DRY_RUN: &str = "Dry run, nothing was done: ";
