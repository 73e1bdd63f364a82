//! What the server fills into new objects from other ones: the class of a claim, the account of a
//! pod.
//!
//! Invariant: what the client wrote stays.

use apimachinery::{Status, meta};
use serde_json::{Value, json};

use crate::{
    api::Api,
    error::ApiError,
    store::{Collection, Scope},
    verbs::{Call, prepare},
};

const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
const OLD_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
const DEFAULT_ACCOUNT: &str = "default";
/// Begin of the name of the volume with the token of the pod's account.
const TOKEN_VOLUME: &str = "kube-api-access-";
const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// An hour, and a little by which such tokens are told from those that somebody asked for.
const TOKEN_SECONDS: i64 = 3607;
/// Marks pods that a node itself brings.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// Completes an object that is about to be made.
pub(crate) async fn complete(api: &Api, call: &Call, object: &mut Value) -> Result<(), ApiError> {
    if call.kind.is("", "persistentvolumeclaims") {
        class(api, object).await?;
    } else if call.kind.is("", "pods") {
        account(api, call, object).await?;
    }
    Ok(())
}

/// A claim that names no class gets the newest of those that are for such.
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

/// A pod has an account: the one it names, which must be there, or that of its namespace.
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
        // That of a namespace is made a moment after it, and waited for by no client.
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

/// The account stands in a pod twice, as it once had another name.
fn name_account(spec: &mut Value, name: &str) {
    spec["serviceAccountName"] = json!(name);
    spec["serviceAccount"] = json!(name);
}

/// Gives every container the token of the pod's account, with which it can ask this server, unless
/// the pod or its account will not have it. A container that mounts something there keeps that.
fn mount_token(api: &Api, spec: &mut Value, account: &Value) {
    const FIELD: &str = "automountServiceAccountToken";
    let wish = spec[FIELD].as_bool().or_else(|| account[FIELD].as_bool());
    // Without an authority of its own this server knows no tokens.
    if wish == Some(false) || api.root_ca.is_none() {
        return;
    }
    let volumes = spec["volumes"].as_array().into_iter().flatten();
    let mut names = volumes.filter_map(|volume| volume["name"].as_str());
    let there = names.find(|name| name.starts_with(TOKEN_VOLUME));
    let name = there.map_or_else(|| prepare::generate(TOKEN_VOLUME), str::to_owned);
    let is_new = there.is_none();
    let mut is_used = false;
    for list in ["initContainers", "containers"] {
        let containers = spec[list].as_array_mut();
        for container in containers.into_iter().flatten() {
            is_used |= mount(container, &name);
        }
    }
    if is_used && is_new {
        push(spec, "volumes", token_volume(&name));
    }
}

/// Answers whether the volume was mounted.
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
    match object[list].as_array_mut() {
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
