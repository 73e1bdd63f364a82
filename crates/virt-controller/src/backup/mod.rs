//! The backup controller: copies the disks of a running VM to a claim.
//!
//! The claim gets into the guest's pod as a utility volume of the VMI, as volumes of running guests do. Then the
//! status of the VMI names the backup, and virt-handler has the launcher make it and reports its end there. The
//! claim leaves the pod, and only then the backup is complete.
//!
//! In mode `Pull` the disks are not copied but offered, to clients of an export that belongs to the backup ([`pull`]).
//!
//! **Invariants**: a guest has one backup at a time; a backup is complete only if virt-handler has reported that
//! all of it is on disk; one that began is never begun again: if its guest is gone, it has failed. All progress
//! is in the objects, so that a later process continues.

mod act;
mod observe;
mod plan;
mod pull;
#[cfg(test)]
mod pull_tests;
mod status;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use kube::Client;
use kube::runtime::watcher;
use kubevirt_api::backup::{VirtualMachineBackup, VirtualMachineBackupTracker};
use kubevirt_api::export::VirtualMachineExport;
use reasons::Reason;
use reconcile::{
    Clock, Key, ReconcileError, Reconciler, Recorder, Requeue, Retry, Store, WriteError,
};

use crate::caches::VMI;
use crate::gate::Gate;
use crate::operation::RETRY;
use crate::view::{Guest, Volumes};
use crate::wiring::Wiring;

/// Trigger by a backup.
const BACKUP: &str = "virtualmachinebackup";
const TRACKER: &str = "virtualmachinebackuptracker";
const EXPORT: &str = "virtualmachineexport";
/// More steps than any backup needs at once.
const MAX_STEPS: usize = 16;

#[derive(Clone)]
struct Controller {
    client: Client,
    backups: Store<VirtualMachineBackup>,
    trackers: Store<VirtualMachineBackupTracker>,
    exports: Store<VirtualMachineExport>,
    vmis: Store<Guest>,
    volumes: Volumes,
    recorder: Recorder,
    clock: Clock,
}

pub(crate) fn register(wiring: &mut Wiring<'_>) {
    let gate = Gate::default();
    let backups: Store<VirtualMachineBackup> = Store::new();
    let trackers: Store<VirtualMachineBackupTracker> = Store::new();
    let queue = gate.clone();
    let on_change = move |one: &VirtualMachineBackup| queue.add(Key::of(one), BACKUP);
    wiring.watch_if_defined(watcher::Config::default(), &backups, on_change);
    let (queue, all) = (gate.clone(), backups.clone());
    let on_change = move |tracker: &VirtualMachineBackupTracker| {
        let key = Key::of(tracker);
        let of_namespace = all.in_namespace(&key.namespace).into_iter();
        let concerned = of_namespace.filter(|one| one.spec.source.name == key.name);
        queue.add_all(concerned.map(|one| Key::of(one.as_ref())), TRACKER);
    };
    wiring.watch_if_defined(watcher::Config::default(), &trackers, on_change);
    let (queue, all, known) = (gate.clone(), backups.clone(), trackers.clone());
    let vmis = wiring.caches.guests.store();
    wiring.caches.guests.on_change(move |vmi| {
        let key = Key::of(vmi);
        let of_namespace = all.in_namespace(&key.namespace).into_iter();
        let concerned = of_namespace.filter(|one| observe::is_concerned(one, vmi, &known));
        queue.add_all(concerned.map(|one| Key::of(one.as_ref())), VMI);
    });
    let exports: Store<VirtualMachineExport> = Store::new();
    let (queue, all) = (gate.clone(), backups.clone());
    let on_change = move |export: &VirtualMachineExport| {
        // Also one that does not belong to the backup: the backup waits for its deletion.
        let key = Key::of(export);
        if all.get(&key).is_some() {
            queue.add(key, EXPORT);
        }
    };
    wiring.watch_if_defined(watcher::Config::default(), &exports, on_change);
    let controller = Controller {
        client: wiring.settings.client.clone(),
        backups: backups.clone(),
        trackers,
        exports,
        vmis,
        volumes: wiring.caches.volumes(&gate),
        recorder: wiring.recorder.clone(),
        clock: wiring.settings.clock,
    };
    wiring.controller(&gate, &backups, move || controller.clone());
}

/// Why a reconcile failed.
#[derive(Debug, thiserror::Error)]
enum BackupError {
    #[error("{tried}")]
    Update {
        tried: &'static str,
        #[source]
        source: WriteError,
    },
    #[error("create the export")]
    Offer(#[source] WriteError),
    #[error("delete the export")]
    Withdraw(#[source] WriteError),
    #[error("write the status")]
    Status(#[source] WriteError),
}

impl ReconcileError for BackupError {
    fn reason(&self) -> Reason {
        match self {
            Self::Update { .. } => Reason::FailedUpdate,
            Self::Offer(_) => Reason::FailedCreate,
            Self::Withdraw(_) => Reason::FailedDelete,
            Self::Status(_) => Reason::FailedStatusUpdate,
        }
    }

    fn retry(&self) -> Retry {
        match self {
            Self::Update { source, .. }
            | Self::Offer(source)
            | Self::Withdraw(source)
            | Self::Status(source) => source.retry(),
        }
    }
}

impl Reconciler for Controller {
    const NAME: &'static str = "backup";
    type Error = BackupError;

    async fn reconcile(&self, key: &Key) -> Result<Requeue, BackupError> {
        let Some(mut backup) = self.backups.get(key) else {
            return Ok(Requeue::OnChange);
        };
        for _ in 0..MAX_STEPS {
            let observed = self.observe(key, Arc::clone(&backup));
            let plan = plan::plan(&observed);
            let Some(step) = plan.step else {
                match self.write_status(key, &observed, &plan).await? {
                    // The end of a backup is followed by clearing up.
                    Some(after) if observe::is_finished(&after) => backup = Arc::new(after),
                    _ => return Ok(plan.requeue_in.map_or(Requeue::OnChange, Requeue::After)),
                }
                continue;
            };
            if let Some(after) = self.act(key, &observed, step).await? {
                backup = Arc::new(after);
            }
            match step {
                plan::Step::RemoveFinalizer => return Ok(Requeue::OnChange),
                // The cache does not have the change yet.
                plan::Step::Offer | plan::Step::Withdraw => return Ok(Requeue::After(RETRY)),
                _ => {}
            }
        }
        Ok(Requeue::After(RETRY))
    }

    fn uid_of(&self, key: &Key) -> Option<String> {
        self.backups.get(key)?.metadata.uid.clone()
    }
}
