//! `xtask bench streams`: the bench of virt-api, its lines as figures, and the size and start of virtctl.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

use anyhow::{Context as _, Result, bail};
use clap::Args;

use super::{
    Output,
    figures::{self, Figure, as_f64, median, milliseconds},
    hold,
    promises::{self, Part},
    report::{self, Report},
    show,
};
use crate::printer::Printer;
use crate::workspace::{cargo, metadata, root, run, run_quietly};

const UNITS: [&str; 4] = ["", "µs", "MB/s", "KB"];
const STARTS: usize = 50;
/// The promise that needs the original.
const START_RATIO: &str = "streams.virtctl.start.ratio";

#[derive(Debug, Args)]
pub(crate) struct StreamsOptions {
    /// Fail when a promise is broken.
    #[arg(long)]
    enforce: bool,
    /// `KubeVirt`'s own virtctl, whose start is measured as well.
    #[arg(long, value_name = "FILE")]
    original: Option<PathBuf>,
    #[arg(long, short, value_enum)]
    output: Option<Output>,
    /// Measure unoptimised builds, which only shows that the bench works.
    #[arg(long, conflicts_with = "enforce")]
    quick: bool,
}

/// Measures, shows, and fails if asked to hold the promises.
pub(crate) fn streams(printer: &Printer, options: &StreamsOptions) -> Result<()> {
    let mut promises = promises::read(Part::Streams)?;
    if options.original.is_none() {
        promises.retain(|promise| promise.figure != START_RATIO);
    }
    let profile = if options.quick { "dev" } else { "release" };
    let mut figures = of_virt_api(profile)?;
    figures.extend(of_virtctl(printer, profile, options.original.as_deref())?);
    let mut machine = report::machine()?;
    machine.push(("profile", profile.to_owned()));
    let report = Report { machine, figures };
    show(printer, &report, &promises, options.output)?;
    hold(&report, &promises, options.enforce)
}

fn of_virt_api(profile: &str) -> Result<Vec<Figure>> {
    let done = Command::new(cargo())
        .args(["bench", "--quiet", "--locked", "--profile", profile])
        .args(["-p", "virt-api", "--bench", "streams"])
        .current_dir(root())
        .stderr(Stdio::inherit())
        .output()
        .context("run cargo bench")?;
    if !done.status.success() {
        bail!("cargo bench ended with {}", done.status);
    }
    let text = String::from_utf8(done.stdout).context("figures are text")?;
    figures::parse(&text, &UNITS)
}

/// The size of the program, and how long it takes from its start to the end of the shortest command.
fn of_virtctl(printer: &Printer, profile: &str, original: Option<&Path>) -> Result<Vec<Figure>> {
    printer.line(format_args!("building virtctl (profile {profile})"));
    let mut build = Command::new(cargo());
    build.args(["build", "--quiet", "--locked", "--profile", profile]);
    run(build.args(["--package", "virtctl-bin"]).current_dir(root()))?;
    let program = program(profile)?;
    let size = fs::metadata(&program).with_context(|| format!("look at {}", program.display()))?;
    let mut figures = vec![Figure::new(
        "streams.virtctl.size",
        as_f64(size.len()) / 1e6,
        "MB",
    )];
    let Some(original) = original else {
        let time = median_start(&[program.as_path()])?;
        figures.extend(time.map(|time| Figure::new("streams.virtctl.start", time, "ms")));
        return Ok(figures);
    };
    let [own, other] = median_start(&[program.as_path(), original])?;
    figures.extend([
        Figure::new("streams.virtctl.start", own, "ms"),
        Figure::new("streams.virtctl.start.original", other, "ms"),
        Figure::new(START_RATIO, own / other, ""),
    ]);
    Ok(figures)
}

/// Milliseconds of a start of each program. They take turns, so that what else the computer does hits all.
fn median_start<const COUNT: usize>(programs: &[&Path; COUNT]) -> Result<[f64; COUNT]> {
    let mut times = [const { Vec::new() }; COUNT];
    for _ in 0..STARTS {
        for (program, times) in programs.iter().zip(&mut times) {
            times.push(start(program)?);
        }
    }
    // Each was started.
    Ok(times.map(|times| median(&times).unwrap_or_default()))
}

fn program(profile: &str) -> Result<PathBuf> {
    let directory = if profile == "dev" { "debug" } else { profile };
    Ok(metadata()?.target_directory.join(directory).join("virtctl"))
}

fn start(program: &Path) -> Result<f64> {
    let began = Instant::now();
    run_quietly(Command::new(program).args(["version", "--client"]))?;
    Ok(milliseconds(began.elapsed()))
}
