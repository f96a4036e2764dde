//! The short help, in the style of programs in Go. `main` prints it for `-h`.
//!
//! The flags of T9k's Duration Keeper come first, in the words of its manual, so that its users
//! find each flag again.

use std::{collections::BTreeMap, fmt::Write};

use clap::{Arg, Command};

/// The flags of T9k's Duration Keeper as its manual lists them: name, kind of value, help. Printed
/// verbatim, so that the two lists can be compared.
const DURATION_KEEPER: [(&str, &str, &str); 6] = [
    ("kube-path", "string", "The path of kube config"),
    ("log-level", "string", r#"log level can be "debug", "info", "warn" or "error" (default "info")"#),
    ("metrics-addr", "string", r#"listening address for metric (default ":8080")"#),
    (
        "priority-class-threshold",
        "string",
        "name of an existing PriorityClass, duration-keeper will not evict pods whose priority is larger than or \
         equal to the threshold, defaults to 'system-cluster-critical' whose priority is 2000000000 if not specified",
    ),
    (
        "t9kSystemNamespace",
        "string",
        r#"Namespace of t9k system, default is t9k-system (default "t9k-system")"#,
    ),
    ("threadiness", "int", "number of threadiness to deal with expired pods, default is 1 (default 1)"),
];

/// Returns the text of `-h`: the flags of T9k's Duration Keeper in the words of its manual, and
/// then the flags that only this program has.
pub fn short_help(command: &Command) -> String {
    let mut command = command.clone();
    // adds --help and --version
    command.build();
    let mut text = format!("Usage of {}:\n", command.get_name());
    for (name, value, help) in DURATION_KEEPER {
        write_flag(&mut text, name, Some(value), help);
    }
    text.push_str("\nBeyond those of Duration Keeper (more on each with --help):\n");
    let named = |flag| Some((Arg::get_long(flag)?, flag));
    let own: BTreeMap<_, _> = command.get_arguments().filter(|flag| is_own(flag)).filter_map(named).collect();
    for (name, flag) in own {
        write_flag(&mut text, name, value_name(flag).as_deref(), &described(flag));
    }
    text
}

/// Writes a flag as Go's package `flag` does. A write to a string can't fail.
fn write_flag(text: &mut String, name: &str, value: Option<&str>, help: &str) {
    let space = if value.is_some() { " " } else { "" };
    _ = writeln!(text, "  -{name}{space}{}\n    \t{help}", value.unwrap_or_default());
}

/// True for a flag that isn't hidden and that T9k's program lacks.
fn is_own(flag: &Arg) -> bool {
    !flag.is_hide_set() && !DURATION_KEEPER.iter().any(|(name, ..)| is_called(flag, name))
}

/// True if a flag has this long name or alias.
fn is_called(flag: &Arg, name: &str) -> bool {
    flag.get_long() == Some(name) || flag.get_all_aliases().is_some_and(|aliases| aliases.contains(&name))
}

/// Returns the name of a flag's value in lower case. None: the flag takes no value.
fn value_name(flag: &Arg) -> Option<String> {
    let name = flag.get_value_names()?.first()?;
    flag.get_action().takes_values().then(|| name.to_lowercase())
}

/// Returns the first line of a flag's help, the possible values, and the default. A flag without a
/// value has only the first.
fn described(flag: &Arg) -> String {
    let help = flag.get_help().map(ToString::to_string).unwrap_or_default();
    let mut text = help.lines().next().unwrap_or_default().to_owned();
    if !flag.get_action().takes_values() {
        return text;
    }
    let choices: Vec<_> =
        flag.get_possible_values().iter().map(|choice| format!("{:?}", choice.get_name())).collect();
    if !choices.is_empty() {
        _ = write!(text, ": {}", choices.join(" or "));
    }
    if let Some(default) = flag.get_default_values().first() {
        _ = write!(text, " (default {})", quoted(&default.to_string_lossy()));
    }
    text
}

/// Quotes a default as Go does: strings, but neither numbers nor durations. A text with a colon is
/// an address, and so a string.
fn quoted(default: &str) -> String {
    let is_bare = default.starts_with(|first: char| first.is_ascii_digit()) && !default.contains(':');
    if is_bare { default.into() } else { format!("{default:?}") }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn help() -> String {
        short_help(&crate::Args::command())
    }

    #[test]
    fn flags_look_as_those_of_go() {
        let text = help();
        let start = "Usage of tenure-keeper:\n  -kube-path string\n    \tThe path of kube config\n  -log-level string\n";
        assert!(text.starts_with(start), "{text}");
        let last = "  -threadiness int\n    \tnumber of threadiness to deal with expired pods, default is 1 (default 1)\n\n";
        assert!(text.contains(last), "{text}");
    }

    #[test]
    fn every_flag_of_the_manual_is_there_to_be_set() {
        let command = crate::Args::command();
        for (name, ..) in DURATION_KEEPER {
            assert!(command.get_arguments().any(|flag| is_called(flag, name)), "-{name}");
        }
    }

    #[test]
    fn other_flags_follow_with_their_choices_and_defaults() {
        let flags = [
            Arg::new("listen").long("listen").value_name("ADDRESS").help("Where").default_value("0.0.0.0:1"),
            Arg::new("file").long("kubeconfig").alias("kube-path").value_name("FILE").help("Of the manual"),
            Arg::new("wait").long("wait").value_name("DURATION").help("For how long").default_value("10s"),
            Arg::new("try").long("dry-run").help("Do nothing\nat all").action(clap::ArgAction::SetTrue),
            Arg::new("look").long("look").value_name("LOOK").help("How it looks").value_parser(["a", "b"]),
            Arg::new("hidden").long("hidden").hide(true),
        ];
        let text = short_help(&Command::new("program").disable_help_flag(true).args(flags));
        let (_, others) = text.split_once("--help):\n").unwrap();
        let expected = [
            "  -dry-run\n    \tDo nothing\n",
            "  -listen address\n    \tWhere (default \"0.0.0.0:1\")\n",
            "  -look look\n    \tHow it looks: \"a\" or \"b\"\n",
            "  -wait duration\n    \tFor how long (default 10s)\n",
        ];
        assert_eq!(others, expected.concat());
    }
}
