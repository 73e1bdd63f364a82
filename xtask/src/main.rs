//! Builds, checks and measures the workspace.
//!
//! Each task is a module. Tasks that build something keep it in the cache directory under the hash
//! of what it was made of, so that a second run takes no time; whatever is cut off half-way is not
//! taken for finished by the next run.

mod bench;
mod bill;
mod cache;
mod check;
mod cluster;
mod cpio;
mod debian;
mod differential;
mod failpoints;
mod fuzz;
mod generate;
mod guest;
mod image;
mod kubernetes;
mod licences;
mod logins;
mod nothing_notices;
mod parity;
mod printer;
mod push;
mod simulate;
mod stories;
mod tidy;
mod troubleshooting;
mod workspace;

use std::{path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};

use crate::printer::Printer;

#[derive(Parser)]
#[command(name = "xtask", about = "Builds, checks and measures the workspace")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Build an image for the cache directory.
    Image {
        #[command(subcommand)]
        image: ImageTask,
    },
    /// Build the tiny guest: container disk, kernel-boot image and plain disk.
    Guest,
    /// Write the generated files under deploy/ and docs/.
    Generate {
        /// Only say whether they are current.
        #[arg(long)]
        check: bool,
    },
    /// Everything a commit must pass: format, lints, generated files, tidiness, licences.
    Check,
    /// Measure what SPECIFICATION.md promises.
    Bench {
        #[command(subcommand)]
        bench: BenchTask,
    },
    /// Throw made-up bytes at a parser until it breaks or the time is over.
    Fuzz(fuzz::Options),
    /// Compare definitions and types with the tables of facts.
    Parity(parity::Options),
    /// Ask our API server and a real one the same, and compare the answers.
    Differential(differential::Options),
    /// Tell made-up stories of what goes wrong to the controllers, and judge how each ends.
    Simulate(simulate::Options),
    /// Kill everything around guests that count, again and again; none may notice.
    NothingNotices(nothing_notices::Options),
    /// A real Kubernetes of several nodes on this machine.
    Cluster {
        #[command(subcommand)]
        task: cluster::Task,
    },
    /// The tidiness part of the check alone.
    Tidy,
    /// The licences part of the check alone.
    Licences,
}

#[derive(Subcommand)]
enum ImageTask {
    /// The root of every VM's pod: QEMU, libvirt, virt-launcher.
    Launcher {
        /// Take this program instead of building virt-launcher.
        #[arg(long, value_name = "FILE")]
        binary: Option<PathBuf>,
    },
    /// The components of a cluster: one static program.
    ControlPlane {
        /// Take this program instead of building it.
        #[arg(long, value_name = "FILE")]
        binary: Option<PathBuf>,
    },
    /// Take built images to a registry, by their digests.
    Push(push::Options),
}

#[derive(Subcommand)]
enum BenchTask {
    /// Starts, memory, writes and sizes of virtual machines, on a host brought up for it.
    Vm(bench::Options),
    /// Reading, defaulting and judging manifests, typical and hostile ones.
    Admission(bench::AdmissionOptions),
    /// Starts and memory on the test cluster, which is up and has Ferrovirt in it.
    Cluster(bench::ClusterOptions),
    /// What thousands of VMIs cost the controllers.
    Controller(bench::ControllerOptions),
}

fn main() -> anyhow::Result<ExitCode> {
    let printer = Printer::new();
    match Arguments::parse().task {
        Task::Cluster { task } => return cluster::run(&printer, &task),
        Task::Image {
            image: ImageTask::Launcher { binary },
        } => image::launcher(&printer, binary.as_deref()),
        Task::Image {
            image: ImageTask::ControlPlane { binary },
        } => image::control_plane(&printer, binary.as_deref()),
        Task::Image {
            image: ImageTask::Push(options),
        } => push::run(&printer, &options),
        Task::Guest => guest::tiny(&printer),
        Task::Generate { check } => generate::run(check),
        Task::Check => check::run_all(&printer),
        Task::Bench {
            bench: BenchTask::Vm(options),
        } => bench::vm(&printer, &options),
        Task::Bench {
            bench: BenchTask::Admission(options),
        } => bench::admission(&printer, &options),
        Task::Bench {
            bench: BenchTask::Cluster(options),
        } => bench::cluster(&printer, &options),
        Task::Bench {
            bench: BenchTask::Controller(options),
        } => bench::controller(&printer, &options),
        Task::Simulate(options) => simulate::run(&options),
        Task::NothingNotices(options) => nothing_notices::run(&options),
        Task::Fuzz(options) => fuzz::run(&printer, &options),
        Task::Parity(options) => parity::run(&printer, &options),
        Task::Differential(options) => differential::run(&printer, &options),
        Task::Tidy => tidy::run(&printer),
        Task::Licences => licences::run(&printer),
    }?;
    Ok(ExitCode::SUCCESS)
}
