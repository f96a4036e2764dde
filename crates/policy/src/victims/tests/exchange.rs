use serde_json::{Value, json};
use tenure_types::{room::PodWithRoom, selector::Labels};

use super::*;

mod naive;

/// A pod as others of its node have to do with it.
struct Seen {
    namespace: String,
    labels: SeenLabels,
    needs: Option<PodNeeds>,
}

impl Seen {
    /// A pod of namespace `ns` with label `app: a`, unless the arguments differ.
    fn new(name: &str, namespace: &str, app: &str, spec: &Value) -> Self {
        let metadata = json!({"name": name, "namespace": namespace, "labels": {"app": app}});
        let pod: PodWithRoom = serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap();
        let (pod, room) = pod.split();
        Self { namespace: namespace.to_owned(), labels: SeenLabels(pod.metadata.labels), needs: room.needs }
    }

    fn neighbor(&self) -> Neighbor<'_> {
        Neighbor { namespace: &self.namespace, labels: &self.labels, needs: self.needs.as_ref() }
    }
}

/// The labels of a pod. None: the pod has more labels than are kept.
#[derive(Debug)]
struct SeenLabels(Option<BTreeMap<String, String>>);

impl Labels for SeenLabels {
    fn label(&self, key: &str) -> Option<&str> {
        self.0.as_ref()?.label(key)
    }

    fn are_known(&self) -> bool {
        self.0.is_some()
    }
}

fn spec(spec: &Value) -> Seen {
    Seen::new("pod", "ns", "a", spec)
}

fn plain() -> Seen {
    spec(&json!({}))
}

/// The pods that go, on a node of these pods with their ages, if the first of them are offered. From 100 s on they may
/// go.
fn others(preemptor: &Seen, pods: &[(&Seen, i64)], offered: usize) -> Option<Vec<usize>> {
    others_of(preemptor, pods, &vec![1; pods.len()], offered, true)
}

/// The same with their processors, and whether the node has a limit for attached volumes.
fn others_of(
    preemptor: &Seen,
    pods: &[(&Seen, i64)],
    cpus: &[i64],
    offered: usize,
    limits_volumes: bool,
) -> Option<Vec<usize>> {
    let world = World::default();
    let workloads: Vec<_> = pods.iter().map(|(_, age)| world.single(*age)).collect();
    let requests: Vec<_> = cpus.iter().map(|cpu| Requests::of_pod([(CPU, *cpu)])).collect();
    let candidates: Vec<VictimCandidate<'_>> = pods
        .iter()
        .zip(workloads.iter().zip(&requests))
        .map(|((seen, age), (workload, requests))| {
            let neighbor = seen.neighbor();
            VictimCandidate { neighbor, ..candidate(&pod(1, *age, 0), workload, requests) }
        })
        .collect();
    let claim = toleration::PreemptorClaim { priority: 10, never_preempts: false };
    let by = Preemptor { place: QueuePlace::find(&world.tree, Some("q")), claim };
    let rules = Rules { floors: &world.floors, tree: &world.tree, now: at(NOW) };
    let search = VictimSearch {
        rules: &rules,
        preemptor: &by,
        neighbor: preemptor.neighbor(),
        limits_volumes,
        budgets: &|_| Vec::new(),
    };
    let offered: Vec<usize> = (0..offered).collect();
    search.others(&candidates, &offered).ok().map(|others| others.victims)
}

/// True if an old pod goes in place of a young one, which stays.
fn goes(preemptor: &Seen, stays: &Seen, goes: &Seen) -> bool {
    others(preemptor, &[(stays, 50), (goes, 300)], 1).is_some()
}

fn with_port(port: &Value) -> Seen {
    spec(&json!({"containers": [{"ports": [port]}]}))
}

fn with_claims(namespace: &str, claims: &[&str]) -> Seen {
    let volume = |claim: &&str| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}});
    let volumes: Vec<Value> = claims.iter().map(volume).collect();
    Seen::new("pod", namespace, "a", &json!({"volumes": volumes}))
}

fn terms(kind: &str, app: &str) -> Value {
    let terms =
        json!([{"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": app}}}]);
    json!({"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": terms}}})
}

#[test]
fn a_pod_that_has_the_host_port_of_the_preemptor_does_not_stay() {
    let [http, https] = [80, 443].map(|port| with_port(&json!({"hostPort": port})));
    assert!(!goes(&http, &http, &plain()));
    assert!(goes(&http, &https, &plain()), "another port");
    assert!(goes(&plain(), &http, &plain()), "it has none");
    assert!(goes(&http, &plain(), &http), "the substitute's comes free");
}

#[test]
fn a_pod_whose_labels_are_not_known_may_have_any() {
    let crowded = || Seen { labels: SeenLabels(None), ..plain() };
    let apart = spec(&terms("podAntiAffinity", "b"));
    assert!(goes(&apart, &plain(), &plain()));
    assert!(!goes(&apart, &crowded(), &plain()), "the preemptor may not want it beside");
    assert!(!goes(&crowded(), &apart, &plain()), "it may not want the preemptor beside");
    let mate = spec(&terms("podAffinity", "b"));
    assert!(goes(&mate, &plain(), &plain()));
    assert!(!goes(&mate, &plain(), &crowded()), "the preemptor may need it");
    assert!(goes(&plain(), &crowded(), &crowded()), "neither has needs");
}

#[test]
fn a_pod_that_uses_the_claim_of_the_preemptor_does_not_stay() {
    let data = with_claims("ns", &["data"]);
    let other = with_claims("ns", &["other"]);
    assert!(!goes(&data, &data, &other));
    assert!(goes(&data, &with_claims("elsewhere", &["data"]), &other), "a claim of another namespace");
    assert!(goes(&data, &data, &data), "one that more pods use than were to go isn't for one pod alone");
}

#[test]
fn as_many_claims_come_free_as_would_have() {
    let [none, own, one, two] =
        [&[][..], &["own"], &["a"], &["a", "b"]].map(|claims| with_claims("ns", claims));
    let [x, xy, other] = [&["x"][..], &["x", "y"], &["z"]].map(|claims| with_claims("ns", claims));
    assert!(goes(&own, &one, &x) && goes(&own, &two, &xy) && goes(&own, &one, &xy));
    assert!(!goes(&own, &one, &none) && !goes(&own, &two, &x));
    assert!(goes(&none, &two, &none), "the preemptor has none");
    assert!(!goes(&own, &one, &own), "the preemptor needs it itself");
    assert_eq!(
        others_of(&own, &[(&one, 50), (&none, 300)], &[1, 1], 1, false),
        Some(vec![1]),
        "without a limit"
    );
    let among = |stays: &Seen, pods: &[(&Seen, i64)]| others(&own, &[&[(stays, 50)], pods].concat(), 1);
    assert_eq!(among(&one, &[(&x, 300), (&x, 20)]), None, "another pod keeps it attached");
    assert_eq!(
        among(&one, &[(&none, 300), (&one, 20)]),
        Some(vec![1]),
        "another pod keeps that of the victim"
    );
    assert_eq!(among(&two, &[(&x, 300), (&other, 200)]), Some(vec![1, 2]), "two go, for the sake of claims");
    let unknown = Seen { needs: Some(PodNeeds::unknown()), ..plain() };
    assert_eq!(among(&one, &[(&x, 300), (&unknown, 20)]), None, "it may use any of its namespace");
    let elsewhere = Seen { namespace: "elsewhere".to_owned(), needs: Some(PodNeeds::unknown()), ..plain() };
    assert_eq!(among(&one, &[(&x, 300), (&elsewhere, 20)]), Some(vec![1]));
}

#[test]
fn a_pod_with_a_disk_does_not_stay_for_a_preemptor_with_volumes() {
    let disk = spec(&json!({"volumes": [{"name": "v", "iscsi": {}}]}));
    let (claim, other) = (with_claims("ns", &["data"]), with_claims("ns", &["other"]));
    assert!(!goes(&disk, &disk, &disk) && !goes(&claim, &disk, &other));
    assert!(goes(&plain(), &disk, &plain()) && goes(&disk, &other, &claim));
    assert!(!goes(&claim, &other, &disk), "what a disk frees isn't counted");
}

#[test]
fn a_pod_with_devices_does_not_stay_for_a_preemptor_with_devices() {
    let devices = spec(&json!({"resourceClaims": [{"name": "gpu"}]}));
    assert!(!goes(&devices, &devices, &devices));
    assert!(goes(&plain(), &devices, &plain()) && goes(&devices, &plain(), &plain()));
}

#[test]
fn a_pod_does_not_stay_that_anti_affinity_keeps_apart_from_the_preemptor() {
    let (from_a, from_b) = (spec(&terms("podAntiAffinity", "a")), spec(&terms("podAntiAffinity", "b")));
    assert!(!goes(&from_a, &plain(), &plain()) && !goes(&plain(), &from_a, &plain()));
    assert!(goes(&from_b, &plain(), &plain()) && goes(&plain(), &from_b, &plain()));
    let elsewhere = Seen::new("pod", "elsewhere", "a", &json!({}));
    assert!(goes(&from_a, &elsewhere, &plain()), "terms select pods of their own namespace");
}

#[test]
fn a_pod_does_not_go_that_the_preemptor_has_affinity_to() {
    let (to_a, to_b) = (spec(&terms("podAffinity", "a")), spec(&terms("podAffinity", "b")));
    assert!(!goes(&to_a, &plain(), &plain()));
    assert!(goes(&to_b, &plain(), &plain()));
    assert!(goes(&plain(), &to_a, &plain()), "that of a victim doesn't matter");
    let both =
        others(&to_a, &[(&plain(), 50), (&plain(), 300), (&Seen::new("pod", "ns", "b", &json!({})), 300)], 2);
    assert_eq!(both, Some(vec![2, 1]), "one that was offered may go");
}

#[test]
fn a_pod_does_not_stay_that_the_preemptor_is_spread_over() {
    let spread = |how: &str, app: &str| {
        let selector = json!({"matchLabels": {"app": app}});
        spec(&json!({"topologySpreadConstraints": [{"whenUnsatisfiable": how, "labelSelector": selector}]}))
    };
    let (over_a, over_b) = (spread("DoNotSchedule", "a"), spread("DoNotSchedule", "b"));
    assert!(!goes(&over_a, &plain(), &plain()));
    assert!(goes(&over_b, &plain(), &plain()), "it isn't counted");
    assert!(goes(&over_b, &plain(), &Seen::new("pod", "ns", "b", &json!({}))), "fewer are never in the way");
    assert!(goes(&spread("ScheduleAnyway", "a"), &plain(), &plain()), "a mere preference");
    assert!(goes(&plain(), &over_a, &plain()), "that of a victim doesn't matter");
}

#[test]
fn an_offered_pod_that_cannot_stay_goes_with_the_substitutes() {
    let http = with_port(&json!({"hostPort": 80}));
    let among =
        |age: i64| others(&http, &[(&plain(), 50), (&http, age), (&plain(), 300), (&plain(), 400)], 2);
    assert_eq!(among(500), Some(vec![1, 2]), "though it is the most important");
    assert_eq!(among(50), None, "it is protected");
}
