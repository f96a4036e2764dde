//! The certificates and keys of the Secret, and each change of them.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use humantime::format_rfc3339_seconds;
use k8s_openapi::ByteString;
use tenure_certs::{Authority, Certificate, Pair, Validity};

use super::plan::{Facts, Leaf, Lifetimes, RenewalStep, skew};

/// The keys of the Secret: what is served has the names that kubernetes.io/tls gives it.
const LEAF: [&str; 2] = ["tls.crt", "tls.key"];
const CURRENT: [&str; 2] = ["ca.crt", "ca.key"];
const NEXT: [&str; 2] = ["next-ca.crt", "next-ca.key"];
const PREVIOUS: &str = "previous-ca.crt";

/// The most authorities without a key that are trusted: a program that takes out keys must not make the Secret grow.
const MOST_PREVIOUS: usize = 8;

/// The content of the Secret.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Held {
    current: Option<Pair>,
    next: Option<Pair>,
    /// The certificates, PEM, of authorities that can't sign any more: what they have signed may still be served.
    previous: Vec<String>,
    /// The certificate to serve.
    pub leaf: Option<Pair>,
}

type Data = BTreeMap<String, ByteString>;

impl Held {
    /// Reads the data of the Secret. What can't be read counts as missing, and so does a pair whose key isn't that of its
    /// certificate. An authority without its key is one of those before.
    pub fn of(data: &Data) -> Self {
        let text =
            |key: &str| String::from_utf8(data.get(key)?.0.clone()).ok().filter(|text| !text.is_empty());
        let pair = |[certificate, key]: [&str; 2]| {
            Some(Pair { certificate: text(certificate)?, key: text(key)? }).filter(Pair::matches)
        };
        // nothing trusts what another certificate has signed
        let may_sign = |pair: &Pair| {
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

    /// Returns the data of the Secret.
    pub fn data(&self) -> Data {
        let Self { current, next, previous, leaf } = self;
        let pairs = [(CURRENT, current), (NEXT, next), (LEAF, leaf)];
        let pairs = pairs.into_iter().filter_map(|(keys, pair)| pair.as_ref().map(|pair| (keys, pair)));
        let files = pairs.flat_map(|([certificate, key], pair)| {
            [(certificate, pair.certificate.clone()), (key, pair.key.clone())]
        });
        let previous = (!previous.is_empty()).then(|| (PREVIOUS, previous.concat()));
        files.chain(previous).map(|(key, text)| (key.to_owned(), ByteString(text.into_bytes()))).collect()
    }

    /// Returns the certificate, PEM, of the authority that signs.
    pub fn authority(&self) -> Option<&str> {
        self.current.as_ref().map(|pair| &*pair.certificate)
    }

    /// Returns the authorities that are to be trusted, PEM.
    pub fn bundle(&self) -> String {
        // a file that an admin wrote may lack its last line break
        let signing = self.current.iter().chain(&self.next).flat_map(|pair| blocks(&pair.certificate));
        signing.chain(self.previous.iter().cloned()).collect()
    }

    /// Returns what steps depend on. The certificate to serve should have these names.
    pub fn facts(&self, names: &[String]) -> Facts {
        let read = |pem: &String| Certificate::read(pem.as_bytes());
        let pair = |pair: &Option<Pair>| pair.as_ref().and_then(|pair| read(&pair.certificate));
        let current = pair(&self.current);
        let next = pair(&self.next);
        let previous: Vec<_> = self.previous.iter().filter_map(read).collect();
        let leaf = pair(&self.leaf).map(|leaf| {
            let is_named = leaf.names == canonical(names);
            let has_signed = |authority: &Certificate| authority.subject == leaf.issuer;
            Leaf {
                validity: leaf.validity,
                fits: is_named && current.as_ref().is_some_and(has_signed),
                is_trusted: is_named && current.iter().chain(&next).chain(&previous).any(has_signed),
            }
        });
        Facts {
            current: current.map(|current| current.validity),
            next: next.map(|next| next.validity),
            previous_end: previous.iter().map(|previous| previous.validity.until).min(),
            leaf,
        }
    }

    /// Takes a step. Fails if a certificate can't be made, for instance for one of the names.
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

    /// Has no authority sign any more. Their certificates stay, for a replica may serve what they have signed.
    fn retire(&mut self) {
        let authorities = [self.current.take(), self.next.take()].into_iter().flatten();
        self.previous.extend(authorities.map(|pair| pair.certificate));
    }

    /// Forgets the authorities of before that had ended at a time.
    fn forget(&mut self, past: SystemTime) {
        let holds = |pem: &String| {
            Certificate::read(pem.as_bytes()).is_some_and(|previous| past < previous.validity.until)
        };
        self.previous.retain(holds);
        let surplus = self.previous.len().saturating_sub(MOST_PREVIOUS);
        self.previous.drain(..surplus);
    }
}

/// Signs a certificate, which ends with its authority at the latest.
fn sign(authority: &Pair, names: &[String], validity: Validity) -> tenure_certs::Result<Pair> {
    let end = Certificate::read(authority.certificate.as_bytes()).map(|authority| authority.validity.until);
    let until = end.map_or(validity.until, |end| validity.until.min(end));
    Authority::from_pair(authority)?.server_valid(names, Validity { until, ..validity })
}

fn from_now(length: Duration, now: SystemTime) -> Validity {
    Validity {
        from: now.checked_sub(skew(length)).unwrap_or(now),
        until: now.checked_add(length).unwrap_or(now),
    }
}

/// The names as a certificate has them.
fn canonical(names: &[String]) -> Vec<String> {
    let address = |name: &String| name.parse::<std::net::IpAddr>().ok().map(|address| address.to_string());
    let mut names: Vec<String> =
        names.iter().map(|name| address(name).unwrap_or_else(|| name.clone())).collect();
    names.sort();
    names
}

/// The certificates of a PEM file, one by one, that can be read.
fn blocks(pem: &str) -> Vec<String> {
    const END: &str = "-----END CERTIFICATE-----";
    let blocks = pem.split_inclusive(END).filter(|block| Certificate::read(block.as_bytes()).is_some());
    blocks.map(|block| format!("{}\n", block.trim())).collect()
}

#[cfg(test)]
mod tests;
