//! `console`: the terminal joined to the guest's serial port.

use std::{io::IsTerminal, time::Duration};

use anyhow::{Context, Result, bail};
use futures::{SinkExt, StreamExt};
use kube::{
    Api,
    runtime::{WatchStreamExt, watcher},
};
use kubevirt_api::{VirtualMachineInstance, vmi_status::VirtualMachineInstancePhase as Phase};
use tokio::io::AsyncReadExt;
use tokio_tungstenite::tungstenite::Message;

use crate::{
    connect::Cluster,
    printer::Printer,
    subresource::{NotOpened, Stream, open, path},
};

/// Ctrl+]
const ESCAPE: u8 = 0x1d;

pub(crate) async fn console(
    cluster: &Cluster,
    printer: Printer,
    vmi: &str,
    minutes: u64,
) -> Result<()> {
    let path = path(cluster, "virtualmachineinstances", vmi, "console");
    let stream = open_when_running(cluster, printer, (vmi, &path), minutes).await?;
    printer.note(&format!(
        "Successfully connected to {vmi} console. Press Ctrl+] or Ctrl+5 to exit console."
    ));
    let raw = RawMode::enter()?;
    let ended = join(stream, printer).await;
    drop(raw);
    ended
}

/// Opens the stream; when the guest is not there yet, waits for it to run.
pub(crate) async fn open_when_running(
    cluster: &Cluster,
    printer: Printer,
    (vmi, path): (&str, &str),
    minutes: u64,
) -> Result<Stream> {
    let waiting = async {
        loop {
            match open(&cluster.client, path).await {
                Ok(stream) => return Ok(stream),
                Err(NotOpened::Failed(err)) => return Err(err),
                Err(NotOpened::NotRunning(message)) => {
                    printer.note(&format!("Waiting for {vmi} to run ({message})"));
                    running(cluster, vmi).await?;
                }
            }
        }
    };
    match tokio::time::timeout(Duration::from_secs(minutes.saturating_mul(60)), waiting).await {
        Ok(opened) => opened,
        Err(_elapsed) => bail!(
            "{vmi} did not run within {minutes} min; `kubectl describe vmi {vmi}` says what it waits for"
        ),
    }
}

/// Comes back when the VMI runs.
async fn running(cluster: &Cluster, name: &str) -> Result<()> {
    let api: Api<VirtualMachineInstance> =
        Api::namespaced(cluster.client.clone(), &cluster.namespace);
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut seen = std::pin::pin!(watcher(api, config).default_backoff().applied_objects());
    while let Some(vmi) = seen.next().await {
        let vmi = vmi.context("watch the VMI")?;
        match vmi.status.and_then(|status| status.phase) {
            Some(Phase::Running) => return Ok(()),
            Some(Phase::Failed | Phase::Succeeded) => {
                bail!("{name} has ended; start its VM again")
            }
            _ => {}
        }
    }
    bail!("the watch of {name} ended")
}

async fn join(stream: Stream, printer: Printer) -> Result<()> {
    let (mut to_guest, mut from_guest) = stream.split();
    let typing = async {
        let mut stdin = tokio::io::stdin();
        let mut chunk = vec![0; 4096];
        loop {
            let count = stdin
                .read(&mut chunk)
                .await
                .context("read standard input")?;
            let typed = chunk.get(..count).unwrap_or_default();
            if typed.is_empty() {
                // Nothing more will be typed, but the guest may still have much to say.
                return std::future::pending::<Result<()>>().await;
            }
            let escape = typed.iter().position(|byte| *byte == ESCAPE);
            let text = typed
                .get(..escape.unwrap_or(typed.len()))
                .unwrap_or_default();
            if !text.is_empty() {
                to_guest
                    .send(Message::binary(text.to_vec()))
                    .await
                    .context("write to the guest")?;
            }
            if escape.is_some() {
                // Give what was typed the time to arrive: the close comes after it.
                drop(to_guest.close().await);
                return Ok(());
            }
        }
    };
    let printing = async {
        while let Some(message) = from_guest.next().await {
            match message.context("read from the guest")? {
                Message::Binary(bytes) => printer.raw(&bytes).context("write to the terminal")?,
                Message::Close(_) => break,
                _ => {}
            }
        }
        Ok(())
    };
    tokio::select! {
        ended = typing => ended,
        ended = printing => ended,
    }
}

/// The terminal passes every key on, until this is dropped.
struct RawMode {
    entered: bool,
}

impl RawMode {
    fn enter() -> Result<Self> {
        let entered = std::io::stdin().is_terminal();
        if entered {
            crossterm::terminal::enable_raw_mode().context("switch the terminal to raw mode")?;
        }
        Ok(Self { entered })
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        if self.entered {
            // Nothing can be done about a terminal that is gone.
            drop(crossterm::terminal::disable_raw_mode());
        }
    }
}
