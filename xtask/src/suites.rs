//! `xtask test`: builds all test binaries at once and runs several of them at a time.
//!
//! `cargo test` runs one binary after the other, although most of ours wait for processes, guests or
//! timers. A suite is one test binary. The durations of all suites go to a file.
//!
//! **Invariants**: a suite that ends without a result, or exceeds its time limit, counts as a failure;
//! the output of a failed suite is printed whole.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::mpsc,
    thread,
    time::Instant,
};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use parking_lot::Mutex;
use serde_json::Value;

use crate::{
    printer::Printer,
    workspace::{cargo, metadata, root},
};

/// Suites that boot guests and so keep all processors busy: they start first, one at a time.
const WITH_GUESTS: [&str; 2] = ["e2e/single_host", "virt-launcher-bin/guest"];
/// Guests mostly wait, so more tests with guests run at once than there are processors.
const TESTS_WITH_GUESTS: &str = "4";
/// A suite that takes longer hangs.
const TIME_LIMIT: &str = "50m";

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Run only suites whose name contains one of these texts, such as `embedded-api`.
    #[arg(value_name = "TEXT")]
    only: Vec<String>,
    /// Suites to run at a time.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    jobs: u16,
    /// Append the duration of each suite to this file.
    #[arg(long, value_name = "FILE")]
    times: Option<PathBuf>,
}

/// A test binary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Suite {
    /// `package/target`.
    pub(crate) name: String,
    pub(crate) program: PathBuf,
    /// The directory of the package.
    directory: PathBuf,
}

/// The outcome of one suite.
#[derive(Debug)]
struct Outcome {
    suite: String,
    seconds: f64,
    passed: usize,
    failed: usize,
    output: String,
}

pub(crate) fn run(printer: &Printer, options: &Options) -> Result<()> {
    let mut suites = build()?;
    if !options.only.is_empty() {
        suites.retain(|suite| options.only.iter().any(|text| suite.name.contains(text)));
    }
    if suites.is_empty() {
        bail!("no suite has a name with {}", options.only.join(" or "));
    }
    let count = suites.len();
    let mut outcomes = Vec::new();
    let began = Instant::now();
    for outcome in run_all(suites, usize::from(options.jobs)) {
        let outcome = outcome?;
        printer.line(format_args!(
            "[{:3}/{count}] {:6} {:7.1} s {:5} passed {:3} failed  {}",
            outcomes.len() + 1,
            if outcome.failed == 0 { "ok" } else { "FAILED" },
            outcome.seconds,
            outcome.passed,
            outcome.failed,
            outcome.suite,
        ));
        if outcome.failed > 0 {
            printer.line(&outcome.output);
        }
        outcomes.push(outcome);
    }
    if let Some(path) = &options.times {
        write_times(path, &outcomes)?;
    }
    let sum = |number: fn(&Outcome) -> usize| outcomes.iter().map(number).sum::<usize>();
    let (passed, failed) = (sum(|one| one.passed), sum(|one| one.failed));
    printer.line(format_args!(
        "{count} suites in {:.0} s",
        began.elapsed().as_secs_f64()
    ));
    printer.result(format_args!("{passed} passed, {failed} failed"))?;
    if failed > 0 {
        let mut names = outcomes.iter().filter(|one| one.failed > 0);
        let names: Vec<_> = names.by_ref().map(|one| one.suite.as_str()).collect();
        bail!("failed: {}", names.join(", "));
    }
    Ok(())
}

/// Builds all test binaries of the workspace.
pub(crate) fn build() -> Result<Vec<Suite>> {
    let output = Command::new(cargo())
        .args(["test", "--locked", "--workspace", "--no-run"])
        .arg("--message-format=json-render-diagnostics")
        .current_dir(root())
        .stderr(Stdio::inherit())
        .output()
        .context("run cargo test --no-run")?;
    if !output.status.success() {
        bail!("the tests do not build");
    }
    let packages: BTreeMap<String, String> = metadata()?
        .members()
        .map(|package| (package.id.clone(), package.name.clone()))
        .collect();
    let text = String::from_utf8(output.stdout).context("read cargo's messages")?;
    Ok(text
        .lines()
        .filter_map(|line| suite(&serde_json::from_str(line).ok()?, &packages))
        .collect())
}

/// The suite that a message of cargo announces, if it announces one.
fn suite(message: &Value, packages: &BTreeMap<String, String>) -> Option<Suite> {
    if message["profile"]["test"] != true {
        return None;
    }
    let package = packages.get(message["package_id"].as_str()?)?;
    let manifest = Path::new(message["manifest_path"].as_str()?);
    Some(Suite {
        name: format!("{package}/{}", message["target"]["name"].as_str()?),
        program: message["executable"].as_str()?.into(),
        directory: manifest.parent()?.to_owned(),
    })
}

/// Runs suites on `jobs` threads; those with guests on one of them, one after the other.
fn run_all(suites: Vec<Suite>, jobs: usize) -> mpsc::IntoIter<Result<Outcome>> {
    let (with_guests, mut others): (Vec<_>, Vec<_>) = suites
        .into_iter()
        .partition(|suite| WITH_GUESTS.contains(&suite.name.as_str()));
    // Taken from the end.
    others.reverse();
    let others = std::sync::Arc::new(Mutex::new(others));
    let (sender, outcomes) = mpsc::channel();
    let mut with_guests = Some(with_guests);
    for _ in 0..jobs {
        let first = with_guests.take().unwrap_or_default();
        let others = std::sync::Arc::clone(&others);
        let sender = sender.clone();
        thread::spawn(move || {
            let rest = std::iter::from_fn(|| others.lock().pop());
            for suite in first.into_iter().chain(rest) {
                if sender.send(run_one(&suite)).is_err() {
                    return;
                }
            }
        });
    }
    outcomes.into_iter()
}

fn run_one(suite: &Suite) -> Result<Outcome> {
    let began = Instant::now();
    let output = tempfile::tempfile().context("make a temporary file")?;
    let mut command = Command::new("timeout");
    command
        .args(["--kill-after=10s", TIME_LIMIT])
        .arg(&suite.program)
        .current_dir(&suite.directory)
        .env("CARGO_MANIFEST_DIR", &suite.directory)
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output.try_clone()?);
    if WITH_GUESTS.contains(&suite.name.as_str()) && std::env::var_os("RUST_TEST_THREADS").is_none()
    {
        command.env("RUST_TEST_THREADS", TESTS_WITH_GUESTS);
    }
    let status = command
        .status()
        .with_context(|| format!("run {}", suite.program.display()))?;
    let output = read_all(output)?;
    let (passed, mut failed) = results(&output);
    // The process ended without reporting a failed test: it was killed or timed out.
    if !status.success() && failed == 0 {
        failed = 1;
    }
    Ok(Outcome {
        suite: suite.name.clone(),
        seconds: began.elapsed().as_secs_f64(),
        passed,
        failed,
        output: format!("{output}{} ended with {status}", suite.name),
    })
}

fn read_all(mut file: File) -> Result<String> {
    use std::io::{Read as _, Seek as _};
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Passed and failed tests by the lines `test result: …` of a test binary.
pub(crate) fn results(output: &str) -> (usize, usize) {
    let number = |words: &[&str], unit: &str| {
        let at = words.iter().position(|word| *word == unit)?;
        words.get(at.checked_sub(1)?)?.parse::<usize>().ok()
    };
    output
        .lines()
        .filter_map(|line| line.strip_prefix("test result: "))
        .map(|line| {
            let words: Vec<&str> = line.split([' ', ';']).collect();
            let of = |unit| number(&words, unit).unwrap_or(0);
            (of("passed"), of("failed"))
        })
        .fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
}

/// Appends a line `seconds<TAB>suite` for each, the longest first.
fn write_times(path: &Path, outcomes: &[Outcome]) -> Result<()> {
    let mut rows: Vec<(f64, &str)> = outcomes
        .iter()
        .map(|one| (one.seconds, one.suite.as_str()))
        .collect();
    rows.sort_by(|left, right| right.0.total_cmp(&left.0));
    let mut text = String::new();
    for (seconds, suite) in rows {
        writeln!(text, "{seconds:8.1}\tsuite {suite}")?;
    }
    let mut file = fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .with_context(|| format!("open {}", path.display()))?;
    file.write_all(text.as_bytes())
        .with_context(|| format!("write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn results_are_summed() {
        for (output, expected) in [
            ("running 0 tests", (0, 0)),
            (
                "test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured",
                (12, 0),
            ),
            (
                "test result: FAILED. 1 passed; 2 failed; 0 ignored\ntest result: ok. 3 passed; 0 failed;",
                (4, 2),
            ),
        ] {
            assert_eq!(results(output), expected, "{output}");
        }
    }

    #[test]
    fn only_test_binaries_are_suites() {
        let packages = BTreeMap::from([("id".to_owned(), "disk".to_owned())]);
        let message = |test: bool, executable: Value| {
            json!({
                "reason": "compiler-artifact", "package_id": "id", "executable": executable,
                "manifest_path": "/clone/crates/disk/Cargo.toml",
                "target": {"name": "images"}, "profile": {"test": test},
            })
        };
        let expected = Suite {
            name: "disk/images".to_owned(),
            program: "/target/images".into(),
            directory: "/clone/crates/disk".into(),
        };
        let program = json!("/target/images");
        assert_eq!(
            suite(&message(true, program.clone()), &packages),
            Some(expected)
        );
        assert_eq!(suite(&message(false, program), &packages), None);
        assert_eq!(suite(&message(true, Value::Null), &packages), None);
    }
}
