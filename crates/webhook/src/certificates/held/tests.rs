use std::time::{Instant, UNIX_EPOCH};

use proptest::prelude::*;

use super::*;
use crate::certificates::{
    plan::step,
    trust::{BundleState, TrustedSince},
};

const LIFETIMES: Lifetimes = Lifetimes {
    authority: Duration::from_mins(10),
    leaf: Duration::from_secs(150),
    settling: Duration::from_secs(20),
};

fn names() -> Vec<String> {
    ["tenure-webhook.tenure-system.svc", "2001:DB8::7"].map(str::to_owned).to_vec()
}

fn at(seconds: u64) -> SystemTime {
    // no certificate is older than its epoch
    UNIX_EPOCH + Duration::from_secs(1_000_000 + seconds)
}

fn after(held: &SecretContent, step: RenewalStep, seconds: u64) -> SecretContent {
    held.after(step, &names(), at(seconds), &LIFETIMES).unwrap()
}

/// The number of certificates in a PEM file.
fn count(pem: &str) -> usize {
    Certificate::read_all(pem.as_bytes()).unwrap().len()
}

#[test]
fn the_first_certificate_is_of_the_authority_and_has_the_names() {
    let held = after(&SecretContent::default(), RenewalStep::Begin, 0);
    let facts = held.facts(&names());
    let leaf = facts.leaf.unwrap();
    assert!(leaf.fits && leaf.validity.until == at(150));
    assert_eq!(facts.current.unwrap().until, at(600));
    assert!(!held.facts(&["other.svc".to_owned()]).leaf.unwrap().fits);
    assert_eq!(held.bundle(), held.authority().unwrap());
}

#[test]
fn the_data_of_a_secret_is_read_as_it_was_written() {
    let mut held = after(&SecretContent::default(), RenewalStep::Begin, 0);
    for (step, seconds) in
        [(RenewalStep::AddNext, 400), (RenewalStep::Promote, 500), (RenewalStep::AddNext, 550)]
    {
        held = after(&held, step, seconds);
        assert!(SecretContent::of(&held.data()) == held, "{step:?}");
    }
    assert_eq!(count(&held.bundle()), 3);
    assert!(SecretContent::of(&SecretData::new()) == SecretContent::default());
}

#[test]
fn what_cannot_be_read_counts_as_missing() {
    let mut data = after(&SecretContent::default(), RenewalStep::Begin, 0).data();
    data.insert("ca.key".into(), ByteString(b"no key".to_vec()));
    data.insert("tls.crt".into(), ByteString(vec![0xff]));
    let held = SecretContent::of(&data);
    assert!(held.authority().is_none() && held.leaf.is_none() && !held.facts(&names()).serves(at(1)));
    assert_eq!(step(&held.facts(&names()), None, at(1), &LIFETIMES), Some(RenewalStep::Begin));
}

#[test]
fn a_pair_whose_key_is_of_another_certificate_or_none_counts_as_missing() {
    let held = after(&after(&SecretContent::default(), RenewalStep::Begin, 0), RenewalStep::AddNext, 400);
    let other = after(&SecretContent::default(), RenewalStep::Begin, 0).data();
    for bad in [other["tls.key"].clone(), other["ca.key"].clone(), ByteString(b"no key".to_vec())] {
        let with = |key: &str| {
            let mut data = held.data();
            data.insert(key.into(), bad.clone());
            SecretContent::of(&data)
        };
        let (leaf, current, next) = (with("tls.key"), with("ca.key"), with("next-ca.key"));
        assert!(leaf.leaf.is_none() && current.authority().is_none() && next.next.is_none());
        let step_at =
            |held: &SecretContent, seconds| step(&held.facts(&names()), None, at(seconds), &LIFETIMES);
        assert_eq!(step_at(&leaf, 1), Some(RenewalStep::RenewLeaf));
        assert!(after(&leaf, RenewalStep::RenewLeaf, 1).leaf.as_ref().unwrap().matches());
        assert_eq!(step_at(&current, 1), Some(RenewalStep::AddNext), "what is served is good");
        assert_eq!(step_at(&next, 400), Some(RenewalStep::RenewLeaf), "the first one is old");
        assert_eq!(step_at(&after(&next, RenewalStep::RenewLeaf, 400), 400), Some(RenewalStep::AddNext));
    }
}

#[test]
fn an_authority_that_may_not_sign_counts_as_missing() {
    let mut data = after(&SecretContent::default(), RenewalStep::Begin, 0).data();
    for (from, to) in [("tls.crt", "ca.crt"), ("tls.key", "ca.key")] {
        let file = data[from].clone();
        data.insert(to.into(), file);
    }
    assert_eq!(SecretContent::of(&data).authority(), None);
}

#[test]
fn authorities_are_trusted_one_by_one_where_a_file_has_no_last_line_break() {
    let first = after(&SecretContent::default(), RenewalStep::Begin, 0);
    let mut data = after(&first, RenewalStep::AddNext, 400).data();
    data.get_mut("ca.crt").unwrap().0.pop_if(|last| *last == b'\n').unwrap();
    assert_eq!(count(&SecretContent::of(&data).bundle()), 2);
}

#[test]
fn an_authority_that_can_no_longer_sign_is_trusted_until_it_has_ended() {
    let first = after(&SecretContent::default(), RenewalStep::Begin, 0);
    let both = after(&first, RenewalStep::AddNext, 400);
    let without = |held: &SecretContent, keys: &[&str]| {
        let mut data = held.data();
        data.retain(|key, _| !keys.contains(&key.as_str()));
        SecretContent::of(&data)
    };
    let of_first = first.authority().unwrap();
    let no_key = without(&first, &["ca.key"]);
    assert_eq!(no_key.bundle(), of_first, "also before the next step");
    let facts = no_key.facts(&names());
    assert!(facts.leaf.unwrap().is_trusted && facts.serves(at(149)) && !facts.serves(at(150)));
    let bridged = after(&no_key, RenewalStep::AddNext, 1);
    assert!(accepts(&bridged.bundle(), first.leaf.as_ref().unwrap()) && bridged.leaf == first.leaf);
    assert!(SecretContent::of(&bridged.data()) == bridged);
    let signed = after(&bridged, RenewalStep::Promote, 20);
    assert!(
        accepts(&bridged.bundle(), signed.leaf.as_ref().unwrap()),
        "what is trusted before serves afterwards"
    );
    let begun = after(&no_key, RenewalStep::Begin, 1);
    assert!(accepts(&begun.bundle(), first.leaf.as_ref().unwrap()) && count(&begun.bundle()) == 2);

    // by a clock that is far behind, the authority is not valid yet
    assert!(accepts(&after(&first, RenewalStep::Begin, 0).bundle(), first.leaf.as_ref().unwrap()));

    let promoted = after(&without(&both, &["ca.key"]), RenewalStep::Promote, 401);
    assert!(accepts(&promoted.bundle(), both.leaf.as_ref().unwrap()));
    assert_eq!(
        count(&after(&without(&both, &["ca.key", "next-ca.key"]), RenewalStep::Begin, 401).bundle()),
        3
    );
    for held in [begun, promoted] {
        assert_eq!(held.facts(&names()).previous_end, Some(at(600)));
        assert!(after(&held, RenewalStep::DropPrevious, 659).bundle().contains(of_first));
        assert!(!after(&held, RenewalStep::DropPrevious, 660).bundle().contains(of_first));
    }
}

#[test]
fn a_program_that_takes_keys_out_again_and_again_makes_nothing_grow_without_end() {
    let mut held = SecretContent::default();
    for second in 0..20 {
        let mut data = after(&held, RenewalStep::Begin, second).data();
        data.remove("ca.key");
        held = SecretContent::of(&data);
    }
    let begun = after(&held, RenewalStep::Begin, 20);
    assert_eq!(count(&begun.bundle()), 1 + MOST_PREVIOUS);
    assert!(accepts(&begun.bundle(), held.leaf.as_ref().unwrap()), "those of before are the latest");
}

#[test]
fn the_key_of_an_authority_is_gone_once_the_next_one_signs() {
    let held = after(&after(&SecretContent::default(), RenewalStep::Begin, 0), RenewalStep::AddNext, 400);
    let first = held.current.clone().unwrap();
    let promoted = after(&held, RenewalStep::Promote, 500);
    assert!(promoted.previous == [first.certificate]);
    assert!(!promoted.data().values().any(|file| file.0 == first.key.as_bytes()));
    assert!(promoted.facts(&names()).leaf.unwrap().fits);
    assert_eq!(count(&promoted.bundle()), 2);
    assert_eq!(
        count(&after(&promoted, RenewalStep::DropPrevious, 659).bundle()),
        2,
        "by the clock of another it may hold"
    );
    assert_eq!(count(&after(&promoted, RenewalStep::DropPrevious, 660).bundle()), 1);
}

#[test]
fn no_certificate_outlives_its_authority() {
    let held = after(&SecretContent::default(), RenewalStep::Begin, 0);
    let late = after(&held, RenewalStep::RenewLeaf, 550);
    assert_eq!(late.facts(&names()).leaf.unwrap().validity.until, at(600));
}

/// An API server, with the authorities that it trusts now, and that it will trust later.
#[derive(Clone, Default)]
struct Server {
    trusted: String,
    coming: Vec<(u64, String)>,
}

impl Server {
    /// Learns of a write a little later, and never before those of earlier.
    fn write(&mut self, at: u64, bundle: &str) {
        let last = self.coming.last().map_or(0, |(at, _)| *at);
        self.coming.push((last.max(at), bundle.to_owned()));
    }
}

/// The most by which a clock is ahead or behind: together, two are within what a certificate is dated back by.
const SKEW: u64 = 7;

/// A replica that serves a certificate of the Secret, and may not look at it for a while.
#[derive(Clone, Default)]
struct Replica {
    served: Option<CertificatePair>,
    reconciles_at: u64,
}

/// True if a client that trusts these authorities accepts the certificate.
fn accepts(bundle: &str, leaf: &CertificatePair) -> bool {
    let leaf = Certificate::read(leaf.certificate.as_bytes()).unwrap();
    let authorities = Certificate::read_all(bundle.as_bytes()).unwrap_or_default();
    authorities.iter().any(|authority| authority.subject == leaf.issuer)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4))]

    /// API servers learn of a change up to 19 s later, writes fail, leaders change, another program puts back the
    /// authorities of before, and replicas are cut off or stopped for any time. Clocks of leaders and API servers are
    /// apart. A replica that serves a certificate that has ended is unready.
    #[test]
    fn what_a_replica_serves_is_trusted_by_every_api_server_until_it_ends(
        ticks in prop::collection::vec((0_u64..20, 0_u64..400, any::<u8>()), 500),
    ) {
        let mut held = SecretContent::default();
        let (mut servers, mut replicas) = (vec![Server::default(); 2], vec![Replica::default(); 3]);
        let (mut written, mut trusted) = (String::new(), TrustedSince::default());
        let begin = Instant::now();
        let mut promoted = 0;
        for (tick, (lag, absence, fault)) in ticks.into_iter().enumerate() {
            let now = tick as u64 * 5;
            // one write in four fails, and one leader in sixteen is another, which knows of no trust
            if fault.is_multiple_of(16) {
                trusted.forget();
            }
            let mut write = |bundle: &str, lag: u64| {
                for (index, server) in servers.iter_mut().enumerate() {
                    server.write(now + lag * (index as u64 + 1) / 2, bundle);
                }
                bundle.to_owned()
            };
            // API servers learn of it at once. To put them back shortly before the current one ends is an outage
            let ends = held.facts(&names()).current.map(|current| current.until);
            if fault % 8 == 2 && ends.is_some_and(|end| at(now + 60) < end) {
                written = write(&SecretContent { next: None, ..held.clone() }.bundle(), 0);
            }
            let bundle = held.bundle();
            let trust = if written == bundle {
                BundleState::Present
            } else if fault % 4 == 1 {
                BundleState::Missing
            } else {
                written = write(&bundle, lag);
                BundleState::Written
            };
            let instant = begin + Duration::from_secs(now);
            trusted.observe(bundle.clone(), trust, instant);
            let trusted_for = trusted.time(instant);
            // each leader has a clock of its own
            let leaders = now + u64::from(fault / 16) % (2 * SKEW + 1);
            let next = step(&held.facts(&names()), trusted_for, at(leaders), &LIFETIMES);
            if let Some(step) = next.filter(|_| fault % 8 != 3) {
                held = after(&held, step, leaders);
                promoted += usize::from(step == RenewalStep::Promote);
            }
            for server in &mut servers {
                let (known, coming) = server.coming.drain(..).partition(|(at, _)| *at <= now);
                server.coming = coming;
                server.trusted = known.into_iter().last().map_or(server.trusted.clone(), |(_, bundle): (u64, String)| bundle);
            }
            for (index, replica) in replicas.iter_mut().enumerate() {
                if replica.reconciles_at <= now {
                    replica.served = held.leaf.clone();
                    replica.reconciles_at = now + if index == 0 { 5 } else { absence };
                }
                // until the first authority is known there is no trust
                let Some(served) = replica.served.as_ref().filter(|_| now > 100) else { continue };
                let validity = Certificate::read(served.certificate.as_bytes()).unwrap().validity;
                for (server, clock) in servers.iter().zip([now, now + 2 * SKEW]) {
                    prop_assert!(validity.from <= at(clock), "{now}: not yet valid by the clock {clock}");
                    prop_assert!(!validity.holds(at(clock)) || accepts(&server.trusted, served), "{now} {clock}");
                }
            }
        }
        prop_assert!(promoted >= 4, "{promoted}");
    }
}
