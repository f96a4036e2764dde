//! The certificates and keys of the Secret, and the effect of each step on them.
//!
//! `certificates.rs` reads and writes the Secret, and `plan.rs` chooses the steps. Content that
//! can't be read counts as missing, so a damaged Secret is repaired by the next steps.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use humantime::format_rfc3339_seconds;
use k8s_openapi::ByteString;
use tenure_certs::{Authority, Certificate, CertificatePair, Validity};

use super::plan::{LeafCertificate, Lifetimes, RenewalStep, SecretFacts, skew};

/// The keys of the served certificate in the Secret, as in Secrets of type kubernetes.io/tls.
const LEAF: [&str; 2] = ["tls.crt", "tls.key"];
/// The keys of the authority that signs.
const CURRENT: [&str; 2] = ["ca.crt", "ca.key"];
/// The keys of the authority that will sign.
const NEXT: [&str; 2] = ["next-ca.crt", "next-ca.key"];
/// The key of the certificates of authorities that no longer sign.
const PREVIOUS: &str = "previous-ca.crt";

/// The most authorities without a key that are trusted: a program that removes keys must not make
/// the Secret grow.
const MOST_PREVIOUS: usize = 8;

/// The content of the Secret.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SecretContent {
    /// The authority that signs. None: a step must make or promote one.
    current: Option<CertificatePair>,
    /// The authority that will sign.
    next: Option<CertificatePair>,
    /// The certificates, PEM, of authorities that no longer sign. Certificates that they have
    /// signed may still be served.
    previous: Vec<String>,
    /// The certificate to serve.
    pub leaf: Option<CertificatePair>,
}

/// The data of the Secret.
type SecretData = BTreeMap<String, ByteString>;

impl SecretContent {
    /// Reads the data of the Secret. An entry that can't be read counts as missing, and so does a
    /// pair whose key doesn't match its certificate. An authority without its key counts as a
    /// previous one.
    pub fn of(data: &SecretData) -> Self {
        let text =
            |key: &str| String::from_utf8(data.get(key)?.0.clone()).ok().filter(|text| !text.is_empty());
        let pair = |[certificate, key]: [&str; 2]| {
            Some(CertificatePair { certificate: text(certificate)?, key: text(key)? })
                .filter(CertificatePair::matches)
        };
        // no client trusts a certificate that such a certificate has signed
        let may_sign = |pair: &CertificatePair| {
            Certificate::read(pair.certificate.as_bytes()).is_some_and(|read| read.is_authority)
        };
        let authority = |keys| pair(keys).filter(|pair| may_sign(pair) && Authority::from_pair(pair).is_ok());
        let certificates = |key| text(key).map(|pem| blocks(&pem)).unwrap_or_default();
        let mut held = Self {
            current: authority(CURRENT),
            next: authority(NEXT),
            previous: certificates(PREVIOUS),
            leaf: pair(LEAF),
        };
        for (keys, authority) in [(CURRENT, &held.current), (NEXT, &held.next)] {
            if authority.is_none() {
                held.previous.extend(certificates(keys[0]));
            }
        }
        held
    }

    /// Returns the data of the Secret, as [`SecretContent::of`] reads it.
    pub fn data(&self) -> SecretData {
        let Self { current, next, previous, leaf } = self;
        let pairs = [(CURRENT, current), (NEXT, next), (LEAF, leaf)];
        let pairs = pairs.into_iter().filter_map(|(keys, pair)| pair.as_ref().map(|pair| (keys, pair)));
        let files = pairs.flat_map(|([certificate, key], pair)| {
            [(certificate, pair.certificate.clone()), (key, pair.key.clone())]
        });
        let previous = (!previous.is_empty()).then(|| (PREVIOUS, previous.concat()));
        files.chain(previous).map(|(key, text)| (key.to_owned(), ByteString(text.into_bytes()))).collect()
    }

    /// Returns the certificate, PEM, of the authority that signs. None: no authority can sign.
    pub fn authority(&self) -> Option<&str> {
        self.current.as_ref().map(|pair| &*pair.certificate)
    }

    /// Returns the certificates, PEM, of the authorities that clients must trust. Empty: there is
    /// none.
    pub fn bundle(&self) -> String {
        // a file that an admin wrote may lack its last line break
        let signing = self.current.iter().chain(&self.next).flat_map(|pair| blocks(&pair.certificate));
        signing.chain(self.previous.iter().cloned()).collect()
    }

    /// Returns the facts that determine the next step. `names` are those that the served
    /// certificate should have.
    pub fn facts(&self, names: &[String]) -> SecretFacts {
        let read = |pem: &String| Certificate::read(pem.as_bytes());
        let pair = |pair: &Option<CertificatePair>| pair.as_ref().and_then(|pair| read(&pair.certificate));
        let current = pair(&self.current);
        let next = pair(&self.next);
        let previous: Vec<_> = self.previous.iter().filter_map(read).collect();
        let leaf = pair(&self.leaf).map(|leaf| {
            let is_named = leaf.names == canonical(names);
            let has_signed = |authority: &Certificate| authority.subject == leaf.issuer;
            LeafCertificate {
                validity: leaf.validity,
                fits: is_named && current.as_ref().is_some_and(has_signed),
                is_trusted: is_named && current.iter().chain(&next).chain(&previous).any(has_signed),
            }
        });
        SecretFacts {
            current: current.map(|current| current.validity),
            next: next.map(|next| next.validity),
            previous_end: previous.iter().map(|previous| previous.validity.until).min(),
            leaf,
        }
    }

    /// Returns the content after a step. Authorities that have ended are dropped with every step.
    /// Fails if a certificate can't be made, for instance for one of the names.
    pub fn after(
        &self,
        step: RenewalStep,
        names: &[String],
        now: SystemTime,
        lifetimes: &Lifetimes,
    ) -> tenure_certs::Result<Self> {
        let mut held = self.clone();
        let authority = || {
            let name = format!("tenure-webhook-ca {}", format_rfc3339_seconds(now));
            Ok(Some(Authority::valid(&name, from_now(lifetimes.authority, now))?.pair()))
        };
        match step {
            RenewalStep::Begin => {
                held.retire();
                held.current = authority()?;
            }
            RenewalStep::AddNext => held.next = authority()?,
            RenewalStep::Promote => {
                let promoted = held.next.take();
                held.retire();
                held.current = promoted;
            }
            RenewalStep::RenewLeaf | RenewalStep::DropPrevious => {}
        }
        held.forget(now.checked_sub(skew(lifetimes.authority)).unwrap_or(now));
        if let (RenewalStep::Begin | RenewalStep::Promote | RenewalStep::RenewLeaf, Some(current)) =
            (step, &held.current)
        {
            held.leaf = Some(sign(current, names, from_now(lifetimes.leaf, now))?);
        }
        Ok(held)
    }

    /// Turns the current and the next authority into previous ones. Their keys are dropped. Their
    /// certificates stay, because a replica may serve a certificate that they have signed.
    fn retire(&mut self) {
        let authorities = [self.current.take(), self.next.take()].into_iter().flatten();
        self.previous.extend(authorities.map(|pair| pair.certificate));
    }

    /// Drops the previous authorities that had ended at `past`, and the first ones beyond
    /// [`MOST_PREVIOUS`].
    fn forget(&mut self, past: SystemTime) {
        let holds = |pem: &String| {
            Certificate::read(pem.as_bytes()).is_some_and(|previous| past < previous.validity.until)
        };
        self.previous.retain(holds);
        let surplus = self.previous.len().saturating_sub(MOST_PREVIOUS);
        self.previous.drain(..surplus);
    }
}

/// Signs a certificate for the names. The certificate ends with its authority at the latest.
fn sign(
    authority: &CertificatePair,
    names: &[String],
    validity: Validity,
) -> tenure_certs::Result<CertificatePair> {
    let end = Certificate::read(authority.certificate.as_bytes()).map(|authority| authority.validity.until);
    let until = end.map_or(validity.until, |end| validity.until.min(end));
    Authority::from_pair(authority)?.server_valid(names, Validity { until, ..validity })
}

/// Returns a validity of this length from now, dated back by the skew.
fn from_now(length: Duration, now: SystemTime) -> Validity {
    Validity {
        from: now.checked_sub(skew(length)).unwrap_or(now),
        until: now.checked_add(length).unwrap_or(now),
    }
}

/// Returns the names in the form and order in which a certificate has them.
fn canonical(names: &[String]) -> Vec<String> {
    let address = |name: &String| name.parse::<std::net::IpAddr>().ok().map(|address| address.to_string());
    let mut names: Vec<String> =
        names.iter().map(|name| address(name).unwrap_or_else(|| name.clone())).collect();
    names.sort();
    names
}

/// Returns the readable certificates of a PEM file, one text each.
fn blocks(pem: &str) -> Vec<String> {
    const END: &str = "-----END CERTIFICATE-----";
    let blocks = pem.split_inclusive(END).filter(|block| Certificate::read(block.as_bytes()).is_some());
    blocks.map(|block| format!("{}\n", block.trim())).collect()
}

#[cfg(test)]
mod tests;
