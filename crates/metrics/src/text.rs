//! The text exposition format, version 0.0.4.

use std::fmt::{Display, Write as _};

use crate::table::Table;

/// The media type of the format.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// All metrics of these tables with their values.
pub fn render(tables: &[&Table]) -> String {
    let mut text = String::new();
    for metric in tables.iter().flat_map(|table| table.metrics) {
        let one = metric.description();
        let help = one.help.replace('\\', "\\\\").replace('\n', "\\n");
        // Writing to a string cannot fail.
        let _ok = writeln!(
            text,
            "# HELP {} {help}\n# TYPE {} {}",
            one.name, one.name, one.kind
        );
        metric.write_samples(&mut text);
    }
    text
}

/// Label names with their values, and the bound of a bucket.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LabelSet<'a> {
    names: &'a [&'static str],
    values: &'a [Box<str>],
    up_to: Option<&'a str>,
}

impl<'a> LabelSet<'a> {
    pub(crate) const NONE: LabelSet<'static> = LabelSet {
        names: &[],
        values: &[],
        up_to: None,
    };

    pub(crate) fn new(names: &'a [&'static str], values: &'a [Box<str>]) -> Self {
        Self {
            names,
            values,
            up_to: None,
        }
    }

    pub(crate) fn up_to(self, bound: &'a str) -> Self {
        Self {
            up_to: Some(bound),
            ..self
        }
    }
}

/// Appends one line.
pub(crate) fn sample(text: &mut String, name: &str, labels: LabelSet<'_>, value: impl Display) {
    text.push_str(name);
    let values = labels.values.iter().map(AsRef::as_ref);
    let pairs = labels.names.iter().copied().zip(values);
    let mut separator = '{';
    for (name, value) in pairs.chain(labels.up_to.map(|bound| ("le", bound))) {
        text.push(separator);
        separator = ',';
        text.push_str(name);
        text.push_str("=\"");
        for c in value.chars() {
            match c {
                '\\' => text.push_str("\\\\"),
                '"' => text.push_str("\\\""),
                '\n' => text.push_str("\\n"),
                c => text.push(c),
            }
        }
        text.push('"');
    }
    if separator == ',' {
        text.push('}');
    }
    // Writing to a string cannot fail.
    let _ok = writeln!(text, " {value}");
}
