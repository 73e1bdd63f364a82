//! Runs the SSH client.

use std::{
    ffi::OsString,
    process::{ExitCode, ExitStatus},
};

use anyhow::{Context, Result};
use tokio::process::Command;

use super::{
    arguments::{self, Surroundings},
    cli::{Scp, Ssh},
    goal::goal,
};
use crate::{
    cli::Connection,
    files::Draft,
    signals::{Interrupted, Signals},
    terminal::Settings,
};

/// Runs `ssh`; the exit code is that of the command in the guest.
pub(crate) async fn ssh(connection: &Connection, namespace: &str, flags: &Ssh) -> Result<ExitCode> {
    let program = std::env::current_exe().context("find this program")?;
    let around = Surroundings {
        namespace,
        program: &program,
        connection,
    };
    let status = run("ssh", arguments::ssh(flags, &around)).await?;
    Ok(exit_code(status))
}

/// Runs `scp`. One file or new directory from a guest has its name only when all of it is there.
pub(crate) async fn scp(connection: &Connection, namespace: &str, flags: &Scp) -> Result<ExitCode> {
    let program = std::env::current_exe().context("find this program")?;
    let around = Surroundings {
        namespace,
        program: &program,
        connection,
    };
    let draft = match goal(flags) {
        Some(goal) => Draft::beside(&goal)?,
        None => None,
    };
    let path = draft.as_ref().map(Draft::path);
    let status = run("scp", arguments::scp(flags, path, &around)?).await?;
    if let Some(draft) = draft.filter(|_| status.success()) {
        draft.complete()?;
    }
    Ok(exit_code(status))
}

/// Runs the client until it ends. Signals go to it, and the terminal is left as it was, whatever the client did.
async fn run(client: &str, arguments: Vec<OsString>) -> Result<ExitStatus> {
    let _terminal = Settings::save();
    let mut signals = Signals::watch()?;
    let mut child = Command::new(client)
        .args(arguments)
        .spawn()
        .with_context(|| format!("start {client}: install the OpenSSH client"))?;
    let mut first = None;
    let status = loop {
        tokio::select! {
            status = child.wait() => break status,
            signal = signals.next() => {
                let signal = signal?;
                first.get_or_insert(signal);
                // The terminal sends it, too; a second one changes nothing.
                if let Some(id) = child.id() {
                    signal.send_to(id);
                }
            }
        }
    };
    let status = status.with_context(|| format!("wait for {client}"))?;
    match first {
        Some(signal) => Err(Interrupted(signal).into()),
        None => Ok(status),
    }
}

#[cfg(unix)]
fn exit_code(status: ExitStatus) -> ExitCode {
    use std::os::unix::process::ExitStatusExt;
    let of_signal = status.signal().map(|signal| 128 + signal);
    let code = status
        .code()
        .or(of_signal)
        .and_then(|code| u8::try_from(code).ok());
    code.map_or(ExitCode::FAILURE, ExitCode::from)
}

#[cfg(not(unix))]
fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    code.map_or(ExitCode::FAILURE, ExitCode::from)
}
