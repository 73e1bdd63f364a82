//! Runs the command of a command line.

use std::process::ExitCode;

use anyhow::Result;

use crate::{backup, cli::Command, down, printer::Printer, service, status, up};

/// Runs a command until it ends.
pub fn run(command: &Command) -> Result<()> {
    let printer = Printer;
    match command {
        Command::Up(flags) => up::up(flags, printer),
        Command::Down(flags) => down::down(flags, printer),
        Command::Status(flags) => status::status(flags, printer),
        Command::Reset(flags) => down::reset(flags, printer),
        Command::Backup(flags) => backup::backup(flags, printer),
        Command::Restore(flags) => backup::restore(flags, printer),
        Command::Install(flags) => service::install(flags, printer),
        Command::Uninstall(flags) => service::uninstall(flags, printer),
    }
}

/// Prints the error of a failed command. Exit code 0 is success, 1 a reported failure.
pub fn explain(ended: Result<()>) -> ExitCode {
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            Printer.error(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
