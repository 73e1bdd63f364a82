//! Keeps the disks of a VM that leaves its pool: takes the VM from the owners of its claims and data volumes, so
//! that the garbage collector spares them. The next VM of that number gets them.

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
    /// All claims and data volumes that would be deleted with the VM, whether its spec names them or not: the claim
    /// with the contents of a TPM, a restored disk, or one that the guest was started with.
    pub(super) async fn keep_disks(&self, vm: &Vm) -> Result<(), PoolError> {
        self.disown(&self.claims, vm).await?;
        self.disown(&self.data_volumes, vm).await
    }

    async fn disown<K>(&self, store: &Store<K>, vm: &Vm) -> Result<(), PoolError>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + DeserializeOwned
            + Debug,
    {
        let uid = vm.metadata.uid.as_deref().unwrap_or_default();
        let is_own = |disk: &Arc<K>| disk.owner_references().iter().any(|owner| owner.uid == uid);
        let present = store.in_namespace(vm.metadata.namespace.as_deref().unwrap_or_default());
        for disk in present.into_iter().filter(is_own) {
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
