//! How an answer is printed.

use std::io::{self, BufWriter, Write};

use clap::{Args, ValueEnum};
use serde::Serialize;

/// The form of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Output {
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
    pub output: Output,
}

impl Output {
    /// Prints an answer on standard output: as JSON or YAML, or as a table of the command's own.
    pub fn show(
        self,
        answer: &impl Serialize,
        table: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
        if !self.print(answer, &mut out)? {
            table(&mut out)?;
        }
        out.flush()
    }

    /// Prints a value as JSON or YAML, and says whether it did.
    pub fn print(self, value: &impl Serialize, out: &mut impl Write) -> io::Result<bool> {
        match self {
            Self::Table => return Ok(false),
            Self::Json => {
                serde_json::to_writer_pretty(&mut *out, value)?;
                writeln!(out)?;
            }
            Self::Yaml => yaml(value, out)?,
        }
        Ok(true)
    }
}

/// Prints a value as YAML.
pub fn yaml(value: &impl Serialize, out: &mut impl Write) -> io::Result<()> {
    let mut kept = Kept { out, error: None };
    let written = serde_saphyr::to_io_writer(&mut kept, value);
    // the serializer's error doesn't tell a closed pipe from others
    kept.error.map_or_else(|| written.map_err(io::Error::other), Err)
}

/// Keeps the error that ends it.
struct Kept<'w, W> {
    out: &'w mut W,
    error: Option<io::Error>,
}

impl<W: Write> Write for Kept<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes).map_err(|error| {
            let kind = error.kind();
            self.error = Some(error);
            kind.into()
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn json_and_yaml_end_with_a_line_break() {
        let printed = |output: Output| {
            let mut out = Vec::new();
            output.print(&json!({"a": [1]}), &mut out).unwrap().then(|| String::from_utf8(out).unwrap())
        };
        assert_eq!(printed(Output::Json).unwrap(), "{\n  \"a\": [\n    1\n  ]\n}\n");
        assert_eq!(printed(Output::Yaml).unwrap(), "a:\n- 1\n");
        assert_eq!(printed(Output::Table), None);
    }
}
