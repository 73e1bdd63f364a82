//! `examples/README.md`: a table row for every file, with the file's first line.

use std::fs;

use super::catalogue::{directory, examples};

#[test]
fn index_lists_every_example_with_its_first_line() {
    let index = fs::read_to_string(directory().join("README.md")).expect("an index");
    let listed: Vec<&str> = index
        .lines()
        .filter(|line| line.starts_with("| ["))
        .collect();
    let rows: Vec<String> = examples()
        .iter()
        .map(|example| {
            let file = &example.file;
            let shows = example.shows.trim_end_matches('.').replace('|', "\\|");
            format!("| [`{file}`]({file}) | {shows} |")
        })
        .collect();
    let missing: Vec<&str> = rows
        .iter()
        .map(String::as_str)
        .filter(|row| !listed.contains(row))
        .collect();
    assert!(
        missing.is_empty(),
        "add to examples/README.md:\n{}",
        missing.join("\n")
    );
    let stale: Vec<&str> = listed
        .iter()
        .filter(|line| !rows.iter().any(|row| row == *line))
        .copied()
        .collect();
    assert!(
        stale.is_empty(),
        "remove from examples/README.md:\n{}",
        stale.join("\n")
    );
    assert_eq!(listed.len(), rows.len(), "a file is listed twice");
}
