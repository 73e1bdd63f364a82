//! Observation: everything that one reconcile may read.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, ResourceExt as _};
use kubevirt_api::VirtualMachineInstance;
use kubevirt_api::vmi_status::VirtualMachineInstancePhase as Phase;
use launcher_pod::Acceleration;
use reconcile::Key;

use super::pod::LauncherPod;
use super::state_claim::{self, StateClaim};
use super::volumes::{self, Backing, DataSource, Populator};
use super::{Controller, VmiError, vsock};
use crate::AccelerationPolicy;
use crate::view::Guest;

#[derive(Debug)]
pub(super) struct Observed {
    pub(super) vmi: Arc<Guest>,
    /// The pod that this VMI controls and whose name follows from it.
    pub(super) pod: Option<Arc<LauncherPod>>,
    /// The pod whose only purpose is to have claims bound, while they are not.
    pub(super) binder: Option<Arc<LauncherPod>>,
    /// Other pods that the VMI controls.
    pub(super) others: Vec<Arc<LauncherPod>>,
    /// The storage of its volumes; observed only before there is a pod.
    pub(super) backings: Vec<Backing>,
    /// The claim for the guest's own state; observed only before there is a pod.
    pub(super) state_claim: StateClaim,
    /// The address on the vsock that the guest gets, if it needs one and has none.
    pub(super) vsock: Option<u32>,
    /// `None` while no node has reported.
    pub(super) acceleration: Option<Acceleration>,
    /// The guest's node sends no heartbeats.
    pub(super) is_node_lost: bool,
    pub(super) now: Timestamp,
}

impl Controller {
    pub(super) async fn observe(&self, vmi: Arc<Guest>) -> Result<Observed, VmiError> {
        let uid = vmi.uid().unwrap_or_default();
        let named = identity(&vmi);
        let name = launcher_pod::pod_name(&named);
        let controlled = self.pods.controlled_by(&uid);
        let (mut own, mut others): (Vec<_>, Vec<_>) = controlled
            .into_iter()
            .partition(|pod| pod.name_any() == name);
        let mut pod = own.pop();
        let is_binding = pod.is_none()
            && !vmi.is_deleting()
            && matches!(vmi.phase(), Phase::Unset | Phase::Pending);
        let binder = launcher_pod::provisioning_pod_name(&named);
        let binder = others
            .iter()
            .position(|pod| is_binding && pod.name_any() == binder)
            .map(|at| others.swap_remove(at));
        // The watch may lag behind a pod we have just created. Taking it for lost would fail a
        // healthy guest, or release the VMI while its guest runs, so read it from the server.
        if pod.is_none() && (needs_pod(&vmi) || vmi.is_deleting()) {
            let key = Key::of(vmi.as_ref());
            let api = Api::<LauncherPod>::namespaced(self.client.clone(), &key.namespace);
            let found = api.get_opt(&name).await;
            pod = found
                .map_err(|error| VmiError::Read(Box::new(error)))?
                .filter(|pod| is_of(pod, &vmi))
                .map(Arc::new);
        }
        let now = self.clock.now();
        let node = vmi.status.node_name.as_deref();
        let is_node_lost = node.is_some_and(|node| {
            if let Some(host) = self.hosts.get(&Key::new("", node)) {
                self.heartbeats.note(&host, now);
            }
            self.heartbeats.is_lost(node, now)
        });
        Ok(Observed {
            backings: self.observe_volumes(&vmi),
            state_claim: self.observe_state_claim(&vmi),
            vsock: self.free_vsock(&vmi),
            vmi,
            pod,
            binder,
            others,
            acceleration: self.find_acceleration(),
            is_node_lost,
            now,
        })
    }

    fn observe_volumes(&self, vmi: &Guest) -> Vec<Backing> {
        let own = Key::of(vmi);
        let Some(whole) = vmi.whole() else {
            return Vec::new();
        };
        let uses = volumes::claim_uses(&whole.spec).into_iter();
        let backings = uses.map(|claim_use| {
            let key = Key::new(&own.namespace, claim_use.claim);
            Backing {
                volume: claim_use.volume.to_owned(),
                claim_name: claim_use.claim.to_owned(),
                claim: self.volumes.claims.get(&key, &own),
                source: match claim_use.populated_by {
                    Populator::None => DataSource::Claim,
                    Populator::DataVolume => {
                        DataSource::DataVolume(self.volumes.data_volumes.get(&key, &own))
                    }
                },
            }
        });
        backings.collect()
    }

    fn free_vsock(&self, vmi: &Guest) -> Option<u32> {
        if !vmi.has_vsock || vmi.status.vsock.is_some() {
            return None;
        }
        let all = self.vmis.list();
        let used = all.iter().filter(|one| !one.is_final());
        let used = used.filter_map(|one| one.status.vsock).collect();
        Some(vsock::address(&vmi.uid().unwrap_or_default(), &used))
    }

    fn observe_state_claim(&self, vmi: &Guest) -> StateClaim {
        let Some(key) = state_claim::key(vmi) else {
            return StateClaim::NotNeeded;
        };
        match self.volumes.claims.get(&key, &Key::of(vmi)) {
            None => StateClaim::Missing,
            Some(_) => StateClaim::Exists,
        }
    }

    fn find_acceleration(&self) -> Option<Acceleration> {
        match self.acceleration {
            AccelerationPolicy::Kvm => Some(Acceleration::Kvm),
            AccelerationPolicy::Emulation => Some(Acceleration::Emulation),
            AccelerationPolicy::ByNodes => {
                let hosts = self.hosts.list();
                let has_kvm = hosts.iter().any(|host| host.has_kvm);
                match (hosts.is_empty(), has_kvm) {
                    (true, _) => None,
                    (false, true) => Some(Acceleration::Kvm),
                    (false, false) => Some(Acceleration::Emulation),
                }
            }
        }
    }
}

/// Whether the VMI controls the pod. Names and labels prove nothing: any user who may create pods
/// can choose them.
pub(super) fn is_of(pod: &LauncherPod, vmi: &Guest) -> bool {
    let owners = pod.owner_references().iter();
    let mut controllers = owners.filter(|owner| owner.controller == Some(true));
    controllers.any(|owner| Some(&owner.uid) == vmi.metadata.uid.as_ref())
}

/// The part of the VMI that determines the names of its pods.
fn identity(vmi: &Guest) -> VirtualMachineInstance {
    let metadata = ObjectMeta {
        name: vmi.metadata.name.clone(),
        uid: vmi.metadata.uid.clone(),
        ..ObjectMeta::default()
    };
    VirtualMachineInstance {
        metadata,
        ..VirtualMachineInstance::default()
    }
}

/// Whether the phase implies that there is a pod.
fn needs_pod(vmi: &Guest) -> bool {
    matches!(
        vmi.phase(),
        Phase::Scheduling | Phase::Scheduled | Phase::Running
    )
}
