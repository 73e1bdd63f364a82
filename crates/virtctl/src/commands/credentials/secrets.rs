//! Reading and changing a Secret of a VM.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use k8s_openapi::ByteString;
use serde_json::{Value, json};

use crate::{
    cli::{Changed, ObjectOutput},
    connect::Cluster,
    objects::{self, text},
    printer::Printer,
};

/// A Secret that may be changed.
pub(super) struct Secret {
    path: String,
    object: Value,
    pub(super) data: BTreeMap<String, ByteString>,
}

/// Reads a Secret of a VM; one that does not belong to the VM may be changed only by force.
pub(super) async fn read(cluster: &Cluster, vm: &Value, name: &str, force: bool) -> Result<Secret> {
    let path = objects::SECRET.named(&cluster.namespace, name);
    let secret = objects::get(cluster, &path).await?;
    if !force && !is_owned(&secret, vm) {
        bail!(
            "Secret {name} does not belong to the VM, so others may use it: add --force to change it"
        );
    }
    let data = match &secret["data"] {
        Value::Null => BTreeMap::new(),
        data => serde_json::from_value(data.clone()).context("parse the Secret")?,
    };
    Ok(Secret {
        path,
        object: secret,
        data,
    })
}

fn is_owned(secret: &Value, vm: &Value) -> bool {
    let owners = secret.pointer("/metadata/ownerReferences");
    let mut owners = owners.and_then(Value::as_array).into_iter().flatten();
    let uid = text(vm, "/metadata/uid");
    uid.is_some() && owners.any(|owner| text(owner, "/uid") == uid)
}

impl Secret {
    /// The Secret as it was read.
    pub(super) fn object(&self) -> &Value {
        &self.object
    }

    /// Sets and removes entries; fails if another client changed the Secret since it was read. Returns the Secret.
    pub(super) async fn change(
        &self,
        cluster: &Cluster,
        entries: BTreeMap<String, Option<ByteString>>,
    ) -> Result<Value> {
        let mut patch = json!({"data": entries});
        if let Some(version) = self.object.pointer("/metadata/resourceVersion") {
            patch["metadata"] = json!({"resourceVersion": version});
        }
        objects::merge(cluster, &self.path, &patch).await
    }
}

/// Prints Secrets that were changed, without the keys and passwords in them; the message, unless a format is given.
pub(super) fn print(
    printer: Printer,
    changed: Changed,
    secrets: &[Value],
    message: &str,
) -> Result<()> {
    let Some(output) = changed.output else {
        printer.line(message);
        return Ok(());
    };
    let shown: Vec<_> = secrets.iter().map(without_data).collect();
    if output == ObjectOutput::Name || shown.len() == 1 {
        return shown.iter().try_for_each(|one| printer.object(output, one));
    }
    let list = json!({"apiVersion": "v1", "kind": "List", "items": shown});
    printer.object(output, &list)
}

fn without_data(secret: &Value) -> Value {
    let mut shown = json!({"apiVersion": "v1", "kind": "Secret"});
    for field in ["metadata", "type"] {
        if let Some(value) = secret.get(field) {
            shown[field] = value.clone();
        }
    }
    // An annotation of kubectl has the data, too.
    if let Some(Value::Object(metadata)) = shown.get_mut("metadata") {
        metadata.remove("managedFields");
        if let Some(Value::Object(annotations)) = metadata.get_mut("annotations") {
            annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown_secret_has_no_data() {
        let applied = "kubectl.kubernetes.io/last-applied-configuration";
        let secret = json!({
            "metadata": {"name": "keys", "annotations": {applied: "{}", "a": "b"}, "managedFields": []},
            "type": "Opaque",
            "data": {"key": "a2V5"},
            "stringData": {"key": "key"},
        });
        let expected = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "keys", "annotations": {"a": "b"}},
            "type": "Opaque",
        });
        assert_eq!(without_data(&secret), expected);
    }
}
