//! `kubectl-tenure`: a plugin of kubectl, which finds it on the PATH and calls it for `kubectl tenure`.

use std::process::ExitCode;

use tenure_cli::{Cli, install_crypto_provider};

#[tokio::main]
async fn main() -> ExitCode {
    install_crypto_provider();
    Cli::run_process().await
}
