//! The standard input of a running container.

use std::{
    io,
    path::{Path, PathBuf},
    pin::Pin,
    task::{Context, Poll},
};

use pod_supervisor::{layout, protocol::Request};
use tokio::{
    io::AsyncWrite,
    net::unix::pipe::{OpenOptions, Sender},
};
use tokio_util::task::TaskTracker;

use crate::{exec, node::Shared, supervisor};

/// Opens the standard input of that run of a container.
pub(super) fn open(
    shared: &Shared,
    pod_dir: &Path,
    (container, attempt): (&str, u32),
) -> io::Result<exec::Input> {
    let pipe = pod_dir.join(layout::stdin_pipe(container, attempt));
    Ok(Box::pin(Input {
        pipe: OpenOptions::new().open_sender(pipe)?,
        pod_dir: pod_dir.to_owned(),
        container: container.to_owned(),
        tasks: shared.children.clone(),
    }))
}

/// The end of this writer ends the input of a container that has it for one writer.
struct Input {
    pipe: Sender,
    pod_dir: PathBuf,
    container: String,
    tasks: TaskTracker,
}

impl Drop for Input {
    fn drop(&mut self) {
        let request = Request::CloseStdin {
            container: std::mem::take(&mut self.container),
        };
        let pod_dir = std::mem::take(&mut self.pod_dir);
        self.tasks.spawn(async move {
            // The pod may be over.
            if let Err(error) = supervisor::request(&pod_dir, &request).await {
                tracing::debug!(%error, "standard input cannot be closed");
            }
        });
    }
}

impl AsyncWrite for Input {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.pipe).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_shutdown(cx)
    }
}
