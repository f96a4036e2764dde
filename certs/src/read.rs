//! Reads the fields of a certificate: its validity, its names, its keys and its issuer. Called by
//! the webhook's manager of certificates, by the metric of ends, and by
//! [`CertificatePair::matches`](crate::CertificatePair::matches).

use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::pem::Pem;
use x509_parser::time::ASN1Time;

use crate::Validity;

/// The label of a certificate in PEM.
const LABEL: &str = "CERTIFICATE";

/// A certificate that has been read. Its signature isn't verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// The time in which the certificate is valid.
    pub validity: Validity,
    /// The DNS names and IP addresses of a server, sorted.
    pub names: Vec<String>,
    /// True if the certificate may sign others.
    pub is_authority: bool,
    /// The distinguished name of its owner, DER.
    pub subject: Vec<u8>,
    /// The distinguished name of the authority that signed the certificate, DER.
    pub issuer: Vec<u8>,
    /// The public key of its owner and the algorithm (`SubjectPublicKeyInfo`), DER.
    pub public_key: Vec<u8>,
}

impl Certificate {
    /// Reads all certificates of a PEM file, which may hold other things. None: one of them can't
    /// be read.
    pub fn read_all(pem: &[u8]) -> Option<Vec<Self>> {
        Self::iter(pem).collect()
    }

    /// Reads the first certificate of a PEM file. None: the file has no certificate, or the first
    /// can't be read.
    pub fn read(pem: &[u8]) -> Option<Self> {
        Self::iter(pem).next()?
    }

    /// Returns the certificates of a PEM file, in order. None for one that can't be read.
    fn iter(pem: &[u8]) -> impl Iterator<Item = Option<Self>> {
        let others = |block: &Result<Pem, _>| block.as_ref().is_ok_and(|block| block.label != LABEL);
        let blocks = Pem::iter_from_buffer(pem).filter(move |block| !others(block));
        blocks.map(|block| Self::of(&block.ok()?.parse_x509().ok()?))
    }

    /// Takes the fields of a certificate. None: its names or its times can't be read.
    fn of(x509: &X509Certificate<'_>) -> Option<Self> {
        let alternative = x509.subject_alternative_name().ok()?;
        let names = alternative.iter().flat_map(|extension| &extension.value.general_names);
        let mut names: Vec<String> = names.filter_map(name).collect();
        names.sort();
        let validity = x509.validity();
        Some(Self {
            validity: Validity { from: time(validity.not_before)?, until: time(validity.not_after)? },
            names,
            is_authority: x509.is_ca(),
            subject: x509.subject().as_raw().to_owned(),
            issuer: x509.issuer().as_raw().to_owned(),
            public_key: x509.public_key().raw.to_owned(),
        })
    }
}

/// Returns a DNS name or an IP address as text. None for other kinds of names.
fn name(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => {
            let address = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
            let address = address.or_else(|_| <[u8; 16]>::try_from(*bytes).map(IpAddr::from));
            address.ok().map(|address| address.to_string())
        }
        _ => None,
    }
}

/// Returns a time of a certificate. None: it is before 1970.
fn time(time: ASN1Time) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_secs(time.timestamp().try_into().ok()?))
}
