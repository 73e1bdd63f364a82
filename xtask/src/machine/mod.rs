//! `xtask machine`: a Debian guest with systemd, its own kernel and control groups of version 2 only, for tests
//! that need another host than the one that runs them.
//!
//! - `image` makes its disk from Debian packages, once;
//! - `scenario` lists what can be run in it, `parts` packs the programs for it;
//! - `power_cut` is the one scenario that takes more than a boot;
//! - `accelerator` finds out whether KVM works here, `boot` runs QEMU and reads the results.
//!
//! **Invariants**: nothing that a scenario does outlives its run: the disk is thrown away; QEMU ends with us; a
//! scenario that runs tests fails when no test ran.

mod accelerator;
mod boot;
mod image;
mod parts;
mod power_cut;
mod scenario;

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::Subcommand;

use self::{
    boot::{Boot, Console, Outcome},
    scenario::{Expectation, Scenario},
};
use crate::{cache, printer::Printer, suites};

#[derive(Debug, Subcommand)]
pub(crate) enum Task {
    /// List the scenarios.
    List,
    /// Run scenarios, each in a machine of its own.
    Run {
        #[arg(required = true)]
        scenarios: Vec<String>,
    },
    /// Run the scenarios of CI.
    Test,
    /// Use the machine by its console, with the programs of a scenario in /var/lib/machine; Ctrl-A X ends it.
    Shell { scenario: Option<String> },
    /// The programs of the scenario `power-cut`, which run in the machine.
    #[command(hide = true)]
    Inside {
        #[command(subcommand)]
        task: power_cut::Task,
    },
}

pub(crate) fn run(printer: &Printer, task: &Task) -> Result<()> {
    match task {
        Task::List => Ok(printer.result(scenario::table())?),
        Task::Run { scenarios } => {
            let scenarios: Result<Vec<&Scenario>> =
                scenarios.iter().map(|name| scenario::named(name)).collect();
            run_all(printer, &scenarios?)
        }
        Task::Test => {
            let in_ci = scenario::ALL.iter().filter(|scenario| scenario.in_ci);
            run_all(printer, &in_ci.collect::<Vec<_>>())
        }
        Task::Shell { scenario } => shell(printer, scenario.as_deref()),
        Task::Inside { task } => power_cut::run_inside(printer, task),
    }
}

/// Runs all scenarios, also after one has failed; the last line has the counts.
fn run_all(printer: &Printer, scenarios: &[&Scenario]) -> Result<()> {
    let mut failed = Vec::new();
    for scenario in scenarios {
        let began = Instant::now();
        let ended = run_one(printer, scenario);
        let seconds = began.elapsed().as_secs();
        match ended {
            Ok(summary) => {
                printer.result(format_args!(
                    "{}: ok in {seconds} s{summary}",
                    scenario.name
                ))?;
            }
            Err(error) => {
                printer.result(format_args!(
                    "{}: FAILED after {seconds} s: {error:#}",
                    scenario.name
                ))?;
                failed.push(scenario.name);
            }
        }
    }
    let passed = scenarios.len() - failed.len();
    printer.result(format_args!("{passed} passed, {} failed", failed.len()))?;
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

/// Returns what to add to the result.
fn run_one(printer: &Printer, scenario: &Scenario) -> Result<String> {
    let directory = directory(scenario.name)?;
    let image = image::ready(printer)?;
    let accelerator = accelerator::choose(printer, &image)?;
    if scenario.expectation == Expectation::PowerCut {
        return power_cut::run(&power_cut::Setting {
            printer,
            scenario,
            image: &image,
            accelerator,
            directory: directory.path(),
        });
    }
    let parts = directory.path().join("parts.tar");
    parts::pack(scenario, &[], &parts).context("pack the programs")?;
    let boot = Boot {
        image: &image,
        accelerator,
        parts: &parts,
        disks: Vec::new(),
        memory_mib: scenario.memory_mib,
        scenario: Some(scenario.name),
        console: Console::File(directory.path().join("console.log")),
    };
    printer.line(format_args!("{}: booting the machine", scenario.name));
    let limit = Duration::from_secs(scenario.limit_seconds);
    let outcome = boot.run(limit, |line| {
        printer.line(format_args!("{}: {line}", scenario.name));
    })?;
    judge(scenario, &outcome)
}

/// Whether the scenario did what it is for.
fn judge(scenario: &Scenario, outcome: &Outcome) -> Result<String> {
    ensure!(
        outcome.status == 0,
        "the scenario ended with {}",
        outcome.status
    );
    match scenario.expectation {
        Expectation::Success | Expectation::PowerCut => Ok(String::new()),
        Expectation::Tests => {
            let (passed, failed) = suites::results(&outcome.output.join("\n"));
            ensure!(failed == 0, "{failed} tests failed");
            ensure!(passed > 0, "no test ran");
            Ok(format!(", {passed} tests passed"))
        }
    }
}

fn shell(printer: &Printer, scenario: Option<&str>) -> Result<()> {
    let directory = directory("shell")?;
    let parts = directory.path().join("parts.tar");
    let scenario = scenario.map(scenario::named).transpose()?;
    match scenario {
        Some(scenario) => parts::pack(scenario, &[], &parts).context("pack the programs")?,
        None => parts::pack_nothing(&parts)?,
    }
    let image = image::ready(printer)?;
    let boot = Boot {
        image: &image,
        accelerator: accelerator::choose(printer, &image)?,
        parts: &parts,
        disks: Vec::new(),
        memory_mib: scenario.map_or(2048, |scenario| scenario.memory_mib),
        scenario: None,
        console: Console::Terminal,
    };
    boot.shell()
}

/// For the files of one run, on a disk: what a machine writes may be large.
fn directory(name: &str) -> Result<tempfile::TempDir> {
    let parent = cache::directory()?.join("machine");
    std::fs::create_dir_all(&parent).with_context(|| format!("make {}", parent.display()))?;
    tempfile::Builder::new()
        .prefix(&format!("{name}-"))
        .tempdir_in(&parent)
        .with_context(|| format!("make a directory in {}", parent.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(scenario: &str, status: i32, output: &[&str]) -> Result<String> {
        let outcome = Outcome {
            status,
            output: output.iter().map(|line| (*line).to_owned()).collect(),
        };
        judge(scenario::named(scenario).unwrap(), &outcome)
    }

    #[test]
    fn tests_must_have_run() {
        let passed = "test result: ok. 4 passed; 0 failed; 0 ignored";
        assert_eq!(judged("devices", 0, &[passed]).unwrap(), ", 4 tests passed");
        for (status, line, expected) in [
            (0, "", "no test ran"),
            (0, "test result: ok. 0 passed; 0 failed;", "no test ran"),
            (
                0,
                "test result: FAILED. 3 passed; 1 failed;",
                "1 tests failed",
            ),
            (101, passed, "the scenario ended with 101"),
        ] {
            let error = judged("devices", status, &[line]).unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
    }

    #[test]
    fn script_succeeds_by_its_status() {
        assert_eq!(judged("reboot", 0, &["fact"]).unwrap(), "");
        judged("reboot", 1, &["fact"]).unwrap_err();
    }
}
