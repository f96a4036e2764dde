//! The `logfmt` format of lines of log, the default of `--log-format`. Each event is one line: line
//! breaks, control characters and invisible characters in values are escaped, so that a value from
//! a tenant can't forge a line.

use std::fmt::{self, Debug, Write};

use jiff::Timestamp;
use tenure_types::hidden::{is_hidden, write_escape};
use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
    span::Record,
};
use tracing_subscriber::{
    field::RecordFields,
    fmt::{FmtContext, FormatEvent, FormatFields, FormattedFields, format::Writer},
    registry::{LookupSpan, Scope},
};

/// The prefix of Tenure's own modules. Events of other crates show the name of their module as
/// `target`.
const OURS: &str = "tenure_";

/// Writes an event as T9k's programs do: `level=info time=2023-12-15T02:52:01.639233235Z msg="A
/// sentence" key=value`. Without a message `msg` is left out. The fields of the event come before
/// those of its spans. Takes the clock.
#[derive(Clone, Copy, Debug)]
pub struct Logfmt(pub fn() -> Timestamp);

impl<S, N> FormatEvent<S, N> for Logfmt
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut pairs = Pairs::default();
        event.record(&mut pairs);
        let Pairs { message, target, fields } = pairs;
        // a timestamp displays as RFC 3339, without trailing zeros
        let level = event.metadata().level().as_str().to_ascii_lowercase();
        write!(writer, "level={level} time={}", (self.0)())?;
        if let Some(message) = message {
            write_pair(&mut writer, "msg", &message)?;
        }
        writer.write_str(&fields)?;
        for span in context.event_scope().into_iter().flat_map(Scope::from_root) {
            if let Some(fields) = span.extensions().get::<FormattedFields<N>>() {
                writer.write_str(fields)?;
            }
        }
        let target = target.as_deref().unwrap_or(event.metadata().target());
        if !target.starts_with(OURS) {
            write_pair(&mut writer, "target", target)?;
        }
        writeln!(writer)
    }
}

/// Writes the fields of a span, each after a space.
impl<'writer> FormatFields<'writer> for Logfmt {
    fn format_fields<R: RecordFields>(&self, mut writer: Writer<'writer>, fields: R) -> fmt::Result {
        let mut pairs = Pairs::default();
        fields.record(&mut pairs);
        if let Some(message) = pairs.message {
            write_pair(&mut writer, "message", &message)?;
        }
        writer.write_str(&pairs.fields)
    }

    fn add_fields(&self, fields: &'writer mut FormattedFields<Self>, added: &Record<'_>) -> fmt::Result {
        self.format_fields(fields.as_writer(), added)
    }
}

/// The fields of an event, taken apart.
#[derive(Debug, Default)]
struct Pairs {
    /// The sentence of the event. None: the event has fields alone.
    message: Option<String>,
    /// The target of an event of the `log` crate, which gives it as a field. None: the metadata has
    /// the target.
    target: Option<String>,
    /// The other fields as ` key=value` pairs, ready to be written.
    fields: String,
}

impl Pairs {
    fn add(&mut self, field: &Field, value: &str) {
        match field.name() {
            // macros put the sentence first; a field of the same name may follow
            "message" if self.message.is_none() => self.message = Some(value.into()),
            "log.target" => self.target = Some(value.into()),
            name if name.starts_with("log.") => {}
            // writing to a string never fails
            name => _ = write_pair(&mut self.fields, name.trim_start_matches("r#"), value),
        }
    }
}

impl Visit for Pairs {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.add(field, &format!("{value:?}"));
    }
}

/// Writes ` key=value`. A value with a space, an equals sign, a quote or a hidden character is
/// quoted.
fn write_pair(writer: &mut impl Write, key: &str, value: &str) -> fmt::Result {
    write!(writer, " {key}=")?;
    if !value.contains(|character| matches!(character, ' ' | '=' | '"') || is_hidden(character)) {
        return writer.write_str(value);
    }
    writer.write_char('"')?;
    value.chars().try_for_each(|character| write_quoted(writer, character))?;
    writer.write_char('"')
}

/// Writes a character as JSON does, since readers of logfmt parse quotes like that.
fn write_quoted(writer: &mut impl Write, character: char) -> fmt::Result {
    match character {
        '"' | '\\' => write!(writer, "\\{character}"),
        '\n' => writer.write_str("\\n"),
        '\r' => writer.write_str("\\r"),
        '\t' => writer.write_str("\\t"),
        _ if is_hidden(character) => write_escape(writer, character),
        _ => writer.write_char(character),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        sync::{Arc, Mutex},
    };

    use tracing::{Level, debug, error, info, info_span, warn};

    use super::*;

    #[derive(Clone, Default)]
    struct Output(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Output {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn written_at(now: fn() -> Timestamp, work: impl FnOnce()) -> String {
        let output = Output::default();
        let copy = output.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(Level::TRACE)
            .event_format(Logfmt(now))
            .fmt_fields(Logfmt(now))
            .with_writer(move || copy.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, work);
        let bytes = output.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    /// The text after the time.
    fn written(work: impl FnOnce()) -> String {
        let text = written_at(|| Timestamp::UNIX_EPOCH, work);
        text.split_once("time=1970-01-01T00:00:00Z").unwrap().1.to_owned()
    }

    fn value(text: &str) -> String {
        let line = written(|| info!(value = text));
        line.strip_prefix(" value=").unwrap().strip_suffix('\n').unwrap().to_owned()
    }

    #[test]
    fn a_start_is_written_as_in_the_text() {
        let now = || "2023-12-15T02:52:01.639233235Z".parse().unwrap();
        let line = written_at(now, || info!(Start = "Run Duration Keeper"));
        assert_eq!(line, "level=info time=2023-12-15T02:52:01.639233235Z Start=\"Run Duration Keeper\"\n");
    }

    #[test]
    fn times_end_without_zeros() {
        let now = || "2024-01-19T06:29:21.491395460Z".parse().unwrap();
        let line = written_at(now, || info!("A"));
        assert_eq!(line, "level=info time=2024-01-19T06:29:21.49139546Z msg=A\n");
    }

    #[test]
    fn levels_have_the_names_of_the_flag() {
        let all = || {
            debug!("A");
            info!("B");
            warn!("C");
            error!("D");
        };
        let lines = written_at(|| Timestamp::UNIX_EPOCH, all);
        let levels: Vec<_> = lines.lines().map(|line| line.split(' ').next().unwrap()).collect();
        assert_eq!(levels, ["level=debug", "level=info", "level=warn", "level=error"]);
    }

    #[test]
    fn the_message_comes_first_and_fields_follow_in_order() {
        let queue = "research";
        let line = written(|| info!(%queue, pods = 2, ready = true, r#type = ?Some(1), "Paused them all"));
        assert_eq!(line, " msg=\"Paused them all\" queue=research pods=2 ready=true type=Some(1)\n");
    }

    #[test]
    fn a_field_called_message_is_not_the_message() {
        let message = "forbidden";
        assert_eq!(written(|| info!(message, "Not allowed")), " msg=\"Not allowed\" message=forbidden\n");
    }

    #[test]
    fn values_are_quoted_only_when_they_must_be() {
        for bare in
            ["", "a", "spec.replicas", "default/test-0", ":8080", "[Flag]", r"C:\x", "it's", "日本", "{}"]
        {
            assert_eq!(value(bare), bare);
        }
        for (text, quoted) in [
            ("a b", r#""a b""#),
            ("a=b", r#""a=b""#),
            (r#"say "no""#, r#""say \"no\"""#),
            (r"back\ slash", r#""back\\ slash""#),
        ] {
            assert_eq!(value(text), quoted);
        }
    }

    #[test]
    fn a_value_cannot_pass_for_a_line() {
        for (text, quoted) in [
            ("a\nlevel=error", r#""a\nlevel=error""#),
            ("a\r\n\tb", r#""a\r\n\tb""#),
            ("\u{1b}[2Kb", r#""\u001b[2Kb""#),
            ("a\u{0}b\u{7f}\u{85}", r#""a\u0000b\u007f\u0085""#),
            ("a\u{2028}b", r#""a\u2028b""#),
            ("a\u{202e}b\u{2066}", r#""a\u202eb\u2066""#),
            ("a\u{e0041}", r#""a\udb40\udc41""#),
        ] {
            assert_eq!(value(text), quoted);
        }
        assert_eq!(written(|| info!("{}", "a\nlevel=error")), " msg=\"a\\nlevel=error\"\n");
    }

    #[test]
    fn what_others_say_is_marked_as_theirs() {
        assert_eq!(
            written(|| info!(target: "hyper::proto", "Flushed")),
            " msg=Flushed target=hyper::proto\n"
        );
        let bridged = || info!(target: "log", { log.target = "rustls::client", log.line = 3 }, "Resumed");
        assert_eq!(written(bridged), " msg=Resumed target=rustls::client\n");
    }

    #[test]
    fn fields_of_spans_follow_those_of_the_event() {
        let line = written(|| {
            let outer = info_span!("review", uid = "a b").entered();
            let inner = info_span!(parent: &outer, "object", kind = "Job", name = tracing::field::Empty);
            inner.record("name", "test");
            inner.in_scope(|| info!(queue = "demo", "Refused"));
        });
        assert_eq!(line, " msg=Refused queue=demo uid=\"a b\" kind=Job name=test\n");
    }
}
