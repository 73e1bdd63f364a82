//! The terminal of this process.

use std::io::IsTerminal;

use anyhow::{Context, Result};

/// The terminal passes every key to the guest until this is dropped.
pub(crate) struct RawMode {
    entered: bool,
}

impl RawMode {
    pub(crate) fn enter() -> Result<Self> {
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
            // The terminal may be closed already.
            drop(crossterm::terminal::disable_raw_mode());
        }
    }
}

/// Changes of the terminal's size, from the start of the watch.
pub(crate) struct Resizes {
    #[cfg(unix)]
    signal: tokio::signal::unix::Signal,
}

impl Resizes {
    #[cfg(unix)]
    pub(crate) fn watch() -> Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let signal = signal(SignalKind::window_change()).context("watch the terminal's size")?;
        Ok(Self { signal })
    }

    #[cfg(unix)]
    pub(crate) async fn next(&mut self) -> Result<()> {
        self.signal
            .recv()
            .await
            .context("watch the terminal's size")
    }

    /// There is no signal for a change, so the size at the start stays.
    #[cfg(not(unix))]
    pub(crate) fn watch() -> Result<Self> {
        Ok(Self {})
    }

    #[cfg(not(unix))]
    pub(crate) async fn next(&mut self) -> Result<()> {
        std::future::pending().await
    }
}

/// Waits until the user or the system asks this process to end.
#[cfg(unix)]
pub(crate) async fn asked_to_end() -> Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut end = signal(SignalKind::terminate()).context("watch for SIGTERM")?;
    let mut hangup = signal(SignalKind::hangup()).context("watch for SIGHUP")?;
    tokio::select! {
        ended = tokio::signal::ctrl_c() => ended.context("watch for Ctrl+C"),
        _ = end.recv() => Ok(()),
        _ = hangup.recv() => Ok(()),
    }
}

/// Waits until the user asks this process to end.
#[cfg(not(unix))]
pub(crate) async fn asked_to_end() -> Result<()> {
    tokio::signal::ctrl_c().await.context("watch for Ctrl+C")
}
