//! What holds for every command.

use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::command;

const GUIDE: &str = include_str!("../../../../docs/guide/command-line.md");
/// What commands print about real guests, and which have no such transcript.
const TRANSCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../e2e/transcripts");
const WITHOUT: &str = include_str!("../../../e2e/transcripts/without.tsv");

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

/// Each has a transcript, which begins with a call of it, or a reason for having none.
#[test]
fn every_command_has_a_transcript_or_a_reason() {
    let rows = WITHOUT.lines().filter(|line| !line.starts_with('#'));
    let mut reasons: Vec<(&str, &str)> = rows
        .map(|line| line.split_once('\t').expect("a command and a reason"))
        .collect();
    let files = std::fs::read_dir(TRANSCRIPTS).expect("list the transcripts");
    let mut files: Vec<String> = files
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "without.tsv")
        .collect();
    let mut missing = vec![];
    for_each(&command(), &[], &mut |command, path| {
        // `vnc` is a command, too, beside the one that it contains.
        let is_group = command.has_subcommands() && command.get_positionals().next().is_none();
        if command.is_hide_set() || is_group {
            return;
        }
        let name = path.join(" ");
        let file = format!("{}.txt", path.join("-"));
        let is_recorded = files.contains(&file);
        let has_reason = reasons.iter().any(|(command, _)| *command == name);
        if is_recorded == has_reason {
            missing.push(name.clone());
        }
        if is_recorded {
            let text = std::fs::read_to_string(format!("{TRANSCRIPTS}/{file}")).unwrap();
            let start = format!("$ virtctl {name}");
            assert!(
                text.starts_with(&start),
                "{file} does not begin with {start:?}"
            );
        }
        files.retain(|other| *other != file);
        reasons.retain(|(command, _)| *command != name);
    });
    assert!(
        missing.is_empty() && files.is_empty() && reasons.is_empty(),
        "neither a transcript nor a row in without.tsv, or both: {missing:?}; of no command: {files:?} {reasons:?}"
    );
}
