//! `xtask bench`: measures what SPECIFICATION.md promises.
//!
//! `vm` does so on a single host brought up for it, `cluster` on the test cluster, `api` beside a
//! kube-apiserver, `overload` our API server while a user asks too much, `guest`, `migration` and `storage` beside
//! QEMU by hand, `admission`, `controller` and `streams` in processes of their own:
//!
//! - `host` builds the programs, brings the host up and always takes it down;
//! - `sightings` notes every change of pods and VMIs with the time at which this client saw it;
//! - `turns` starts VMs and empty pods in turns and compares them;
//! - `starts`, `writes`, `memory`, `latency`, `greeting`, `sizes` measure one thing each;
//! - `admission`, `controller` and `streams` run those benches and read their lines;
//! - `guest` compares disks and networks of guests, and `migration` moves, with QEMU by hand; `storage` measures
//!   imports, snapshots, copies, backups and hotplug;
//! - `objects` are what these three create and wait for, `shell` is a guest's console, `load` the program in the
//!   guest, `qemu` a guest's process, `by_hand` the same without us, `silence` a guest's pauses seen from outside;
//! - `api` compares our API server with a kube-apiserver;
//! - `promises` are read from `deploy/promises.tsv`, `report` shows figures beside them.
//!
//! **Invariants**: times are this process's monotonic ones; a VM is compared with an empty pod of
//! the same image on the same host in the same run, in turns; nothing waits for a fixed time but the
//! window in which writes are counted.

mod admission;
mod api;
mod by_hand;
mod cluster;
mod controller;
mod figures;
mod greeting;
mod guest;
mod host;
mod latency;
mod load;
mod memory;
mod migration;
mod objects;
mod promises;
mod qemu;
mod report;
mod requests;
mod session;
mod shell;
mod sightings;
mod silence;
mod sizes;
mod starts;
mod storage;
mod streams;
mod turns;
mod writes;

use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum};
use tokio::runtime::Runtime;

use crate::printer::Printer;

pub(crate) use admission::{AdmissionOptions, admission};
pub(crate) use api::{ApiOptions, OverloadOptions, api, overload};
pub(crate) use cluster::{ClusterOptions, cluster};
pub(crate) use controller::{ControllerOptions, controller};
pub(crate) use guest::{GuestOptions, guest};
use host::HostOptions;
pub(crate) use migration::{MigrationOptions, migration};
use promises::{Part, Promise};
use report::Report;
pub(crate) use storage::{StorageOptions, storage};
pub(crate) use streams::{StreamsOptions, streams};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Fail when a promise is broken.
    #[arg(long)]
    enforce: bool,
    #[arg(long, short, value_enum)]
    output: Option<Output>,
    /// Starts of one VM, and of one empty pod.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    singles: u32,
    /// Starts of ten VMs at once, and of ten empty pods.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    tens: u32,
    #[command(flatten)]
    host: HostOptions,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Output {
    Json,
}

/// Measures, shows, and fails if asked to hold the promises.
pub(crate) fn vm(printer: &Printer, options: &Options) -> Result<()> {
    let promises = promises::read(Part::Vm)?;
    let images = host::images()?;
    let report = runtime()?.block_on(host::on_host(
        printer,
        &options.host,
        &images,
        async |host| Box::pin(session::measure(printer, options, host)).await,
    ))?;
    show(printer, &report, &promises, options.output)?;
    hold(&report, &promises, options.enforce)
}

fn runtime() -> Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("start the runtime")
}

fn show(
    printer: &Printer,
    report: &Report,
    promises: &[Promise],
    output: Option<Output>,
) -> Result<()> {
    match output {
        None => printer.result(report.table(promises))?,
        Some(Output::Json) => printer.result(report.json(promises)?)?,
    }
    Ok(())
}

fn hold(report: &Report, promises: &[Promise], enforce: bool) -> Result<()> {
    let broken = promises::broken(promises, &report.figures);
    if enforce && !broken.is_empty() {
        bail!("broken promises: {}", broken.join(", "));
    }
    Ok(())
}
