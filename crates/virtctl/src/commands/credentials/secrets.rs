//! Reading and changing a Secret of a VM.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use k8s_openapi::ByteString;
use serde_json::{Value, json};

use crate::{
    connect::Cluster,
    objects::{self, text},
};

/// A Secret that may be changed.
pub(super) struct Secret {
    path: String,
    resource_version: Value,
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
        resource_version: secret["metadata"]["resourceVersion"].clone(),
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
    /// Sets and removes entries; fails if another client changed the Secret since it was read.
    pub(super) async fn change(
        &self,
        cluster: &Cluster,
        entries: BTreeMap<String, Option<ByteString>>,
    ) -> Result<()> {
        let mut patch = json!({"data": entries});
        if !self.resource_version.is_null() {
            patch["metadata"] = json!({"resourceVersion": self.resource_version});
        }
        objects::merge(cluster, &self.path, &patch).await?;
        Ok(())
    }
}
