//! Objects installed in the cluster, and waiting for them.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Node};
use kube::{
    Api, Client, Config,
    api::{DynamicObject, Patch, PatchParams},
    config::{KubeConfigOptions, Kubeconfig},
    discovery::{ApiCapabilities, Scope, pinned_kind},
};

use super::{
    place::{NodeNumber, Place},
    storage,
};

const PATIENCE: Duration = Duration::from_mins(2);
const PAUSE: Duration = Duration::from_millis(50);
const MULTUS: &str = include_str!("../../cluster/multus.yaml");
const COREDNS: &str = include_str!("../../cluster/coredns.yaml");

/// A client of the cluster's administrator.
pub(super) async fn client(place: &Place) -> Result<Client> {
    let kubeconfig = Kubeconfig::read_from(place.kubeconfig("admin"))?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Client::try_from(config).context("make a client")
}

/// Waits until the API server is ready to serve.
pub(super) async fn wait_for_api(client: &Client) -> Result<()> {
    until("the API server is not ready", async || {
        let request = http::Request::get("/readyz").body(Vec::new())?;
        Ok(client.request_text(request).await.is_ok())
    })
    .await
}

/// Everything that a cluster is expected to bring along.
pub(super) async fn install(client: &Client) -> Result<()> {
    apply(client, MULTUS).await?;
    apply(client, COREDNS).await?;
    apply(client, storage::CLASSES).await
}

/// Waits until these nodes are ready for pods.
pub(super) async fn wait_for_nodes(client: &Client, nodes: &[NodeNumber]) -> Result<()> {
    let api: Api<Node> = Api::all(client.clone());
    for node in nodes {
        let name = node.name();
        until(&format!("node {name} is not ready"), async || {
            let found = api.get_opt(&name).await?;
            Ok(found.as_ref().is_some_and(is_ready))
        })
        .await?;
    }
    Ok(())
}

/// Waits until names of services are answered.
pub(super) async fn wait_for_dns(client: &Client) -> Result<()> {
    let api: Api<Deployment> = Api::namespaced(client.clone(), "kube-system");
    until("the name server is not ready", async || {
        let status = api.get("coredns").await?.status.unwrap_or_default();
        Ok(status.ready_replicas.unwrap_or(0) > 0)
    })
    .await
}

/// Whether the node reports that it is ready.
pub(super) fn is_ready(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| &status.conditions);
    let mut ready = conditions.flatten().filter(|one| one.type_ == "Ready");
    ready.any(|one| one.status == "True")
}

/// Applies every document of a text.
pub(super) async fn apply(client: &Client, text: &str) -> Result<()> {
    let params = PatchParams::apply("test-cluster").force();
    for document in text.split("\n---\n") {
        let object: DynamicObject =
            serde_saphyr::from_str(document).context("read a manifest of the cluster")?;
        let types = object.types.clone().context("a manifest without kind")?;
        let kind = kube::api::GroupVersionKind::try_from(&types)
            .context("a manifest with an odd apiVersion")?;
        let (resource, capabilities) = pinned_kind(client, &kind).await?;
        let name = object
            .metadata
            .name
            .clone()
            .context("a manifest without name")?;
        let api = api(client, &resource, &capabilities, &object);
        api.patch(&name, &params, &Patch::Apply(&object))
            .await
            .with_context(|| format!("apply {} {name}", kind.kind))?;
    }
    Ok(())
}

fn api(
    client: &Client,
    resource: &kube::api::ApiResource,
    capabilities: &ApiCapabilities,
    object: &DynamicObject,
) -> Api<DynamicObject> {
    match (&capabilities.scope, &object.metadata.namespace) {
        (Scope::Namespaced, Some(namespace)) => {
            Api::namespaced_with(client.clone(), namespace, resource)
        }
        (Scope::Namespaced, None) => Api::default_namespaced_with(client.clone(), resource),
        (Scope::Cluster, _) => Api::all_with(client.clone(), resource),
    }
}

async fn until(problem: &str, done: impl AsyncFn() -> Result<bool>) -> Result<()> {
    let begin = tokio::time::Instant::now();
    loop {
        match done().await {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            // A server that has just started may refuse requests for a moment.
            Err(_) if begin.elapsed() < PATIENCE => {}
            Err(error) => return Err(error.context(problem.to_owned())),
        }
        if begin.elapsed() > PATIENCE {
            bail!("{problem} after {} s", PATIENCE.as_secs());
        }
        tokio::time::sleep(PAUSE).await;
    }
}
