//! What holds for every command.

use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::command;

const GUIDE: &str = include_str!("../../../../docs/guide/command-line.md");

/// Calls the check for each command, with the words that lead to it.
fn for_each(
    command: &clap::Command,
    path: &[&str],
    check: &mut impl FnMut(&clap::Command, &[&str]),
) {
    for inner in command.get_subcommands() {
        let path = [path, &[inner.get_name()]].concat();
        check(inner, &path);
        for_each(inner, &path, check);
    }
}

/// A word without its last letter but one.
fn mistyped(word: &str) -> String {
    let mut letters: Vec<char> = word.chars().collect();
    letters.remove(letters.len() - 2);
    letters.into_iter().collect()
}

/// What the error proposes instead.
fn proposals(words: &[&str], (error, context): (ErrorKind, ContextKind)) -> Vec<String> {
    let words = std::iter::once("virtctl").chain(words.iter().copied());
    let found = command().try_get_matches_from(words).unwrap_err();
    assert_eq!((found.kind(), found.exit_code()), (error, 2), "{found}");
    match found.get(context) {
        Some(ContextValue::String(proposal)) => vec![proposal.clone()],
        Some(ContextValue::Strings(proposals)) => proposals.clone(),
        _ => vec![],
    }
}

#[test]
fn mistyped_command_gets_a_proposal() {
    let kind = (
        ErrorKind::InvalidSubcommand,
        ContextKind::SuggestedSubcommand,
    );
    let mut checked = 0;
    for_each(&command(), &[], &mut |command, path| {
        let (name, before) = path.split_last().unwrap();
        // `vnc` takes the name of a guest in the place of a command, and three letters are not enough.
        if command.is_hide_set() || before == ["vnc"] || name.len() < 4 {
            return;
        }
        let wrong = mistyped(name);
        let words = [before, &[&wrong]].concat();
        let proposals = proposals(&words, kind);
        assert!(
            proposals.iter().any(|one| one == name),
            "{words:?}: {proposals:?}"
        );
        checked += 1;
    });
    assert!(checked > 40, "{checked}");
}

#[test]
fn mistyped_flag_gets_a_proposal() {
    let kind = (ErrorKind::UnknownArgument, ContextKind::SuggestedArg);
    let mut checked = 0;
    for_each(&command(), &[], &mut |command, path| {
        let flags = command.get_arguments().filter(|flag| !flag.is_hide_set());
        for name in flags
            .filter_map(clap::Arg::get_long)
            .filter(|name| name.len() > 3)
        {
            let wrong = format!("--{}", mistyped(name));
            let words = [path, &[&wrong]].concat();
            let proposals = proposals(&words, kind);
            assert!(!proposals.is_empty(), "{words:?} has no proposal");
            checked += 1;
        }
    });
    assert!(checked > 150, "{checked}");
}

#[test]
fn every_command_has_a_text_and_a_place_in_the_guide() {
    for_each(&command(), &[], &mut |command, path| {
        let about = command
            .get_about()
            .map(ToString::to_string)
            .unwrap_or_default();
        assert!(
            about.split(' ').count() > 2 && !about.ends_with('.'),
            "{path:?}: {about:?}"
        );
        for argument in command
            .get_arguments()
            .filter(|argument| !argument.is_hide_set())
        {
            let is_described = argument.get_help().is_some()
                || argument
                    .get_possible_values()
                    .iter()
                    .any(|value| value.get_help().is_some());
            let has_plain_name = ["name", "output", "shell"].contains(&argument.get_id().as_str());
            assert!(
                is_described || has_plain_name,
                "{path:?}: {} has no text",
                argument.get_id()
            );
        }
        if path.len() == 1 && !command.is_hide_set() {
            let name = command.get_name();
            let is_listed = ["`", " "]
                .iter()
                .any(|end| GUIDE.contains(&format!("`{name}{end}")));
            assert!(
                is_listed,
                "docs/guide/command-line.md does not name `{name}`"
            );
        }
    });
}

#[test]
fn exit_codes_are_documented() {
    let help = command().render_long_help().to_string();
    for line in [
        "0  the command succeeded",
        "1  it failed",
        "2  the command line is wrong",
    ] {
        assert!(help.contains(line), "{line}: {help}");
    }
    for (code, meaning) in [
        (0, "success"),
        (1, "the command failed"),
        (2, "the command line is wrong"),
    ] {
        assert!(GUIDE.contains(&format!("| {code} | {meaning}")), "{code}");
    }
}
