//! `xtask bench`: measures what SPECIFICATION.md promises.
//!
//! `vm` does so on a single host brought up for it, `cluster` on the test cluster, `api` beside a
//! kube-apiserver, `overload` our API server while a user asks too much, `admission`, `controller` and `streams` in processes of their own:
//!
//! - `host` builds the programs, brings the host up and always takes it down;
//! - `sightings` notes every change of pods and VMIs with the time at which this client saw it;
//! - `turns` starts VMs and empty pods in turns and compares them;
//! - `starts`, `writes`, `memory`, `latency`, `greeting`, `sizes` measure one thing each;
//! - `admission`, `controller` and `streams` run those benches and read their lines;
//! - `api` compares our API server with a kube-apiserver;
//! - `promises` are read from `deploy/promises.tsv`, `report` shows figures beside them.
//!
//! **Invariants**: times are this process's monotonic ones; a VM is compared with an empty pod of
//! the same image on the same host in the same run, in turns; nothing waits for a fixed time but the
//! window in which writes are counted.

mod admission;
mod api;
mod cluster;
mod controller;
mod figures;
mod greeting;
mod host;
mod latency;
mod memory;
mod promises;
mod report;
mod requests;
mod session;
mod sightings;
mod sizes;
mod starts;
mod streams;
mod turns;
mod writes;

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum};
use tokio::signal::unix::{SignalKind, signal};

use crate::printer::Printer;

pub(crate) use admission::{AdmissionOptions, admission};
pub(crate) use api::{ApiOptions, OverloadOptions, api, overload};
pub(crate) use cluster::{ClusterOptions, cluster};
pub(crate) use controller::{ControllerOptions, controller};
use host::Host;
use promises::{Part, Promise};
use report::Report;
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
    /// Addresses of pods; must not overlap with a network of this machine.
    #[arg(long, default_value = "10.254.253.0/24", value_name = "CIDR")]
    pod_cidr: String,
    /// Take the programs in this directory instead of building them.
    #[arg(long, value_name = "DIR")]
    programs: Option<PathBuf>,
    /// What the host logs, in the syntax of tracing's filters.
    #[arg(long, value_name = "FILTER")]
    log: Option<String>,
    /// Where to leave the host's log.
    #[arg(long, value_name = "FILE")]
    keep_log: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Output {
    Json,
}

/// Measures, shows, and fails if asked to hold the promises.
pub(crate) fn vm(printer: &Printer, options: &Options) -> Result<()> {
    let promises = promises::read(Part::Vm)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("start the runtime")?;
    let report = runtime.block_on(Box::pin(measured(printer, options)))?;
    show(printer, &report, &promises, options.output)?;
    hold(&report, &promises, options.enforce)
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

async fn measured(printer: &Printer, options: &Options) -> Result<Report> {
    let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    let host = Host::bring_up(printer, options)?;
    let outcome = tokio::select! {
        outcome = Box::pin(session::measure(printer, options, &host)) => outcome,
        _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
        _ = terminate.recv() => Err(anyhow::anyhow!("terminated")),
    };
    if let Some(path) = &options.keep_log {
        host.copy_log(path)?;
    }
    let outcome = outcome.with_context(|| host.end_of_log());
    host.take_down()?;
    outcome
}
