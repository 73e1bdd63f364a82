//! Our API server in a process of its own: the bench `server` of the crate `embedded-api`.
//!
//! **Invariant**: the process is killed when we end: by [`Ours`]'s drop, or, when we are killed ourselves,
//! by the kernel.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
};

use anyhow::{Context as _, Result, ensure};
use kube::{Client, config::Kubeconfig};
use serde_json::Value;
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
};

use crate::{
    kube_apiserver::{Certificates, ready_client},
    printer::Printer,
    workspace::{cargo, root},
};

/// The allocator's settings of `ferrovirt up`, which sets them by itself.
const ALLOCATOR: [(&str, &str); 3] = [
    ("MALLOC_ARENA_MAX", "1"),
    ("MALLOC_TRIM_THRESHOLD_", "65536"),
    ("MALLOC_MMAP_THRESHOLD_", "65536"),
];

/// The running server and its directory.
pub(super) struct Ours {
    _directory: TempDir,
    process: Child,
    port: u16,
    kubeconfig: Kubeconfig,
    certificates: Certificates,
}

/// Builds the program: as users run it, or quickly.
pub(super) fn build(printer: &Printer, quick: bool) -> Result<PathBuf> {
    printer.line("building our API server");
    let profile = if quick { "dev" } else { "release" };
    // All of the workspace is selected, as elsewhere: another selection would compile everything again.
    let output = std::process::Command::new(cargo())
        .args(["build", "--quiet", "--locked", "--workspace"])
        .args(["--bench", "server", "--profile", profile])
        .arg("--message-format=json-render-diagnostics")
        .current_dir(root())
        .stderr(Stdio::inherit())
        .output()
        .context("run cargo build")?;
    ensure!(output.status.success(), "our API server does not build");
    let text = String::from_utf8(output.stdout).context("read cargo's messages")?;
    let program = text.lines().rev().find_map(executable);
    program.context("cargo names no program of the bench `server`")
}

/// The program that a message of cargo announces.
fn executable(line: &str) -> Option<PathBuf> {
    let message: Value = serde_json::from_str(line).ok()?;
    (message["target"]["name"] == "server").then_some(())?;
    message["executable"].as_str().map(PathBuf::from)
}

impl Ours {
    /// Starts it with its files in a new directory below `parent`. Call it on a thread that lives as long as
    /// the process.
    pub(super) async fn start(program: &Path, parent: &Path) -> Result<Self> {
        let directory = tempfile::Builder::new()
            .prefix("ferrovirt-api-")
            .tempdir_in(parent)
            .with_context(|| format!("make a directory in {}", parent.display()))?;
        let certificates = Certificates::make(directory.path())?;
        let mut process = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(program)
            .arg(directory.path())
            .envs(ALLOCATOR)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .context("start our API server")?;
        let output = process.stdout.take().context("its output is a pipe")?;
        let mut line = String::new();
        BufReader::new(output)
            .read_line(&mut line)
            .await
            .context("read its port")?;
        let port = line.trim().parse();
        let port =
            port.with_context(|| format!("our API server printed {line:?}, not its port"))?;
        Ok(Self {
            _directory: directory,
            process,
            port,
            kubeconfig: certificates.kubeconfig(port)?,
            certificates,
        })
    }

    /// A client, once the server is ready.
    pub(super) async fn client(&self) -> Result<Client> {
        ready_client(&self.kubeconfig).await
    }

    pub(super) const fn kubeconfig(&self) -> &Kubeconfig {
        &self.kubeconfig
    }

    /// A client of this user with a connection of its own. It does not impersonate: limits are those of the account
    /// that authenticates, and an administrator has none.
    pub(super) async fn client_of(&self, user: &str) -> Result<Client> {
        ready_client(&self.certificates.kubeconfig_of(user, self.port)?).await
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    pub(super) fn processes(&self) -> Vec<u32> {
        self.process.id().into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_is_found_in_messages_of_cargo() {
        let line = r#"{"reason":"compiler-artifact","target":{"name":"server"},"executable":"/t/server-1"}"#;
        assert_eq!(executable(line), Some("/t/server-1".into()));
        for other in [
            r#"{"target":{"name":"serving"},"executable":"/t/serving"}"#,
            r#"{"target":{"name":"server"},"executable":null}"#,
            "Compiling",
        ] {
            assert_eq!(executable(other), None, "{other}");
        }
    }
}
