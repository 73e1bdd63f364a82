//! The export controller: offers the disks of a VM, a snapshot or a claim for download while a
//! `VirtualMachineExport` exists.
//!
//! A pod with the program `disk-export` has the claims and serves them over HTTPS behind a service. The certificate
//! is made for this export alone, and its authority is in the status beside the links.
//!
//! The disks of a backup of mode `Pull` are read from the guest ([`backup`]).
//!
//! - [`plan`] decides, [`claims`] renders the claims of a snapshot, [`pod`] renders pod and service, [`links`] the
//!   addresses, [`place`] where the proxy is, [`manifest`] the objects that import what is exported.
//!
//! **Invariants**: a claim that a guest or another pod uses is not offered; claims and VMs are never changed; all
//! that is made belongs to the export and goes with it; no secret is read.

mod act;
mod backup;
mod certificate;
mod claims;
mod links;
mod manifest;
mod names;
mod observe;
mod place;
mod plan;
mod pod;
mod status;
#[cfg(test)]
mod tests;
mod view;

use std::sync::Arc;

use cluster_view::Configuration;
use kube::Client;
use kube::runtime::watcher;
use kubevirt_api::backup::VirtualMachineBackup;
use kubevirt_api::export::VirtualMachineExport;
use kubevirt_api::snapshot::VirtualMachineSnapshot;
use kubevirt_api::{VirtualMachine, VirtualMachineInstance, labels};
use launcher_pod::Settings;
use reasons::Reason;
use reconcile::{
    Clock, Key, ReconcileError, Reconciler, Recorder, Requeue, Retry, Store, WriteError,
};
use serving::PkiError;

use self::observe::starts_with;
pub use self::place::{ExportPlace, ExportProxy};
use self::view::ExporterPod;
use crate::caches::{VM, VMI};
use crate::gate::Gate;
use crate::operation::RETRY;
use crate::view::{Guest, Volumes};
use crate::wiring::Wiring;

/// Trigger by an export.
const EXPORT: &str = "virtualmachineexport";
const POD: &str = "pod";
const SNAPSHOT: &str = "virtualmachinesnapshot";
/// More steps than any export needs at once.
const MAX_STEPS: usize = 8;

#[derive(Clone)]
struct Controller {
    client: Client,
    exports: Store<VirtualMachineExport>,
    pods: Store<ExporterPod>,
    guests: Store<Guest>,
    volumes: Volumes,
    cluster: Configuration,
    launcher: Settings,
    place: Option<ExportPlace>,
    recorder: Recorder,
    clock: Clock,
}

pub(crate) fn register(wiring: &mut Wiring<'_>) {
    let gate = Gate::default();
    let exports: Store<VirtualMachineExport> = Store::new();
    let queue = gate.clone();
    let on_change = move |one: &VirtualMachineExport| queue.add(Key::of(one), EXPORT);
    wiring.watch_if_defined(watcher::Config::default(), &exports, on_change);
    let pods: Store<ExporterPod> = Store::new();
    let selector = format!("{}={}", labels::COMPONENT, labels::COMPONENT_EXPORTER);
    let config = watcher::Config::default().labels(&selector);
    let queue = gate.clone();
    wiring.watch(config, &pods, move |pod: &ExporterPod| {
        if let Some(owner) = Key::of_controller(pod, VirtualMachineExport::KIND) {
            queue.add(owner, POD);
        }
    });
    let of_source = move |all: &Store<VirtualMachineExport>, key: &Key, kind: &str| {
        let exports = all.in_namespace(&key.namespace).into_iter();
        let concerned =
            exports.filter(|one| one.spec.source.kind == kind && one.spec.source.name == key.name);
        concerned
            .map(|one| Key::of(one.as_ref()))
            .collect::<Vec<_>>()
    };
    let (queue, all) = (gate.clone(), exports.clone());
    wiring.caches.vms.on_change(move |vm| {
        let concerned = of_source(&all, &Key::of(vm), VirtualMachine::KIND);
        queue.add_all(concerned, VM);
    });
    let (queue, all) = (gate.clone(), exports.clone());
    wiring.caches.snapshots.on_change(move |snapshot| {
        let concerned = of_source(&all, &Key::of(snapshot), VirtualMachineSnapshot::KIND);
        queue.add_all(concerned, SNAPSHOT);
    });
    let (queue, all) = (gate.clone(), exports.clone());
    wiring.caches.guests.on_change(move |guest| {
        let own = Key::of(guest);
        let exports = all.in_namespace(&own.namespace).into_iter();
        let concerned = exports.filter(|export| {
            let source = &export.spec.source;
            source.name == own.name
                || starts_with(guest, &source.name)
                || source.kind == VirtualMachineBackup::KIND
        });
        queue.add_all(concerned.map(|one| Key::of(one.as_ref())), VMI);
    });
    let (queue, all) = (gate.clone(), exports.clone());
    wiring.caches.pods.on_change(move |pod| {
        if let Some(guest) = Key::of_controller(pod, VirtualMachineInstance::KIND) {
            queue.add_all(of_source(&all, &guest, VirtualMachine::KIND), POD);
        }
    });
    let controller = Controller {
        client: wiring.settings.client.clone(),
        exports: exports.clone(),
        pods,
        guests: wiring.caches.guests.store(),
        volumes: wiring.caches.volumes(&gate),
        cluster: wiring.cluster.clone(),
        launcher: wiring.settings.launcher.clone(),
        place: wiring.settings.exports.clone(),
        recorder: wiring.recorder.clone(),
        clock: wiring.settings.clock,
    };
    wiring.controller(&gate, &exports, move || controller.clone());
}

/// Why a reconcile failed.
#[derive(Debug, thiserror::Error)]
enum ExportError {
    #[error("read {what}")]
    Read {
        what: &'static str,
        #[source]
        source: Box<kube::Error>,
    },
    #[error("create {what}")]
    Create {
        what: &'static str,
        #[source]
        source: WriteError,
    },
    #[error("{what} {name} belongs to something else")]
    Taken { what: &'static str, name: String },
    #[error("delete {what}")]
    Delete {
        what: &'static str,
        #[source]
        source: WriteError,
    },
    #[error("make the certificate of the export server")]
    Certificate(#[from] PkiError),
    #[error("write the manifest: {0}")]
    Manifest(String),
    #[error("write the status")]
    Status(#[source] WriteError),
}

impl ReconcileError for ExportError {
    fn reason(&self) -> Reason {
        match self {
            Self::Read { .. } => Reason::ServerUnavailable,
            Self::Create { .. } | Self::Taken { .. } | Self::Certificate(_) | Self::Manifest(_) => {
                Reason::FailedCreate
            }
            Self::Delete { .. } => Reason::FailedDelete,
            Self::Status(_) => Reason::FailedStatusUpdate,
        }
    }

    fn retry(&self) -> Retry {
        match self {
            Self::Read { .. } | Self::Taken { .. } | Self::Certificate(_) | Self::Manifest(_) => {
                Retry::BackOff
            }
            Self::Create { source, .. } | Self::Delete { source, .. } | Self::Status(source) => {
                source.retry()
            }
        }
    }
}

impl Reconciler for Controller {
    const NAME: &'static str = "export";
    type Error = ExportError;

    async fn reconcile(&self, key: &Key) -> Result<Requeue, ExportError> {
        let Some(export) = self.exports.get(key) else {
            return Ok(Requeue::OnChange);
        };
        for _ in 0..MAX_STEPS {
            let observed = self.observe(key, Arc::clone(&export)).await?;
            let plan = plan::plan(&observed);
            if let Some(step) = &plan.step
                && let Err(error) = Box::pin(self.act(key, &observed, step)).await
            {
                self.write_status(key, &observed, &plan, Some(&error))
                    .await?;
                return Err(error);
            }
            match &plan.step {
                // The next step follows from what the server has now.
                Some(plan::Step::Publish) => {}
                Some(plan::Step::DeleteExport) => return Ok(Requeue::OnChange),
                Some(_) => {
                    self.write_status(key, &observed, &plan, None).await?;
                    return Ok(Requeue::After(RETRY));
                }
                None => {
                    self.write_status(key, &observed, &plan, None).await?;
                    return Ok(plan.requeue_in.map_or(Requeue::OnChange, Requeue::After));
                }
            }
        }
        Ok(Requeue::After(RETRY))
    }

    fn uid_of(&self, key: &Key) -> Option<String> {
        self.exports.get(key)?.metadata.uid.clone()
    }
}
