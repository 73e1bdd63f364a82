//! Runs the SSH client.

use std::{ffi::OsString, process::ExitCode};

use anyhow::{Context, Result};

use super::{
    arguments::{self, Surroundings},
    cli::{Scp, Ssh},
};
use crate::cli::Connection;

/// Runs `ssh`; the exit code is that of the command in the guest.
pub(crate) async fn ssh(connection: &Connection, namespace: &str, flags: &Ssh) -> Result<ExitCode> {
    let program = std::env::current_exe().context("find this program")?;
    let around = Surroundings {
        namespace,
        program: &program,
        connection,
    };
    run("ssh", arguments::ssh(flags, &around)).await
}

pub(crate) async fn scp(connection: &Connection, namespace: &str, flags: &Scp) -> Result<ExitCode> {
    let program = std::env::current_exe().context("find this program")?;
    let around = Surroundings {
        namespace,
        program: &program,
        connection,
    };
    run("scp", arguments::scp(flags, &around)?).await
}

async fn run(client: &str, arguments: Vec<OsString>) -> Result<ExitCode> {
    let status = tokio::process::Command::new(client)
        .args(arguments)
        .status()
        .await
        .with_context(|| format!("start {client}: install the OpenSSH client"))?;
    // A client that a signal ended has no code.
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}
