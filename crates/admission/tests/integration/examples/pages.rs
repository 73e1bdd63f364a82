//! The pages of the guide about devices, volumes and networks: there is one for every kind, each has an
//! example, and they tell the truth about what this version cannot run and what the messages are.
//!
//! A page begins with its title and two lines: `- Fields:` with the paths of its fields, and `- Examples:`
//! with links.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use model::unsupported::FIELDS;
use serde_json::Value;

use super::catalogue::{directory, examples};
use crate::coverage::{facts, occurrences};

const DIRECTORIES: [&str; 3] = ["devices", "volumes", "networks"];
/// The statement on pages about features that are accepted and wait.
const WAITS: &str = "**This version does not run it yet.**";
/// Bindings that are refused, although an object that was stored before may have them.
const REFUSED: [&str; 3] = ["slirp", "macvtap", "passt"];
/// Lists whose members are kinds of their own.
const LISTS: [&str; 2] = ["disks", "interfaces"];
/// The crates that write the messages which pages quote.
const WRITERS: [&str; 6] = [
    "admission",
    "cluster-config",
    "domain-xml",
    "launcher-pod",
    "model",
    "net-plan",
];

#[derive(Debug)]
struct Page {
    /// Directory and file.
    name: String,
    text: String,
    fields: Vec<String>,
    examples: Vec<String>,
}

fn guide() -> PathBuf {
    directory().join("../docs/guide")
}

fn markdown(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).expect("pages");
    let mut files: Vec<_> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    files.sort();
    files
}

fn pages() -> Vec<Page> {
    let mut all = Vec::new();
    for kind in DIRECTORIES {
        for path in markdown(&guide().join(kind)) {
            let file = path.file_name().expect("a name").to_string_lossy();
            if file != "README.md" {
                let text = fs::read_to_string(&path).expect("a page");
                all.push(page(format!("{kind}/{file}"), text));
            }
        }
    }
    all
}

fn page(name: String, text: String) -> Page {
    let line = |start: &str| {
        let mut lines = text.lines();
        let line = lines.find(|line| line.starts_with(start));
        let line = line.ok_or_else(|| format!("{name} has no line {start}"));
        spans(line.expect("a page")).map(str::to_owned).collect()
    };
    let (fields, examples) = (line("- Field"), line("- Example"));
    Page {
        name,
        text,
        fields,
        examples,
    }
}

/// Text between back-ticks.
fn spans(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The fields that are kinds of a device, volume or network.
fn kinds() -> BTreeSet<String> {
    let devices = "spec.domain.devices";
    let of = |of: &str, path: String| {
        let members = facts::members(of).into_iter();
        members.map(move |name| format!("{path}.{name}"))
    };
    let mut kinds: BTreeSet<String> = of("VolumeSource", "spec.volumes[*]".to_owned())
        .chain(of("NetworkSource", "spec.networks[*]".to_owned()))
        .chain(of("DiskDevice", format!("{devices}.disks[*]")))
        .chain(of(
            "InterfaceBindingMethod",
            format!("{devices}.interfaces[*]"),
        ))
        .chain(of("Devices", devices.to_owned()))
        .collect();
    for list in LISTS {
        assert!(kinds.remove(&format!("{devices}.{list}")), "{list}");
    }
    kinds
}

fn is_at_or_below(field: &str, kind: &str) -> bool {
    let rest = field.strip_prefix(kind);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

#[test]
fn every_kind_has_a_page() {
    let pages = pages();
    let fields = || pages.iter().flat_map(|page| &page.fields);
    let without: Vec<String> = kinds()
        .into_iter()
        .filter(|kind| !fields().any(|field| is_at_or_below(field, kind)))
        .collect();
    assert_eq!(without, [""; 0], "kinds without a page in docs/guide");
    let known = facts::fields();
    for page in &pages {
        let unknown: Vec<_> = page
            .fields
            .iter()
            .filter(|one| !known.contains(*one))
            .collect();
        assert_eq!(unknown, [""; 0], "{}", page.name);
    }
}

/// The fields of each example, with `[*]` instead of indices.
fn fields_of_examples() -> BTreeMap<String, BTreeSet<String>> {
    let specs = |object: &Value| {
        let template = object["spec"]["template"]["spec"].clone();
        [object["spec"].clone(), template]
    };
    let all = examples().into_iter().map(|example| {
        let specs = example.objects.iter().flat_map(specs);
        let fields = specs.flat_map(|spec| occurrences(&spec));
        (example.file, fields.map(|(field, _)| field).collect())
    });
    all.collect()
}

#[test]
fn examples_of_a_page_exist_and_show_its_fields() {
    let all = fields_of_examples();
    for page in pages() {
        assert!(!page.examples.is_empty(), "{} has no example", page.name);
        let mut shown = BTreeSet::new();
        for example in &page.examples {
            let fields = all.get(example);
            shown.extend(fields.unwrap_or_else(|| panic!("{}: no {example}", page.name)));
        }
        let is_refused = page.fields.iter().all(|field| is_withdrawn(field));
        assert!(
            is_refused || page.fields.iter().any(|field| shown.contains(field)),
            "{}: none of {:?} has one of {:?}",
            page.name,
            page.examples,
            page.fields
        );
    }
}

fn is_withdrawn(field: &str) -> bool {
    let name = field.rsplit('.').next().unwrap_or_default();
    field.contains("interfaces[*]") && REFUSED.contains(&name)
}

#[test]
fn pages_say_what_waits() {
    let pages = pages();
    let rows: Vec<String> = FIELDS
        .iter()
        .map(|row| format!("spec.{}", row.path.trim_end_matches("[*]")))
        .collect();
    for page in &pages {
        let mut fields = page.fields.iter();
        let waits = fields.all(|field| rows.contains(field) && !is_withdrawn(field));
        assert_eq!(page.text.contains(WAITS), waits, "{}", page.name);
    }
    for row in rows {
        let name = row.rsplit('.').next().unwrap_or_default();
        let is_described = pages.iter().any(|page| {
            page.fields.contains(&row)
                || page.text.contains(&format!("`{name}"))
                    && (page.text.contains(WAITS) || page.text.contains("## Not yet"))
        });
        assert!(is_described, "no page says that {row} waits");
    }
}

/// Spans in the first column of the table of problems.
fn quotes(page: &Page) -> Vec<&str> {
    let problems = page
        .text
        .split("\n## ")
        .filter(|part| part.starts_with("What can go wrong"));
    let rows = problems
        .flat_map(str::lines)
        .filter_map(|line| line.strip_prefix("| "));
    let rows = rows.filter_map(|row| row.split_once(" | "));
    rows.flat_map(|(first, _)| spans(first)).collect()
}

/// Source text without line breaks in strings.
fn sources() -> String {
    fn collect(directory: &Path, all: &mut String) {
        for entry in fs::read_dir(directory).expect("sources") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                collect(&path, all);
            } else {
                all.push_str(&fs::read_to_string(&path).expect("a source"));
            }
        }
    }
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut all = String::new();
    for writer in WRITERS {
        collect(&crates.join(writer).join("src"), &mut all);
    }
    let mut parts = all.split("\\\n");
    let first = parts.next().unwrap_or_default().to_owned();
    let joined = parts.fold(first, |all, part| all + part.trim_start());
    joined.replace("\\\"", "\"")
}

#[test]
fn quoted_messages_and_reasons_exist() {
    let sources = sources();
    let reasons = fs::read_to_string(guide().join("troubleshooting.md")).expect("reasons");
    let mut wrong = Vec::new();
    for page in pages() {
        for quote in quotes(&page) {
            let starts_upper = quote.starts_with(|c: char| c.is_ascii_uppercase());
            let is_word = quote.chars().all(|c| c.is_ascii_alphabetic());
            let has_lower = quote.contains(|c: char| c.is_ascii_lowercase());
            let exists = if starts_upper && is_word && has_lower {
                // A reason, or the name of a feature gate.
                reasons.contains(&format!("`{quote}`")) || sources.contains(&format!("\"{quote}\""))
            } else if quote.contains(' ') && !quote.contains(": {") {
                let mut parts = quote.split('…').map(str::trim);
                parts.all(|part| sources.contains(part))
            } else {
                true
            };
            if !exists {
                wrong.push(format!("{}: {quote}", page.name));
            }
        }
    }
    assert_eq!(wrong, [""; 0], "no message or reason of this text");
}

#[test]
fn pages_are_listed_and_their_links_lead_somewhere() {
    let mut broken = Vec::new();
    for kind in DIRECTORIES {
        let folder = guide().join(kind);
        let index = fs::read_to_string(folder.join("README.md")).expect("an index");
        for path in markdown(&folder) {
            let file = path.file_name().expect("a name").to_string_lossy();
            let text = fs::read_to_string(&path).expect("a page");
            if file != "README.md" && !index.contains(&format!("]({file})")) {
                broken.push(format!("{kind}/README.md does not list {file}"));
            }
            let links = text
                .split("](")
                .skip(1)
                .filter_map(|rest| rest.split(')').next());
            for link in links.filter(|link| !link.starts_with("http")) {
                let (target, _) = link.split_once('#').unwrap_or((link, ""));
                if !target.is_empty() && !folder.join(target).exists() {
                    broken.push(format!("{kind}/{file}: {link}"));
                }
            }
        }
        let start = fs::read_to_string(guide().join("README.md")).expect("the guide's index");
        if !start.contains(&format!("({kind}/README.md)")) {
            broken.push(format!("docs/guide/README.md does not list {kind}"));
        }
    }
    assert_eq!(broken, [""; 0]);
}
