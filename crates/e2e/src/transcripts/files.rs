//! The files of transcripts, one for each command.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// Set to anything but nothing, the files are written instead of compared.
const WRITE: &str = "FERROVIRT_WRITE_TRANSCRIPTS";
/// Equal lines that are shown around a difference.
const CONTEXT: usize = 3;

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("transcripts")
}

/// Compares transcripts with their files, or writes these. Fails with all differences.
pub(super) fn compare(found: &BTreeMap<String, String>) {
    let is_writing = std::env::var_os(WRITE).is_some_and(|value| !value.is_empty());
    let mut differences = Vec::new();
    for (name, found) in found {
        let file = directory().join(format!("{name}.txt"));
        if is_writing {
            fs::write(&file, found).unwrap_or_else(|err| panic!("write {}: {err}", file.display()));
            continue;
        }
        match fs::read_to_string(&file) {
            Ok(expected) if expected == *found => {}
            Ok(expected) => differences.push(format!(
                "crates/e2e/transcripts/{name}.txt:\n{}",
                difference(&expected, found)
            )),
            Err(err) => differences.push(format!("crates/e2e/transcripts/{name}.txt: {err}")),
        }
    }
    assert!(
        differences.is_empty(),
        "virtctl prints something else than its transcripts (- file, + now). If that is right, run the test again \
         with {WRITE}=1 and review the files.\n{}",
        differences.join("\n")
    );
}

/// The lines that differ, between equal lines at the start and the end.
fn difference(expected: &str, found: &str) -> String {
    let (expected, found): (Vec<_>, Vec<_>) = (expected.lines().collect(), found.lines().collect());
    let pairs = expected.iter().zip(&found);
    let before = pairs.take_while(|(one, other)| one == other).count();
    let shorter = expected.len().min(found.len());
    let pairs = expected.iter().rev().zip(found.iter().rev());
    let after = pairs
        .take(shorter - before)
        .take_while(|(one, other)| one == other)
        .count();
    let prefixed = |mark: &str, lines: &[&str]| -> Vec<String> {
        lines.iter().map(|line| format!("{mark}{line}")).collect()
    };
    let from = before.saturating_sub(CONTEXT);
    let until = (expected.len() - after + CONTEXT).min(expected.len());
    [
        prefixed("  ", &expected[from..before]),
        prefixed("- ", &expected[before..expected.len() - after]),
        prefixed("+ ", &found[before..found.len() - after]),
        prefixed("  ", &expected[expected.len() - after..until]),
    ]
    .concat()
    .join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn difference_shows_the_lines_that_differ() {
        for (expected, found, shown) in [
            (
                "a\nb\nc\nd\ne",
                "a\nb\nc\nx\ne",
                "  a\n  b\n  c\n- d\n+ x\n  e",
            ),
            ("a", "a\nb", "  a\n+ b"),
            ("a\na", "a", "  a\n- a"),
            ("", "a", "+ a"),
            ("1\n2\n3\n4\n5", "1\n2\n3\n4\n6", "  2\n  3\n  4\n- 5\n+ 6"),
        ] {
            assert_eq!(difference(expected, found), shown);
        }
    }
}
