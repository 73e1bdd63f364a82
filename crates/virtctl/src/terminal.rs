//! The terminal of this process.

use std::io::IsTerminal;

use anyhow::{Context, Result};

/// The terminal passes every key to the guest until this is dropped.
pub(crate) struct RawMode {
    /// `None`: standard input is no terminal.
    #[cfg(unix)]
    _settings: Option<Settings>,
    #[cfg(windows)]
    entered: bool,
}

impl RawMode {
    #[cfg(unix)]
    pub(crate) fn enter() -> Result<Self> {
        use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};
        const FAILED: &str = "switch the terminal to raw mode";
        let stdin = std::io::stdin();
        if !stdin.is_terminal() {
            return Ok(Self { _settings: None });
        }
        let before = tcgetattr(&stdin).context(FAILED)?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(&stdin, OptionalActions::Now, &raw).context(FAILED)?;
        Ok(Self {
            _settings: Some(Settings(Some(before))),
        })
    }

    #[cfg(windows)]
    pub(crate) fn enter() -> Result<Self> {
        let entered = std::io::stdin().is_terminal();
        if entered {
            crossterm::terminal::enable_raw_mode().context("switch the terminal to raw mode")?;
        }
        Ok(Self { entered })
    }
}

#[cfg(windows)]
impl Drop for RawMode {
    fn drop(&mut self) {
        if self.entered {
            // The terminal may be closed already.
            drop(crossterm::terminal::disable_raw_mode());
        }
    }
}

/// Columns and rows of the terminal.
#[cfg(unix)]
pub(crate) fn size() -> Result<(u16, u16)> {
    let size = rustix::termios::tcgetwinsize(std::io::stdin());
    let size = size.context("read the terminal's size")?;
    Ok((size.ws_col, size.ws_row))
}

/// Columns and rows of the terminal.
#[cfg(windows)]
pub(crate) fn size() -> Result<(u16, u16)> {
    crossterm::terminal::size().context("read the terminal's size")
}

/// The settings of the terminal, which are those again when this is dropped: a program that is killed does not
/// restore them.
#[cfg(unix)]
pub(crate) struct Settings(Option<rustix::termios::Termios>);

#[cfg(unix)]
impl Settings {
    pub(crate) fn save() -> Self {
        // Without a terminal there is nothing to restore.
        Self(rustix::termios::tcgetattr(std::io::stdin()).ok())
    }
}

#[cfg(unix)]
impl Drop for Settings {
    fn drop(&mut self) {
        use rustix::termios::{OptionalActions, tcsetattr};
        if let Some(settings) = &self.0 {
            // The terminal may be closed already.
            let _restored = tcsetattr(std::io::stdin(), OptionalActions::Now, settings);
        }
    }
}

/// Programs restore the console of Windows themselves.
#[cfg(not(unix))]
pub(crate) struct Settings;

#[cfg(not(unix))]
impl Settings {
    pub(crate) fn save() -> Self {
        Self
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
