//! `tenure-keeper`: holds workloads to the ceilings of their queues.

use clap::{CommandFactory, Parser};
use tenure_keeper::{Args, short_help};
use tenure_service::flags::go_style;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tenure_service::install_crypto_provider();
    let arguments = go_style(std::env::args_os());
    if arguments.iter().skip(1).take_while(|argument| *argument != "--").any(|argument| argument == "-h") {
        print!("{}", short_help(&Args::command()));
        return Ok(());
    }
    Args::parse_from(arguments).run().await
}
