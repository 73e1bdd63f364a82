//! `xtask power-cut`: acknowledged writes to the API's database under power cuts at random points.

use std::process::Command;

use anyhow::Result;
use clap::Args;

use crate::workspace::{cargo, root, run as run_command};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// How many writes are acknowledged, in databases of a thousand each.
    #[arg(long, default_value_t = 100_000)]
    writes: u64,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let mut command = Command::new(cargo());
    command
        // All of the workspace is selected, as elsewhere: another selection would compile everything again.
        .args(["test", "--quiet", "--locked", "--workspace", "--lib"])
        .args(["power_cut", "--", "--nocapture"])
        .env("FERROVIRT_POWER_CUT_WRITES", options.writes.to_string());
    run_command(command.current_dir(root()))
}
