//! `xtask bench guest`: disks and networks of guests on a single host, in turns with the same QEMU started by
//! hand.
//!
//! - `disks` has one guest with a volume of each kind beside one with plain files;
//! - `networks` has a guest of each binding beside one on a bridge, all with the same other end;
//! - `staged` makes the images of the load and of a container disk.

mod disks;
mod networks;
mod staged;

use anyhow::{Result, ensure};
use clap::Args;

use super::{
    Output,
    figures::{Figure, median},
    hold,
    host::{self, Host, HostOptions},
    load::Load,
    objects::{Objects, Running},
    promises::{self, Part},
    qemu::version_of_host,
    report::{self, Report},
    runtime, show,
};
use crate::printer::Printer;
pub(super) use staged::{random_file, staged};

/// Memory of the guests.
const MIB: u64 = 256;

#[derive(Debug, Args)]
pub(crate) struct GuestOptions {
    /// Fail when a promise is broken.
    #[arg(long)]
    enforce: bool,
    #[arg(long, short, value_enum)]
    output: Option<Output>,
    /// Turns of each measurement; the median counts.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Seconds of each measurement of a turn.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=60))]
    seconds: u32,
    /// Size of each disk in MiB, all of which is read and written.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=4096))]
    size: u64,
    /// Leave out the volume with a block device.
    #[arg(long)]
    no_block: bool,
    /// Address of the bridge for the guest by hand, in a network of 256 addresses that is not in use.
    #[arg(long, default_value = "10.254.252.1", value_name = "ADDRESS")]
    bridge: std::net::Ipv4Addr,
    #[command(flatten)]
    host: HostOptions,
}

/// Measures, shows, and fails if asked to hold the promises.
pub(crate) fn guest(printer: &Printer, options: &GuestOptions) -> Result<()> {
    let mut promises = promises::read(Part::Guest)?;
    if options.no_block {
        promises.retain(|promise| !promise.figure.starts_with("guest.disk.block-claim."));
    }
    let load = Load::build()?;
    let images = staged(&load, Some(options.size))?;
    let (guests, figures) = runtime()?.block_on(host::on_host(
        printer,
        &options.host,
        &images,
        async |host| Box::pin(measure(printer, options, &load, host)).await,
    ))?;
    let mut machine = report::machine()?;
    machine.push(("guests", guests));
    machine.push(("QEMU", version_of_host()?));
    let report = Report { machine, figures };
    show(printer, &report, &promises, options.output)?;
    hold(&report, &promises, options.enforce)
}

async fn measure(
    printer: &Printer,
    options: &GuestOptions,
    load: &Load,
    host: &Host,
) -> Result<(String, Vec<Figure>)> {
    let objects = Objects(host.client().await?);
    let mut figures = disks::measure(printer, options, (load, host, &objects)).await?;
    figures.extend(networks::measure(printer, options, (load, &objects)).await?);
    Ok((host.guests.clone(), figures))
}

/// Fails if the host's QEMU is not the one of the guest: a comparison would say nothing.
pub(super) fn same_qemu(guest: &Running) -> Result<()> {
    let (ours, hand) = (guest.qemu.version()?, version_of_host()?);
    ensure!(
        ours == hand,
        "guests run by {ours}, by hand it would be {hand}: install the same"
    );
    Ok(())
}

/// Values measured in turns.
#[derive(Debug, Default)]
struct Pair {
    ours: Vec<f64>,
    hand: Vec<f64>,
}

impl Pair {
    /// The medians.
    fn middle(&self) -> (f64, f64) {
        let middle = |values: &[f64]| median(values).unwrap_or_default();
        (middle(&self.ours), middle(&self.hand))
    }
}
