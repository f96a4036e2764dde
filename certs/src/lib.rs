//! A certificate authority: for the webhook, which makes and renews its own certificate, for a
//! webhook that is run by hand, and for tests.
//!
//! Keys are ECDSA P-256. Certificates live a year, unless a [`Validity`] is given.
//!
//! ```
//! # fn main() -> Result<(), tenure_certs::Error> {
//! let authority = tenure_certs::Authority::new("example")?;
//! let pair = authority.server(&["localhost".to_owned(), "127.0.0.1".to_owned()])?;
//! assert!(pair.certificate.starts_with("-----BEGIN CERTIFICATE-----"));
//! # Ok(())
//! # }
//! ```

mod read;

use std::fs::{OpenOptions, Permissions};
use std::io::Write as _;
use std::net::IpAddr;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PublicKeyData as _, SanType,
};

pub use read::Certificate;

/// The time that a certificate of [`Validity::year`] is valid already.
const DAY: Duration = Duration::from_hours(24);

/// The time from now for which a certificate is valid, if no other is given: 365 days.
pub const VALIDITY: Duration = Duration::from_hours(365 * 24);

/// The time in which a certificate is valid. A certificate has it in whole seconds. The end doesn't
/// belong to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// The beginning.
    pub from: SystemTime,
    /// The end.
    pub until: SystemTime,
}

impl Validity {
    /// Returns the 365 days that begin now, with a day of grace before for a peer whose clock is
    /// behind.
    pub fn year() -> Self {
        let now = SystemTime::now();
        Self { from: now - DAY, until: now + VALIDITY }
    }

    /// Returns the time from the beginning to the end. Zero if the end is earlier.
    pub fn length(self) -> Duration {
        self.until.duration_since(self.from).unwrap_or_default()
    }

    /// Returns the time at which `parts` of `of` equal parts have passed, such as two thirds.
    /// Returns the end if this can't be computed.
    pub fn after(self, parts: u32, of: u32) -> SystemTime {
        let passed = self.length().checked_div(of).and_then(|part| part.checked_mul(parts));
        passed.and_then(|passed| self.from.checked_add(passed)).unwrap_or(self.until)
    }

    /// True at a time within this validity.
    pub fn holds(self, now: SystemTime) -> bool {
        self.from <= now && now < self.until
    }
}

/// The reason why a certificate could not be made or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A name is neither a DNS name nor an IP address.
    #[error(
        "cannot certify {0:?}: give a DNS name such as webhook.example.com or an IP address, without scheme or port"
    )]
    Name(String),
    /// The certificate has no name, and clients trust nothing but names.
    #[error("a server certificate needs at least one DNS name or IP address")]
    NoNames,
    /// The key or the signature could not be made.
    #[error("cannot make the certificate of {subject:?}: {source}")]
    Issue {
        /// The common name of the certificate.
        subject: String,
        /// The error of rcgen.
        source: rcgen::Error,
    },
    /// A certificate and a key are no authority.
    #[error("no usable authority: {0}")]
    Authority(rcgen::Error),
    /// A file could not be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
}

/// The result of the functions of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A certificate authority: its certificate, and the key that signs. The authority signs
/// certificates of servers and clients, and no other authorities.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// The certificate, PEM.
    certificate: String,
}

/// A certificate and its private key.
#[derive(Clone, PartialEq, Eq)]
pub struct CertificatePair {
    /// The certificate, PEM.
    pub certificate: String,
    /// The private key, PKCS #8 in PEM.
    pub key: String,
}

impl Authority {
    /// Creates an authority with a new key, for a year.
    pub fn new(common_name: &str) -> Result<Self> {
        Self::valid(common_name, Validity::year())
    }

    /// Creates an authority with a new key and a validity.
    pub fn valid(common_name: &str, validity: Validity) -> Result<Self> {
        let issue = |source| Error::Issue { subject: common_name.to_owned(), source };
        let mut params = params(common_name, None, validity);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate().map_err(issue)?;
        let certificate = params.self_signed(&key).map_err(issue)?.pem();
        Ok(Self { issuer: Issuer::new(params, key), certificate })
    }

    /// Returns an authority that was made before, by its certificate and its key.
    ///
    /// # Errors
    /// If the certificate or the key can't be read.
    pub fn from_pair(pair: &CertificatePair) -> Result<Self> {
        let key = KeyPair::from_pem(&pair.key).map_err(Error::Authority)?;
        let issuer = Issuer::from_ca_cert_pem(&pair.certificate, key).map_err(Error::Authority)?;
        Ok(Self { issuer, certificate: pair.certificate.clone() })
    }

    /// Returns the authority's certificate, PEM: the content of a `caBundle`.
    pub fn certificate_pem(&self) -> &str {
        &self.certificate
    }

    /// Returns the authority's certificate and its key, to be kept.
    pub fn pair(&self) -> CertificatePair {
        CertificatePair { certificate: self.certificate.clone(), key: self.issuer.key().serialize_pem() }
    }

    /// Issues a certificate for a server reached by `names`, which are DNS names or IP addresses,
    /// for a year. The first name is the common name as well.
    ///
    /// # Errors
    /// [`Error::NoNames`] without a name, [`Error::Name`] for a name that is neither.
    pub fn server(&self, names: &[String]) -> Result<CertificatePair> {
        self.server_valid(names, Validity::year())
    }

    /// Issues a certificate for a server, like [`server`](Self::server), with a validity.
    pub fn server_valid(&self, names: &[String], validity: Validity) -> Result<CertificatePair> {
        let common_name = names.first().ok_or(Error::NoNames)?;
        let mut params = params(common_name, None, validity);
        params.subject_alt_names = names.iter().map(|name| alternative_name(name)).collect::<Result<_>>()?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.issue(common_name, params)
    }

    /// Issues a certificate for a client, for a year. To the API server the common name is the
    /// user, and the organization the user's group.
    ///
    /// One group at most: rcgen keeps one value per attribute of a distinguished name.
    pub fn client(&self, common_name: &str, organization: Option<&str>) -> Result<CertificatePair> {
        let mut params = params(common_name, organization, Validity::year());
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.issue(common_name, params)
    }

    /// Signs a certificate with a new key.
    fn issue(&self, subject: &str, mut params: CertificateParams) -> Result<CertificatePair> {
        let issue = |source| Error::Issue { subject: subject.to_owned(), source };
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().map_err(issue)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(issue)?;
        Ok(CertificatePair { certificate: certificate.pem(), key: key.serialize_pem() })
    }
}

impl CertificatePair {
    /// True if the private key belongs to the certificate, or to the first certificate of a chain.
    pub fn matches(&self) -> bool {
        let certificate = Certificate::read(self.certificate.as_bytes());
        let key = KeyPair::from_pem(&self.key).ok();
        certificate.zip(key).is_some_and(|(of, key)| of.public_key == key.subject_public_key_info())
    }

    /// Writes `tls.crt` and, readable by its owner alone, `tls.key` into `directory`. Files of
    /// these names are overwritten.
    pub fn write(&self, directory: &Path) -> Result<()> {
        write(&directory.join("tls.crt"), &self.certificate, 0o644)?;
        write(&directory.join("tls.key"), &self.key, 0o600)
    }
}

/// Returns the parameters of a certificate without names and usages.
fn params(common_name: &str, organization: Option<&str>, validity: Validity) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    if let Some(organization) = organization {
        params.distinguished_name.push(DnType::OrganizationName, organization);
    }
    params.not_before = validity.from.into();
    params.not_after = validity.until.into();
    params
}

// rcgen takes any ASCII for a DNS name, a URL too, and no name of a server would ever match a URL
fn alternative_name(name: &str) -> Result<SanType> {
    if let Ok(address) = name.parse::<IpAddr>() {
        return Ok(SanType::IpAddress(address));
    }
    let invalid = || Error::Name(name.to_owned());
    let of_dns = |label: &str| {
        !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_*".contains(&byte))
    };
    if !name.split('.').all(of_dns) {
        return Err(invalid());
    }
    Ok(SanType::DnsName(name.try_into().map_err(|_| invalid())?))
}

/// Writes a file with these permissions, also over an old one.
fn write(path: &Path, content: &str, mode: u32) -> Result<()> {
    let write = || {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(path)?;
        // `mode` is for a new file alone: an old one must not lend its wider mode to a new key
        file.set_permissions(Permissions::from_mode(mode))?;
        file.write_all(content.as_bytes())
    };
    write().map_err(|source| Error::Write { path: path.to_owned(), source })
}
