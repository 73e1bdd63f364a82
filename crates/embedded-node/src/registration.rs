//! Registers the Node object and renews its lease.

use std::{collections::BTreeMap, fs, sync::Arc, time::Duration};

use error_chain::error_chain;
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Namespace, Node},
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::{Api, api::PatchParams};
use reasons::Reason;
use reconcile::{Key, WriteError};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    NodeError,
    devices::{Amounts, Devices},
    node::{NodeSettings, Shared},
    repeated::Failures,
};

pub(crate) const MANAGER: &str = "embedded-node";
const LEASES: &str = "kube-node-lease";
const LEASE_SECONDS: i32 = 40;
const RENEW_EVERY: Duration = Duration::from_secs(10);
/// Delay after a failed write of the devices.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// The default of kubelets.
const MAX_PODS: u32 = 110;

/// Creates or updates the Node and its lease.
pub(crate) async fn register(shared: &Shared, port: u16) -> Result<(), NodeError> {
    let settings = &shared.settings;
    let failed = |source| NodeError::Register {
        name: settings.node_name.clone(),
        source,
    };
    let api = Api::<Node>::all(settings.client.clone());
    let key = Key::new("", settings.node_name.as_str());
    let object = json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": settings.node_name, "labels": labels(settings)},
    });
    match reconcile::create(&api, MANAGER, &key, &object).await {
        Ok(_) => {}
        Err(WriteError::AlreadyExists { .. } | WriteError::Conflict { .. }) => {
            let body = json!({"metadata": {"labels": labels(settings)}});
            reconcile::merge(&api, MANAGER, &key, &body)
                .await
                .map_err(failed)?;
        }
        Err(error) => return Err(failed(error)),
    }
    write_status(shared, port).await.map_err(failed)?;
    write_devices(settings, &shared.devices)
        .await
        .map_err(failed)?;
    write_lease(settings).await.map_err(failed)
}

/// Renews the lease, and updates the status when devices change.
pub(crate) async fn renew(shared: Arc<Shared>, port: u16, stop: CancellationToken) {
    let mut ticks = tokio::time::interval(RENEW_EVERY);
    ticks.tick().await;
    let mut changed = shared.devices.changed();
    // Plugins may have registered while the node was being registered.
    changed.mark_changed();
    let mut published = BTreeMap::new();
    let mut failures = Failures::default();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            // The sender lives as long as this task.
            Ok(()) = changed.changed() => {
                publish_devices(&shared, &mut published, &mut changed).await;
                continue;
            }
            _ = ticks.tick() => {}
        }
        match write_lease(&shared.settings).await {
            Ok(()) => failures.succeeded(),
            Err(error) => {
                let error = error_chain(&error);
                if failures.failed() {
                    tracing::warn!(error, "node lease still cannot be renewed");
                } else {
                    tracing::debug!(error, "node lease cannot be renewed");
                }
            }
        }
        let key = Key::new("", shared.settings.node_name.as_str());
        let known = shared.node.get(&key);
        // A user deleted the Node; without it no pod is bound.
        if known.is_none()
            && let Err(error) = register(&shared, port).await
        {
            let error = error_chain(&error);
            tracing::warn!(error, "deleted node cannot be registered again");
        }
    }
}

async fn write_status(shared: &Shared, port: u16) -> Result<(), WriteError> {
    let settings = &shared.settings;
    let api = Api::<Node>::all(settings.client.clone());
    let key = Key::new("", settings.node_name.as_str());
    let now = settings.clock.now();
    let status = json!({
        "capacity": resources(shared.cpus.capacity()),
        "allocatable": resources(shared.cpus.allocatable()),
        "addresses": [
            {"type": "InternalIP", "address": settings.address},
            {"type": "Hostname", "address": settings.node_name},
        ],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        "nodeInfo": node_info(),
        "conditions": [{
            "type": "Ready",
            "status": "True",
            "reason": Reason::KubeletReady.as_str(),
            "message": "the node runs pods",
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        }, shared.disk.condition(now)],
    });
    let parameters = PatchParams {
        field_manager: Some(MANAGER.into()),
        ..PatchParams::default()
    };
    let patch = kube::api::Patch::Merge(json!({"status": status}));
    match api.patch_status(&key.name, &parameters, &patch).await {
        Ok(_) => Ok(()),
        Err(error) => Err(WriteError::Unavailable {
            what: key.to_string(),
            source: Box::new(error),
        }),
    }
}

/// Writes the amounts of devices if they changed. Wakes waiting pods in any case: more devices may
/// be free.
async fn publish_devices(
    shared: &Shared,
    published: &mut BTreeMap<String, Amounts>,
    changed: &mut watch::Receiver<()>,
) {
    let amounts = shared.devices.amounts();
    if *published != amounts {
        match write_devices(&shared.settings, &shared.devices).await {
            Ok(()) => *published = amounts,
            Err(error) => {
                let error = error_chain(&error);
                tracing::warn!(error, "node devices cannot be published");
                tokio::time::sleep(RETRY_AFTER).await;
                changed.mark_changed();
            }
        }
    }
    shared.node_changed.send_replace(());
}

/// Writes the amounts of devices, and removes resources that no plugin of this process registered.
async fn write_devices(settings: &NodeSettings, devices: &Devices) -> Result<(), WriteError> {
    let api = Api::<Node>::all(settings.client.clone());
    let key = Key::new("", settings.node_name.as_str());
    let unavailable = |error| WriteError::Unavailable {
        what: key.to_string(),
        source: Box::new(error),
    };
    let node = api.get(&key.name).await.map_err(unavailable)?;
    let Some(status) = device_status(&node, &devices.amounts()) else {
        return Ok(());
    };
    let parameters = PatchParams {
        field_manager: Some(MANAGER.into()),
        ..PatchParams::default()
    };
    let patch = kube::api::Patch::Merge(json!({"status": status}));
    let written = api.patch_status(&key.name, &parameters, &patch).await;
    written.map(drop).map_err(unavailable)
}

/// The status patch; `None` when the status is up to date.
fn device_status(node: &Node, amounts: &BTreeMap<String, Amounts>) -> Option<Value> {
    let status = node.status.clone().unwrap_or_default();
    let members = |shown: Option<BTreeMap<String, Quantity>>, amount: fn(&Amounts) -> usize| {
        let mut changes = serde_json::Map::new();
        let shown = shown.unwrap_or_default();
        for name in shown.keys().filter(|name| name.contains('/')) {
            if !amounts.contains_key(name) {
                changes.insert(name.clone(), Value::Null);
            }
        }
        for (name, amounts) in amounts {
            let amount = amount(amounts).to_string();
            if shown.get(name).is_none_or(|shown| shown.0 != amount) {
                changes.insert(name.clone(), amount.into());
            }
        }
        changes
    };
    let capacity = members(status.capacity, |amounts| amounts.capacity);
    let allocatable = members(status.allocatable, |amounts| amounts.allocatable);
    let same = capacity.is_empty() && allocatable.is_empty();
    (!same).then(|| json!({"capacity": capacity, "allocatable": allocatable}))
}

async fn write_lease(settings: &NodeSettings) -> Result<(), WriteError> {
    let api = Api::<Lease>::namespaced(settings.client.clone(), LEASES);
    let key = Key::new(LEASES, settings.node_name.as_str());
    let body = json!({"spec": {
        "holderIdentity": settings.node_name,
        "leaseDurationSeconds": LEASE_SECONDS,
        "renewTime": micro_time(settings),
    }});
    match reconcile::merge(&api, MANAGER, &key, &body).await {
        Err(WriteError::NotFound { .. }) => {}
        other => return other.map(drop),
    }
    let mut lease = body;
    lease["apiVersion"] = json!("coordination.k8s.io/v1");
    lease["kind"] = json!("Lease");
    lease["metadata"] = json!({"name": settings.node_name, "namespace": LEASES});
    match reconcile::create(&api, MANAGER, &key, &lease).await {
        Err(WriteError::NotFound { .. } | WriteError::Refused { .. }) => {}
        other => return other.map(drop),
    }
    let namespaces = Api::<Namespace>::all(settings.client.clone());
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": LEASES}});
    let made = reconcile::create(&namespaces, MANAGER, &Key::new("", LEASES), &namespace).await;
    if let Err(error) = made
        && !matches!(error, WriteError::AlreadyExists { .. })
    {
        return Err(error);
    }
    reconcile::create(&api, MANAGER, &key, &lease)
        .await
        .map(drop)
}

/// Leases have times with six fractional digits.
fn micro_time(settings: &NodeSettings) -> String {
    format!("{:.6}", settings.clock.now())
}

fn labels(settings: &NodeSettings) -> BTreeMap<String, String> {
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let mut labels = settings.labels.clone();
    for (name, value) in [
        ("kubernetes.io/hostname", settings.node_name.as_str()),
        ("kubernetes.io/arch", arch),
        ("kubernetes.io/os", "linux"),
    ] {
        labels.insert(name.to_owned(), value.to_owned());
    }
    labels
}

fn resources(cpus: usize) -> BTreeMap<String, String> {
    let memory = fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("MemTotal:"))?;
        line.trim()
            .strip_suffix(" kB")
            .map(|kilobytes| format!("{kilobytes}Ki"))
    });
    [
        ("cpu", cpus.to_string()),
        ("memory", memory.unwrap_or_else(|| "0".into())),
        ("pods", MAX_PODS.to_string()),
    ]
    .map(|(name, amount)| (name.to_owned(), amount))
    .into()
}

fn node_info() -> Value {
    let line = |path: &str| {
        fs::read_to_string(path)
            .unwrap_or_default()
            .trim()
            .to_owned()
    };
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let name = release
        .lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME="));
    let version = concat!("v", env!("CARGO_PKG_VERSION"), "-ferrovirt");
    json!({
        "architecture": std::env::consts::ARCH,
        "operatingSystem": "linux",
        "bootID": line("/proc/sys/kernel/random/boot_id"),
        "machineID": line("/etc/machine-id"),
        "systemUUID": line("/sys/class/dmi/id/product_uuid"),
        "kernelVersion": line("/proc/sys/kernel/osrelease"),
        "osImage": name.unwrap_or("Linux").trim_matches('"'),
        "containerRuntimeVersion": concat!("ferrovirt://", env!("CARGO_PKG_VERSION")),
        "kubeletVersion": version,
        "kubeProxyVersion": version,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_status_adds_updates_and_removes_resources() {
        let node: Node = serde_json::from_value(json!({"status": {
            "capacity": {"cpu": "2", "a.io/old": "1", "a.io/kept": "3"},
            "allocatable": {"cpu": "2", "a.io/old": "1", "a.io/kept": "1"},
        }}))
        .unwrap();
        let amounts = |capacity, allocatable| Amounts {
            capacity,
            allocatable,
        };
        let now = BTreeMap::from([
            ("a.io/kept".to_owned(), amounts(3, 0)),
            ("a.io/new".to_owned(), amounts(2, 2)),
        ]);
        assert_eq!(
            device_status(&node, &now),
            Some(json!({
                "capacity": {"a.io/old": null, "a.io/new": "2"},
                "allocatable": {"a.io/old": null, "a.io/kept": "0", "a.io/new": "2"},
            }))
        );
        let same = BTreeMap::from([
            ("a.io/old".to_owned(), amounts(1, 1)),
            ("a.io/kept".to_owned(), amounts(3, 1)),
        ]);
        assert_eq!(device_status(&node, &same), None);
    }
}
