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

use super::console::{Endpoint, check_expected, open_when_running};
use crate::{
    cli::Vnc,
    connect::Cluster,
    printer::Printer,
    subresource::{Stream, path},
};

/// How many minutes to wait for a guest that does not run yet.
const WAIT_MINUTES: u64 = 5;
/// VNC viewers, in order of preference.
const VIEWERS: [&str; 4] = [
    "remote-viewer",
    "vncviewer",
    "xtigervncviewer",
    "gvncviewer",
];

pub(crate) async fn vnc(cluster: &Cluster, printer: Printer, flags: &Vnc) -> Result<()> {
    check_expected(cluster, &flags.vmi).await?;
    let listener = TcpListener::bind((flags.address, flags.port))
        .await
        .with_context(|| format!("listen on {}:{}", flags.address, flags.port))?;
    let address = listener.local_addr().context("read the local port")?;
    if flags.proxy_only {
        printer.line(&json!({"port": address.port()}).to_string());
        return proxy(cluster, printer, flags, listener, Sessions::Many).await;
    }
    let viewer = match &flags.vnc_path {
        Some(path) => path.clone(),
        None => find_viewer().with_context(|| {
            format!(
                "find a VNC viewer ({}): install one, name it by --vnc-path, or use --proxy-only",
                VIEWERS.join(", ")
            )
        })?,
    };
    let mut child = Command::new(&viewer)
        .args(arguments(&viewer, address))
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
    let mut path = path(cluster, "virtualmachineinstances", &flags.vmi, "vnc");
    if flags.preserve_session {
        path.push_str("?preserveSession=true");
    }
    loop {
        let (viewer, _) = listener.accept().await.context("accept the viewer")?;
        let stream = open_when_running(
            cluster,
            printer,
            Endpoint {
                vmi: &flags.vmi,
                path: &path,
            },
            WAIT_MINUTES,
        )
        .await?;
        join(stream, viewer).await;
        if sessions == Sessions::One {
            return Ok(());
        }
    }
}

/// Copies until either side ends.
async fn join(stream: Stream, viewer: TcpStream) {
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
            if let Message::Binary(bytes) = message
                && to_viewer.write_all(&bytes).await.is_err()
            {
                return;
            }
        }
    };
    tokio::select! {
        () = inward => {}
        () = outward => {}
    }
}

fn find_viewer() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let found = |name: &&str| {
        std::env::split_paths(&path)
            .map(|dir| dir.join(name))
            .find(|file| file.is_file())
    };
    VIEWERS.iter().find_map(found)
}

fn arguments(viewer: &std::path::Path, address: SocketAddr) -> Vec<OsString> {
    if viewer
        .file_name()
        .is_some_and(|name| name == "remote-viewer")
    {
        vec![format!("vnc://{address}").into()]
    } else {
        vec![format!("{}::{}", address.ip(), address.port()).into()]
    }
}
