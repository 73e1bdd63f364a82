//! The restore controller: takes a stopped VM back to a snapshot, or creates a VM from one.
//!
//! Each disk gets a new claim with the volume snapshot as its data source; the spec of the VM then names the
//! new claims. Meanwhile the VM is locked, and the VM controller does not start it.
//!
//! - [`plan`] decides, [`claims`] names and renders claims, [`target`] renders the VM.
//!
//! **Invariants**: nothing is changed unless the snapshot is ready, the VM belongs to it and no guest runs; a
//! claim is deleted only by policy `InPlace`, and only while the snapshot has its data; a claim that another
//! object has created is never taken. All progress is in the objects, so that a later process continues.

mod act;
mod claims;
mod observe;
mod plan;
mod status;
mod target;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use kube::Client;
use kubevirt_api::restore::VirtualMachineRestore;
use kubevirt_api::snapshot::VolumeBackup;
use reasons::Reason;
use reconcile::{
    Clock, Key, ReconcileError, Reconciler, Recorder, Requeue, Retry, Store, WriteError,
};
use serde_json::Value;

use self::target::{Replaced, restored};
use crate::caches::VMI;
use crate::gate::Gate;
use crate::operation::RETRY;
use crate::subresources::SubresourceError;
use crate::wiring::Wiring;

pub(crate) use claims::{mark, spec_from_copy};
pub(crate) use observe::{Target, copied_vm};
pub(crate) use target::shared_claims;

/// Trigger by a restore.
const RESTORE: &str = "virtualmachinerestore";
const SNAPSHOT: &str = "virtualmachinesnapshot";
/// Bounds the steps of one reconcile: each disk needs some.
const MAX_STEPS: usize = 256;

#[derive(Clone)]
struct Controller {
    client: Client,
    restores: Store<VirtualMachineRestore>,
    recorder: Recorder,
    clock: Clock,
}

pub(crate) fn register(wiring: &mut Wiring<'_>) {
    let gate = Gate::default();
    let restores = wiring.caches.restores.store();
    let queue = gate.clone();
    wiring
        .caches
        .restores
        .on_change(move |one| queue.add(Key::of(one), RESTORE));
    let (queue, all) = (gate.clone(), restores.clone());
    wiring.caches.snapshots.on_change(move |snapshot| {
        let key = Key::of(snapshot);
        let of_namespace = all.in_namespace(&key.namespace).into_iter();
        let of_snapshot =
            of_namespace.filter(|one| one.spec.virtual_machine_snapshot_name == key.name);
        queue.add_all(of_snapshot.map(|one| Key::of(one.as_ref())), SNAPSHOT);
    });
    let (queue, all) = (gate.clone(), restores.clone());
    wiring.caches.guests.on_change(move |vmi| {
        let key = Key::of(vmi);
        let of_namespace = all.in_namespace(&key.namespace).into_iter();
        // Each reconcile reads all parts of the restore.
        let of_guest = of_namespace
            .filter(|one| one.spec.target.name == key.name && !observe::is_complete(one));
        queue.add_all(of_guest.map(|one| Key::of(one.as_ref())), VMI);
    });
    let controller = Controller {
        client: wiring.settings.client.clone(),
        restores: restores.clone(),
        recorder: wiring.recorder.clone(),
        clock: wiring.settings.clock,
    };
    wiring.controller(&gate, &restores, move || controller.clone());
}

/// The VM that the restore would create; the message if its patches cannot be applied.
pub(crate) fn new_vm(
    restore: &VirtualMachineRestore,
    source: &Value,
    backups: &[VolumeBackup],
) -> Result<Value, String> {
    let replaced = backups.iter().map(|backup| Replaced {
        volume: backup.volume_name.clone(),
        claim: claims::name(restore, backup),
    });
    let replaced: Vec<Replaced> = replaced.collect();
    restored(restore, source, None, &replaced)
}

/// Why a reconcile failed.
#[derive(Debug, thiserror::Error)]
enum RestoreError {
    #[error("read {what}")]
    Read {
        what: &'static str,
        #[source]
        source: Box<kube::Error>,
    },
    #[error("{tried}")]
    Write {
        tried: &'static str,
        #[source]
        source: WriteError,
    },
    #[error("stop the VM")]
    Stop(#[source] SubresourceError),
    #[error("write the status")]
    Status(#[source] WriteError),
}

impl ReconcileError for RestoreError {
    fn reason(&self) -> Reason {
        match self {
            Self::Read { .. } => Reason::ServerUnavailable,
            Self::Write { .. } => Reason::VirtualMachineRestoreError,
            Self::Stop(_) => Reason::RestoreTargetNotReady,
            Self::Status(_) => Reason::FailedStatusUpdate,
        }
    }

    fn retry(&self) -> Retry {
        match self {
            Self::Read { .. } | Self::Stop(_) => Retry::BackOff,
            Self::Write { source, .. } | Self::Status(source) => source.retry(),
        }
    }
}

impl Reconciler for Controller {
    const NAME: &'static str = "restore";
    type Error = RestoreError;

    async fn reconcile(&self, key: &Key) -> Result<Requeue, RestoreError> {
        let Some(mut restore) = self.restores.get(key) else {
            return Ok(Requeue::OnChange);
        };
        for _ in 0..MAX_STEPS {
            let observed = self.observe(key, Arc::clone(&restore)).await?;
            let plan = plan::plan(&observed);
            let Some(step) = &plan.step else {
                self.write_status(key, &observed, &plan, None).await?;
                return Ok(plan.requeue_in.map_or(Requeue::OnChange, Requeue::After));
            };
            match Box::pin(self.act(key, &observed, step)).await {
                Ok(_) if *step == plan::Step::Stop => {
                    self.write_status(key, &observed, &plan, None).await?;
                    return Ok(Requeue::After(RETRY));
                }
                Ok(Some(after)) => {
                    self.restores.wrote(&restore, after.clone());
                    restore = Arc::new(after);
                }
                Ok(None) => {}
                Err(error) => {
                    self.write_status(key, &observed, &plan, Some(&error))
                        .await?;
                    return Err(error);
                }
            }
        }
        Ok(Requeue::After(RETRY))
    }

    fn uid_of(&self, key: &Key) -> Option<String> {
        self.restores.get(key)?.metadata.uid.clone()
    }
}
