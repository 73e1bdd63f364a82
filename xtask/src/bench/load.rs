//! The program of `xtask/guest-load`, built for a guest and as a disk.

use std::{
    fs,
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use anyhow::{Context as _, Result};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::workspace::{root, run_quietly};

/// Guests have no libraries.
const TARGET: &str = "x86_64-unknown-linux-musl";
const SECTOR: u64 = 512;

/// The program; its files end with it.
#[derive(Debug)]
pub(super) struct Load {
    pub(super) program: PathBuf,
    /// The same, as long as a disk may be.
    pub(super) disk: PathBuf,
    pub(super) directory: TempDir,
}

impl Load {
    pub(super) fn build() -> Result<Self> {
        let directory = tempfile::Builder::new()
            .prefix("ferrovirt-load-")
            .tempdir()
            .context("make a directory for the load")?;
        let program = directory.path().join("load");
        let mut build = Command::new("rustc");
        build.args(["--edition", "2024", "--target", TARGET, "-O"]);
        build.args(["-C", "strip=symbols", "-o"]).arg(&program);
        run_quietly(build.arg(root().join("xtask/guest-load/main.rs")))?;
        let disk = directory.path().join("load.raw");
        let size = fs::copy(&program, &disk).context("make a disk of the load")?;
        let file = fs::OpenOptions::new().write(true).open(&disk)?;
        file.set_len(size.next_multiple_of(SECTOR))?;
        Ok(Self {
            program,
            disk,
            directory,
        })
    }

    /// The other end of the guests' connections, and its port on all addresses of the host.
    pub(super) async fn serve(&self) -> Result<(Server, u16)> {
        let mut child = tokio::process::Command::new(&self.program)
            .args(["serve", "0.0.0.0:0"])
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("start the other end")?;
        let output = child.stdout.take().context("read the other end")?;
        let mut line = String::new();
        BufReader::new(output)
            .read_line(&mut line)
            .await
            .context("read the other end")?;
        let port = line.trim().strip_prefix("load: ").unwrap_or_default();
        let port = port
            .parse()
            .with_context(|| format!("{line:?} is no port"))?;
        Ok((Server { _child: child }, port))
    }
}

/// Killed on drop.
#[derive(Debug)]
pub(super) struct Server {
    _child: tokio::process::Child,
}

/// A program that is killed and waited for on drop.
#[derive(Debug)]
pub(super) struct Owned(pub(super) Child);

impl Drop for Owned {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}
