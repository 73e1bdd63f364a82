//! Brings volumes into the pod of a running guest, has the launcher attach and detach their disks, and
//! takes volumes away that the guest has released.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::Arc,
};

use domain_xml::VolumeFacts;
use error_chain::error_chain;
use kubevirt_api::{VirtualMachineInstance, vmi_status::VolumeStatus};
use launcher_channel::{HotDisk, Request};
use model::Guest;
use reasons::Reason;
use reconcile::{EventType, Key};
use tokio::time::{Instant, timeout};

use super::{
    act::Guests,
    observe::Pair,
    plugged::{self, Failure, Plugged, Wanted},
    sessions::Entry,
};
use crate::{
    launcher::{Link, Peer},
    pods_dir::PodUid,
    prepare,
    volumes::{Access, Claims, Plugs},
};

/// The directory and the name of the socket in an attachment pod.
const ATTACHMENT_VOLUME: &str = model::paths::HOTPLUG_VOLUME;
const ATTACHMENT_SOCKET: &str = "hp.sock";

/// Why a volume cannot be brought into the pod.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BringError {
    /// The attachment pod is not up yet.
    #[error("the attachment pod does not respond")]
    NotYet,
    #[error("the status names no attachment pod")]
    NoPod,
    #[error(transparent)]
    Peer(#[from] crate::launcher::PeerError),
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Guests {
    /// One pass over the hot-plugged volumes. A volume that fails does not hold up the others, nor the
    /// report of the guest's state.
    pub(super) async fn plug(&self, key: &Key, pair: &Pair, entry: &Entry) {
        let vmi = self.latest(key, pair);
        let link = entry.session.link();
        let (Some(peer), true) = (link.peer.clone(), plugged::is_concerned(&vmi)) else {
            return;
        };
        // The new pod has the volumes of the hand-over.
        if model::is_under_way(&vmi) {
            return;
        }
        let mut next = Plugged {
            works: entry.plugged.works.clone(),
            awaited: entry.plugged.awaited.clone(),
            leaving: entry.plugged.leaving.clone(),
            requested: entry.plugged.requested.clone(),
            ..Plugged::default()
        };
        match Plugs::of(&peer) {
            Ok(plugs) => {
                let pass = Pass {
                    guests: self,
                    pair,
                    vmi: &vmi,
                    entry,
                    link: &link,
                    plugs: Arc::new(plugs),
                    attachment: None,
                };
                Box::pin(pass.run(&mut next)).await;
            }
            Err(error) => {
                let wanted = plugged::wanted(&vmi).into_iter();
                let concerned = wanted.filter(|(_, wanted)| *wanted != Wanted::Nothing);
                next.failures = concerned
                    .map(|(volume, _)| (volume.to_owned(), not_mounted(&error)))
                    .collect();
                next.retry_in = Some(plugged::RETRY);
            }
        }
        self.sessions
            .update(key, &pair.pod_uid, |entry| entry.plugged = next);
    }

    /// Brings the volumes into the pod to which a guest moves that were attached to it while it runs. The guest itself
    /// comes with their disks.
    pub(crate) async fn bring_along(
        &self,
        vmi: &VirtualMachineInstance,
        pair: &Pair,
        entry: &Entry,
    ) -> Result<(), BringError> {
        let coming = plugged::coming(vmi);
        let link = entry.session.link();
        let (Some(peer), false) = (link.peer.as_ref(), coming.is_empty()) else {
            return Ok(());
        };
        let status = vmi.status.as_ref();
        let state = status.and_then(|status| status.migration_state.as_ref());
        let attachment = state.and_then(|state| state.target_attachment_pod_uid.as_deref());
        let pass = Pass {
            guests: self,
            pair,
            vmi,
            entry,
            link: &link,
            plugs: Arc::new(Plugs::of(peer)?),
            attachment: Some(attachment.ok_or(BringError::NoPod)?),
        };
        for (volume, wanted) in coming {
            match wanted {
                Wanted::Attached => {
                    pass.bring(volume).await?;
                }
                // The guest's user has it, or it is no disk.
                _ => pass.mount(volume).await?,
            }
        }
        Ok(())
    }

    /// Publishes what has changed for hot-plugged volumes.
    pub(super) fn publish_volume_changes(
        &self,
        vmi: &VirtualMachineInstance,
        written: &[VolumeStatus],
    ) {
        let before = vmi.status.iter().flat_map(|status| &status.volume_status);
        let before: BTreeMap<_, _> = before
            .map(|volume| (volume.name.as_str(), volume))
            .collect();
        let changed = written.iter().filter(|volume| {
            let known = before.get(volume.name.as_str());
            volume.hotplug_volume.is_some()
                && known.is_some_and(|known| {
                    known.reason != volume.reason || known.phase != volume.phase
                })
        });
        for volume in changed {
            let reason = volume.reason.as_deref().unwrap_or_default();
            let (Ok(reason), Some(message)) = (reason.parse::<Reason>(), &volume.message) else {
                continue;
            };
            let kind = match reason {
                Reason::VolumeReady
                | Reason::VolumeMountedToPod
                | Reason::MemoryDumpInProgress
                | Reason::VolumeUnMountedFromPod => EventType::Normal,
                _ => EventType::Warning,
            };
            self.parts
                .recorder
                .publish(vmi, kind, reason, message.clone());
        }
    }
}

/// What one pass works with.
pub(super) struct Pass<'a> {
    guests: &'a Guests,
    pair: &'a Pair,
    pub(super) vmi: &'a VirtualMachineInstance,
    pub(super) entry: &'a Entry,
    pub(super) link: &'a Link,
    pub(super) plugs: Arc<Plugs>,
    /// The attachment pod of a pod to which the guest moves, in place of those that the volumes name.
    attachment: Option<&'a str>,
}

impl Pass<'_> {
    async fn run(&self, next: &mut Plugged) {
        let wanted = plugged::wanted(self.vmi);
        let with = |kind: Wanted| {
            let all = wanted.iter().filter(move |(_, one)| **one == kind);
            all.map(|(name, _)| *name).collect::<Vec<&str>>()
        };
        let mut found = BTreeMap::new();
        let coming = with(Wanted::Attached);
        let receiving: Vec<&str> = [with(Wanted::Dumped), with(Wanted::BackedUp)].concat();
        next.awaited.retain(|volume, _| {
            coming.contains(&volume.as_str()) || receiving.contains(&volume.as_str())
        });
        for volume in coming {
            let brought = self.bring(volume).await;
            if !matches!(brought, Err(BringError::NotYet)) {
                next.awaited.remove(volume);
            }
            match brought {
                Ok(facts) => {
                    next.mounted.insert(volume.to_owned());
                    found.insert(volume.to_owned(), facts);
                }
                Err(error @ BringError::NotYet) => await_pod(volume, &error, next),
                Err(error) => {
                    next.failures.insert(volume.to_owned(), not_mounted(&error));
                    next.retry_in.get_or_insert(plugged::RETRY);
                }
            }
        }
        self.receive_all(&receiving, next).await;
        let leaving = with(Wanted::Detached);
        next.leaving
            .retain(|volume, _| leaving.contains(&volume.as_str()));
        let attached = self.set_disks(&wanted, &found, next).await;
        for volume in leaving {
            if attached.contains_key(volume) {
                await_release(volume, next);
                continue;
            }
            // Its end is reported.
            if self.is_dumping(volume) {
                continue;
            }
            if !self.end_backup(volume, next).await {
                next.retry_in.get_or_insert(plugged::RETRY);
                continue;
            }
            match self.unmount(volume).await {
                Ok(()) => {
                    next.unmounted.insert(volume.to_owned());
                }
                Err(error) => {
                    let failure = Failure {
                        reason: Reason::VolumeNotUnmounted,
                        message: error_chain(&error),
                    };
                    next.failures.insert(volume.to_owned(), failure);
                    next.retry_in.get_or_insert(plugged::RETRY);
                }
            }
        }
    }

    pub(super) async fn mount(&self, volume: &str) -> Result<(), BringError> {
        if !self.plugs.has(volume)? {
            let attachment = self.attachment(volume).await?;
            self.plugs.mount(&attachment, volume).await?;
            tracing::info!(volume, "volume mounted in the launcher pod");
        }
        Ok(())
    }

    /// Mounts a volume, and gives its image to the guest's user.
    async fn bring(&self, volume: &str) -> Result<VolumeFacts, BringError> {
        self.mount(volume).await?;
        let guest = Guest::of(self.vmi);
        let claim = guest
            .volume(volume)
            .and_then(|volume| volume.source.claim());
        let access = if claim.is_some_and(|claim| claim.is_read_only) {
            Access::Read
        } else {
            Access::Write
        };
        let provisioning = Claims::hotplugged(self.vmi).provisioning(volume);
        let (plugs, name) = (Arc::clone(&self.plugs), volume.to_owned());
        let work = self.entry.plugged.works.begin(volume).ok_or_else(hangs)?;
        let facts = tokio::task::spawn_blocking(move || {
            let _work = work;
            plugs.hand_over(&name, access, provisioning)
        });
        let facts = timeout(plugged::STORAGE_TIMEOUT, facts).await;
        let facts = facts.map_err(|_late| hangs())?;
        Ok(facts.map_err(io::Error::other)??)
    }

    async fn unmount(&self, volume: &str) -> io::Result<()> {
        let work = self.entry.plugged.works.begin(volume).ok_or_else(hangs)?;
        let unmounted = self.plugs.unmount(volume, work);
        let unmounted = timeout(plugged::STORAGE_TIMEOUT, unmounted).await;
        unmounted.unwrap_or_else(|_late| Err(hangs()))
    }

    /// A process of the attachment pod that virt-controller has published for the volume.
    async fn attachment(&self, volume: &str) -> Result<Peer, BringError> {
        let status = self.vmi.status.iter();
        let mut all = status.flat_map(|status| &status.volume_status);
        let status = all.find(|one| one.name == volume);
        let plugged = status.and_then(|one| one.hotplug_volume.as_ref());
        let uid = plugged.and_then(|plugged| plugged.attach_pod_uid.as_deref());
        let uid = self.attachment.or(uid);
        let uid = uid.and_then(|uid| PodUid::parse(uid).ok());
        let uid = uid.ok_or(BringError::NoPod)?;
        let pods = &self.guests.parts.pods_dir;
        let directory = pods.open(&uid, ATTACHMENT_VOLUME).map_err(not_yet)?;
        let stream = directory
            .connect(ATTACHMENT_SOCKET)
            .await
            .map_err(not_yet)?;
        Ok(Peer::of(&stream, &uid)?)
    }

    /// Has the launcher attach the found volumes and detach others; returns the attached ones.
    async fn set_disks(
        &self,
        wanted: &BTreeMap<&str, Wanted>,
        found: &BTreeMap<String, VolumeFacts>,
        next: &mut Plugged,
    ) -> BTreeMap<String, String> {
        // Without the launcher's state the disks to keep are unknown.
        let Some(state) = self.link.state.clone() else {
            next.retry_in.get_or_insert(plugged::RETRY);
            return BTreeMap::new();
        };
        let Some(facts) = &self.entry.facts else {
            return state.disks;
        };
        let mut rendered = BTreeMap::new();
        for (volume, one) in found {
            let alone = BTreeMap::from([(volume.clone(), *one)]);
            match prepare::hot_disks(self.vmi, &self.pair.pod, facts, &alone) {
                Ok(_) => {
                    rendered.insert(volume.clone(), *one);
                }
                Err(error) => {
                    let failure = Failure {
                        reason: Reason::DomainNotRenderable,
                        message: error_chain(&error),
                    };
                    next.failures.insert(volume.clone(), failure);
                }
            }
        }
        let mut disks = match prepare::hot_disks(self.vmi, &self.pair.pod, facts, &rendered) {
            Ok(disks) => disks,
            Err(error) => {
                tracing::warn!(
                    error = error_chain(&error),
                    "failed to render hot-plugged disks"
                );
                return state.disks;
            }
        };
        plugged::keep_attached(&mut disks, wanted, &state.disks);
        let with_source = |disk: &&HotDisk| disk.source.is_some();
        let names: BTreeSet<String> = disks
            .iter()
            .filter(with_source)
            .map(|disk| disk.volume.clone())
            .collect();
        let is_attached = |names: &BTreeSet<String>, attached: &BTreeMap<String, String>| {
            names.iter().eq(attached.keys())
        };
        if is_attached(&names, &state.disks) {
            return state.disks;
        }
        let connection = self.link.connection;
        let is_recent = next.requested.as_ref().is_some_and(|(last, at, over)| {
            *last == names && *over == connection && at.elapsed() < plugged::RETRY
        });
        let answer = if is_recent {
            Ok(state)
        } else {
            next.requested = Some((names.clone(), Instant::now(), connection));
            self.entry.session.call(Request::Disks(disks)).await
        };
        match answer {
            Ok(state) => {
                let failures = state.disk_failures.iter();
                next.failures
                    .extend(failures.map(|(volume, why)| (volume.clone(), plugged::refused(why))));
                if !is_attached(&names, &state.disks) {
                    next.retry_in.get_or_insert(plugged::RETRY);
                }
                state.disks
            }
            Err(error) => {
                let failure = plugged::refused(&error_chain(&error));
                let all = names.into_iter().map(|name| (name, failure.clone()));
                next.failures.extend(all);
                next.retry_in.get_or_insert(plugged::RETRY);
                // Without an answer nothing is known to be detached.
                let known = self.link.state.clone().unwrap_or_default();
                known.disks
            }
        }
    }
}

pub(super) fn hangs() -> io::Error {
    let message = "the storage of the volume does not respond";
    io::Error::new(io::ErrorKind::TimedOut, message)
}

/// Looks again soon, and less often once the pod has not responded for long.
pub(super) fn await_pod(volume: &str, error: &BringError, next: &mut Plugged) {
    let since = *next
        .awaited
        .entry(volume.to_owned())
        .or_insert_with(Instant::now);
    if since.elapsed() >= plugged::RESPONSE_TIMEOUT {
        next.failures.insert(volume.to_owned(), not_mounted(error));
        next.retry_in.get_or_insert(plugged::RETRY);
    } else {
        next.retry_in = Some(plugged::SOON);
    }
}

fn await_release(volume: &str, next: &mut Plugged) {
    let since = *next
        .leaving
        .entry(volume.to_owned())
        .or_insert_with(Instant::now);
    if since.elapsed() >= plugged::RELEASE_TIMEOUT {
        let failure = Failure {
            reason: Reason::VolumeNotReleased,
            message: format!(
                "the guest has not released the disk of volume {volume} for {} s",
                plugged::RELEASE_TIMEOUT.as_secs()
            ),
        };
        next.failures.insert(volume.to_owned(), failure);
    } else {
        next.failures.remove(volume);
    }
    next.retry_in.get_or_insert(plugged::RETRY);
}

pub(super) fn not_mounted(error: &(dyn std::error::Error + 'static)) -> Failure {
    Failure {
        reason: Reason::VolumeNotMounted,
        message: error_chain(error),
    }
}

/// The pod has no socket yet, or no process listens on it.
fn not_yet(error: io::Error) -> BringError {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => BringError::NotYet,
        _ => BringError::Io(error),
    }
}
