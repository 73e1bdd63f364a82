//! `xtask fuzz`: builds fuzz targets and runs them for some time.
//!
//! The targets are functions of `crates/fuzz-targets`, and `fuzz/`, a workspace of its own, has a program
//! of each. They are built with the stable compiler: libFuzzer's instrumentation is an option of the code generator. Sanitizers are not
//! available, but the fuzzed crates have no unsafe code. The examples are the seeds, the field names the
//! dictionary (`seeds`). Interesting inputs stay in the cache directory for the next run.

mod seeds;

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;

use crate::cache;
use crate::printer::Printer;
use crate::workspace::{cargo, root, run as run_command};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// A program in `fuzz/src/bin`; without it, all of them in turn.
    target: Option<String>,
    /// For each target; 5 for a named one.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    minutes: Option<u64>,
    /// A few seconds for each target, to see that it still works.
    #[arg(long, conflicts_with = "minutes")]
    quick: bool,
    /// Run this one input, such as a finding.
    #[arg(long, value_name = "FILE", requires = "target", conflicts_with_all = ["minutes", "quick"])]
    input: Option<PathBuf>,
}

/// Compiler options for libFuzzer: edge counters, their table, comparisons.
const INSTRUMENTATION: [&str; 8] = [
    "--cfg=fuzzing",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Ccodegen-units=8",
    "-Cforce-frame-pointers=yes",
];

/// Named explicitly, so that the flags do not apply to build scripts.
const PLATFORM: &str = "x86_64-unknown-linux-gnu";
const QUICK_SECONDS: u64 = 4;
const DEFAULT_MINUTES: u64 = 5;
/// Lines of a failed target's output that are shown.
const LAST_LINES: usize = 40;

/// The program of a target, and its files in the cache directory.
struct Target {
    name: String,
    program: PathBuf,
    corpus: PathBuf,
    findings: PathBuf,
    dictionary: PathBuf,
}

pub(crate) fn run(printer: &Printer, options: &Options) -> Result<()> {
    let all = targets()?;
    let seconds = if options.quick {
        Some(QUICK_SECONDS)
    } else {
        options.minutes.map(|minutes| minutes * 60)
    };
    match (&options.target, seconds) {
        (None, None) => {
            printer.result(all.join("\n"))?;
            Ok(())
        }
        (None, Some(seconds)) => run_all(printer, &all, seconds),
        (Some(target), seconds) => {
            ensure!(
                all.contains(target),
                "no target {target}; there are {}",
                all.join(", ")
            );
            let programs = build(Some(target))?;
            if let Some(input) = &options.input {
                return run_command(command(&programs.join(target)).arg(input));
            }
            let seconds = seconds.unwrap_or(DEFAULT_MINUTES * 60);
            run_one(printer, &Target::prepare(target, &programs)?, seconds)
        }
    }
}

/// Runs one target; its output is for the user to see.
fn run_one(printer: &Printer, target: &Target, seconds: u64) -> Result<()> {
    printer.line(format_args!("corpus: {}", target.corpus.display()));
    if run_command(&mut target.command(seconds)).is_err() {
        bail!(
            "the target failed; repeat it with --input and a file of {}",
            target.findings.display()
        );
    }
    Ok(())
}

/// Runs one target after the other, and prints a line for each.
fn run_all(printer: &Printer, names: &[String], seconds: u64) -> Result<()> {
    let programs = build(None)?;
    let mut failed = Vec::new();
    for name in names {
        let target = Target::prepare(name, &programs)?;
        let (succeeded, output) = target.run_quietly(seconds)?;
        if succeeded {
            let inputs = executed(&output).context("find the number of inputs in the output")?;
            printer.result(format_args!("{name}: ok, {inputs} inputs"))?;
        } else {
            printer.line(last_lines(&output));
            let findings = target.findings.display();
            printer.result(format_args!("{name}: FAILED, see {findings}"))?;
            failed.push(name.as_str());
        }
    }
    ensure!(
        failed.is_empty(),
        "targets failed: {}; repeat each with `cargo xtask fuzz TARGET --input FILE` and the file above",
        failed.join(", ")
    );
    Ok(())
}

impl Target {
    /// Makes the directories and writes the seeds.
    fn prepare(name: &str, programs: &Path) -> Result<Self> {
        let place = cache::directory()?.join("fuzz");
        let target = Self {
            name: name.to_owned(),
            program: programs.join(name),
            corpus: place.join("corpus").join(name),
            findings: place.join("findings").join(name),
            dictionary: place.join("words.dict"),
        };
        for directory in [&target.corpus, &target.findings] {
            fs::create_dir_all(directory)
                .with_context(|| format!("make {}", directory.display()))?;
        }
        seeds::plant(name, &target.corpus)?;
        fs::write(&target.dictionary, seeds::dictionary()?)
            .with_context(|| format!("write {}", target.dictionary.display()))?;
        Ok(target)
    }

    fn command(&self, seconds: u64) -> Command {
        let mut command = command(&self.program);
        command
            .arg(format!("-max_total_time={seconds}"))
            .arg(format!("-artifact_prefix={}/", self.findings.display()))
            .arg(format!("-dict={}", self.dictionary.display()))
            .args(["-max_len=65536", "-print_final_stats=1"])
            .arg(&self.corpus);
        command
    }

    /// Whether it succeeded, and its output.
    fn run_quietly(&self, seconds: u64) -> Result<(bool, String)> {
        let path = self.corpus.with_file_name(format!("{}.log", self.name));
        let log = File::create(&path).with_context(|| format!("make {}", path.display()))?;
        let status = self
            .command(seconds)
            .stdout(log.try_clone()?)
            .stderr(log)
            .status()
            .with_context(|| format!("run {}", self.program.display()))?;
        let output = fs::read(&path).with_context(|| format!("read {}", path.display()))?;
        Ok((
            status.success(),
            String::from_utf8_lossy(&output).into_owned(),
        ))
    }
}

fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.args(["-rss_limit_mb=2048", "-timeout=10"]);
    command
}

/// How many inputs a run has tried, by its statistics.
fn executed(output: &str) -> Option<u64> {
    let mut lines = output.lines();
    let count = lines.find_map(|line| line.strip_prefix("stat::number_of_executed_units:"))?;
    count.trim().parse().ok()
}

fn last_lines(output: &str) -> String {
    let lines: Vec<&str> = output.lines().collect();
    let begin = lines.len().saturating_sub(LAST_LINES);
    lines.get(begin..).unwrap_or_default().join("\n")
}

pub(crate) fn targets() -> Result<Vec<String>> {
    let directory = root().join("fuzz/src/bin");
    let mut names = Vec::new();
    for entry in
        fs::read_dir(&directory).with_context(|| format!("list {}", directory.display()))?
    {
        let path = entry?.path();
        names.extend(
            path.file_stem()
                .and_then(|name| name.to_str())
                .map(str::to_owned),
        );
    }
    names.sort();
    Ok(names)
}

/// Builds one target or all, in a target directory of their own, as their flags would invalidate other
/// artefacts. Returns the directory of the programs.
fn build(target: Option<&str>) -> Result<PathBuf> {
    let directory = cache::directory()?.join("fuzz-target");
    let selection = target.map_or(vec!["--bins"], |target| vec!["--bin", target]);
    run_command(
        Command::new(cargo())
            .args(["build", "--release", "--locked", "--target", PLATFORM])
            .args(selection)
            .current_dir(root().join("fuzz"))
            .env("CARGO_TARGET_DIR", &directory)
            .env("RUSTFLAGS", INSTRUMENTATION.join(" ")),
    )?;
    Ok(directory.join(PLATFORM).join("release"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_has_a_program() {
        let names: Vec<&str> = fuzz_targets::ALL.iter().map(|(name, _)| *name).collect();
        assert_eq!(targets().unwrap(), names);
    }

    /// Without instrumentation, so that CI builds nothing twice: seeds, what earlier runs found, and each of
    /// these cut short and with a changed byte.
    #[test]
    fn targets_hold_for_seeds_and_former_findings() {
        for (name, target) in fuzz_targets::ALL {
            let mut inputs = seeds::seeds_of(name).unwrap();
            inputs.extend(former_findings(name));
            assert!(!inputs.is_empty(), "{name} has no seeds");
            for mut input in inputs {
                target(&input);
                let middle = input.len() / 2;
                target(&input[..middle]);
                if let Some(byte) = input.get_mut(middle) {
                    *byte ^= 0x55;
                }
                target(&input);
            }
            target(b"");
        }
    }

    fn former_findings(name: &str) -> Vec<Vec<u8>> {
        let directory = root().join("crates/fuzz-targets/inputs").join(name);
        let files = fs::read_dir(directory).into_iter().flatten();
        files
            .map(|file| fs::read(file.unwrap().path()).unwrap())
            .collect()
    }

    #[test]
    fn number_of_inputs_is_read_from_the_statistics() {
        let output =
            "Done 12 runs in 1 second(s)\nstat::number_of_executed_units: 12\nstat::x: 3\n";
        assert_eq!(executed(output), Some(12));
        assert_eq!(executed("==1== ERROR\n"), None);
    }

    #[test]
    fn only_the_end_of_long_output_is_shown() {
        let output = (0..50).map(|number| number.to_string()).collect::<Vec<_>>();
        let output = output.join("\n");
        assert!(last_lines(&output).starts_with("10\n"));
        assert_eq!(last_lines("one"), "one");
    }
}
