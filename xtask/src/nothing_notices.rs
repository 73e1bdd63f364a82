//! `xtask nothing-notices`: everything around counting guests is killed, and none may notice. The
//! crate `stories` does it; it and the programs are built and run here.

use std::process::Command;

use anyhow::Result;
use clap::{Args, ValueEnum};

use crate::workspace::{cargo, root, run as run_command};

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Home {
    /// A single host, brought up for it.
    Host,
    /// The test cluster, which is up and has Ferrovirt in it: `scripts/e2e.sh nothing-notices` makes one.
    Cluster,
}

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Where.
    #[arg(long, value_enum, default_value_t = Home::Host)]
    on: Home,
    /// How many guests count.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    guests: u64,
    /// For how long everything around them is killed.
    #[arg(long, default_value_t = 10)]
    minutes: u64,
    /// Decides who is killed after whom.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let mut build = Command::new(cargo());
    build.args(["build", "--quiet", "--locked"]);
    let mut command = Command::new(cargo());
    command.args(["run", "--quiet", "--locked"]);
    let home = match options.on {
        // What was just built is taken as it is, so both choose from the same packages.
        Home::Host => {
            build.args(["--workspace", "--bins"]);
            "host"
        }
        // All else runs from images there.
        Home::Cluster => {
            build.args(["--package", "virtctl-bin"]);
            command.args(["--package", "stories"]);
            "cluster"
        }
    };
    run_command(build.current_dir(root()))?;
    command.args(["--bin", "nothing-notices", "--", home]);
    for number in [options.guests, options.minutes, options.seed] {
        command.arg(number.to_string());
    }
    run_command(command.current_dir(root()))
}
