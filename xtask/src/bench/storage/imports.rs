//! An image of a web server onto a claim, in turns with curl and qemu-img.

use std::{
    fs,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::{
    super::{
        figures::{Figure, as_f64, maximum, median, milliseconds},
        guest::random_file,
        host::Host,
        objects::Objects,
    },
    StorageOptions, server,
};
use crate::{printer::Printer, workspace::run_quietly};

const VOLUME: (&str, &str) = ("cdi.kubevirt.io/v1beta1", "DataVolume");
/// The program that fills claims, as `/proc` shows its name.
const IMPORTER: &str = "disk-import";
const INTERVAL: Duration = Duration::from_millis(50);

pub(super) async fn measure(
    printer: &Printer,
    options: &StorageOptions,
    (host, objects): (&Host, &Objects),
) -> Result<Vec<Figure>> {
    printer.line(format_args!("making an image of {} MiB", options.image));
    let at = |name: &str| host.host_disks.join(name);
    let (raw, image) = (at("source.raw"), at("source.qcow2"));
    random_file(&raw, options.image)?;
    convert(&raw, "raw", (&image, "qcow2"))?;
    fs::remove_file(&raw).context("remove the raw image")?;
    run_quietly(&mut Command::new("sync"))?;
    let port = server::serve(&image)?;
    let url = format!("http://{}:{port}/source.qcow2", host.gateway);
    let (mut ours, mut hand, mut synced) = (Vec::new(), Vec::new(), Vec::new());
    let mut memory = Vec::new();
    for round in 1..=options.rounds {
        printer.line(format_args!("import {round} of {}", options.rounds));
        let name = format!("import-{round}");
        let source = json!({"http": {"url": url}});
        let volume = data_volume(&name, &source, options.image);
        let (peak, took) = with_peak(import(objects, &volume)).await?;
        ours.push(took);
        memory.push(as_f64(peak.context("no importer was seen")?) / 1024.0);
        objects.delete(VOLUME, &name).await?;
        run_quietly(&mut Command::new("sync"))?;

        let (fetched, out) = (at("fetched.qcow2"), at("fetched.raw"));
        let began = Instant::now();
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--fail", "--output"]);
        run_quietly(curl.arg(&fetched).arg(&url))?;
        convert(&fetched, "qcow2", (&out, "raw"))?;
        hand.push(milliseconds(began.elapsed()));
        run_quietly(Command::new("sync").arg(&out))?;
        synced.push(milliseconds(began.elapsed()));
        for file in [fetched, out] {
            fs::remove_file(file).context("remove what was fetched")?;
        }
        run_quietly(&mut Command::new("sync"))?;
    }
    fs::remove_file(image).context("remove the image")?;
    let middle = |values: &[f64]| median(values).unwrap_or_default();
    Ok(vec![
        Figure::new("storage.import.time", middle(&ours), "ms"),
        Figure::new("storage.import.hand", middle(&hand), "ms"),
        Figure::new("storage.import.hand.synced", middle(&synced), "ms"),
        Figure::new("storage.import.ratio", middle(&ours) / middle(&hand), "x"),
        Figure::new(
            "storage.import.memory",
            maximum(&memory).unwrap_or_default(),
            "MiB",
        ),
    ])
}

fn convert(from: &Path, format: &str, (to, other): (&Path, &str)) -> Result<()> {
    let mut convert = Command::new("qemu-img");
    convert.args(["convert", "-f", format, "-O", other]);
    run_quietly(convert.args([from, to])).map(drop)
}

pub(super) fn data_volume(name: &str, source: &Value, mib: u64) -> Value {
    json!({
        "apiVersion": VOLUME.0, "kind": VOLUME.1,
        "metadata": {
            "name": name,
            // No VM waits for it.
            "annotations": {"cdi.kubevirt.io/storage.bind.immediate.requested": "true"},
        },
        "spec": {
            "source": source,
            "storage": {"resources": {"requests": {"storage": format!("{mib}Mi")}}},
        },
    })
}

/// Milliseconds from the request until the claim is filled.
pub(super) async fn import(objects: &Objects, volume: &Value) -> Result<f64> {
    let name = volume["metadata"]["name"].as_str().unwrap_or_default();
    let sent = objects.create(volume).await?;
    let is_done = |volume: &Value| volume["status"]["phase"] == "Succeeded";
    let (_, seen) = objects.wait(VOLUME, name, is_done).await?;
    Ok(milliseconds(seen.duration_since(sent)))
}

/// The most memory that an importer took meanwhile, in KiB.
async fn with_peak<T>(future: impl Future<Output = Result<T>>) -> Result<(Option<u64>, T)> {
    tokio::pin!(future);
    let mut ticks = tokio::time::interval(INTERVAL);
    let mut peak = None;
    loop {
        tokio::select! {
            output = &mut future => return Ok((peak, output?)),
            _ = ticks.tick() => peak = peak.max(importers()?),
        }
    }
}

/// The highest mark of the importers that run.
fn importers() -> Result<Option<u64>> {
    let mut highest = None;
    for entry in fs::read_dir("/proc").context("list processes")? {
        let process = entry.context("list processes")?.path();
        // Processes end meanwhile.
        let comm = fs::read_to_string(process.join("comm")).unwrap_or_default();
        if comm.trim() == IMPORTER {
            let status = fs::read_to_string(process.join("status")).unwrap_or_default();
            highest = highest.max(super::super::memory::kib(&status, "VmHWM:"));
        }
    }
    Ok(highest)
}
