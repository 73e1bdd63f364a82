//! Built-in admission from other objects: the storage class of a claim (PVC), the service account, the
//! priority and the limits of a pod.
//!
//! Invariant: values set by the client stay.

pub(crate) mod priority;

use apimachinery::{Status, meta};
use serde_json::{Value, json};

use crate::{
    api::Api,
    error::ApiError,
    limits,
    store::{Collection, Scope},
    verbs::{Call, prepare},
};

const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
const OLD_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
const DEFAULT_ACCOUNT: &str = "default";
/// Prefix of the name of the volume with the pod's service account token.
const TOKEN_VOLUME: &str = "kube-api-access-";
const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// An hour and a few seconds, which distinguishes these tokens from explicitly requested ones.
const TOKEN_SECONDS: i64 = 3607;
/// Marks mirror pods of a node's static pods.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// Completes an object that is about to be created.
pub(crate) async fn complete(api: &Api, call: &Call, object: &mut Value) -> Result<(), ApiError> {
    if call.kind.is("", "persistentvolumeclaims") {
        class(api, object).await?;
    } else if call.kind.is("", "pods") {
        refuse_runtime_class(call, object)?;
        limits::complete(api, call, object).await?;
        priority::of_pod(api, call, object).await?;
        account(api, call, object).await?;
    } else if call.kind.is("scheduling.k8s.io", "priorityclasses") {
        priority::of_class(api, call, object).await?;
    }
    Ok(())
}

/// Completes an object that is about to be updated.
pub(crate) async fn complete_update(
    api: &Api,
    call: &Call,
    live: &Value,
    object: &mut Value,
) -> Result<(), ApiError> {
    if call.kind.is("scheduling.k8s.io", "priorityclasses") {
        priority::of_class(api, call, object).await?;
    }
    if call.kind.is("", "pods") && object["spec"].is_object() {
        // Clients that do not know these fields must be able to replace a pod.
        for field in ["priority", "preemptionPolicy"] {
            if object["spec"][field].is_null() && !live["spec"][field].is_null() {
                object["spec"][field] = live["spec"][field].clone();
            }
        }
    }
    Ok(())
}

/// This server has no runtime classes.
fn refuse_runtime_class(call: &Call, pod: &Value) -> Result<(), ApiError> {
    let class = pod["spec"]["runtimeClassName"].as_str().unwrap_or_default();
    if class.is_empty() {
        return Ok(());
    }
    let why = format!("pod rejected: RuntimeClass {class:?} not found");
    Err(Status::forbidden(call.kind.resource(), meta::name(pod), &why).into())
}

/// Assigns the newest default storage class to a claim without one.
async fn class(api: &Api, claim: &mut Value) -> Result<(), ApiError> {
    let is_named = !claim["spec"]["storageClassName"].is_null()
        || meta::annotation(claim, OLD_CLASS).is_some();
    if is_named || !claim["spec"].is_object() {
        return Ok(());
    }
    let scope = Scope::all(Collection::new("storage.k8s.io", "storageclasses"));
    let mut found: Vec<Value> = Vec::new();
    for stored in api.store.list(&scope, None, None).await?.items {
        let class = stored.parse()?;
        if meta::annotation(&class, DEFAULT_CLASS) == Some("true") {
            found.push(class);
        }
    }
    found.sort_by(|one, other| {
        let newer = meta::creation_timestamp(other).cmp(&meta::creation_timestamp(one));
        newer.then_with(|| meta::name(one).cmp(meta::name(other)))
    });
    if let Some(class) = found.first() {
        claim["spec"]["storageClassName"] = meta::name(class).into();
    }
    Ok(())
}

/// Assigns a service account: the one in the pod, which must exist, or its namespace's default.
async fn account(api: &Api, call: &Call, pod: &mut Value) -> Result<(), ApiError> {
    if meta::annotation(pod, MIRROR).is_some() || !pod["spec"].is_object() {
        return Ok(());
    }
    let spec = &mut pod["spec"];
    let named = spec["serviceAccountName"].as_str().unwrap_or_default();
    let name = if named.is_empty() {
        DEFAULT_ACCOUNT
    } else {
        named
    }
    .to_owned();
    let key = Collection::new("", "serviceaccounts").key(&call.namespace, &name);
    let Some(stored) = api.store.get(&key).await? else {
        // The default account is created shortly after its namespace; clients do not wait for it.
        if name == DEFAULT_ACCOUNT {
            name_account(spec, &name);
            mount_token(api, spec, &Value::Null);
            return Ok(());
        }
        let why = format!(
            "error looking up service account {}/{name}: serviceaccount {name:?} not found",
            call.namespace
        );
        return Err(Status::forbidden(call.kind.resource(), meta::name(pod), &why).into());
    };
    let account = stored.parse()?;
    name_account(spec, &name);
    mount_token(api, spec, &account);
    let secrets = &account["imagePullSecrets"];
    let has_none = spec["imagePullSecrets"]
        .as_array()
        .is_none_or(Vec::is_empty);
    if has_none
        && secrets
            .as_array()
            .is_some_and(|secrets| !secrets.is_empty())
    {
        spec["imagePullSecrets"] = secrets.clone();
    }
    Ok(())
}

/// The account appears in two fields, one of them deprecated.
fn name_account(spec: &mut Value, name: &str) {
    spec["serviceAccountName"] = json!(name);
    spec["serviceAccount"] = json!(name);
}

/// Mounts the service account's token into every container, with which it can call this server,
/// unless the pod or its account opts out. A container that already mounts something at that path
/// is unchanged.
fn mount_token(api: &Api, spec: &mut Value, account: &Value) {
    const FIELD: &str = "automountServiceAccountToken";
    let automount = spec[FIELD].as_bool().or_else(|| account[FIELD].as_bool());
    // Without an authority this server issues no tokens.
    if automount == Some(false) || api.certificates.read().root_ca.is_none() {
        return;
    }
    let volumes = spec["volumes"].as_array().into_iter().flatten();
    let mut names = volumes.filter_map(|volume| volume["name"].as_str());
    let there = names.find(|name| name.starts_with(TOKEN_VOLUME));
    let name = there.map_or_else(|| prepare::generate_name(TOKEN_VOLUME), str::to_owned);
    let is_new = there.is_none();
    let mut is_used = false;
    for list in ["initContainers", "containers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            is_used |= mount(container, &name);
        }
    }
    if is_used && is_new {
        push(spec, "volumes", token_volume(&name));
    }
}

/// Returns whether the volume was mounted.
fn mount(container: &mut Value, volume: &str) -> bool {
    let mounts = container["volumeMounts"].as_array().into_iter().flatten();
    let mut paths = mounts.filter_map(|mount| mount["mountPath"].as_str());
    if !container.is_object() || paths.any(|path| path == TOKEN_PATH) {
        return false;
    }
    let mount = json!({"name": volume, "readOnly": true, "mountPath": TOKEN_PATH});
    push(container, "volumeMounts", mount);
    true
}

fn push(object: &mut Value, list: &str, item: Value) {
    match object.get_mut(list).and_then(Value::as_array_mut) {
        Some(items) => items.push(item),
        None => object[list] = json!([item]),
    }
}

fn token_volume(name: &str) -> Value {
    json!({"name": name, "projected": {"defaultMode": 420, "sources": [
        {"serviceAccountToken": {"expirationSeconds": TOKEN_SECONDS, "path": "token"}},
        {"configMap": {
            "name": "kube-root-ca.crt",
            "items": [{"key": "ca.crt", "path": "ca.crt"}],
        }},
        {"downwardAPI": {"items": [{
            "path": "namespace",
            "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"},
        }]}},
    ]}})
}
