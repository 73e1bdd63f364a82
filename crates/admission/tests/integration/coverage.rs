//! Every field of a VMI's spec has a test of its effect: a domain, a pod, a network plan, a
//! preparation step, a rule of admission, or a row of the unsupported fields. Fields are matched by name
//! only: the test finds a forgotten field, and does not prove that the test of another is good.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Type, field and type of the field of every row.
fn rows() -> Vec<(String, String, String)> {
    let facts = include_str!("../../../kubevirt-api/facts/api-fields.tsv");
    let rows = facts.lines().filter_map(|line| {
        let mut columns = line.split('\t');
        let group = columns.next()?;
        let (of, field, kind) = (columns.next()?, columns.next()?, columns.next()?);
        (group == "kubevirt.io/v1").then(|| (of.to_owned(), field.to_owned(), kind.to_owned()))
    });
    rows.collect()
}

/// The paths of all fields below a type. Names in brackets mark embedded and empty types.
fn walk(rows: &[(String, String, String)], of: &str, path: &str, found: &mut BTreeSet<String>) {
    for (_, field, kind) in rows.iter().filter(|(parent, ..)| parent == of) {
        let path = if field.starts_with('(') {
            path.to_owned()
        } else {
            format!("{path}.{field}")
        };
        found.insert(path.clone());
        let kind = kind.trim_start_matches("array<").trim_end_matches('>');
        if let Some(below) = kind.strip_prefix("ref:") {
            walk(rows, below, &path, found);
        }
    }
}

fn files(directory: &Path, kinds: &[&str], found: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> = fs::read_dir(directory)
        .expect("a directory of tests")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            files(&path, kinds, found);
        } else if kinds
            .iter()
            .any(|kind| path.extension().is_some_and(|one| one == *kind))
        {
            found.push(path);
        }
    }
}

/// The inputs of all tests about the effects of fields.
fn inputs() -> String {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut all = Vec::new();
    for (directory, kinds) in [
        ("domain-xml/tests", &["rs"][..]),
        ("domain-xml/src", &["rs"]),
        ("launcher-pod/tests/cases", &["yaml"]),
        ("net-plan/src", &["rs"]),
        ("virt-handler/src/volumes", &["rs"]),
        ("admission/tests/cases", &["yaml"]),
        ("model/src", &["rs"]),
    ] {
        files(&crates.join(directory), kinds, &mut all);
    }
    let texts = all
        .iter()
        .map(|path| fs::read_to_string(path).expect("a file"));
    texts.collect::<Vec<_>>().join("\n")
}

/// The words that inputs may use as names of fields.
fn words(text: &str) -> BTreeSet<&str> {
    let is_name = |c: char| c.is_ascii_alphanumeric();
    text.split(|c| !is_name(c)).collect()
}

#[test]
fn every_field_of_the_spec_has_a_test() {
    let rows = rows();
    let mut paths = BTreeSet::new();
    walk(&rows, "VirtualMachineInstanceSpec", "spec", &mut paths);
    assert!(paths.len() > 300, "{} paths", paths.len());
    let inputs = inputs();
    let known = words(&inputs);
    let is_covered = |path: &str| {
        let name = path.rsplit('.').next().unwrap_or_default();
        known.contains(name)
    };
    let uncovered: Vec<&String> = paths.iter().filter(|path| !is_covered(path)).collect();
    assert_eq!(uncovered, [""; 0]);
}
