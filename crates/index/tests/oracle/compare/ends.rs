//! The ends that objects show, as index and model see them.

use std::collections::BTreeMap;

use tenure_index::StaleEnd;
use tenure_types::keys;

use super::{Pair, Result, millis, same};
use crate::{
    event::{EndShown, Event},
    naive, wire,
    world::timestamp,
};

/// The pods that one call looks at: few, so that workloads have pods in several calls.
const PODS_AT_ONCE: usize = 3;

impl Pair {
    /// Compares which objects show another end. One that a try was made for may be among them or not.
    pub(super) fn check_ends(&mut self) -> Result {
        let turns = 0..=self.model.pods.len() / PODS_AT_ONCE;
        let turn = |_| self.index.stale_ends(timestamp(self.model.now), PODS_AT_ONCE);
        let mut given: Vec<_> = turns.flat_map(turn).collect();
        let name = |of: &StaleEnd| (of.namespace.to_string(), of.object);
        given.sort_by_key(name);
        given.dedup();
        let mut expected = self.model.stale_ends();
        expected.retain(|of| {
            let is_given = || given.iter().any(|given| given.object == wire::uid(of.object));
            !self.model.was_tried(of) || is_given()
        });
        let given_facts: Vec<_> = given.iter().map(|of| (name(of), of.end, of.pod)).collect();
        let facts = |of: &naive::StaleEnd| {
            let name = (wire::namespace(of.namespace), wire::uid(of.object));
            (name, of.end.map(millis), wire::uid(of.pod))
        };
        let mut expected_facts: Vec<_> = expected.iter().map(facts).collect();
        expected_facts.sort_by(|one, other| one.0.cmp(&other.0));
        same("stale_ends", &given_facts, &expected_facts)?;
        self.seen.note("ends to show", given.len());
        self.stale = given;
        Ok(())
    }

    /// Tries to show one of the ends that were found last, which may have changed since.
    pub(super) fn show_end(&mut self, pick: usize, result: EndShown) -> Result {
        let Some(known) = self.stale.get(pick % self.stale.len().max(1)).cloned() else { return Ok(()) };
        let now = timestamp(self.model.now);
        let stale = self.model.stale_ends().into_iter().find(|of| {
            wire::namespace(of.namespace) == known.namespace.as_str() && wire::uid(of.object) == known.object
        });
        let batch = self.index.take_stale_end(&known, 0, now);
        let first = batch.as_ref().map(|batch| &batch.first);
        let given = first.map(|of| (of.uid, of.deadline, of.announced_end));
        let expected = stale
            .as_ref()
            .map(|of| (wire::uid(of.pod), millis(of.end.unwrap_or(naive::NEVER)), of.shown.map(millis)));
        same("take_stale_end", &given, &expected)?;
        let (Some(batch), Some(stale)) = (batch, stale) else { return Ok(()) };
        self.model.try_end(&stale);
        match result {
            EndShown::Written => {
                self.seen.note("ends shown", 1);
                self.write_end(stale.object, stale.end)
            }
            EndShown::Unseen => Ok(()),
            EndShown::Failed => {
                self.index.doubt_end(batch.first.uid);
                self.model.doubt_end(&stale);
                Ok(())
            }
        }
    }

    /// Lets a user write an end on one of the objects.
    pub(super) fn write_any_end(&mut self, pick: usize, end: Option<i64>) -> Result {
        let objects: Vec<u32> = self.model.owners.keys().chain(self.model.pods.keys()).copied().collect();
        let Some(object) = objects.get(pick % objects.len().max(1)) else { return Ok(()) };
        self.write_end(*object, end)
    }

    fn write_end(&mut self, object: u32, end: Option<i64>) -> Result {
        match end {
            Some(end) => drop(self.model.shown.insert(object, end)),
            None => drop(self.model.shown.remove(&object)),
        }
        if let Some(pod) = self.model.pods.get(&object) {
            self.apply(&Event::Pod(pod.clone()))
        } else if let Some(owner) = self.model.owners.get(&object) {
            self.apply(&Event::Owner(owner.clone()))
        } else {
            Ok(())
        }
    }

    /// The annotations of an object, with the end that it shows.
    pub(super) fn with_end(
        &self,
        object: u32,
        annotations: Option<BTreeMap<String, String>>,
    ) -> Option<BTreeMap<String, String>> {
        let shown = self.model.shown.get(&object);
        let shown = shown.map(|end| (keys::EXPIRES_AT_ANNOTATION.to_owned(), millis(*end).to_string()));
        let mut annotations = annotations.unwrap_or_default();
        annotations.extend(shown);
        Some(annotations).filter(|all| !all.is_empty())
    }
}
