//! Checks that documents name only files, functions and types that exist, and that their excerpts of files are
//! those of the files. Decisions are exempt: they describe the tree of their day.

use std::{collections::BTreeSet, fs, path::Path};

use anyhow::{Context as _, Result};

use crate::workspace::root;

const DIRECTORIES: [&str; 6] = [
    "",
    "docs",
    "docs/guide",
    "docs/guide/devices",
    "docs/guide/networks",
    "docs/guide/volumes",
];
/// Top-level folders whose paths documents name.
const FOLDERS: [&str; 8] = [
    "bins/",
    "crates/",
    "deploy/",
    "docs/",
    "examples/",
    "scripts/",
    "tools/",
    "xtask/",
];
/// Marks a code block as an excerpt of a file.
const EXCERPT: &str = "<!-- excerpt: ";
/// Words before the name of an item in Rust source.
const KEYWORDS: [&str; 9] = [
    "fn", "struct", "enum", "trait", "type", "const", "static", "mod", "union",
];

/// Names that documents mention and that do not exist, and old excerpts; one message for each.
pub(crate) fn faults<'a>(sources: impl Iterator<Item = &'a str>) -> Result<Vec<String>> {
    let items: BTreeSet<&str> = sources.flat_map(items).collect();
    let mut faults = Vec::new();
    for folder in DIRECTORIES {
        for entry in fs::read_dir(root().join(folder))? {
            let document = entry?.path();
            if document
                .extension()
                .is_some_and(|extension| extension == "md")
            {
                let text = fs::read_to_string(&document)?;
                let document = document.strip_prefix(root()).unwrap_or(&document);
                faults.extend(missing(document, &text, &items));
                for (file, excerpt) in excerpts(&text) {
                    let path = root().join(file);
                    let source = fs::read_to_string(&path)
                        .with_context(|| format!("read {}", path.display()))?;
                    if excerpt.trim().is_empty() || !source.contains(excerpt) {
                        let document = document.display();
                        faults.push(format!("{document}: this is not in {file}:\n{excerpt}"));
                    }
                }
            }
        }
    }
    Ok(faults)
}

fn missing(document: &Path, text: &str, items: &BTreeSet<&str>) -> Vec<String> {
    let document = document.display();
    let paths = code_spans(text)
        .filter(|span| is_path(span) && !root().join(span).exists())
        .map(|path| format!("{document}: {path} does not exist"));
    let names = code_spans(text)
        .filter_map(|span| Some((span, item_name(span)?)))
        .filter(|(_, name)| !items.contains(name))
        .map(|(span, _)| format!("{document}: there is no function or type {span}"));
    paths.chain(names).collect()
}

/// The file and the code block after each mark of an excerpt; the block is empty if none follows.
fn excerpts(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split(EXCERPT).skip(1).map(|rest| {
        let (file, rest) = rest.split_once(" -->\n").unwrap_or((rest, ""));
        (file, first_block(rest).unwrap_or_default())
    })
}

/// The code block with which a text begins.
fn first_block(text: &str) -> Option<&str> {
    let (_language, rest) = text.strip_prefix("```")?.split_once('\n')?;
    Some(rest.split_once("```")?.0)
}

/// Text between back-ticks.
fn code_spans(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Whether a span is a path in the tree, written in full.
fn is_path(span: &str) -> bool {
    FOLDERS.iter().any(|folder| span.starts_with(folder))
        && !span.contains([' ', '*', '{', '<', '\n'])
}

/// The item that a span names: a Rust path (`plan::binding_of`, `Store::wrote`), a call (`plan()`), or
/// the long name of a test (`guest_survives_launcher_kill`).
fn item_name(span: &str) -> Option<&str> {
    let path = span.strip_suffix("()").unwrap_or(span);
    let is_rust = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    if path.is_empty() || !path.chars().all(is_rust) || path.contains(":::") {
        return None;
    }
    let name = path.rsplit("::").next()?;
    let is_test = name.matches('_').count() >= 3 && name.chars().all(|c| !c.is_ascii_uppercase());
    let is_meant = path.len() < span.len() || path.contains("::") || is_test;
    (is_meant && !name.contains(':') && !name.is_empty()).then_some(name)
}

/// Names of the items that a source defines, enum variants and fields included.
fn items(source: &str) -> impl Iterator<Item = &str> {
    source.lines().filter_map(|line| {
        let mut words = line
            .split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '#'))
            .filter(|word| !word.is_empty());
        let first = words.clone().next()?;
        let after_keyword = words.by_ref().skip_while(|word| !KEYWORDS.contains(word));
        after_keyword.into_iter().nth(1).or(Some(first))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_name_items_only_where_they_look_like_rust() {
        for (span, expected) in [
            ("checks::ALL", Some("ALL")),
            ("plan()", Some("plan")),
            ("Store::wrote", Some("wrote")),
            (
                "guest_survives_launcher_kill",
                Some("guest_survives_launcher_kill"),
            ),
            ("virt-handler", None),
            ("kubevirt.io/v1", None),
            ("runStrategy", None),
            ("ferrovirt0", None),
            ("dry_run", None),
        ] {
            assert_eq!(item_name(span), expected, "{span}");
        }
    }

    #[test]
    fn items_are_found_in_source() {
        let source = "pub(crate) async fn plan(seen: &X) {}\n    Pause(u8),\npub const ALL: [u8; 1] = [1];\nmacro_rules! kind {";
        let found: Vec<_> = items(source).collect();
        assert_eq!(found[..3], ["plan", "Pause", "ALL"]);
    }

    #[test]
    fn excerpts_have_a_file_and_a_text() {
        let text = "A block:\n\n<!-- excerpt: a/b.py -->\n```python\n    x = 1\n    y = 2\n```\n\n```sh\nno\n```\n";
        let found: Vec<_> = excerpts(text).collect();
        assert_eq!(found, [("a/b.py", "    x = 1\n    y = 2\n")]);
        let without: Vec<_> = excerpts("<!-- excerpt: a/b.py -->\nno block").collect();
        assert_eq!(without, [("a/b.py", "")]);
    }

    #[test]
    fn missing_names_are_reported() {
        let text =
            "See `crates/nowhere/src/x.rs`, `docs/`, `x.rs`, `crates/*/src` and `plan::gone`.";
        let faults = missing(Path::new("README.md"), text, &BTreeSet::from(["plan"]));
        assert_eq!(
            faults,
            [
                "README.md: crates/nowhere/src/x.rs does not exist",
                "README.md: there is no function or type plan::gone"
            ]
        );
    }
}
