//! `vnc`: the guest's screen on a local port, and a viewer for it.

use std::{ffi::OsString, net::SocketAddr, path::PathBuf};

use anyhow::{Context, Result, bail};
use futures::{SinkExt, StreamExt};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    process::Command,
};
use tokio_tungstenite::tungstenite::Message;

use super::{
    console::{Endpoint, check_expected, open_when_running},
    screenshot,
};
use crate::{
    cli::{Vnc, VncCommand, VncType},
    connect::Cluster,
    ports,
    printer::Printer,
    subresource::{Stream, close_reason, path},
};

/// How many minutes to wait for a guest that does not run yet.
const WAIT_MINUTES: u64 = 5;
/// Programs of each type of viewer, in order of preference.
const VIEWERS: [(VncType, &str); 6] = [
    (VncType::RemoteViewer, "remote-viewer"),
    (VncType::Tiger, "xtigervncviewer"),
    (VncType::Real, "vncviewer"),
    (VncType::Tiger, "vncviewer"),
    (VncType::Tiger, "gvncviewer"),
    (
        VncType::Chicken,
        "/Applications/Chicken.app/Contents/MacOS/Chicken",
    ),
];

pub(crate) async fn vnc(cluster: &Cluster, printer: Printer, flags: &Vnc) -> Result<()> {
    if let Some(VncCommand::Screenshot(options)) = &flags.command {
        return screenshot::screenshot(cluster, printer, options).await;
    }
    let vmi = flags.vmi.as_deref().context("name the VM or VMI")?;
    check_expected(cluster, vmi).await?;
    let at = SocketAddr::new(flags.address, flags.port);
    let listener = TcpListener::bind(at)
        .await
        .map_err(|error| ports::not_offered(&at, error))?;
    let address = listener.local_addr().context("read the local port")?;
    if flags.proxy_only {
        printer.line(&json!({"port": address.port()}).to_string());
        return proxy(cluster, printer, flags, listener, Sessions::Many).await;
    }
    let (kind, viewer) = viewer(flags)?;
    let mut child = Command::new(&viewer)
        .args(arguments(kind, address))
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("start {}", viewer.display()))?;
    tokio::select! {
        served = proxy(cluster, printer, flags, listener, Sessions::One) => served,
        ended = child.wait() => {
            let status = ended.context("wait for the viewer")?;
            if status.success() { Ok(()) } else { bail!("the viewer ended with {status}") }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sessions {
    One,
    Many,
}

async fn proxy(
    cluster: &Cluster,
    printer: Printer,
    flags: &Vnc,
    listener: TcpListener,
    sessions: Sessions,
) -> Result<()> {
    let vmi = flags.vmi.as_deref().unwrap_or_default();
    let mut path = path(cluster, "virtualmachineinstances", vmi, "vnc");
    if flags.preserve_session {
        path.push_str("?preserveSession=true");
    }
    loop {
        let (viewer, _) = listener.accept().await.context("accept the viewer")?;
        let stream = open_when_running(
            cluster,
            printer,
            Endpoint { vmi, path: &path },
            WAIT_MINUTES,
        )
        .await?;
        let closed = join(stream, viewer).await;
        match (closed, sessions) {
            (Some(reason), Sessions::One) => bail!("the screen of {vmi} was closed: {reason}"),
            (Some(reason), Sessions::Many) => {
                printer.note(&format!("the screen of {vmi} was closed: {reason}"));
            }
            (None, Sessions::One) => return Ok(()),
            (None, Sessions::Many) => {}
        }
    }
}

/// Copies until either side ends; returns why the guest's side was closed, if it was not as usual.
async fn join(stream: Stream, viewer: TcpStream) -> Option<String> {
    let (mut to_guest, mut from_guest) = stream.split();
    let (mut from_viewer, mut to_viewer) = viewer.into_split();
    let inward = async {
        let mut chunk = vec![0; 32 << 10];
        while let Ok(count @ 1..) = from_viewer.read(&mut chunk).await {
            let bytes = chunk.get(..count).unwrap_or_default().to_vec();
            if to_guest.send(Message::binary(bytes)).await.is_err() {
                return;
            }
        }
        // The guest's side may be closed already.
        drop(to_guest.close().await);
    };
    let outward = async {
        while let Some(Ok(message)) = from_guest.next().await {
            match message {
                Message::Binary(bytes) => to_viewer.write_all(&bytes).await.ok()?,
                Message::Close(frame) => return close_reason(frame.as_ref()),
                _ => {}
            }
        }
        None
    };
    tokio::select! {
        () = inward => None,
        reason = outward => reason,
    }
}

/// The viewer to start and its type, which decides its arguments.
fn viewer(flags: &Vnc) -> Result<(VncType, PathBuf)> {
    if let Some(path) = &flags.vnc_path {
        let remote = path.file_name().is_some_and(|name| name == "remote-viewer");
        let guessed = if remote {
            VncType::RemoteViewer
        } else {
            VncType::Tiger
        };
        return Ok((flags.vnc_type.unwrap_or(guessed), path.clone()));
    }
    let candidates = VIEWERS
        .iter()
        .filter(|(kind, _)| flags.vnc_type.is_none_or(|one| one == *kind));
    let mut names = vec![];
    for (kind, name) in candidates {
        if let Some(path) = find_program(name) {
            return Ok((*kind, path));
        }
        names.push(*name);
    }
    bail!(
        "find a VNC viewer ({}): install one, name it by --vnc-path, or use --proxy-only",
        names.join(", ")
    )
}

/// The program in `PATH`; an absolute path is kept.
fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let mut files = std::env::split_paths(&path).map(|dir| dir.join(name));
    files.find(|file| file.is_file())
}

fn arguments(kind: VncType, address: SocketAddr) -> Vec<OsString> {
    let (ip, port) = (address.ip(), address.port());
    let argument = match kind {
        VncType::RemoteViewer => format!("vnc://{address}"),
        VncType::Tiger | VncType::Real => format!("{ip}::{port}"),
        VncType::Chicken => format!("{ip}:{port}"),
    };
    vec![argument.into()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn viewers_get_the_address_in_their_own_form() {
        let address: SocketAddr = "127.0.0.1:5900".parse().unwrap();
        for (kind, argument) in [
            (VncType::RemoteViewer, "vnc://127.0.0.1:5900"),
            (VncType::Tiger, "127.0.0.1::5900"),
            (VncType::Real, "127.0.0.1::5900"),
            (VncType::Chicken, "127.0.0.1:5900"),
        ] {
            assert_eq!(arguments(kind, address), [argument]);
        }
    }
}
