//! Figures beside their promises: for people, for programs.

use anyhow::Result;
use serde_json::json;

use super::{figures::Figure, promises::Promise};

#[derive(Debug)]
pub(super) struct Report {
    /// What was measured on: words and values.
    pub(super) machine: Vec<(&'static str, String)>,
    pub(super) figures: Vec<Figure>,
}

impl Report {
    pub(super) fn table(&self, promises: &[Promise]) -> String {
        let mut lines: Vec<String> = self
            .machine
            .iter()
            .map(|(word, value)| format!("{word}: {value}"))
            .collect();
        let width = self.figures.iter().map(|one| one.name.len()).max();
        let width = width.unwrap_or_default();
        for figure in &self.figures {
            let promise = promises.iter().find(|one| one.figure == figure.name);
            let goal = promise.map_or_else(String::new, |promise| {
                let kept = if promise.is_kept_by(figure.value) {
                    "kept"
                } else {
                    "BROKEN"
                };
                format!("  {} ({kept})", promise.shown())
            });
            let Figure { name, value, unit } = figure;
            lines.push(format!("{name:width$}  {value:9.2} {unit:5}{goal}"));
        }
        lines.join("\n")
    }

    pub(super) fn json(&self, promises: &[Promise]) -> Result<String> {
        let figures = self.figures.iter().map(|figure| {
            let promise = promises.iter().find(|one| one.figure == figure.name);
            json!({
                "name": figure.name, "value": figure.value, "unit": figure.unit,
                "goal": promise.map(Promise::shown),
                "kept": promise.map(|promise| promise.is_kept_by(figure.value)),
            })
        });
        let machine = self.machine.iter().map(|(word, value)| (*word, value));
        let machine: std::collections::BTreeMap<_, _> = machine.collect();
        let report = json!({"machine": machine, "figures": figures.collect::<Vec<_>>()});
        Ok(serde_json::to_string_pretty(&report)?)
    }
}
