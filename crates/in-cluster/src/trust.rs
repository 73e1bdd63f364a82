//! Writes the authority's bundle into the webhook configurations and the aggregated APIs, so that API servers
//! trust virt-api.
//!
//! No admission control applies to webhook configurations, so the manifest of a second installation can
//! redirect them to its own service. The installation of this cluster is the one with the right to write them,
//! and restores them.

use anyhow::{Context, Result};
use futures::{Stream, StreamExt as _, stream};
use installation::{Settings, registration::AGGREGATED};
use k8s_openapi::{
    ByteString,
    api::admissionregistration::v1::{
        MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
    },
};
use kube::{
    Api, Client, ResourceExt,
    api::{DynamicObject, Patch, PatchParams},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};
use serving::Trust;

use crate::changes::changes;

const MUTATOR: &str = "virt-api-mutator";
const VALIDATOR: &str = "virt-api-validator";
/// The install manifest creates them without the bundle.
const WEBHOOKS: [(&str, &str); 2] = [
    ("MutatingWebhookConfiguration", MUTATOR),
    ("ValidatingWebhookConfiguration", VALIDATOR),
];

/// Yields an item after each change of the webhook configurations.
pub(crate) fn webhook_changes(client: &Client) -> impl Stream<Item = ()> + Send + use<> {
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    stream::select(
        changes(mutating, MUTATOR).boxed(),
        changes(validating, VALIDATOR).boxed(),
    )
}

/// Writes the bundle wherever it is missing. Returns the namespaces of other installations that the objects
/// pointed to.
pub(crate) async fn publish(
    client: &Client,
    namespace: &str,
    bundle: &Trust,
) -> Result<Vec<String>> {
    let mut others = Vec::new();
    let bundle = json!(ByteString(bundle.pem().as_bytes().to_vec()));
    for (kind, name) in WEBHOOKS {
        let api = api(client, "admissionregistration.k8s.io", kind);
        let found = api
            .get(name)
            .await
            .with_context(|| format!("read {kind} {name}"))?;
        let patch = match other(&found.data, namespace) {
            Some(other) => {
                others.push(other);
                ours(kind, name, namespace, &bundle)?
            }
            None => webhooks_patch(&found.data, &bundle),
        };
        write(&api, &found, patch).await?;
    }
    for name in services() {
        let api = api(client, "apiregistration.k8s.io", "APIService");
        let found = api
            .get(&name)
            .await
            .with_context(|| format!("read APIService {name}"))?;
        let patch = service_patch(&found.data, &bundle);
        write(&api, &found, patch).await?;
    }
    others.dedup();
    Ok(others)
}

/// The names of the objects that register the aggregated APIs.
fn services() -> impl Iterator<Item = String> {
    let all = AGGREGATED.into_iter();
    all.flat_map(|api| api.versions.iter().map(move |one| api.service_name(one)))
}

/// The namespace of the configured service, if it is another one.
fn other(configuration: &Value, namespace: &str) -> Option<String> {
    let webhooks = configuration["webhooks"].as_array().into_iter().flatten();
    let mut services =
        webhooks.filter_map(|webhook| webhook["clientConfig"]["service"]["namespace"].as_str());
    let found = services.find(|found| *found != namespace)?;
    Some(found.to_owned())
}

/// Restores all webhooks of the manifest of this namespace.
fn ours(kind: &str, name: &str, namespace: &str, bundle: &Value) -> Result<Vec<Value>> {
    let settings = Settings {
        namespace: namespace.to_owned(),
        ..Settings::usual()
    };
    let definitions: Vec<&str> = kubevirt_api::crds::ALL
        .iter()
        .map(|(name, _)| *name)
        .collect();
    let all = installation::objects(&settings, &definitions).context("render the webhooks")?;
    let wanted = all
        .into_iter()
        .find(|object| object["kind"] == kind && object["metadata"]["name"] == name);
    let mut webhooks = wanted.with_context(|| format!("find {kind} {name}"))?["webhooks"].take();
    for webhook in webhooks.as_array_mut().into_iter().flatten() {
        webhook["clientConfig"]["caBundle"] = bundle.clone();
    }
    Ok(vec![
        json!({"op": "replace", "path": "/webhooks", "value": webhooks}),
    ])
}

fn api(client: &Client, group: &str, kind: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
    Api::all_with(client.clone(), &resource)
}

/// Replaces single values; a concurrent change makes the patch fail.
fn webhooks_patch(configuration: &Value, bundle: &Value) -> Vec<Value> {
    let webhooks = configuration["webhooks"].as_array();
    let mut operations = Vec::new();
    for (index, webhook) in webhooks.into_iter().flatten().enumerate() {
        if webhook["clientConfig"]["caBundle"] == *bundle {
            continue;
        }
        operations.push(json!({
            "op": "test", "path": format!("/webhooks/{index}/name"), "value": webhook["name"],
        }));
        operations.push(json!({
            "op": "add", "path": format!("/webhooks/{index}/clientConfig/caBundle"),
            "value": bundle,
        }));
    }
    operations
}

fn service_patch(service: &Value, bundle: &Value) -> Vec<Value> {
    if service["spec"]["caBundle"] == *bundle {
        return Vec::new();
    }
    vec![json!({"op": "add", "path": "/spec/caBundle", "value": bundle})]
}

async fn write(
    api: &Api<DynamicObject>,
    object: &DynamicObject,
    operations: Vec<Value>,
) -> Result<()> {
    if operations.is_empty() {
        return Ok(());
    }
    let name = object.name_any();
    let operations =
        serde_json::from_value(Value::Array(operations)).context("render the patch of a bundle")?;
    api.patch(
        &name,
        &PatchParams::default(),
        &Patch::<()>::Json(operations),
    )
    .await
    .with_context(|| format!("write the authority into {name}"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn webhooks_of_another_installation_are_replaced() {
        let settings = Settings {
            namespace: "second".to_owned(),
            ..Settings::usual()
        };
        let bundle = json!("Tk9X");
        let theirs = installation::objects(&settings, &[]).unwrap();
        for (kind, name) in WEBHOOKS {
            let found = theirs.iter().find(|object| object["kind"] == kind).unwrap();
            assert_eq!(found["metadata"]["name"], name);
            assert_eq!(other(found, "kubevirt"), Some("second".to_owned()));
            assert_eq!(other(found, "second"), None);
            let patch = ours(kind, name, "kubevirt", &bundle).unwrap();
            let [operation] = &patch[..] else {
                panic!("{patch:?}")
            };
            let made = json!({"webhooks": operation["value"]});
            assert_eq!(other(&made, "kubevirt"), None);
            assert!(webhooks_patch(&made, &bundle).is_empty());
            assert!(!made.to_string().contains("second"));
        }
    }

    #[test]
    fn unchanged_bundles_are_not_written() {
        let configuration = json!({"webhooks": [
            {"name": "a", "clientConfig": {"caBundle": "Tk9X"}},
            {"name": "b", "clientConfig": {"caBundle": "T0xE"}},
            {"name": "c", "clientConfig": {}},
        ]});
        let operations = webhooks_patch(&configuration, &json!("Tk9X"));
        assert_eq!(
            operations,
            vec![
                json!({"op": "test", "path": "/webhooks/1/name", "value": "b"}),
                json!({"op": "add", "path": "/webhooks/1/clientConfig/caBundle", "value": "Tk9X"}),
                json!({"op": "test", "path": "/webhooks/2/name", "value": "c"}),
                json!({"op": "add", "path": "/webhooks/2/clientConfig/caBundle", "value": "Tk9X"}),
            ]
        );
        assert!(service_patch(&json!({"spec": {"caBundle": "Tk9X"}}), &json!("Tk9X")).is_empty());
    }
}
