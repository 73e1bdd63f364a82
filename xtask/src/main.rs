//! Builds, checks and measures the workspace.
//!
//! Each task is a module. Build tasks keep their results in the cache directory under the hash of
//! their inputs, so a second run takes no time, and an interrupted run leaves nothing that looks
//! finished.

mod architecture;
mod bench;
mod cache;
mod chaos;
mod check;
mod circles;
mod cluster;
mod cpio;
mod debian;
mod dependencies;
mod differential;
mod documents;
mod e2e_list;
mod failpoints;
mod finalizers;
mod fuzz;
mod fuzz_lock;
mod generate;
mod guest;
mod image;
mod kube_apiserver;
mod kubernetes;
mod lock;
mod logins;
mod machine;
mod metrics_page;
mod parity;
mod parsers;
mod power_cut;
mod printer;
mod push;
mod sbom;
mod simulate;
mod suites;
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
    /// Build a guest: container disk, kernel-boot image and plain disk.
    Guest {
        #[arg(value_enum, default_value = "tiny")]
        guest: guest::Guest,
    },
    /// Write the generated files under deploy/ and docs/.
    Generate {
        /// Only check that they are current.
        #[arg(long)]
        check: bool,
    },
    /// Everything a commit must pass: format, lints, generated files, tidiness, licences.
    Check,
    /// Build all tests and run them, several suites at a time.
    Test(suites::Options),
    /// Measure what SPECIFICATION.md promises.
    Bench {
        #[command(subcommand)]
        bench: BenchTask,
    },
    /// Run one fuzz target, or all in turn.
    Fuzz(fuzz::Options),
    /// Compare CRDs and types with the tables of API facts.
    Parity(parity::Options),
    /// Send the same requests to our API server and to a real one, and compare the responses.
    Differential(differential::Options),
    /// Run the controllers through randomised scenarios with faults and check how each ends.
    Simulate(simulate::Options),
    /// Cut the power under the API's database at random points; no acknowledged write may be lost.
    PowerCut(power_cut::Options),
    /// Kill all components around counting guests; no guest may be interrupted.
    Chaos(chaos::Options),
    /// Run a real Kubernetes with several nodes on this machine.
    Cluster {
        #[command(subcommand)]
        task: cluster::Task,
    },
    /// Run tests and scripts in a Debian guest with systemd and its own kernel.
    Machine {
        #[command(subcommand)]
        task: machine::Task,
    },
    /// Check source layout, crate dependencies and links in documents.
    Tidy,
    /// Check licences, duplicates, sources, advisories and use of dependencies.
    Dependencies,
}

#[derive(Subcommand)]
enum ImageTask {
    /// The launcher image of VM pods: QEMU, libvirt, virt-launcher, disk-import.
    Launcher {
        /// Use this program instead of building virt-launcher.
        #[arg(long, value_name = "FILE")]
        binary: Option<PathBuf>,
        /// Use this program instead of building disk-import.
        #[arg(long, value_name = "FILE")]
        importer: Option<PathBuf>,
    },
    /// The image of the cluster components: one program.
    ControlPlane {
        /// Use this program instead of building it.
        #[arg(long, value_name = "FILE")]
        binary: Option<PathBuf>,
        /// Use the unoptimised build of the tests, which takes a fraction of the time.
        #[arg(long, conflicts_with = "binary")]
        quick: bool,
    },
    /// Push built images to a registry and print their digests.
    Push(push::Options),
}

#[derive(Subcommand)]
enum BenchTask {
    /// Start time, memory, writes and sizes of VMs on a single host brought up for the run.
    Vm(bench::Options),
    /// Time to decode, default and validate typical and hostile manifests.
    Admission(bench::AdmissionOptions),
    /// Start time and memory on the running test cluster with Ferrovirt installed.
    Cluster(bench::ClusterOptions),
    /// Memory and requests of the controllers with thousands of VMIs.
    Controller(bench::ControllerOptions),
    /// Streams of guests through virt-api beside plain TCP, and the size and start of virtctl.
    Streams(bench::StreamsOptions),
    /// Disks and networks of guests on a single host, in turns with the same QEMU started by hand.
    Guest(bench::GuestOptions),
    /// Moves of a guest, idle and writing, in turns with moves between two QEMUs by hand.
    Migration(bench::MigrationOptions),
    /// Imports beside curl and qemu-img; copies, snapshots, backups and hotplug.
    Storage(bench::StorageOptions),
    /// Our API server beside a kube-apiserver with etcd: latency, writes, lists, watches, memory.
    Api(bench::ApiOptions),
    /// The times of a user of our API server, and its memory, while another asks for far too much.
    Overload(bench::OverloadOptions),
}

fn main() -> anyhow::Result<ExitCode> {
    let printer = Printer::new();
    match Arguments::parse().task {
        Task::Cluster { task } => return cluster::run(&printer, &task),
        Task::Image {
            image: ImageTask::Launcher { binary, importer },
        } => image::launcher(&printer, binary, importer),
        Task::Image {
            image: ImageTask::ControlPlane { binary, quick },
        } => {
            let program = match binary {
                Some(file) => image::ControlPlaneProgram::File(file),
                None if quick => image::ControlPlaneProgram::Quick,
                None => image::ControlPlaneProgram::Release,
            };
            image::control_plane(&printer, program)
        }
        Task::Image {
            image: ImageTask::Push(options),
        } => push::run(&printer, &options),
        Task::Guest { guest } => guest::run(&printer, guest),
        Task::Generate { check } => generate::run(check),
        Task::Check => check::run_all(&printer),
        Task::Test(options) => suites::run(&printer, &options),
        Task::Bench {
            bench: BenchTask::Vm(options),
        } => bench::vm(&printer, &options),
        Task::Bench {
            bench: BenchTask::Admission(options),
        } => bench::admission(&printer, &options),
        Task::Bench {
            bench: BenchTask::Overload(options),
        } => bench::overload(&printer, &options),
        Task::Bench {
            bench: BenchTask::Cluster(options),
        } => bench::cluster(&printer, &options),
        Task::Bench {
            bench: BenchTask::Controller(options),
        } => bench::controller(&printer, &options),
        Task::Bench {
            bench: BenchTask::Streams(options),
        } => bench::streams(&printer, &options),
        Task::Bench {
            bench: BenchTask::Api(options),
        } => bench::api(&printer, &options),
        Task::Bench {
            bench: BenchTask::Guest(options),
        } => bench::guest(&printer, &options),
        Task::Bench {
            bench: BenchTask::Migration(options),
        } => bench::migration(&printer, &options),
        Task::Bench {
            bench: BenchTask::Storage(options),
        } => bench::storage(&printer, &options),
        Task::Machine { task } => machine::run(&printer, &task),
        Task::Simulate(options) => simulate::run(&options),
        Task::PowerCut(options) => power_cut::run(&options),
        Task::Chaos(options) => chaos::run(&options),
        Task::Fuzz(options) => fuzz::run(&printer, &options),
        Task::Parity(options) => parity::run(&printer, &options),
        Task::Differential(options) => differential::run(&printer, &options),
        Task::Tidy => tidy::run(&printer),
        Task::Dependencies => dependencies::run(&printer),
    }?;
    Ok(ExitCode::SUCCESS)
}
