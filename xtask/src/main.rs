//! Builds, checks and measures the workspace.
//!
//! Each task is a module. Tasks that build something keep it in the cache directory under the hash
//! of what it was made of, so that a second run takes no time; whatever is cut off half-way is not
//! taken for finished by the next run.

mod bench;
mod cache;
mod check;
mod cpio;
mod debian;
mod differential;
mod fuzz;
mod generate;
mod guest;
mod image;
mod kubernetes;
mod licences;
mod parity;
mod printer;
mod tidy;
mod workspace;

use std::path::PathBuf;

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
}

#[derive(Subcommand)]
enum BenchTask {
    /// Starts, memory, writes and sizes of virtual machines, on a host brought up for it.
    Vm(bench::Options),
    /// Reading, defaulting and judging manifests, typical and hostile ones.
    Admission(bench::AdmissionOptions),
}

fn main() -> anyhow::Result<()> {
    let printer = Printer::new();
    match Arguments::parse().task {
        Task::Image {
            image: ImageTask::Launcher { binary },
        } => image::launcher(&printer, binary.as_deref()),
        Task::Guest => guest::tiny(&printer),
        Task::Generate { check } => generate::run(check),
        Task::Check => check::run_all(&printer),
        Task::Bench {
            bench: BenchTask::Vm(options),
        } => bench::vm(&printer, &options),
        Task::Bench {
            bench: BenchTask::Admission(options),
        } => bench::admission(&printer, &options),
        Task::Fuzz(options) => fuzz::run(&printer, &options),
        Task::Parity(options) => parity::run(&printer, &options),
        Task::Differential(options) => differential::run(&printer, &options),
        Task::Tidy => tidy::run(&printer),
        Task::Licences => licences::run(&printer),
    }
}
