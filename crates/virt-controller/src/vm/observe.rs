//! Everything a pass may look at.

use std::sync::Arc;

use jiff::Timestamp;
use kube::{Api, ResourceExt as _};
use kubevirt_api::VirtualMachineInstance;
use kubevirt_api::vmi_status::VirtualMachineInstancePhase as Phase;
use reconcile::Key;

use super::{Controller, VmError};
use crate::view::Vm;

#[derive(Debug)]
pub(super) struct Observed {
    pub(super) vm: Arc<Vm>,
    /// The VMI of the VM's name, whoever owns it.
    pub(super) vmi: Option<Arc<VirtualMachineInstance>>,
    pub(super) now: Timestamp,
}

/// Whose the VMI of that name is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Belongs {
    Ours,
    /// To nobody; it may be adopted.
    Nobody,
    Other,
}

impl Controller {
    pub(super) async fn observe(&self, vm: Arc<Vm>) -> Result<Observed, VmError> {
        let key = Key::of(vm.as_ref());
        let mut vmi = self.vmis.get(&key);
        // The watch may lag behind a VMI we have just made. Believing that it is gone would make
        // the VM look stopped, so ask.
        if vmi.is_none() && vm.status().created == Some(true) {
            let api = Api::namespaced(self.client.clone(), &key.namespace);
            let found = api.get_opt(&key.name).await;
            vmi = found
                .map_err(|error| VmError::Look(Box::new(error)))?
                .map(Arc::new);
        }
        Ok(Observed {
            vm,
            vmi,
            now: self.clock.now(),
        })
    }
}

impl Observed {
    pub(super) fn belongs(&self) -> Option<Belongs> {
        let vmi = self.vmi.as_ref()?;
        let owners = vmi.owner_references();
        let controller = owners.iter().find(|owner| owner.controller == Some(true));
        Some(match controller {
            Some(owner) if Some(&owner.uid) == self.vm.metadata.uid.as_ref() => Belongs::Ours,
            Some(_) => Belongs::Other,
            None => Belongs::Nobody,
        })
    }

    /// The VM's own VMI.
    pub(super) fn own_vmi(&self) -> Option<&Arc<VirtualMachineInstance>> {
        self.vmi
            .as_ref()
            .filter(|_| self.belongs() == Some(Belongs::Ours))
    }
}

pub(super) fn phase(vmi: &VirtualMachineInstance) -> Phase {
    let status = vmi.status.as_ref();
    status
        .and_then(|status| status.phase.clone())
        .unwrap_or_default()
}

pub(super) fn is_final(vmi: &VirtualMachineInstance) -> bool {
    matches!(phase(vmi), Phase::Succeeded | Phase::Failed)
}

/// Whether the guest ran at any time.
pub(super) fn has_run(vmi: &VirtualMachineInstance) -> bool {
    let status = vmi.status.as_ref();
    phase(vmi) == Phase::Running
        || status.is_some_and(|status| {
            let mut changes = status.phase_transition_timestamps.iter();
            changes.any(|change| change.phase == Some(Phase::Running))
        })
}
