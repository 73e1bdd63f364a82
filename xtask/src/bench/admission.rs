//! `xtask bench admission`: the bench of the admission crate, its lines as figures.

use std::process::Command;

use anyhow::{Context as _, Result, bail};
use clap::Args;

use super::{
    Output,
    figures::{Figure, maximum},
    hold,
    promises::{self, Part},
    report::{self, Report},
    show,
};
use crate::printer::Printer;
use crate::workspace::{cargo, root};

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
    let mut figures = parse(&text)?;
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

/// Lines of name, tab, value, tab, unit.
fn parse(text: &str) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        let [name, value, unit] = line.split('\t').collect::<Vec<_>>()[..] else {
            bail!("{line:?} is not: name, tab, value, tab, unit");
        };
        let unit = match unit {
            "µs" => "µs",
            "ms" => "ms",
            "MiB" => "MiB",
            other => bail!("{other:?} is no unit of this bench"),
        };
        let value = value
            .parse()
            .with_context(|| format!("value of {line:?}"))?;
        figures.push(Figure::new(name, value, unit));
    }
    Ok(figures)
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
        let figures = parse(text).unwrap();
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
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
