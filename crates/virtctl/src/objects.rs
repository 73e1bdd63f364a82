//! Objects of any kind, as JSON.

use anyhow::{Context, Result};
use http::{Method, Request, header};
use kube::Error;
use serde_json::{Value, json};

use crate::{
    connect::Cluster,
    subresource::{failed, is_unserved, plain},
};

/// The path of a kind of objects.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    /// Group and version in the path.
    group: &'static str,
    plural: &'static str,
}

const fn kind(group: &'static str, plural: &'static str) -> Kind {
    Kind { group, plural }
}

pub(crate) const VM: Kind = kind("apis/kubevirt.io/v1", "virtualmachines");
pub(crate) const VMI: Kind = kind("apis/kubevirt.io/v1", "virtualmachineinstances");
pub(crate) const REPLICA_SET: Kind =
    kind("apis/kubevirt.io/v1", "virtualmachineinstancereplicasets");
pub(crate) const MIGRATION: Kind = kind("apis/kubevirt.io/v1", "virtualmachineinstancemigrations");
pub(crate) const KUBEVIRT: Kind = kind("apis/kubevirt.io/v1", "kubevirts");
pub(crate) const DATA_VOLUME: Kind = kind("apis/cdi.kubevirt.io/v1beta1", "datavolumes");
pub(crate) const DATA_SOURCE: Kind = kind("apis/cdi.kubevirt.io/v1beta1", "datasources");
pub(crate) const EXPORT: Kind = kind("apis/export.kubevirt.io/v1", "virtualmachineexports");
pub(crate) const BACKUP: Kind = kind("apis/backup.kubevirt.io/v1alpha1", "virtualmachinebackups");
pub(crate) const BACKUP_TRACKER: Kind = kind(
    "apis/backup.kubevirt.io/v1alpha1",
    "virtualmachinebackuptrackers",
);
pub(crate) const BACKUP_RESTORE: Kind = kind(
    "apis/backup.ferrovirt.io/v1alpha1",
    "virtualmachinebackuprestores",
);
pub(crate) const VM_TEMPLATE: Kind = kind(
    "apis/template.kubevirt.io/v1beta1",
    "virtualmachinetemplates",
);
pub(crate) const VM_TEMPLATE_REQUEST: Kind = kind(
    "apis/template.kubevirt.io/v1beta1",
    "virtualmachinetemplaterequests",
);
pub(crate) const OPENSHIFT_TEMPLATE: Kind = kind("apis/template.openshift.io/v1", "templates");
pub(crate) const CLAIM: Kind = kind("api/v1", "persistentvolumeclaims");
pub(crate) const POD: Kind = kind("api/v1", "pods");
pub(crate) const SECRET: Kind = kind("api/v1", "secrets");
pub(crate) const SERVICE: Kind = kind("api/v1", "services");

impl Kind {
    /// All objects of a namespace.
    pub(crate) fn all(self, namespace: &str) -> String {
        format!("/{}/namespaces/{namespace}/{}", self.group, self.plural)
    }

    /// One object.
    pub(crate) fn named(self, namespace: &str, name: &str) -> String {
        format!("{}/{name}", self.all(namespace))
    }

    /// The objects of all namespaces.
    pub(crate) fn everywhere(self) -> String {
        format!("/{}/{}", self.group, self.plural)
    }
}

/// The object, or `None` if it does not exist. A server that lacks the kind is an error.
pub(crate) async fn find(cluster: &Cluster, path: &str) -> Result<Option<Value>> {
    match request(cluster, Method::GET, path, None).await {
        Ok(object) => Ok(Some(object)),
        Err(Error::Api(status)) if status.code == 404 && !is_unserved(&status) => Ok(None),
        Err(err) => Err(failed(path, err)),
    }
}

/// The object, or `None` if it or its kind does not exist.
pub(crate) async fn find_if_served(cluster: &Cluster, path: &str) -> Result<Option<Value>> {
    match request(cluster, Method::GET, path, None).await {
        Ok(object) => Ok(Some(object)),
        Err(Error::Api(status)) if status.code == 404 => Ok(None),
        Err(err) => Err(plain(err)),
    }
}

pub(crate) async fn get(cluster: &Cluster, path: &str) -> Result<Value> {
    request(cluster, Method::GET, path, None)
        .await
        .map_err(|err| failed(path, err))
}

/// The items of a list.
pub(crate) async fn list(cluster: &Cluster, path: &str) -> Result<Vec<Value>> {
    let list = get(cluster, path).await?;
    Ok(list["items"].as_array().cloned().unwrap_or_default())
}

/// The items of a list, or why the user may not have it.
pub(crate) async fn list_if_permitted(
    cluster: &Cluster,
    path: &str,
) -> Result<Result<Vec<Value>, String>> {
    match request(cluster, Method::GET, path, None).await {
        Ok(list) => Ok(Ok(list["items"].as_array().cloned().unwrap_or_default())),
        Err(Error::Api(status)) if status.code == 403 => Ok(Err(status.message)),
        Err(err) => Err(failed(path, err)),
    }
}

pub(crate) async fn create(cluster: &Cluster, path: &str, object: &Value) -> Result<Value> {
    let body = Some(("application/json", object));
    request(cluster, Method::POST, path, body)
        .await
        .map_err(|err| failed(path, err))
}

/// Sends an object to a path that the server may lack; `None` then.
pub(crate) async fn create_if_served(
    cluster: &Cluster,
    path: &str,
    object: &Value,
) -> Result<Option<Value>> {
    let body = Some(("application/json", object));
    match request(cluster, Method::POST, path, body).await {
        Ok(answer) => Ok(Some(answer)),
        Err(Error::Api(status)) if status.code == 404 => Ok(None),
        Err(err) => Err(plain(err)),
    }
}

/// Sends a merge patch.
pub(crate) async fn merge(cluster: &Cluster, path: &str, patch: &Value) -> Result<Value> {
    let body = Some(("application/merge-patch+json", patch));
    request(cluster, Method::PATCH, path, body)
        .await
        .map_err(|err| failed(path, err))
}

/// Sends a JSON patch.
pub(crate) async fn patch(cluster: &Cluster, path: &str, steps: &Value) -> Result<Value> {
    let body = Some(("application/json-patch+json", steps));
    request(cluster, Method::PATCH, path, body)
        .await
        .map_err(|err| failed(path, err))
}

/// Deletes, or only checks whether that is possible.
pub(crate) async fn delete(cluster: &Cluster, path: &str, dry_run: Vec<String>) -> Result<()> {
    let mut options = json!({"apiVersion": "v1", "kind": "DeleteOptions"});
    if !dry_run.is_empty() {
        options["dryRun"] = dry_run.into();
    }
    let body = Some(("application/json", &options));
    request(cluster, Method::DELETE, path, body)
        .await
        .map_err(|err| failed(path, err))?;
    Ok(())
}

/// Deletes; an object that does not exist is as good as deleted.
pub(crate) async fn remove(cluster: &Cluster, path: &str) -> Result<()> {
    match request(cluster, Method::DELETE, path, None).await {
        Ok(_) => Ok(()),
        Err(Error::Api(status)) if status.code == 404 => Ok(()),
        Err(err) => Err(plain(err)),
    }
}

/// Sends any method with a JSON body.
pub(crate) async fn send(
    cluster: &Cluster,
    method: Method,
    path: &str,
    body: &Value,
) -> Result<Value> {
    let body = Some(("application/json", body));
    request(cluster, method, path, body)
        .await
        .map_err(|err| failed(path, err))
}

async fn request(
    cluster: &Cluster,
    method: Method,
    path: &str,
    body: Option<(&str, &Value)>,
) -> Result<Value, Error> {
    let mut request = Request::builder().method(method).uri(path);
    let mut bytes = vec![];
    if let Some((media, value)) = body {
        request = request.header(header::CONTENT_TYPE, media);
        bytes = serde_json::to_vec(value).map_err(Error::SerdeError)?;
    }
    let request = request.body(bytes).map_err(Error::HttpError)?;
    cluster.client.request(request).await
}

/// A text field, by its JSON pointer.
pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> Option<&'a str> {
    object.pointer(pointer).and_then(Value::as_str)
}

/// The owner reference of an object.
pub(crate) fn owner(object: &Value) -> Result<Value> {
    let field =
        |pointer| text(object, pointer).context("read the owner: the server's object is malformed");
    Ok(json!({
        "apiVersion": field("/apiVersion")?,
        "kind": field("/kind")?,
        "name": field("/metadata/name")?,
        "uid": field("/metadata/uid")?,
        "controller": true,
        "blockOwnerDeletion": false,
    }))
}
