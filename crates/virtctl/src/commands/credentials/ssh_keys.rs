//! `credentials add-ssh-key` and `credentials remove-ssh-key`.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use k8s_openapi::ByteString;
use serde_json::{Value, json};

use super::{
    access,
    cli::{AddSshKey, RemoveSshKey},
    secrets,
};
use crate::{
    connect::Cluster,
    objects::{self, text},
    printer::Printer,
    random,
};

pub(super) async fn add(cluster: &Cluster, printer: Printer, flags: &AddSshKey) -> Result<()> {
    let key = flags.key.read()?;
    let (place, vm_name) = (&flags.place, &flags.vm);
    let vm = objects::get(cluster, &objects::VM.named(&cluster.namespace, vm_name)).await?;
    if flags.create_secret {
        return create(cluster, printer, flags, &vm, &key).await;
    }
    let names = access::key_secrets(&vm, &place.user);
    let Some(name) = access::choose(&names, place.secret.as_deref())? else {
        if flags.update_secret {
            bail!(
                "VM {vm_name} has no Secret with keys of user {}: leave out --update-secret to make one",
                place.user
            );
        }
        return create(cluster, printer, flags, &vm, &key).await;
    };
    let secret = secrets::read(cluster, &vm, name, place.force).await?;
    if secret.data.values().any(|value| is_key(value, &key)) {
        let message = format!("Secret {name} already has this key");
        let unchanged = std::slice::from_ref(secret.object());
        return secrets::print(printer, place.changed, unchanged, &message);
    }
    let entry = (new_entry(), Some(ByteString(key.into_bytes())));
    let changed = secret.change(cluster, BTreeMap::from([entry])).await?;
    let message = format!("The key was added to Secret {name}");
    secrets::print(printer, place.changed, &[changed], &message)
}

/// Makes a Secret with the key, and an access credential that names it.
async fn create(
    cluster: &Cluster,
    printer: Printer,
    flags: &AddSshKey,
    vm: &Value,
    key: &str,
) -> Result<()> {
    let (place, vm_name, namespace) = (&flags.place, &flags.vm, &cluster.namespace);
    let vmi = objects::VMI.named(namespace, vm_name);
    if !place.force && objects::find(cluster, &vmi).await?.is_some() {
        bail!(
            "VM {vm_name} runs and uses a new Secret only after a restart: add --force, and restart it \
             then"
        );
    }
    let mut metadata = match &place.secret {
        Some(name) => json!({"name": name}),
        None => json!({"generateName": format!("{vm_name}-ssh-key-")}),
    };
    metadata["ownerReferences"] = json!([objects::owner(vm)?]);
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata,
        "data": {new_entry(): ByteString(key.as_bytes().to_vec())},
    });
    let secret = objects::create(cluster, &objects::SECRET.all(namespace), &secret).await?;
    let name = text(&secret, "/metadata/name").context("read the name of the new Secret")?;
    let steps = credential(vm, name, &place.user);
    objects::patch(cluster, &objects::VM.named(namespace, vm_name), &steps)
        .await
        .with_context(|| format!("name the new Secret {name} in the VM"))?;
    let message = format!("The key is in the new Secret {name}");
    secrets::print(
        printer,
        place.changed,
        std::slice::from_ref(&secret),
        &message,
    )
}

/// The steps that add an access credential to a VM.
fn credential(vm: &Value, secret: &str, user: &str) -> Value {
    let method = json!({"qemuGuestAgent": {"users": [user]}});
    let source = json!({"secret": {"secretName": secret}});
    let credential = json!({"sshPublicKey": {"source": source, "propagationMethod": method}});
    let list = "/spec/template/spec/accessCredentials";
    if vm.pointer(list).is_some_and(Value::is_array) {
        return json!([{"op": "add", "path": format!("{list}/-"), "value": credential}]);
    }
    // Another client may make the list meanwhile; it must not be lost.
    let version = &vm["metadata"]["resourceVersion"];
    json!([
        {"op": "test", "path": "/metadata/resourceVersion", "value": version},
        {"op": "add", "path": list, "value": [credential]},
    ])
}

pub(super) async fn remove(
    cluster: &Cluster,
    printer: Printer,
    flags: &RemoveSshKey,
) -> Result<()> {
    let key = flags.key.read()?;
    let place = &flags.place;
    let vm = objects::get(cluster, &objects::VM.named(&cluster.namespace, &flags.vm)).await?;
    let names = access::key_secrets(&vm, &place.user);
    let searched = match access::choose(&names, place.secret.as_deref()) {
        // Without --secret, the key is removed wherever it is.
        Err(_) if place.secret.is_none() => names.iter().map(String::as_str).collect(),
        chosen => chosen?.into_iter().collect::<Vec<_>>(),
    };
    let (mut changed, mut messages) = (vec![], vec![]);
    for name in &searched {
        let secret = secrets::read(cluster, &vm, name, place.force).await?;
        let entries = secret.data.iter().filter(|(_, value)| is_key(value, &key));
        let entries: BTreeMap<_, _> = entries.map(|(entry, _)| (entry.clone(), None)).collect();
        if !entries.is_empty() {
            changed.push(secret.change(cluster, entries).await?);
            messages.push(format!("The key was removed from Secret {name}"));
        }
    }
    if changed.is_empty() {
        let searched = if searched.is_empty() {
            "none".to_owned()
        } else {
            searched.join(", ")
        };
        bail!(
            "no Secret of user {} has this key; searched: {searched}",
            place.user
        );
    }
    secrets::print(printer, place.changed, &changed, &messages.join("\n"))
}

fn is_key(value: &ByteString, key: &str) -> bool {
    std::str::from_utf8(&value.0).is_ok_and(|text| text.trim() == key)
}

fn new_entry() -> String {
    format!("ssh-key-{}", random::suffix())
}
