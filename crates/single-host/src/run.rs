//! From the command line to the command.

use std::process::ExitCode;

use anyhow::Result;

use crate::{cli::Command, down, printer::Printer, status, up};

/// Runs a command to its end.
pub fn run(command: &Command) -> Result<()> {
    let printer = Printer;
    match command {
        Command::Up(flags) => up::up(flags, printer),
        Command::Down(flags) => down::down(flags, printer),
        Command::Status(flags) => status::status(flags, printer),
        Command::Reset(flags) => down::reset(flags, printer),
    }
}

/// Tells a failure to who ran the command: exit code 0 is success, 1 a failure that was explained.
pub fn explain(ended: Result<()>) -> ExitCode {
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            Printer.complaint(&format!("error: {err:#}"));
            ExitCode::FAILURE
        }
    }
}
