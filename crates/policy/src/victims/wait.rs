//! When to ask again about a node of which no pod may go.

use jiff::Timestamp;

use super::{Candidate, Requests, Search};
use crate::gang::Progress;

impl Search<'_, '_> {
    /// A time before which no other pods do in place of those that were offered: when enough of them have lost their
    /// protection to free as much. None if they never do, as far as it is known.
    pub fn others_from(&self, pods: &[Candidate<'_>], offered: &[usize]) -> Option<Timestamp> {
        let offered = || offered.iter().filter_map(|place| pods.get(*place));
        let staying = || offered().filter(|pod| pod.victim.progress != Progress::Gone);
        if !self.plain || !staying().all(|pod| pod.plain) {
            return None;
        }
        let needed = Requests::sum(staying().map(|pod| pod.requests));
        let mut freed = Requests::default();
        let mut later: Vec<(Timestamp, &Requests)> = Vec::new();
        let lower = |pod: &&Candidate<'_>| pod.priority < self.preemptor.claim.priority;
        for pod in pods.iter().filter(lower).filter(|pod| pod.victim.progress == Progress::Running) {
            let ruling = self.rules.alone(self.preemptor, &pod.victim);
            match (ruling.rule, ruling.until) {
                (None, _) => freed.add(pod.requests),
                (Some(_), Some(until)) => later.push((until, pod.requests)),
                (Some(_), None) => {}
            }
        }
        later.sort_by_key(|(until, _)| *until);
        let mut later = later.into_iter();
        let enough = later.find(|(_, requests)| {
            freed.add(requests);
            freed.covers(&needed)
        });
        enough.map(|(until, _)| until)
    }
}
