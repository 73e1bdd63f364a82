//! The list of the stories: which is told on a single host, which on a cluster, which on both.
//!
//! Where a story is told is where its file lies, so the list is read off the files.

use std::{fs, path::Path};

use anyhow::{Context as _, Result};

use crate::workspace::root;

/// Directory, and whether its stories are told on a single host and on a cluster.
const HOMES: [(&str, bool, bool); 4] = [
    ("both", true, true),
    ("stories", true, false),
    ("cluster", false, true),
    ("cluster_faults", false, true),
];

const HEAD: &str = "\
# The stories

What users do, told as tests with real guests. `make test` tells those of the single host, `make e2e`
those of the cluster. Made by `cargo xtask generate` from `crates/stories/tests`.
";

/// The page that lists them.
pub(crate) fn page() -> Result<String> {
    let mut lines = vec![HEAD.to_owned()];
    let mark = |told: bool| if told { "yes" } else { "" };
    for (directory, host, cluster) in HOMES {
        let path = root().join("crates/stories/tests").join(directory);
        for (subject, stories) in subjects(&path)? {
            lines.push(format!("## {subject}\n"));
            lines.push("| story | single host | cluster |\n| --- | --- | --- |".to_owned());
            let rows = stories.iter();
            lines.extend(
                rows.map(|story| format!("| {story} | {} | {} |", mark(host), mark(cluster))),
            );
            lines.push(String::new());
        }
    }
    Ok(lines.join("\n"))
}

/// The files of a directory that tell stories: what each is about, and its stories.
fn subjects(directory: &Path) -> Result<Vec<(String, Vec<String>)>> {
    let entries =
        fs::read_dir(directory).with_context(|| format!("list {}", directory.display()))?;
    let mut files = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<Vec<_>>>()?;
    files.sort();
    let mut found = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
        let stories = stories(&text);
        if !stories.is_empty() {
            found.push((subject(&text), stories));
        }
    }
    Ok(found)
}

/// The first sentence of a file.
fn subject(text: &str) -> String {
    let words: Vec<&str> = text
        .lines()
        .map_while(|line| line.strip_prefix("//! "))
        .flat_map(str::split_whitespace)
        .collect();
    let all = words.join(" ");
    all.split(". ")
        .next()
        .unwrap_or(&all)
        .trim_end_matches('.')
        .to_owned()
}

/// Names of the tests of a file, as sentences.
fn stories(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let is_test = |line: &str| line.starts_with("#[tokio::test");
    let name = |line: &str| {
        let name = line.strip_prefix("async fn ")?.split('(').next()?;
        Some(name.replace('_', " "))
    };
    lines
        .iter()
        .zip(lines.iter().skip(1))
        .filter(|(mark, _)| is_test(mark))
        .filter_map(|(_, line)| name(line))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stories_are_tests_and_nothing_else() {
        let text = "//! Power of a\n//! machine. More.\n\nasync fn help() {}\n\n#[tokio::test]\nasync fn it_stops() {}\n";
        assert_eq!(subject(text), "Power of a machine");
        assert_eq!(stories(text), ["it stops"]);
    }
}
