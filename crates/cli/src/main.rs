//! `kubectl-tenure`: a plugin of kubectl, which finds the program on the PATH and calls it for
//! `kubectl tenure`.
//!
//! The exit code is that of `Cli`: 0 for success, 1 for a failure, 2 for a bad command line.

use std::process::ExitCode;

use tenure_cli::{Cli, install_crypto_provider};

#[tokio::main]
async fn main() -> ExitCode {
    install_crypto_provider();
    Cli::run_process().await
}
