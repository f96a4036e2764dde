//! The certificates as a TLS peer sees them.

#![allow(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::{CertificateError, RootCertStore};
use tenure_certs::{Authority, Certificate, CertificatePair, Error, Validity};

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn der(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
}

fn roots(authority: &Authority) -> Arc<RootCertStore> {
    let mut roots = RootCertStore::empty();
    roots.add(der(authority.certificate_pem())).unwrap();
    Arc::new(roots)
}

fn verify(
    authority: &Authority,
    pair: &CertificatePair,
    host: &str,
    at: UnixTime,
) -> Result<(), rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(roots(authority), provider).build().unwrap();
    let host = ServerName::try_from(host).unwrap();
    verifier.verify_server_cert(&der(&pair.certificate), &[], &host, &[], at).map(drop)
}

#[test]
fn server_certificate_is_good_for_each_of_its_names_and_no_other() {
    let authority = Authority::new("test").unwrap();
    let pair = authority.server(&names(&["localhost", "127.0.0.1"])).unwrap();
    for host in ["localhost", "127.0.0.1"] {
        verify(&authority, &pair, host, UnixTime::now()).unwrap();
    }
    verify(&authority, &pair, "example.com", UnixTime::now()).unwrap_err();
}

#[test]
fn server_certificate_expires_after_its_validity() {
    let authority = Authority::new("test").unwrap();
    let pair = authority.server(&names(&["localhost"])).unwrap();
    let now = Duration::from_secs(UnixTime::now().as_secs());
    let later = UnixTime::since_unix_epoch(now + tenure_certs::VALIDITY + Duration::from_hours(1));
    let error = verify(&authority, &pair, "localhost", later).unwrap_err();
    assert!(
        matches!(error, rustls::Error::InvalidCertificate(CertificateError::ExpiredContext { .. })),
        "{error}"
    );
}

#[test]
fn authority_that_was_kept_signs_as_before_and_for_as_long_as_it_is_asked_to() {
    let authority = Authority::from_pair(&Authority::new("test").unwrap().pair()).unwrap();
    let now = SystemTime::now();
    let validity = Validity { from: now - Duration::from_mins(1), until: now + Duration::from_mins(1) };
    let pair = authority.server_valid(&names(&["localhost"]), validity).unwrap();
    verify(&authority, &pair, "localhost", UnixTime::now()).unwrap();
    let later = UnixTime::since_unix_epoch(Duration::from_secs(UnixTime::now().as_secs() + 90));
    verify(&authority, &pair, "localhost", later).unwrap_err();
    let no_key = CertificatePair { key: String::new(), ..authority.pair() };
    assert!(matches!(Authority::from_pair(&no_key), Err(Error::Authority(_))));
}

#[test]
fn a_pair_matches_if_its_key_is_that_of_its_certificate() {
    let authority = Authority::new("test").unwrap();
    let [one, other] = [(); 2].map(|()| authority.server(&names(&["localhost"])).unwrap());
    assert!(authority.pair().matches() && one.matches());
    for key in [other.key, authority.pair().key, "no key".to_owned(), String::new()] {
        assert!(!CertificatePair { key, ..one.clone() }.matches());
    }
    let chain = format!("{}{}", one.certificate, authority.certificate_pem());
    assert!(CertificatePair { certificate: chain, ..one.clone() }.matches());
    assert!(!CertificatePair { certificate: "no certificate".to_owned(), ..one }.matches());
}

#[test]
fn a_certificate_says_its_names_its_issuer_and_its_end() {
    let authority = Authority::new("test").unwrap();
    let pair = authority.server(&names(&["localhost", "192.0.2.7", "2001:db8::7"])).unwrap();
    let own = Certificate::read(authority.certificate_pem().as_bytes()).unwrap();
    let leaf = Certificate::read(pair.certificate.as_bytes()).unwrap();
    assert_eq!(leaf.names, ["192.0.2.7", "2001:db8::7", "localhost"]);
    assert_eq!((&leaf.issuer, &own.issuer), (&own.subject, &own.subject));
    assert!(leaf.validity.holds(SystemTime::now()));
    assert_eq!(leaf.validity.length(), tenure_certs::VALIDITY + Duration::from_hours(24));
    let both = format!("{}{}", authority.certificate_pem(), pair.certificate);
    assert_eq!(Certificate::read_all(both.as_bytes()), Some(vec![own, leaf]));
    let with_key = format!("{}{}", pair.key, pair.certificate);
    assert_eq!(Certificate::read(with_key.as_bytes()), Certificate::read(pair.certificate.as_bytes()));
    assert_eq!(Certificate::read(b"no certificate"), None);
    assert_eq!(Certificate::read_all(pair.certificate.replace("MI", "IM").as_bytes()), None);
}

#[test]
fn a_part_of_a_validity_is_counted_from_its_beginning() {
    let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
    let validity = Validity { from: at(100), until: at(400) };
    assert_eq!([validity.after(2, 3), validity.after(5, 6)], [at(300), at(350)]);
    assert_eq!([at(99), at(100), at(400)].map(|now| validity.holds(now)), [false, true, false]);
}

#[test]
fn serial_numbers_differ() {
    let authority = Authority::new("test").unwrap();
    let serial = || {
        let pair = authority.server(&names(&["localhost"])).unwrap();
        let der = der(&pair.certificate);
        // after the headers of certificate, body, version and number
        der.get(15..31).unwrap().to_vec()
    };
    assert_ne!(serial(), serial());
}

#[test]
fn certificate_of_another_authority_of_the_same_name_is_refused() {
    let (authority, other) = (Authority::new("test").unwrap(), Authority::new("test").unwrap());
    let pair = other.server(&names(&["localhost"])).unwrap();
    verify(&authority, &pair, "localhost", UnixTime::now()).unwrap_err();
}

#[test]
fn client_certificate_is_good_for_clients_alone() {
    let authority = Authority::new("test").unwrap();
    let pair = authority.client("admin", Some("system:masters")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(roots(&authority), provider).build().unwrap();
    verifier.verify_client_cert(&der(&pair.certificate), &[], UnixTime::now()).unwrap();
    verify(&authority, &pair, "localhost", UnixTime::now()).unwrap_err();
}

#[test]
fn server_certificate_needs_a_name() {
    let authority = Authority::new("test").unwrap();
    assert!(matches!(authority.server(&[]), Err(Error::NoNames)));
}

#[test]
fn written_key_is_its_owners_alone_even_over_a_public_file() {
    let directory = tempfile::tempdir().unwrap();
    let key = directory.path().join("tls.key");
    std::fs::write(&key, "old").unwrap();
    let pair = Authority::new("test").unwrap().server(&names(&["localhost"])).unwrap();
    pair.write(directory.path()).unwrap();
    assert_eq!(std::fs::read_to_string(&key).unwrap(), pair.key);
    assert_eq!(std::fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn server_name_is_a_dns_name_or_an_address() {
    let authority = Authority::new("test").unwrap();
    for good in ["localhost", "a-1.example.com", "*.example.com", "192.0.2.7", "2001:db8::7"] {
        assert!(authority.server(&names(&[good])).is_ok(), "{good}");
    }
    for bad in ["", "https://example.com", "example.com:8443", "a..b", "[::1]", "bücher.example"] {
        assert!(matches!(authority.server(&names(&[bad])), Err(Error::Name(name)) if name == bad), "{bad}");
    }
}
