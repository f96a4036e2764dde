//! Certificates for a webhook that is run by hand. Prints the flags and the command by which the
//! files are used.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use tenure_certs::Authority;

/// Makes a certificate authority and a server certificate, for a webhook that is run by hand.
///
/// Writes ca.crt, tls.crt and tls.key. The authority's key is not kept: a second run makes a new authority, whose
/// ca.crt then has to replace the old one in the webhook configurations. Certificates are valid for a year.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// Directory to write into; made when it is missing
    #[arg(long, value_name = "DIR")]
    out: PathBuf,

    /// DNS name or IP address that the API server calls the webhook by; may be repeated
    #[arg(long = "host", value_name = "NAME_OR_IP", default_values = ["localhost", "127.0.0.1"])]
    hosts: Vec<String>,

    /// Overwrite files that are there already
    #[arg(long)]
    force: bool,
}

fn main() -> Result<()> {
    Args::parse().run()
}

impl Args {
    fn run(self) -> Result<()> {
        let Self { out, hosts, force } = self;
        let authority = Authority::new("tenure-webhook-ca")?;
        let server = authority.server(&hosts)?;
        fs::create_dir_all(&out).with_context(|| format!("cannot make the directory {}", out.display()))?;
        if !force {
            refuse_overwriting(&out)?;
        }
        let ca = out.join("ca.crt");
        fs::write(&ca, authority.certificate_pem())
            .with_context(|| format!("cannot write {}", ca.display()))?;
        server.write(&out)?;
        report(&out, &hosts);
        Ok(())
    }
}

/// Fails if one of the three files exists.
fn refuse_overwriting(out: &Path) -> Result<()> {
    for name in ["ca.crt", "tls.crt", "tls.key"] {
        let path = out.join(name);
        let shown = path.display();
        ensure!(!path.exists(), "{shown} exists; choose another directory, or overwrite with --force");
    }
    Ok(())
}

/// Prints the next steps.
fn report(out: &Path, hosts: &[String]) {
    let out = out.display();
    println!("Wrote {out}/ca.crt, {out}/tls.crt and {out}/tls.key, valid for: {}", hosts.join(", "));
    println!();
    println!("Serve with them:");
    println!("  tenure-webhook --tls-cert-file {out}/tls.crt --tls-key-file {out}/tls.key");
    println!("Let the API server trust them: clientConfig.caBundle of the webhook configurations is");
    println!("  base64 -w0 {out}/ca.crt");
}
