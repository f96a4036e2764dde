//! Decides if other pods may go in place of the offered ones, by needs besides room: host ports,
//! volumes, devices, and rules about other pods.
//!
//! kube-scheduler has found that the preemptor fits if the offered pods are gone. The preemptor
//! must also fit if some of these pods stay and other pods go. In doubt the exchange is refused:
//! the rules over-estimate the effects of a staying pod, and under-estimate the effects of a
//! substitute that goes.

use std::collections::{BTreeSet, HashMap, HashSet};

use tenure_types::{
    room::{AffinityTerm, PodNeeds},
    selector::Labels,
};

use super::VictimCandidate;

/// The properties of a pod that matter to other pods of its node.
#[derive(Clone, Copy, Debug)]
pub struct Neighbor<'a> {
    /// The namespace of the pod.
    pub namespace: &'a str,
    /// The labels of the pod, by which terms select it.
    pub labels: &'a dyn Labels,
    /// The needs of the pod besides room. None: it has none.
    pub needs: Option<&'a PodNeeds>,
}

impl Neighbor<'_> {
    /// True if one of these terms may select the pod.
    fn matches_any(&self, terms: &[AffinityTerm]) -> bool {
        terms.iter().any(|term| term.may_select(self.namespace, self.labels))
    }

    /// True if nothing is known of its needs, or of the pods that need its presence or its absence.
    fn is_unknown(&self) -> bool {
        self.needs.is_some_and(|needs| needs.is_unknown) || !self.labels.are_known()
    }

    fn uses(&self, namespace: &str, claim: &str) -> bool {
        self.namespace == namespace && self.needs.is_some_and(|needs| needs.uses(claim))
    }

    /// True if the preemptor, which is `self`, may be on a node with an offered pod that stays
    /// there.
    ///
    /// `shared`: the claims in the preemptor's namespace that pods outside of the offer use. The
    /// preemptor fits beside these pods, so such a claim isn't limited to a single pod.
    fn bears(&self, staying: &Neighbor<'_>, shared: &HashSet<&str>) -> bool {
        if self.needs.is_none() && staying.needs.is_none() {
            return true;
        }
        if self.is_unknown() || staying.is_unknown() {
            return false;
        }
        let nothing = PodNeeds::default();
        let (own, its) = (self.needs.unwrap_or(&nothing), staying.needs.unwrap_or(&nothing));
        let ports = own.host_ports.iter().any(|one| its.host_ports.iter().any(|other| one.conflicts(other)));
        let claims =
            own.claims.iter().any(|claim| staying.uses(self.namespace, claim) && !shared.contains(&**claim));
        let disks = own.attaches() && its.has_disks;
        let devices = own.has_resource_claims && its.has_resource_claims;
        let terms = staying.matches_any(&own.anti_affinity) || self.matches_any(&its.anti_affinity);
        // an extra pod may exceed a domain's skew; one fewer never does
        let spread = self.namespace == staying.namespace
            && own.spread.iter().any(|counted| counted.selects(staying.labels));
        !(ports || claims || disks || devices || terms || spread)
    }

    /// True if the preemptor, which is `self`, may need the presence of a pod: a pod that all of
    /// its affinity terms may select.
    fn may_need(&self, going: &Neighbor<'_>) -> bool {
        let terms = self.needs.map(|needs| &*needs.affinity).unwrap_or_default();
        let may_be =
            |term: &AffinityTerm| !going.labels.are_known() || term.may_select(going.namespace, going.labels);
        !terms.is_empty() && terms.iter().all(may_be)
    }
}

/// The pods that go for a preemptor, and those that stay.
pub(super) struct VictimExchange<'a> {
    preemptor: Neighbor<'a>,
    /// The places of offered pods that can't stay.
    pub must_go: Vec<usize>,
    /// The volume claims. None: their number doesn't matter, because the preemptor has none to
    /// attach, or the node has no limit.
    claims: Option<Claims>,
}

impl<'a> VictimExchange<'a> {
    /// Creates the exchange. None: nothing is known of the preemptor. At first, only pods that are
    /// terminating go.
    pub fn new(
        preemptor: Neighbor<'a>,
        pods: &[VictimCandidate<'a>],
        offered: &[usize],
        limits_volumes: bool,
    ) -> Option<Self> {
        if preemptor.is_unknown() {
            return None;
        }
        // most preemptors have no claims
        let with_claims = preemptor.needs.filter(|needs| !needs.claims.is_empty()).map_or(&[][..], |_| pods);
        let others = with_claims
            .iter()
            .enumerate()
            .filter(|(place, pod)| pod.neighbor.namespace == preemptor.namespace && !offered.contains(place));
        let of_others = others.filter_map(|(_, pod)| pod.neighbor.needs).flat_map(|needs| &needs.claims);
        let shared: HashSet<&str> = of_others.map(|claim| &**claim).collect();
        let cannot_stay = |place: &usize| {
            let pod = pods.get(*place).filter(|pod| !pod.is_gone());
            pod.is_some_and(|pod| !preemptor.bears(&pod.neighbor, &shared))
        };
        let must_go = offered.iter().copied().filter(cannot_stay).collect();
        let attaches = limits_volumes && preemptor.needs.is_some_and(PodNeeds::attaches);
        let claims = attaches.then(|| Claims::new(&preemptor, pods, offered));
        Some(Self { preemptor, must_go, claims })
    }

    /// True if the preemptor doesn't need the presence of a pod that wasn't offered.
    pub fn may_go(&self, pod: &Neighbor<'_>) -> bool {
        !self.preemptor.may_need(pod)
    }

    /// Adds a pod to those that go.
    pub fn take(&mut self, place: usize) {
        if let Some(claims) = &mut self.claims {
            claims.change(place, u32::saturating_sub);
        }
    }

    /// True if the preemptor fits when the chosen pods go.
    pub fn holds(&self) -> bool {
        self.claims.as_ref().is_none_or(Claims::hold)
    }

    /// Lets chosen pods stay, if the preemptor still fits then. Returns true if they stay.
    pub fn spare(&mut self, places: impl Iterator<Item = usize> + Clone) -> bool {
        if places.clone().any(|place| self.must_go.contains(&place)) {
            return false;
        }
        let Some(claims) = &mut self.claims else { return true };
        places.clone().for_each(|place| claims.change(place, u32::saturating_add));
        let holds = claims.hold();
        if !holds {
            places.for_each(|place| claims.change(place, u32::saturating_sub));
        }
        holds
    }
}

/// The claims in use on a node. A claim that pods share is attached once. At least as many have to
/// become free as with the offered victims, so that the exchange holds for any limit.
struct Claims {
    /// The numbers of the claims of each pod.
    of_pods: Vec<Vec<usize>>,
    claims: Vec<ClaimUsers>,
}

/// The number of pods that use a claim.
#[derive(Clone, Copy, Default)]
struct ClaimUsers {
    /// The number if the offered pods go.
    as_offered: u32,
    /// The number if the chosen pods go.
    now: u32,
    /// True if a staying pod with unknown claims may use the claim as well.
    is_uncertain: bool,
}

impl Claims {
    /// Counts the users of each claim: those of the preemptor, and those of each pod.
    fn new<'p>(preemptor: &Neighbor<'p>, pods: &[VictimCandidate<'p>], offered: &[usize]) -> Self {
        let mut numbers: HashMap<(&str, &str), usize> = HashMap::new();
        let mut used_by = |pod: &Neighbor<'p>| {
            let claims = pod.needs.into_iter().flat_map(|needs| &needs.claims);
            let numbers = claims.map(|claim| {
                let new = numbers.len();
                *numbers.entry((pod.namespace, &**claim)).or_insert(new)
            });
            numbers.collect::<BTreeSet<usize>>().into_iter().collect::<Vec<usize>>()
        };
        let own = used_by(preemptor);
        let of_pods: Vec<Vec<usize>> = pods.iter().map(|pod| used_by(&pod.neighbor)).collect();
        let mut claims = Self { of_pods, claims: vec![ClaimUsers::default(); numbers.len()] };
        claims.add(&own, |of| &mut of.as_offered);
        claims.add(&own, |of| &mut of.now);
        let mut uncertain: HashSet<&str> = HashSet::new();
        for (place, pod) in pods.iter().enumerate() {
            let used = claims.of_pods.get(place).cloned().unwrap_or_default();
            let is_offered = offered.contains(&place);
            if !is_offered {
                claims.add(&used, |of| &mut of.as_offered);
            }
            if !is_offered || !pod.is_gone() {
                claims.add(&used, |of| &mut of.now);
            }
            if !is_offered && pod.neighbor.is_unknown() {
                uncertain.insert(pod.neighbor.namespace);
            }
        }
        for ((namespace, _), number) in numbers {
            if let Some(of) = claims.claims.get_mut(number) {
                of.is_uncertain = uncertain.contains(namespace);
            }
        }
        claims
    }

    fn add(&mut self, numbers: &[usize], count: fn(&mut ClaimUsers) -> &mut u32) {
        for number in numbers {
            if let Some(of) = self.claims.get_mut(*number) {
                let count = count(of);
                *count = count.saturating_add(1);
            }
        }
    }

    /// Changes the number of users of each claim of a pod by one.
    fn change(&mut self, place: usize, by_one: fn(u32, u32) -> u32) {
        for number in self.of_pods.get(place).into_iter().flatten() {
            if let Some(of) = self.claims.get_mut(*number) {
                of.now = by_one(of.now, 1);
            }
        }
    }

    /// True if no more claims are attached than with the offered pods.
    fn hold(&self) -> bool {
        let more = self.claims.iter().filter(|of| of.as_offered == 0 && of.now > 0).count();
        let fewer = self.claims.iter().filter(|of| of.as_offered > 0 && of.now == 0 && !of.is_uncertain);
        more <= fewer.count()
    }
}
