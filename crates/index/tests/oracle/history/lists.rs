//! Random gaps of watches, and the lists after them.

use super::{History, Listing, Watched};
use crate::{event::Event, object::List, world::OwnerKind};

impl History {
    /// All pods as they are, in any order, and that there are no others.
    pub(super) fn list_pods(&mut self) {
        self.events.push(Event::ListPods);
        let mut pods = self.pods.clone();
        if self.habits.slow_lists {
            let is_streamed = self.apart.percent(50);
            self.listing = Some(Listing { left: pods, shown: Vec::new(), later: Vec::new(), is_streamed });
            return;
        }
        self.is_deaf = false;
        let uids = pods.iter().map(|pod| pod.uid).collect();
        while !pods.is_empty() {
            let place = self.random.below(pods.len() as u64) as usize;
            self.events.push(Event::Pod(pods.remove(place)));
        }
        self.events.push(Event::RetainPods(List(uids)));
    }

    /// Shows some more pods of the list under way, or ends it. It may break off, and begin again at once or later.
    pub(super) fn go_on_listing(&mut self) {
        let Some(mut listing) = self.listing.take() else { return };
        if self.apart.percent(10) {
            if self.apart.percent(50) {
                self.list_pods();
            }
            return;
        }
        for _ in 0..self.apart.below(4) {
            if listing.left.is_empty() {
                return self.end_list(listing);
            }
            let place = self.apart.below(listing.left.len() as u64) as usize;
            let pod = listing.left.remove(place);
            listing.shown.push(pod.uid);
            self.events.push(Event::Pod(pod));
        }
        self.listing = Some(listing);
    }

    /// The watch goes on with the changes since the list began, unless the list has shown these, too.
    fn end_list(&mut self, Listing { mut shown, later, is_streamed, .. }: Listing) {
        self.is_deaf = false;
        if !is_streamed {
            self.events.push(Event::RetainPods(List(shown)));
            return self.events.extend(later);
        }
        for event in later {
            match &event {
                Event::Pod(pod) if !shown.contains(&pod.uid) => shown.push(pod.uid),
                Event::DeletePod(uid) => shown.retain(|of| of != uid),
                _ => {}
            }
            self.events.push(event);
        }
        self.events.push(Event::RetainPods(List(shown)));
    }

    /// The watch of a kind shows an event, unless it is broken off.
    pub(super) fn watch(&mut self, kind: Watched, event: Event) {
        if !self.gaps.contains(&kind) {
            self.events.push(event);
        }
    }

    /// Breaks the watch of a kind off, or lists what one has missed.
    pub(super) fn lose_watches(&mut self) {
        if self.apart.percent(self.habits.gaps) {
            let kind = match self.apart.below(8) {
                0..=2 => Watched::Groups(self.apart.of(&self.habits.kinds)),
                3 | 4 => Watched::Owners(self.apart.of(&[
                    OwnerKind::Deployment,
                    OwnerKind::ReplicaSet,
                    OwnerKind::Job,
                    OwnerKind::Service,
                    OwnerKind::Thing,
                ])),
                5 => Watched::Extensions,
                6 => Watched::Runai,
                _ => Watched::Tensorstack,
            };
            if !self.gaps.contains(&kind) {
                self.gaps.push(kind);
            }
        }
        if !self.gaps.is_empty() && self.apart.percent(10) {
            let place = self.apart.below(self.gaps.len() as u64) as usize;
            self.list(self.gaps[place]);
        }
    }

    /// Lists all objects of a kind, in any order, and that there are no others. The list may break off.
    fn list(&mut self, kind: Watched) {
        let mut all = self.all_of(kind);
        let breaks_off = self.apart.percent(20);
        let left = if breaks_off { all.len() / 2 } else { 0 };
        while all.len() > left {
            let place = self.apart.below(all.len() as u64) as usize;
            self.events.push(all.remove(place));
        }
        if !breaks_off {
            self.gaps.retain(|of| *of != kind);
            self.events.push(self.end_of_list(kind));
        }
    }

    fn all_of(&self, kind: Watched) -> Vec<Event> {
        match kind {
            Watched::Groups(kind) => {
                let here = self.groups.iter().filter(|group| group.kind == kind);
                here.cloned().map(Event::Group).collect()
            }
            Watched::Owners(kind) => {
                let here = self.owners.iter().filter(|owner| owner.kind == kind);
                here.cloned().map(Event::Owner).collect()
            }
            Watched::Extensions => self.extensions.iter().cloned().map(Event::Extension).collect(),
            Watched::Runai => {
                self.runai.iter().cloned().map(|(name, queue)| Event::RunaiQueue(name, queue)).collect()
            }
            Watched::Tensorstack => {
                let all = self.tensorstack.iter().cloned();
                all.map(|(name, queue)| Event::TensorstackQueue(name, queue)).collect()
            }
        }
    }

    /// Says that a kind has no other objects than there are.
    pub(super) fn end_of_list(&self, kind: Watched) -> Event {
        match kind {
            Watched::Groups(kind) => {
                let here = self.groups.iter().filter(|group| group.kind == kind);
                Event::RetainGroups(kind, List(here.map(|group| (group.namespace, group.name)).collect()))
            }
            Watched::Owners(kind) => {
                let here = self.owners.iter().filter(|owner| owner.kind == kind);
                Event::RetainOwners(kind, List(here.map(|owner| owner.uid).collect()))
            }
            Watched::Extensions => {
                Event::RetainExtensions(List(self.extensions.iter().map(|of| of.uid).collect()))
            }
            Watched::Runai => Event::RetainRunai(List(self.runai.iter().map(|(name, _)| *name).collect())),
            Watched::Tensorstack => {
                Event::RetainTensorstack(List(self.tensorstack.iter().map(|(name, _)| *name).collect()))
            }
        }
    }
}
