//! Waiting until the guest's SSH server answers.

use std::time::Duration;

use anyhow::{Result, bail};
use futures::StreamExt;
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::Message;

use crate::{
    commands::console::wait_until_running,
    connect::Cluster,
    subresource::{self, NotOpened, Stream},
};

/// Time between two attempts.
const PAUSE: Duration = Duration::from_secs(2);
/// For the first bytes of a server that accepts connections.
const GREETING: Duration = Duration::from_secs(10);
/// How every SSH server begins.
const BANNER: &[u8] = b"SSH-";

/// Waits until the guest runs and its SSH server answers.
pub(super) async fn for_ssh(cluster: &Cluster, vm: &str, limit: Duration) -> Result<()> {
    let deadline = Instant::now() + limit;
    let minutes = limit.as_secs() / 60;
    let Ok(runs) = tokio::time::timeout_at(deadline, wait_until_running(cluster, vm)).await else {
        bail!("{vm} did not run within {minutes} min; `virtctl why {vm}` explains why");
    };
    runs?;
    let path = subresource::path(cluster, "virtualmachineinstances", vm, "portforward/22/tcp");
    let mut problem = String::new();
    while Instant::now() < deadline {
        match subresource::open(&cluster.client, &path).await {
            Ok(stream) => {
                if greets(stream).await {
                    return Ok(());
                }
                "port 22 closes the connection".clone_into(&mut problem);
            }
            Err(NotOpened::Missing(message) | NotOpened::NotRunning(message)) => problem = message,
            Err(NotOpened::Failed(err)) => {
                problem = format!("{err:#}");
                // The right is missing, which waiting does not change.
                if problem.contains("is forbidden") {
                    return Err(err);
                }
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
    bail!(
        "{vm} runs, and its SSH server did not answer within {minutes} min ({problem}): look at `virtctl \
         console {vm}`"
    )
}

async fn greets(mut stream: Stream) -> bool {
    let first = async {
        while let Some(Ok(message)) = stream.next().await {
            if let Message::Binary(data) = message {
                return data.starts_with(BANNER);
            }
        }
        false
    };
    tokio::time::timeout(GREETING, first).await.unwrap_or(false)
}
