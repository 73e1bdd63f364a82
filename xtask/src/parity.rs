//! `xtask parity`: compares our definitions and types with tables of facts.
//!
//! - `facts` reads the tables, `shape` their column of types;
//! - `node` is a level of a schema, `fields` walks down schemas, `marks` and `foreign` are what it
//!   compares at a level;
//! - `kinds` compares the parts of CRDs besides schemas;
//! - `report` prints the result.
//!
//! **Invariants**: a row counts as good only when it was compared; a type that a CRD contains is
//! compared there and, for the width of its numbers, in its own schema, too; intended gaps are listed
//! in `known-gaps.txt` beside the tables.

mod facts;
mod fields;
mod foreign;
mod kinds;
mod marks;
mod node;
mod report;
mod shape;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use clap::{Args, ValueEnum};
use kubevirt_api::crds::{self, wire};
use serde_json::Value;

use crate::printer::Printer;
use crate::workspace::root;

use facts::{Definition, Facts, TypeName};
use fields::{Findings, Side, Strictness, Walk, value_differences};
use node::{Definitions, Node};
use report::{Gap, Report};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Table of fields; ours without it.
    #[arg(long, value_name = "FILE")]
    fields: Option<PathBuf>,
    /// Table of kinds; ours without it.
    #[arg(long, value_name = "FILE")]
    kinds: Option<PathBuf>,
    /// Only this group; may be given more than once.
    #[arg(long, value_name = "GROUP")]
    group: Vec<String>,
    #[arg(long, short, value_enum)]
    output: Option<Output>,
    /// Write the gaps of all groups to the list of known ones.
    #[arg(long, conflicts_with_all = ["fields", "kinds", "group"])]
    write_known: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Output {
    Json,
}

/// Compares and shows. Gaps are the result, not a failure.
pub(crate) fn run(printer: &Printer, options: &Options) -> Result<()> {
    let facts = read(options.fields.as_deref(), options.kinds.as_deref())?;
    let report = compare(&facts, &options.group)?;
    if options.write_known {
        let path = data().join(KNOWN);
        let text = format!("{KNOWN_HEAD}{}\n", report.lines().join("\n"));
        fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
    }
    match options.output {
        None => printer.result(report.text())?,
        Some(Output::Json) => printer.result(report.json()?)?,
    }
    Ok(())
}

const KNOWN: &str = "known-gaps.txt";
const KNOWN_HEAD: &str = "\
# What our definitions and types lack or have differently, as `cargo xtask parity` reports it.
# A test holds this list to be exact: take out what was closed (`cargo xtask parity --write-known`).
";

fn data() -> PathBuf {
    root().join("crates/kubevirt-api/facts")
}

fn read(fields: Option<&Path>, kinds: Option<&Path>) -> Result<Facts> {
    let read = |given: Option<&Path>, ours: &str| {
        let path = given.map_or_else(|| data().join(ours), Path::to_owned);
        fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))
    };
    Facts::parse(&read(fields, "api-fields.tsv")?, &read(kinds, "kinds.tsv")?)
}

/// Everything, or only some groups.
fn compare(facts: &Facts, groups: &[String]) -> Result<Report> {
    for group in groups {
        ensure!(
            facts.rows.iter().any(|row| row.group() == group),
            "the tables have no group {group}"
        );
    }
    let definitions = definitions(facts)?;
    let mut findings = Findings::default();
    let shown = facts.shown_by_definitions();
    for kind in &facts.kinds {
        if let Some(definition) = definitions.get(&kind.name) {
            walk_definition(facts, kind, definition, &shown, &mut findings);
        }
    }
    for wire in wire::types() {
        walk_type(facts, &wire, &shown, &mut findings);
    }
    let mut report = Report::default();
    let is_wanted = |group: &str| groups.is_empty() || groups.iter().any(|one| one == group);
    for (name, rows) in facts.types() {
        let group = name.0.split('/').next().unwrap_or_default();
        if is_wanted(group) {
            let is_shown = shown.contains(name);
            classify(facts, &findings, name, rows, is_shown, &mut report);
        }
    }
    for kind in facts.kinds.iter().filter(|kind| is_wanted(&kind.group)) {
        let gaps = kinds::differences(kind, definitions.get(&kind.name));
        report.kinds.all += 1;
        report.kinds.good += usize::from(gaps.is_empty());
        report.gaps.extend(gaps.into_iter().map(|what| Gap {
            place: kind.name.clone(),
            field: String::new(),
            side: None,
            what,
        }));
    }
    Ok(report)
}

/// Our CRDs that the tables describe.
fn definitions(facts: &Facts) -> Result<BTreeMap<String, Value>> {
    let read = |(name, text): &(&str, &str)| {
        let value = serde_saphyr::from_str(text).with_context(|| format!("read {name}"))?;
        Ok(((*name).to_owned(), value))
    };
    let is_described =
        |(name, _): &&(&str, &str)| facts.kinds.iter().any(|kind| kind.name == *name);
    crds::ALL.iter().filter(is_described).map(read).collect()
}

fn walk_definition(
    facts: &Facts,
    kind: &Definition,
    definition: &Value,
    shown: &BTreeSet<TypeName>,
    findings: &mut Findings,
) {
    let stored = kind.versions.iter().find(|version| version.is_stored);
    let full = |version: &facts::Version| format!("{}/{}", kind.group, version.name);
    let stored = stored.map(full).unwrap_or_default();
    let nothing = Definitions::new();
    let versions = definition["spec"]["versions"].as_array();
    for version in versions.into_iter().flatten() {
        let name = version["name"].as_str().unwrap_or_default();
        let name: TypeName = (format!("{}/{name}", kind.group), kind.kind.clone());
        // A version that the tables leave out has the rows of the stored one.
        let name = if facts.rows_of(&name).is_empty() {
            match kind.versions.iter().map(full).find(|other| {
                !facts
                    .rows_of(&(other.clone(), kind.kind.clone()))
                    .is_empty()
            }) {
                Some(other) => (other, kind.kind.clone()),
                None => continue,
            }
        } else {
            name
        };
        let is_stored = name.0 == stored
            || facts
                .rows_of(&(stored.clone(), kind.kind.clone()))
                .is_empty();
        let mut walk = Walk {
            facts,
            side: Side::Definition,
            strictness: if is_stored {
                Strictness::Whole
            } else {
                Strictness::OlderVersion
            },
            stored: &stored,
            definitions: &nothing,
            shown,
            findings,
            way: Vec::new(),
            in_status: false,
        };
        let root = Node::open(&version["schema"]["openAPIV3Schema"], &nothing);
        walk.whole_type(&name, &root);
    }
}

/// Compares a type's own schema with the rows of its name in every version of its group.
fn walk_type(
    facts: &Facts,
    wire: &wire::WireType,
    shown: &BTreeSet<TypeName>,
    findings: &mut Findings,
) {
    let (schema, definitions) = fields::split((wire.schema)());
    let names = facts.types().map(|(name, _)| name.clone());
    let stored = format!("{}/{}", wire.group, wire.version);
    let names =
        names.filter(|name| name.1 == wire.name && name.0.split('/').next() == Some(wire.group));
    for name in names.collect::<Vec<_>>() {
        let mut walk = Walk {
            facts,
            side: Side::Type,
            strictness: if name.0 == stored {
                Strictness::Whole
            } else {
                Strictness::OlderVersion
            },
            stored: &stored,
            definitions: &definitions,
            shown,
            findings,
            way: Vec::new(),
            in_status: wire.name.ends_with("Status"),
        };
        let root = Node::open(&schema, &definitions);
        walk.whole_type(&name, &root);
    }
}

/// Classifies each row of a type.
fn classify(
    facts: &Facts,
    findings: &Findings,
    name: &TypeName,
    rows: &[usize],
    is_shown: bool,
    report: &mut Report,
) {
    report.fields.all += rows.len();
    let sides = wanted_sides(facts, name, is_shown);
    let unseen: Vec<Side> = sides
        .iter()
        .copied()
        .filter(|side| {
            !rows
                .iter()
                .any(|row| findings.seen.contains(&(*side, *row)))
        })
        .collect();
    let gap = |field: String, side: Side, what: &str| Gap {
        place: name.0.clone(),
        field,
        side: Some(side.as_str()),
        what: what.to_owned(),
    };
    let listed = facts.listed_kind(name).filter(|_| sides.is_empty());
    if let Some((_, alias)) = facts.alias(name).filter(|_| !is_seen(findings, rows)) {
        classify_alias(name, alias, report);
        return;
    }
    if listed.is_some_and(|kind| !is_seen(findings, facts.rows_of(&kind))) {
        let field = name.1.clone();
        report
            .gaps
            .push(gap(field, Side::Definition, "a list of a missing field"));
        return;
    }
    for side in &unseen {
        report.gaps.push(gap(name.1.clone(), *side, "not there"));
    }
    for index in rows {
        let gaps = findings.gaps.get(index);
        let compared = sides
            .iter()
            .all(|side| findings.seen.contains(&(*side, *index)));
        report.fields.good += usize::from(gaps.is_none() && compared);
        let field = facts
            .row(*index)
            .map(|row| row.field.clone())
            .unwrap_or_default();
        let place = format!("{}.{field}", name.1);
        // A side that has other fields of the type, but not this one, has no gap to report.
        for side in sides.iter().filter(|side| !unseen.contains(side)) {
            let is_told = gaps.is_some_and(|gaps| gaps.iter().any(|(of, _)| of == side));
            if !is_told && !findings.seen.contains(&(*side, *index)) {
                report
                    .gaps
                    .push(gap(place.clone(), *side, "was not compared"));
            }
        }
        for (side, what) in gaps.into_iter().flatten() {
            report.gaps.push(gap(place.clone(), *side, what));
        }
    }
    for (_, field, side) in findings.extra.iter().filter(|(of, ..)| of == name) {
        report.gaps.push(gap(
            format!("{}.{field}", name.1),
            *side,
            "is not in the table",
        ));
    }
}

/// Where a type must have been compared.
fn wanted_sides(facts: &Facts, name: &TypeName, is_shown: bool) -> Vec<Side> {
    if facts.alias(name).is_some() {
        return Vec::new();
    }
    match (is_shown, facts.is_kind(name)) {
        // Kinds are put together by hand around their spec and status.
        (true, true) => vec![Side::Definition],
        (true, false) => vec![Side::Definition, Side::Type],
        (false, _) if facts.listed_kind(name).is_some() => Vec::new(),
        (false, _) => vec![Side::Type],
    }
}

fn is_seen(findings: &Findings, rows: &[usize]) -> bool {
    let sides = [Side::Definition, Side::Type];
    let mut pairs = rows.iter().flat_map(|row| sides.map(|side| (side, *row)));
    pairs.any(|pair| findings.seen.contains(&pair))
}

/// A named scalar that no field uses; its values must be known, too.
fn classify_alias(name: &TypeName, alias: &facts::Row, report: &mut Report) {
    let group = alias.group();
    let ours = wire::ENUMERATIONS
        .iter()
        .find(|(of, what, _)| *of == group && *what == alias.type_name);
    let gaps = match ours {
        _ if alias.values.is_empty() => Vec::new(),
        Some((_, _, values)) => {
            let values: Vec<&str> = values
                .iter()
                .copied()
                .filter(|value| !value.is_empty())
                .collect();
            value_differences(&alias.values, &values)
        }
        None => vec!["not there".to_owned()],
    };
    report.fields.good += usize::from(gaps.is_empty());
    report.gaps.extend(gaps.into_iter().map(|what| Gap {
        place: name.0.clone(),
        field: name.1.clone(),
        side: Some(Side::Type.as_str()),
        what,
    }));
}

#[cfg(test)]
mod tests;
