//! The controller of uploads: for each claim that is the target of one, a pod that receives the disk.
//!
//! A claim is a target by an annotation, which a data volume or a user's tool sets. The state is in further
//! annotations of the claim, as tools wait for them: the phase of the pod, whether it is ready, and why not.
//!
//! **Invariants**: no pod is created for a claim whose upload has succeeded, or that another pod uses; the
//! success is on the claim before the pod is deleted.

mod act;
mod observe;
mod plan;
#[cfg(test)]
mod tests;

use kube::Client;
use launcher_pod::Settings;
use reasons::Reason;
use reconcile::{
    Clock, Key, ReconcileError, Reconciler, Recorder, Requeue, Retry, Store, WriteError,
};

use super::view::ImporterPod;
use crate::gate::Gate;
use crate::view::{Claim, ImporterDefinition};
use crate::wiring::Wiring;

pub(super) use plan::SUCCEEDED;

/// Trigger by a claim.
const CLAIM: &str = "persistentvolumeclaim";
/// Trigger by the pod of an upload.
const POD: &str = "pod";
/// Trigger by the definition of data volumes.
const DEFINITION: &str = "customresourcedefinition";
/// The kind of the owner of a pod.
const OWNER: &str = "PersistentVolumeClaim";

#[derive(Clone)]
struct Controller {
    client: Client,
    claims: Store<Claim>,
    pods: Store<ImporterPod>,
    definitions: Store<ImporterDefinition>,
    launcher: Settings,
    recorder: Recorder,
    clock: Clock,
}

/// What triggers this controller besides claims.
#[derive(Clone)]
pub(super) struct Queue {
    gate: Gate,
    claims: Store<Claim>,
}

impl Queue {
    pub(super) fn pod_changed(&self, pod: &ImporterPod) {
        if let Some(owner) = Key::of_controller(pod, OWNER) {
            self.gate.add(owner, POD);
        }
    }

    pub(super) fn definition_changed(&self) {
        self.gate.add_all(self.claims.keys(), DEFINITION);
    }
}

/// The stores are those of data volumes, which are watched once.
pub(super) fn register(
    wiring: &mut Wiring<'_>,
    pods: &Store<ImporterPod>,
    definitions: &Store<ImporterDefinition>,
) -> Queue {
    let gate = Gate::default();
    let claims = wiring.caches.claims.store();
    let queue = gate.clone();
    wiring.caches.claims.on_change(move |claim: &Claim| {
        if plan::is_target(claim) {
            queue.add(Key::of(claim), CLAIM);
        }
    });
    let controller = Controller {
        client: wiring.settings.client.clone(),
        claims: claims.clone(),
        pods: pods.clone(),
        definitions: definitions.clone(),
        launcher: wiring.settings.launcher.clone(),
        recorder: wiring.recorder.clone(),
        clock: wiring.settings.clock,
    };
    wiring.controller(&gate, &claims, move || controller.clone());
    Queue { gate, claims }
}

/// Why a reconcile failed.
#[derive(Debug, thiserror::Error)]
enum UploadError {
    #[error("read from the API server")]
    Read(#[source] Box<kube::Error>),
    #[error("create the pod of the upload: the claim has changed")]
    Stale,
    #[error("create the pod of the upload: the claim has no size")]
    NoSize,
    #[error("create the pod of the upload")]
    CreatePod(#[source] WriteError),
    #[error("delete the pod of the upload")]
    DeletePod(#[source] WriteError),
    #[error("write the state of the upload on the claim")]
    Annotate(#[source] WriteError),
}

impl UploadError {
    fn read(error: kube::Error) -> Self {
        Self::Read(Box::new(error))
    }
}

impl ReconcileError for UploadError {
    fn reason(&self) -> Reason {
        match self {
            Self::Read(_) => Reason::ServerUnavailable,
            Self::Stale | Self::Annotate(_) => Reason::FailedUpdate,
            Self::NoSize | Self::CreatePod(_) => Reason::FailedCreate,
            Self::DeletePod(_) => Reason::FailedDelete,
        }
    }

    fn retry(&self) -> Retry {
        match self {
            Self::Read(_) | Self::Stale | Self::NoSize => Retry::BackOff,
            Self::CreatePod(source) | Self::DeletePod(source) | Self::Annotate(source) => {
                source.retry()
            }
        }
    }
}

impl Reconciler for Controller {
    const NAME: &'static str = "upload";
    type Error = UploadError;

    async fn reconcile(&self, key: &Key) -> Result<Requeue, UploadError> {
        let claim = self.claims.get(key).filter(|claim| plan::is_target(claim));
        let Some(claim) = claim.filter(|_| !self.definitions.is_empty()) else {
            return Ok(Requeue::OnChange);
        };
        let observed = self.observe(key, claim).await?;
        let plan = plan::plan(&observed);
        self.act(key, &observed, &plan).await
    }

    fn uid_of(&self, key: &Key) -> Option<String> {
        self.claims.get(key)?.metadata.uid.clone()
    }
}
