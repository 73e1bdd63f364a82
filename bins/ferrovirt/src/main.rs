//! The program `ferrovirt`: everything on one host, or one component in a cluster.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Runs virtual machines under the Kubernetes API.
#[derive(Debug, Parser)]
#[command(
    name = "ferrovirt",
    version,
    disable_help_subcommand = true,
    after_help = "On one host, run `ferrovirt up`: it starts the API and the node; then use kubectl and \
                  virtctl. In a cluster, apply deploy/ferrovirt.yaml."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[command(flatten)]
    Host(single_host::cli::Command),
    #[command(flatten)]
    Component(in_cluster::cli::Command),
}

/// Exit code 0 is success, 1 a failure that was explained, 2 an invalid command line.
fn main() -> ExitCode {
    panics::install();
    let ended = match Cli::parse().command {
        Command::Host(command) => single_host::run(&command),
        Command::Component(command) => in_cluster::run(&command),
    };
    single_host::explain(ended)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
