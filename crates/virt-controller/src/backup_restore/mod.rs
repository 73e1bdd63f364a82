//! The controller of restores of backups: fills claims with the disks of a backup.
//!
//! A pod inspects the backup and reports its disks; then each disk gets a claim and a pod that writes it
//! (`disk-import`). While a claim has no complete disk, an annotation says so ([`RestoreMark`]): nothing starts on
//! it.
//!
//! - [`plan`] decides, [`disk`] for one disk; [`rivals`] orders restores with claims in common; [`claims`] names and
//!   renders claims and marks.
//!
//! **Invariants**: nothing is written to a claim without its mark, which goes only when the disk is complete, or when the
//! last pod that could write reports that the claim has its old disk; a complete disk is in the status before anything
//! else is done; files of a backup are verified before the first claim is overwritten; a
//! claim that existed before is marked only while nothing uses it, and that is looked at again after the
//! mark is in the cache from which launcher pods are created; no claim is overwritten before all claims of the restore
//! are reserved; a new claim belongs to the restore until its disk is
//! complete, and goes with it; a finalizer keeps a restore that overwrites claims until it has taken back the marks of
//! claims with their old disks; the names of claims and pods are fixed before the first is made. All progress is in
//! the objects, so that a later process continues.
//!
//! [`RestoreMark`]: kubevirt_api::backup_restore::RestoreMark

mod act;
mod claims;
mod disk;
mod observe;
mod plan;
mod rivals;
mod source;
mod status;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use kube::Client;
use kube::runtime::watcher;
use kubevirt_api::backup::VirtualMachineBackup;
use kubevirt_api::backup_restore::VirtualMachineBackupRestore as Restore;
use launcher_pod::Settings;
use reasons::Reason;
use reconcile::{
    Clock, Key, ReconcileError, Reconciler, Recorder, Requeue, Retry, Store, Tracked, WriteError,
};

use crate::caches::VMI;
use crate::data_volume::ImporterPod;
use crate::gate::Gate;
use crate::operation::RETRY;
use crate::view::{Guest, Volumes};
use crate::vm::Vm;
use crate::wiring::Wiring;

/// Trigger by a restore.
const RESTORE: &str = "virtualmachinebackuprestore";
const BACKUP: &str = "virtualmachinebackup";
const POD: &str = "pod";
/// More steps than any restore can do before it has to wait.
const MAX_STEPS: usize = 128;

#[derive(Clone)]
struct Controller {
    client: Client,
    restores: Store<Restore>,
    backups: Tracked<VirtualMachineBackup>,
    volumes: Volumes,
    guests: Store<Guest>,
    vms: Store<Vm>,
    pods: Store<ImporterPod>,
    launcher: Settings,
    recorder: Recorder,
    clock: Clock,
}

/// What the watch of importer pods triggers.
#[derive(Clone)]
pub(crate) struct Queue(Gate);

impl Queue {
    pub(crate) fn pod_changed(&self, pod: &ImporterPod) {
        if let Some(owner) = Key::of_controller(pod, Restore::KIND) {
            self.0.add(owner, POD);
        }
    }
}

/// The store of pods is that of data volumes, which is watched once.
pub(crate) fn register(wiring: &mut Wiring<'_>, pods: &Store<ImporterPod>) -> Queue {
    let gate = Gate::default();
    let restores: Store<Restore> = Store::new();
    let queue = gate.clone();
    let on_change = move |one: &Restore| queue.add(Key::of(one), RESTORE);
    wiring.watch_if_defined(watcher::Config::default(), &restores, on_change);
    let store: Store<VirtualMachineBackup> = Store::new();
    let backups = Tracked::new(store.clone());
    let (queue, tracked) = (gate.clone(), backups.clone());
    let on_change = move |one: &VirtualMachineBackup| {
        queue.add_all(tracked.changed(&Key::of(one)), BACKUP);
    };
    wiring.watch_if_defined(watcher::Config::default(), &store, on_change);
    let (queue, all) = (gate.clone(), restores.clone());
    wiring.caches.guests.on_change(move |vmi| {
        // A guest that ends may have used a claim that a restore waits for.
        if vmi.is_final() || vmi.is_deleting() {
            let namespace = Key::of(vmi).namespace;
            let of_namespace = all.in_namespace(&namespace).into_iter();
            let waiting = of_namespace.filter(|one| !status::is_finished(one));
            queue.add_all(waiting.map(|one| Key::of(one.as_ref())), VMI);
        }
    });
    let controller = Controller {
        client: wiring.settings.client.clone(),
        restores: restores.clone(),
        backups,
        volumes: wiring.caches.volumes(&gate),
        guests: wiring.caches.guests.store(),
        vms: wiring.caches.vms.store(),
        pods: pods.clone(),
        launcher: wiring.settings.launcher.clone(),
        recorder: wiring.recorder.clone(),
        clock: wiring.settings.clock,
    };
    wiring.controller(&gate, &restores, move || controller.clone());
    Queue(gate)
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
    #[error("write the status")]
    Status(#[source] WriteError),
}

impl ReconcileError for RestoreError {
    fn reason(&self) -> Reason {
        match self {
            Self::Read { .. } => Reason::ServerUnavailable,
            Self::Write { .. } => Reason::FailedUpdate,
            Self::Status(_) => Reason::FailedStatusUpdate,
        }
    }

    fn retry(&self) -> Retry {
        match self {
            Self::Read { .. } => Retry::BackOff,
            Self::Write { source, .. } | Self::Status(source) => source.retry(),
        }
    }
}

impl Reconciler for Controller {
    const NAME: &'static str = "backup-restore";
    type Error = RestoreError;

    async fn reconcile(&self, key: &Key) -> Result<Requeue, RestoreError> {
        let Some(mut restore) = self.restores.get(key) else {
            return Ok(Requeue::OnChange);
        };
        for _ in 0..MAX_STEPS {
            let observed = self.observe(key, Arc::clone(&restore)).await?;
            let plan = plan::plan(&observed);
            if let Some(step) = plan.step {
                match self.act(key, &observed, step).await {
                    Ok(Some(after)) => restore = Arc::new(after),
                    Ok(None) if step == plan::Step::RemoveFinalizer => {
                        return Ok(Requeue::OnChange);
                    }
                    // The caches show the effect soon, and trigger the next step.
                    Ok(None) => return Ok(Requeue::After(RETRY)),
                    Err(error) => {
                        self.write_failure(key, &observed, &error).await?;
                        return Err(error);
                    }
                }
                continue;
            }
            match self.write_status(key, &observed, &plan.progress).await? {
                Some(after) if plan.progress.leads_on() => restore = Arc::new(after),
                _ => return Ok(plan.requeue_in.map_or(Requeue::OnChange, Requeue::After)),
            }
        }
        Ok(Requeue::After(RETRY))
    }

    fn uid_of(&self, key: &Key) -> Option<String> {
        self.restores.get(key)?.metadata.uid.clone()
    }
}
