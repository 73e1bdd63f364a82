//! A guest by hand: the same QEMU with a plain command line.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow, bail};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::UnixStream,
    time::{sleep, timeout},
};

use super::{
    host,
    load::{Load, Owned},
    qemu::{self, Qemu},
};

const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(20);

/// What it is started with, besides disks and networks.
#[derive(Debug, Clone)]
pub(super) struct Machine {
    /// Of the guest that it is compared with.
    pub(super) arguments: Vec<String>,
    pub(super) mib: u64,
    /// The tiny guest's plain disk.
    pub(super) root: PathBuf,
    /// The load's disk.
    pub(super) load: PathBuf,
}

impl Machine {
    /// The same as a guest of ours has, with the same root and load.
    pub(super) fn like(guest: &Qemu, mib: u64, load: &Load) -> Result<Self> {
        Ok(Self {
            arguments: guest.machine()?,
            mib,
            root: host::images()?.join("guest-tiny.qcow2"),
            load: load.disk.clone(),
        })
    }
}

/// A running QEMU; killed on drop.
#[derive(Debug)]
pub(super) struct ByHand {
    process: Owned,
    directory: TempDir,
}

impl ByHand {
    pub(super) fn start(machine: &Machine, more: &[String]) -> Result<Self> {
        let directory = tempfile::Builder::new()
            .prefix("ferrovirt-hand-")
            .tempdir()
            .context("make a directory for a guest")?;
        let at = |name: &str| directory.path().join(name).display().to_string();
        let mut command = Command::new(qemu::PROGRAM);
        command
            .args(["-nodefaults", "-no-user-config", "-display", "none"])
            .args(&machine.arguments)
            .args(["-m", &format!("{}M", machine.mib)])
            .args(disk("root", &machine.root, "format=qcow2,snapshot=on"))
            .args(disk("load", &machine.load, "format=raw,readonly=on"))
            .args(["-chardev"])
            .arg(format!(
                "socket,id=serial,path={},server=on,wait=off,logfile={}",
                at("serial"),
                at("log")
            ))
            .args(["-serial", "chardev:serial"])
            .args(["-qmp", &format!("unix:{},server=on,wait=off", at("qmp"))])
            .args(more)
            .stdin(Stdio::null());
        let process = command.spawn().context("start QEMU by hand")?;
        Ok(Self {
            process: Owned(process),
            directory,
        })
    }

    pub(super) fn console(&self) -> PathBuf {
        self.directory.path().join("serial")
    }

    /// All that the guest has written on its console.
    pub(super) fn log(&self) -> PathBuf {
        self.directory.path().join("log")
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.0.id()
    }

    pub(super) async fn monitor(&self) -> Result<Monitor> {
        Monitor::connect(&self.directory.path().join("qmp")).await
    }
}

/// Arguments of a virtio disk.
pub(super) fn disk(name: &str, file: &Path, options: &str) -> [String; 4] {
    [
        "-drive".to_owned(),
        format!("if=none,id={name},file={},{options}", file.display()),
        "-device".to_owned(),
        format!("virtio-blk-pci,drive={name}"),
    ]
}

/// QEMU's monitor.
#[derive(Debug)]
pub(super) struct Monitor {
    stream: BufReader<UnixStream>,
}

impl Monitor {
    async fn connect(socket: &Path) -> Result<Self> {
        let connected = async {
            loop {
                match UnixStream::connect(socket).await {
                    Ok(stream) => return stream,
                    // QEMU makes its sockets when it starts.
                    Err(_) => sleep(PAUSE).await,
                }
            }
        };
        let stream = timeout(PATIENCE, connected)
            .await
            .map_err(|_elapsed| anyhow!("QEMU has no monitor after {PATIENCE:?}"))?;
        let mut monitor = Self {
            stream: BufReader::new(stream),
        };
        monitor.line().await?;
        monitor.run("qmp_capabilities", json!({})).await?;
        Ok(monitor)
    }

    pub(super) async fn run(&mut self, name: &str, arguments: Value) -> Result<Value> {
        let command = json!({"execute": name, "arguments": arguments});
        let text = format!("{command}\n");
        self.stream.get_mut().write_all(text.as_bytes()).await?;
        loop {
            let mut answer = self.line().await?;
            if let Some(error) = answer.get("error") {
                bail!("{command}: {error}");
            }
            // Events come between.
            if let Some(value) = answer.get_mut("return") {
                return Ok(value.take());
            }
        }
    }

    async fn line(&mut self) -> Result<Value> {
        let mut line = String::new();
        let read = timeout(PATIENCE, self.stream.read_line(&mut line)).await;
        let read = read.map_err(|_elapsed| anyhow!("QEMU's monitor says nothing"))?;
        if read.context("read QEMU's monitor")? == 0 {
            bail!("QEMU has ended");
        }
        serde_json::from_str(&line).with_context(|| format!("understand {line:?}"))
    }
}
