//! Logs.

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

/// kube's watcher warns of each failed try; we say once that a watch failed, and once that it works again.
fn without_repetition(filter: EnvFilter) -> anyhow::Result<EnvFilter> {
    if filter.to_string().contains("kube_runtime") {
        return Ok(filter);
    }
    Ok(filter.add_directive("kube_runtime=error".parse()?))
}
