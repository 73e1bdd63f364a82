//! The wait for the end of post-copy.

use std::time::Duration;

use error_chain::error_chain;
use launcher_channel::StopReason;
use libvirt::{
    Connection, Cookie, Domain, DomainState, Migration, Outcome, PausedReason, RunningReason,
};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::{Instant, Interval, MissedTickBehavior};

use super::Event;
use super::copying::{Copied, report_progress};
use super::peer::{Ask, Peer, PeerError, WireCookie};
use crate::guest::qmp;

const INTERVAL: Duration = Duration::from_secs(1);
/// The pause before the other launcher is asked again.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// How often the other launcher is asked whether the guest has ended.
const END_ATTEMPTS: u32 = 3;
const QUERY: &str = "query-migrate";
const INTERRUPTED: &str =
    "the connection between the two QEMUs has ended before all of the memory was copied";
const BROKEN: &str = "QEMU cannot copy the rest of the memory";

/// Why this pod does not wait for the memory any more.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::guest) enum FollowEnd {
    /// All of it is in the new pod.
    Complete,
    /// In the new pod: libvirt waits no longer, and the old pod says how it has ended.
    Interrupted(String),
    /// It cannot follow any more.
    Broken(String),
    /// The guest has ended by itself in the new pod.
    Ended(StopReason),
    /// libvirtd or QEMU does not answer.
    Unknown,
}

/// How post-copy has ended, by the status that the QEMU of the old pod shows of it.
fn end_of(status: &str) -> Option<FollowEnd> {
    match status {
        "completed" => Some(FollowEnd::Complete),
        "postcopy-paused" => Some(FollowEnd::Broken(INTERRUPTED.to_owned())),
        "failed" | "cancelled" => Some(FollowEnd::Broken(format!("{BROKEN} ({status})"))),
        _ => None,
    }
}

/// How post-copy has ended, by what libvirt of the new pod shows. Until then it admits no query of QEMU.
fn arrival_end_of(state: DomainState) -> Option<FollowEnd> {
    use DomainState::{Blocked, Paused, Running, ShuttingDown, Suspended};
    match state {
        // All other reasons are of a time after it.
        Running(RunningReason::Migrated | RunningReason::Other) | Paused(PausedReason::User) => {
            Some(FollowEnd::Complete)
        }
        // The old pod knows how it has ended.
        Running(RunningReason::Postcopy | RunningReason::PostcopyFailed)
        | Paused(_)
        | Blocked
        | ShuttingDown
        | Suspended => None,
        _ => Some(FollowEnd::Unknown),
    }
}

/// The wait of a pod for the end of post-copy.
#[derive(Debug)]
pub(super) struct Follow {
    pub(super) connection: Connection,
    pub(super) domain: Domain,
    pub(super) events: mpsc::Sender<Event>,
}

impl Follow {
    /// Has the other launcher run the guest, and waits until all of the memory has left this pod. Once the connection
    /// between the QEMUs has ended, the rest cannot follow: libvirt 11.3 crashes when it is to resume post-copy.
    pub(super) async fn leave(&self, copied: Option<Copied>, stays_paused: bool) -> FollowEnd {
        let (peer, migration, cookie) = match copied {
            Some(copied) => (Some(copied.peer), Some(copied.migration), copied.cookie),
            None => (None, None, Cookie::default()),
        };
        let ask = Ask::Finish {
            cookie: WireCookie::from(&cookie),
            stays_paused,
            reports_busy: true,
            post_copy: true,
        };
        let (end, cookie) = tokio::select! {
            cookie = ask_until_done(peer, &ask) => (FollowEnd::Complete, cookie),
            end = self.end() => (end, Cookie::default()),
        };
        match end {
            FollowEnd::Broken(message) => {
                let ended = end_there().await;
                ended.map_or(FollowEnd::Broken(message), FollowEnd::Ended)
            }
            FollowEnd::Complete => {
                // For a client that has died, libvirt ends this QEMU by itself.
                if let Some(migration) = &migration {
                    self.confirm(migration, &cookie).await;
                }
                FollowEnd::Complete
            }
            end => end,
        }
    }

    async fn confirm(&self, migration: &Migration, cookie: &Cookie) {
        let confirmed = self
            .connection
            .confirm(&self.domain, migration, cookie, Outcome::Copied)
            .await;
        if let Err(error) = confirmed {
            tracing::warn!(
                error = error_chain(&error),
                "libvirt did not confirm the migration"
            );
        }
    }

    /// Waits until libvirt of the new pod shows how post-copy has ended.
    pub(super) async fn arrive(&self) -> FollowEnd {
        let mut ticks = ticks();
        loop {
            ticks.tick().await;
            match self.connection.state(&self.domain).await {
                Ok(state) => {
                    if let Some(end) = arrival_end_of(state) {
                        return end;
                    }
                }
                Err(error) => {
                    tracing::debug!(error = error_chain(&error), "libvirt shows no guest");
                    return FollowEnd::Unknown;
                }
            }
        }
    }

    /// Waits until the QEMU of the old pod shows how post-copy has ended.
    async fn end(&self) -> FollowEnd {
        let mut ticks = ticks();
        loop {
            ticks.tick().await;
            match self.status().await {
                Ok(status) => {
                    if let Some(end) = end_of(&status) {
                        return end;
                    }
                }
                Err(error) => {
                    tracing::debug!(error = error_chain(&error), "QEMU shows no migration");
                    if !self.is_alive().await {
                        return FollowEnd::Unknown;
                    }
                }
            }
            report_progress(&self.connection, &self.domain, &self.events).await;
        }
    }

    /// Whether libvirt knows a QEMU, after one did not answer.
    async fn is_alive(&self) -> bool {
        use DomainState::{Blocked, Paused, Running};
        let state = self.connection.state(&self.domain).await;
        matches!(state, Ok(Running(_) | Blocked | Paused(_)))
    }

    async fn status(&self) -> Result<String, libvirt::Error> {
        let query = qmp::command(QUERY, &json!({}));
        let answer = self.connection.monitor(&self.domain, &query).await?;
        let status = match qmp::result(QUERY, &answer) {
            Ok(result) => result["status"].as_str().map(ToOwned::to_owned),
            Err(error) => {
                tracing::debug!(error = error_chain(&error), "QEMU shows no migration");
                None
            }
        };
        Ok(status.unwrap_or_default())
    }
}

/// Asks the other launcher to run the guest, until it says that all of the memory is there.
async fn ask_until_done(mut peer: Option<Peer>, finish: &Ask) -> Cookie {
    loop {
        match ask(peer.take(), finish).await {
            Ok(cookie) => return cookie,
            Err(error) => tracing::info!(
                error = error_chain(&error),
                "the other pod did not say that all of the memory is there"
            ),
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
}

async fn ask(peer: Option<Peer>, finish: &Ask) -> Result<Cookie, PeerError> {
    let mut peer = match peer {
        Some(peer) => peer,
        None => Peer::connect().await?,
    };
    peer.ask_for_cookie(finish).await
}

/// Why the guest has ended in the new pod, if that was its own doing. Its launcher may learn of the end later than this
/// one of that of the connection between the QEMUs.
async fn end_there() -> Option<StopReason> {
    for _ in 0..END_ATTEMPTS {
        tokio::time::sleep(INTERVAL).await;
        match ask_for_end().await {
            Ok(Some(reason)) => return Some(reason).filter(|reason| is_of_guest(*reason)),
            Ok(None) => {}
            Err(error) => tracing::info!(
                error = error_chain(&error),
                "the other pod does not say whether the guest has ended"
            ),
        }
    }
    None
}

async fn ask_for_end() -> Result<Option<StopReason>, PeerError> {
    Peer::connect().await?.ask_for_end().await
}

fn is_of_guest(reason: StopReason) -> bool {
    matches!(
        reason,
        StopReason::Shutdown | StopReason::Panicked | StopReason::Watchdog
    )
}

fn ticks() -> Interval {
    let mut ticks = tokio::time::interval_at(Instant::now() + INTERVAL, INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

#[cfg(test)]
mod tests {
    use libvirt::ShutoffReason;

    use super::*;

    #[test]
    fn only_final_states_of_qemu_end_the_wait() {
        for status in ["", "none", "active", "device", "postcopy-active"] {
            assert_eq!(end_of(status), None, "{status}");
        }
        assert_eq!(end_of("completed"), Some(FollowEnd::Complete));
        let paused = end_of("postcopy-paused");
        assert!(matches!(paused, Some(FollowEnd::Broken(_))), "{paused:?}");
        for status in ["failed", "cancelled"] {
            let end = end_of(status);
            assert!(
                matches!(&end, Some(FollowEnd::Broken(message)) if message.contains(status)),
                "{status}: {end:?}"
            );
        }
    }

    /// Issue: QEMU of the new pod was asked, which libvirt does not admit before the end.
    #[test]
    fn state_of_the_new_pod_ends_the_wait() {
        use DomainState::{Paused, Running, Shutoff};
        for (state, expected) in [
            (Running(RunningReason::Postcopy), None),
            (Paused(PausedReason::Migration), None),
            (Paused(PausedReason::IoError), None),
            (Running(RunningReason::Migrated), Some(FollowEnd::Complete)),
            (Running(RunningReason::Other), Some(FollowEnd::Complete)),
            (Paused(PausedReason::User), Some(FollowEnd::Complete)),
            (Running(RunningReason::PostcopyFailed), None),
            (Shutoff(ShutoffReason::Shutdown), Some(FollowEnd::Unknown)),
        ] {
            assert_eq!(arrival_end_of(state), expected, "{state:?}");
        }
    }
}
