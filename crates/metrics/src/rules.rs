//! The rules for names, labels and help texts.

use std::collections::BTreeSet;

use crate::table::{Description, Kind, Table};

/// Everything that is wrong with these tables, which together are the metrics of a program.
pub fn problems(tables: &[&Table]) -> Vec<String> {
    let mut names = BTreeSet::new();
    let mut problems = Vec::new();
    for table in tables {
        for metric in table.metrics {
            let one = metric.description();
            if !names.insert(one.name) {
                problems.push(format!("{}: the name is used twice", one.name));
            }
            problems.extend(rules(table, &one).map(|rule| format!("{}: {rule}", one.name)));
        }
    }
    problems
}

fn rules(table: &Table, one: &Description) -> impl Iterator<Item = &'static str> {
    let prefix = match table.component {
        "process" => "process_".to_owned(),
        component => format!("ferrovirt_{}_", component.replace('-', "_")),
    };
    let is_plain = |text: &str| {
        text.starts_with(|c: char| c.is_ascii_lowercase())
            && text
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
            && !text.contains("__")
            && !text.ends_with('_')
    };
    let labels: BTreeSet<_> = one.labels.iter().collect();
    let is_counter = one.kind == Kind::Counter;
    [
        (
            (one.name.starts_with(&prefix) || one.name.starts_with("kubevirt_"))
                && is_plain(one.name),
            "the name is neither ferrovirt_<crate>_<what>_<unit> nor one of KubeVirt",
        ),
        (
            one.name.ends_with("_total") == is_counter,
            "counters and only counters end with _total",
        ),
        (
            one.kind != Kind::Histogram || one.name.ends_with("_seconds"),
            "histograms end with _seconds",
        ),
        (
            one.labels
                .iter()
                .all(|label| is_plain(label) && *label != "le"),
            "a label is not in lower case",
        ),
        (labels.len() == one.labels.len(), "a label is used twice"),
        (
            one.help.ends_with('.') && !one.help.contains('|'),
            "the help text is not a sentence",
        ),
    ]
    .into_iter()
    .filter_map(|(holds, rule)| (!holds).then_some(rule))
}
