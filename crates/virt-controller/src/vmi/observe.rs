//! Everything a pass may look at.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, ResourceExt as _};
use kubevirt_api::VirtualMachineInstance;
use kubevirt_api::vmi_status::VirtualMachineInstancePhase as Phase;
use launcher_pod::Acceleration;
use reconcile::Key;

use super::volumes::{self, Backing, Filled};
use super::{Controller, VmiError};
use crate::AccelerationPolicy;
use crate::view::{Guest, LauncherPod};

#[derive(Debug)]
pub(super) struct Observed {
    pub(super) vmi: Arc<Guest>,
    /// The pod that this VMI controls and that has the name of its pod.
    pub(super) pod: Option<Arc<LauncherPod>>,
    /// The pod that only has claims bound, while that is what is waited for.
    pub(super) binder: Option<Arc<LauncherPod>>,
    /// Pods that the VMI controls besides.
    pub(super) others: Vec<Arc<LauncherPod>>,
    /// What its volumes stand on; looked at only before there is a pod.
    pub(super) backings: Vec<Backing>,
    /// `None` while no node has said anything.
    pub(super) acceleration: Option<Acceleration>,
    /// Nothing has been heard for long from the agent of the node that the guest is on.
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
        // The watch may lag behind a pod we have just made. Taking it for lost would fail a
        // healthy guest, or let the VMI go while its guest runs, so ask.
        if pod.is_none() && (needs_pod(&vmi) || vmi.is_deleting()) {
            let key = Key::of(vmi.as_ref());
            let api = Api::<LauncherPod>::namespaced(self.client.clone(), &key.namespace);
            let found = api.get_opt(&name).await;
            pod = found
                .map_err(|error| VmiError::Look(Box::new(error)))?
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
            backings: self.look_at_volumes(&vmi),
            vmi,
            pod,
            binder,
            others,
            acceleration: self.find_acceleration(),
            is_node_lost,
            now,
        })
    }

    fn look_at_volumes(&self, vmi: &Guest) -> Vec<Backing> {
        let who = Key::of(vmi);
        let Some(whole) = vmi.whole() else {
            return Vec::new();
        };
        let wanted = volumes::wanted(&whole.spec).into_iter();
        let look = wanted.map(|(volume, claim, is_filled)| {
            let key = Key::new(&who.namespace, claim);
            Backing {
                volume: volume.name.clone(),
                claim_name: claim.to_owned(),
                claim: self.volumes.claims.get(&key, &who),
                data_volume: if is_filled {
                    Filled::By(self.volumes.data_volumes.get(&key, &who))
                } else {
                    Filled::Already
                },
            }
        });
        look.collect()
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

/// Whether the VMI controls the pod. Whoever may make pods can take a name and write labels.
pub(super) fn is_of(pod: &LauncherPod, vmi: &Guest) -> bool {
    let owners = pod.owner_references().iter();
    let mut controllers = owners.filter(|owner| owner.controller == Some(true));
    controllers.any(|owner| Some(&owner.uid) == vmi.metadata.uid.as_ref())
}

/// As much of it as names of pods follow from.
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

/// Whether the phase says that there is a pod.
fn needs_pod(vmi: &Guest) -> bool {
    matches!(
        vmi.phase(),
        Phase::Scheduling | Phase::Scheduled | Phase::Running
    )
}
