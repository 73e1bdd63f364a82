//! Parses the command line and runs the command.

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{CommandFactory, Parser};

use crate::{
    cli::{Cli, Command},
    commands::{console, guest, power, version, vnc, why},
    connect::{Cluster, connect},
    printer::Printer,
};

/// Runs the program. The exit code is 0 for success, 1 for a failure, 2 for a wrong command line; `why`
/// uses 0 and 1 for the health of the VM, so its own failures are 2.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let failure = match cli.command {
        Command::Why { .. } => ExitCode::from(why::UNKNOWN),
        _ => ExitCode::FAILURE,
    };
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
        Ok(code) => code,
        Err(err) => {
            printer.note(&format!("error: {err:#}"));
            failure
        }
    }
}

async fn run(cli: Cli, printer: Printer) -> Result<ExitCode> {
    let succeeded = |()| ExitCode::SUCCESS;
    match &cli.command {
        Command::Completion { shell } => {
            let mut script = vec![];
            clap_complete::generate(*shell, &mut Cli::command(), "virtctl", &mut script);
            return printer
                .raw(&script)
                .context("write the script")
                .map(succeeded);
        }
        Command::Version {
            client: true,
            output,
        } => {
            return version::version(None, printer, *output)
                .await
                .map(succeeded);
        }
        Command::Why { causes: true, .. } => {
            why::list(printer);
            return Ok(ExitCode::SUCCESS);
        }
        _ => {}
    }
    let cluster = connect(&cli.connection).await?;
    run_on(&cluster, &cli.command, printer).await
}

/// Runs a command that needs a cluster.
async fn run_on(cluster: &Cluster, command: &Command, printer: Printer) -> Result<ExitCode> {
    let succeeded = |()| ExitCode::SUCCESS;
    let done = match command {
        Command::Why { name, output, .. } => {
            let name = name.as_deref().unwrap_or_default();
            return Box::pin(why::why(cluster, printer, name, *output)).await;
        }
        Command::Start {
            vm,
            paused,
            dry_run,
        } => {
            let options = power::Start {
                paused: *paused,
                dry_run: *dry_run,
            };
            power::start(cluster, printer, vm, options).await
        }
        Command::Stop { vm, grace, dry_run } => {
            let options = power::Stop {
                grace: *grace,
                dry_run: *dry_run,
            };
            power::stop(cluster, printer, vm, options).await
        }
        Command::Restart { vm, grace, dry_run } => {
            let options = power::Stop {
                grace: *grace,
                dry_run: *dry_run,
            };
            power::restart(cluster, printer, vm, options).await
        }
        Command::Pause { target, dry_run } => {
            power::pause(cluster, printer, target, *dry_run).await
        }
        Command::Unpause { target, dry_run } => {
            power::unpause(cluster, printer, target, *dry_run).await
        }
        Command::SoftReboot { vmi } => {
            guest::update(
                cluster,
                printer,
                guest::Subresource {
                    vmi,
                    name: "softreboot",
                },
            )
            .await
        }
        Command::Reset { vmi } => {
            guest::update(cluster, printer, guest::Subresource { vmi, name: "reset" }).await
        }
        Command::GuestOsInfo { vmi } => {
            guest::show(
                cluster,
                printer,
                guest::Subresource {
                    vmi,
                    name: "guestosinfo",
                },
            )
            .await
        }
        Command::UserList { vmi } => {
            guest::show(
                cluster,
                printer,
                guest::Subresource {
                    vmi,
                    name: "userlist",
                },
            )
            .await
        }
        Command::FsList { vmi } => {
            guest::show(
                cluster,
                printer,
                guest::Subresource {
                    vmi,
                    name: "filesystemlist",
                },
            )
            .await
        }
        Command::Console { vmi, timeout } => {
            Box::pin(console::console(cluster, printer, vmi, *timeout)).await
        }
        Command::Vnc(flags) => Box::pin(vnc::vnc(cluster, printer, flags)).await,
        Command::Version { output, .. } => version::version(Some(cluster), printer, *output).await,
        Command::Completion { .. } => Ok(()),
    };
    done.map(succeeded)
}
