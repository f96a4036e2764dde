//! Leader election: never two leaders at a time, and never none for long.
#![allow(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use clap::Parser;
use futures::{FutureExt, future::select_all};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tenure_service::leadership::{LeaderArgs, Leadership};
use tenure_testbed::{Cluster, eventually};
use tenure_tests::{DEADLINE, proxy::Proxy};
use tokio::{
    sync::OnceCell,
    task::JoinHandle,
    time::{Instant, interval, timeout},
};
use tokio_util::sync::CancellationToken;

const LEASE_DURATION: Duration = Duration::from_secs(6);
const RENEW_DEADLINE: Duration = Duration::from_secs(4);
const RETRY_PERIOD: Duration = Duration::from_millis(500);

/// The time for a few calls on a busy machine.
const SLACK: Duration = Duration::from_secs(2);

async fn cluster() -> &'static Cluster {
    static CLUSTER: OnceCell<Cluster> = OnceCell::const_new();
    CLUSTER.get_or_try_init(|| Cluster::start_api_server_alone("leadership")).await.unwrap()
}

#[derive(Parser)]
struct Program {
    #[command(flatten)]
    leader: LeaderArgs,
}

/// A candidate for the lead.
struct Candidate {
    leadership: Leadership,
    stop: CancellationToken,
    running: JoinHandle<()>,
}

impl Candidate {
    fn start(client: Client, lease: &str, identity: &str) -> Self {
        Self::with_flags(
            client,
            &[
                format!("--leader-elect-resource-name={lease}"),
                format!("--leader-elect-identity={identity}"),
                format!("--leader-elect-lease-duration={}ms", LEASE_DURATION.as_millis()),
                format!("--leader-elect-renew-deadline={}ms", RENEW_DEADLINE.as_millis()),
                format!("--leader-elect-retry-period={}ms", RETRY_PERIOD.as_millis()),
            ],
        )
    }

    fn with_flags(client: Client, flags: &[String]) -> Self {
        let program = Program::parse_from([&["program".to_owned()], flags].concat());
        let (leadership, election) = program.leader.election(client).unwrap();
        let stop = CancellationToken::new();
        let running = tokio::spawn(election.run(stop.clone()));
        Self { leadership, stop, running }
    }

    fn holds(&self) -> bool {
        self.leadership.holds()
    }

    /// Waits until it leads; returns the time.
    async fn leads(&self) -> Instant {
        timeout(DEADLINE, self.leadership.acquired()).await.unwrap();
        Instant::now()
    }

    /// Waits until it no longer leads; returns the time.
    async fn no_longer_leads(&self) -> Instant {
        timeout(DEADLINE, self.leadership.lost()).await.unwrap();
        Instant::now()
    }

    /// Asserts that it leads all the time, for this long.
    async fn holds_for(&self, duration: Duration) {
        let end = Instant::now() + duration;
        let mut each = interval(Duration::from_millis(1));
        while each.tick().await < end {
            assert!(self.holds());
        }
    }

    /// Ends it as a signal would.
    async fn stop(self) {
        self.stop.cancel();
        timeout(DEADLINE, self.running).await.unwrap().unwrap();
        assert!(!self.leadership.holds());
    }

    /// Ends it without a chance to release the lease.
    async fn kill(self) {
        self.running.abort();
        assert!(self.running.await.unwrap_err().is_cancelled());
    }
}

/// Checks all the time that no two lead at once.
struct Referee {
    foul: Arc<AtomicBool>,
    checking: JoinHandle<()>,
}

impl Referee {
    fn of<'a>(candidates: impl IntoIterator<Item = &'a Candidate>) -> Self {
        let leaderships: Vec<Leadership> = candidates.into_iter().map(|c| c.leadership.clone()).collect();
        let foul = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&foul);
        let checking = tokio::spawn(async move {
            let mut each = interval(Duration::from_millis(1));
            loop {
                each.tick().await;
                if two_hold(&leaderships) {
                    seen.store(true, Relaxed);
                }
            }
        });
        Self { foul, checking }
    }

    #[track_caller]
    fn assert_fair(self) {
        assert!(!self.checking.is_finished(), "looked until now");
        self.checking.abort();
        assert!(!self.foul.load(Relaxed), "two led at once");
    }
}

/// Asks each first one twice: it might have ended in between.
fn two_hold(leaderships: &[Leadership]) -> bool {
    leaderships.iter().enumerate().any(|(index, first)| {
        leaderships.iter().skip(index + 1).any(|second| first.holds() && second.holds() && first.holds())
    })
}

/// The lease as the API server has it.
struct Shown {
    leases: Api<Lease>,
    name: &'static str,
}

impl Shown {
    async fn of(name: &'static str) -> Self {
        Self { leases: Api::default_namespaced(cluster().await.client().unwrap()), name }
    }

    async fn spec(&self) -> LeaseSpec {
        self.leases.get(self.name).await.unwrap().spec.unwrap()
    }

    async fn await_holder(&self, holder: &str) {
        let held = async || {
            Ok((self.leases.get(self.name).await?.spec.unwrap().holder_identity.as_deref() == Some(holder))
                .then_some(()))
        };
        eventually(&format!("{holder} to hold the lease"), DEADLINE, held).await.unwrap();
    }

    /// Waits until it was renewed this many times: so others had the time to do something wrong.
    async fn await_renewals(&self, count: usize) {
        for _ in 0..count {
            let before = self.spec().await.renew_time;
            let renewed = async || Ok((self.spec().await.renew_time != before).then_some(()));
            eventually("a renewal", DEADLINE, renewed).await.unwrap();
        }
    }

    async fn create(&self, spec: Value) {
        let lease = serde_json::from_value(json!({"metadata": {"name": self.name}, "spec": spec})).unwrap();
        self.leases.create(&PostParams::default(), &lease).await.unwrap();
    }

    async fn patch(&self, spec: Value) -> kube::Result<Lease> {
        self.leases.patch(self.name, &PatchParams::default(), &Patch::Merge(json!({"spec": spec}))).await
    }
}

async fn client() -> Client {
    cluster().await.client().unwrap()
}

async fn by_proxy() -> (Proxy, Client) {
    let proxy = Proxy::start(cluster().await.url()).await;
    let kubeconfig = proxy.kubeconfig(cluster().await.kubeconfig());
    let client = cluster().await.client_of(&kubeconfig).await.unwrap();
    (proxy, client)
}

#[tokio::test]
async fn one_leads_and_another_takes_over_at_once_when_it_ends_well() {
    let lease = Shown::of("handover").await;
    let first = Candidate::start(client().await, lease.name, "first");
    first.leads().await;
    let second = Candidate::start(client().await, lease.name, "second");
    let referee = Referee::of([&first, &second]);
    lease.await_renewals(5).await;
    assert!(first.holds() && !second.holds());
    let spec = lease.spec().await;
    assert_eq!((spec.holder_identity.as_deref(), spec.lease_transitions), (Some("first"), Some(0)));
    assert_eq!(spec.lease_duration_seconds, Some(6));
    assert!(spec.acquire_time < spec.renew_time);

    first.stop().await;
    let ended = Instant::now();
    assert!(second.leads().await < ended + RETRY_PERIOD + SLACK);
    let spec = lease.spec().await;
    assert_eq!((spec.holder_identity.as_deref(), spec.lease_transitions), (Some("second"), Some(1)));
    referee.assert_fair();

    second.stop().await;
    let spec = lease.spec().await;
    assert_eq!((spec.holder_identity.as_deref(), spec.lease_duration_seconds), (Some(""), Some(1)));
}

#[tokio::test]
async fn who_is_cut_off_stops_leading_before_another_begins_and_stands_by_once_it_is_back() {
    let lease = Shown::of("cut").await;
    let (proxy, by_proxy) = by_proxy().await;
    let first = Candidate::start(by_proxy, lease.name, "first");
    first.leads().await;
    let second = Candidate::start(client().await, lease.name, "second");
    let referee = Referee::of([&first, &second]);
    lease.await_renewals(3).await;

    proxy.cut();
    let cut = Instant::now();
    let lost = first.no_longer_leads().await;
    assert!(!first.holds());
    assert!(lost < cut + RENEW_DEADLINE + SLACK, "{:?}", lost - cut);
    let taken = second.leads().await;
    // what remains of the lease after the renew deadline, less what it took us to notice
    assert!(taken + RENEW_DEADLINE > lost + LEASE_DURATION - SLACK / 2, "{:?}", taken - lost);
    assert!(taken < cut + LEASE_DURATION + RETRY_PERIOD + SLACK, "{:?}", taken - cut);
    let transitions = lease.spec().await.lease_transitions;

    // what the first has sent in the meantime arrives now
    proxy.heal();
    lease.await_renewals(5).await;
    assert!(second.holds() && !first.holds());
    assert_eq!(lease.spec().await.lease_transitions, transitions);
    second.stop().await;
    first.leads().await;
    referee.assert_fair();
}

#[tokio::test]
async fn who_is_cut_off_for_a_moment_leads_on() {
    let (proxy, client) = by_proxy().await;
    let lease = Shown::of("moment").await;
    let candidate = Candidate::start(client, lease.name, "only");
    candidate.leads().await;
    let lost = candidate.leadership.lost();
    tokio::pin!(lost);
    assert_eq!((&mut lost).now_or_never(), None);
    proxy.cut();
    candidate.holds_for(RENEW_DEADLINE / 4).await;
    proxy.heal();
    lease.await_renewals(3).await;
    assert!(candidate.holds());
    assert_eq!(lost.now_or_never(), None, "not even for a moment");
}

#[tokio::test]
async fn who_has_a_connection_that_died_unnoticed_renews_by_another_and_leads_on() {
    let (proxy, client) = by_proxy().await;
    let lease = Shown::of("stranded").await;
    let candidate = Candidate::start(client, lease.name, "only");
    candidate.leads().await;
    for _ in 0..2 {
        lease.await_renewals(2).await;
        proxy.strand();
        candidate.holds_for(RENEW_DEADLINE + SLACK).await;
    }
}

#[tokio::test]
async fn who_is_cut_off_ends_in_time_all_the_same() {
    let (proxy, client) = by_proxy().await;
    let candidate = Candidate::start(client, "ends", "only");
    candidate.leads().await;
    proxy.cut();
    let asked = Instant::now();
    candidate.stop().await;
    assert!(asked.elapsed() < RENEW_DEADLINE / 2 + SLACK, "{:?}", asked.elapsed());
}

#[tokio::test]
async fn a_lease_of_another_lasts_from_when_it_was_first_seen_and_its_renew_time_does_not_count() {
    for (name, renewed) in
        [("past", "2001-01-01T00:00:00.000000Z"), ("future", "2999-01-01T00:00:00.000000Z")]
    {
        let lease = Shown::of(name).await;
        let spec = json!({"holderIdentity": "them", "leaseDurationSeconds": 3, "renewTime": renewed});
        lease.create(spec).await;
        let start = Instant::now();
        let candidate = Candidate::start(client().await, name, "us");
        let waited = candidate.leads().await - start;
        // the lease's own duration counts, not ours
        assert!(waited >= Duration::from_secs(3) && waited < LEASE_DURATION, "{name}: {waited:?}");
        candidate.stop().await;
    }
}

#[tokio::test]
async fn who_is_killed_is_replaced_when_its_lease_is_over() {
    let lease = Shown::of("killed").await;
    let first = Candidate::start(client().await, lease.name, "first");
    first.leads().await;
    let second = Candidate::start(client().await, lease.name, "second");
    lease.await_renewals(2).await;
    first.kill().await;
    let killed = Instant::now();
    let waited = second.leads().await - killed;
    assert!(waited < LEASE_DURATION + RETRY_PERIOD + SLACK, "{waited:?}");
    assert!(waited > RENEW_DEADLINE, "{waited:?}");
}

#[tokio::test]
async fn who_comes_back_under_its_own_name_leads_at_once() {
    let lease = Shown::of("restarted").await;
    let first = Candidate::start(client().await, lease.name, "pod");
    first.leads().await;
    first.kill().await;
    let start = Instant::now();
    let second = Candidate::start(client().await, lease.name, "pod");
    assert!(second.leads().await < start + SLACK);
    assert_eq!(lease.spec().await.lease_transitions, Some(0), "it didn't change hands");
}

#[tokio::test]
async fn a_deleted_lease_is_created_again_by_the_leader() {
    let lease = Shown::of("deleted").await;
    let first = Candidate::start(client().await, lease.name, "first");
    first.leads().await;
    let second = Candidate::start(client().await, lease.name, "second");
    let referee = Referee::of([&first, &second]);
    lease.await_renewals(3).await;
    for _ in 0..5 {
        lease.leases.delete(lease.name, &DeleteParams::default()).await.unwrap();
        lease.await_holder("first").await;
        assert!(first.holds() && !second.holds());
    }
    referee.assert_fair();
}

#[tokio::test]
async fn a_lease_that_another_client_overwrites_finds_a_leader_again() {
    let lease = Shown::of("garbage").await;
    let (first, second) = (
        Candidate::start(client().await, lease.name, "first"),
        Candidate::start(client().await, lease.name, "second"),
    );
    let referee = Referee::of([&first, &second]);
    select_all([Box::pin(first.leads()), Box::pin(second.leads())]).await;
    for garbage in [
        json!({"holderIdentity": "a\n\u{7}\"b".repeat(1000), "leaseDurationSeconds": 5}),
        json!({"holderIdentity": "unknown", "leaseDurationSeconds": null, "renewTime": null, "acquireTime": null}),
        json!({"holderIdentity": "unknown", "leaseDurationSeconds": 5, "leaseTransitions": i32::MAX}),
    ] {
        lease.patch(garbage).await.unwrap();
        let taken_back = async || {
            let holder = lease.spec().await.holder_identity.unwrap();
            let leader =
                [("first", &first), ("second", &second)].into_iter().find(|(name, _)| *name == holder);
            Ok(leader.filter(|(_, leader)| leader.holds()).map(drop))
        };
        eventually("one to lead again", DEADLINE, taken_back).await.unwrap();
    }
    // the API server itself refuses these
    for garbage in [json!({"leaseDurationSeconds": -1}), json!({"leaseTransitions": -1})] {
        assert!(lease.patch(garbage).await.is_err());
    }
    referee.assert_fair();
}

#[tokio::test]
async fn of_many_one_leads_at_a_time_until_the_last_has_ended() {
    let lease = Shown::of("many").await;
    let mut candidates: Vec<Candidate> = Vec::new();
    for number in 0..6 {
        candidates.push(Candidate::start(client().await, lease.name, &format!("candidate-{number}")));
    }
    let referee = Referee::of(&candidates);
    while !candidates.is_empty() {
        let leading = candidates.iter().map(|candidate| Box::pin(candidate.leads()));
        let (_, index, _) = select_all(leading).await;
        lease.await_renewals(1).await;
        candidates.swap_remove(index).stop().await;
    }
    assert_eq!(lease.spec().await.lease_transitions, Some(5));
    referee.assert_fair();
}

#[tokio::test]
async fn who_is_forbidden_tries_again_until_it_is_allowed_to_get_create_and_update() {
    let lease = Shown::of("forbidden").await;
    let kubectl =
        async |arguments: &[&str]| cluster().await.kubectl(arguments).await.unwrap().success().unwrap();
    kubectl(&["create", "serviceaccount", "candidate"]).await;
    let account = cluster().await.service_account_kubeconfig("default", "candidate").await.unwrap();
    let forbidden = cluster().await.client_of(&account).await.unwrap();
    let candidate = Candidate::start(forbidden, lease.name, "only");
    let refused = async || {
        let log = std::fs::read_to_string(cluster().await.audit_log())?;
        let refused = |line: &&str| line.contains("leases/forbidden") && line.contains(r#""code":403"#);
        Ok((log.lines().filter(refused).count() > 1).then_some(()))
    };
    eventually("two refusals", DEADLINE, refused).await.unwrap();
    assert!(!candidate.holds());
    kubectl(&["create", "role", "leader", "--verb=get,create,update", "--resource=leases"]).await;
    let bind = ["create", "rolebinding", "leader", "--role=leader", "--serviceaccount=default:candidate"];
    kubectl(&bind).await;
    candidate.leads().await;
    lease.await_renewals(2).await;
    candidate.stop().await;
    assert_eq!(lease.spec().await.holder_identity.as_deref(), Some(""));
}

#[tokio::test]
async fn no_candidate_leads_while_the_api_server_is_down_and_one_does_when_it_is_back() {
    let cluster = Cluster::start_api_server_alone("leadership-outage").await.unwrap();
    let start = |identity| Candidate::start(cluster.client().unwrap(), "outage", identity);
    let (first, second) = (start("first"), start("second"));
    let referee = Referee::of([&first, &second]);
    let leading = async || {
        select_all([Box::pin(first.leads()), Box::pin(second.leads())]).await;
    };
    leading().await;
    cluster.stop_api_server().await.unwrap();
    first.no_longer_leads().await;
    second.no_longer_leads().await;
    assert!(!first.holds() && !second.holds());
    cluster.start_api_server().await.unwrap();
    leading().await;
    referee.assert_fair();
}

#[tokio::test]
async fn who_needs_no_election_leads_without_a_lease() {
    let flags = ["--leader-elect=false", "--leader-elect-resource-name=none"].map(str::to_owned);
    let candidate = Candidate::with_flags(client().await, &flags);
    assert!(candidate.holds());
    candidate.leads().await;
    candidate.stop.cancel();
    timeout(DEADLINE, candidate.running).await.unwrap().unwrap();
    assert!(Shown::of("none").await.leases.get_opt("none").await.unwrap().is_none());
}
