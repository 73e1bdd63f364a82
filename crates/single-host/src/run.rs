//! From the command line to the command.

use std::process::ExitCode;

use clap::Parser;

use crate::{
    cli::{Cli, Command},
    down,
    printer::Printer,
    status, up,
};

/// Runs the program: 0 is success, 1 a failure that was explained, 2 a wrong command line.
pub fn main() -> ExitCode {
    let printer = Printer;
    let ended = match Cli::parse().command {
        Command::Up(flags) => up::up(&flags, printer),
        Command::Down(flags) => down::down(&flags, printer),
        Command::Status(flags) => status::status(&flags, printer),
        Command::Reset(flags) => down::reset(&flags, printer),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            printer.complaint(&format!("error: {err:#}"));
            ExitCode::FAILURE
        }
    }
}
