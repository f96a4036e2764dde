//! Logs.

use std::error::Error;

use clap::{Args, ValueEnum};
use tracing_subscriber::{EnvFilter, layer::SubscriberExt, util::SubscriberInitExt};

/// What is logged, and how.
#[derive(Clone, Debug, Args)]
pub struct LogArgs {
    /// The least level that is logged: error, warn, info, debug or trace, or a filter by module such as
    /// `info,tenure_keeper=debug`
    #[arg(long, value_name = "LEVEL", default_value = "info", env = "TENURE_LOG_LEVEL")]
    log_level: EnvFilter,

    /// How a line looks
    #[arg(long, value_name = "FORMAT", default_value = "logfmt", env = "TENURE_LOG_FORMAT")]
    log_format: LogFormat,
}

/// How a line of log looks.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum LogFormat {
    /// `key=value` pairs
    Logfmt,
    /// One JSON object a line
    Json,
}

impl LogArgs {
    /// Sends logs to standard error from now on.
    pub fn init(self) -> anyhow::Result<()> {
        let Self { log_level, log_format } = self;
        let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
        let registry = tracing_subscriber::registry().with(without_repetition(log_level)?);
        match log_format {
            LogFormat::Json => registry.with(lines.json().flatten_event(true)).try_init()?,
            LogFormat::Logfmt => registry
                .with(
                    lines
                        .event_format(tracing_logfmt::EventsFormatter::default())
                        .fmt_fields(tracing_logfmt::FieldsFormatter::default()),
                )
                .try_init()?,
        }
        Ok(())
    }
}

/// kube logs each failed try of a call; we log what became of it.
fn without_repetition(filter: EnvFilter) -> anyhow::Result<EnvFilter> {
    if filter.to_string().contains("kube_") {
        return Ok(filter);
    }
    Ok(filter.add_directive("kube_runtime=off".parse()?).add_directive("kube_client=off".parse()?))
}

/// An error with its causes, each said once: many errors say their cause themselves, and many don't.
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let said = cause.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_is_said_once() {
        let error =
            anyhow::anyhow!("connection refused").context("connect: connection refused").context("list");
        assert_eq!(with_causes(error.as_ref()), "list: connect: connection refused");
    }
}
