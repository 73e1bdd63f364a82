//! Metrics of the node for the guest, in the format of vhostmd.
//!
//! The guest reads them from a small disk ([`disk`]) or asks for them on a virtio port ([`port`]). Both
//! have the same page ([`page`]), made anew every few seconds from what the kernel shows to every process
//! ([`figures`]).
//!
//! **Invariants**: a guest can ask for the page and for nothing else; what it sends costs bounded memory
//! and a bounded number of responses; the page is plain ASCII without empty lines.

mod disk;
mod figures;
mod page;
mod port;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use backoff::Backoff;
use error_chain::error_chain;
use launcher_channel::DownwardMetrics;
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use self::disk::Disk;
use self::figures::Figures;

/// As in vhostmd.
const REFRESH: Duration = Duration::from_secs(5);

/// What the metrics are made from and where they go.
#[derive(Debug)]
pub(crate) struct Source {
    plan: DownwardMetrics,
    /// The file with the process ID of QEMU.
    qemu: PathBuf,
    disk: Option<Disk>,
}

impl Source {
    /// Makes the disk and the directory of the socket, before QEMU opens them.
    pub(crate) fn prepare(plan: &DownwardMetrics, qemu: PathBuf) -> io::Result<Self> {
        if let Some(directory) = plan
            .port
            .as_deref()
            .and_then(|path| Path::new(path).parent())
        {
            std::fs::create_dir_all(directory)?;
        }
        let disk = plan.disk.as_deref().map(Path::new);
        let mut source = Self {
            plan: plan.clone(),
            qemu,
            disk: disk.map(Disk::open).transpose()?,
        };
        source.refresh()?;
        Ok(source)
    }

    /// Keeps the disk current and answers requests, forever.
    pub(crate) async fn serve(mut self) {
        let (pages, current) = watch::channel(self.page());
        let port = self.plan.port.clone().map(PathBuf::from);
        let mut ticks = interval_at(Instant::now() + REFRESH, REFRESH);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut failed = false;
        let refresh = async {
            loop {
                ticks.tick().await;
                match self.refresh() {
                    Ok(page) => {
                        pages.send_replace(page);
                        failed = false;
                    }
                    // Once, not every few seconds.
                    Err(error) if !failed => {
                        let error = error_chain(&error);
                        tracing::warn!(error, "failed to write metrics for the guest");
                        failed = true;
                    }
                    Err(_) => {}
                }
            }
        };
        tokio::join!(refresh, async {
            if let Some(path) = port {
                keep_answering(&path, current).await;
            }
        });
    }

    /// Writes the current page to the disk.
    fn refresh(&mut self) -> io::Result<String> {
        let page = self.page();
        if let Some(disk) = &mut self.disk {
            disk.write(page.as_bytes())?;
        }
        Ok(page)
    }

    fn page(&self) -> String {
        page::render(&self.plan, &Figures::read(&self.qemu))
    }
}

/// Connects again whenever QEMU closes the socket, and until it has made it.
async fn keep_answering(path: &Path, pages: watch::Receiver<String>) {
    let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1));
    loop {
        match UnixStream::connect(path).await {
            Ok(stream) => {
                tracing::debug!("connected to the guest's port for metrics");
                backoff.reset();
                let error = port::answer(stream, pages.clone()).await;
                let error = error.as_ref().err().map(|error| error_chain(error));
                tracing::debug!(error, "the guest's port for metrics is closed");
            }
            Err(error) => tracing::debug!(%error, "the guest has no port for metrics yet"),
        }
        tokio::time::sleep(backoff.pause()).await;
    }
}
