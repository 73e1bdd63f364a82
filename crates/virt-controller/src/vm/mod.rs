//! The VM controller: creates and deletes the VMI of a VM according to its run strategy and its
//! state change requests.
//!
//! The VMI has the VM's name, the VM as its controlling owner, and a finalizer of this controller, so
//! that its final state is observed and counted before it is gone.

mod act;
mod data_volumes;
mod hotplug;
mod instancetype;
mod links;
mod live;
mod live_act;
mod memory_dump;
mod nics;
mod observe;
mod plan;
mod printable;
mod revision;
mod status;
mod strategy;
mod suspend;
mod suspend_act;
mod template;
#[cfg(test)]
mod tests;
mod view;
mod volume_checks;
mod volume_moves;

use cluster_view::Configuration;
use kube::Client;
use kubevirt_api::VirtualMachine;
use reasons::Reason;
use reconcile::{
    Clock, Key, ReconcileError, Reconciler, Recorder, Requeue, Retry, Store, WriteError,
};

use crate::caches::{VM, VMI};
use crate::gate::Gate;
use crate::view::{Guest, SnapshotClasses, Volumes};
use crate::wiring::Wiring;

pub(crate) use self::nics::without as without_interfaces;
pub(crate) use self::strategy::Strategy;
pub(crate) use self::view::Vm;

#[derive(Clone)]
struct Controller {
    client: Client,
    vms: Store<Vm>,
    vmis: Store<Guest>,
    /// Observed for the printable status.
    volumes: Volumes,
    classes: SnapshotClasses,
    recorder: Recorder,
    clock: Clock,
    cluster: Configuration,
}

pub(crate) fn register(wiring: &mut Wiring<'_>) {
    let gate = Gate::default();
    let vms = wiring.caches.vms.store();
    let queue = gate.clone();
    wiring
        .caches
        .vms
        .on_change(move |vm| queue.add(Key::of(vm), VM));
    let queue = gate.clone();
    wiring.caches.guests.on_change(move |vmi| {
        // The VM of that name may want to adopt it.
        queue.add(Key::of(vmi), VMI);
        if let Some(owner) = Key::of_controller(vmi, VirtualMachine::KIND) {
            queue.add(owner, VMI);
        }
    });
    let controller = Controller {
        client: wiring.settings.client.clone(),
        vms: vms.clone(),
        vmis: wiring.caches.guests.store(),
        volumes: wiring.caches.volumes(&gate),
        classes: wiring.caches.snapshot_classes(&gate, &vms),
        recorder: wiring.recorder.clone(),
        clock: wiring.settings.clock,
        cluster: wiring.cluster.clone(),
    };
    wiring.controller(&gate, &vms, move || controller.clone());
}

/// Why a reconcile failed.
#[derive(Debug, thiserror::Error)]
enum VmError {
    #[error("read the VMI")]
    Read(#[source] Box<kube::Error>),
    #[error("store a revision of the spec")]
    KeepRevision(#[source] WriteError),
    #[error(transparent)]
    Choice(#[from] instancetype::ChoiceError),
    #[error(transparent)]
    DataVolume(#[from] data_volumes::DataVolumeError),
    #[error("create the VMI")]
    Create(#[source] WriteError),
    #[error("delete the VMI")]
    Delete(#[source] WriteError),
    #[error("update the VMI")]
    UpdateVmi(#[source] WriteError),
    #[error("update the VM")]
    UpdateVm(#[source] WriteError),
    #[error("note the memory dump on its claim")]
    NoteDump(#[source] WriteError),
    #[error("change the claim of the saved state")]
    SavedClaim(#[source] WriteError),
    #[error("write the status")]
    Status(#[source] WriteError),
}

impl ReconcileError for VmError {
    fn reason(&self) -> Reason {
        match self {
            Self::Read(_) => Reason::ServerUnavailable,
            Self::Choice(error) => error.reason(),
            Self::DataVolume(error) => error.reason(),
            Self::KeepRevision(_) | Self::Create(_) => Reason::FailedCreate,
            Self::Delete(_) => Reason::FailedDelete,
            Self::UpdateVmi(_) | Self::UpdateVm(_) | Self::NoteDump(_) | Self::SavedClaim(_) => {
                Reason::FailedUpdate
            }
            Self::Status(_) => Reason::FailedStatusUpdate,
        }
    }

    fn retry(&self) -> Retry {
        match self {
            Self::Read(_) => Retry::BackOff,
            Self::Choice(error) => error.retry(),
            Self::DataVolume(error) => error.retry(),
            Self::KeepRevision(source)
            | Self::Create(source)
            | Self::Delete(source)
            | Self::UpdateVmi(source)
            | Self::UpdateVm(source)
            | Self::NoteDump(source)
            | Self::SavedClaim(source)
            | Self::Status(source) => source.retry(),
        }
    }
}

impl Reconciler for Controller {
    const NAME: &'static str = "vm";
    type Error = VmError;

    async fn reconcile(&self, key: &Key) -> Result<Requeue, VmError> {
        let Some(vm) = self.vms.get(key) else {
            return self.release_orphan(key).await;
        };
        let observed = self.observe(vm).await?;
        let plan = plan::plan(&observed);
        self.act(&observed, &plan).await
    }

    fn uid_of(&self, key: &Key) -> Option<String> {
        self.vms.get(key)?.metadata.uid.clone()
    }
}
