//! The controller of template requests: makes a `VirtualMachineTemplate` of a VM.
//!
//! It takes a snapshot of the VM and fills a data volume from each disk in it. When they have their data, it creates
//! the template, whose VMs copy them. The data volumes belong to the request until they have their data, have no owner
//! while the template is created, and then belong to the template. At the end the snapshot is deleted, and so are the data
//! volumes of a request that has failed.
//!
//! - [`plan`] decides, [`render`] makes the template of the VM.
//!
//! **Invariants**: the VM is never changed; a template that another one made is never changed; the names of all
//! helpers follow from the UID of the request, so that none is created twice; a request that is deleted while its
//! template is made takes no disk of the template with it, and leaves no snapshot in the namespace of its VM.
//!
//! The VM may be in another namespace: virt-api has asked for the right of the user, and the kind's definition forbids
//! changes of a request's spec. The snapshot is in the namespace of the VM, all else in that of the request.

mod act;
mod observe;
mod plan;
mod render;
mod status;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use cluster_view::Configuration;
use kube::Client;
use kube::runtime::watcher;
use kubevirt_api::template::VirtualMachineTemplateRequest;
use reasons::Reason;
use reconcile::{
    Clock, Key, ReconcileError, Reconciler, Recorder, Requeue, Retry, Store, WriteError,
};

use crate::caches::VM;
use crate::gate::Gate;
use crate::operation::RETRY;
use crate::view::Volumes;
use crate::wiring::Wiring;

/// Trigger by a request.
const REQUEST: &str = "virtualmachinetemplaterequest";
const SNAPSHOT: &str = "virtualmachinesnapshot";
/// More steps than any request needs at once: three for each disk of its VM.
const MAX_STEPS: usize = 900;

#[derive(Clone)]
struct Controller {
    client: Client,
    requests: Store<VirtualMachineTemplateRequest>,
    volumes: Volumes,
    cluster: Configuration,
    recorder: Recorder,
    clock: Clock,
}

pub(crate) fn register(wiring: &mut Wiring<'_>) {
    let gate = Gate::default();
    let requests: Store<VirtualMachineTemplateRequest> = Store::new();
    let queue = gate.clone();
    let on_change = move |one: &VirtualMachineTemplateRequest| queue.add(Key::of(one), REQUEST);
    wiring.watch_if_defined(watcher::Config::default(), &requests, on_change);
    let (queue, all) = (gate.clone(), requests.clone());
    wiring.caches.vms.on_change(move |vm| {
        let key = Key::of(vm);
        let concerned = all.list().into_iter();
        let concerned = concerned.filter(|one| observe::waits_for_vm(one, &key));
        queue.add_all(concerned.map(|one| Key::of(one.as_ref())), VM);
    });
    let (queue, all) = (gate.clone(), requests.clone());
    wiring.caches.snapshots.on_change(move |snapshot| {
        let key = Key::of(snapshot);
        if !key.name.starts_with(render::SNAPSHOT_PREFIX) {
            return;
        }
        let concerned = all.list().into_iter();
        let concerned = concerned.filter(|one| render::snapshot_name(one) == key.name);
        queue.add_all(concerned.map(|one| Key::of(one.as_ref())), SNAPSHOT);
    });
    let controller = Controller {
        client: wiring.settings.client.clone(),
        requests: requests.clone(),
        volumes: wiring.caches.volumes(&gate),
        cluster: wiring.cluster.clone(),
        recorder: wiring.recorder.clone(),
        clock: wiring.settings.clock,
    };
    wiring.controller(&gate, &requests, move || controller.clone());
}

/// Why a reconcile failed.
#[derive(Debug, thiserror::Error)]
enum RequestError {
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
    #[error("change the finalizers")]
    Finalizers(#[source] WriteError),
    #[error("change the owner of a data volume")]
    Own(#[source] WriteError),
    #[error("delete {what}")]
    Delete {
        what: &'static str,
        #[source]
        source: WriteError,
    },
    #[error("write the status")]
    Status(#[source] WriteError),
}

impl ReconcileError for RequestError {
    fn reason(&self) -> Reason {
        match self {
            Self::Read { .. } => Reason::ServerUnavailable,
            Self::Create { .. } => Reason::FailedCreate,
            Self::Finalizers(_) | Self::Own(_) => Reason::FailedUpdate,
            Self::Delete { .. } => Reason::FailedDelete,
            Self::Status(_) => Reason::FailedStatusUpdate,
        }
    }

    fn retry(&self) -> Retry {
        match self {
            Self::Read { .. } => Retry::BackOff,
            Self::Create { source, .. }
            | Self::Finalizers(source)
            | Self::Own(source)
            | Self::Delete { source, .. }
            | Self::Status(source) => source.retry(),
        }
    }
}

impl Reconciler for Controller {
    const NAME: &'static str = "template-request";
    type Error = RequestError;

    async fn reconcile(&self, key: &Key) -> Result<Requeue, RequestError> {
        let Some(mut request) = self.requests.get(key) else {
            return Ok(Requeue::OnChange);
        };
        for _ in 0..MAX_STEPS {
            let observed = self.observe(key, Arc::clone(&request)).await?;
            let plan = plan::plan(&observed);
            let Some(step) = &plan.step else {
                let before = observe::stage(&request);
                let written = self.write_status(key, &observed, &plan, None).await?;
                match written.map(Arc::new) {
                    // A request that has ended has a snapshot to delete.
                    Some(after) if observe::stage(&after) != before => request = after,
                    _ => return Ok(plan.requeue_in.map_or(Requeue::OnChange, Requeue::After)),
                }
                continue;
            };
            match Box::pin(self.act(key, &observed, step)).await {
                Ok(Some(after)) => {
                    self.requests.wrote(&request, after.clone());
                    request = Arc::new(after);
                }
                Ok(None) => {}
                Err(error) => {
                    self.write_status(key, &observed, &plan, Some(&error))
                        .await?;
                    return Err(error);
                }
            }
            if *step == plan::Step::DeleteRequest {
                return Ok(Requeue::OnChange);
            }
        }
        Ok(Requeue::After(RETRY))
    }

    fn uid_of(&self, key: &Key) -> Option<String> {
        self.requests.get(key)?.metadata.uid.clone()
    }
}
