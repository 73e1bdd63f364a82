//! `xtask bench storage`: imports, snapshots, copies, backups and hotplug on a single host.
//!
//! - `imports` compares an import with curl and qemu-img, which take the same image from the same `server`;
//! - `copies` measures the copy of a large claim;
//! - `running` measures what happens to a guest that runs.

mod copies;
mod imports;
mod running;
mod server;

use anyhow::Result;
use clap::Args;

use super::{
    Output,
    guest::staged,
    hold,
    host::{self, Host, HostOptions},
    load::Load,
    objects::Objects,
    promises::{self, Part},
    report::{self, Report},
    runtime, show,
};
use crate::printer::Printer;

/// The promise that needs a file system with reflinks.
const THIN_COPY: &str = "storage.copy";

#[derive(Debug, Args)]
pub(crate) struct StorageOptions {
    /// Fail when a promise is broken.
    #[arg(long)]
    enforce: bool,
    #[arg(long, short, value_enum)]
    output: Option<Output>,
    /// Turns of the import and of hotplug; the median counts.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Size in MiB of the imported disk, all of it data.
    #[arg(long, default_value_t = 2048, value_parser = clap::value_parser!(u64).range(16..))]
    image: u64,
    /// Size in MiB of the copied claim.
    #[arg(long, default_value_t = 10_240, value_parser = clap::value_parser!(u64).range(16..))]
    copied: u64,
    /// How much of the copied claim is data, in MiB.
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u64).range(1..))]
    copied_data: u64,
    #[command(flatten)]
    host: HostOptions,
}

/// Measures, shows, and fails if asked to hold the promises.
pub(crate) fn storage(printer: &Printer, options: &StorageOptions) -> Result<()> {
    let mut promises = promises::read(Part::Storage)?;
    let load = Load::build()?;
    let images = staged(&load, None)?;
    let (machine, figures) = runtime()?.block_on(host::on_host(
        printer,
        &options.host,
        &images,
        async |host| Box::pin(measure(printer, options, host)).await,
    ))?;
    let report = Report { machine, figures };
    if report
        .machine
        .iter()
        .any(|(name, value)| *name == REFLINKS && value == NONE)
    {
        promises.retain(|promise| promise.figure != THIN_COPY);
    }
    show(printer, &report, &promises, options.output)?;
    hold(&report, &promises, options.enforce)
}

const REFLINKS: &str = "reflinks";
const NONE: &str = "none: a copy copies all data";

async fn measure(
    printer: &Printer,
    options: &StorageOptions,
    host: &Host,
) -> Result<(Vec<(&'static str, String)>, Vec<super::figures::Figure>)> {
    let objects = Objects(host.client().await?);
    let mut machine = report::machine()?;
    machine.push(("guests", host.guests.clone()));
    let reflinks = if copies::has_reflinks(&host.host_disks)? {
        "yes"
    } else {
        NONE
    };
    machine.push((REFLINKS, reflinks.to_owned()));
    let mut figures = imports::measure(printer, options, (host, &objects)).await?;
    figures.extend(copies::measure(printer, options, (host, &objects)).await?);
    figures.extend(running::measure(printer, options, (host, &objects)).await?);
    Ok((machine, figures))
}
