//! Completion of the command line: scripts for shells, and the answers that kubectl asks for.
//!
//! [`asked`] is called by the command line before clap reads it. Without a cluster that answers in
//! time, the completion has no candidates and prints no error.

mod values;

use std::{ffi::OsString, path::Path, process::ExitCode, time::Duration};

use anyhow::Result;
use clap::{Arg, Args, Command, CommandFactory, builder::PossibleValue};
use clap_complete::Shell;

use crate::{
    args::Cli,
    print::{print, printable},
};

/// Print a script that lets a shell complete commands and flags
///
/// The script completes kubectl-tenure, the plugin without kubectl. The steps for kubectl itself are below.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
To install it, one of:
  kubectl-tenure completion bash > ~/.local/share/bash-completion/completions/kubectl-tenure
  kubectl-tenure completion zsh > \"${fpath[1]}/_kubectl-tenure\"
  kubectl-tenure completion fish > ~/.config/fish/completions/kubectl-tenure.fish
  kubectl-tenure completion powershell >> $PROFILE
  kubectl-tenure completion elvish >> ~/.config/elvish/rc.elv

For kubectl tenure, kubectl asks a program on the PATH that is called kubectl_complete-tenure: the plugin itself, which then
completes queues, workloads, namespaces and contexts too:
  ln -s \"$(command -v kubectl-tenure)\" /usr/local/bin/kubectl_complete-tenure")]
pub struct CompletionArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// The name by which kubectl calls the plugin for candidates.
const COMPLETER: &str = "kubectl_complete-tenure";
/// The longest time that a user waits for a key to have an effect.
const PATIENCE: Duration = Duration::from_secs(3);
/// The first word by which a program that hasn't that name is asked for candidates.
const ASK: &str = "__complete";

/// Returns the words of the line to complete. The last word may be incomplete. None: no completion
/// is asked for.
pub fn asked(mut arguments: impl Iterator<Item = OsString>) -> Option<Vec<OsString>> {
    let program = arguments.next()?;
    let is_completer = Path::new(&program).file_name().is_some_and(|name| name == COMPLETER);
    (is_completer || arguments.next()? == ASK).then(|| arguments.collect())
}

/// Prints the candidates for the last of these words, one a line, and then a directive for the
/// shell, as kubectl's own completion does: 0 to complete names of files, 4 not to. Always
/// succeeds.
pub async fn answer(words: Vec<OsString>) -> ExitCode {
    let texts: Result<Vec<String>, _> = words.into_iter().map(OsString::into_string).collect();
    let (found, is_file) = match texts {
        Ok(words) => candidates(&words).await,
        Err(_) => (String::new(), false),
    };
    let directive = if is_file { 0 } else { 4 };
    // a shell that has gone on doesn't read the answer
    let _ = print(&format!("{found}:{directive}\n"));
    ExitCode::SUCCESS
}

/// Returns the lines of candidates for the last word, sorted, and true if the shell is to complete
/// names of files.
async fn candidates(words: &[String]) -> (String, bool) {
    let (current, before) = words.split_last().map_or(("", words), |(last, before)| (last.as_str(), before));
    let mut command = Cli::command();
    command.build();
    let (mut found, is_file) = match place(&command, before, current) {
        CompletionPlace::OneOf(found) => (found, false),
        CompletionPlace::Value { name, .. } if name.starts_with("FILE") => (Vec::new(), true),
        CompletionPlace::Value { name, of, before: others } => {
            // without an answer in time there are no candidates: an error message would spoil the
            // line
            let found = tokio::time::timeout(PATIENCE, values::of(&name, &of, &others, before)).await;
            (found.ok().and_then(Result::ok).unwrap_or_default(), false)
        }
    };
    let value = current.strip_prefix("--").and_then(|flag| flag.split_once('='));
    let begin = value.map_or(current, |(_, value)| value);
    found.retain(|(name, _)| name.starts_with(begin));
    found.sort();
    found.dedup();
    let line = |(name, help): (String, Option<String>)| {
        let help = help.map(|help| format!("\t{}", printable(&help))).unwrap_or_default();
        format!("{}{help}\n", printable(&name))
    };
    (found.into_iter().map(line).collect(), is_file)
}

/// The name of the program in scripts.
const PROGRAM: &str = "kubectl-tenure";

impl CompletionArgs {
    /// Prints the script for the shell.
    pub fn run(self, cli: Command) -> Result<()> {
        print(&script(self.shell, cli))
    }
}

/// Returns the script for a shell.
fn script(shell: Shell, cli: Command) -> String {
    // a generator panics if it can't write
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut cli.bin_name(PROGRAM), PROGRAM, &mut script);
    // clap_complete writes the hyphen in a program's name in two ways:
    // https://github.com/clap-rs/clap/issues/6421
    String::from_utf8_lossy(&script).replace("kubectl__subcmd__tenure", "kubectl__tenure")
}

/// A candidate, and its description. None: no description.
pub type Completion = (String, Option<String>);

/// The words that may stand at a place.
#[derive(Debug, PartialEq)]
enum CompletionPlace {
    /// One of these.
    OneOf(Vec<Completion>),
    /// A value by its name on the command line, such as `QUEUE`, of a command such as `resume`.
    /// `before` has the positional arguments that stand before it.
    Value { name: String, of: String, before: Vec<String> },
}

/// Returns what may stand after the words `before`. The word there begins with `current`.
fn place(mut command: &Command, before: &[String], current: &str) -> CompletionPlace {
    let (mut words, mut positional, mut is_raw) = (before.iter(), Vec::new(), false);
    while let Some(word) = words.next() {
        if is_raw || !word.starts_with('-') || word == "-" {
            match command.find_subcommand(word).filter(|_| positional.is_empty()) {
                Some(found) => command = found,
                None => positional.push(word.clone()),
            }
        } else if word == "--" {
            is_raw = true;
        } else if let Some(arg) = with_value_open(command, word)
            && words.next().is_none()
        {
            return value(command, arg, Vec::new());
        }
    }
    if current.starts_with('-') && !is_raw {
        let flag = current.strip_prefix("--").and_then(|flag| flag.split_once('='));
        let Some((name, _)) = flag else { return CompletionPlace::OneOf(flags(command)) };
        let arg = command.get_arguments().find(|arg| arg.get_long() == Some(name));
        return arg.map_or(CompletionPlace::OneOf(Vec::new()), |arg| value(command, arg, Vec::new()));
    }
    if positional.is_empty() && command.has_subcommands() {
        let is_shown = |command: &&Command| !command.is_hide_set() && command.get_name() != "help";
        let shown = command.get_subcommands().filter(is_shown);
        let found = |of: &Command| (of.get_name().to_owned(), of.get_about().map(ToString::to_string));
        return CompletionPlace::OneOf(shown.map(found).collect());
    }
    // the last positional argument takes all words that follow
    let arg = command.get_positionals().nth(positional.len()).or_else(|| command.get_positionals().last());
    arg.map_or(CompletionPlace::OneOf(Vec::new()), |arg| value(command, arg, positional))
}

/// Returns the flag of a word whose value is the next word. None: the word has its value, or takes
/// none.
fn with_value_open<'c>(command: &'c Command, word: &str) -> Option<&'c Arg> {
    let mut with_value = command.get_arguments().filter(|arg| arg.get_action().takes_values());
    if let Some(long) = word.strip_prefix("--") {
        return with_value.find(|arg| arg.get_long() == Some(long));
    }
    let with_value: Vec<_> = with_value.collect();
    let mut letters = word.chars().skip(1);
    let arg = letters.find_map(|letter| with_value.iter().find(|arg| arg.get_short() == Some(letter)));
    arg.copied().filter(|_| letters.next().is_none())
}

/// Returns the values of an argument: those that clap knows, or else the name by which the cluster
/// is asked.
fn value(command: &Command, arg: &Arg, before: Vec<String>) -> CompletionPlace {
    let known = arg.get_possible_values();
    if known.is_empty() {
        let name = arg.get_value_names().and_then(|names| names.first());
        let (name, of) = (name.map(ToString::to_string).unwrap_or_default(), command.get_name().into());
        return CompletionPlace::Value { name, of, before };
    }
    let found = |of: &PossibleValue| (of.get_name().to_owned(), of.get_help().map(ToString::to_string));
    CompletionPlace::OneOf(known.iter().map(found).collect())
}

/// Returns the long flags of a command, with the first line of their help.
fn flags(command: &Command) -> Vec<Completion> {
    let shown = command.get_arguments().filter(|arg| !arg.is_hide_set());
    let flag = |arg: &Arg| {
        let help = arg.get_help().map(|help| help.to_string().lines().next().unwrap_or_default().to_owned());
        Some((format!("--{}", arg.get_long()?), help))
    };
    shown.filter_map(flag).collect()
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, ValueEnum};

    use super::*;
    use crate::args::Cli;

    #[test]
    fn every_shell_has_a_script_with_all_commands() {
        for shell in Shell::value_variants() {
            let script = script(*shell, Cli::command());
            for command in Cli::command().get_subcommands() {
                assert!(script.contains(command.get_name()), "{shell} {}", command.get_name());
            }
        }
    }

    #[test]
    fn an_answer_is_asked_for_by_name_or_by_word() {
        let asked = |line: &str| asked(line.split(' ').map(OsString::from)).map(|words| words.len());
        assert_eq!(asked("/usr/bin/kubectl_complete-tenure list a"), Some(2));
        assert_eq!(asked("kubectl-tenure __complete list a"), Some(2));
        assert_eq!(asked("kubectl-tenure list a"), None);
        assert_eq!(asked("kubectl-tenure"), None);
    }

    #[tokio::test]
    async fn an_answer_has_what_begins_as_the_word_does() {
        let of = async |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            candidates(&words).await
        };
        let (found, is_file) = of("requeue").await;
        assert!(
            found.starts_with("requeue\tResume workloads") && found.contains("\nrequeue-schedule\t"),
            "{found}"
        );
        assert!(!is_file);
        assert_eq!(of("list --output=js").await.0.split('\t').next(), Some("json"));
        assert_eq!(of("validate -f ").await, (String::new(), true));
    }

    #[test]
    fn bash_finds_its_way_to_the_flags_of_a_command() {
        let script = script(Shell::Bash, Cli::command());
        assert!(script.contains("_kubectl__tenure() {"));
        assert_eq!(script.matches("kubectl__tenure__subcmd__validate").count(), 2);
    }

    /// The names that a line ends with, or the value that stands there.
    fn at(line: &str) -> Result<Vec<String>, String> {
        let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let current = words.pop().unwrap();
        let mut command = Cli::command();
        command.build();
        match place(&command, &words, &current) {
            CompletionPlace::OneOf(found) => Ok(found.into_iter().map(|(name, _)| name).collect()),
            CompletionPlace::Value { name, of, before } => Err(format!("{name} of {of} after {before:?}")),
        }
    }

    #[test]
    fn commands_and_flags_and_their_values_are_known() {
        assert!(at("").unwrap().contains(&"requeue-schedule".to_owned()));
        assert_eq!(at("explain p").unwrap(), ["preemption", "pod"]);
        let flags = at("resume --").unwrap();
        assert!(
            ["--queue", "--dry-run", "--namespace", "--as"]
                .iter()
                .all(|flag| flags.contains(&(*flag).into()))
        );
        assert_eq!(at("list -o ").unwrap(), ["json", "yaml", "wide", "name"]);
        assert_eq!(at("list --output=").unwrap(), ["json", "yaml", "wide", "name"]);
        assert_eq!(at("list --nonsense=").unwrap(), [""; 0]);
    }

    #[test]
    fn a_value_is_known_by_its_name_wherever_it_stands() {
        for (line, expected) in [
            ("list ", "QUEUE of list after []"),
            ("list a ", "QUEUE of list after [\"a\"]"),
            ("-n team list -A -o json ", "QUEUE of list after []"),
            ("list -wn team ", "QUEUE of list after []"),
            ("list -nteam ", "QUEUE of list after []"),
            ("list --namespace=team ", "QUEUE of list after []"),
            ("list -A -n ", "NAMESPACE of list after []"),
            ("resume --queue ", "QUEUE of resume after []"),
            ("resume --queue=", "QUEUE of resume after []"),
            ("resume deploy a ", "OBJECT of resume after [\"deploy\", \"a\"]"),
            ("requeue -- job/", "OBJECT of requeue after []"),
            ("validate -f ", "FILE|DIR|- of validate after []"),
            ("list --context ", "CONTEXT of list after []"),
        ] {
            assert_eq!(at(line), Err(expected.to_owned()), "{line}");
        }
    }
}
