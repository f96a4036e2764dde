//! Requests of pods, in a form that can be added up. The index makes them once for each pod.

use arcstr::ArcStr;

/// The name of a resource, which many requests share.
pub type ResourceName = ArcStr;

/// The requests of one pod or of several, and the number of these pods. A node has room for a
/// number of pods, too.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Requests {
    pods: u32,
    /// The amounts, ordered by the name of the resource, in the smallest unit that the resource is
    /// counted in.
    amounts: Vec<(ResourceName, i64)>,
}

impl Requests {
    /// Creates the requests of one pod. Amounts of one resource are added up; a negative amount
    /// counts as 0.
    pub fn of_pod(amounts: impl IntoIterator<Item = (ResourceName, i64)>) -> Self {
        let mut of = Self { pods: 1, amounts: Vec::new() };
        for (resource, amount) in amounts {
            of.add_amount(&resource, amount.max(0));
        }
        of
    }

    /// Adds up the requests of several pods.
    pub fn sum<'r>(mut all: impl Iterator<Item = &'r Self>) -> Self {
        let mut sum = all.next().cloned().unwrap_or_default();
        for requests in all {
            sum.add(requests);
        }
        sum
    }

    /// Adds further requests.
    pub fn add(&mut self, more: &Self) {
        self.pods = self.pods.saturating_add(more.pods);
        self.add_amounts(more, |amount| amount);
    }

    /// Subtracts a part of the requests.
    pub fn subtract(&mut self, part: &Self) {
        self.pods = self.pods.saturating_sub(part.pods);
        self.add_amounts(part, i64::saturating_neg);
    }

    /// Returns the amount of a resource; 0 if there is none.
    pub fn of(&self, resource: &str) -> i64 {
        let found = self.amounts.binary_search_by(|(of, _)| of.as_str().cmp(resource)).ok();
        found.and_then(|place| self.amounts.get(place)).map_or(0, |(_, amount)| *amount)
    }

    /// True if there is at least as much of every resource as `needed`, and at least as many pods.
    pub fn covers(&self, needed: &Self) -> bool {
        self.covers_without(&Self::default(), needed)
    }

    /// True if the rest without `part` has at least as much of every resource as `needed`, and at
    /// least as many pods.
    pub fn covers_without(&self, part: &Self, needed: &Self) -> bool {
        let left = |place: usize, resource: &ResourceName| {
            self.at(place, resource).saturating_sub(part.at(place, resource))
        };
        self.pods.saturating_sub(part.pods) >= needed.pods
            && needed
                .amounts
                .iter()
                .enumerate()
                .all(|(place, (resource, amount))| left(place, resource) >= *amount)
    }

    /// Returns the amount of a resource, which other requests have at this place: most pods request
    /// the same resources, whose names they share.
    fn at(&self, place: usize, resource: &ResourceName) -> i64 {
        match self.amounts.get(place) {
            Some((name, amount)) if ResourceName::ptr_eq(name, resource) => *amount,
            _ => self.of(resource),
        }
    }

    /// Adds the amounts of other requests, each as `signed` returns it.
    fn add_amounts(&mut self, of: &Self, signed: impl Fn(i64) -> i64) {
        for (place, (resource, amount)) in of.amounts.iter().enumerate() {
            let amount = signed(*amount);
            // as in `at`
            match self.amounts.get_mut(place) {
                Some((name, sum)) if ResourceName::ptr_eq(name, resource) => {
                    *sum = sum.saturating_add(amount);
                }
                _ => self.add_amount(resource, amount),
            }
        }
    }

    /// Adds an amount, which may be negative.
    fn add_amount(&mut self, resource: &ResourceName, amount: i64) {
        match self.amounts.binary_search_by(|(of, _)| of.cmp(resource)) {
            Ok(place) => {
                if let Some((_, sum)) = self.amounts.get_mut(place) {
                    *sum = sum.saturating_add(amount);
                }
            }
            Err(place) => self.amounts.insert(place, (resource.clone(), amount)),
        }
    }
}
