//! The connection to libvirtd: opening it again after each loss, and calls that survive a loss.

use std::time::Duration;

use backoff::Severity;
use error_chain::error_chain;
use libvirt::{Connection, Domain};
use tokio::time::Instant;

use super::agent_link::AgentLink;
use super::refusal::Refusal;
use super::status::Phase;
use super::task::Guest;
use crate::hypervisor::Link;

/// How long a request waits for a libvirtd that is being restarted.
pub(super) const LINK_TIMEOUT: Duration = Duration::from_secs(20);
/// A QEMU that hangs must not keep the launcher from adopting it.
const ADOPTION_TIMEOUT: Duration = Duration::from_secs(5);

/// Counts the attempts in a row that have failed to reach libvirtd.
#[derive(Debug, Default)]
pub(super) struct ConnectFailures(u32);

impl ConnectFailures {
    /// Logs a failure: the first ones at debug level, since libvirtd may be starting.
    fn record(&mut self, error: &libvirt::Error) {
        self.0 = self.0.saturating_add(1);
        let (failures, error) = (self.0, error_chain(error));
        match self.severity() {
            Severity::Debug => tracing::debug!(error, failures, "libvirtd cannot be reached yet"),
            Severity::Warn => tracing::warn!(error, failures, "libvirtd cannot be reached"),
        }
    }

    fn severity(&self) -> Severity {
        Severity::of(self.0)
    }
}

impl Guest {
    pub(super) fn connection(&self) -> Option<Connection> {
        self.link.as_ref().map(|link| link.connection.clone())
    }

    pub(super) fn lose_link(&mut self) {
        if self.link.take().is_some() {
            self.last_agent = self.agent.report().map(|agent| *agent);
            self.agent = AgentLink::Unknown;
            self.reconnect.reset();
            self.reconnect_at = Instant::now();
        }
    }

    /// Makes one attempt to connect, and on success queries the guest.
    pub(super) async fn connect(&mut self) {
        match Link::open(&self.paths.libvirt_socket(), &self.tasks).await {
            Ok(link) => {
                let failures = std::mem::take(&mut self.connect_failures).0;
                tracing::info!(failures, "connected to libvirtd");
                self.link = Some(link);
                self.reconnect.reset();
                self.wait_for_adoption().await;
                if let Err(error) = self.adopt().await {
                    tracing::warn!(error = error_chain(&error), "failed to query the guest");
                    self.link = None;
                }
            }
            Err(error) => self.connect_failures.record(&error),
        }
        if self.link.is_none() {
            self.reconnect_at = Instant::now() + self.reconnect.pause();
        }
    }

    /// Queries the guest, and ends what a migration has left behind.
    async fn adopt(&mut self) -> Result<(), Refusal> {
        self.observe().await?;
        // In post-copy its query would wait for the end of it.
        if !self.store.is_following() {
            self.end_leftovers().await;
        }
        Box::pin(self.settle_migration()).await
    }

    /// Waits until a libvirtd that has just started has tried to reach QEMU. Before that it
    /// reports the state from its files, and a failed attempt causes no event. A call that libvirtd
    /// executes only after the attempt serves as a barrier; its result is ignored.
    async fn wait_for_adoption(&self) {
        let adopting = matches!(
            self.store.phase(),
            Some(Phase::Starting | Phase::Received | Phase::Resuming | Phase::Started)
        );
        let (true, Some(connection), Some(domain)) = (adopting, self.connection(), self.domain())
        else {
            return;
        };
        let limited = connection.with_limit(ADOPTION_TIMEOUT);
        if let Err(error) = limited.memory_stats(&domain).await {
            tracing::debug!(error = error_chain(&error), "the guest does not respond");
        }
    }

    /// Waits for a connection until `deadline`.
    pub(super) async fn wait_for_link(&mut self, deadline: Instant) -> Result<Connection, Refusal> {
        loop {
            if let Some(connection) = self.connection().filter(Connection::is_open) {
                return Ok(connection);
            }
            self.lose_link();
            tokio::time::sleep_until(self.reconnect_at.min(deadline)).await;
            self.connect().await;
            if self.link.is_none() && Instant::now() >= deadline {
                return Err(libvirt::Error::Closed.into());
            }
        }
    }

    /// Makes a call about the running domain, repeats it if libvirtd dies during the call, and queries
    /// the state afterwards.
    pub(super) async fn call(
        &mut self,
        act: impl AsyncFn(&Connection, &Domain) -> Result<(), libvirt::Error>,
    ) -> Result<(), Refusal> {
        let deadline = Instant::now() + LINK_TIMEOUT;
        loop {
            let connection = self.wait_for_link(deadline).await?;
            let domain = self.domain().ok_or(Refusal::NotRunning)?;
            match act(&connection, &domain).await {
                Ok(()) => return self.observe().await,
                Err(error) if error.is_closed() && Instant::now() < deadline => self.lose_link(),
                Err(error) => {
                    self.observe().await?;
                    // The guest may have ended in between, which explains the error.
                    return if self.is_alive() {
                        Err(error.into())
                    } else {
                        Err(Refusal::NotRunning)
                    };
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_failures_are_logged_as_warnings_at_a_falling_rate() {
        let mut failures = ConnectFailures::default();
        let mut warnings = Vec::new();
        for attempt in 1..=40 {
            failures.record(&libvirt::Error::Closed);
            if failures.severity() == Severity::Warn {
                warnings.push(attempt);
            }
        }
        assert_eq!(warnings, [4, 8, 16, 32]);
    }
}
