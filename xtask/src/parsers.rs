//! Every parser of the threat model has a fuzz target, or a reason for having none; every target has its row.

use std::collections::BTreeSet;

const TARGET: &str = "uzz target";
const REASON: &str = "not fuzzed: ";

/// What the tables of parsers lack.
pub(crate) fn faults(model: &str, targets: &[String]) -> Vec<String> {
    let section = model
        .split("\n## ")
        .find(|part| part.starts_with("Parsers"));
    let Some(section) = section else {
        return vec!["docs/threat-model.md: there is no section about parsers".to_owned()];
    };
    let mut faults = Vec::new();
    let mut named = BTreeSet::new();
    for row in rows(section) {
        let found: Vec<&str> = targets_of(row).collect();
        if found.is_empty() && !row.contains(REASON) {
            let bytes = row.split('|').nth(1).unwrap_or_default().trim();
            faults.push(format!(
                "docs/threat-model.md: the row of {bytes:?} names no fuzz target; name one or write {REASON:?} \
                 and why"
            ));
        }
        named.extend(found);
    }
    let known: BTreeSet<&str> = targets.iter().map(String::as_str).collect();
    let missing = named.difference(&known);
    faults.extend(
        missing.map(|name| format!("docs/threat-model.md: there is no fuzz target {name}")),
    );
    let unnamed = known.difference(&named);
    faults.extend(
        unnamed.map(|name| format!("docs/threat-model.md: no row names the fuzz target {name}")),
    );
    faults
}

/// The rows of all tables, without their heads.
fn rows(section: &str) -> impl Iterator<Item = &str> {
    let lines: Vec<&str> = section.lines().collect();
    let is_head = |at: usize| {
        let next = lines.get(at + 1);
        next.is_some_and(|line| line.starts_with("| ---"))
    };
    let is_row = |line: &str| line.starts_with("| ") && !line.starts_with("| ---");
    let all = lines.iter().enumerate();
    let rows: Vec<&str> = all
        .filter(|(at, line)| is_row(line) && !is_head(*at))
        .map(|(_, line)| *line)
        .collect();
    rows.into_iter()
}

/// The names between back-ticks after the words, up to the end of that part.
fn targets_of(row: &str) -> impl Iterator<Item = &str> {
    let parts = row.split(TARGET).skip(1);
    parts.flat_map(|part| {
        let part = part.split([';', '.', '|']).next().unwrap_or_default();
        part.split('`').skip(1).step_by(2)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODEL: &str = "# T\n## Parsers, by source\n\n| bytes | tests |\n| --- | --- |\n\
        | a | fuzz targets `one` (JSON), `two` |\n\n| bytes | tests |\n| --- | --- |\n\
        | b | x; not fuzzed: not ours |\n\n## Secrets\n\n| c | d |\n";

    fn check(model: &str, targets: &[&str], expected: &[&str]) {
        let targets: Vec<String> = targets.iter().map(|name| (*name).to_owned()).collect();
        let found = faults(model, &targets);
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.contains(expected), "{found}");
        }
    }

    #[test]
    fn rows_and_targets_agree() {
        check(MODEL, &["one", "two"], &[]);
        check(MODEL, &["one"], &["there is no fuzz target two"]);
        check(
            MODEL,
            &["one", "three", "two"],
            &["no row names the fuzz target three"],
        );
        let without = MODEL.replace("not fuzzed: ", "");
        check(
            &without,
            &["one", "two"],
            &["the row of \"b\" names no fuzz target"],
        );
        check("# T\n", &[], &["no section"]);
    }
}
