//! Switches with a value: `--force=true` and `--force=false`, as the flag library of the original reads them.

use std::{collections::BTreeSet, ffi::OsString};

use clap::{ArgAction, Command};

/// The words of a command line, where a switch with the value true is without it, and one with the value
/// false is left out. Other words, and all that follow `--`, stay.
pub(super) fn plain(command: &Command, words: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut names = Names::default();
    names.collect(command);
    let mut options = true;
    words
        .into_iter()
        .filter_map(|word| {
            options &= word != "--";
            let switch = word.to_str().filter(|_| options).and_then(switch);
            match switch.filter(|(name, _)| names.is_switch(name)) {
                Some((name, true)) => Some(format!("--{name}").into()),
                Some((_, false)) => None,
                None => Some(word),
            }
        })
        .collect()
}

/// The name and value of a switch; the values are those that Go's parser of booleans takes.
fn switch(word: &str) -> Option<(&str, bool)> {
    let (name, value) = word.strip_prefix("--")?.split_once('=')?;
    match value {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some((name, true)),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some((name, false)),
        _ => None,
    }
}

/// The long names of all flags.
#[derive(Default)]
struct Names {
    switches: BTreeSet<String>,
    with_value: BTreeSet<String>,
}

impl Names {
    fn collect(&mut self, command: &Command) {
        for argument in command.get_arguments() {
            let Some(name) = argument.get_long() else {
                continue;
            };
            let names = match argument.get_action() {
                ArgAction::SetTrue => &mut self.switches,
                _ => &mut self.with_value,
            };
            names.insert(name.to_owned());
        }
        command
            .get_subcommands()
            .for_each(|inner| self.collect(inner));
    }

    /// A name that is a switch in one command and takes a value in another is left to clap.
    fn is_switch(&self, name: &str) -> bool {
        self.switches.contains(name) && !self.with_value.contains(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::command;

    #[test]
    fn switches_may_have_a_value() {
        for (words, expected) in [
            (
                "stop a --force=true --grace-period=0",
                "stop a --force --grace-period=0",
            ),
            ("stop a --force=false --dry-run=1", "stop a --dry-run"),
            ("stop a --force=maybe", "stop a --force=maybe"),
            (
                "create vm --infer-instancetype=false",
                "create vm --infer-instancetype=false",
            ),
            (
                "start --insecure-skip-tls-verify=T a",
                "start --insecure-skip-tls-verify a",
            ),
            ("a -- --force=true", "a -- --force=true"),
        ] {
            let plain = plain(&command(), words.split(' ').map(OsString::from));
            let plain: Vec<_> = plain.iter().map(|word| word.to_str().unwrap()).collect();
            assert_eq!(plain.join(" "), expected);
        }
    }
}
