//! Keeps the disks of a VM that leaves its pool: takes the VM from the owners of its claims and data volumes, so
//! that the garbage collector spares them. The next VM of that number gets them.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;

use k8s_openapi::NamespaceResourceScope;
use kube::{Api, Resource, ResourceExt as _};
use reconcile::{Key, Store, merge};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{Controller, PoolError};
use crate::MANAGER;
use crate::vm::Vm;

impl Controller {
    /// The claims and data volumes that the VM names and controls.
    pub(super) async fn keep_disks(&self, vm: &Vm) -> Result<(), PoolError> {
        let names = names(vm);
        self.disown(&self.claims, vm, &names).await?;
        self.disown(&self.data_volumes, vm, &names).await
    }

    async fn disown<K>(
        &self,
        store: &Store<K>,
        vm: &Vm,
        names: &BTreeSet<String>,
    ) -> Result<(), PoolError>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + DeserializeOwned
            + Debug,
    {
        let uid = vm.metadata.uid.as_deref().unwrap_or_default();
        let is_own = |disk: &Arc<K>| {
            names.contains(&disk.name_any()) && disk.namespace() == vm.metadata.namespace
        };
        let owned = store.controlled_by(uid).into_iter();
        for disk in owned.filter(is_own) {
            let key = Key::of(disk.as_ref());
            let owners = disk.owner_references().iter();
            let left: Vec<Value> = owners
                .filter(|owner| owner.uid != uid)
                .map(|owner| json!(owner))
                .collect();
            let body = json!({"metadata": {
                "resourceVersion": disk.resource_version(),
                "ownerReferences": left,
            }});
            let api = Api::<K>::namespaced(self.client.clone(), &key.namespace);
            let written = merge(&api, MANAGER, &key, &body).await;
            store.wrote(&disk, written.map_err(PoolError::KeepDisk)?);
            failpoints::after("virt-controller/pool/keep-disk");
        }
        Ok(())
    }
}

/// Names of the claims and data volumes that the VM's spec refers to. A data volume has a claim of its name.
pub(super) fn names(vm: &Vm) -> BTreeSet<String> {
    let templates = vm.data_volume_templates().map(|(name, _)| name);
    let volumes = vm.volumes().iter().flat_map(|volume| {
        let name = |path: &str| volume.pointer(path).and_then(Value::as_str);
        [
            name("/dataVolume/name"),
            name("/persistentVolumeClaim/claimName"),
        ]
    });
    let all = templates.chain(volumes.flatten());
    all.map(ToOwned::to_owned).collect()
}
