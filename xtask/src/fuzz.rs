//! `xtask fuzz TARGET`: builds a fuzz target and runs it for some time.
//!
//! The targets are the programs of `fuzz/`, a workspace of its own. They are built with the stable
//! compiler: libFuzzer's instrumentation is an option of the code generator. Sanitizers are not
//! available, but the fuzzed crates have no unsafe code. The examples are the seeds, the field names the
//! dictionary. Interesting inputs stay in the cache directory for the next run.

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
    /// A program in `fuzz/src/bin`; without it, list them.
    target: Option<String>,
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    minutes: u64,
    /// Run this one input, such as a finding.
    #[arg(long, value_name = "FILE")]
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
            "the target failed; repeat it with --input and a file of {}",
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

/// Builds one target in its own target directory, as its flags would invalidate other artefacts.
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

/// Writes seeds in the form that the target reads.
fn seed(target: &str, corpus: &Path) -> Result<()> {
    let plant = |seed: &[u8]| {
        let name = Digest::of(seed).to_string().replace(':', "-");
        fs::write(corpus.join(name), seed).context("write a seed")
    };
    match target {
        "dhcp" => return dhcp_requests().iter().try_for_each(|seed| plant(seed)),
        "protobuf" => return plant(NAMESPACE_IN_PROTOBUF),
        "layer" => return plant(&layers()?),
        "spdy" => return plant(PORT_FORWARD_IN_SPDY),
        _ => {}
    }
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
                plant(&seed)?;
            }
        }
    }
    Ok(())
}

/// The body of `kubectl create namespace n`.
const NAMESPACE_IN_PROTOBUF: &[u8] =
    b"k8s\0\n\x0f\n\x02v1\x12\tNamespace\x12\x0d\n\x07\n\x01nB\0\x12\0\x12\0\x1a\0";

/// In pieces of seven bytes: a stream with one header (`a` is `b`), its data, its end.
const PORT_FORWARD_IN_SPDY: &[u8] = b"\x07\
    \x80\x03\0\x01\0\0\0\x28\0\0\0\x01\0\0\0\0\0\0\
    \x78\xf9\xe3\xc6\xa7\xc2\0\x0e\0\xf1\xff\0\0\0\x01\0\0\0\x01a\0\0\0\x01b\
    \0\0\0\xff\xff\
    \0\0\0\x01\0\0\0\x03abc\0\0\0\x01\x01\0\0\0";

/// Discover, request and inform of the client that the target serves.
fn dhcp_requests() -> Vec<Vec<u8>> {
    let request = |kind: u8| {
        let mut packet = vec![0; 240];
        packet[..3].copy_from_slice(&[1, 1, 6]);
        packet[28..34].copy_from_slice(&[2, 0, 0, 1, 2, 3]);
        packet[236..].copy_from_slice(&[99, 130, 83, 99]);
        packet.extend([53, 1, kind, 50, 4, 10, 0, 2, 2, 57, 2, 5, 220, 255]);
        packet
    };
    [1, 3, 8].map(request).to_vec()
}

/// A layer with a file, a link and a directory, and one that hides the file.
fn layers() -> Result<Vec<u8>> {
    let lower = archive(&[("etc/", ""), ("etc/name", "guest"), ("etc/link", "->name")])?;
    let upper = archive(&[("etc/.wh.name", ""), ("etc/other", "text")])?;
    let length = u16::try_from(lower.len()).context("a small layer")?;
    Ok([&length.to_be_bytes()[..], &lower, &upper].concat())
}

/// A tar archive: names that end in a slash are directories, contents after an arrow targets.
fn archive(entries: &[(&str, &str)]) -> Result<Vec<u8>> {
    let mut out = tar::Builder::new(Vec::new());
    for (name, content) in entries {
        let mut header = tar::Header::new_ustar();
        header.set_mode(0o755);
        header.set_mtime(0);
        header.set_uid(0);
        header.set_gid(0);
        if let Some(target) = content.strip_prefix("->") {
            header.set_entry_type(tar::EntryType::Symlink);
            header.set_size(0);
            out.append_link(&mut header, name, target)?;
        } else if name.ends_with('/') {
            header.set_entry_type(tar::EntryType::Directory);
            header.set_size(0);
            out.append_data(&mut header, name, std::io::empty())?;
        } else {
            header.set_size(u64::try_from(content.len())?);
            out.append_data(&mut header, name, content.as_bytes())?;
        }
    }
    Ok(out.into_inner()?)
}

fn prefixed(first: u8, rest: &[u8]) -> Vec<u8> {
    [&[first], rest].concat()
}

/// Field names and enum values as a libFuzzer dictionary.
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
    fn layer_seed_is_two_archives() {
        let seed = layers().unwrap();
        let (length, rest) = seed.split_first_chunk::<2>().unwrap();
        let (lower, upper) = rest.split_at(usize::from(u16::from_be_bytes(*length)));
        let count = |bytes: &[u8]| tar::Archive::new(bytes).entries().unwrap().count();
        assert_eq!((count(lower), count(upper)), (3, 2));
    }

    #[test]
    fn targets_are_found_and_dictionary_is_valid() {
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
