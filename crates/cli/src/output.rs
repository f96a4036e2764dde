//! How an answer is printed.

use std::io::{self, Write};

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
    /// Prints a value as JSON or YAML, and says whether it did: a table is the caller's.
    pub fn print(self, value: &impl Serialize, out: &mut impl Write) -> io::Result<bool> {
        match self {
            Self::Table => return Ok(false),
            Self::Json => {
                serde_json::to_writer_pretty(&mut *out, value)?;
                writeln!(out)?;
            }
            Self::Yaml => {
                write!(out, "{}", serde_saphyr::to_string(value).map_err(io::Error::other)?)?;
            }
        }
        out.flush().map(|()| true)
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
