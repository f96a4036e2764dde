//! `tenure-keeper`: holds workloads to the ceilings of their queues.
//!
//! Installs the crypto provider, then reads the flags and runs the keeper. `-h` prints the short
//! help before clap sees the arguments.

use clap::{CommandFactory, Parser};
use tenure_keeper::{Args, short_help};
use tenure_service::flags::go_style;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tenure_service::install_crypto_provider();
    let mut own = std::env::args_os().skip(1).take_while(|argument| argument != "--");
    if own.any(|argument| argument == "-h" || argument == "-help") {
        print!("{}", short_help(&Args::command()));
        return Ok(());
    }
    Args::parse_from(go_style(std::env::args_os())).run().await
}
