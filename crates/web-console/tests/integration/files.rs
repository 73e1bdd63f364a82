//! The files of the page: complete, and without anything from elsewhere.

use std::{collections::BTreeSet, fs, path::Path};

use web_console::assets::{ALL, Asset};

/// Names of XML vocabularies look like addresses but load nothing.
const VOCABULARY: &str = "http://www.w3.org/2000/svg";
/// Ways around the policy that a page without markup in strings never needs.
const FORBIDDEN: [&str; 9] = [
    "innerHTML",
    "outerHTML",
    "insertAdjacentHTML",
    "document.write",
    "eval(",
    "new Function",
    "http://",
    "https://",
    "import(",
];

fn text(asset: &Asset) -> &'static str {
    std::str::from_utf8(asset.content).unwrap()
}

fn has_extension(asset: &Asset, extension: &str) -> bool {
    Path::new(asset.path)
        .extension()
        .is_some_and(|found| found == extension)
}

fn scripts() -> impl Iterator<Item = &'static Asset> {
    ALL.iter().filter(|asset| has_extension(asset, "js"))
}

#[test]
fn every_file_of_the_folder_is_served() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("static");
    let mut found = BTreeSet::new();
    let mut folders = vec![folder.clone()];
    while let Some(one) = folders.pop() {
        for entry in fs::read_dir(one).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let relative = path.strip_prefix(&folder).unwrap().to_str().unwrap();
                found.insert(format!("/console/{relative}"));
            }
        }
    }
    let served: BTreeSet<String> = ALL.iter().map(|asset| asset.path.to_owned()).collect();
    assert_eq!(found, served);
}

#[test]
fn files_load_nothing_from_elsewhere_and_make_no_markup() {
    for asset in ALL {
        let text = text(asset).replace(VOCABULARY, "");
        for forbidden in FORBIDDEN {
            assert!(!text.contains(forbidden), "{}: {forbidden}", asset.path);
        }
    }
}

#[test]
fn page_has_no_inline_script_or_style() {
    let page = ALL.iter().find(|asset| has_extension(asset, "html"));
    let page = text(page.unwrap());
    for forbidden in ["<style", "style=", " onclick", " onload", "javascript:"] {
        assert!(!page.contains(forbidden), "{forbidden}");
    }
    for script in page.split("<script").skip(1) {
        let (tag, content) = script.split_once('>').unwrap();
        assert!(tag.contains(" src=\"/console/js/"), "{tag}");
        assert!(content.starts_with("</script>"), "{content}");
    }
}

/// A module that is imported under a wrong name makes the page blank.
#[test]
fn imports_name_files_and_what_they_export() {
    let exported = |asset: &Asset, name: &str| {
        ["function ", "async function ", "class ", "const "]
            .iter()
            .any(|kind| text(asset).contains(&format!("export {kind}{name}")))
    };
    for script in scripts() {
        for line in text(script)
            .lines()
            .filter(|line| line.starts_with("import "))
        {
            let (names, from) = line.split_once(" from ").unwrap();
            let mut path = Path::new(script.path).parent().unwrap().to_owned();
            for part in from.trim_matches(['"', ';']).split('/') {
                match part {
                    "." => {}
                    ".." => path = path.parent().unwrap().to_owned(),
                    name => path.push(name),
                }
            }
            let found = ALL.iter().find(|asset| Path::new(asset.path) == path);
            let found = found.unwrap_or_else(|| panic!("{}: {line}", script.path));
            let names = names.trim_start_matches("import {").trim_end_matches('}');
            for name in names.split(',').map(str::trim) {
                let name = name.split_once(" as ").map_or(name, |(name, _)| name);
                assert!(
                    exported(found, name),
                    "{}: {name} of {}",
                    script.path,
                    found.path
                );
            }
        }
    }
}

#[test]
fn every_script_begins_with_its_purpose() {
    for script in scripts() {
        assert!(text(script).starts_with("// "), "{}", script.path);
        assert!(text(script).lines().count() <= 250, "{}", script.path);
    }
}
