//! `xtask bench controller`: what many VMIs cost the controllers; the crate `simulation` measures.

use std::process::Command;

use anyhow::{Context as _, Result, bail};
use clap::Args;

use super::{
    Output,
    figures::Figure,
    hold,
    promises::{self, Part},
    report::{self, Report},
    show,
};
use crate::printer::Printer;
use crate::workspace::{cargo, root};

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
        figures: parse(&text)?,
    };
    show(printer, &report, &promises, options.output)?;
    hold(&report, &promises, options.enforce)
}

/// Lines of name, tab, value, tab, unit.
fn parse(text: &str) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        let [name, value, unit] = line.split('\t').collect::<Vec<_>>()[..] else {
            bail!("{line:?} is not: name, tab, value, tab, unit");
        };
        let unit = match unit {
            "" => "",
            "KB" => "KB",
            "MB" => "MB",
            "s" => "s",
            "ms" => "ms",
            other => bail!("{other:?} is no unit of this bench"),
        };
        let value = value
            .parse()
            .with_context(|| format!("value of {line:?}"))?;
        figures.push(Figure::new(name, value, unit));
    }
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_figures_and_anything_else_is_refused() {
        let text = "controller.vmis\t10000.000\t\ncontroller.memory.per-vmi\t6.2\tKB\n";
        let figures = parse(text).unwrap();
        assert_eq!((figures.len(), figures[1].unit), (2, "KB"));
        assert!(parse("a\t1\tyears").is_err());
        assert!(parse("nothing").is_err());
    }
}
