//! `xtask chaos`: kills every component around counting guests. Builds the programs and runs the
//! binary `chaos` of the crate `e2e`.

use std::process::Command;

use anyhow::Result;
use clap::{Args, ValueEnum};

use crate::workspace::{cargo, root, run as run_command};

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Environment {
    /// A single host, brought up for the run.
    Host,
    /// The running test cluster with Ferrovirt installed; `scripts/e2e.sh chaos` makes one.
    Cluster,
}

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Where the guests run.
    #[arg(long, value_enum, default_value_t = Environment::Host)]
    on: Environment,
    /// Number of counting guests.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    guests: u64,
    /// How long to keep killing.
    #[arg(long, default_value_t = 10)]
    minutes: u64,
    /// Seed of the order of the kills.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let mut build = Command::new(cargo());
    build.args(["build", "--quiet", "--locked"]);
    let mut command = Command::new(cargo());
    command.args(["run", "--quiet", "--locked"]);
    let environment = match options.on {
        // Build and run select the same packages, so nothing is compiled twice.
        Environment::Host => {
            build.args(["--workspace", "--bins"]);
            "host"
        }
        // On a cluster the components run from images.
        Environment::Cluster => {
            build.args(["--package", "virtctl-bin"]);
            command.args(["--package", "e2e"]);
            "cluster"
        }
    };
    run_command(build.current_dir(root()))?;
    command.args(["--bin", "chaos", "--", environment]);
    for number in [options.guests, options.minutes, options.seed] {
        command.arg(number.to_string());
    }
    run_command(command.current_dir(root()))
}
