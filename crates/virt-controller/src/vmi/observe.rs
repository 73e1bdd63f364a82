//! Everything a pass may look at.

use std::sync::Arc;

use jiff::Timestamp;
use kube::{Api, ResourceExt as _};
use kubevirt_api::VirtualMachineInstance;
use kubevirt_api::vmi_status::VirtualMachineInstancePhase as Phase;
use launcher_pod::Acceleration;
use reconcile::Key;

use super::{Controller, VmiError};
use crate::AccelerationPolicy;
use crate::view::LauncherPod;

const KVM: &str = "devices.kubevirt.io/kvm";

#[derive(Debug)]
pub(super) struct Observed {
    pub(super) vmi: Arc<VirtualMachineInstance>,
    /// The pod of this VMI, by its name.
    pub(super) pod: Option<Arc<LauncherPod>>,
    /// Pods that the VMI controls besides.
    pub(super) others: Vec<Arc<LauncherPod>>,
    /// `None` while no node has said anything.
    pub(super) acceleration: Option<Acceleration>,
    pub(super) now: Timestamp,
}

impl Controller {
    pub(super) async fn observe(
        &self,
        vmi: Arc<VirtualMachineInstance>,
    ) -> Result<Observed, VmiError> {
        let uid = vmi.uid().unwrap_or_default();
        let name = launcher_pod::pod_name(&vmi);
        let controlled = self.pods.controlled_by(&uid);
        let (mut own, others): (Vec<_>, Vec<_>) = controlled
            .into_iter()
            .partition(|pod| pod.name_any() == name);
        let mut pod = own.pop();
        // The watch may lag behind a pod we have just made. Taking it for lost would fail a
        // healthy guest, so ask.
        if pod.is_none() && needs_pod(&vmi) {
            let key = Key::of(vmi.as_ref());
            let api = Api::<LauncherPod>::namespaced(self.client.clone(), &key.namespace);
            let found = api.get_opt(&name).await;
            pod = found
                .map_err(|error| VmiError::Look(Box::new(error)))?
                .map(Arc::new);
        }
        Ok(Observed {
            vmi,
            pod,
            others,
            acceleration: self.find_acceleration(),
            now: self.clock.now(),
        })
    }

    fn find_acceleration(&self) -> Option<Acceleration> {
        match self.acceleration {
            AccelerationPolicy::Kvm => Some(Acceleration::Kvm),
            AccelerationPolicy::Emulation => Some(Acceleration::Emulation),
            AccelerationPolicy::ByNodes => {
                let hosts = self.hosts.list();
                let has_kvm = hosts.iter().any(|host| {
                    host.status
                        .allocatable
                        .get(KVM)
                        .is_some_and(|count| count.0 != "0")
                });
                match (hosts.is_empty(), has_kvm) {
                    (true, _) => None,
                    (false, true) => Some(Acceleration::Kvm),
                    (false, false) => Some(Acceleration::Emulation),
                }
            }
        }
    }
}

pub(super) fn phase(vmi: &VirtualMachineInstance) -> Phase {
    let status = vmi.status.as_ref();
    status
        .and_then(|status| status.phase.clone())
        .unwrap_or_default()
}

/// Whether the phase says that there is a pod.
fn needs_pod(vmi: &VirtualMachineInstance) -> bool {
    matches!(
        phase(vmi),
        Phase::Scheduling | Phase::Scheduled | Phase::Running
    )
}
