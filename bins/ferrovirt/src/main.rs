//! The program `ferrovirt`: all of it on one host, or one component in a cluster.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Runs virtual machines under the Kubernetes API.
#[derive(Debug, Parser)]
#[command(
    name = "ferrovirt",
    version,
    disable_help_subcommand = true,
    after_help = "On one host, `ferrovirt up` is all there is to it: it brings up the API, and \
                  kubectl and virtctl do the rest. In a cluster, apply deploy/ferrovirt.yaml."
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

/// 0 is success, 1 a failure that was explained, 2 a wrong command line.
fn main() -> ExitCode {
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
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
