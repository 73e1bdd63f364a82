//! The clone controller: makes another VM of a VM or of a snapshot.
//!
//! A `VirtualMachineClone` of a VM takes a snapshot first. A restore then brings it to a new VM, with patches that
//! give it an identity of its own. Both helpers belong to the clone, and are deleted when the claims of the new VM
//! have their data.
//!
//! - [`plan`] decides, [`copy`] renders the restore.
//!
//! **Invariants**: a VM that exists is never changed; the snapshot that a user names is never deleted; a helper is
//! deleted before the clone ends only if no claim needs it any more. All progress is in the objects, so that a later
//! process continues.

mod act;
mod copy;
mod observe;
mod plan;
mod status;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use cluster_view::Configuration;
use kube::Client;
use kube::runtime::watcher;
use kubevirt_api::clone::VirtualMachineClone;
use reasons::Reason;
use reconcile::{
    Clock, Key, ReconcileError, Reconciler, Recorder, Requeue, Retry, Store, WriteError,
};

use crate::caches::VM;
use crate::gate::Gate;
use crate::operation::RETRY;
use crate::view::Volumes;
use crate::vm::Vm;
use crate::wiring::Wiring;

pub(crate) use plan::{cause, keeps_state, not_copyable};

/// Trigger by a clone.
const CLONE: &str = "virtualmachineclone";
const SNAPSHOT: &str = "virtualmachinesnapshot";
const RESTORE: &str = "virtualmachinerestore";
/// More steps than any clone needs at once.
const MAX_STEPS: usize = 16;

#[derive(Clone)]
struct Controller {
    client: Client,
    clones: Store<VirtualMachineClone>,
    vms: Store<Vm>,
    volumes: Volumes,
    cluster: Configuration,
    recorder: Recorder,
    clock: Clock,
}

pub(crate) fn register(wiring: &mut Wiring<'_>) {
    let gate = Gate::default();
    let clones: Store<VirtualMachineClone> = Store::new();
    let queue = gate.clone();
    let on_change = move |one: &VirtualMachineClone| queue.add(Key::of(one), CLONE);
    wiring.watch_if_defined(watcher::Config::default(), &clones, on_change);
    let (queue, all) = (gate.clone(), clones.clone());
    let vms = wiring.caches.vms.store();
    let current = vms.clone();
    wiring.caches.vms.on_change(move |vm| {
        let key = Key::of(vm);
        let is_gone = current.get(&key).is_none();
        let of_namespace = all.in_namespace(&key.namespace).into_iter();
        let concerned = of_namespace.filter(|one| {
            observe::waits_for_vm(one, &key.name)
                || (is_gone && observe::has_target(one, &key.name))
        });
        queue.add_all(concerned.map(|one| Key::of(one.as_ref())), VM);
    });
    let (queue, all) = (gate.clone(), clones.clone());
    wiring.caches.snapshots.on_change(move |snapshot| {
        let key = Key::of(snapshot);
        let of_namespace = all.in_namespace(&key.namespace).into_iter();
        let concerned = of_namespace.filter(|one| observe::snapshot_name(one) == key.name);
        queue.add_all(concerned.map(|one| Key::of(one.as_ref())), SNAPSHOT);
    });
    let (queue, all) = (gate.clone(), clones.clone());
    wiring.caches.restores.on_change(move |restore| {
        let key = Key::of(restore);
        let of_namespace = all.in_namespace(&key.namespace).into_iter();
        let concerned = of_namespace.filter(|one| copy::restore_name(one) == key.name);
        queue.add_all(concerned.map(|one| Key::of(one.as_ref())), RESTORE);
    });
    let controller = Controller {
        client: wiring.settings.client.clone(),
        clones: clones.clone(),
        vms,
        volumes: wiring.caches.volumes(&gate),
        cluster: wiring.cluster.clone(),
        recorder: wiring.recorder.clone(),
        clock: wiring.settings.clock,
    };
    wiring.controller(&gate, &clones, move || controller.clone());
}

/// Why a reconcile failed.
#[derive(Debug, thiserror::Error)]
enum CloneError {
    #[error("read {what}")]
    Read {
        what: &'static str,
        #[source]
        source: Box<kube::Error>,
    },
    #[error("create the snapshot")]
    CreateSnapshot(#[source] WriteError),
    #[error("create the restore")]
    CreateRestore(#[source] WriteError),
    #[error("delete {what}")]
    Delete {
        what: &'static str,
        #[source]
        source: WriteError,
    },
    #[error("write the status")]
    Status(#[source] WriteError),
}

impl ReconcileError for CloneError {
    fn reason(&self) -> Reason {
        match self {
            Self::Read { .. } => Reason::ServerUnavailable,
            Self::CreateSnapshot(_) => Reason::FailedCreate,
            Self::CreateRestore(_) => Reason::RestoreCreationFailed,
            Self::Delete { .. } => Reason::FailedDelete,
            Self::Status(_) => Reason::FailedStatusUpdate,
        }
    }

    fn retry(&self) -> Retry {
        match self {
            Self::Read { .. } => Retry::BackOff,
            Self::CreateSnapshot(source)
            | Self::CreateRestore(source)
            | Self::Delete { source, .. }
            | Self::Status(source) => source.retry(),
        }
    }
}

impl Reconciler for Controller {
    const NAME: &'static str = "clone";
    type Error = CloneError;

    async fn reconcile(&self, key: &Key) -> Result<Requeue, CloneError> {
        let Some(mut clone) = self.clones.get(key) else {
            return Ok(Requeue::OnChange);
        };
        for _ in 0..MAX_STEPS {
            let observed = self.observe(key, Arc::clone(&clone)).await?;
            let plan = plan::plan(&observed);
            let Some(step) = &plan.step else {
                let before = observed.phase();
                let written = self.write_status(key, &observed, &plan, None).await?;
                match written.map(Arc::new) {
                    // A clone that has ended may have helpers to delete.
                    Some(after) if observe::phase(&after) != before => clone = after,
                    _ => return Ok(plan.requeue_in.map_or(Requeue::OnChange, Requeue::After)),
                }
                continue;
            };
            if let Err(error) = Box::pin(self.act(key, &observed, step)).await {
                self.write_status(key, &observed, &plan, Some(&error))
                    .await?;
                return Err(error);
            }
            if *step == plan::Step::DeleteClone {
                return Ok(Requeue::OnChange);
            }
        }
        Ok(Requeue::After(RETRY))
    }

    fn uid_of(&self, key: &Key) -> Option<String> {
        self.clones.get(key)?.metadata.uid.clone()
    }
}
