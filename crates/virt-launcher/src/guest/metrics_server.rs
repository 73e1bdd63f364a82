//! The task that offers metrics of the node to the guest. It restarts nothing and holds up nothing: a guest
//! without metrics runs on.

use std::io;
use std::path::PathBuf;

use error_chain::error_chain;
use launcher_channel::DownwardMetrics;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::metrics::Source;

/// Why the disk or the port cannot be prepared.
#[derive(Debug, thiserror::Error)]
#[error("prepare the metrics of the node")]
pub(crate) struct MetricsError(#[from] io::Error);

#[derive(Debug)]
pub(super) struct MetricsServer {
    tasks: TaskTracker,
    running: Option<CancellationToken>,
}

impl MetricsServer {
    pub(super) fn new(tasks: TaskTracker) -> Self {
        Self {
            tasks,
            running: None,
        }
    }

    /// Starts it unless it runs. `qemu` is the file with the process ID of QEMU.
    pub(super) fn start(
        &mut self,
        plan: Option<&DownwardMetrics>,
        qemu: PathBuf,
    ) -> Result<(), MetricsError> {
        let (Some(plan), None) = (plan, &self.running) else {
            return Ok(());
        };
        let source = Source::prepare(plan, qemu)?;
        let stop = CancellationToken::new();
        self.running = Some(stop.clone());
        self.tasks.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = source.serve() => {}
            }
        });
        Ok(())
    }

    /// Goes on for a guest that an earlier launcher has started.
    pub(super) fn adopt(&mut self, plan: Option<&DownwardMetrics>, qemu: PathBuf) {
        if let Err(error) = self.start(plan, qemu) {
            let error = error_chain(&error);
            tracing::warn!(error, "the guest gets no more metrics");
        }
    }

    pub(super) fn stop(&mut self) {
        if let Some(stop) = self.running.take() {
            stop.cancel();
        }
    }
}
