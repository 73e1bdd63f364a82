//! `xtask bench admission`: the bench of the admission crate, its lines as figures.

use std::process::Command;

use anyhow::{Context as _, Result, bail};
use clap::Args;

use super::{
    Output,
    figures::{self, Figure, maximum},
    hold,
    promises::{self, Part},
    report::{self, Report},
    show,
};
use crate::printer::Printer;
use crate::workspace::{cargo, root};

const UNITS: [&str; 3] = ["µs", "ms", "MiB"];

#[derive(Debug, Args)]
pub(crate) struct AdmissionOptions {
    /// Fail when a promise is broken.
    #[arg(long)]
    enforce: bool,
    #[arg(long, short, value_enum)]
    output: Option<Output>,
}

/// Measures, shows, and fails if asked to hold the promises.
pub(crate) fn admission(printer: &Printer, options: &AdmissionOptions) -> Result<()> {
    let promises = promises::read(Part::Admission)?;
    let done = Command::new(cargo())
        .args([
            "bench",
            "--quiet",
            "--locked",
            "-p",
            "admission",
            "--bench",
            "admission",
        ])
        .current_dir(root())
        .stderr(std::process::Stdio::inherit())
        .output()
        .context("run cargo bench")?;
    if !done.status.success() {
        bail!("cargo bench ended with {}", done.status);
    }
    let text = String::from_utf8(done.stdout).context("figures are text")?;
    let mut figures = figures::parse(&text, &UNITS)?;
    for what in ["time", "memory"] {
        figures.extend(worst(&figures, what));
    }
    let report = Report {
        machine: report::machine()?,
        figures,
    };
    show(printer, &report, &promises, options.output)?;
    hold(&report, &promises, options.enforce)
}

/// The most that any hostile manifest costs.
fn worst(figures: &[Figure], what: &str) -> Option<Figure> {
    let hostile = |figure: &&Figure| {
        figure.name.starts_with("admission.hostile.") && figure.name.ends_with(what)
    };
    let unit = figures.iter().find(hostile)?.unit;
    let values: Vec<f64> = figures
        .iter()
        .filter(hostile)
        .map(|one| one.value)
        .collect();
    let name = format!("admission.hostile.{what}");
    maximum(&values).map(|value| Figure::new(name, value, unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_of_all_manifests_is_a_figure() {
        let text = "admission.typical.decode\t9.5\tµs\n\
                    admission.hostile.a.time\t1.5\tms\nadmission.hostile.b.time\t3\tms\n";
        let figures = figures::parse(text, &UNITS).unwrap();
        let worst = worst(&figures, "time").unwrap();
        assert_eq!(
            (worst.name.as_str(), worst.unit),
            ("admission.hostile.time", "ms")
        );
        assert!((worst.value - 3.0).abs() < 1e-9);
    }

    #[test]
    fn lines_that_are_no_figures_are_refused() {
        for text in ["a\t1", "a\tx\tms", "a\t1\tparsec"] {
            assert!(figures::parse(text, &UNITS).is_err(), "{text}");
        }
    }
}
