//! The copy of a guest to the other pod, until all of it is there or it is switched to post-copy.

use std::time::Duration;

use error_chain::error_chain;
use launcher_channel::{MigrationCompression, MigrationPlan, MigrationProgress};
use libvirt::{Compression, Connection, Cookie, Domain, DomainState, Job, Migration, Outcome};
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::moved_disks::{self, MovedDiskError};
use super::peer::{Ask, Flows, Origin, Peer, PeerError, WireCookie};
use super::{Event, pod_images, post_copy};

const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// A guest that is paused here, and whose copy waits in the other pod.
#[derive(Debug)]
pub(in crate::guest) struct Copied {
    pub(super) id: String,
    pub(super) peer: Peer,
    pub(super) migration: Migration,
    pub(super) cookie: Cookie,
    pub(super) state: CopyState,
}

/// What the other pod has of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CopyState {
    All,
    /// The rest of the memory follows.
    Switched,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum CopyError {
    #[error(transparent)]
    Peer(#[from] PeerError),
    #[error("the disks of the guest cannot be copied")]
    Disks(#[from] MovedDiskError),
    #[error("failed to copy the guest")]
    Libvirt(#[from] libvirt::Error),
}

impl CopyError {
    /// Whether libvirt or QEMU of one of the pods has refused.
    fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::Peer(PeerError::Refused(_)) | Self::Libvirt(libvirt::Error::Remote(_))
        )
    }
}

/// How much was copied, after the switch was asked for. In doubt the guest does not go on here.
fn state_after(found: &Result<DomainState, libvirt::Error>) -> CopyState {
    match found {
        Ok(state) if !post_copy::is_in(*state) => CopyState::All,
        Ok(_) | Err(_) => CopyState::Switched,
    }
}

/// The copy of a guest, in a task of its own.
#[derive(Debug)]
pub(super) struct Copying {
    pub(super) connection: Connection,
    pub(super) domain: Domain,
    pub(super) migration: Migration,
    /// The guest is paused in place of the switch to post-copy.
    pub(super) pauses: bool,
    pub(super) origin: Option<Origin>,
    /// The paths of images that this pod has made.
    pub(super) images: Vec<String>,
    pub(super) cancelled: CancellationToken,
    pub(super) switch: CancellationToken,
    pub(super) events: mpsc::Sender<Event>,
}

impl Copying {
    pub(super) async fn copy(mut self, plan: &MigrationPlan) -> Result<Copied, CopyError> {
        let mut peer = Peer::connect().await?;
        let cookie = self.agree(&mut peer, plan).await?;
        failpoints::after("virt-launcher/migration/prepared");
        if self.migration.flags.post_copy || self.pauses {
            // The guest's task may have ended.
            self.events.send(Event::CanSwitch).await.ok();
        }
        match self.perform(&mut peer, &cookie).await {
            (Ok(cookie), state) => Ok(Copied {
                id: plan.id.clone(),
                peer,
                migration: self.migration,
                cookie,
                state,
            }),
            // The other pod keeps what it has: the guest's task settles where the guest goes on, if need be when
            // libvirt answers again.
            (Err(error), CopyState::Switched) => Err(error.into()),
            (Err(error), CopyState::All) => {
                // First of all the guest goes on: the other pod may be unreachable.
                let nothing = Cookie::default();
                let confirmed = self
                    .connection
                    .confirm(&self.domain, &self.migration, &nothing, Outcome::Cancelled)
                    .await;
                if let Err(error) = confirmed {
                    tracing::debug!(error = error_chain(&error), "nothing to take back");
                }
                if let Err(error) = peer.command(&Ask::Abandon).await {
                    tracing::info!(
                        error = error_chain(&error),
                        "the end of the migration did not reach the other pod"
                    );
                }
                Err(error.into())
            }
        }
    }

    /// Has the other launcher start a QEMU that waits for the guest. It may have refused an option of the copy, or not
    /// know it, so it is asked once more in the plainest way; what else it refuses, such as a disk, it refuses again.
    async fn agree(&mut self, peer: &mut Peer, plan: &MigrationPlan) -> Result<Cookie, CopyError> {
        let is_parallel = self.migration.parameters.parallel.is_some();
        match self.prepare(peer, plan).await {
            Ok((_, Flows::One)) if is_parallel => {
                tracing::info!("the other launcher knows one connection for the memory only");
            }
            Err(error) if (is_parallel || self.migration.flags.post_copy) && error.is_refusal() => {
                tracing::warn!(
                    error = error_chain(&error),
                    "the other launcher refuses the guest; asking once more for a copy through a single connection \
                     and without post-copy"
                );
            }
            prepared => return Ok(prepared?.0),
        }
        self.migration.flags.post_copy = false;
        self.migration.parameters.parallel = None;
        Ok(self.prepare(peer, plan).await?.0)
    }

    async fn prepare(
        &self,
        peer: &mut Peer,
        plan: &MigrationPlan,
    ) -> Result<(Cookie, Flows), CopyError> {
        let begun = self.connection.begin(&self.domain, &self.migration).await;
        let (xml, cookie) = begun?;
        let mut disk_lengths = moved_disks::lengths(&xml, &plan.moved_disks).await?;
        let images = pod_images::lengths(&xml, self.images.clone(), &plan.copied_disks);
        disk_lengths.extend(images.await?);
        let parallel = self.migration.parameters.parallel;
        let ask = Ask::Prepare {
            id: plan.id.clone(),
            xml,
            cookie: WireCookie::from(&cookie),
            copied_disks: plan.copied_disks.clone(),
            disk_lengths,
            post_copy: self.migration.flags.post_copy,
            parallel_connections: parallel.map_or(0, |parallel| parallel.connections),
            compression: match parallel.map(|parallel| parallel.compression) {
                Some(Compression::Zstd) => MigrationCompression::Zstd,
                Some(Compression::None) | None => MigrationCompression::None,
            },
            origin: self.origin.clone(),
        };
        Ok(peer.ask_for_flows(&ask).await?)
    }

    /// Waits for the end of the copy, or for the switch to post-copy, and reports its progress.
    async fn perform(
        &self,
        peer: &mut Peer,
        cookie: &Cookie,
    ) -> (Result<Cookie, libvirt::Error>, CopyState) {
        let performed = self
            .connection
            .perform(&self.domain, &self.migration, cookie);
        tokio::pin!(performed);
        let mut ticks = tokio::time::interval(PROGRESS_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut is_asked_to_end = false;
        let mut has_asked_to_switch = false;
        let mut is_paused = false;
        loop {
            tokio::select! {
                result = &mut performed => {
                    let state = if has_asked_to_switch {
                        self.copy_state().await
                    } else {
                        CopyState::All
                    };
                    return (result, state);
                }
                () = self.cancelled.cancelled(), if !is_asked_to_end => {
                    is_asked_to_end = true;
                    self.abort().await;
                }
                // The job may not have begun when it was cancelled.
                _ = ticks.tick() => if is_asked_to_end {
                    self.abort().await;
                } else {
                    if self.switch.is_cancelled() && self.pauses && !is_paused {
                        is_paused = self.pause().await;
                    }
                    if self.switch.is_cancelled() {
                        has_asked_to_switch |= self.migration.flags.post_copy;
                        self.start_post_copy(peer).await;
                    }
                    self.report().await;
                },
            }
        }
    }

    /// Has the guest write nothing any more, so that the copy ends; it goes on after that, in whichever pod. One that does
    /// not run needs no pause.
    async fn pause(&self) -> bool {
        let state = self.connection.state(&self.domain).await;
        if !matches!(state, Ok(DomainState::Running(_) | DomainState::Blocked)) {
            return false;
        }
        if let Err(error) = self.connection.suspend(&self.domain).await {
            tracing::info!(
                error = error_chain(&error),
                "the guest was not paused for the end of its copy"
            );
            return false;
        }
        tracing::info!("the guest is paused until its copy ends");
        // The guest's task may have ended.
        self.events.send(Event::Paused).await.ok();
        true
    }

    /// May be repeated until the copy has been switched.
    async fn start_post_copy(&self, peer: &mut Peer) {
        if !self.migration.flags.post_copy {
            return;
        }
        // libvirt shows of no other guest that it is in post-copy.
        let state = self.connection.state(&self.domain).await;
        if !matches!(state, Ok(DomainState::Running(_) | DomainState::Blocked)) {
            tracing::info!(
                ?state,
                "a guest that does not run is not switched to post-copy"
            );
            return;
        }
        if let Err(error) = peer.command(&Ask::Hold).await {
            tracing::info!(
                error = error_chain(&error),
                "the other pod is not ready for post-copy"
            );
            return;
        }
        failpoints::after("virt-launcher/migration/held");
        match self.connection.start_post_copy(&self.domain).await {
            Ok(()) => {
                failpoints::after("virt-launcher/migration/start-post-copy");
                tracing::info!("the copy is being switched to post-copy");
            }
            Err(error) => tracing::info!(
                error = error_chain(&error),
                "the copy was not switched to post-copy"
            ),
        }
    }

    async fn copy_state(&self) -> CopyState {
        let found = self.connection.state(&self.domain).await;
        if let Err(error) = &found {
            tracing::warn!(
                error = error_chain(error),
                "whether the copy was switched to post-copy is unknown"
            );
        }
        state_after(&found)
    }

    async fn abort(&self) {
        if let Err(error) = self.connection.abort_job(&self.domain).await {
            tracing::debug!(error = error_chain(&error), "no job to cancel");
        }
    }

    async fn report(&self) {
        report_progress(&self.connection, &self.domain, &self.events).await;
    }
}

pub(super) async fn report_progress(
    connection: &Connection,
    domain: &Domain,
    events: &mpsc::Sender<Event>,
) {
    match connection.job(domain).await {
        // A report that does not fit is followed by another.
        Ok(job) => drop(events.try_send(Event::Progress(progress(&job)))),
        Err(error) => tracing::debug!(error = error_chain(&error), "no progress is known"),
    }
}

fn progress(job: &Job) -> MigrationProgress {
    let pages = job.dirty_rate.zip(job.page_bytes);
    MigrationProgress {
        elapsed_ms: job.elapsed_ms,
        total_bytes: job.total_bytes,
        processed_bytes: job.processed_bytes,
        remaining_bytes: job.remaining_bytes,
        rate: job.rate,
        dirty_rate: pages.map(|(pages, bytes)| pages.saturating_mul(bytes)),
        downtime_ms: job.downtime_ms,
    }
}

#[cfg(test)]
mod tests {
    use libvirt::{PausedReason, RunningReason};

    use super::*;

    /// Issue: the other pod ended a guest whose copy had been switched when libvirtd of the old pod ended.
    #[test]
    fn copy_is_taken_back_only_if_it_was_not_switched() {
        use DomainState::{Paused, Running};
        for (found, expected) in [
            (Ok(Running(RunningReason::Other)), CopyState::All),
            (Ok(Paused(PausedReason::Migration)), CopyState::All),
            (Ok(Paused(PausedReason::Postcopy)), CopyState::Switched),
            (
                Ok(Paused(PausedReason::PostcopyFailed)),
                CopyState::Switched,
            ),
            (Err(libvirt::Error::Closed), CopyState::Switched),
        ] {
            assert_eq!(state_after(&found), expected, "{found:?}");
        }
    }
}
