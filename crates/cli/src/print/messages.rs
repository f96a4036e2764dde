//! Prints messages on standard error.
//!
//! Called by all commands for warnings, notes and errors. Standard output has answers alone, so
//! that programs can read it.

use std::{
    fmt,
    io::{self, Write},
};

use anyhow::Error;

use super::table::printable;
use crate::cluster::FROM_SERVER;

/// Prints a line, or several, on standard error, and ignores errors: there is no other place to
/// report them. Hidden characters are replaced, because parts of the line may come from other
/// users, who could send commands to the terminal.
pub fn print_message(line: &str) {
    let lines: Vec<String> = line.split('\n').map(printable).collect();
    let _ = writeln!(io::stderr(), "{}", lines.join("\n"));
}

/// Prints a warning: something is odd, but the command continues.
pub fn warn(what: &str) {
    print_message(&format!("Warning: {what}"));
}

/// The error of a command that has already printed the reason. The exit code is 1, and nothing more
/// is printed.
#[derive(Debug)]
pub struct AlreadyReported;

impl fmt::Display for AlreadyReported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("see above")
    }
}

/// Prints an error with its causes, in kubectl's form.
pub fn complain(error: &Error) {
    let message = with_causes(error);
    let whose = if message.starts_with(FROM_SERVER) { "" } else { "error: " };
    print_message(&format!("{whose}{message}"));
}

/// Returns an error and its causes in one line. A cause that the text before it contains is left
/// out.
pub fn with_causes(error: &Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |said, cause| {
        if said.is_empty() {
            cause
        } else if said.contains(&cause) {
            said
        } else {
            format!("{said}: {cause}")
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_named_once() {
        let error = Error::msg("no such file").context("cannot read: no such file").context("--kubeconfig");
        assert_eq!(with_causes(&error), "--kubeconfig: cannot read: no such file");
    }
}
