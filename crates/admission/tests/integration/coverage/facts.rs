//! The fields of a VMI's spec, from the table of API facts.

use std::collections::BTreeSet;

const FACTS: &str = include_str!("../../../../kubevirt-api/facts/api-fields.tsv");

/// Type, field and type of the field.
type Row = (&'static str, &'static str, &'static str);

/// The paths of all fields, with `[*]` for the elements of a list. Fields of Kubernetes' own types are
/// not among them.
pub(crate) fn fields() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    walk(&rows(), "VirtualMachineInstanceSpec", "spec", &mut found);
    found
}

/// The members of a type; those of embedded types are not among them.
pub(crate) fn members(of: &str) -> Vec<&'static str> {
    let rows = rows().into_iter();
    let members = rows.filter(|(parent, name, _)| *parent == of && !name.starts_with('('));
    members.map(|(_, name, _)| name).collect()
}

fn rows() -> Vec<Row> {
    let rows = FACTS.lines().filter_map(|line| {
        let mut columns = line.split('\t');
        let group = columns.next()?;
        let row = (columns.next()?, columns.next()?, columns.next()?);
        (group == "kubevirt.io/v1").then_some(row)
    });
    rows.collect()
}

/// Names in brackets mark embedded and empty types.
fn walk(rows: &[Row], of: &str, path: &str, found: &mut BTreeSet<String>) {
    for (_, field, kind) in rows.iter().filter(|(parent, ..)| *parent == of) {
        let path = if field.starts_with('(') {
            path.to_owned()
        } else {
            let path = format!("{path}.{field}");
            found.insert(path.clone());
            path
        };
        let element = kind
            .strip_prefix("array<")
            .map(|kind| kind.trim_end_matches('>'));
        let (kind, path) = match element {
            Some(kind) => (kind, format!("{path}[*]")),
            None => (*kind, path),
        };
        if let Some(below) = kind.strip_prefix("ref:") {
            walk(rows, below, &path, found);
        }
    }
}
