//! Prepares a pod's volumes and updates their contents.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use futures::future::try_join_all;
use image_store::Image;
use k8s_openapi::api::core::v1::Pod;
use reasons::Reason;
use tokio::time::Instant;

use super::image::{credentials, policy};
use crate::{
    Failure,
    documents::{self, Documents},
    node::Shared,
    storage,
    tokens::{self, Tokens},
    volumes::{self, Volumes},
};

/// The prepared volumes of a pod and the config maps and secrets read for them.
#[derive(Debug, Clone)]
pub(crate) struct Prepared {
    pub(crate) volumes: Volumes,
    pub(crate) documents: Documents,
    /// The tokens in them.
    pub(crate) tokens: LiveTokens,
}

/// The tokens in the volumes of a pod.
#[derive(Debug, Clone, Default)]
pub(crate) struct LiveTokens {
    all: Tokens,
    renew_at: Option<Instant>,
}

impl LiveTokens {
    fn new(all: Tokens) -> Self {
        let renew_at = all.fresh_for.map(|fresh| Instant::now() + fresh);
        Self { all, renew_at }
    }

    /// When to renew them; `None` if there are no tokens.
    pub(crate) fn renew_at(&self) -> Option<Instant> {
        self.renew_at
    }
}

pub(crate) async fn prepare_volumes(
    shared: Arc<Shared>,
    pod: Arc<Pod>,
    dir: PathBuf,
) -> Result<Prepared, Failure> {
    let namespace = pod.metadata.namespace.clone().unwrap_or_default();
    let names = documents::names(&pod);
    let documents = documents::fetch(&shared.settings.client, &namespace, names).await?;
    let credentials = credentials(&pod, &documents)?;
    let volumes = pod
        .spec
        .iter()
        .flat_map(|spec| spec.volumes.iter().flatten());
    let images = volumes.filter_map(|volume| Some((volume.name.clone(), volume.image.as_ref()?)));
    let images = try_join_all(images.map(|(name, source)| {
        let (shared, credentials) = (&shared, &credentials);
        async move {
            let reference = source.reference.as_deref().unwrap_or_default();
            let policy = policy(source.pull_policy.as_deref(), reference);
            let image = super::image::ensure(shared, reference, policy, credentials).await;
            super::image::count(&image, "present");
            let what = format!("image of volume {name:?}");
            let image = image.map_err(|error| error.failure(&what))?;
            Ok::<_, Failure>((name, image))
        }
    }))
    .await?;
    let claims = storage::resolve_claims(&shared, &pod).await?;
    let tokens = tokens::fetch(&shared.settings.client, &pod).await?;
    let request = volumes::Request {
        pod,
        claims,
        tokens: tokens.clone(),
        pod_dir: dir,
        documents: documents.clone(),
        images: images.into_iter().collect::<BTreeMap<String, Image>>(),
        node_name: shared.settings.node_name.clone(),
        host_ip: shared.settings.address,
        allocatable: shared.allocatable(),
        version: version(),
    };
    let volumes = blocking("prepare volumes", move || volumes::prepare(&request)).await?;
    Ok(Prepared {
        volumes,
        documents,
        tokens: LiveTokens::new(tokens),
    })
}

/// Unique per call.
fn version() -> String {
    jiff::Timestamp::now().as_nanosecond().to_string()
}

/// Why the pod has to leave, if a volume has grown above its limit.
pub(crate) async fn measure_volumes(
    pod: Arc<Pod>,
    dir: PathBuf,
) -> Result<Option<String>, Failure> {
    let measured = move || volumes::exceeded(&pod, &dir);
    super::blocking(Reason::FailedMount, "measure volumes", measured).await
}

/// Writes the current contents into the volumes of a running pod. Returns the tokens in them.
pub(crate) async fn refresh_volumes(
    shared: Arc<Shared>,
    pod: Arc<Pod>,
    dir: PathBuf,
    mut tokens: LiveTokens,
) -> (LiveTokens, Result<(), Failure>) {
    let refreshed = refresh(shared, pod, dir, &mut tokens).await;
    (tokens, refreshed)
}

async fn refresh(
    shared: Arc<Shared>,
    pod: Arc<Pod>,
    dir: PathBuf,
    tokens: &mut LiveTokens,
) -> Result<(), Failure> {
    let client = &shared.settings.client;
    let namespace = pod.metadata.namespace.clone().unwrap_or_default();
    let names = documents::names_of_volumes(&pod);
    let documents = documents::fetch(client, &namespace, names).await?;
    if tokens.renew_at.is_some_and(|at| at <= Instant::now()) {
        *tokens = LiveTokens::new(tokens::fetch(client, &pod).await?);
    }
    let request = volumes::Request {
        pod,
        claims: BTreeMap::new(),
        tokens: tokens.all.clone(),
        pod_dir: dir,
        documents,
        images: BTreeMap::new(),
        node_name: shared.settings.node_name.clone(),
        host_ip: shared.settings.address,
        allocatable: shared.allocatable(),
        version: version(),
    };
    blocking("update volumes", move || volumes::refresh(&request)).await
}

/// Runs work on volumes, which may hang with their storage.
async fn blocking<T: Send + 'static>(
    tried: &'static str,
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let done = tokio::task::spawn_blocking(|| panics::catch(work)).await;
    let done = done.map_err(|error| Failure::of(Reason::FailedMount, tried, &error))?;
    done.map_err(|error| Failure::of(Reason::FailedMount, tried, &error))?
}
