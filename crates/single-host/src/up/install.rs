//! The objects that make an API server into ours: kinds, webhooks, the aggregated API.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context, Result, bail};
use base64::{Engine, engine::general_purpose::STANDARD};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client,
    api::{DynamicObject, Patch, PatchParams},
    core::{ApiResource, GroupVersionKind},
    runtime::wait::{Condition, await_condition},
};
use serde_json::{Value, json};

use super::components::Host;

/// The name under which this program writes.
const MANAGER: &str = "ferrovirt-up";
const NAMESPACE: &str = "kubevirt";
/// For the API server to take a new kind or service into use.
const PATIENCE: Duration = Duration::from_secs(30);

/// The kinds of `KubeVirt`.
pub(super) async fn kinds(host: &Host<'_>) -> Result<()> {
    let client = host.client("ferrovirt-up");
    for (name, yaml) in kubevirt_api::crds::ALL {
        let object: Value = serde_saphyr::from_str(yaml).with_context(|| format!("read {name}"))?;
        apply(&client, &object)
            .await
            .with_context(|| format!("install the kind {name}"))?;
        let api: Api<CustomResourceDefinition> = Api::all(client.clone());
        let established =
            await_condition(api, name, kube::runtime::conditions::is_crd_established());
        tokio::time::timeout(PATIENCE, established)
            .await
            .with_context(|| format!("wait for the kind {name} to be served"))??;
    }
    Ok(())
}

/// Webhooks and the aggregated API, answered at `address`.
pub(super) async fn virt_api(host: &Host<'_>, address: SocketAddr) -> Result<()> {
    let client = host.client("ferrovirt-up");
    let bundle = STANDARD.encode(host.identities.servers.pem());
    let mut objects = vec![service(), endpoints(address)];
    objects.extend(["v1", "v1alpha3"].map(|version| api_service(version, &bundle)));
    objects.push(webhooks(
        "MutatingWebhookConfiguration",
        "virt-api-mutator",
        virt_api::MUTATE,
        &bundle,
    ));
    objects.push(webhooks(
        "ValidatingWebhookConfiguration",
        "virt-api-validator",
        &[virt_api::VALIDATE, virt_api::EVICT].concat(),
        &bundle,
    ));
    for object in &objects {
        let what = format!("{} {}", object["kind"], object["metadata"]["name"]);
        apply(&client, object)
            .await
            .with_context(|| format!("install {what}"))?;
    }
    available(&client, "v1.subresources.kubevirt.io").await
}

async fn apply(client: &Client, object: &Value) -> Result<()> {
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
    api.patch(
        &name,
        &PatchParams::apply(MANAGER).force(),
        &Patch::Apply(object),
    )
    .await?;
    Ok(())
}

/// Waits until the API server has seen the aggregated API answer.
async fn available(client: &Client, name: &str) -> Result<()> {
    let kind = GroupVersionKind::gvk("apiregistration.k8s.io", "v1", "APIService");
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
    let waited = tokio::time::timeout(PATIENCE, await_condition(api, name, IsAvailable)).await;
    match waited {
        Ok(found) => found.map(drop).context("watch the aggregated API"),
        Err(_elapsed) => bail!("the aggregated API {name} did not answer in time; see the log"),
    }
}

struct IsAvailable;

impl Condition<DynamicObject> for IsAvailable {
    fn matches_object(&self, object: Option<&DynamicObject>) -> bool {
        let conditions = object.and_then(|object| object.data["status"]["conditions"].as_array());
        conditions.is_some_and(|conditions| {
            conditions
                .iter()
                .any(|one| one["type"] == "Available" && one["status"] == "True")
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

fn api_service(version: &str, bundle: &str) -> Value {
    let group = "subresources.kubevirt.io";
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
        let mut one = json!({
            "name": webhook.name,
            "clientConfig": {
                "service": {
                    "name": "virt-api", "namespace": NAMESPACE,
                    "path": webhook.path, "port": 443,
                },
                "caBundle": bundle,
            },
            "rules": [{
                "apiGroups": [webhook.group], "apiVersions": webhook.versions,
                "operations": webhook.operations, "resources": [webhook.resource],
                "scope": "*",
            }],
            "sideEffects": if webhook.side_effects { "NoneOnDryRun" } else { "None" },
            "failurePolicy": "Fail", "timeoutSeconds": 10,
            "matchPolicy": "Equivalent", "admissionReviewVersions": ["v1"],
        });
        if let Some(prefix) = webhook.prefix {
            let expression = format!("request.name.startsWith('{prefix}')");
            one["matchConditions"] = json!([{ "name": "only-ours", "expression": expression }]);
        }
        one
    };
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
        "metadata": {"name": name},
        "webhooks": list.iter().map(one).collect::<Vec<_>>(),
    })
}
