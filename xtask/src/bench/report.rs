//! Figures beside their promises: for people, for programs.

use std::fs;

use anyhow::{Context as _, Result};
use serde_json::json;

use super::{figures::Figure, promises::Promise};

#[derive(Debug)]
pub(super) struct Report {
    /// Names and values that describe the measured system.
    pub(super) machine: Vec<(&'static str, String)>,
    pub(super) figures: Vec<Figure>,
}

/// The machine that measures: its kernel and its processors.
pub(super) fn machine() -> Result<Vec<(&'static str, String)>> {
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").context("read the kernel")?;
    let processors = fs::read_to_string("/proc/cpuinfo").context("read the processors")?;
    let model = processors
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or("unknown", |(_, model)| model);
    let count = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    Ok(vec![
        ("kernel", kernel.trim().to_owned()),
        ("processors", format!("{count} × {model}")),
    ])
}

impl Report {
    pub(super) fn table(&self, promises: &[Promise]) -> String {
        let mut lines: Vec<String> = self
            .machine
            .iter()
            .map(|(name, value)| format!("{name}: {value}"))
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
        let machine = self.machine.iter().map(|(name, value)| (*name, value));
        let machine: std::collections::BTreeMap<_, _> = machine.collect();
        let report = json!({"machine": machine, "figures": figures.collect::<Vec<_>>()});
        Ok(serde_json::to_string_pretty(&report)?)
    }
}
