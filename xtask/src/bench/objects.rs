//! What the benches of guests, migration and storage create, wait for and delete.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use futures::TryStreamExt as _;
use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
    core::{ApiResource, GroupVersionKind},
    runtime::watcher,
};
use serde_json::{Value, json};

use super::{qemu::Qemu, shell::Shell};

/// A large copy on a slow disk stays below it.
const PATIENCE: Duration = Duration::from_mins(15);
const NAMESPACE: &str = "kubevirt";
pub(super) const GUEST_IMAGE: &str = "ferrovirt/guest-tiny:devel";
pub(super) const LOAD_IMAGE: &str = "ferrovirt/bench-load:devel";
pub(super) const VM: (&str, &str) = ("kubevirt.io/v1", "VirtualMachine");
pub(super) const VMI: (&str, &str) = ("kubevirt.io/v1", "VirtualMachineInstance");
pub(super) const CLAIM: (&str, &str) = ("v1", "PersistentVolumeClaim");

/// A client, and the kinds of objects by name.
#[derive(Clone)]
pub(super) struct Objects(pub(super) Client);

impl Objects {
    pub(super) fn api(&self, (version, kind): (&str, &str)) -> Api<DynamicObject> {
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        Api::default_namespaced_with(self.0.clone(), &resource)
    }

    /// Creates it; answers with the time at which that was sent.
    pub(super) async fn create(&self, manifest: &Value) -> Result<Instant> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (version, kind) = (text(&manifest["apiVersion"]), text(&manifest["kind"]));
        let object = serde_json::from_value(manifest.clone()).context("write a manifest")?;
        let sent = Instant::now();
        self.api((&version, &kind))
            .create(&PostParams::default(), &object)
            .await
            .with_context(|| format!("create {kind} {}", manifest["metadata"]["name"]))?;
        Ok(sent)
    }

    /// Waits until the object is as wanted; answers with it and when that was seen.
    pub(super) async fn wait(
        &self,
        kind: (&str, &str),
        name: &str,
        is_reached: impl Fn(&Value) -> bool,
    ) -> Result<(Value, Instant)> {
        let mut last = Value::Null;
        let waiting = async {
            let objects = watcher::watch_object(self.api(kind), name);
            let mut objects = std::pin::pin!(objects);
            while let Some(object) = objects.try_next().await? {
                let Some(object) = object else {
                    continue;
                };
                let seen = Instant::now();
                last = serde_json::to_value(object)?;
                if is_reached(&last) {
                    return Ok(Some(seen));
                }
            }
            anyhow::Ok(None)
        };
        let waited = tokio::time::timeout(PATIENCE, waiting).await;
        let what = || {
            format!(
                "{} {name}, last seen with status {}",
                kind.1, last["status"]
            )
        };
        let seen = waited.map_err(|_elapsed| anyhow!("waited {PATIENCE:?} for {}", what()))?;
        let seen = seen.with_context(what)?;
        let seen = seen.with_context(|| format!("the watch ended: {}", what()))?;
        Ok((last, seen))
    }

    /// Deletes it, and waits until it is gone.
    pub(super) async fn delete(&self, kind: (&str, &str), name: &str) -> Result<()> {
        let api = self.api(kind);
        let given = DeleteParams::background().grace_period(0);
        api.delete(name, &given)
            .await
            .with_context(|| format!("delete {} {name}", kind.1))?;
        let objects = watcher::watch_object(api, name);
        let mut objects = std::pin::pin!(objects);
        let gone = async {
            while let Some(object) = objects.try_next().await? {
                if object.is_none() {
                    return Ok(());
                }
            }
            Err(anyhow!("the watch of {name} ended"))
        };
        tokio::time::timeout(PATIENCE, gone)
            .await
            .map_err(|_elapsed| anyhow!("{} {name} is not gone after {PATIENCE:?}", kind.1))?
    }

    /// Switches feature gates on, beside those that are on.
    pub(super) async fn switch_on(&self, gates: &[&str]) -> Result<()> {
        let gvk = GroupVersionKind::gvk("kubevirt.io", "v1", "KubeVirt");
        let resource = ApiResource::from_gvk(&gvk);
        let api: Api<DynamicObject> = Api::namespaced_with(self.0.clone(), NAMESPACE, &resource);
        let now = api
            .get("kubevirt")
            .await
            .context("read the configuration")?;
        let at = "/spec/configuration/developerConfiguration/featureGates";
        let on = now.data.pointer(at).and_then(Value::as_array).cloned();
        let mut on = on.unwrap_or_default();
        on.extend(gates.iter().map(|gate| json!(gate)));
        let patch =
            json!({"spec": {"configuration": {"developerConfiguration": {"featureGates": on}}}});
        api.patch("kubevirt", &PatchParams::default(), &Patch::Merge(patch))
            .await
            .context("switch feature gates")?;
        Ok(())
    }

    /// Starts a VM of a tiny guest with the load's disk, waits until its shell has the load.
    pub(super) async fn start(&self, vm: &Guest<'_>) -> Result<Running> {
        self.create(&vm.manifest()).await?;
        let (vmi, _) = self
            .wait(VMI, vm.name, |vmi| vmi["status"]["phase"] == "Running")
            .await?;
        let uid = vmi["metadata"]["uid"].as_str().context("a VMI has a UID")?;
        let qemu = Qemu::of(vm.name)?;
        let mut shell = Shell::of(&qemu.console(uid)).await?;
        shell.install("/dev/vdb").await?;
        Ok(Running {
            uid: uid.to_owned(),
            qemu,
            shell,
        })
    }
}

/// A guest that runs the load: its disks are the root, the load, and then these volumes from `/dev/vdc` on.
#[derive(Debug)]
pub(super) struct Guest<'g> {
    pub(super) name: &'g str,
    pub(super) mib: u64,
    /// Names, and sources of volumes.
    pub(super) volumes: Vec<(&'g str, Value)>,
    /// `masquerade`, `bridge` or `passtBinding`.
    pub(super) binding: &'g str,
}

pub(super) struct Running {
    pub(super) uid: String,
    pub(super) qemu: Qemu,
    pub(super) shell: Shell,
}

impl Guest<'_> {
    fn manifest(&self) -> Value {
        let image = |image: &str| json!({"containerDisk": {"image": image, "imagePullPolicy": "IfNotPresent"}});
        let mut all = vec![("root", image(GUEST_IMAGE)), ("load", image(LOAD_IMAGE))];
        all.extend(self.volumes.iter().cloned());
        let disks: Vec<Value> = all
            .iter()
            .map(|(name, _)| json!({"name": name, "disk": {"bus": "virtio"}}))
            .collect();
        let volumes = all.into_iter().map(|(name, mut source)| {
            source["name"] = name.into();
            source
        });
        json!({
            "apiVersion": VM.0, "kind": VM.1,
            "metadata": {"name": self.name, "labels": {"bench": self.name}},
            "spec": {
                "runStrategy": "Always",
                "template": {
                    "metadata": {"labels": {"bench": self.name}},
                    "spec": {
                        "terminationGracePeriodSeconds": 0,
                        "domain": {
                            "memory": {"guest": format!("{}Mi", self.mib)},
                            "devices": {
                                "disks": disks,
                                "interfaces": [{"name": "default", self.binding: {}}],
                                "rng": {},
                            },
                        },
                        "networks": [{"name": "default", "pod": {}}],
                        "volumes": volumes.collect::<Vec<_>>(),
                    },
                },
            },
        })
    }
}

/// A claim in the default storage class.
pub(super) fn claim(name: &str, mode: &str, mib: u64) -> Value {
    json!({
        "apiVersion": CLAIM.0, "kind": CLAIM.1,
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "volumeMode": mode,
            "resources": {"requests": {"storage": format!("{mib}Mi")}},
        },
    })
}

pub(super) fn on_claim(claim: &str) -> Value {
    json!({"persistentVolumeClaim": {"claimName": claim}})
}

/// Whether a condition of an object has status True.
pub(super) fn has_condition(object: &Value, kind: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    let mut all = conditions.into_iter().flatten();
    all.any(|one| one["type"] == kind && one["status"] == "True")
}
