//! The snapshot controller: copies the definition and the disks of a VM.
//!
//! A `VirtualMachineSnapshot` gets a `VirtualMachineSnapshotContent` with the definition of the VM, and one
//! `VolumeSnapshot` for each disk. Meanwhile the VM is locked, and a running guest is held still: frozen by
//! its agent, or paused.
//!
//! - [`plan`] decides, [`source`] finds the disks of a VM, [`hold`] records how the guest is held;
//! - [`contents`] releases contents that are deleted.
//!
//! **Invariants**: every disk is copied within one hold of the guest, or the snapshot fails; the record of
//! a hold is written before the guest is held, so that a later process releases it, and it is kept until the
//! guest is known not to be paused by it; a guest that was paused by a user stays paused; a disk is never copied a second time for the same snapshot once all are copied.

mod act;
mod contents;
mod hold;
mod observe;
mod plan;
mod source;
mod status;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use kube::Client;
use kubevirt_api::snapshot::VirtualMachineSnapshot;
use reasons::Reason;
use reconcile::{
    Clock, Key, ReconcileError, Reconciler, Recorder, Requeue, Retry, Store, WriteError,
};

use crate::caches::VMI;
use crate::gate::Gate;
use crate::operation::RETRY;
use crate::subresources::SubresourceError;
use crate::view::{DataVolume, SnapshotClasses};
use crate::wiring::Wiring;

pub(crate) use source::claim_of;

/// Trigger by a snapshot.
const SNAPSHOT: &str = "virtualmachinesnapshot";
const VOLUME_SNAPSHOT: &str = "volumesnapshot";
/// More steps than any snapshot needs at once.
const MAX_STEPS: usize = 16;

#[derive(Clone)]
struct Controller {
    client: Client,
    snapshots: Store<VirtualMachineSnapshot>,
    data_volumes: Store<DataVolume>,
    classes: SnapshotClasses,
    recorder: Recorder,
    clock: Clock,
}

pub(crate) fn register(wiring: &mut Wiring<'_>) {
    let gate = Gate::default();
    let snapshots = wiring.caches.snapshots.store();
    let queue = gate.clone();
    wiring
        .caches
        .snapshots
        .on_change(move |one| queue.add(Key::of(one), SNAPSHOT));
    // A volume snapshot is owned by the content, whose name has the UID of the snapshot.
    let (queue, all) = (gate.clone(), snapshots.clone());
    wiring.caches.volume_snapshots.on_change(move |one| {
        let namespace = one.metadata.namespace.clone().unwrap_or_default();
        let name = one.metadata.name.as_deref().unwrap_or_default();
        let of_namespace = all.in_namespace(&namespace).into_iter();
        let owner = of_namespace.filter(|snapshot| name.starts_with(&source::prefix(snapshot)));
        queue.add_all(owner.map(|one| Key::of(one.as_ref())), VOLUME_SNAPSHOT);
    });
    let (queue, all) = (gate.clone(), snapshots.clone());
    wiring.caches.guests.on_change(move |vmi| {
        let key = Key::of(vmi);
        let of_namespace = all.in_namespace(&key.namespace).into_iter();
        let of_guest = of_namespace
            .filter(|one| one.spec.source.name == key.name && plan::depends_on_guest(one));
        queue.add_all(of_guest.map(|one| Key::of(one.as_ref())), VMI);
    });
    let controller = Controller {
        client: wiring.settings.client.clone(),
        snapshots: snapshots.clone(),
        data_volumes: wiring.caches.data_volumes.store(),
        classes: wiring.caches.snapshot_classes(&gate, &snapshots),
        recorder: wiring.recorder.clone(),
        clock: wiring.settings.clock,
    };
    contents::register(wiring, &gate);
    wiring.controller(&gate, &snapshots, move || controller.clone());
}

/// Why a reconcile failed.
#[derive(Debug, thiserror::Error)]
enum SnapshotError {
    #[error("read {what}")]
    Read {
        what: &'static str,
        #[source]
        source: Box<kube::Error>,
    },
    #[error("create {what}")]
    Create {
        what: &'static str,
        #[source]
        source: WriteError,
    },
    #[error("{tried}")]
    Update {
        tried: &'static str,
        #[source]
        source: WriteError,
    },
    #[error("{tried} the guest")]
    Guest {
        tried: &'static str,
        #[source]
        source: SubresourceError,
    },
    #[error("write the status")]
    Status(#[source] WriteError),
}

impl ReconcileError for SnapshotError {
    fn reason(&self) -> Reason {
        match self {
            Self::Read { .. } => Reason::ServerUnavailable,
            Self::Create { .. } => Reason::FailedCreate,
            Self::Update { .. } => Reason::FailedUpdate,
            Self::Guest { .. } => Reason::SnapshotSourceBusy,
            Self::Status(_) => Reason::FailedStatusUpdate,
        }
    }

    fn retry(&self) -> Retry {
        match self {
            Self::Read { .. } | Self::Guest { .. } => Retry::BackOff,
            Self::Create { source, .. } | Self::Update { source, .. } | Self::Status(source) => {
                source.retry()
            }
        }
    }
}

impl Reconciler for Controller {
    const NAME: &'static str = "snapshot";
    type Error = SnapshotError;

    async fn reconcile(&self, key: &Key) -> Result<Requeue, SnapshotError> {
        let Some(mut snapshot) = self.snapshots.get(key) else {
            return Ok(Requeue::OnChange);
        };
        for _ in 0..MAX_STEPS {
            let observed = self.observe(key, Arc::clone(&snapshot)).await?;
            let plan = plan::plan(&observed);
            let Some(step) = &plan.step else {
                self.write_status(key, &observed, &plan, None).await?;
                return Ok(plan.requeue_in.map_or(Requeue::OnChange, Requeue::After));
            };
            if *step == plan::Step::NoteCreated {
                // The record of the hold, which the status shows, goes with the release.
                let written = self.write_status(key, &observed, &plan, None).await?;
                snapshot = written.map_or(snapshot, Arc::new);
            }
            let acted = Box::pin(self.act(key, &observed, step)).await;
            match acted {
                Ok(Some(after)) => {
                    self.snapshots.wrote(&snapshot, after.clone());
                    snapshot = Arc::new(after);
                    if matches!(step, plan::Step::Pause(_)) {
                        let observed = self.refreshed(key, observed);
                        self.write_status(key, &observed, &plan, None).await?;
                        // The VMI that shows it triggers the next reconcile earlier.
                        return Ok(Requeue::After(RETRY));
                    }
                }
                Ok(None) => {}
                Err(error) => {
                    let observed = self.refreshed(key, observed);
                    self.write_status(key, &observed, &plan, Some(&error))
                        .await?;
                    return Err(error);
                }
            }
        }
        Ok(Requeue::After(RETRY))
    }

    fn uid_of(&self, key: &Key) -> Option<String> {
        self.snapshots.get(key)?.metadata.uid.clone()
    }
}
