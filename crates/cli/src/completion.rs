//! Completion of the command line: scripts for shells, and the answers that kubectl asks for.

mod values;
mod words;

use std::{ffi::OsString, path::Path, process::ExitCode};

use anyhow::Result;
use clap::{Args, Command, CommandFactory};
use clap_complete::Shell;
use words::{CompletionPlace, place};

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

/// The name by which kubectl calls the plugin for an answer.
const COMPLETER: &str = "kubectl_complete-tenure";
/// The word by which the plugin is asked for one without that name.
const ASK: &str = "__complete";

/// Returns the words of the line to complete, the last of which may be a part of a word; none if no completion is asked for.
pub fn asked(mut arguments: impl Iterator<Item = OsString>) -> Option<Vec<OsString>> {
    let program = arguments.next()?;
    let is_completer = Path::new(&program).file_name().is_some_and(|name| name == COMPLETER);
    (is_completer || arguments.next()? == ASK).then(|| arguments.collect())
}

/// Prints the candidates for the last of these words, one a line, and then a directive for the shell, as kubectl's own
/// completion does: 0 to complete names of files, 4 not to.
pub async fn answer(words: Vec<OsString>) -> ExitCode {
    let texts: Result<Vec<String>, _> = words.into_iter().map(OsString::into_string).collect();
    let (found, is_file) = match texts {
        Ok(words) => candidates(&words).await,
        Err(_) => (String::new(), false),
    };
    let directive = if is_file { 0 } else { 4 };
    // a shell that doesn't read it has gone on
    let _ = print(&format!("{found}:{directive}\n"));
    ExitCode::SUCCESS
}

async fn candidates(words: &[String]) -> (String, bool) {
    let (current, before) = words.split_last().map_or(("", words), |(last, before)| (last.as_str(), before));
    let mut command = Cli::command();
    command.build();
    let (mut found, is_file) = match place(&command, before, current) {
        CompletionPlace::OneOf(found) => (found, false),
        CompletionPlace::Value { name, .. } if name.starts_with("FILE") => (Vec::new(), true),
        CompletionPlace::Value { name, of, before: others } => {
            (values::of(&name, &of, &others, before).await, false)
        }
    };
    let is_flag = |text: &&str| text.starts_with("--");
    let begin = Some(current)
        .filter(is_flag)
        .and_then(|flag| flag.split_once('='))
        .map_or(current, |(_, value)| value);
    found.retain(|(name, _)| name.starts_with(begin));
    found.sort();
    found.dedup();
    let line = |(name, help): (String, Option<String>)| {
        let help = help.map(|help| format!("\t{}", printable(&help))).unwrap_or_default();
        format!("{}{help}\n", printable(&name))
    };
    (found.into_iter().map(line).collect(), is_file)
}

/// The name of the program on the path of a shell.
const PROGRAM: &str = "kubectl-tenure";

impl CompletionArgs {
    pub fn run(self, cli: Command) -> Result<()> {
        let Self { shell } = self;
        print(&script(shell, cli))
    }
}

fn script(shell: Shell, cli: Command) -> String {
    // a generator panics if it can't write
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut cli.bin_name(PROGRAM), PROGRAM, &mut script);
    // for bash it writes the hyphen of a program's name in two ways: https://github.com/clap-rs/clap/issues/6421
    String::from_utf8_lossy(&script).replace("kubectl__subcmd__tenure", "kubectl__tenure")
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
}
