//! Reads the end of validity of certificates.
//!
//! Called by the checks of the webhook, for the certificate that it serves and for the CAs that the
//! API server trusts.

use jiff::Timestamp;
use rustls::pki_types::{CertificateDer, pem::PemObject};
use x509_parser::parse_x509_certificate;

/// Returns the first end among the certificates of a PEM file. None: there is none, or one can't be
/// read.
pub fn first_end(pem: &[u8]) -> Option<Timestamp> {
    ends(pem)?.into_iter().min()
}

/// Returns the last end among the certificates of a PEM file: of two authorities that follow one
/// another, the first is trusted until it ends. None: there is none, or one can't be read.
pub fn last_end(pem: &[u8]) -> Option<Timestamp> {
    ends(pem)?.into_iter().max()
}

/// Returns the ends of all certificates. None: one of them can't be read.
fn ends(pem: &[u8]) -> Option<Vec<Timestamp>> {
    CertificateDer::pem_slice_iter(pem).map(|der| not_after(&der.ok()?)).collect()
}

/// Returns the end of validity of a certificate in DER.
fn not_after(der: &[u8]) -> Option<Timestamp> {
    let (_, certificate) = parse_x509_certificate(der).ok()?;
    Timestamp::from_second(certificate.validity().not_after.timestamp()).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Its end is a `UTCTime`.
    const BEFORE_2050: &str = "\
-----BEGIN CERTIFICATE-----
MIIBdjCCARugAwIBAgIULcDvEFZziHSS4XW50abTQGVA7FgwCgYIKoZIzj0EAwIw
EDEOMAwGA1UEAwwFc2hvcnQwHhcNMjYxMTIzMDE1NTU2WhcNMjcxMTIzMDE1NTU2
WjAQMQ4wDAYDVQQDDAVzaG9ydDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABNoQ
fnigYX6bWSK2N19US7d2XbyszbfFVdjEt3StYbBrDebeFv0TmWaKIBUGfqr0/hd0
q01vSHy+Ph66I9p5I7WjUzBRMB0GA1UdDgQWBBQRshPIDiWqm5EWW82Ojte4o7sq
3TAfBgNVHSMEGDAWgBQRshPIDiWqm5EWW82Ojte4o7sq3TAPBgNVHRMBAf8EBTAD
AQH/MAoGCCqGSM49BAMCA0kAMEYCIQDpPo3mn4Wres7q+7yvQFJdlegFrkBJONrP
+RpT+2qctQIhAMq7yTKCBllCbJJ82GbOJc8N3MUybKpVVzKkAB80GVBM
-----END CERTIFICATE-----
";

    /// Its end is a `GeneralizedTime`.
    const AFTER_2050: &str = "\
-----BEGIN CERTIFICATE-----
MIIBdjCCARugAwIBAgIUSfxeU/5xTzKoD6FMZR5jwFoOv8cwCgYIKoZIzj0EAwIw
DzENMAsGA1UEAwwEbG9uZzAgFw0yNjExMjMwMTU1NTZaGA8yMDU5MTAwMTAxNTU1
NlowDzENMAsGA1UEAwwEbG9uZzBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABHOD
kHBQZT2E10NWTTgxwGnDSUTZFJzfX4F67JPhh/cGbMCVxRJMjdf99YLHgP+xta0/
EAAP8XjrzDD1nbViokqjUzBRMB0GA1UdDgQWBBSmazsMkGJv72jS6k2qnhTL3xw6
DDAfBgNVHSMEGDAWgBSmazsMkGJv72jS6k2qnhTL3xw6DDAPBgNVHRMBAf8EBTAD
AQH/MAoGCCqGSM49BAMCA0kAMEYCIQCi495J7MBSQtsehICkRN9o7H2U4/GNfK73
i3A8w+9EuQIhAI5Tjtk/73C+yJ3+S632IujmPCLJcalNCDK6p80xCfRS
-----END CERTIFICATE-----
";

    #[test]
    fn of_several_certificates_the_first_end_counts_and_of_authorities_the_last() {
        let at = |text: &str| Some(text.parse().unwrap());
        assert_eq!(first_end(BEFORE_2050.as_bytes()), at("2027-11-23T01:55:56Z"));
        assert_eq!(first_end(AFTER_2050.as_bytes()), at("2059-10-01T01:55:56Z"));
        let both = format!("{AFTER_2050}{BEFORE_2050}");
        assert_eq!(first_end(both.as_bytes()), first_end(BEFORE_2050.as_bytes()));
        assert_eq!(last_end(both.as_bytes()), first_end(AFTER_2050.as_bytes()));
    }

    #[test]
    fn what_is_no_certificate_has_no_end() {
        for pem in ["", "nonsense", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
            assert_eq!(first_end(pem.as_bytes()), None, "{pem}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_odd(der in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = not_after(&der);
        }
    }
}
