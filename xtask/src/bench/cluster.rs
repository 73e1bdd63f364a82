//! Starts and memory on the test cluster, which is up and has Ferrovirt in it.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};
use clap::Args;

use super::{
    Output,
    figures::{Figure, as_f64},
    hold, memory,
    promises::{self, Part},
    report::{self, Report},
    requests::Requests,
    show,
    starts::Subject,
    turns::{Turns, ten},
};
use crate::{
    cluster,
    printer::Printer,
    workspace::{cargo, metadata, root, run},
};

/// The path of the program in the components' pods.
const PROGRAM: &str = "/ferrovirt";
const COMPONENTS: [&str; 3] = ["api", "controller", "handler"];

#[derive(Debug, Args)]
pub(crate) struct ClusterOptions {
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
}

/// Measures, shows, and fails if asked to hold the promises.
pub(crate) fn cluster(printer: &Printer, options: &ClusterOptions) -> Result<()> {
    let promises = promises::read(Part::Cluster)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("start the runtime")?;
    let report = runtime.block_on(Box::pin(measure(printer, options)))?;
    show(printer, &report, &promises, options.output)?;
    hold(&report, &promises, options.enforce)
}

async fn measure(printer: &Printer, options: &ClusterOptions) -> Result<Report> {
    let (virtctl, kubeconfig) = (virtctl()?, cluster::kubeconfig()?);
    let mut turns = Turns::begin(cluster::client().await?).await?;
    printer.line("warming up");
    turns.warm_up().await?;
    let (mut bare, mut pods, mut vms) = (Vec::new(), Vec::new(), Vec::new());
    let (mut of_pods, mut of_vms) = (Requests::default(), Requests::default());
    for turn in 1..=options.singles {
        printer.line(format_args!("one empty pod, one VM: {turn}"));
        let one = || vec![format!("one-{turn}")];
        let started = turns.start(Subject::BarePod, one()).await?;
        turns.remove(Subject::BarePod, &started).await?;
        bare.extend(started);
        let before = Requests::so_far(&turns.client).await?;
        let started = turns.start(Subject::Pod, one()).await?;
        of_pods.add_since(&before, &Requests::so_far(&turns.client).await?);
        turns.remove(Subject::Pod, &started).await?;
        pods.extend(started);
        let before = Requests::so_far(&turns.client).await?;
        let started = turns.start(Subject::Vm, one()).await?;
        of_vms.add_since(&before, &Requests::so_far(&turns.client).await?);
        if turn == options.singles {
            turns.figures.extend(of_components("one")?);
            for vm in &started {
                turns.greeted(&virtctl, &kubeconfig, vm).await?;
            }
        }
        turns.remove(Subject::Vm, &started).await?;
        vms.extend(started);
    }
    turns.timed("one", Subject::BarePod, &bare)?;
    turns.compare("one", &pods, &vms)?;
    for (subject, requests) in [(Subject::Pod, of_pods), (Subject::Vm, of_vms)] {
        let label = format!("{}.start.requests", subject.label());
        turns
            .figures
            .extend(requests.figures(&label, options.singles));
    }
    let (mut pods, mut vms) = (Vec::new(), Vec::new());
    for turn in 1..=options.tens {
        printer.line(format_args!("ten empty pods, ten VMs: {turn}"));
        let started = turns.start(Subject::Pod, ten(turn)).await?;
        turns.remove(Subject::Pod, &started).await?;
        pods.extend(started);
        let started = turns.start(Subject::Vm, ten(turn)).await?;
        if turn == options.tens {
            turns.figures.extend(of_components("ten")?);
            let uids = turns.pods_of(&started);
            turns.figures.extend(memory::in_pods(&uids)?);
        }
        turns.remove(Subject::Vm, &started).await?;
        vms.extend(started);
    }
    turns.compare("ten", &pods, &vms)?;
    printer.line("twenty VMs");
    let twenty = (0..20).map(|one| format!("twenty-{one}")).collect();
    let started = turns.start(Subject::Vm, twenty).await?;
    turns.figures.extend(of_components("twenty")?);
    turns.remove(Subject::Vm, &started).await?;
    let figures = turns.figures.into_iter().map(|figure| Figure {
        name: format!("cluster.{}", figure.name),
        ..figure
    });
    Ok(Report {
        machine: report::machine()?,
        figures: figures.collect(),
    })
}

/// `virtctl` from a debug build: it is not part of the measurement.
fn virtctl() -> Result<PathBuf> {
    let mut build = Command::new(cargo());
    build.args(["build", "--quiet", "--locked", "--package", "virtctl-bin"]);
    run(build.current_dir(root()))?;
    Ok(metadata()?.target_directory.join("debug/virtctl"))
}

/// Memory of the components' processes on all nodes, by component and in sum: resident, where each
/// process counts all pages of the program that they share, and by shares, where a page counts once.
fn of_components(label: &str) -> Result<Vec<Figure>> {
    let mut resident: BTreeMap<&str, u64> = BTreeMap::new();
    let mut shares: BTreeMap<&str, u64> = BTreeMap::new();
    for entry in fs::read_dir("/proc").context("list processes")? {
        let process = entry.context("list processes")?.path();
        if let Some(component) = component(&process) {
            let rollup = fs::read_to_string(process.join("smaps_rollup"))
                .with_context(|| format!("read the memory of {component}"))?;
            for (sums, name) in [(&mut resident, "Rss:"), (&mut shares, "Pss:")] {
                let kib = memory::kib(&rollup, name);
                *sums.entry(component).or_default() +=
                    kib.with_context(|| format!("find {name} in smaps_rollup"))?;
            }
        }
    }
    for component in COMPONENTS {
        ensure!(
            resident.contains_key(component),
            "no process of {component} runs: is Ferrovirt installed on the cluster?"
        );
    }
    let figures = [("memory", resident), ("memory.shares", shares)].map(|(name, sums)| {
        let all = sums.values().sum();
        let parts = sums.into_iter().chain([("all", all)]);
        let figure = move |(component, kib)| {
            // Promised in MB of a million bytes.
            let value = as_f64(kib) * 1024.0 / 1e6;
            Figure::new(format!("{name}.{label}.{component}"), value, "MB")
        };
        parts.map(figure).collect::<Vec<_>>()
    });
    Ok(figures.into_iter().flatten().collect())
}

/// Which component a process is.
fn component(process: &Path) -> Option<&'static str> {
    let arguments = fs::read(process.join("cmdline")).ok()?;
    let mut arguments = arguments.split(|byte| *byte == 0);
    if arguments.next() != Some(PROGRAM.as_bytes()) {
        return None;
    }
    let command = arguments.next()?;
    COMPONENTS
        .into_iter()
        .find(|component| component.as_bytes() == command)
}
