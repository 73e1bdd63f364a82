//! The reference page.

use std::fmt::Write as _;

use crate::table::Table;

/// The tables in Markdown, one section each.
pub fn page(tables: &[&Table]) -> String {
    let mut page = String::new();
    for table in tables {
        // Writing to a string cannot fail.
        let _ok = writeln!(
            page,
            "\n## {}\n\n| metric | type | labels | meaning |\n| --- | --- | --- | --- |",
            table.component
        );
        for metric in table.metrics {
            let one = metric.description();
            let labels: Vec<String> = one
                .labels
                .iter()
                .map(|label| format!("`{label}`"))
                .collect();
            let _ok = writeln!(
                page,
                "| `{}` | {} | {} | {} |",
                one.name,
                one.kind,
                labels.join(", "),
                one.help
            );
        }
    }
    page
}
