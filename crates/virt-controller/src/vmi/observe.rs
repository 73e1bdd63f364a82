//! Observation: everything that one reconcile may read.

use std::sync::Arc;

use jiff::Timestamp;
use kube::{Api, ResourceExt as _};
use kubevirt_api::VirtualMachineInstance;
use kubevirt_api::migration_request::{
    VirtualMachineInstanceMigration, VirtualMachineInstanceMigrationPhase as Migrated,
};
use kubevirt_api::vmi_status::VirtualMachineInstancePhase as Phase;
use launcher_pod::Acceleration;
use model::{Architecture, MigrationEnd};
use reconcile::Key;

use super::networks::Definitions;
use super::plan::{PodState, pod_state};
use super::pod::LauncherPod;
use super::state_claim::{self, StateClaim};
use super::volumes::{self, Backing, DataSource, Populator};
use super::{Controller, VmiError, vsock};
use crate::node;
use crate::view::Guest;

#[derive(Debug)]
pub(super) struct Observed {
    pub(super) vmi: Arc<Guest>,
    /// The pod that this VMI controls and whose name follows from it.
    pub(super) pod: Option<Arc<LauncherPod>>,
    /// The guest's move to another pod, while the VMI is still on its old node.
    pub(super) arrival: Arrival,
    /// The guest has moved to this pod without leaving its node.
    pub(super) has_moved_within_node: bool,
    /// Its guest went to another VMI, or may have, and that one does not know the end yet.
    pub(super) is_read_elsewhere: bool,
    /// Since when a pod is gone or has ended that was about to give its guest up: the guest may run in its
    /// new pod.
    pub(super) left_since: Option<Timestamp>,
    /// The pod whose only purpose is to have claims bound, while they are not.
    pub(super) binder: Option<Arc<LauncherPod>>,
    /// Other pods that the VMI controls.
    pub(super) others: Vec<Arc<LauncherPod>>,
    /// Pods whose sidecars wait for the devices of their networks.
    pub(super) waiting_for_devices: Vec<Arc<LauncherPod>>,
    /// The storage of its volumes; observed only before there is a pod.
    pub(super) backings: Vec<Backing>,
    /// The definitions of its networks; observed only before there is a pod.
    pub(super) networks: Definitions,
    /// The claim for the guest's own state; observed only before there is a pod.
    pub(super) state_claim: StateClaim,
    /// The address on the vsock that the guest gets, if it needs one and has none.
    pub(super) vsock: Option<u32>,
    /// The frequency of its time stamp counter that the guest gets, if it relies on one and has none.
    pub(super) tsc_frequency: Option<i64>,
    /// `None` while no node has reported.
    pub(super) acceleration: Option<Acceleration>,
    /// The launcher of new pods.
    pub(super) launcher_image: String,
    /// The guest's node sends no heartbeats.
    pub(super) is_node_lost: bool,
    pub(super) now: Timestamp,
}

/// Where a guest is whose old pod has given it up.
#[derive(Debug)]
pub(super) enum Arrival {
    /// It has not moved.
    None,
    In(Arc<LauncherPod>),
    /// Its new pod is gone.
    Lost,
}

impl Controller {
    pub(super) async fn observe(&self, vmi: Arc<Guest>) -> Result<Observed, VmiError> {
        let uid = vmi.uid().unwrap_or_default();
        let named = vmi.identity();
        let name = launcher_pod::current_pod_name(&named);
        let controlled = self.pods.controlled_by(&uid);
        let waits = |pod: &&Arc<LauncherPod>| pod.missing_device_info.is_some();
        let waiting_for_devices = controlled.iter().filter(waits).map(Arc::clone).collect();
        let (mut own, mut others): (Vec<_>, Vec<_>) = controlled
            .into_iter()
            .partition(|pod| pod.name_any() == name);
        let mut pod = own.pop();
        let arrival = self.arrival(&vmi, &others).await?;
        let is_moving = others.iter().any(|pod| is_receiving(pod, &vmi));
        let mut strays = Vec::new();
        for pod in others {
            if !self.may_be_target(&pod, &vmi).await? {
                strays.push(pod);
            }
        }
        others = strays;
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
            pod = self.read_pod(&vmi, &name).await?;
        }
        let now = self.clock.now();
        let has_ended = matches!(
            pod_state(pod.as_deref()),
            PodState::Missing | PodState::Succeeded | PodState::Failed
        );
        // Not the time that the pod shows: the clock of its node may be behind.
        let left_since = self.departures.note(&uid, is_moving && has_ended, now);
        let node = vmi.status.node_name.as_deref();
        let is_node_lost = node.is_some_and(|node| {
            if let Some(host) = self.source.hosts.get(&Key::new("", node)) {
                self.heartbeats.note(&host, now);
            }
            self.heartbeats.is_lost(node, now)
        });
        let networks = self.observe_networks(&vmi).await?;
        Ok(Observed {
            networks,
            backings: self.observe_volumes(&vmi),
            state_claim: self.observe_state_claim(&vmi),
            vsock: self.free_vsock(&vmi),
            tsc_frequency: self.tsc_frequency(&vmi),
            has_moved_within_node: has_moved_within_node(&named),
            is_read_elsewhere: self.is_read_elsewhere(&vmi),
            vmi,
            pod,
            arrival,
            left_since,
            binder,
            others,
            waiting_for_devices,
            acceleration: self.source.acceleration(),
            launcher_image: self.source.launcher.launcher_image.clone(),
            is_node_lost,
            now,
        })
    }

    async fn arrival(&self, vmi: &Guest, others: &[Arc<LauncherPod>]) -> Result<Arrival, VmiError> {
        let Some(name) = arrived_pod(vmi) else {
            return Ok(Arrival::None);
        };
        if let Some(pod) = others.iter().find(|pod| pod.name_any() == name) {
            return Ok(Arrival::In(Arc::clone(pod)));
        }
        let found = self.read_pod(vmi, name).await?;
        Ok(found.map_or(Arrival::Lost, Arrival::In))
    }

    /// Reads a pod of the VMI from the server: the watch may lag behind.
    async fn read_pod(
        &self,
        vmi: &Guest,
        name: &str,
    ) -> Result<Option<Arc<LauncherPod>>, VmiError> {
        let namespace = Key::of(vmi).namespace;
        let api = Api::<LauncherPod>::namespaced(self.client.clone(), &namespace);
        let found = api.get_opt(name).await;
        let found = found.map_err(|error| VmiError::Read(Box::new(error)))?;
        Ok(found.filter(|pod| is_of(pod, vmi)).map(Arc::new))
    }

    /// Whether a pod that is not the current one of the VMI stays: a migration may be moving the guest
    /// to it. That of a migration that has failed is deleted by the controller of migrations.
    async fn may_be_target(&self, pod: &LauncherPod, vmi: &Guest) -> Result<bool, VmiError> {
        let (Some(uid), Some(name)) = (&pod.migration_uid, &pod.migration_name) else {
            return Ok(false);
        };
        if vmi.is_final() {
            return Ok(false);
        }
        let state = vmi.status.migration.as_deref();
        if let Some(state) = state {
            let named = |name: &Option<String>| name.as_deref() == Some(&pod.name_any());
            if named(&state.target_pod) {
                return Ok(true);
            }
            if model::has_moved(&vmi.identity()) && named(&state.source_pod) {
                return Ok(false);
            }
        }
        // The VMI does not name the pod of a migration that begins; nor one that the guest has left some
        // migrations ago.
        let namespace = Key::of(vmi).namespace;
        let api =
            Api::<VirtualMachineInstanceMigration>::namespaced(self.client.clone(), &namespace);
        let found = api.get_opt(name).await;
        let found = found.map_err(|error| VmiError::ReadMigration(Box::new(error)))?;
        Ok(found.is_some_and(|found| {
            let phase = found.status.and_then(|status| status.phase);
            let is_over = matches!(phase, Some(Migrated::Succeeded | Migrated::Failed));
            found.metadata.uid.as_ref() == Some(uid) && !is_over
        }))
    }

    fn is_read_elsewhere(&self, vmi: &Guest) -> bool {
        let state = vmi.status.migration.as_deref();
        let is_source = model::migration_end(&vmi.identity()) == Some(MigrationEnd::Source);
        let Some(state) = state.filter(|state| is_source && state.failed != Some(true)) else {
            return false;
        };
        let target = state.target_state.as_ref();
        let found = target.and_then(|target| {
            let (namespace, name) = (
                target.domain_namespace.as_ref()?,
                target.domain_name.as_ref()?,
            );
            self.vmis.get(&Key::new(namespace, name))
        });
        found.is_some_and(|other| {
            let there = other.status.migration.as_deref();
            let is_this = there.is_some_and(|there| {
                model::copy_id(there) == model::copy_id(state) && there.completed != Some(true)
            });
            is_this && !other.is_final()
        })
    }

    async fn observe_networks(&self, vmi: &Guest) -> Result<Definitions, VmiError> {
        let Some(whole) = vmi.whole().filter(|_| !vmi.is_deleting()) else {
            return Ok(Definitions::default());
        };
        let read = Definitions::read(&self.client, whole).await;
        read.map_err(|error| VmiError::Read(Box::new(error)))
    }

    fn observe_volumes(&self, vmi: &Guest) -> Vec<Backing> {
        let own = Key::of(vmi);
        let Some(whole) = vmi.whole() else {
            return Vec::new();
        };
        // Their pod brings them once the guest runs.
        let has_hotplug = self.source.has_hotplug();
        let uses = volumes::claim_uses(&whole.spec).into_iter();
        let uses = uses
            .filter(|one| !(has_hotplug && vmi.plugs.iter().any(|plug| plug.volume == one.volume)));
        let backings = uses.map(|claim_use| {
            let key = Key::new(&own.namespace, claim_use.claim);
            let claim = self.volumes.claims.get(&key, &own);
            let is_populated = claim.as_ref().is_some_and(|it| it.is_of_data_volume());
            Backing {
                volume: claim_use.volume.to_owned(),
                claim_name: claim_use.claim.to_owned(),
                claim,
                source: match claim_use.populated_by {
                    Populator::None if !is_populated => DataSource::Claim,
                    Populator::None | Populator::DataVolume => {
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

    /// Only before there is a pod, which is rendered with it.
    fn tsc_frequency(&self, vmi: &Guest) -> Option<i64> {
        let whole = vmi.whole()?;
        let is_amd64 = Architecture::Amd64 == model::Guest::of(whole).architecture;
        if vmi.status.tsc_frequency.is_some() || !is_amd64 || !model::needs_fixed_tsc(whole) {
            return None;
        }
        node::guest_frequency(
            &self.source.cluster.now(),
            &self.source.hosts.list(),
            &self.vmis.list(),
        )
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
}

/// Whether the VMI controls the pod. Names and labels prove nothing: any user who may create pods
/// can choose them.
pub(super) fn is_of(pod: &LauncherPod, vmi: &Guest) -> bool {
    let owners = pod.owner_references().iter();
    let mut controllers = owners.filter(|owner| owner.controller == Some(true));
    controllers.any(|owner| Some(&owner.uid) == vmi.metadata.uid.as_ref())
}

/// The name of the pod to which the guest has moved, until the VMI is on its node: its old pod has given
/// it up, or it runs there.
fn arrived_pod(vmi: &Guest) -> Option<&str> {
    let state = vmi.status.migration.as_deref()?;
    if *vmi.phase() != Phase::Running {
        return None;
    }
    let is_here = state.target_node.is_none() || state.target_node == vmi.status.node_name;
    if !model::has_arrived(state) || is_here {
        return None;
    }
    state.target_pod.as_deref()
}

fn has_moved_within_node(vmi: &VirtualMachineInstance) -> bool {
    let status = vmi.status.as_ref();
    let state = status.and_then(|status| status.migration_state.as_ref());
    state.is_some_and(model::is_within_node) && model::has_moved(vmi)
}

/// Whether a migration in progress moves the guest to this pod, which may have it already.
fn is_receiving(pod: &LauncherPod, vmi: &Guest) -> bool {
    let state = vmi.status.migration.as_deref();
    let is_named = state.is_some_and(|state| {
        state.start_timestamp.is_some()
            && state.completed != Some(true)
            && state.target_pod.as_deref() == Some(&pod.name_any())
    });
    let is_alive = matches!(pod_state(Some(pod)), PodState::Starting | PodState::Ready);
    is_named && is_alive && *vmi.phase() == Phase::Running
}

/// Whether the phase implies that there is a pod.
fn needs_pod(vmi: &Guest) -> bool {
    matches!(
        vmi.phase(),
        Phase::Scheduling | Phase::Scheduled | Phase::Running
    )
}
