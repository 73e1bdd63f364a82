//! Parses the command line and runs the command.

use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::{
    cli::{self, Cli, Command, ObjectCommand, Why},
    commands::{
        backup, console, credentials, expand, expose,
        guest::{self, Subresource},
        guestfs, image_upload,
        log_verbosity::{AdmCommand, log_verbosity},
        logs, memory_dump, migrate, object_graph, permitted_devices, port_forward, power, run_vm,
        ssh, template, top, ui, usbredir, version, vm_export, vnc, volumes, why,
    },
    connect::{Cluster, connect},
    create,
    failure::Usage,
    printer::Printer,
    signals::{self, Interrupted},
};

/// The command line is wrong; also clap's exit code for it.
const USAGE: u8 = 2;

/// Runs the program. The exit code is 0 for success, 1 for a failure, 2 for a wrong command line, and 128 and the
/// number of the signal that ended it; `why` uses 0 and 1 for the health of the VM, so its own failures are 2.
pub fn main() -> ExitCode {
    let cli = Cli::from_environment();
    let failure = match cli.command {
        Command::Why(_) => ExitCode::from(why::UNKNOWN),
        _ => ExitCode::FAILURE,
    };
    let printer = Printer;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let ended = match runtime {
        Ok(runtime) => {
            let ended = runtime.block_on(until_interrupted(cli, printer));
            // A read of the terminal may still be blocked in a thread of its own.
            runtime.shutdown_background();
            ended
        }
        Err(err) => Err(err).context("start"),
    };
    let ended = ended.and_then(|code| printer.failure().map_or(Ok(code), Err));
    match ended {
        Ok(code) => code,
        Err(err) => {
            if let Some(interrupted) = err.downcast_ref::<Interrupted>() {
                return ExitCode::from(interrupted.exit_code());
            }
            printer.error(&err);
            if err.is::<Usage>() {
                ExitCode::from(USAGE)
            } else {
                failure
            }
        }
    }
}

/// Runs the command; a signal ends it by dropping it, which restores the terminal and removes unfinished files.
async fn until_interrupted(cli: Cli, printer: Printer) -> Result<ExitCode> {
    let waits_itself = match &cli.command {
        Command::Ssh(_) | Command::Scp(_) | Command::Objects(ObjectCommand::Guestfs(_)) => true,
        Command::Objects(ObjectCommand::VmExport(flags)) => flags.downloads(),
        Command::Objects(ObjectCommand::MemoryDump(flags)) => flags.downloads(),
        _ => false,
    };
    let ended = Box::pin(run(cli, printer));
    if waits_itself {
        ended.await
    } else {
        signals::unless_interrupted(ended).await
    }
}

async fn run(cli: Cli, printer: Printer) -> Result<ExitCode> {
    let succeeded = |()| ExitCode::SUCCESS;
    match &cli.command {
        Command::Completion {
            shell,
            no_descriptions,
        } => {
            let mut script = vec![];
            let mut command = cli::command();
            if *no_descriptions {
                command = without_descriptions(command);
            }
            clap_complete::generate(*shell, &mut command, "virtctl", &mut script);
            return printer
                .raw(&script)
                .context("write the script")
                .map(succeeded);
        }
        Command::Options => {
            printer.line(&global_flags());
            return Ok(ExitCode::SUCCESS);
        }
        Command::Version {
            client: true,
            output,
        } => {
            return version::version(None, printer, *output)
                .await
                .map(succeeded);
        }
        Command::Create(create) => {
            return create::create(printer, &cli.connection, create).map(succeeded);
        }
        Command::Objects(ObjectCommand::Template(flags)) => {
            if let Some(done) = template::without_server(printer, flags) {
                return done.map(succeeded);
            }
        }
        Command::Why(Why { causes: true, .. }) => {
            why::list(printer);
            return Ok(ExitCode::SUCCESS);
        }
        _ => {}
    }
    let cluster = connect(&cli.connection).await?;
    match &cli.command {
        Command::Ssh(flags) => {
            return ssh::ssh(&cli.connection, &cluster.namespace, flags).await;
        }
        Command::Scp(flags) => {
            return ssh::scp(&cli.connection, &cluster.namespace, flags).await;
        }
        _ => {}
    }
    run_on(&cluster, &cli.command, printer).await
}

/// Runs a command that needs a cluster.
pub(crate) async fn run_on(
    cluster: &Cluster,
    command: &Command,
    printer: Printer,
) -> Result<ExitCode> {
    let succeeded = |()| ExitCode::SUCCESS;
    let done = match command {
        Command::Why(arguments) => {
            return Box::pin(why::why(cluster, printer, arguments)).await;
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
        Command::Suspend { vm, dry_run } => power::suspend(cluster, printer, vm, *dry_run).await,
        Command::Resume {
            vm,
            discard_state,
            dry_run,
        } => {
            let options = power::Resume {
                discard_state: *discard_state,
                dry_run: *dry_run,
            };
            power::resume(cluster, printer, vm, options).await
        }
        Command::SoftReboot { vmi } => {
            let request = Subresource::of(vmi, "softreboot");
            guest::update(cluster, printer, request, "soft-reboot").await
        }
        Command::Reset { vmi } => {
            guest::update(cluster, printer, Subresource::of(vmi, "reset"), "reset").await
        }
        Command::GuestOsInfo { vmi, printed } => {
            let report = Subresource::of(vmi, "guestosinfo");
            guest::show(cluster, printer, report, printed.output).await
        }
        Command::UserList { vmi, printed } => {
            let report = Subresource::of(vmi, "userlist");
            guest::show(cluster, printer, report, printed.output).await
        }
        Command::FsList { vmi, printed } => {
            let report = Subresource::of(vmi, "filesystemlist");
            guest::show(cluster, printer, report, printed.output).await
        }
        Command::Console { vmi, timeout } => {
            Box::pin(console::console(cluster, printer, vmi, *timeout)).await
        }
        Command::Vnc(flags) => Box::pin(vnc::vnc(cluster, printer, flags)).await,
        Command::PortForward(options) => {
            Box::pin(port_forward::port_forward(cluster, printer, options)).await
        }
        Command::Ui(options) => Box::pin(ui::ui(cluster, printer, options)).await,
        Command::Version { output, .. } => version::version(Some(cluster), printer, *output).await,
        Command::Objects(command) => Box::pin(run_object(cluster, command, printer)).await,
        Command::Completion { .. }
        | Command::Options
        | Command::Create(_)
        | Command::Ssh(_)
        | Command::Scp(_) => Ok(()),
    };
    done.map(succeeded)
}

async fn run_object(cluster: &Cluster, command: &ObjectCommand, printer: Printer) -> Result<()> {
    use ObjectCommand::{
        AddVolume, Adm, Backup, Credentials, EvacuateCancel, Expand, Expose, Guestfs, ImageUpload,
        Logs, MemoryDump, Migrate, MigrateCancel, ObjectGraph, PermittedDevices, RemoveVolume, Run,
        Template, Top, Usbredir, VmExport,
    };
    match command {
        Expose(flags) => expose::expose(cluster, printer, flags).await,
        Expand(flags) => expand::expand(cluster, printer, flags).await,
        Credentials(flags) => credentials::run(cluster, printer, flags).await,
        PermittedDevices { output } => {
            permitted_devices::permitted_devices(cluster, printer, *output).await
        }
        Adm(adm) => {
            let AdmCommand::LogVerbosity(flags) = &adm.command;
            log_verbosity(cluster, printer, flags).await
        }
        Guestfs(flags) => Box::pin(guestfs::guestfs(cluster, printer, flags)).await,
        ImageUpload(flags) => image_upload::image_upload(cluster, printer, flags).await,
        Logs(flags) => logs::logs(cluster, printer, flags).await,
        VmExport(flags) => vm_export::vm_export(cluster, printer, flags).await,
        MemoryDump(flags) => memory_dump::memory_dump(cluster, printer, flags).await,
        AddVolume(flags) => volumes::add(cluster, printer, flags).await,
        RemoveVolume(flags) => volumes::remove(cluster, printer, flags).await,
        Migrate(flags) => migrate::migrate(cluster, printer, flags).await,
        MigrateCancel(flags) => migrate::cancel(cluster, printer, flags).await,
        EvacuateCancel(flags) => migrate::cancel_evacuation(cluster, printer, flags).await,
        ObjectGraph(flags) => object_graph::object_graph(cluster, printer, flags).await,
        Run(flags) => Box::pin(run_vm::run_vm(cluster, printer, flags)).await,
        Backup(flags) => Box::pin(backup::backup(cluster, printer, flags)).await,
        Template(flags) => template::template(cluster, printer, flags).await,
        Top(flags) => top::top(cluster, printer, flags).await,
        Usbredir(flags) => usbredir::usbredir(cluster, printer, flags).await,
    }
}

/// The help text of the flags that all commands have.
fn global_flags() -> String {
    let flags = cli::command();
    let flags = flags.get_arguments().filter(|flag| flag.is_global_set());
    let command = clap::Command::new("virtctl").args(flags.cloned());
    let mut command = command.disable_help_flag(true).help_template("{all-args}");
    command.render_help().to_string()
}

/// The command line without the texts that some shells show beside completions.
fn without_descriptions(command: clap::Command) -> clap::Command {
    let command = command.about("").mut_args(|argument| argument.help(""));
    command.mut_subcommands(without_descriptions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_lists_the_flags_of_all_commands() {
        let text = global_flags();
        for flag in [
            "--kubeconfig <FILE>",
            "--proxy-url <URL>",
            "-n, --namespace",
            "--as-uid <UID>",
        ] {
            assert!(text.contains(flag), "{flag}: {text}");
        }
    }
}
