//! The controller of the `KubeVirt` object: creates it if there is none, writes its status, and gives virt-handler the
//! network for migrations that it names.
//!
//! The oldest object in the namespace of the installation is in effect; every other one gets a condition that
//! names it.

mod network;
mod status;

use kube::{Api, Client};
use kubevirt_api::{API_VERSION, KubeVirt, kubevirt::KubeVirtStatus};
use reasons::Reason;
use reconcile::{
    Clock, Fragment, Key, ReconcileError, Reconciler, Recorder, Requeue, Retry, Store, WriteError,
    apply_reported, create,
};
use serde_json::{Value, json};

use crate::{
    MANAGER,
    components::Components,
    release::{Release, VERSION},
    view::Installation,
};

/// The name of the object that is created.
pub(crate) const NAME: &str = "kubevirt";
/// Our own version, beside the version of `KubeVirt` in the status.
const VERSION_ANNOTATION: &str = "ferrovirt.io/version";

pub(crate) struct Controller {
    pub(crate) client: Client,
    pub(crate) clock: Clock,
    /// Its reconcile creates the object, and stands for changes of the components.
    pub(crate) default: Key,
    pub(crate) objects: Store<Installation>,
    pub(crate) components: Components,
    pub(crate) release: Release,
    pub(crate) recorder: Recorder,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum InstallationError {
    #[error("create the KubeVirt object")]
    Create(#[source] WriteError),
    #[error("write the version of the KubeVirt object")]
    Annotate(#[source] WriteError),
    #[error("write the status of the KubeVirt object")]
    Status(#[source] WriteError),
    #[error("look for the network attachment definition of migrations.network")]
    FindNetwork(#[source] Box<kube::Error>),
    #[error("give virt-handler the network for migrations")]
    Join(#[source] WriteError),
}

impl ReconcileError for InstallationError {
    fn reason(&self) -> Reason {
        match self {
            Self::Create(_) => Reason::FailedCreate,
            Self::Annotate(_) | Self::Join(_) => Reason::FailedUpdate,
            Self::FindNetwork(_) => Reason::ServerUnavailable,
            Self::Status(_) => Reason::FailedStatusUpdate,
        }
    }

    fn retry(&self) -> Retry {
        match self {
            Self::Create(source)
            | Self::Annotate(source)
            | Self::Status(source)
            | Self::Join(source) => source.retry(),
            Self::FindNetwork(_) => Retry::BackOff,
        }
    }
}

impl Reconciler for Controller {
    const NAME: &'static str = "kubevirt";
    type Error = InstallationError;

    async fn reconcile(&self, key: &Key) -> Result<Requeue, InstallationError> {
        if !self.objects.is_defined() {
            return Ok(Requeue::OnChange);
        }
        let current = in_effect(&self.objects, &self.default.namespace);
        let Some(current) = current else {
            if *key == self.default && self.objects.get(key).is_none() {
                self.create().await?;
            }
            return Ok(Requeue::OnChange);
        };
        let current = Key::of(current.as_ref());
        let key = if *key == self.default { &current } else { key };
        let Some(object) = self.objects.get(key) else {
            return Ok(Requeue::OnChange);
        };
        let status = if *key == current {
            self.annotate(key, &object).await?;
            status::of_installation(&status::Observed {
                before: &object.status,
                generation: object.metadata.generation,
                components: &self.components.observe(&self.default.namespace),
                release: &self.release,
                now: self.clock.now(),
            })
        } else {
            status::of_other(&object, &current, self.clock.now())
        };
        self.write(key, &object, &status).await?;
        if *key == current {
            return self.join_migration_network(&object).await;
        }
        Ok(Requeue::OnChange)
    }

    fn uid_of(&self, key: &Key) -> Option<String> {
        self.objects.get(key)?.metadata.uid.clone()
    }
}

/// The object in effect: the oldest in the namespace that is not being deleted.
pub(crate) fn in_effect(
    objects: &Store<Installation>,
    namespace: &str,
) -> Option<std::sync::Arc<Installation>> {
    let objects = objects.in_namespace(namespace).into_iter();
    objects
        .filter(|object| object.metadata.deletion_timestamp.is_none())
        .min_by_key(|object| {
            let metadata = &object.metadata;
            (metadata.creation_timestamp.clone(), metadata.name.clone())
        })
}

impl Controller {
    async fn create(&self) -> Result<(), InstallationError> {
        let key = &self.default;
        // A single host has no components of another version.
        let gates: &[&str] = match self.components {
            Components::Host { .. } => &["IncrementalBackup", "SuspendToClaim"],
            Components::Workloads { .. } => &[],
        };
        // With these parents, a JSON patch can add a feature gate.
        let object = json!({
            "apiVersion": API_VERSION,
            "kind": KubeVirt::KIND,
            "metadata": {
                "name": key.name, "namespace": key.namespace,
                "annotations": {VERSION_ANNOTATION: VERSION},
            },
            "spec": {
                "certificateRotateStrategy": {},
                "configuration": {"developerConfiguration": {"featureGates": gates}},
                "customizeComponents": {},
                "imagePullPolicy": "IfNotPresent",
                "workloadUpdateStrategy": {},
            },
        });
        let api = Api::<Installation>::namespaced(self.client.clone(), &key.namespace);
        match create(&api, MANAGER, key, &object).await {
            Ok(_) => {
                tracing::info!(
                    namespace = key.namespace,
                    name = key.name,
                    "created the KubeVirt object"
                );
                Ok(())
            }
            Err(WriteError::AlreadyExists { .. }) => Ok(()),
            Err(error) => Err(InstallationError::Create(error)),
        }
    }

    async fn annotate(&self, key: &Key, object: &Installation) -> Result<(), InstallationError> {
        let annotations = object.metadata.annotations.as_ref();
        let found = annotations.and_then(|all| all.get(VERSION_ANNOTATION));
        if found.is_some_and(|found| found == VERSION) {
            return Ok(());
        }
        let annotations = json!({VERSION_ANNOTATION: VERSION});
        let body = body(key, "annotations", annotations);
        let fragment = Fragment::new(MANAGER, key, body);
        self.apply(key, object, &fragment)
            .await
            .map_err(InstallationError::Annotate)
    }

    async fn write(
        &self,
        key: &Key,
        object: &Installation,
        status: &KubeVirtStatus,
    ) -> Result<(), InstallationError> {
        if object.status == *status {
            return Ok(());
        }
        let version = json!(object.metadata.resource_version);
        let mut body = body(key, "resourceVersion", version);
        body["status"] = json!(status);
        let fragment = Fragment::of_status(MANAGER, key, body);
        self.apply(key, object, &fragment)
            .await
            .map_err(InstallationError::Status)
    }

    async fn apply(
        &self,
        key: &Key,
        object: &Installation,
        fragment: &Fragment<'_>,
    ) -> Result<(), WriteError> {
        let api = Api::<Installation>::namespaced(self.client.clone(), &key.namespace);
        match apply_reported(&api, fragment, object, &self.recorder).await {
            Ok(_) | Err(WriteError::NotFound { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// An object with one more field in its metadata.
fn body(key: &Key, field: &str, value: Value) -> Value {
    let mut body = json!({
        "apiVersion": API_VERSION,
        "kind": KubeVirt::KIND,
        "metadata": {"name": key.name, "namespace": key.namespace},
    });
    body["metadata"][field] = value;
    body
}
