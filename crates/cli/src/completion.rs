//! `kubectl tenure completion`: scripts that let a shell complete the command line.

use anyhow::Result;
use clap::{Args, Command};
use clap_complete::Shell;

use crate::output::print;

/// Print a script that lets a shell complete commands and flags
///
/// The script is for kubectl-tenure, as the plugin is called without kubectl; below is what kubectl itself needs.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct CompletionArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

const EXAMPLES: &str = "\
To install it, one of:
  kubectl-tenure completion bash > ~/.local/share/bash-completion/completions/kubectl-tenure
  kubectl-tenure completion zsh > \"${fpath[1]}/_kubectl-tenure\"
  kubectl-tenure completion fish > ~/.config/fish/completions/kubectl-tenure.fish
  kubectl-tenure completion powershell >> $PROFILE
  kubectl-tenure completion elvish >> ~/.config/elvish/rc.elv

For kubectl tenure, kubectl asks a program: save this on the PATH as kubectl_complete-tenure, and make it executable:
  #!/usr/bin/env bash
  source <(kubectl-tenure completion bash)
  COMP_WORDS=(kubectl-tenure \"$@\") COMP_CWORD=$#
  _kubectl__tenure kubectl-tenure \"${@: -1}\" \"${@: -2:1}\"
  printf '%s\\n' \"${COMPREPLY[@]}\" :0";

/// As the file is called that a shell finds on its path.
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
    fn bash_finds_its_way_to_the_flags_of_a_command() {
        let script = script(Shell::Bash, Cli::command());
        assert!(script.contains("_kubectl__tenure() {"));
        assert_eq!(script.matches("kubectl__tenure__subcmd__validate").count(), 2);
    }
}
