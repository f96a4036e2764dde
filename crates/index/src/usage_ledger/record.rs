//! The record of a ledger, which the keeper stores in a `ConfigMap`. Its notes and resized runs are
//! bounded, as a `ConfigMap` is. The record and a list of the pods of its version make the same
//! ledger again.

use std::collections::BTreeMap;

use jiff::Timestamp;
use tenure_policy::{turns::in_turns, usage::EndNote};
use tenure_types::usage_record::{EndingNote, ResizedRun, UsageRecord};

use super::{UsageLedger, UsagePosition, live::LiveRun};
use crate::Uid;

/// The most bytes of the notes about pods that the keeper is ending.
const MOST_NOTES: usize = 150_000;
/// The most bytes of resized runs that go on.
const MOST_RESIZED: usize = 100_000;

/// The most bytes of a note, beside its pods.
const NOTE: usize = 90;

/// The most bytes of a resource of a resized run, beside the resource's name.
const RESIZED: usize = 160;
/// The most bytes of a uid.
const UID: usize = 48;

/// Returns the notes of a record, one for each pod.
pub fn read(notes: &[EndingNote]) -> impl Iterator<Item = (Uid, EndNote)> {
    notes.iter().flat_map(|EndingNote { at, end, pods }| {
        pods.iter().map(|uid| (Uid::of(uid), EndNote { at: *at, end: *end }))
    })
}

impl UsageLedger {
    /// Returns the record of the ledger. None: there was no list yet.
    pub fn record(&self) -> Option<UsageRecord> {
        let UsagePosition { version, at } = self.position.clone()?;
        Some(UsageRecord {
            resource_version: version,
            at,
            since: self.since,
            gaps: self.gaps,
            last_gap: self.last_gap,
            queues: self.totals.record(),
            notes: self.notes(at),
            resized: self.resized_runs(),
        })
    }

    /// Returns the notes that may still count after a time. If there are too many, the latest are
    /// kept.
    fn notes(&self, at: Timestamp) -> Vec<EndingNote> {
        let counts = |uid: &Uid, note: &EndNote| {
            note.counts_at(at) || self.live.get(uid).is_none_or(LiveRun::is_terminating)
        };
        let mut latest: Vec<(EndNote, Uid)> = self
            .ending
            .iter()
            .filter(|(uid, note)| counts(uid, note))
            .map(|(uid, note)| (*note, *uid))
            .collect();
        latest.sort_unstable_by(|one, other| other.cmp(one));
        let (mut bytes, mut notes) = (0_usize, Vec::<EndingNote>::new());
        for (EndNote { at, end }, uid) in latest {
            let known = notes.last_mut().filter(|note| (note.at, note.end) == (at, end));
            bytes = bytes.saturating_add(if known.is_some() { UID } else { UID + NOTE });
            if bytes > MOST_NOTES {
                break;
            }
            match known {
                Some(note) => note.pods.push(uid.text()),
                None => notes.push(EndingNote { at, end, pods: vec![uid.text()] }),
            }
        }
        notes
    }

    /// Returns the resized runs that go on, by uid. If there are too many, namespaces take turns.
    /// Of a namespace, the runs that were resized first are kept.
    fn resized_runs(&self) -> BTreeMap<String, ResizedRun> {
        let live = self.live.iter();
        let live = live.filter_map(|(uid, run)| Some((run.place.namespace.as_str(), *uid, run.resized()?)));
        // until the first list, nothing shows the namespaces of the runs of a record
        let others = self.resized.iter().map(|(uid, run)| ("", *uid, run));
        let runs: Vec<(&str, Uid, &ResizedRun)> = live.chain(others).collect();
        let since = |run: &ResizedRun| run.values().map(|of| of.since).min();
        let runs = in_turns(runs, |&(namespace, uid, run)| (namespace, (since(run), uid)));
        let mut bytes = 0_usize;
        let kept = runs.into_iter().take_while(|(.., run)| {
            let names = run.keys().map(|resource| resource.len().saturating_add(RESIZED));
            bytes = names.fold(bytes.saturating_add(UID), usize::saturating_add);
            bytes <= MOST_RESIZED
        });
        kept.map(|(_, uid, run)| (uid.text(), run.clone())).collect()
    }
}
