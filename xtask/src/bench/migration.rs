//! `xtask bench migration`: moves of a guest, idle and writing, in turns with moves between two QEMUs by hand.
//!
//! On a single host a guest moves to another pod of the host; the reference is QEMU's migration without TLS. With
//! `--cluster` it moves between the nodes of the running test cluster; the reference is QEMU's migration with its
//! own TLS, and without it for comparison.
//!
//! A pause is the longest silence of a guest that writes to its console all the time; the rate is that at which its
//! memory arrives in the new process. Both are observed from outside, in the same way for all.

mod hand;
mod ours;

use anyhow::{Context as _, Result};
use clap::Args;

use super::{
    Output,
    by_hand::Machine,
    figures::{Figure, median, milliseconds},
    guest::{same_qemu, staged},
    hold,
    host::{self, HostOptions},
    load::Load,
    objects::{LOAD_IMAGE, Objects, VM},
    promises::{self, Part},
    qemu::version_of_host,
    report::{self, Report},
    runtime,
    shell::Shell,
    show,
    silence::Seen,
};
use crate::{cluster, printer::Printer};
use hand::Hand;
use ours::Ours;

/// Milliseconds between two dots of the guest.
const DOTS: u64 = 10;

#[derive(Debug, Args)]
pub(crate) struct MigrationOptions {
    /// Fail when a promise is broken.
    #[arg(long)]
    enforce: bool,
    #[arg(long, short, value_enum)]
    output: Option<Output>,
    /// Moves of each guest; the median counts.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Memory of the guest in MiB; three quarters of it are filled.
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u64).range(256..))]
    memory: u64,
    /// MiB of its memory that the writing guest changes in each second.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..))]
    writes: u64,
    /// Use the running test cluster, with Ferrovirt installed, instead of a single host.
    #[arg(long)]
    cluster: bool,
    #[command(flatten)]
    host: HostOptions,
}

/// What one kind of move gave.
#[derive(Debug, Default)]
struct Moves {
    totals: Vec<f64>,
    pauses: Vec<f64>,
    rates: Vec<f64>,
}

impl Moves {
    fn note(&mut self, total: f64, seen: &Seen, memory: u64) -> Result<()> {
        let rate = seen
            .rate(memory)
            .context("the guest's memory did not arrive")?;
        self.totals.push(total);
        self.pauses.push(milliseconds(seen.silence));
        self.rates.push(rate / 1e6);
        Ok(())
    }

    fn figures(&self, name: &str) -> Vec<Figure> {
        let all = [
            ("total", &self.totals, "ms"),
            ("pause", &self.pauses, "ms"),
            ("rate", &self.rates, "MB/s"),
        ];
        let figure = |(what, values, unit): (&str, &Vec<f64>, _)| {
            Some(Figure::new(format!("{name}.{what}"), median(values)?, unit))
        };
        all.into_iter().filter_map(figure).collect()
    }
}

/// Measures, shows, and fails if asked to hold the promises.
pub(crate) fn migration(printer: &Printer, options: &MigrationOptions) -> Result<()> {
    let mut promises = promises::read(Part::Migration)?;
    let home = if options.cluster { "cluster" } else { "local" };
    let prefix = format!("migration.{home}.");
    promises.retain(|promise| promise.figure.starts_with(&prefix));
    let load = Load::build()?;
    let images = staged(&load, None)?;
    let mut machine = report::machine()?;
    let figures = if options.cluster {
        cluster::load(printer, &images.join("load.oci").display().to_string())?;
        runtime()?.block_on(async {
            let objects = Objects(cluster::client().await?);
            Box::pin(measure(printer, options, &load, &objects)).await
        })?
    } else {
        let (guests, figures) = runtime()?.block_on(host::on_host(
            printer,
            &options.host,
            &images,
            async |host| {
                let objects = Objects(host.client().await?);
                let figures = Box::pin(measure(printer, options, &load, &objects)).await?;
                Ok((host.guests.clone(), figures))
            },
        ))?;
        machine.push(("guests", guests));
        figures
    };
    machine.push(("QEMU", version_of_host()?));
    machine.push(("image of the load", LOAD_IMAGE.to_owned()));
    let report = Report { machine, figures };
    show(printer, &report, &promises, options.output)?;
    hold(&report, &promises, options.enforce)
}

async fn measure(
    printer: &Printer,
    options: &MigrationOptions,
    load: &Load,
    objects: &Objects,
) -> Result<Vec<Figure>> {
    let home = if options.cluster { "cluster" } else { "local" };
    let mut figures = Vec::new();
    for (label, writes) in [("idle", 0), ("writing", options.writes)] {
        let name = format!("migration.{home}.{label}");
        let (mut own, mut plain, mut with_tls) =
            (Moves::default(), Moves::default(), Moves::default());
        printer.line(format_args!("starting two guests: {label}"));
        let vm = format!("moves-{label}");
        let mut ours = Ours::start(objects, &vm, options.memory).await?;
        same_qemu(&ours.running)?;
        let machine = Machine::like(&ours.running.qemu, options.memory, load)?;
        let mut hand = Hand::start(&machine)?;
        let mut shell = Shell::of(&hand.console()).await?;
        shell.install("/dev/vdb").await?;
        let filled = options.memory / 4 * 3;
        for shell in [&mut ours.running.shell, &mut shell] {
            shell
                .send(&format!("load memory {filled} {writes} &\n"))
                .await?;
            shell.until("load: filled").await?;
            shell.send(&format!("load tick {DOTS} &\n")).await?;
        }
        // The consoles' logs have all that the guests write from here on.
        drop(shell);
        for round in 1..=options.rounds {
            printer.line(format_args!("{label}: move {round} of {}", options.rounds));
            let memory = filled << 20;
            let (total, seen) = ours.moves(objects, round).await?;
            own.note(total, &seen, memory)?;
            let (total, seen) = hand.moves(&machine, false).await?;
            plain.note(total, &seen, memory)?;
            let (total, seen) = hand.moves(&machine, true).await?;
            with_tls.note(total, &seen, memory)?;
        }
        drop(hand);
        objects.delete(VM, &vm).await?;
        figures.extend(own.figures(&format!("{name}.ours")));
        figures.extend(plain.figures(&format!("{name}.hand")));
        figures.extend(with_tls.figures(&format!("{name}.hand-tls")));
        let reference = if options.cluster { &with_tls } else { &plain };
        let middle = |values: &[f64]| median(values).unwrap_or_default();
        figures.extend([
            Figure::new(
                format!("{name}.rate.ratio"),
                middle(&own.rates) / middle(&reference.rates),
                "x",
            ),
            Figure::new(
                format!("{name}.pause.more"),
                middle(&own.pauses) - middle(&reference.pauses),
                "ms",
            ),
        ]);
    }
    Ok(figures)
}
