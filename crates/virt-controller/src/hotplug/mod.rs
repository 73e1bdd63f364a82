//! Volumes that a running guest gets: a pod beside the guest's, the attachment pod, mounts their claims.
//!
//! This controller follows the VMI's hot-pluggable volumes: it creates the attachment pod, replaces it when
//! the set of volumes changes, and publishes in `status.volumeStatus` which pod has which volume.
//! virt-handler moves the mounts into the guest's pod, and reports there when a volume has left it.
//!
//! **Invariants**: a guest has one attachment pod, and a second one only while the first is replaced; a
//! volume stays in the attachment pod until virt-handler has reported that it left the guest's pod; a pod
//! that mounts other claims than expected is never published, whatever its name and labels.

mod act;
mod observe;
mod plan;
#[cfg(test)]
mod tests;
mod view;

use kube::Client;
use kube::runtime::watcher;
use kubevirt_api::VirtualMachineInstance;
use reasons::Reason;
use reconcile::{
    Clock, Key, ReconcileError, Reconciler, Recorder, Requeue, Retry, Store, WriteError,
};

pub(crate) use self::act::attachment_for;
pub(crate) use self::plan::{carried, leaving, receiving_memory};
pub(crate) use self::view::{AttachmentPod, State};
use crate::caches::VMI;
use crate::gate::Gate;
use crate::view::{Guest, Volumes};
use crate::vmi::{LauncherPod, PodSource};
use crate::wiring::Wiring;

const POD: &str = "pod";
const ATTACHMENT: &str = "attachment-pod";

#[derive(Clone)]
struct Controller {
    client: Client,
    vmis: Store<Guest>,
    launchers: Store<LauncherPod>,
    attachments: Store<AttachmentPod>,
    volumes: Volumes,
    source: PodSource,
    recorder: Recorder,
    clock: Clock,
}

/// Registered after the VMI controller, which renders pods.
pub(crate) fn register(wiring: &mut Wiring<'_>) {
    let Some(source) = wiring.pod_source.clone() else {
        return;
    };
    let gate = Gate::default();
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
    let attachments: Store<AttachmentPod> = Store::new();
    let queue = gate.clone();
    let selector = launcher_pod::attachment_selector();
    let config = watcher::Config::default().labels(&selector);
    wiring.watch(config, &attachments, move |pod: &AttachmentPod| {
        queue.add_all(pod.guest(), ATTACHMENT);
    });
    let controller = Controller {
        client: wiring.settings.client.clone(),
        vmis: vmis.clone(),
        launchers: wiring.caches.pods.store(),
        attachments,
        volumes: wiring.caches.volumes(&gate),
        source,
        recorder: wiring.recorder.clone(),
        clock: wiring.settings.clock,
    };
    wiring.controller(&gate, &vmis, move || controller.clone());
}

/// Why a reconcile failed.
#[derive(Debug, thiserror::Error)]
enum HotplugError {
    #[error("create the attachment pod")]
    Create(#[source] WriteError),
    #[error("delete an attachment pod")]
    Delete(#[source] WriteError),
    #[error("write the status of the volumes")]
    Status(#[source] WriteError),
}

impl ReconcileError for HotplugError {
    fn reason(&self) -> Reason {
        match self {
            Self::Create(_) => Reason::AttachmentPodFailed,
            Self::Delete(_) => Reason::FailedDelete,
            Self::Status(_) => Reason::FailedStatusUpdate,
        }
    }

    fn retry(&self) -> Retry {
        match self {
            Self::Create(source) | Self::Delete(source) | Self::Status(source) => source.retry(),
        }
    }
}

impl Reconciler for Controller {
    const NAME: &'static str = "hotplug";
    type Error = HotplugError;

    async fn reconcile(&self, key: &Key) -> Result<Requeue, HotplugError> {
        let Some(vmi) = self.vmis.get(key) else {
            return Ok(Requeue::OnChange);
        };
        let Some(observed) = self.observe(vmi) else {
            return Ok(Requeue::OnChange);
        };
        let plan = plan::plan(&observed);
        self.act(&observed, &plan).await?;
        Ok(plan.requeue_in.map_or(Requeue::OnChange, Requeue::After))
    }

    fn uid_of(&self, key: &Key) -> Option<String> {
        self.vmis.get(key)?.metadata.uid.clone()
    }
}
