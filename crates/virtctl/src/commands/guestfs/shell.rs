//! The terminal and the shell of the pod.

use std::io::IsTerminal;

use anyhow::{Context, Result, bail};
use futures::SinkExt;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{AttachParams, AttachedProcess, TerminalSize},
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::pod::CONTAINER;
use crate::{
    connect::Cluster,
    subresource::plain,
    terminal::{self, RawMode, Resizes},
};

/// Ctrl+D, which ends the input of a shell on a terminal.
const END: u8 = 4;

/// Connects standard input and output to the shell until it ends.
pub(super) async fn attach(cluster: &Cluster, pod: &str) -> Result<()> {
    let process = open(cluster, pod).await?;
    let raw = RawMode::enter()?;
    let local = Local {
        input: tokio::io::stdin(),
        output: tokio::io::stdout(),
        has_terminal: std::io::stdin().is_terminal(),
    };
    let ended = join(process, local).await;
    drop(raw);
    ended
}

async fn open(cluster: &Cluster, pod: &str) -> Result<AttachedProcess> {
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
    let parameters = AttachParams::interactive_tty().container(CONTAINER);
    let opened = pods.attach(pod, &parameters).await.map_err(plain);
    opened.with_context(|| format!("attach to pod {pod}"))
}

/// The side of this process.
struct Local<I, O> {
    input: I,
    output: O,
    has_terminal: bool,
}

async fn join(
    mut process: AttachedProcess,
    mut local: Local<impl AsyncRead + Unpin, impl AsyncWrite + Unpin>,
) -> Result<()> {
    let mut to_shell = process.stdin().context("open the input of the shell")?;
    let mut from_shell = process.stdout().context("open the output of the shell")?;
    let mut sizes = process.terminal_size().filter(|_| local.has_terminal);
    let typing = async {
        let mut chunk = vec![0; 4096];
        loop {
            let count = local
                .input
                .read(&mut chunk)
                .await
                .context("read standard input")?;
            let typed = chunk.get(..count).unwrap_or_default();
            let typed = if typed.is_empty() { &[END] } else { typed };
            to_shell
                .write_all(typed)
                .await
                .context("write to the shell")?;
            to_shell.flush().await.context("write to the shell")?;
            if count == 0 {
                // The shell may still print.
                return std::future::pending::<Result<()>>().await;
            }
        }
    };
    let sizing = async {
        let Some(sizes) = &mut sizes else {
            return std::future::pending::<Result<()>>().await;
        };
        let mut changes = Resizes::watch()?;
        loop {
            let (width, height) = terminal::size()?;
            let sent = sizes.send(TerminalSize { width, height }).await;
            sent.context("send the terminal's size")?;
            changes.next().await?;
        }
    };
    let printing = async {
        let mut chunk = vec![0; 4096];
        loop {
            let count = from_shell
                .read(&mut chunk)
                .await
                .context("read from the shell")?;
            if count == 0 {
                return Ok(());
            }
            let printed = chunk.get(..count).unwrap_or_default();
            local
                .output
                .write_all(printed)
                .await
                .context("write to the terminal")?;
            local
                .output
                .flush()
                .await
                .context("write to the terminal")?;
        }
    };
    let ended = tokio::select! {
        ended = typing => ended,
        ended = sizing => ended,
        ended = printing => ended,
    };
    ended?;
    let status = process.take_status();
    let Some(status) = (match status {
        Some(status) => status.await,
        None => None,
    }) else {
        bail!("the connection to the shell broke");
    };
    if status.status.as_deref() == Some("Failure") {
        bail!("the shell failed: {}", status.message.unwrap_or_default());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use futures::{SinkExt, StreamExt};
    use tokio::net::TcpListener;
    use tokio_tungstenite::tungstenite::Message;

    use super::*;
    use crate::{proxy::Proxies, streams_server};

    const OUTPUT: u8 = 1;
    const STATUS: u8 = 3;

    /// Takes one connection, reads until Ctrl+D, echoes what it read, and ends with this status.
    async fn shell(listener: TcpListener, status: Option<&str>) -> String {
        let (mut stream, path) = streams_server::accept(&listener, "v5.channel.k8s.io").await;
        let mut typed = vec![];
        while typed.last() != Some(&END) {
            if let Message::Binary(bytes) = stream.next().await.unwrap().unwrap()
                && let Some((0, input)) = bytes.split_first()
            {
                typed.extend_from_slice(input);
            }
        }
        let frame = |channel: u8, text: &[u8]| Message::binary([&[channel], text].concat());
        stream.send(frame(OUTPUT, &typed)).await.unwrap();
        if let Some(status) = status {
            stream.send(frame(STATUS, status.as_bytes())).await.unwrap();
        }
        stream.close(None).await.unwrap();
        path
    }

    async fn session(status: Option<&str>) -> (Result<()>, Vec<u8>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        let client = kube::Client::try_from(kube::Config::new(server.parse().unwrap())).unwrap();
        let cluster = Cluster {
            client,
            namespace: "tests".to_owned(),
            proxies: Proxies::default(),
        };
        let mut output = vec![];
        let local = Local {
            input: &b"ls\n"[..],
            output: &mut output,
            has_terminal: false,
        };
        let attached = async {
            let process = open(&cluster, "libguestfs-tools-data").await.unwrap();
            join(process, local).await
        };
        let (ended, path) = tokio::join!(attached, shell(listener, status));
        (ended, output, path)
    }

    #[tokio::test]
    async fn input_reaches_the_shell_and_its_end_ends_the_session() {
        let (ended, output, path) = session(Some(r#"{"status":"Success"}"#)).await;
        ended.unwrap();
        assert_eq!(output, b"ls\n\x04");
        let start = "/api/v1/namespaces/tests/pods/libguestfs-tools-data/attach?";
        assert!(
            path.starts_with(start) && path.contains("container=libguestfs"),
            "{path}"
        );
        assert!(
            path.contains("tty=true") && path.contains("stdin=true"),
            "{path}"
        );
    }

    #[tokio::test]
    async fn failure_and_broken_connection_are_errors() {
        let failed = r#"{"status":"Failure","message":"no container"}"#;
        let (ended, _, _) = session(Some(failed)).await;
        assert_eq!(
            ended.unwrap_err().to_string(),
            "the shell failed: no container"
        );
        let (ended, _, _) = session(None).await;
        assert_eq!(
            ended.unwrap_err().to_string(),
            "the connection to the shell broke"
        );
    }
}
