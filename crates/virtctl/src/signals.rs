//! Signals that ask this process to end.
//!
//! A command ends by being dropped, so that whatever restores the terminal or removes a file on drop does it. Those
//! that have more to do, such as to remove a pod or an export, wait for signals themselves.

use std::fmt;

use anyhow::{Context, Result};

/// A signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    Interrupt,
    #[cfg(unix)]
    Terminate,
    #[cfg(unix)]
    Hangup,
}

impl Signal {
    fn number(self) -> u8 {
        match self {
            Self::Interrupt => 2,
            #[cfg(unix)]
            Self::Terminate => 15,
            #[cfg(unix)]
            Self::Hangup => 1,
        }
    }

    /// Sends it to a process that this one has started.
    #[cfg(unix)]
    pub(crate) fn send_to(self, process: u32) {
        use rustix::process::{Pid, Signal, kill_process};
        let signal = match self {
            Self::Interrupt => Signal::INT,
            Self::Terminate => Signal::TERM,
            Self::Hangup => Signal::HUP,
        };
        if let Some(process) = i32::try_from(process).ok().and_then(Pid::from_raw) {
            // It may have ended.
            let _sent = kill_process(process, signal);
        }
    }

    /// The system sends it to all processes of the terminal.
    #[cfg(not(unix))]
    pub(crate) fn send_to(self, _process: u32) {}
}

/// The command was ended by a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Interrupted(pub(crate) Signal);

impl Interrupted {
    /// That of a shell for a command that a signal ended.
    pub(crate) fn exit_code(self) -> u8 {
        128 + self.0.number()
    }
}

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the command was interrupted")
    }
}

impl std::error::Error for Interrupted {}

/// The signals that arrive from the start of the watch, which replaces their usual effect.
pub(crate) struct Signals {
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
    #[cfg(unix)]
    hangup: tokio::signal::unix::Signal,
}

impl Signals {
    #[cfg(unix)]
    pub(crate) fn watch() -> Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self {
            interrupt: signal(SignalKind::interrupt()).context("watch for SIGINT")?,
            terminate: signal(SignalKind::terminate()).context("watch for SIGTERM")?,
            hangup: signal(SignalKind::hangup()).context("watch for SIGHUP")?,
        })
    }

    #[cfg(unix)]
    pub(crate) async fn next(&mut self) -> Result<Signal> {
        let (received, signal) = tokio::select! {
            received = self.interrupt.recv() => (received, Signal::Interrupt),
            received = self.terminate.recv() => (received, Signal::Terminate),
            received = self.hangup.recv() => (received, Signal::Hangup),
        };
        received.context("watch for signals")?;
        Ok(signal)
    }

    #[cfg(not(unix))]
    pub(crate) fn watch() -> Result<Self> {
        Ok(Self {})
    }

    #[cfg(not(unix))]
    pub(crate) async fn next(&mut self) -> Result<Signal> {
        tokio::signal::ctrl_c().await.context("watch for Ctrl+C")?;
        Ok(Signal::Interrupt)
    }
}

/// Waits until a signal arrives; the error says which.
pub(crate) async fn interrupted() -> anyhow::Error {
    let signal = match Signals::watch() {
        Ok(mut signals) => signals.next().await,
        Err(error) => return error,
    };
    signal.map_or_else(|error| error, |signal| Interrupted(signal).into())
}

/// The result of the work, unless a signal ends it first, by dropping it.
pub(crate) async fn unless_interrupted<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::select! {
        biased;
        interrupted = interrupted() => Err(interrupted),
        done = work => done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn exit_codes_are_those_of_a_shell() {
        let codes = [Signal::Interrupt, Signal::Terminate, Signal::Hangup]
            .map(|signal| Interrupted(signal).exit_code());
        assert_eq!(codes, [130, 143, 129]);
    }
}
