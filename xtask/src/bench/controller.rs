//! `xtask bench controller`: what many VMIs cost the controllers; the crate `simulation` measures.

use std::process::Command;

use anyhow::{Context as _, Result, bail};
use clap::Args;

use super::{
    Output, figures, hold,
    promises::{self, Part},
    report::{self, Report},
    show,
};
use crate::printer::Printer;
use crate::workspace::{cargo, root};

const UNITS: [&str; 5] = ["", "KB", "MB", "s", "ms"];

#[derive(Debug, Args)]
pub(crate) struct ControllerOptions {
    /// Fail when a promise is broken.
    #[arg(long)]
    enforce: bool,
    #[arg(long, short, value_enum)]
    output: Option<Output>,
    /// VMIs.
    #[arg(long, default_value_t = 10_000)]
    count: usize,
}

/// Measures, shows, and fails if asked to hold the promises.
pub(crate) fn controller(printer: &Printer, options: &ControllerOptions) -> Result<()> {
    let promises = promises::read(Part::Controller)?;
    let count = options.count.to_string();
    let done = Command::new(cargo())
        .args([
            "run",
            "--quiet",
            "--locked",
            "--release",
            "--bin",
            "simulate",
        ])
        .args(["--", "bench", "--count", &count])
        .current_dir(root())
        .stderr(std::process::Stdio::inherit())
        .output()
        .context("run the bench of the simulation")?;
    if !done.status.success() {
        bail!("the bench ended with {}", done.status);
    }
    let text = String::from_utf8(done.stdout).context("figures are text")?;
    let report = Report {
        machine: report::machine()?,
        figures: figures::parse(&text, &UNITS)?,
    };
    show(printer, &report, &promises, options.output)?;
    hold(&report, &promises, options.enforce)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_figures_and_anything_else_is_refused() {
        let text = "controller.vmis\t10000.000\t\ncontroller.memory.per-vmi\t6.2\tKB\n";
        let figures = figures::parse(text, &UNITS).unwrap();
        assert_eq!((figures.len(), figures[1].unit), (2, "KB"));
        assert!(figures::parse("a\t1\tyears", &UNITS).is_err());
        assert!(figures::parse("nothing", &UNITS).is_err());
    }
}
