//! Lists of all pods. Nothing of a list counts before it is whole: it may fail at any page.
//!
//! The keeper lists the pods of the counted version when it begins to lead, or the present ones if
//! the API server has forgotten that version. Known runs that a whole list doesn't show have ended.

use jiff::Timestamp;
use tenure_policy::usage::{EndedRun, PodRun, SeenAt};
use tenure_types::{room::RunRequests, usage_record::UsageGap};

use super::{RunPlace, SeenRun, UsageLedger, UsagePosition, live::LiveRun};
use crate::{Uid, uid::UidMap};

/// A list that is not yet whole.
#[derive(Debug)]
pub struct Relist {
    /// The runs that go on.
    live: UidMap<LiveRun>,
    /// The requests of the runs that hold claims. They are judged once all holders are known.
    holding: Vec<(Uid, RunRequests)>,
    /// The runs that have ended, with their last state.
    ended: Vec<(Uid, LiveRun, EndedRun)>,
    /// The last version that is counted, if changes after it weren't seen. None: no changes are
    /// missing.
    after: Option<UsagePosition>,
}

impl UsageLedger {
    /// Begins a list of all pods: the pods of the counted version, or the very first list.
    pub fn begin_list(&mut self) {
        self.list_after(None);
    }

    /// Begins a list of all pods after changes that can't be seen any more.
    pub fn begin_list_after_gap(&mut self) {
        self.list_after(self.position.clone());
    }

    fn list_after(&mut self, after: Option<UsagePosition>) {
        self.relist = Some(Relist { live: UidMap::default(), holding: Vec::new(), ended: Vec::new(), after });
    }

    /// Takes a pod of the list that was begun.
    pub fn list(&mut self, pod: &SeenRun, now: Timestamp, place: impl FnOnce() -> Option<RunPlace>) {
        let Self { relist, live: known, resized, ending, resources, .. } = self;
        let (Some(relist), Some(run)) = (relist, &pod.run) else { return };
        let known = known.get(&pod.uid).cloned();
        if run.finished.is_some() && known.is_none() && !relist.is_news(pod, run) {
            return;
        }
        let place = place();
        let known = known.map(|mut known| {
            known.update(run, place.clone());
            known
        });
        let added = || {
            let mut live = LiveRun::new(run, place?, resources, (&pod.requests, &pod.claims));
            if let Some(resized) = resized.get(&pod.uid) {
                live.restore(resized.clone(), resources);
            }
            Some(live)
        };
        let Some(mut live) = known.or_else(added) else { return };
        if run.finished.is_none() {
            if live.claims().next().is_some() {
                relist.holding.push((pod.uid, pod.requests.clone()));
            } else {
                live.request(resources, &pod.requests, now);
            }
            relist.live.insert(pod.uid, live);
        } else {
            let ended = live.ended(run, ending.get(&pod.uid).copied(), SeenAt::live(now));
            relist.ended.push((pod.uid, live, ended));
        }
    }

    /// Ends the list, which was that of a version, and counts the runs that have ended. After a
    /// gap, the gap is recorded.
    pub fn end_list(&mut self, version: String, now: Timestamp) {
        let Some(Relist { live, holding, mut ended, after }) = self.relist.take() else { return };
        let mut known = std::mem::replace(&mut self.live, live);
        for (uid, _, _) in &ended {
            known.remove(uid);
        }
        let last = after.as_ref().map_or(now, |after| after.at);
        for (uid, gone) in known {
            if !self.live.contains_key(&uid) {
                let missed = gone.missed(self.ending.get(&uid).copied(), last);
                ended.push((uid, gone, missed));
            }
        }
        // a shared claim counts in the run that ends last
        ended.sort_by_key(|(uid, run, ended)| (run.end_of(*ended), *uid));
        for (uid, run, ended) in ended {
            self.ending.remove(&uid);
            self.add(&run, ended);
            self.release(uid, &run, run.end_of(ended));
        }
        for (uid, _) in &holding {
            self.hold(*uid);
        }
        for (uid, requests) in holding {
            self.count_claims(uid, now);
            if let Some(run) = self.live.get_mut(&uid) {
                run.request(&self.resources, &requests, now);
            }
        }
        self.resized.clear();
        self.ending.retain(|uid, _| self.live.contains_key(uid));
        let at = match &after {
            Some(after) => {
                self.gaps = self.gaps.saturating_add(1);
                self.last_gap = Some(UsageGap { from: after.at, to: now });
                now
            }
            None => self.position.as_ref().map_or(now, |position| position.at),
        };
        self.position = Some(UsagePosition { version, at });
        self.changes = self.changes.wrapping_add(1);
    }
}

impl Relist {
    /// True if a pod that isn't known has ended after the last version that is counted. A pod that
    /// was last changed before that version can't have. For another pod, only the time at which it
    /// stopped decides.
    fn is_news(&self, pod: &SeenRun, run: &PodRun) -> bool {
        let Some(UsagePosition { version, at }) = &self.after else { return false };
        let [of_pod, counted] = [&pod.version, version].map(|version| version.parse::<u64>().ok());
        let is_old = of_pod.zip(counted).is_some_and(|(of_pod, counted)| of_pod <= counted);
        !is_old && run.stopped.is_some_and(|stopped| stopped > *at)
    }
}
