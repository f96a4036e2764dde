//! Prints answers, tables and messages.
//!
//! Commands print answers on standard output and messages on standard error. Texts that tenants may
//! have written are made harmless for terminals in tables, JSON and YAML. An error of standard
//! output is returned: a closed pipe ends the command without a message.

mod age;
mod listing;
mod messages;
mod numbers;
mod table;

use std::io::{self, BufWriter, Write};

use anyhow::Result;
use clap::{Args, ValueEnum};
use serde::Serialize;
use tenure_types::hidden::{escape_json, is_hidden};

pub use age::{human, minute, moment, until};
pub use listing::{Format, ListRow, Printer};
pub use messages::{AlreadyReported, complain, print_message, warn, with_causes};
pub use numbers::{amount, grouped, plural};
pub use table::{Column, Table, TablePart, cell, moment_cell, printable, table, tables};

/// The form of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// For people
    #[default]
    Table,
    /// For programs
    Json,
    /// The same as YAML
    Yaml,
}

/// The flag of commands that answer.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct OutputArgs {
    /// The form of the answer
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t)]
    pub output: OutputFormat,
}

impl OutputArgs {
    /// Prints an answer on standard output: as JSON or YAML, or as the command's own table.
    pub fn show(self, answer: &impl Serialize, table: impl FnOnce() -> String) -> Result<()> {
        self.stream(answer, |out| out.write_all(table().as_bytes()))
    }

    /// Prints an answer whose table may be too large for memory.
    pub fn stream(
        self,
        answer: &impl Serialize,
        table: impl FnOnce(TableOutput<'_>) -> io::Result<()>,
    ) -> Result<()> {
        let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
        match self.output {
            OutputFormat::Table => table(&mut out)?,
            OutputFormat::Json => out.write_all(json(answer)?.as_bytes())?,
            OutputFormat::Yaml => out.write_all(yaml(answer)?.as_bytes())?,
        }
        Ok(out.flush()?)
    }
}

/// Prints a text on standard output at once. The text must be printable already.
pub fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// The writer of a table.
pub type TableOutput<'o> = &'o mut dyn Write;

/// Returns JSON with indentation and a final newline. Hidden characters in texts are escaped.
pub fn json(answer: &(impl Serialize + ?Sized)) -> io::Result<String> {
    Ok(escape_json(&serde_json::to_string_pretty(answer)?) + "\n")
}

/// Returns YAML. A document with hidden characters is returned as JSON, which is YAML with escapes.
pub fn yaml(answer: &(impl Serialize + ?Sized)) -> io::Result<String> {
    let text = serde_saphyr::to_string(&answer).map_err(io::Error::other)?;
    if text.chars().any(|character| is_hidden(character) && character != '\n') {
        return json(answer);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn json_and_yaml_end_with_a_line_break() {
        let answer = json!({"a": [1]});
        assert_eq!(json(&answer).unwrap(), "{\n  \"a\": [\n    1\n  ]\n}\n");
        assert_eq!(yaml(&answer).unwrap(), "a:\n- 1\n");
    }

    #[test]
    fn json_and_yaml_escape_what_commands_a_terminal_or_hides() {
        let value = json!({"a": "\u{9b}31m\u{202e}", "b": ["\u{200b}\n\u{7f}"]});
        for text in [json(&value).unwrap(), yaml(&value).unwrap()] {
            assert!(!text.chars().any(|c| is_hidden(c) && c != '\n'), "{text:?}");
            assert_eq!(serde_saphyr::from_str::<serde_json::Value>(&text).unwrap(), value);
        }
    }
}
