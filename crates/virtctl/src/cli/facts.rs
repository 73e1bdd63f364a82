//! Compares the command line with that of `KubeVirt`'s virtctl. Every difference is a row of
//! `facts/differences.tsv` with its reason.

use std::collections::BTreeMap;

use clap::{Arg, ArgAction, Command};

use super::command;

const FACTS: &str = include_str!("../../facts/virtctl.tsv");
const DIFFERENCES: &str = include_str!("../../facts/differences.tsv");

/// A command, or one of its flags.
struct Fact {
    command: &'static str,
    subcommand: &'static str,
    flag: &'static str,
    short: &'static str,
    kind: &'static str,
    default: &'static str,
}

impl Fact {
    fn place(&self) -> String {
        match self.subcommand {
            "-" => self.command.to_owned(),
            subcommand => format!("{} {subcommand}", self.command),
        }
    }
}

fn rows(text: &'static str) -> impl Iterator<Item = Vec<&'static str>> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split('\t').collect())
}

fn facts() -> impl Iterator<Item = Fact> {
    rows(FACTS).map(|row| {
        let [command, subcommand, flag, short, kind, default] = row[..] else {
            panic!("{row:?}");
        };
        Fact {
            command,
            subcommand,
            flag,
            short,
            kind,
            default,
        }
    })
}

/// The command of a fact; `None` if we lack it. A subcommand may be the value of an argument.
fn found<'a>(root: &'a Command, fact: &Fact) -> Option<&'a Command> {
    if fact.command == "(global)" {
        return Some(root);
    }
    let command = root.find_subcommand(fact.command)?;
    if fact.subcommand == "-" {
        return Some(command);
    }
    let is_value = |argument: &&Arg| {
        let values = argument.get_possible_values();
        argument.is_positional()
            && values
                .iter()
                .any(|value| value.matches(fact.subcommand, false))
    };
    match command.find_subcommand(fact.subcommand) {
        None => command
            .get_arguments()
            .any(|it| is_value(&it))
            .then_some(command),
        found => found,
    }
}

/// The flag, of the command or of one of its subcommands.
fn flag<'a>(command: &'a Command, name: &str) -> Option<&'a Arg> {
    let of = |command: &'a Command| {
        command.get_arguments().find(|argument| {
            let aliases = argument.get_all_aliases().unwrap_or_default();
            argument.get_long() == Some(name) || aliases.contains(&name)
        })
    };
    of(command).or_else(|| command.get_subcommands().find_map(of))
}

fn difference(root: &Command, fact: &Fact) -> Option<String> {
    if fact.command != "(global)" && root.find_subcommand(fact.command).is_none() {
        // One row is enough for a whole command.
        let is_command = (fact.subcommand, fact.flag) == ("-", "-");
        return is_command.then(|| "missing".to_owned());
    }
    let Some(command) = found(root, fact) else {
        return Some("missing".to_owned());
    };
    let name = fact.flag.strip_prefix("--")?;
    let Some(argument) = flag(command, name) else {
        return Some("missing".to_owned());
    };
    let short = argument.get_short();
    let expected = fact
        .short
        .strip_prefix('-')
        .and_then(|short| short.chars().next());
    if expected.is_some() && short != expected {
        return Some(format!("short {short:?}"));
    }
    let takes_value = !matches!(argument.get_action(), ArgAction::SetTrue);
    // Its value may be left out, and is `true` then.
    let optional = argument
        .get_num_args()
        .is_some_and(|count| count.min_values() == 0);
    if takes_value == (fact.kind == "bool") && !optional {
        return Some("another type".to_owned());
    }
    let repeated = matches!(argument.get_action(), ArgAction::Append);
    let list = ["stringArray", "strings", "stringToString"].contains(&fact.kind);
    if repeated != list {
        return Some(if list { "given once" } else { "repeated" }.to_owned());
    }
    let ours = argument.get_default_values().first();
    let ours = ours.and_then(|value| value.to_str()).unwrap_or("-");
    let without = ["-", "", "0", "[]", "false"];
    let same = ours == fact.default || without.contains(&ours) && without.contains(&fact.default);
    (!same).then(|| format!("default {ours}"))
}

#[test]
fn command_line_is_that_of_kubevirt_but_for_listed_differences() {
    let root = command();
    let found: BTreeMap<_, _> = facts()
        .filter_map(|fact| {
            let difference = difference(&root, &fact)?;
            Some(((fact.place(), fact.flag), difference))
        })
        .collect();
    let listed: BTreeMap<_, _> = rows(DIFFERENCES)
        .map(|row| {
            let [command, flag, difference, reason] = row[..] else {
                panic!("{row:?}");
            };
            assert!(reason.split(' ').count() > 2, "{row:?} has no reason");
            ((command.to_owned(), flag), difference.to_owned())
        })
        .collect();
    let unlisted: Vec<_> = found
        .iter()
        .filter(|it| listed.get(it.0) != Some(it.1))
        .collect();
    let stale: Vec<_> = listed
        .iter()
        .filter(|it| found.get(it.0) != Some(it.1))
        .collect();
    assert!(
        unlisted.is_empty() && stale.is_empty(),
        "not listed: {unlisted:#?}\nlisted and not found: {stale:#?}"
    );
}
