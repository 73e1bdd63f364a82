//! Rules of this workspace that neither the compiler nor clippy checks.
//!
//! Every module has a `//!` text and a meaningful name; crates depend on their own ring and inner ones
//! only; files of the two inner rings do not depend on each other in circles; documents name existing
//! files and functions; a doc test is in a crate where doc tests run; the lock file of the fuzz targets
//! has the dependencies of our crates; every parser of the threat model has a fuzz target, and
//! ARCHITECTURE.md describes every crate. The longest
//! files and functions are printed, but not limited.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use crate::debian::lines;
use crate::printer::Printer;
use crate::workspace::{Metadata, Package, metadata, root};
use crate::{architecture, circles, documents, failpoints, finalizers, fuzz, fuzz_lock, parsers};

/// Names without a meaning.
const MEANINGLESS: [&str; 9] = [
    "util", "utils", "common", "helper", "helpers", "types", "misc", "shared", "lib_util",
];
const SHOWN: usize = 10;
/// The sources whose doc tests run; other crates have `doctest = false`.
const WITH_DOC_TESTS: &str = "crates/metrics/src";
/// The rings whose files may not depend on each other in circles: `wire` and `domain`.
const INNER_RINGS: usize = 2;
/// Files that apply without `reconcile::Fragment`: whole manifests, whose empty members have a meaning,
/// and the simulated server. Controllers use the fragment, which leaves out empty members.
const APPLIES: [&str; 5] = [
    "crates/reconcile/src/apply.rs",
    "crates/in-cluster/src/authority.rs",
    "crates/single-host/src/up/install.rs",
    "crates/simulation/src",
    "xtask/src",
];

/// A source file.
struct Source {
    /// Relative to the root of the clone.
    path: PathBuf,
    text: String,
}

/// Checks the tree and prints its longest files and functions.
pub(crate) fn run(printer: &Printer) -> Result<()> {
    let metadata = metadata()?;
    let sources = sources(&metadata)?;
    let mut faults = Vec::new();
    for source in &sources {
        faults.extend(faults_of(source));
    }
    faults.extend(
        metadata
            .members()
            .filter(|package| is_meaningless(&package.name))
            .map(|package| format!("crate {}: its name has no meaning", package.name)),
    );
    let rings = rings()?;
    faults.extend(outward_arrows(&metadata, &rings));
    for (name, _) in rings.iter().filter(|(_, ring)| **ring <= INNER_RINGS) {
        faults.extend(circles_in(name, &sources));
    }
    faults.extend(documents::faults(
        sources.iter().map(|source| source.text.as_str()),
    )?);
    let path = root().join("crates/failpoints/names.txt");
    let list = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let texts = sources.iter();
    let texts = texts.filter_map(|one| Some((one.path.to_str()?, one.text.as_str())));
    let texts: Vec<_> = texts.collect();
    faults.extend(failpoints::faults(&list, &texts));
    faults.extend(finalizers::faults(&texts));
    let path = root().join("fuzz/Cargo.lock");
    let lock = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    faults.extend(fuzz_lock::faults(&lock, &metadata));
    let path = root().join("docs/threat-model.md");
    let model = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    faults.extend(parsers::faults(&model, &fuzz::targets()?));
    let path = root().join("ARCHITECTURE.md");
    let document = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    faults.extend(architecture::faults(&document, &metadata));
    show_longest(printer, &sources);
    ensure!(faults.is_empty(), "{}", faults.join("\n  "));
    Ok(())
}

fn faults_of(source: &Source) -> Vec<String> {
    let mut faults = Vec::new();
    let shown = source.path.display();
    let may_apply = APPLIES.iter().any(|path| source.path.starts_with(path))
        || source.path.iter().any(|part| part == "tests");
    if source.text.contains("Patch::Apply(") && !may_apply {
        faults.push(format!(
            "{shown}: apply by reconcile::Fragment, which leaves out empty members"
        ));
    }
    // A `tests.rs` belongs to the module beside it.
    let is_tests = source
        .path
        .file_name()
        .is_some_and(|name| name == "tests.rs");
    if !is_tests && !source.text.trim_start().starts_with("//!") {
        faults.push(format!("{shown}: no //! text at the top"));
    }
    if let Some(line) = doc_test(&source.text)
        && !source.path.starts_with(WITH_DOC_TESTS)
    {
        faults.push(format!(
            "{shown}:{}: doc tests do not run; mark the block as text or write a test",
            line + 1
        ));
    }
    let named = source.path.iter().filter_map(|part| part.to_str());
    if named
        .map(|part| part.trim_end_matches(".rs"))
        .any(is_meaningless)
    {
        faults.push(format!("{shown}: its name has no meaning"));
    }
    faults
}

fn is_meaningless(name: &str) -> bool {
    MEANINGLESS.contains(&name)
}

/// The first line of a block of code in a doc comment that `cargo test` would run, if there is one.
fn doc_test(text: &str) -> Option<usize> {
    let mut is_open = false;
    text.lines().position(|line| {
        let line = line.trim_start();
        let comment = line.strip_prefix("///").or(line.strip_prefix("//!"));
        let Some(language) = comment.and_then(|comment| comment.trim_start().strip_prefix("```"))
        else {
            return false;
        };
        is_open = !is_open;
        let words = language.split(',').map(str::trim);
        is_open
            && !words
                .clone()
                .any(|word| matches!(word, "text" | "yaml" | "json" | "sh"))
    })
}

fn circles_in(name: &str, sources: &[Source]) -> Vec<String> {
    let base = Path::new("crates").join(name).join("src");
    let own = sources.iter().filter_map(|source| {
        let path = source.path.strip_prefix(&base).ok()?;
        Some((path.to_str()?, source.text.as_str()))
    });
    circles::faults(name, &own.collect::<Vec<_>>())
}

fn rings() -> Result<BTreeMap<String, usize>> {
    let path = root().join("xtask/rings.txt");
    let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    Ok(parse_rings(&text))
}

/// Dependencies of a crate on one in an outer ring.
fn outward_arrows(metadata: &Metadata, rings: &BTreeMap<String, usize>) -> Vec<String> {
    let in_rings = |package: &&Package| {
        package.manifest_path.parent().and_then(Path::parent) == Some(&root().join("crates"))
    };
    let mut faults = Vec::new();
    for package in metadata.members().filter(in_rings) {
        let Some(own) = rings.get(&package.name) else {
            faults.push(format!(
                "crate {} is missing in xtask/rings.txt",
                package.name
            ));
            continue;
        };
        let outward = package
            .dependencies
            .iter()
            .filter(|dependency| dependency.path.is_some())
            .filter(|dependency| dependency.kind.as_deref() != Some("dev"))
            .filter(|dependency| rings.get(&dependency.name).is_none_or(|ring| ring > own));
        faults.extend(outward.map(|dependency| {
            format!(
                "crate {} depends on {}, which is in an outer ring",
                package.name, dependency.name
            )
        }));
    }
    faults
}

/// Maps crate names to the numbers of their rings, the innermost first.
fn parse_rings(text: &str) -> BTreeMap<String, usize> {
    let mut rings = BTreeMap::new();
    let mut ring = 0;
    for line in lines(text) {
        if line.starts_with('[') {
            ring += 1;
        } else {
            rings.insert(line, ring);
        }
    }
    rings
}

fn sources(metadata: &Metadata) -> Result<Vec<Source>> {
    let mut sources = Vec::new();
    for package in metadata.members() {
        let base = package
            .manifest_path
            .parent()
            .context("a manifest lies in a directory")?;
        for part in ["src", "tests", "benches"] {
            read_sources(&base.join(part), &mut sources)?;
        }
    }
    Ok(sources)
}

fn read_sources(directory: &Path, sources: &mut Vec<Source>) -> Result<()> {
    if !directory.is_dir() {
        return Ok(());
    }
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            read_sources(&path, sources)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path)?;
            let path = path.strip_prefix(root()).unwrap_or(&path).to_owned();
            sources.push(Source { path, text });
        }
    }
    Ok(())
}

fn show_longest(printer: &Printer, sources: &[Source]) {
    let mut files: Vec<(usize, String)> = sources
        .iter()
        .map(|source| {
            (
                without_tests(&source.text).lines().count(),
                source.path.display().to_string(),
            )
        })
        .collect();
    let mut all_functions: Vec<(usize, String)> = sources
        .iter()
        .flat_map(|source| {
            functions(&source.text)
                .into_iter()
                .map(|(length, name)| (length, format!("{} {name}", source.path.display())))
        })
        .collect();
    for (what, list) in [("files", &mut files), ("functions", &mut all_functions)] {
        list.sort_by(|left, right| right.cmp(left));
        printer.line(format_args!("longest {what}, in lines:"));
        for (length, name) in list.iter().take(SHOWN) {
            printer.line(format_args!("  {length:5} {name}"));
        }
    }
}

/// The text of a file without its test module.
fn without_tests(text: &str) -> &str {
    text.find("\n#[cfg(test)]\nmod ")
        .and_then(|at| text.get(..at))
        .unwrap_or(text)
}

/// Functions with their lengths. In formatted code the closing brace is below the first letter.
fn functions(text: &str) -> Vec<(usize, String)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let Some(name) = function_name(line) else {
            continue;
        };
        let indent: String = line.chars().take_while(|c| *c == ' ').collect();
        let end = lines.iter().skip(start).position(|line| {
            *line == format!("{indent}}}")
                || line.ends_with(';') && line.starts_with(&format!("{indent}fn"))
        });
        if let Some(length) = end {
            found.push((length + 1, name.to_owned()));
        }
    }
    found
}

fn function_name(line: &str) -> Option<&str> {
    let mut words = line.trim_start().split(' ').skip_while(|word| {
        matches!(
            *word,
            "pub" | "pub(crate)" | "pub(super)" | "async" | "const" | "unsafe"
        )
    });
    (words.next()? == "fn").then_some(())?;
    words.next()?.split(['(', '<']).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn function_lengths_are_counted() {
        let text = "fn one() {\n    a();\n}\n\nimpl X {\n    pub async fn two(\n        a: u8,\n    ) {\n    }\n}\n";
        assert_eq!(
            functions(text),
            [(3, "one".to_owned()), (4, "two".to_owned())]
        );
    }

    #[test]
    fn missing_module_text_and_meaningless_name_are_faults() {
        let check = |path: &str, text: &str| {
            faults_of(&Source {
                path: path.into(),
                text: text.to_owned(),
            })
            .len()
        };
        assert_eq!(check("crates/a/src/disk.rs", "//! Disks.\n"), 0);
        assert_eq!(check("crates/a/src/disk.rs", "use std;\n"), 1);
        assert_eq!(check("crates/a/src/util.rs", "//! Things.\n"), 1);
        assert_eq!(check("crates/a/src/common/x.rs", "fn a() {}\n"), 2);
        assert_eq!(check("crates/a/src/disk/tests.rs", "use super::*;\n"), 0);
        let applies = "//! Text.\nPatch::Apply(body)\n";
        assert_eq!(check("crates/a/src/disk.rs", applies), 1);
        assert_eq!(check("crates/reconcile/src/apply.rs", applies), 0);
    }

    #[test]
    fn doc_test_is_a_fault() {
        for (text, expected) in [
            ("//! A.\n//!\n//! ```text\n//! a ```\n//! ```\n", None),
            (
                "//! A.\n\n    /// ```\n    /// a();\n    /// ```\n",
                Some(2),
            ),
            ("/// ```yaml\n/// a: b\n/// ```\n\n/// ```no_run\n", Some(4)),
            ("// ```\n// a\n// ```\n", None),
        ] {
            assert_eq!(doc_test(text), expected, "{text}");
        }
    }

    #[test]
    fn inner_rings_have_lower_numbers() {
        let rings = parse_rings("# x\n[a]\none\n\n[b]\ntwo\n");
        assert!(rings.get("one") < rings.get("two"));
    }
}
