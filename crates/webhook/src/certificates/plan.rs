//! Chooses the next step in the life of the certificates: a function of the Secret's content and
//! the time, for `certificates.rs`. No client, no clock.
//!
//! An authority follows another in three steps. At two thirds of its life the next authority is
//! made, and both are trusted. From five sixths on the next authority signs, if it has been trusted
//! everywhere for the settling time, and the key of the first is dropped. The first authority stays
//! trusted a little longer than it lasts: no certificate outlives the authority that signed it.
//!
//! An authority whose key is lost stays trusted. While the certificate that it has signed is valid,
//! the next authority is made beside it.

use std::time::{Duration, SystemTime};

use clap::Args;
use humantime::parse_duration;
use tenure_certs::Validity;

/// The greatest assumed difference between the clocks of a peer and of the writer.
const LONGEST_SKEW: Duration = Duration::from_hours(1);

/// Returns the clock difference that certificates of this length tolerate: a tenth of the length,
/// an hour at most. Certificates are dated back, and authorities trusted longer, by this time.
pub fn skew(length: Duration) -> Duration {
    LONGEST_SKEW.min(length / 10)
}

/// The precision with which the API server's clock is known: dates of answers have whole seconds,
/// and may be late.
const PRECISION: Duration = Duration::from_secs(5);

/// Returns the greatest difference between the API server's clock and the clock of a writer that
/// makes certificates of this length.
pub fn tolerance(length: Duration) -> Duration {
    skew(length).max(PRECISION)
}

/// The lifetimes of certificates.
#[derive(Clone, Copy, Debug, Args)]
pub struct Lifetimes {
    /// The lifetime of a certificate. It is renewed when two thirds of that have passed
    #[arg(long = "self-managed-validity", value_name = "DURATION", default_value = "90d")]
    #[arg(value_parser = parse_duration)]
    pub leaf: Duration,

    /// The lifetime of an authority. The next one is made and trusted when two thirds of that have passed, and signs when
    /// five sixths have
    #[arg(long = "self-managed-ca-validity", value_name = "DURATION", default_value = "365d")]
    #[arg(value_parser = parse_duration)]
    pub authority: Duration,

    /// The time for which all objects must have had an authority before it signs a certificate
    // API servers learn of a change a little later
    #[arg(long = "self-managed-settling", value_name = "DURATION", default_value = "5m")]
    #[arg(value_parser = parse_duration)]
    pub settling: Duration,
}

/// The facts about the Secret that determine the next step.
#[derive(Clone, Copy, Debug, Default)]
pub struct SecretFacts {
    /// The validity of the authority that signs. None: no authority can sign.
    pub current: Option<Validity>,
    /// The validity of the authority that will sign.
    pub next: Option<Validity>,
    /// The earliest end of the authorities that no longer sign. None: there are none.
    pub previous_end: Option<SystemTime>,
    /// The served certificate.
    pub leaf: Option<LeafCertificate>,
}

/// The certificate that is served.
#[derive(Clone, Copy, Debug)]
pub struct LeafCertificate {
    pub validity: Validity,
    /// True if the current authority has signed the certificate, and its names are the configured
    /// ones.
    pub fits: bool,
    /// True if any trusted authority has signed the certificate, even one that no longer signs, and
    /// its names are the configured ones.
    pub is_trusted: bool,
}

impl SecretFacts {
    /// True if the served certificate is trusted and valid. Without a signing authority, this
    /// certificate is served until another authority is trusted.
    pub fn serves(&self, now: SystemTime) -> bool {
        self.leaf.is_some_and(|leaf| leaf.is_trusted && leaf.validity.holds(now))
    }
}

/// One change of the Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenewalStep {
    /// Make an authority that signs at once, and a certificate. Due if no authority is left to
    /// sign, and the served certificate isn't good.
    Begin,
    /// Make the authority that will sign.
    AddNext,
    /// Let the next authority sign, and make a certificate signed by it.
    Promote,
    /// Make another certificate signed by the same authority.
    RenewLeaf,
    /// Drop the previous authorities that have ended.
    DropPrevious,
}

/// Returns the next step. None: no step is due. `trusted_for` is the time for which all objects
/// have trusted exactly these authorities. None: not all objects trust them.
pub fn step(
    facts: &SecretFacts,
    trusted_for: Option<Duration>,
    now: SystemTime,
    lifetimes: &Lifetimes,
) -> Option<RenewalStep> {
    let SecretFacts { current, next, previous_end, leaf } = *facts;
    let next = next.filter(|next| next.holds(now));
    let is_trusted = trusted_for.is_some_and(|time| time >= lifetimes.settling);
    let Some(current) = current.filter(|current| current.holds(now)) else {
        return match (next, facts.serves(now)) {
            (Some(_), serves) => (is_trusted || !serves).then_some(RenewalStep::Promote),
            (None, true) => Some(RenewalStep::AddNext),
            (None, false) => Some(RenewalStep::Begin),
        };
    };
    if next.is_some() && is_trusted && now >= current.after(5, 6) {
        return Some(RenewalStep::Promote);
    }
    if leaf.is_none_or(|leaf| is_due(leaf, current, now)) {
        return Some(RenewalStep::RenewLeaf);
    }
    if next.is_none() && now >= current.after(2, 3) {
        return Some(RenewalStep::AddNext);
    }
    // by the clock of an API server that is behind, certificates of these authorities haven't ended
    // yet
    let has_ended = |end: SystemTime| end.checked_add(skew(lifetimes.authority)).is_none_or(|end| end <= now);
    previous_end.is_some_and(has_ended).then_some(RenewalStep::DropPrevious)
}

/// True if the certificate must be replaced. A certificate that ends together with its authority
/// isn't renewed for its age: the same authority can't sign a longer one.
fn is_due(
    LeafCertificate { validity, fits, is_trusted: _ }: LeafCertificate,
    current: Validity,
    now: SystemTime,
) -> bool {
    !fits || !validity.holds(now) || now >= validity.after(2, 3) && validity.until < current.until
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    const LIFETIMES: Lifetimes = Lifetimes {
        authority: Duration::from_mins(10),
        leaf: Duration::from_secs(150),
        settling: Duration::from_secs(20),
    };
    const SETTLED: Option<Duration> = Some(Duration::from_secs(20));

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn valid(from: u64, until: u64) -> Validity {
        Validity { from: at(from), until: at(until) }
    }

    fn leaf(from: u64, until: u64) -> LeafCertificate {
        LeafCertificate { validity: valid(from, until), fits: true, is_trusted: true }
    }

    fn next_step(facts: SecretFacts, trusted_for: Option<Duration>, now: u64) -> Option<RenewalStep> {
        step(&facts, trusted_for, at(now), &LIFETIMES)
    }

    /// An authority of 600 s, and a certificate that has 100 s left.
    fn facts(now: u64) -> SecretFacts {
        SecretFacts {
            current: Some(valid(0, 600)),
            leaf: Some(leaf(now - 50, now + 100)),
            ..SecretFacts::default()
        }
    }

    #[test]
    fn without_an_authority_that_is_valid_one_begins() {
        assert_eq!(next_step(SecretFacts::default(), None, 0), Some(RenewalStep::Begin));
        let ended = SecretFacts { leaf: Some(leaf(450, 600)), ..facts(300) };
        assert_eq!(next_step(ended, SETTLED, 600), Some(RenewalStep::Begin));
        let not_yet = SecretFacts { current: Some(valid(100, 600)), ..SecretFacts::default() };
        assert_eq!(next_step(not_yet, SETTLED, 99), Some(RenewalStep::Begin));
    }

    #[test]
    fn a_certificate_is_renewed_at_two_thirds_of_its_life_or_if_it_does_not_fit() {
        let served = SecretFacts { leaf: Some(leaf(0, 150)), ..facts(100) };
        assert_eq!(next_step(served, None, 99), None);
        assert_eq!(next_step(served, None, 100), Some(RenewalStep::RenewLeaf));
        let other = SecretFacts { leaf: Some(LeafCertificate { fits: false, ..leaf(0, 150) }), ..served };
        assert_eq!(next_step(other, None, 1), Some(RenewalStep::RenewLeaf));
        assert_eq!(next_step(SecretFacts { leaf: None, ..served }, None, 1), Some(RenewalStep::RenewLeaf));
    }

    #[test]
    fn a_certificate_that_ends_with_its_authority_is_not_renewed_again_and_again() {
        let last = SecretFacts { leaf: Some(leaf(450, 600)), next: Some(valid(400, 1000)), ..facts(500) };
        assert_eq!(next_step(last, None, 599), None);
    }

    #[test]
    fn the_next_authority_is_made_at_two_thirds_of_the_life_of_the_current_one() {
        assert_eq!(next_step(facts(399), SETTLED, 399), None);
        assert_eq!(next_step(facts(400), SETTLED, 400), Some(RenewalStep::AddNext));
    }

    #[test]
    fn the_next_authority_signs_at_five_sixths_if_all_have_trusted_it_for_a_while() {
        let both = |now| SecretFacts { next: Some(valid(400, 1000)), ..facts(now) };
        let short = Some(Duration::from_secs(19));
        for (now, trusted_for, expected) in [
            (499, SETTLED, None),
            (500, SETTLED, Some(RenewalStep::Promote)),
            (500, short, None),
            (500, None, None),
        ] {
            assert_eq!(next_step(both(now), trusted_for, now), expected, "{now} {trusted_for:?}");
        }
    }

    #[test]
    fn with_an_authority_that_has_ended_the_next_one_signs_whether_all_trust_it_or_not() {
        let both = SecretFacts { next: Some(valid(400, 1000)), ..facts(500) };
        assert_eq!(next_step(both, None, 600), Some(RenewalStep::Promote));
    }

    #[test]
    fn where_the_key_of_an_authority_is_lost_the_next_one_is_trusted_before_it_signs() {
        let served = |now| SecretFacts { current: None, next: None, ..facts(now) };
        assert_eq!(next_step(served(200), SETTLED, 200), Some(RenewalStep::AddNext));
        let both = |now| SecretFacts { next: Some(valid(200, 800)), ..served(now) };
        let short = Some(Duration::from_secs(19));
        assert_eq!(next_step(both(210), None, 210), None);
        assert_eq!(next_step(both(210), short, 210), None);
        assert_eq!(next_step(both(210), SETTLED, 210), Some(RenewalStep::Promote));
        // once there is no certificate that is good, nothing is gained by waiting
        let other = Some(LeafCertificate { is_trusted: false, ..leaf(160, 310) });
        for leaf in [None, Some(leaf(60, 210)), other] {
            assert_eq!(next_step(SecretFacts { leaf, ..both(210) }, None, 210), Some(RenewalStep::Promote));
            assert_eq!(next_step(SecretFacts { leaf, ..served(210) }, None, 210), Some(RenewalStep::Begin));
        }
    }

    #[test]
    fn an_authority_that_signed_before_is_trusted_until_it_has_ended_by_every_clock() {
        let before = |now| SecretFacts { previous_end: Some(at(200)), ..facts(now) };
        assert_eq!(next_step(before(259), SETTLED, 259), None);
        assert_eq!(next_step(before(260), SETTLED, 260), Some(RenewalStep::DropPrevious));
    }
}
