//! `xtask simulate`: runs the controllers through randomised scenarios with faults, on virtual time.
//! Builds and runs the crate `simulation`, in the profile that fits the number of scenarios.

use std::process::Command;

use anyhow::Result;
use clap::Args;

use crate::workspace::{cargo, root, run as run_command};

/// From this number of scenarios on an optimised build pays off.
const MANY: u64 = 2000;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// How many scenarios, each with its own seed, from 0 on.
    #[arg(long, default_value_t = 500)]
    seeds: u64,
    /// Run only the scenario of this seed, and show its outcome.
    #[arg(long)]
    seed: Option<u64>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let mut command = Command::new(cargo());
    // Without `-p`, so that the artifacts of a workspace build are reused.
    command.args(["run", "--quiet", "--locked", "--bin", "simulate"]);
    if options.seed.is_none() && options.seeds >= MANY {
        command.arg("--release");
    }
    command.args(["--", "scenarios"]);
    match options.seed {
        Some(seed) => command.args(["--seed", &seed.to_string()]),
        None => command.args(["--seeds", &options.seeds.to_string()]),
    };
    run_command(command.current_dir(root()))
}
