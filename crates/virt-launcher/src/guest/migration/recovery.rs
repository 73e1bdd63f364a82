//! Recovery: has the memory of a guest in post-copy follow again after the connection between the QEMUs has ended.
//!
//! Both QEMUs keep their part of the guest meanwhile, and the guest stands still where it misses memory. The launcher of
//! the old pod takes the steps of libvirt once more, with the flag to resume, until that succeeds or the handler
//! gives the guest up.
//!
//! **Invariants**: no step of a recovery ends a QEMU, or runs the guest in the old pod: libvirt admits the steps for a guest
//! in post-copy only. What an earlier attempt has left is taken back before the next one: by the launcher that made
//! it, or by libvirt when the connection of that launcher ends.

use std::path::Path;
use std::time::Duration;

use error_chain::error_chain;
use launcher_channel::{MigrationSocket, StopReason};
use libvirt::{Connection, Cookie, Migration, MigrationParameters, Outcome};
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

use super::Event;
use super::follow::{Follow, FollowEnd, is_of_guest};
use super::incoming::accept;
use super::outgoing::resumption;
use super::peer::{Answer, Ask, Peer, PeerError, WireCookie};
use crate::guest::record::MigrationStep;
use crate::guest::refusal::Refusal;
use crate::guest::status::Phase;
use crate::guest::task::Guest;
use crate::serve;

/// The pause before the first attempt; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
const PART_ENDED: &str = "QEMU has ended in the new pod before all of the memory was copied";

/// No memory follows.
#[derive(Debug)]
pub(in crate::guest) struct Interrupted {
    pub(super) why: String,
    /// Cancelled when it lasts too long.
    pub(super) given_up: CancellationToken,
}

/// What the new pod has done for a recovery.
#[derive(Debug, Default)]
pub(super) struct Recovery {
    /// libvirt was asked to wait for the end, and has not answered.
    pub(super) is_finishing: bool,
    /// QEMU was told to wait for a new connection, and libvirt was not asked to wait for the end since.
    is_prepared: bool,
    /// Serves the other launcher in place of an earlier launcher of this pod.
    listener: Option<AbortHandle>,
}

/// The last step at the new pod, which is to be taken.
#[derive(Debug)]
pub(super) struct Begun {
    pub(super) connection: Connection,
    pub(super) cookie: Cookie,
    pub(super) migration: Migration,
}

/// A guest whose memory follows again.
#[derive(Debug)]
pub(super) struct Resumed {
    pub(super) peer: Peer,
    pub(super) migration: Migration,
    pub(super) cookie: Cookie,
}

/// Why an attempt did not succeed.
#[derive(Debug, thiserror::Error)]
enum AttemptError {
    #[error(transparent)]
    Peer(#[from] PeerError),
    #[error("libvirt or QEMU refuses")]
    Libvirt(#[from] libvirt::Error),
    #[error("the guest has ended in the new pod")]
    Ended(StopReason),
}

impl Follow {
    /// Has the memory follow again; otherwise the end of post-copy.
    pub(super) async fn recover(&self, message: String) -> Result<Resumed, FollowEnd> {
        let given_up = CancellationToken::new();
        let interrupted = Interrupted {
            why: message.clone(),
            given_up: given_up.clone(),
        };
        self.tell(Some(interrupted)).await;
        let mut pause = FIRST_PAUSE;
        loop {
            tokio::select! {
                biased;
                () = given_up.cancelled() => return Err(FollowEnd::Broken(message)),
                () = tokio::time::sleep(pause) => {}
            }
            let attempt = tokio::select! {
                biased;
                // libvirt may hang. What is left open is of no use any more.
                () = given_up.cancelled() => return Err(FollowEnd::Broken(message)),
                attempt = self.attempt() => attempt,
            };
            match attempt {
                Ok(resumed) => {
                    self.tell(None).await;
                    return Ok(resumed);
                }
                Err(AttemptError::Ended(reason)) if is_of_guest(reason) => {
                    return Err(FollowEnd::Ended(reason));
                }
                Err(AttemptError::Ended(_)) => {
                    return Err(FollowEnd::Broken(PART_ENDED.to_owned()));
                }
                Err(error) => {
                    let is_closed =
                        matches!(&error, AttemptError::Libvirt(error) if error.is_closed());
                    tracing::info!(
                        error = error_chain(&error),
                        "the memory does not follow yet"
                    );
                    if is_closed || !self.is_alive().await {
                        return Err(FollowEnd::Unknown);
                    }
                }
            }
            pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
        }
    }

    pub(super) async fn tell(&self, interrupted: Option<Interrupted>) {
        // The guest's task may have ended.
        self.events.send(Event::Interrupted(interrupted)).await.ok();
    }

    async fn attempt(&self) -> Result<Resumed, AttemptError> {
        let mut peer = Peer::connect().await?;
        // Nothing is to be resumed then.
        if let Some(reason) = peer.ask_for_end().await? {
            return Err(AttemptError::Ended(reason));
        }
        let migration = resumption(MigrationSocket::source_path);
        let (xml, cookie) = self.connection.begin(&self.domain, &migration).await?;
        match self.connect(&mut peer, &migration, xml, &cookie).await {
            Ok(cookie) => Ok(Resumed {
                peer,
                migration,
                cookie,
            }),
            Err(error) => {
                // libvirt admits no other attempt before.
                let nothing = Cookie::default();
                let confirmed = self
                    .connection
                    .confirm(&self.domain, &migration, &nothing, Outcome::Cancelled)
                    .await;
                if let Err(error) = confirmed {
                    tracing::debug!(error = error_chain(&error), "nothing to take back");
                }
                Err(error)
            }
        }
    }

    async fn connect(
        &self,
        peer: &mut Peer,
        migration: &Migration,
        xml: String,
        cookie: &Cookie,
    ) -> Result<Cookie, AttemptError> {
        let cookie = WireCookie::from(cookie);
        let prepared = peer.ask_for_cookie(&Ask::Recover { xml, cookie }).await?;
        let performed = self.connection.perform(&self.domain, migration, &prepared);
        Ok(performed.await?)
    }
}

impl Guest {
    pub(super) fn on_interruption(&mut self, interrupted: Option<Interrupted>) {
        let Some(report) = &mut self.migrations.report else {
            return;
        };
        match interrupted {
            Some(Interrupted { why, given_up }) => {
                tracing::warn!(
                    message = why,
                    "the rest of the guest's memory does not follow; it is to follow again"
                );
                self.migrations.given_up = given_up;
                report.interrupted = Some(why);
            }
            None => {
                if report.interrupted.take().is_some() {
                    tracing::info!("the rest of the guest's memory follows again");
                }
            }
        }
    }

    /// Ends the attempts to have the memory follow again, which loses the guest; false if there are none.
    pub(super) fn give_up_recovery(&mut self) -> bool {
        let report = self.migrations.report();
        let is_interrupted = report.is_some_and(|report| report.interrupted.is_some());
        if self.store.migration_step() != Some(MigrationStep::Switched) || !is_interrupted {
            return false;
        }
        tracing::warn!("the guest is given up: the rest of its memory did not follow in time");
        self.migrations.given_up.cancel();
        true
    }

    /// In the new pod: has QEMU wait for a new connection.
    pub(super) async fn prepare_recovery(
        &mut self,
        xml: String,
        cookie: &WireCookie,
    ) -> Result<Answer, Refusal> {
        let cookie = cookie.decode().map_err(|_| Refusal::NotReceived)?;
        if self.store.phase() == Some(Phase::Receiving) && self.migrations.holds {
            // The request to run the guest was lost, and libvirt recovers no guest that did not run here. If the
            // connection of this QEMU has ended already, this ends it, since the guest is lost then.
            self.run_without_request().await?;
        }
        if !self.store.is_following() || self.migrations.recovery.is_finishing {
            return Err(Refusal::NotReceived);
        }
        let connection = self.connection().ok_or(libvirt::Error::Closed)?;
        if self.migrations.recovery.is_prepared {
            self.take_back(&connection).await;
        }
        let migration = self.own_resumption(Some(xml));
        self.migrations.recovery.is_prepared = true;
        let prepared = connection.prepare(&migration, &cookie).await?;
        tracing::info!("QEMU waits for the rest of the guest's memory once more");
        Ok(Answer::Cookie(WireCookie::from(&prepared)))
    }

    /// The other launcher did not come to the end of its attempt.
    async fn take_back(&self, connection: &Connection) {
        let migration = self.own_resumption(None);
        let nothing = Cookie::default();
        let cancelled = connection
            .finish(&migration, &nothing, Outcome::Cancelled)
            .await;
        // libvirt answers with an error in any case.
        if let Err(error) = cancelled {
            tracing::debug!(
                error = error_chain(&error),
                "an earlier attempt was taken back"
            );
        }
    }

    fn own_resumption(&self, xml: Option<String>) -> Migration {
        let resumption = resumption(MigrationSocket::target_path);
        let record = self.store.record();
        Migration {
            parameters: MigrationParameters {
                destination_name: record.map(|record| record.plan.domain_name.clone()),
                destination_xml: xml,
                ..resumption.parameters
            },
            ..resumption
        }
    }

    /// In the new pod: the memory follows again, and libvirt is to wait for its end.
    pub(super) fn begin_recovered(
        &mut self,
        cookie: &WireCookie,
        stays_paused: bool,
    ) -> Result<Begun, Refusal> {
        let cookie = cookie.decode().map_err(|_| Refusal::NotReceived)?;
        let Recovery {
            is_finishing,
            is_prepared,
            ..
        } = self.migrations.recovery;
        if !self.store.is_following() || is_finishing || !is_prepared {
            return Err(Refusal::NotReceived);
        }
        let connection = self.connection().ok_or(libvirt::Error::Closed)?;
        // The request to run the guest, which said it first, may have been lost.
        if stays_paused {
            self.store.set_stays_paused(true)?;
        }
        self.migrations.recovery.is_prepared = false;
        // It has watched the state.
        if let Some(follow) = self.migrations.follow.take() {
            follow.abort();
        }
        tracing::info!("the rest of the guest's memory follows again");
        Ok(Begun {
            connection,
            cookie,
            migration: self.own_resumption(None),
        })
    }

    /// In the new pod: serves the other launcher, if an earlier launcher of this pod did before.
    pub(super) fn listen_again(&mut self) {
        let is_running = |task: &Option<AbortHandle>| {
            let task = task.as_ref();
            task.is_some_and(|task| !task.is_finished())
        };
        if is_running(&self.migrations.task) || is_running(&self.migrations.recovery.listener) {
            return;
        }
        match serve::listen(Path::new(&MigrationSocket::Control.target_path())) {
            Ok(listener) => {
                let events = self.migrations.sender.clone();
                let task = self.tasks.spawn(accept(listener, events));
                self.migrations.recovery.listener = Some(task.abort_handle());
            }
            Err(error) => tracing::warn!(
                %error,
                "the launcher of the old pod cannot have the memory follow again"
            ),
        }
    }

    /// Nothing is to be recovered any more.
    pub(super) fn stop_listening(&mut self) {
        if let Some(listener) = self.migrations.recovery.listener.take() {
            listener.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::watch;

    use super::*;
    use crate::guest::record::{MigrationRecord, RecordStore};
    use crate::guest::task::tests::{parts, plan};
    use crate::settings::Paths;

    fn guest_at(step: MigrationStep) -> (Guest, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let paths = Paths::under(dir.path());
        let mut store = RecordStore::open(&paths.record()).unwrap();
        store.set_plan(plan()).unwrap();
        let record = MigrationRecord {
            id: "m".to_owned(),
            step,
            stays_paused: false,
        };
        store.set_migration(Some(record)).unwrap();
        store.advance(Phase::Started).unwrap();
        let (sender, _states) = watch::channel(None);
        (Guest::new(parts(&paths, store, sender)), dir)
    }

    fn interruption() -> Interrupted {
        Interrupted {
            why: "the connection has ended".to_owned(),
            given_up: CancellationToken::new(),
        }
    }

    /// A guest in post-copy is lost only while nothing follows: otherwise a cancelled migration would lose it.
    #[tokio::test]
    async fn guest_is_given_up_only_during_an_interruption() {
        let (mut guest, _dir) = guest_at(MigrationStep::Switched);
        guest.cancel_migration("m").await.unwrap();
        assert!(!guest.migrations.given_up.is_cancelled());
        guest.on_interruption(Some(interruption()));
        let report = guest.migration_report().unwrap();
        assert!(report.interrupted.is_some());
        guest.cancel_migration("other").await.unwrap();
        assert!(!guest.migrations.given_up.is_cancelled());
        guest.on_interruption(None);
        guest.cancel_migration("m").await.unwrap();
        assert!(!guest.migrations.given_up.is_cancelled());
        // One that comes too late for its interruption does not end the next.
        let first = interruption();
        let late = first.given_up.clone();
        guest.on_interruption(Some(first));
        guest.cancel_migration("m").await.unwrap();
        assert!(late.is_cancelled());
        guest.on_interruption(None);
        guest.on_interruption(Some(interruption()));
        assert!(!guest.migrations.given_up.is_cancelled());
        guest.cancel_migration("m").await.unwrap();
        assert!(guest.migrations.given_up.is_cancelled());
    }

    /// Only a QEMU whose memory does not follow is told to wait for a new connection.
    #[tokio::test]
    async fn recovery_is_refused_where_nothing_is_to_be_recovered() {
        let cookie = WireCookie::from(&Cookie::default());
        for step in [MigrationStep::Switched, MigrationStep::Arrived] {
            let (mut guest, _dir) = guest_at(step);
            let refused = guest.prepare_recovery(String::new(), &cookie).await;
            assert!(matches!(refused, Err(Refusal::NotReceived)), "{step:?}");
        }
        let (mut guest, _dir) = guest_at(MigrationStep::Following);
        // The last step without the one before.
        let refused = guest.begin_recovered(&cookie, false);
        assert!(matches!(refused, Err(Refusal::NotReceived)));
        guest.migrations.recovery.is_finishing = true;
        let refused = guest.prepare_recovery(String::new(), &cookie).await;
        assert!(matches!(refused, Err(Refusal::NotReceived)));
        guest.migrations.recovery.is_finishing = false;
        // There is no connection to libvirt.
        let refused = guest.prepare_recovery(String::new(), &cookie).await;
        assert!(refused.is_err_and(|refusal| refusal.is_closed()));
    }
}
