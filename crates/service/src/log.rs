//! The log of a server: its flags, its filter, and errors as text. `run` of the keeper, of the
//! webhook and of its `uninstall` calls [`LogArgs::init`] first; all lines go to standard error,
//! one per event.

mod logfmt;

use std::{error::Error, num::NonZeroU32, panic::Location, sync::LazyLock};

use clap::{Args, ValueEnum};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use jiff::Timestamp;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::{filter::Targets, layer::SubscriberExt, util::SubscriberInitExt};

use logfmt::Logfmt;

/// The level and the format of logs.
#[derive(Clone, Debug, Args)]
pub struct LogArgs {
    /// The least level that is logged
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    log_level: LogLevel,

    /// The format of a line
    #[arg(long, value_name = "FORMAT", default_value = "logfmt")]
    log_format: LogFormat,
}

/// The importance of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LogLevel {
    /// Also the reasons for doing nothing, and messages of libraries
    Debug,
    /// Actions of the program
    Info,
    /// Problems that may need attention
    Warn,
    /// Failures
    Error,
}

/// The format of a line of log.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum LogFormat {
    /// `key=value` pairs
    Logfmt,
    /// One JSON object a line
    Json,
}

impl LogArgs {
    /// Sends logs to standard error from now on. Fails if the process has a subscriber already.
    pub fn init(self) -> anyhow::Result<()> {
        let Self { log_level, log_format } = self;
        let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
        let registry = tracing_subscriber::registry().with(filter(log_level));
        match log_format {
            LogFormat::Json => registry.with(lines.json().flatten_event(true)).try_init()?,
            LogFormat::Logfmt => registry
                .with(lines.event_format(Logfmt(Timestamp::now)).fmt_fields(Logfmt(Timestamp::now)))
                .try_init()?,
        }
        Ok(())
    }
}

/// The lines of log that one place in the code may write about calls in a second on average.
const LINES: NonZeroU32 = NonZeroU32::MIN.saturating_add(9);
/// The lines that one place may write about calls at once.
const LINES_AT_ONCE: NonZeroU32 = NonZeroU32::MIN.saturating_add(199);

/// True if one more line about a call may be written, else any caller could fill the log. Each call
/// counts the line as written. Each place in the code that calls this has a limit of its own: a
/// flood of one line hides no other. Metrics count all calls.
#[track_caller]
pub fn of_callers() -> bool {
    static LIMIT: LazyLock<DefaultKeyedRateLimiter<&'static Location<'static>>> =
        LazyLock::new(|| RateLimiter::keyed(Quota::per_second(LINES).allow_burst(LINES_AT_ONCE)));
    LIMIT.check_key(&Location::caller()).is_ok()
}

/// The most bytes that a line shows of a text by others.
const LONGEST_TEXT: usize = 1_024;

/// Returns the beginning of a text for a line of log. A caller or a user may write megabytes where a
/// name belongs.
pub fn cut(text: &str) -> &str {
    text.get(..text.floor_char_boundary(LONGEST_TEXT)).unwrap_or_default()
}

/// Returns the levels by crate. kube logs each failed try, while Tenure logs the result, so lines
/// of kube appear at level debug only.
fn filter(level: LogLevel) -> Targets {
    let (least, kube) = match level {
        LogLevel::Debug => (LevelFilter::DEBUG, LevelFilter::DEBUG),
        LogLevel::Info => (LevelFilter::INFO, LevelFilter::OFF),
        LogLevel::Warn => (LevelFilter::WARN, LevelFilter::OFF),
        LogLevel::Error => (LevelFilter::ERROR, LevelFilter::OFF),
    };
    Targets::new().with_default(least).with_targets([("kube_client", kube), ("kube_runtime", kube)])
}

/// Returns an error with its causes, from the outermost to the innermost, separated by colons. A
/// cause whose text is already there is left out: many errors include their cause, and many don't.
/// An answer of the API server ends the text with its message and code.
pub fn with_causes(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = Some(error);
    while let Some(cause) = next {
        let said = cause.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        // kube's text of an answer of the API server has all its fields; an error in a box is a
        // cause of another type
        let kube = cause.downcast_ref().or_else(|| cause.downcast_ref::<Box<kube::Error>>().map(Box::as_ref));
        if let Some(kube::Error::Api(status)) = kube {
            return text.replace(&said, &format!("{} ({})", status.message, status.code));
        }
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use tracing::Level;

    use super::*;
    use crate::call::ApiError;

    #[test]
    fn callers_cause_a_bounded_number_of_lines() {
        let lines = (0..10_000).filter(|_| of_callers()).count();
        assert!((200..1_000).contains(&lines), "{lines}");
    }

    #[test]
    fn a_flood_of_lines_at_one_place_hides_no_line_of_another() {
        while of_callers() {}
        assert!(of_callers());
    }

    #[test]
    fn a_text_by_others_is_cut_at_the_end_of_a_character() {
        assert_eq!((cut(""), cut("research")), ("", "research"));
        assert_eq!(cut(&"€".repeat(200_000)), "€".repeat(341));
    }

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        log: LogArgs,
    }

    #[test]
    fn levels_are_those_of_the_text_and_no_others() {
        for level in ["debug", "info", "warn", "error"] {
            Program::try_parse_from(["program", "--log-level", level]).unwrap();
        }
        for level in ["trace", "off", "INFO", "warning", "", "info,tenure_keeper=debug"] {
            let refusal =
                Program::try_parse_from(["program", "--log-level", level]).err().unwrap().to_string();
            assert!(refusal.contains("[possible values: debug, info, warn, error]"), "{refusal}");
        }
        assert_eq!(Program::parse_from(["program"]).log.log_level, LogLevel::Info);
    }

    #[test]
    fn only_who_asks_for_details_hears_kube() {
        for level in [LogLevel::Info, LogLevel::Warn, LogLevel::Error] {
            assert!(filter(level).would_enable("tenure_keeper::expiry", &Level::ERROR), "{level:?}");
            assert!(!filter(level).would_enable("kube_runtime::watcher", &Level::ERROR), "{level:?}");
        }
        assert!(filter(LogLevel::Debug).would_enable("kube_client::client", &Level::DEBUG));
        assert!(!filter(LogLevel::Warn).would_enable("tenure_keeper", &Level::INFO));
    }

    #[test]
    fn of_an_answer_of_the_api_server_the_message_is_said_and_the_code() {
        let status: kube::core::Status =
            serde_json::from_str(r#"{"status": "Failure", "message": "no such thing", "code": 404}"#)
                .unwrap();
        let error = anyhow::Error::new(kube::Error::Api(Box::new(status))).context("list");
        assert_eq!(with_causes(error.as_ref()), "list: no such thing (404)");
    }

    #[test]
    fn an_answer_of_the_api_server_is_never_shown_with_all_its_fields() {
        let status = r#"{"status": "Failure", "message": "too many requests", "code": 429}"#;
        let status: kube::core::Status = serde_json::from_str(status).unwrap();
        let error = ApiError::from(kube::Error::Api(Box::new(status)));
        assert!(matches!(error, ApiError::Other(_)));
        assert_eq!(with_causes(&error), "no good answer: too many requests (429)");
    }

    #[test]
    fn each_cause_is_said_once() {
        let error =
            anyhow::anyhow!("connection refused").context("connect: connection refused").context("list");
        assert_eq!(with_causes(error.as_ref()), "list: connect: connection refused");
    }
}
