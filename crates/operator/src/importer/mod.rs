//! Data volumes on a cluster without CDI: the definitions of their kinds, and what uploads need.
//!
//! The kinds of `cdi.kubevirt.io` are Ferrovirt's if the definition of data volumes has our label, or if there is none
//! and no sign of CDI. Then the definitions are kept current, and so are the registration of the API that issues tokens
//! for uploads and the object that tells clients where the upload proxy is. They are CDI's otherwise; ours lose the label
//! then, by which virt-controller stops to populate data volumes.
//!
//! **Invariants**: no definition is ever deleted, as all data volumes of users would go with it; nothing of CDI is
//! changed; each write is about the state that was read.

mod plan;
mod uploads;

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client, api::ApiResource, api::DynamicObject, runtime::watcher::Config};
use reasons::Reason;
use reconcile::{
    Key, ReconcileError, Reconciler, Requeue, Retry, Store, Triggers, WriteError, create, merge,
    watch, watch_if_defined, watch_namespace,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::plan::{Found, Owner, Step};
use crate::{
    MANAGER,
    view::{AuthorityMap, Definition, ImporterConfig},
};

/// The operator reads the objects that it does not watch again after this time.
const INTERVAL: Duration = Duration::from_mins(10);

/// virt-api publishes its authority in this config map.
const AUTHORITY: &str = "kubevirt-ca";

/// The only key: the definitions are one set.
pub(crate) fn key() -> Key {
    Key::new("", "importer")
}

pub(crate) struct Controller {
    pub(crate) client: Client,
    /// Of the installation.
    pub(crate) namespace: String,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ImporterError {
    #[error("read the installation of data volumes")]
    Read(#[source] Box<kube::Error>),
    #[error("parse a definition of data volumes")]
    Parse(#[source] Box<serde_saphyr::Error>),
    #[error("define data volumes")]
    Define(#[source] WriteError),
    #[error("leave data volumes to CDI")]
    Release(#[source] WriteError),
    #[error("register the API for tokens of uploads")]
    Register(#[source] WriteError),
    #[error("publish the upload proxy")]
    Publish(#[source] WriteError),
}

impl ImporterError {
    fn read(error: kube::Error) -> Self {
        Self::Read(Box::new(error))
    }
}

impl ReconcileError for ImporterError {
    fn reason(&self) -> Reason {
        match self {
            Self::Read(_) => Reason::ServerUnavailable,
            Self::Parse(_) => Reason::FailedCreate,
            Self::Define(source)
            | Self::Release(source)
            | Self::Register(source)
            | Self::Publish(source) => source.reason(),
        }
    }

    fn retry(&self) -> Retry {
        match self {
            Self::Read(_) | Self::Parse(_) => Retry::BackOff,
            Self::Define(source)
            | Self::Release(source)
            | Self::Register(source)
            | Self::Publish(source) => source.retry(),
        }
    }
}

impl Reconciler for Controller {
    const NAME: &'static str = "importer";
    type Error = ImporterError;

    /// The key stands for all definitions.
    fn uid_of(&self, _key: &Key) -> Option<String> {
        None
    }

    async fn reconcile(&self, _key: &Key) -> Result<Requeue, ImporterError> {
        let found = self.definitions().await?;
        let owner = plan::owner(&found);
        let steps = plan::plan(owner, &found);
        for step in steps.map_err(|error| ImporterError::Parse(Box::new(error)))? {
            self.act(step).await?;
        }
        match owner {
            Owner::Ferrovirt => self.keep_uploads().await,
            Owner::Cdi => self.leave_uploads().await,
        }
    }
}

impl Controller {
    fn api(&self) -> Api<DynamicObject> {
        let resource = ApiResource::erase::<CustomResourceDefinition>(&());
        Api::all_with(self.client.clone(), &resource)
    }

    /// Reads them, as the caches may lag behind the last writes.
    async fn definitions(&self) -> Result<Found, ImporterError> {
        let api: Api<Definition> = Api::all(self.client.clone());
        let mut found = Found::new();
        for name in plan::names() {
            let one = api.get_opt(name).await.map_err(ImporterError::read)?;
            found.extend(one.map(|one| (name, one.metadata)));
        }
        Ok(found)
    }

    async fn act(&self, step: Step) -> Result<(), ImporterError> {
        let api = self.api();
        match step {
            Step::Create { name, object } => {
                let created = create(&api, MANAGER, &Key::new("", name), &object).await;
                created.map_err(ImporterError::Define)?;
                tracing::info!(name, "defined a kind of data volumes: CDI is not installed");
            }
            Step::Merge { name, patch } => {
                let merged = merge(&api, MANAGER, &Key::new("", name), &patch).await;
                merged.map_err(ImporterError::Define)?;
                tracing::info!(name, "brought the definition of a kind up to date");
            }
            Step::Release { name, patch } => {
                let merged = merge(&api, MANAGER, &Key::new("", name), &patch).await;
                merged.map_err(ImporterError::Release)?;
                tracing::warn!(name, "CDI is installed: data volumes are left to it");
            }
        }
        Ok(())
    }
}

/// Starts the watches of what decides, of virt-api's authority, and of the settings of an administrator.
pub(crate) fn observe(
    (client, namespace): (&Client, &str),
    triggers: &Triggers,
    tasks: &TaskTracker,
    stop: &CancellationToken,
) {
    for name in [plan::DECISIVE, plan::OF_CDI] {
        let only = Config::default().fields(&format!("metadata.name={name}"));
        let triggers = triggers.clone();
        tasks.spawn(watch(
            client.clone(),
            only,
            Store::new(),
            move |_: &Definition| triggers.add(key(), "customresourcedefinition"),
            stop.clone(),
        ));
    }
    // A new authority: an API server that does not trust virt-api cannot delete namespaces either.
    let (renewed, namespace) = (triggers.clone(), namespace.to_owned());
    let (authorities, until) = (client.clone(), stop.clone());
    tasks.spawn(async move {
        let only = Config::default().fields(&format!("metadata.name={AUTHORITY}"));
        let renewed = move |_: &AuthorityMap| renewed.add(key(), "configmap");
        watch_namespace(
            (authorities, &namespace),
            only,
            Store::new(),
            renewed,
            until,
        )
        .await;
    });
    let triggers = triggers.clone();
    tasks.spawn(watch_if_defined(
        client.clone(),
        Config::default(),
        Store::new(),
        move |_: &ImporterConfig| triggers.add(key(), "cdiconfig"),
        stop.clone(),
    ));
}
