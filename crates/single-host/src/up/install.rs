//! Installs our kinds, roles, webhooks and the aggregated API in the API server.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use anyhow::{Context, Result, bail};
use base64::{Engine, engine::general_purpose::STANDARD};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::{
    api::core::v1::Node,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DynamicObject, ListParams, Patch, PatchParams},
    core::{ApiResource, GroupVersionKind},
    runtime::wait::{Condition, await_condition},
};
use kubevirt_api::{annotations, crds, labels, upload};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::components::Host;
use crate::printer::Printer;

/// The field manager of this program.
const MANAGER: &str = "ferrovirt-up";
const NAMESPACE: &str = "kubevirt";
/// Time limit for the API server to serve a new kind or aggregated API.
const READY_TIMEOUT: Duration = Duration::from_secs(30);

/// Definitions that are installed concurrently: one on each core of a small host, and one that waits for the
/// disk.
const CONCURRENCY: usize = 3;
/// Annotation of a definition: the checksum of its source text.
const SUM: &str = "ferrovirt.io/definition-sum";

/// Installs the kinds of `KubeVirt`, of volume snapshots and of secondary networks; skips current ones.
pub(super) async fn kinds(host: &Host<'_>, printer: Printer) -> Result<()> {
    let client = host.client("ferrovirt-up");
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let found = api
        .list_metadata(&ListParams::default())
        .await
        .context("list the installed kinds")?;
    let sums: BTreeMap<String, String> = found
        .into_iter()
        .filter_map(|one| Some((one.name_any(), unmodified_sum(&one.metadata)?)))
        .collect();
    // The host has no other importer, snapshotter or network plugin.
    let all = || {
        crds::ALL
            .iter()
            .chain(crds::IMPORTER)
            .chain(&embedded_node::VOLUME_SNAPSHOT_DEFINITIONS)
            .chain(&embedded_node::NETWORK_DEFINITIONS)
    };
    let missing: Vec<(&str, &str, String)> = all()
        .map(|(name, yaml)| (*name, *yaml, sum(yaml)))
        .filter(|(name, _, sum)| sums.get(*name) != Some(sum))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let (count, all) = (missing.len(), all().count());
    printer.line(&format!("Installing {count} of {all} kinds ..."));
    stream::iter(missing)
        .map(Ok)
        .try_for_each_concurrent(CONCURRENCY, |(name, yaml, sum)| {
            let client = client.clone();
            async move {
                define(&client, name, yaml, &sum)
                    .await
                    .with_context(|| format!("install the kind {name}"))
            }
        })
        .await
}

/// The checksum in a definition's annotation, unless another writer has changed the spec.
fn unmodified_sum(metadata: &ObjectMeta) -> Option<String> {
    let others = metadata.managed_fields.iter().flatten().any(|entry| {
        let fields = entry.fields_v1.as_ref();
        entry.manager.as_deref() != Some(MANAGER)
            && fields.is_some_and(|fields| fields.0.get("f:spec").is_some())
    });
    let annotations = metadata.annotations.as_ref().filter(|_| !others)?;
    annotations.get(SUM).cloned()
}

fn sum(text: &str) -> String {
    hex::encode(Sha256::digest(text))
}

async fn define(client: &Client, name: &str, yaml: &'static str, sum: &str) -> Result<()> {
    // Half a megabyte of text.
    let read = tokio::task::spawn_blocking(move || serde_saphyr::from_str::<Value>(yaml));
    let mut object = read.await.context("read it")?.context("read it")?;
    object["metadata"]["annotations"][SUM] = sum.into();
    let applied = apply(client, &object).await?;
    if IsTrue("Established").matches_object(Some(&applied)) {
        return Ok(());
    }
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let established = await_condition(api, name, kube::runtime::conditions::is_crd_established());
    tokio::time::timeout(READY_TIMEOUT, established)
        .await
        .context("wait for it to be served")??;
    Ok(())
}

/// Installs the roles of users and components.
pub(super) async fn roles(host: &Host<'_>) -> Result<()> {
    let client = host.client("ferrovirt-up");
    let environment = roles::Environment::Host {
        namespace: NAMESPACE,
        node: &host.flags.node_name,
    };
    for object in roles::objects(environment)? {
        apply(&client, &object)
            .await
            .with_context(|| format!("install {}", roles::shown(&object)))?;
    }
    Ok(())
}

/// Installs webhooks and the aggregated API, which virt-api serves at `address`.
pub(super) async fn virt_api(host: &Host<'_>, address: SocketAddr) -> Result<()> {
    let client = host.client("ferrovirt-up");
    let bundle = STANDARD.encode(host.certificates.first().servers.pem());
    let mut objects = vec![service(), endpoints(address)];
    for api in virt_api::AGGREGATED {
        let versions = api.versions.iter();
        objects.extend(versions.map(|version| api_service(api.group, version, &bundle)));
    }
    let (group, version) = (upload::GROUP, upload::VERSION);
    objects.push(api_service(group, version, &bundle));
    objects.push(webhooks(
        "MutatingWebhookConfiguration",
        "virt-api-mutator",
        &[virt_api::MUTATE, &[virt_api::MUTATE_COPY]].concat(),
        &bundle,
    ));
    objects.push(webhooks(
        "ValidatingWebhookConfiguration",
        "virt-api-validator",
        &[
            virt_api::VALIDATE,
            virt_api::EVICT,
            &[virt_api::VALIDATE_COPY],
        ]
        .concat(),
        &bundle,
    ));
    for object in &objects {
        let object_name = format!("{} {}", object["kind"], object["metadata"]["name"]);
        apply(&client, object)
            .await
            .with_context(|| format!("install {object_name}"))?;
    }
    available(&client, "v1.subresources.kubevirt.io").await
}

pub(super) async fn apply(client: &Client, object: &Value) -> Result<DynamicObject> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let api_version = text(&object["apiVersion"]);
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let kind = text(&object["kind"]);
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &kind));
    let api: Api<DynamicObject> = match object["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let name = text(&object["metadata"]["name"]);
    let parameters = PatchParams::apply(MANAGER).force();
    Ok(api.patch(&name, &parameters, &Patch::Apply(object)).await?)
}

/// Waits until the API server reports the aggregated API as available.
async fn available(client: &Client, name: &str) -> Result<()> {
    let kind = GroupVersionKind::gvk("apiregistration.k8s.io", "v1", "APIService");
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
    let waited = tokio::time::timeout(
        READY_TIMEOUT,
        await_condition(api, name, IsTrue("Available")),
    )
    .await;
    match waited {
        Ok(found) => found.map(drop).context("watch the aggregated API"),
        Err(_elapsed) => {
            bail!("the aggregated API {name} did not become available in time; see the log")
        }
    }
}

/// Waits until the node's labels show that it can run guests. Otherwise the first guest would report missing
/// node labels and wait.
pub(super) async fn node_labelled(client: &Client, node: &str) -> Result<()> {
    let api: Api<Node> = Api::all(client.clone());
    let is_labelled = |node: Option<&Node>| {
        let Some(node) = node else { return false };
        let (labels, annotations) = (node.labels(), node.annotations());
        let mut names = labels.keys();
        labels
            .get(labels::SCHEDULABLE)
            .is_some_and(|yes| yes == "true")
            && (annotations.contains_key(annotations::SKIP_NODE_LABELLER)
                || names.any(|name| name.starts_with(labels::MACHINE_TYPE_PREFIX)))
    };
    match tokio::time::timeout(READY_TIMEOUT, await_condition(api, node, is_labelled)).await {
        Ok(found) => found.map(drop).context("watch the node"),
        Err(_elapsed) => bail!("node {node} did not report its capabilities in time; see the log"),
    }
}

/// Waits for a condition of this type.
struct IsTrue(&'static str);

impl Condition<DynamicObject> for IsTrue {
    fn matches_object(&self, object: Option<&DynamicObject>) -> bool {
        let conditions = object.and_then(|object| object.data["status"]["conditions"].as_array());
        conditions.is_some_and(|conditions| {
            conditions
                .iter()
                .any(|one| one["type"] == self.0 && one["status"] == "True")
        })
    }
}

fn service() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "virt-api", "namespace": NAMESPACE},
        "spec": {"ports": [{"name": "https", "port": 443, "protocol": "TCP"}]},
    })
}

fn endpoints(address: SocketAddr) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Endpoints",
        "metadata": {"name": "virt-api", "namespace": NAMESPACE},
        "subsets": [{
            "addresses": [{"ip": address.ip()}],
            "ports": [{"name": "https", "port": address.port(), "protocol": "TCP"}],
        }],
    })
}

fn api_service(group: &str, version: &str, bundle: &str) -> Value {
    json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": format!("{version}.{group}")},
        "spec": {
            "group": group, "version": version,
            "groupPriorityMinimum": 1000, "versionPriority": 15,
            "service": {"name": "virt-api", "namespace": NAMESPACE, "port": 443},
            "caBundle": bundle,
        },
    })
}

fn webhooks(kind: &str, name: &str, list: &[virt_api::Webhook], bundle: &str) -> Value {
    let one = |webhook: &virt_api::Webhook| {
        let mut one = webhook.registration(NAMESPACE);
        one["clientConfig"]["caBundle"] = bundle.into();
        one
    };
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
        "metadata": {"name": name},
        "webhooks": list.iter().map(one).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sum_of_a_modified_definition_is_ignored() {
        let read = |manager: &str, fields: Value| -> ObjectMeta {
            serde_json::from_value(json!({
                "annotations": {SUM: "s"},
                "managedFields": [
                    {"manager": MANAGER, "operation": "Apply", "fieldsV1": {"f:spec": {}}},
                    {"manager": manager, "operation": "Update", "fieldsV1": fields},
                ],
            }))
            .expect("metadata")
        };
        for (manager, fields, expected) in [
            ("kubectl-edit", json!({"f:spec": {}}), None),
            ("kubectl-label", json!({"f:metadata": {}}), Some("s")),
            (MANAGER, json!({"f:spec": {}}), Some("s")),
        ] {
            let found = unmodified_sum(&read(manager, fields));
            assert_eq!(found.as_deref(), expected, "{manager}");
        }
        assert_eq!(unmodified_sum(&ObjectMeta::default()), None);
    }
}
