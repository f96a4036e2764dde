//! Finds the place of a word on the command line, by the definition of the command line.

use clap::{Arg, Command};

/// A candidate, and its description.
pub type Completion = (String, Option<String>);

/// The words that may stand at a place.
#[derive(Debug, PartialEq)]
pub enum CompletionPlace {
    /// One of these.
    OneOf(Vec<Completion>),
    /// A value that the command line calls so, such as `QUEUE`, of a command such as `resume`. Of positional arguments
    /// `before` are those of the same that stand before it.
    Value { name: String, of: String, before: Vec<String> },
}

/// Returns the place of the word after others. It begins with `current`.
pub fn place(mut command: &Command, before: &[String], current: &str) -> CompletionPlace {
    let (mut words, mut positional, mut is_raw) = (before.iter(), Vec::new(), false);
    let mut open = None;
    while let Some(word) = words.next() {
        open = None;
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
            open = Some(arg);
        }
    }
    if let Some(arg) = open {
        return value(command, arg, Vec::new());
    }
    if current.starts_with('-') && !is_raw {
        let flag = current.strip_prefix("--").and_then(|flag| flag.split_once('='));
        return match flag {
            Some((name, _)) => match find(command, |arg| arg.get_long() == Some(name)) {
                Some(arg) => value(command, arg, Vec::new()),
                None => CompletionPlace::OneOf(Vec::new()),
            },
            None => CompletionPlace::OneOf(flags(command)),
        };
    }
    if positional.is_empty() && command.has_subcommands() {
        let shown = command.get_subcommands().filter(|command| !command.is_hide_set());
        let about = |command: &Command| command.get_about().map(ToString::to_string);
        return CompletionPlace::OneOf(
            shown.map(|command| (command.get_name().to_owned(), about(command))).collect(),
        );
    }
    // the last one takes all that follow
    let arg = command.get_positionals().nth(positional.len()).or_else(|| command.get_positionals().last());
    arg.map_or(CompletionPlace::OneOf(Vec::new()), |arg| value(command, arg, positional))
}

fn find(command: &Command, is_meant: impl Fn(&Arg) -> bool) -> Option<&Arg> {
    command.get_arguments().find(|arg| is_meant(arg))
}

/// The flag of a word, if its value is the next word.
fn with_value_open<'c>(command: &'c Command, word: &str) -> Option<&'c Arg> {
    let takes_value = |arg: &Arg| arg.get_action().takes_values();
    if let Some(long) = word.strip_prefix("--") {
        return find(command, |arg| arg.get_long() == Some(long)).filter(|arg| takes_value(arg));
    }
    let mut letters = word.chars().skip(1);
    let arg = letters.find_map(|letter| {
        find(command, |arg| arg.get_short() == Some(letter)).filter(|arg| takes_value(arg))
    });
    arg.filter(|_| letters.next().is_none())
}

fn value(command: &Command, arg: &Arg, before: Vec<String>) -> CompletionPlace {
    let known = arg.get_possible_values();
    if known.is_empty() {
        let name = arg.get_value_names().and_then(|names| names.first()).map(ToString::to_string);
        return CompletionPlace::Value {
            name: name.unwrap_or_default(),
            of: command.get_name().into(),
            before,
        };
    }
    let help = |value: &clap::builder::PossibleValue| value.get_help().map(ToString::to_string);
    CompletionPlace::OneOf(known.iter().map(|value| (value.get_name().to_owned(), help(value))).collect())
}

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
    use clap::CommandFactory;

    use super::*;
    use crate::args::Cli;

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
