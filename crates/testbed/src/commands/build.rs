use anyhow::Result;
use tenure_testbed::Binaries;

pub(crate) fn run() -> Result<()> {
    println!("{}", Binaries::locate()?.directory().display());
    Ok(())
}
