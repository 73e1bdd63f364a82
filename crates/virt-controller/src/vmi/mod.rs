//! The VMI controller: creates the pod of a VMI, takes the VMI from Pending to Scheduled, and
//! deletes the pod when the guest has ended or was never started.
//!
//! From Scheduled on virt-handler owns the phase; this controller then only reports lost pods.

mod act;
mod departures;
mod device_info;
mod namespace;
mod networks;
mod nics;
mod observe;
mod plan;
mod pod;
mod pod_source;
mod rules;
mod settle;
mod state_claim;
mod status;
#[cfg(test)]
mod tests;
mod volumes;
mod vsock;

use kube::Client;
use kube::runtime::watcher;
use kubevirt_api::VirtualMachineInstance;
use kubevirt_api::storage_profile::StorageProfile;
use kubevirt_api::vmi_status::VirtualMachineInstancePhase as Phase;
use launcher_pod::PodError;
use reasons::Reason;
use reconcile::{
    Clock, Key, ReconcileError, Reconciler, Recorder, Requeue, Retry, Store, WriteError,
};

use self::departures::Departures;
pub(crate) use self::namespace::Namespace;
use self::namespace::{Quota, Quotas};
pub(crate) use self::networks::{Definitions, has_definition};
pub(crate) use self::plan::{GUARANTEED, PodState, pod_state};
pub(crate) use self::pod::LauncherPod;
pub(crate) use self::pod_source::PodSource;
pub(crate) use self::rules::has_hotplug;
pub(crate) use self::state_claim::name_for as state_claim_name;
pub(crate) use self::volumes::claim_names;
use crate::caches::VMI;
use crate::node::Heartbeats;
use crate::view::{Guest, StorageClass, Volumes};
use crate::wiring::Wiring;

const POD: &str = "pod";
const QUOTA: &str = "resourcequota";
const CONFIGURATION: &str = "configuration";

#[derive(Clone)]
struct Controller {
    client: Client,
    vmis: Store<Guest>,
    pods: Store<LauncherPod>,
    heartbeats: Heartbeats,
    departures: Departures,
    /// Observed before there is a pod.
    volumes: Volumes,
    /// Storage classes and their profiles, for the claims that guests need.
    classes: Store<StorageClass>,
    profiles: Store<StorageProfile>,
    source: PodSource,
    recorder: Recorder,
    clock: Clock,
}

pub(crate) fn register(wiring: &mut Wiring<'_>) {
    let gate = wiring.vmi_gate.clone();
    let vmis = wiring.caches.guests.store();
    let queue = gate.clone();
    wiring
        .caches
        .guests
        .on_change(move |vmi| queue.add(Key::of(vmi), VMI));

    let queue = gate.clone();
    wiring.caches.pods.on_change(move |pod: &LauncherPod| {
        if let Some(owner) = Key::of_controller(pod, VirtualMachineInstance::KIND) {
            queue.add(owner, POD);
        }
    });

    let (queue, all) = (gate.clone(), vmis.clone());
    // What the configuration has forbidden, it may permit now.
    wiring.on_configuration(move || {
        let waiting = all.list().into_iter();
        let waiting = waiting.filter(|vmi| matches!(vmi.phase(), Phase::Unset | Phase::Pending));
        queue.add_all(waiting.map(|vmi| Key::of(&*vmi)), CONFIGURATION);
    });

    let namespaces: Store<Namespace> = Store::new();
    // Read when a pod is created; a change triggers nothing.
    wiring.watch(watcher::Config::default(), &namespaces, |_: &Namespace| ());
    let all_quotas: Store<Quota> = Store::new();
    let quotas = Quotas::new(all_quotas.clone());
    let (queue, refused) = (gate.clone(), quotas.clone());
    wiring.watch(watcher::Config::default(), &all_quotas, move |quota| {
        queue.add_all(refused.changed(quota), QUOTA);
    });

    let source = PodSource {
        launcher: wiring.settings.launcher.clone(),
        cluster: wiring.cluster.clone(),
        policy: wiring.settings.acceleration,
        hosts: wiring.caches.hosts.store(),
        namespaces,
        quotas,
    };
    wiring.pod_source = Some(source.clone());
    let controller = Controller {
        client: wiring.settings.client.clone(),
        vmis: vmis.clone(),
        pods: wiring.caches.pods.store(),
        heartbeats: wiring.caches.heartbeats.clone(),
        departures: Departures::default(),
        volumes: wiring.caches.volumes(&gate),
        classes: wiring.caches.storage_classes.store(),
        profiles: wiring.caches.storage_profiles.store(),
        source,
        recorder: wiring.recorder.clone(),
        clock: wiring.settings.clock,
    };
    wiring.controller(&gate, &vmis, move || controller.clone());
}

/// Why a reconcile failed.
#[derive(Debug, thiserror::Error)]
enum VmiError {
    #[error("read the pod")]
    Read(#[source] Box<kube::Error>),
    #[error("read the migration of a pod")]
    ReadMigration(#[source] Box<kube::Error>),
    #[error("render the pod")]
    Render(#[source] PodError),
    #[error("create the pod")]
    Create(#[source] WriteError),
    #[error("create the pod: another pod has the name {pod}")]
    NameTaken { pod: String },
    #[error("create the claim for the guest's state")]
    CreateClaim(#[source] WriteError),
    #[error("delete the pod")]
    Delete(#[source] WriteError),
    #[error("publish the devices of the pod's networks")]
    Devices(#[source] WriteError),
    #[error("change the networks of the pod")]
    Networks(#[source] WriteError),
    #[error("remove interfaces from the VMI")]
    Interfaces(#[source] WriteError),
    #[error("put the VMI on the new claims of its volumes")]
    Settle(#[source] WriteError),
    #[error("remove the finalizer")]
    Finalizer(#[source] WriteError),
    #[error("write the status")]
    Status(#[source] WriteError),
}

impl ReconcileError for VmiError {
    fn reason(&self) -> Reason {
        match self {
            Self::Read(_) | Self::ReadMigration(_) => Reason::ServerUnavailable,
            Self::Create(_) | Self::Render(_) | Self::NameTaken { .. } => Reason::FailedCreate,
            Self::CreateClaim(_) => Reason::FailedBackendStorageCreate,
            Self::Delete(_) => Reason::FailedDelete,
            Self::Devices(_)
            | Self::Networks(_)
            | Self::Interfaces(_)
            | Self::Settle(_)
            | Self::Finalizer(_) => Reason::FailedUpdate,
            Self::Status(_) => Reason::FailedStatusUpdate,
        }
    }

    fn retry(&self) -> Retry {
        match self {
            Self::Read(_) | Self::ReadMigration(_) | Self::Render(_) | Self::NameTaken { .. } => {
                Retry::BackOff
            }
            Self::Create(source)
            | Self::CreateClaim(source)
            | Self::Delete(source)
            | Self::Devices(source)
            | Self::Networks(source)
            | Self::Interfaces(source)
            | Self::Settle(source)
            | Self::Finalizer(source)
            | Self::Status(source) => source.retry(),
        }
    }
}

impl Reconciler for Controller {
    const NAME: &'static str = "vmi";
    type Error = VmiError;

    async fn reconcile(&self, key: &Key) -> Result<Requeue, VmiError> {
        let Some(vmi) = self.vmis.get(key) else {
            return Ok(Requeue::OnChange);
        };
        let observed = self.observe(vmi).await?;
        let plan = plan::plan(&observed);
        self.act(&observed, &plan).await
    }

    fn uid_of(&self, key: &Key) -> Option<String> {
        self.vmis.get(key)?.metadata.uid.clone()
    }
}
