//! From the command line to the command.

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{CommandFactory, Parser};

use crate::{
    cli::{Cli, Command},
    commands::{console, power, version, vnc},
    connect::connect,
    printer::Printer,
};

/// Runs the program: 0 is success, 1 a failure that was explained, 2 a wrong command line.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let printer = Printer;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let ended = match runtime {
        Ok(runtime) => {
            let ended = runtime.block_on(run(cli, printer));
            // A read of the terminal may still be blocked in a thread of its own.
            runtime.shutdown_background();
            ended
        }
        Err(err) => Err(err).context("start"),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            printer.note(&format!("error: {err:#}"));
            ExitCode::FAILURE
        }
    }
}

async fn run(cli: Cli, printer: Printer) -> Result<()> {
    match &cli.command {
        Command::Completion { shell } => {
            let mut script = vec![];
            clap_complete::generate(*shell, &mut Cli::command(), "virtctl", &mut script);
            return printer.raw(&script).context("write the script");
        }
        Command::Version {
            client: true,
            output,
        } => {
            return version::version(None, printer, *output).await;
        }
        _ => {}
    }
    let cluster = connect(&cli.connection).await?;
    match &cli.command {
        Command::Start {
            vm,
            paused,
            dry_run,
        } => power::start(&cluster, printer, vm, (*paused, *dry_run)).await,
        Command::Stop { vm, grace, dry_run } => {
            power::stop(&cluster, printer, vm, (*grace, *dry_run)).await
        }
        Command::Restart { vm, grace, dry_run } => {
            power::restart(&cluster, printer, vm, (*grace, *dry_run)).await
        }
        Command::Pause { target, dry_run } => {
            power::pause(&cluster, printer, target, *dry_run).await
        }
        Command::Unpause { target, dry_run } => {
            power::unpause(&cluster, printer, target, *dry_run).await
        }
        Command::Console { vmi, timeout } => {
            Box::pin(console::console(&cluster, printer, vmi, *timeout)).await
        }
        Command::Vnc(flags) => Box::pin(vnc::vnc(&cluster, printer, flags)).await,
        Command::Version { output, .. } => version::version(Some(&cluster), printer, *output).await,
        Command::Completion { .. } => Ok(()),
    }
}
