//! `xtask simulate`: the controllers on virtual time, with faults. The crate `simulation` does it; it
//! is built and run here, in the profile that fits the number of stories.

use std::process::Command;

use anyhow::Result;
use clap::Args;

use crate::workspace::{cargo, root, run as run_command};

/// From here on it pays to build for speed.
const MANY: u64 = 2000;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// How many stories, each of a seed of its own, from 0 on.
    #[arg(long, default_value_t = 500)]
    seeds: u64,
    /// Tell the story of this seed only, as it was told before, and show how it ended.
    #[arg(long)]
    seed: Option<u64>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let mut command = Command::new(cargo());
    // Without `-p`: what the everyday build made is taken as it is.
    command.args(["run", "--quiet", "--locked", "--bin", "simulate"]);
    if options.seed.is_none() && options.seeds >= MANY {
        command.arg("--release");
    }
    command.args(["--", "stories"]);
    match options.seed {
        Some(seed) => command.args(["--seed", &seed.to_string()]),
        None => command.args(["--seeds", &options.seeds.to_string()]),
    };
    run_command(command.current_dir(root()))
}
