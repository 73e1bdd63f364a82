//! `xtask fuzz TARGET`: builds a fuzz target and runs it for some time.
//!
//! The targets are the programs of `fuzz/`, a workspace of its own. They are built with the stable
//! compiler: the instrumentation that libFuzzer wants is an option of the code generator; only the
//! sanitizers are not to be had, and the crates in question have no unsafe code. Seeds are the
//! examples, words are the names of fields. What was found to be interesting stays in the cache
//! directory and is the start of the next run.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use image_store::Digest;
use kubevirt_api::crds;
use serde_json::Value;

use crate::cache;
use crate::printer::Printer;
use crate::workspace::{cargo, root, run as run_command};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// A program of `fuzz/src/bin`; without it their names are shown.
    target: Option<String>,
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    minutes: u64,
    /// Run on this one input instead, such as a finding.
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
}

/// What libFuzzer needs of the compiler: counters at edges, a table of them, comparisons.
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

/// Named, so that flags for the targets are not taken for build scripts too.
const PLATFORM: &str = "x86_64-unknown-linux-gnu";

pub(crate) fn run(printer: &Printer, options: &Options) -> Result<()> {
    let targets = targets()?;
    let Some(target) = &options.target else {
        printer.result(targets.join("\n"))?;
        return Ok(());
    };
    ensure!(
        targets.contains(target),
        "no target {target}; there are {}",
        targets.join(", ")
    );
    let place = cache::directory()?.join("fuzz");
    let program = build(target)?;
    let mut command = Command::new(program);
    command.args(["-rss_limit_mb=2048", "-timeout=10"]);
    if let Some(input) = &options.input {
        return run_command(command.arg(input));
    }
    let corpus = place.join("corpus").join(target);
    let findings = place.join("findings").join(target);
    for directory in [&corpus, &findings] {
        fs::create_dir_all(directory).with_context(|| format!("make {}", directory.display()))?;
    }
    seed(target, &corpus)?;
    let words = place.join("words.dict");
    fs::write(&words, dictionary()?).with_context(|| format!("write {}", words.display()))?;
    printer.line(format_args!("corpus: {}", corpus.display()));
    let ended = run_command(
        command
            .arg(format!("-max_total_time={}", options.minutes * 60))
            .arg(format!("-artifact_prefix={}/", findings.display()))
            .arg(format!("-dict={}", words.display()))
            .args(["-max_len=65536", "-print_final_stats=1"])
            .arg(&corpus),
    );
    if ended.is_err() {
        bail!(
            "a finding; run it alone with --input and a file of {}",
            findings.display()
        );
    }
    Ok(())
}

fn targets() -> Result<Vec<String>> {
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

/// Builds one target in a directory of its own: its flags would spoil everyone else's artefacts.
fn build(target: &str) -> Result<PathBuf> {
    let directory = cache::directory()?.join("fuzz-target");
    run_command(
        Command::new(cargo())
            .args([
                "build",
                "--release",
                "--locked",
                "--target",
                PLATFORM,
                "--bin",
                target,
            ])
            .current_dir(root().join("fuzz"))
            .env("CARGO_TARGET_DIR", &directory)
            .env("RUSTFLAGS", INSTRUMENTATION.join(" ")),
    )?;
    Ok(directory.join(PLATFORM).join("release").join(target))
}

/// The examples as seeds, in the forms that the target reads.
fn seed(target: &str, corpus: &Path) -> Result<()> {
    let directory = root().join("examples");
    let files =
        fs::read_dir(&directory).with_context(|| format!("list {}", directory.display()))?;
    for entry in files {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        let documents: Vec<Value> = serde_saphyr::from_multiple(&text)
            .with_context(|| format!("understand {}", path.display()))?;
        for document in documents {
            let json = serde_json::to_vec(&document)?;
            let yaml = serde_saphyr::to_string(&document)?;
            let seeds = match target {
                "decode" => vec![prefixed(0, &json), prefixed(1, yaml.as_bytes())],
                _ => vec![json],
            };
            for seed in seeds {
                let name = Digest::of(&seed).to_string().replace(':', "-");
                fs::write(corpus.join(name), seed).context("write a seed")?;
            }
        }
    }
    Ok(())
}

fn prefixed(first: u8, rest: &[u8]) -> Vec<u8> {
    [&[first], rest].concat()
}

/// Names of fields and words of enumerations, as libFuzzer reads them.
fn dictionary() -> Result<String> {
    let mut words = BTreeSet::new();
    for (name, text) in crds::ALL {
        let definition: Value =
            serde_saphyr::from_str(text).with_context(|| format!("read {name}"))?;
        collect(&definition["spec"]["versions"][0]["schema"], &mut words);
        for key in ["kind", "plural"] {
            words.extend(definition["spec"]["names"][key].as_str().map(str::to_owned));
        }
    }
    let lines = words
        .iter()
        .filter(|word| word.len() > 1 && word.len() < 60);
    let lines: Vec<String> = lines.map(|word| format!("\"{word}\"\n")).collect();
    Ok(lines.concat())
}

fn collect(schema: &Value, words: &mut BTreeSet<String>) {
    match schema {
        Value::Object(members) => {
            for (key, value) in members {
                if key == "properties" {
                    words.extend(
                        value
                            .as_object()
                            .into_iter()
                            .flatten()
                            .map(|(name, _)| name.clone()),
                    );
                }
                if key == "enum" {
                    let listed = value.as_array().into_iter().flatten();
                    words.extend(listed.filter_map(Value::as_str).map(str::to_owned));
                }
                collect(value, words);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, words)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_is_found_and_the_words_are_plain() {
        assert!(targets().unwrap().contains(&"decode".to_owned()));
        let words = dictionary().unwrap();
        assert!(words.contains("\"runStrategy\"\n"));
        assert!(
            words
                .lines()
                .all(|line| !line.trim_matches('"').contains(['"', '\\']))
        );
    }
}
