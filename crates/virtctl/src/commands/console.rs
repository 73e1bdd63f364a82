//! `console`: connects the terminal to the guest's serial port.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures::{SinkExt, StreamExt, stream::SplitStream};
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
    subresource::{NotOpened, Stream, close_reason, open_device, path, plain},
    terminal::RawMode,
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
    let stream =
        open_when_running(cluster, printer, Endpoint { vmi, path: &path }, minutes).await?;
    printer.note(&format!(
        "Successfully connected to {vmi} console. Press Ctrl+] or Ctrl+5 to exit console."
    ));
    let raw = RawMode::enter()?;
    let ended = join(stream, printer, vmi).await;
    drop(raw);
    ended
}

/// A stream of a guest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Endpoint<'a> {
    pub(crate) vmi: &'a str,
    pub(crate) path: &'a str,
}

/// Opens the stream; waits for the guest if it does not run yet.
pub(crate) async fn open_when_running(
    cluster: &Cluster,
    printer: Printer,
    Endpoint { vmi, path }: Endpoint<'_>,
    minutes: u64,
) -> Result<Stream> {
    let waiting = async {
        let mut has_run = false;
        loop {
            let message = match open_device(&cluster.client, path).await {
                Ok(opened) => {
                    if opened.has_replaced {
                        printer.note(&format!(
                            "Another session to {vmi} was open here and was closed for this one"
                        ));
                    }
                    return Ok(opened.stream);
                }
                Err(NotOpened::Failed(err)) => return Err(err),
                // The guest runs, so waiting would not help.
                Err(NotOpened::NotRunning(message)) if has_run => bail!(message),
                Err(NotOpened::NotRunning(message)) => message,
                Err(NotOpened::Missing(message)) => {
                    check_expected(cluster, vmi).await?;
                    message
                }
            };
            printer.note(&format!("Waiting for {vmi} to run ({message})"));
            wait_until_running(cluster, vmi).await?;
            has_run = true;
        }
    };
    match tokio::time::timeout(Duration::from_secs(minutes.saturating_mul(60)), waiting).await {
        Ok(opened) => opened,
        Err(_elapsed) => {
            bail!("{vmi} did not run within {minutes} min; `virtctl why {vmi}` explains why")
        }
    }
}

/// Fails if the guest does not exist and will not be started.
pub(crate) async fn check_expected(cluster: &Cluster, name: &str) -> Result<()> {
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

/// Whether the VM is off and no start was requested.
fn is_off(vm: &VirtualMachine) -> bool {
    let halted = vm.spec.run_strategy == Some(Strategy::Halted) || vm.spec.running == Some(false);
    let status = vm.status.as_ref();
    halted && status.is_none_or(|status| status.state_change_requests.is_empty())
}

/// Waits until the VMI runs.
pub(crate) async fn wait_until_running(cluster: &Cluster, name: &str) -> Result<()> {
    let api: Api<VirtualMachineInstance> =
        Api::namespaced(cluster.client.clone(), &cluster.namespace);
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut updates = std::pin::pin!(watcher(api, config).default_backoff().applied_objects());
    while let Some(vmi) = updates.next().await {
        match progress(&vmi.context("watch the VMI")?) {
            Progress::Pending => {}
            Progress::Running => return Ok(()),
            Progress::Ended => bail!("{name} has ended; start its VM again"),
        }
    }
    bail!("the watch of {name} ended")
}

#[derive(Debug, PartialEq, Eq)]
enum Progress {
    Pending,
    Running,
    Ended,
}

/// A VMI that is being deleted counts as pending: a restart creates its successor under the same name.
fn progress(vmi: &VirtualMachineInstance) -> Progress {
    if vmi.metadata.deletion_timestamp.is_some() {
        return Progress::Pending;
    }
    match vmi.status.as_ref().and_then(|status| status.phase.as_ref()) {
        Some(Phase::Running) => Progress::Running,
        Some(Phase::Failed | Phase::Succeeded) => Progress::Ended,
        _ => Progress::Pending,
    }
}

async fn join(stream: Stream, printer: Printer, vmi: &str) -> Result<()> {
    let (mut to_guest, from_guest) = stream.split();
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
                // Standard input ended, but the guest may still print.
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
                // The close frame is sent after all input.
                drop(to_guest.close().await);
                return Ok(());
            }
        }
    };
    tokio::select! {
        ended = typing => ended,
        ended = print(from_guest, printer, vmi) => ended,
    }
}

/// Prints what the guest sends, and says why it ends.
async fn print(mut from_guest: SplitStream<Stream>, printer: Printer, vmi: &str) -> Result<()> {
    // The user sees the same whether the stream ends or fails: the console is closed.
    while let Some(Ok(message)) = from_guest.next().await {
        match message {
            Message::Binary(bytes) => printer.raw(&bytes).context("write to the terminal")?,
            Message::Close(frame) => match close_reason(frame.as_ref()) {
                Some(reason) => bail!("the console of {vmi} was closed: {reason}"),
                None => break,
            },
            _ => {}
        }
    }
    bail!(
        "the console of {vmi} was closed: the guest was switched off, or the connection \
         broke"
    )
}

#[cfg(test)]
mod tests {
    use kubevirt_api::vm_status::{VirtualMachineStateChangeRequest, VirtualMachineStatus};

    use tokio::net::TcpListener;
    use tokio_tungstenite::tungstenite::protocol::{CloseFrame, frame::coding::CloseCode};

    use super::*;
    use crate::streams_server;

    /// Both sides of a console that took the place of another, and is replaced itself.
    #[tokio::test]
    async fn both_sessions_of_a_console_learn_that_one_was_closed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        let client = kube::Client::try_from(kube::Config::new(server.parse().unwrap())).unwrap();
        let serve = async {
            let (mut stream, _) = streams_server::accept_replacing(&listener, "console").await;
            let reason = "EOF: another session to this device was opened".into();
            let code = CloseCode::Away;
            let closed = Message::Close(Some(CloseFrame { code, reason }));
            stream.send(closed).await.unwrap();
            while let Some(Ok(_)) = stream.next().await {}
        };
        let session = async {
            let opened = open_device(&client, "/console").await;
            let Ok(opened) = opened else {
                panic!("not opened");
            };
            assert!(opened.has_replaced);
            let (_, from_guest) = opened.stream.split();
            print(from_guest, Printer, "a").await.unwrap_err()
        };
        let (error, ()) = tokio::join!(session, serve);
        assert_eq!(
            error.to_string(),
            "the console of a was closed: another session to this device was opened"
        );
    }

    #[test]
    fn halted_vm_is_off_until_a_start_is_requested() {
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
    fn vmi_that_is_being_deleted_counts_as_pending() {
        for (phase, deleted, expected) in [
            (Phase::Scheduling, false, Progress::Pending),
            (Phase::Running, false, Progress::Running),
            (Phase::Failed, false, Progress::Ended),
            (Phase::Running, true, Progress::Pending),
            (Phase::Succeeded, true, Progress::Pending),
        ] {
            let mut object = serde_json::json!({"metadata": {}, "status": {"phase": phase}});
            if deleted {
                object["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z".into();
            }
            let vmi = serde_json::from_value(object).expect("a VMI");
            assert_eq!(progress(&vmi), expected, "{phase:?} {deleted}");
        }
    }
}
