//! `console`: the terminal joined to the guest's serial port.

use std::{io::IsTerminal, time::Duration};

use anyhow::{Context, Result, bail};
use futures::{SinkExt, StreamExt};
use kube::{
    Api,
    runtime::{WatchStreamExt, watcher},
};
use kubevirt_api::{
    VirtualMachine, VirtualMachineInstance, vm::VirtualMachineRunStrategy as Strategy,
    vmi_status::VirtualMachineInstancePhase as Phase,
};
use tokio::io::AsyncReadExt;
use tokio_tungstenite::tungstenite::Message;

use crate::{
    connect::Cluster,
    printer::Printer,
    subresource::{NotOpened, Stream, open, path, plain},
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
    let ended = join(stream, printer, vmi).await;
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
        let mut ran = false;
        loop {
            let message = match open(&cluster.client, path).await {
                Ok(stream) => return Ok(stream),
                Err(NotOpened::Failed(err)) => return Err(err),
                // It runs, so waiting would not help.
                Err(NotOpened::NotRunning(message)) if ran => bail!(message),
                Err(NotOpened::NotRunning(message)) => message,
                Err(NotOpened::Missing(message)) => {
                    expected(cluster, vmi).await?;
                    message
                }
            };
            printer.note(&format!("Waiting for {vmi} to run ({message})"));
            running(cluster, vmi).await?;
            ran = true;
        }
    };
    match tokio::time::timeout(Duration::from_secs(minutes.saturating_mul(60)), waiting).await {
        Ok(opened) => opened,
        Err(_elapsed) => bail!(
            "{vmi} did not run within {minutes} min; `kubectl describe vmi {vmi}` says what it waits for"
        ),
    }
}

/// Fails when there is no such guest and none will come by itself.
pub(crate) async fn expected(cluster: &Cluster, name: &str) -> Result<()> {
    let vmis: Api<VirtualMachineInstance> =
        Api::namespaced(cluster.client.clone(), &cluster.namespace);
    if vmis.get_metadata_opt(name).await.map_err(plain)?.is_some() {
        return Ok(());
    }
    let vms: Api<VirtualMachine> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
    let Some(vm) = vms.get_opt(name).await.map_err(plain)? else {
        bail!("virtualmachineinstance.kubevirt.io {name:?} not found");
    };
    if is_off(&vm) {
        bail!("VM {name} is not set to run: start it with `virtctl start {name}`");
    }
    Ok(())
}

/// Off, and not asked to start either.
fn is_off(vm: &VirtualMachine) -> bool {
    let halted = vm.spec.run_strategy == Some(Strategy::Halted) || vm.spec.running == Some(false);
    let status = vm.status.as_ref();
    halted && status.is_none_or(|status| status.state_change_requests.is_empty())
}

/// Comes back when the VMI runs.
async fn running(cluster: &Cluster, name: &str) -> Result<()> {
    let api: Api<VirtualMachineInstance> =
        Api::namespaced(cluster.client.clone(), &cluster.namespace);
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut seen = std::pin::pin!(watcher(api, config).default_backoff().applied_objects());
    while let Some(vmi) = seen.next().await {
        match standing(&vmi.context("watch the VMI")?) {
            Standing::Coming => {}
            Standing::Running => return Ok(()),
            Standing::Ended => bail!("{name} has ended; start its VM again"),
        }
    }
    bail!("the watch of {name} ended")
}

#[derive(Debug, PartialEq, Eq)]
enum Standing {
    Coming,
    Running,
    Ended,
}

/// One that is being deleted counts as gone: its successor, which a restart makes under the same
/// name, is the one to wait for.
fn standing(vmi: &VirtualMachineInstance) -> Standing {
    if vmi.metadata.deletion_timestamp.is_some() {
        return Standing::Coming;
    }
    match vmi.status.as_ref().and_then(|status| status.phase.as_ref()) {
        Some(Phase::Running) => Standing::Running,
        Some(Phase::Failed | Phase::Succeeded) => Standing::Ended,
        _ => Standing::Coming,
    }
}

async fn join(stream: Stream, printer: Printer, vmi: &str) -> Result<()> {
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
        // However the other side ends, to the user it is the same: the console is gone.
        while let Some(Ok(message)) = from_guest.next().await {
            match message {
                Message::Binary(bytes) => printer.raw(&bytes).context("write to the terminal")?,
                Message::Close(_) => break,
                _ => {}
            }
        }
        bail!(
            "the console of {vmi} was closed: the guest was switched off, somebody else opened \
             its console, or the connection broke"
        )
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

#[cfg(test)]
mod tests {
    use kubevirt_api::vm_status::{VirtualMachineStateChangeRequest, VirtualMachineStatus};

    use super::*;

    #[test]
    fn a_halted_vm_is_off_until_it_is_asked_to_start() {
        let mut vm = VirtualMachine::default();
        vm.spec.run_strategy = Some(Strategy::Always);
        assert!(!is_off(&vm));
        vm.spec.run_strategy = Some(Strategy::Halted);
        assert!(is_off(&vm));
        vm.status = Some(VirtualMachineStatus {
            state_change_requests: vec![VirtualMachineStateChangeRequest::default()],
            ..Default::default()
        });
        assert!(!is_off(&vm));
    }

    #[test]
    fn an_instance_on_its_way_out_is_not_the_one_to_wait_for() {
        for (phase, deleted, expected) in [
            (Phase::Scheduling, false, Standing::Coming),
            (Phase::Running, false, Standing::Running),
            (Phase::Failed, false, Standing::Ended),
            (Phase::Running, true, Standing::Coming),
            (Phase::Succeeded, true, Standing::Coming),
        ] {
            let mut object = serde_json::json!({"metadata": {}, "status": {"phase": phase}});
            if deleted {
                object["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z".into();
            }
            let vmi = serde_json::from_value(object).expect("a VMI");
            assert_eq!(standing(&vmi), expected, "{phase:?} {deleted}");
        }
    }
}
