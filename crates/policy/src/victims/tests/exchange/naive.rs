//! A small scheduler that knows facts unknown to Tenure: capacities, limits, the claims that only one pod may use, the
//! pods of other nodes. If a preemptor fits without the pods that it offers, it fits without those that go in their
//! place.

use std::{cell::Cell, collections::HashSet};

use proptest::test_runner::{Config, TestRunner};

use super::*;
use crate::cases::cases;

/// A pod with random properties, all from few values, so that they meet.
#[derive(Clone, Debug)]
struct Drawn {
    namespace: u8,
    app: u8,
    cpu: i64,
    /// Younger ones are protected.
    age: i64,
    ports: Vec<(u8, u8)>,
    claims: Vec<u8>,
    disk: Option<u8>,
    device: Option<u8>,
    affinity: Vec<DrawnTerm>,
    anti_affinity: Vec<DrawnTerm>,
    spread: Vec<(u8, i64)>,
    is_huge: bool,
    /// It has more labels than are kept.
    is_crowded: bool,
    /// A scheduler may have reasons of its own not to offer it.
    is_spared: bool,
}

#[derive(Clone, Copy, Debug)]
struct DrawnTerm {
    app: u8,
    scope: Scope,
}

#[derive(Clone, Copy, Debug)]
enum Scope {
    Own,
    Named(u8),
    /// By labels, which only the scheduler knows.
    Selected(u8),
    All,
}

/// The facts that only the scheduler knows.
#[derive(Clone, Debug)]
struct Node {
    cpu: i64,
    attachable: Option<usize>,
    for_one_pod: HashSet<(u8, u8)>,
    /// True if the same zone, or another, has a pod elsewhere that the preemptor has affinity to.
    mates: (bool, bool),
    /// The number of spread pods in another zone.
    elsewhere: i64,
}

fn term() -> impl Strategy<Value = DrawnTerm> {
    let scope = prop_oneof![
        Just(Scope::Own),
        (0..2_u8).prop_map(Scope::Named),
        (0..2_u8).prop_map(Scope::Selected),
        Just(Scope::All)
    ];
    (0..3_u8, scope).prop_map(|(app, scope)| DrawnTerm { app, scope })
}

/// Mostly none.
fn few<T: Strategy>(of: T) -> impl Strategy<Value = Vec<T::Value>>
where
    T::Value: Clone,
{
    prop_oneof![3 => Just(Vec::new()), 1 => prop::collection::vec(of, 1..3)]
}

fn drawn() -> impl Strategy<Value = Drawn> {
    let place = (0..2_u8, 0..3_u8, 0..3_i64, prop_oneof![Just(50_i64), 100..300_i64]);
    let volumes = (few(0..4_u8), prop_oneof![4 => Just(None), 1 => (0..2_u8).prop_map(Some)]);
    let device = prop_oneof![4 => Just(None), 1 => (0..2_u8).prop_map(Some)];
    let terms = (few(term()), few(term()), few((0..3_u8, 1..3_i64)));
    let odd = [0.05, 0.05, 0.3].map(prop::bool::weighted);
    let more = (few((0..3_u8, 0..2_u8)), device, odd);
    (place, volumes, terms, more).prop_map(
        |(place, (claims, disk), terms, (ports, device, [is_huge, is_crowded, is_spared]))| {
            let ((namespace, app, cpu, age), (affinity, anti_affinity, spread)) = (place, terms);
            Drawn {
                namespace,
                app,
                cpu,
                age,
                ports,
                claims,
                disk,
                device,
                affinity,
                anti_affinity,
                spread,
                is_huge,
                is_crowded,
                is_spared,
            }
        },
    )
}

fn node() -> impl Strategy<Value = Node> {
    let mates = (prop::bool::weighted(0.2), any::<bool>());
    let for_one_pod = prop::collection::hash_set((0..2_u8, 0..4_u8), 0..4);
    let drawn = (2..9_i64, prop::option::of(1..8_usize), for_one_pod, mates, 0..3_i64);
    drawn.prop_map(|(cpu, attachable, for_one_pod, mates, elsewhere)| Node {
        cpu,
        attachable,
        for_one_pod,
        mates,
        elsewhere,
    })
}

impl DrawnTerm {
    fn selects(self, owner: &Drawn, pod: &Drawn) -> bool {
        let in_scope = match self.scope {
            Scope::Own => pod.namespace == owner.namespace,
            Scope::Named(namespace) | Scope::Selected(namespace) => pod.namespace == namespace,
            Scope::All => true,
        };
        in_scope && pod.app == self.app
    }

    fn written(self) -> Value {
        let mut term = json!({"labelSelector": {"matchLabels": {"app": format!("{}", self.app)}}});
        match self.scope {
            Scope::Own => {}
            Scope::Named(namespace) => term["namespaces"] = json!([format!("{namespace}")]),
            Scope::Selected(number) => {
                term["namespaceSelector"] = json!({"matchLabels": {"team": format!("{number}")}});
            }
            Scope::All => term["namespaceSelector"] = json!({}),
        }
        term
    }
}

impl Drawn {
    fn seen(&self) -> Seen {
        let claim = |name: String| json!({"name": name, "persistentVolumeClaim": {"claimName": name}});
        let mut volumes: Vec<Value> = self.claims.iter().map(|of| claim(format!("{of}"))).collect();
        volumes.extend(self.disk.map(|disk| json!({"name": "disk", "iscsi": {"iqn": disk}})));
        volumes.extend((0..if self.is_huge { 1_000 } else { 0 }).map(|_| claim("data".to_owned())));
        let devices: Vec<Value> =
            self.device.iter().map(|device| json!({"name": format!("{device}")})).collect();
        let address = |ip: u8| if ip == 0 { String::new() } else { format!("10.0.0.{ip}") };
        let port = |(ip, port): &(u8, u8)| json!({"hostPort": 80 + port, "hostIP": address(*ip)});
        let ports: Vec<Value> = self.ports.iter().map(port).collect();
        let terms = |of: &[DrawnTerm]| {
            let terms: Vec<Value> = of.iter().map(|term| term.written()).collect();
            json!({"requiredDuringSchedulingIgnoredDuringExecution": terms})
        };
        let spread = |(app, _): &(u8, i64)| {
            let selector = json!({"matchLabels": {"app": format!("{app}")}});
            json!({"whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector})
        };
        let spread: Vec<Value> = self.spread.iter().map(spread).collect();
        let spec = json!({
            "containers": [{"ports": ports}], "volumes": volumes, "resourceClaims": devices,
            "affinity": {"podAffinity": terms(&self.affinity), "podAntiAffinity": terms(&self.anti_affinity)},
            "topologySpreadConstraints": spread,
        });
        let seen = Seen::new("pod", &format!("{}", self.namespace), &format!("{}", self.app), &spec);
        if self.is_crowded { Seen { labels: SeenLabels(None), ..seen } } else { seen }
    }

    fn attached(&self) -> impl Iterator<Item = (&'static str, u8, u8)> {
        let claims = self.claims.iter().map(|claim| ("claim", self.namespace, *claim));
        let huge = self.is_huge.then_some(("claim", self.namespace, u8::MAX));
        claims.chain(self.disk.map(|disk| ("disk", 0, disk))).chain(huge)
    }
}

impl Node {
    /// The decision of kube-scheduler's filters.
    fn fits(&self, preemptor: &Drawn, pods: &[&Drawn]) -> bool {
        let room = pods.iter().map(|pod| pod.cpu).sum::<i64>() + preemptor.cpu <= self.cpu;
        let conflict = |(ip, port): &(u8, u8), (other_ip, other): &(u8, u8)| {
            port == other && (ip == other_ip || *ip == 0 || *other_ip == 0)
        };
        let has_port = |of: &(u8, u8)| preemptor.ports.iter().any(|own| conflict(own, of));
        let ports = !pods.iter().any(|pod| pod.ports.iter().any(has_port));
        let alone = |claim: &&u8| self.for_one_pod.contains(&(preemptor.namespace, **claim));
        let is_used =
            |of: &u8| pods.iter().any(|pod| pod.namespace == preemptor.namespace && pod.claims.contains(of));
        let claims = !preemptor.claims.iter().filter(alone).any(is_used);
        let shares = |one: Option<u8>, other: Option<u8>| one.is_some() && one == other;
        let disks = !pods.iter().any(|pod| shares(pod.disk, preemptor.disk));
        let devices = !pods.iter().any(|pod| shares(pod.device, preemptor.device));
        let all = pods.iter().copied().chain([preemptor]);
        let attached: HashSet<_> = all.flat_map(Drawn::attached).collect();
        let limit = preemptor.attached().next().is_none()
            || self.attachable.is_none_or(|limit| attached.len() <= limit);
        let apart = pods.iter().all(|pod| {
            !preemptor.anti_affinity.iter().any(|term| term.selects(preemptor, pod))
                && !pod.anti_affinity.iter().any(|term| term.selects(pod, preemptor))
        });
        let is_mate = |pod: &Drawn| preemptor.affinity.iter().all(|term| term.selects(preemptor, pod));
        let (near, far) = self.mates;
        let has_mate = near || pods.iter().any(|pod| is_mate(pod));
        let affinity = preemptor.affinity.is_empty() || has_mate || (!far && is_mate(preemptor));
        let spread = preemptor.spread.iter().all(|(app, skew)| {
            let is_counted = |pod: &&&Drawn| pod.namespace == preemptor.namespace && pod.app == *app;
            let here = i64::try_from(pods.iter().filter(is_counted).count()).unwrap();
            here + i64::from(preemptor.app == *app) - here.min(self.elsewhere) <= *skew
        });
        [room, ports, claims, disks, devices, limit, apart, affinity, spread].iter().all(|fits| *fits)
    }

    /// The pods that kube-scheduler offers, if it has to offer any.
    fn offered(&self, preemptor: &Drawn, pods: &[Drawn]) -> Option<Vec<usize>> {
        let mut staying: Vec<usize> = (0..pods.len()).filter(|place| pods[*place].is_spared).collect();
        let spared: Vec<&Drawn> = staying.iter().map(|place| &pods[*place]).collect();
        if self.fits(preemptor, &pods.iter().collect::<Vec<_>>()) || !self.fits(preemptor, &spared) {
            return None;
        }
        for place in (0..pods.len()).filter(|place| !pods[*place].is_spared) {
            let with: Vec<&Drawn> = staying.iter().chain([&place]).map(|of| &pods[*of]).collect();
            if self.fits(preemptor, &with) {
                staying.push(place);
            }
        }
        Some((0..pods.len()).filter(|place| !staying.contains(place)).collect())
    }
}

#[test]
fn who_fits_without_those_that_were_offered_fits_without_those_that_go_in_their_place() {
    let (offers, exchanges, of_needy) = (Cell::new(0_u32), Cell::new(0_u32), Cell::new(0_u32));
    let cases = cases(2_000);
    let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    let cluster = (node(), drawn(), prop::collection::vec(drawn(), 2..7));
    let tried = runner.run(&cluster, |(node, preemptor, pods)| {
        let Some(offered) = node.offered(&preemptor, &pods) else { return Ok(()) };
        offers.set(offers.get() + 1);
        // those that were offered come first
        let rest = (0..pods.len()).filter(|place| !offered.contains(place));
        let pods: Vec<&Drawn> = offered.iter().copied().chain(rest).map(|place| &pods[place]).collect();
        let seen: Vec<Seen> = pods.iter().map(|pod| pod.seen()).collect();
        let on_node: Vec<(&Seen, i64)> = seen.iter().zip(&pods).map(|(seen, pod)| (seen, pod.age)).collect();
        let cpus: Vec<i64> = pods.iter().map(|pod| pod.cpu).collect();
        let by = preemptor.seen();
        let Some(going) = others_of(&by, &on_node, &cpus, offered.len(), node.attachable.is_some()) else {
            return Ok(());
        };
        if (0..offered.len()).any(|place| !going.contains(&place)) {
            exchanges.set(exchanges.get() + 1);
            of_needy.set(of_needy.get() + u32::from(by.needs.is_some()));
        }
        let left = pods.iter().enumerate().filter(|(place, _)| !going.contains(place));
        let left: Vec<&Drawn> = left.map(|(_, pod)| *pod).collect();
        prop_assert!(node.fits(&preemptor, &left), "{going:?} go");
        Ok(())
    });
    tried.unwrap();
    assert!(of_needy.get() > cases / 400, "{of_needy:?} of {exchanges:?} of {offers:?}");
}
