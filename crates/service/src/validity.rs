//! The end of the certificates in use: a metric, and a warning before the end comes. The webhook
//! observes the served certificate, its authority, and the authorities of clients, each by a usage
//! that labels the metric.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use humantime::format_rfc3339_seconds;
use parking_lot::Mutex;
use prometheus_client::{
    metrics::{family::Family, gauge::Gauge},
    registry::{Registry, Unit},
};
use tenure_certs::{Certificate, Validity};
use tenure_types::duration::for_people;
use tracing::{error, warn};

/// The time before the end of a certificate from which a warning is logged, unless a sixth of its
/// validity is less.
const WARNED_WITHIN: Duration = Duration::from_hours(14 * 24);

/// The certificates in use and their ends. Clones share the metric.
#[derive(Clone, Debug, Default)]
pub struct CertificateEnds {
    /// The metric: the end in Unix seconds, by the label `certificate`.
    ends: Family<[(&'static str, &'static str); 1], Gauge>,
    /// The end that was last warned of, per usage.
    warned: Arc<Mutex<BTreeMap<&'static str, SystemTime>>>,
}

/// The state of a certificate at a point in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ValidityState {
    Good,
    EndsSoon,
    Invalid,
}

impl CertificateEnds {
    /// Registers the metric in the registry of a server.
    pub fn register(registry: &mut Registry) -> Self {
        let this = Self::default();
        registry.register_with_unit(
            "certificate_expiry_timestamp",
            "When each certificate in use ends; of several, the first end",
            Unit::Seconds,
            this.ends.clone(),
        );
        this
    }

    /// Takes in the certificates, in PEM, that have a usage now, and logs once for each end that is
    /// near. A text without readable certificates removes the metric of the usage.
    pub fn observe(&self, usage: &'static str, pem: &[u8]) {
        self.is_valid(usage, &Certificate::read_all(pem).unwrap_or_default());
    }

    /// Takes in the served chain, in PEM, of which the first certificate counts. True unless this
    /// certificate is known to be invalid now.
    pub fn observe_served(&self, usage: &'static str, chain: &[u8]) -> bool {
        self.is_valid(usage, Certificate::read(chain).as_slice())
    }

    /// Takes in certificates of a usage. True unless they are known to be invalid now. Of several
    /// certificates the time counts in which all are valid.
    fn is_valid(&self, usage: &'static str, certificates: &[Certificate]) -> bool {
        // of several certificates, the time in which all are valid
        let validities = certificates.iter().map(|certificate| certificate.validity);
        let both = |one: Validity, other: Validity| Validity {
            from: one.from.max(other.from),
            until: one.until.min(other.until),
        };
        let labels = [("certificate", usage)];
        let Some(validity) = validities.reduce(both) else {
            self.ends.remove(&labels);
            return true;
        };
        let seconds = validity.until.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        self.ends.get_or_create(&labels).set(i64::try_from(seconds).unwrap_or(i64::MAX));
        let now = SystemTime::now();
        let state = state(validity, now);
        if state != ValidityState::Good
            && self.warned.lock().insert(usage, validity.until) != Some(validity.until)
        {
            warn_of(usage, validity, now);
        }
        state != ValidityState::Invalid
    }
}

/// Logs that a certificate ends soon, has ended, or isn't valid yet.
fn warn_of(certificate: &str, validity: Validity, now: SystemTime) {
    let until = format_rfc3339_seconds(validity.until);
    match validity.until.duration_since(now) {
        Ok(left) if validity.from <= now => {
            let left = for_people(Duration::from_secs(left.as_secs()));
            warn!(certificate, %until, %left, "A certificate ends soon: renew it");
        }
        Ok(_) => {
            let from = format_rfc3339_seconds(validity.from);
            error!(certificate, %from, "A certificate isn't valid yet");
        }
        Err(_) => error!(certificate, %until, "A certificate has ended: renew it"),
    }
}

/// Returns the state of a certificate at a time.
fn state(validity: Validity, now: SystemTime) -> ValidityState {
    let near = WARNED_WITHIN.min(validity.length() / 6);
    match validity.until.duration_since(now) {
        _ if !validity.holds(now) => ValidityState::Invalid,
        Ok(left) if left >= near => ValidityState::Good,
        _ => ValidityState::EndsSoon,
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use tenure_certs::Authority;

    use super::*;

    const DAY: u64 = 24 * 3600;

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn a_certificate_ends_soon_in_its_last_sixth_or_its_last_fortnight_whichever_is_shorter() {
        let of_days = |days: u64| Validity { from: at(0), until: at(days * DAY) };
        for (days, now, expected) in [
            (60, 50 * DAY - 1, ValidityState::Good),
            (60, 50 * DAY + 1, ValidityState::EndsSoon),
            (365, 351 * DAY, ValidityState::Good),
            (365, 351 * DAY + 1, ValidityState::EndsSoon),
            (60, 60 * DAY, ValidityState::Invalid),
        ] {
            assert_eq!(state(of_days(days), at(now)), expected, "{days} days at {now}");
        }
        let later = Validity { from: at(10), until: at(20) };
        assert_eq!(state(later, at(9)), ValidityState::Invalid, "not valid yet");
    }

    #[test]
    fn the_metric_shows_the_first_end_of_several_certificates() {
        let mut registry = Registry::default();
        let ends = CertificateEnds::register(&mut registry);
        let authority = |until| {
            let validity = Validity { from: at(0), until };
            Authority::valid("test", validity).unwrap().certificate_pem().to_owned()
        };
        let soon = SystemTime::now() + Duration::from_mins(1);
        let both = authority(soon + Duration::from_hours(1)) + &authority(soon);
        ends.observe("ca", both.as_bytes());
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        let seconds = soon.duration_since(UNIX_EPOCH).unwrap().as_secs();
        let line = format!("certificate_expiry_timestamp_seconds{{certificate=\"ca\"}} {seconds}\n");
        assert!(text.contains(&line), "{text}");
        assert!(ends.observe_served("serving", both.as_bytes()));
        assert!(!ends.observe_served("serving", authority(at(1)).as_bytes()), "it has ended");
        let before = authority(soon) + &authority(at(1));
        assert!(ends.observe_served("serving", before.as_bytes()), "only the authority has");
        assert!(ends.observe_served("serving", b"what can't be read"), "nothing is known of it");
    }
}
