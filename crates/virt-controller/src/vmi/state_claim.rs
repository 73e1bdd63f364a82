//! The claim on which a guest keeps the variables of its firmware and the contents of its TPM, from
//! run to run.
//!
//! It belongs to the VM, so that it outlives the VMI; that of a VMI without a VM ends with it.

use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimSpec, VolumeResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::ResourceExt as _;
use kubevirt_api::{
    VirtualMachine, VirtualMachineInstance, labels, storage_profile::ClaimPropertySet,
};
use model::Guest as Parsed;
use reconcile::Key;

use crate::view::Guest;

/// Variables and contents of a TPM take less than 1 MiB; some storage makes nothing smaller than this.
const SIZE: &str = "10Mi";
const FILESYSTEM: &str = "Filesystem";
const ALL_NODES: &str = "ReadWriteMany";

/// Whether the guest has its claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StateClaim {
    NotNeeded,
    Missing,
    Exists,
}

/// The claim that the guest needs, if it keeps anything.
pub(super) fn key(vmi: &Guest) -> Option<Key> {
    let claim = name_for(vmi.whole()?)?;
    Some(Key::new(Key::of(vmi).namespace, claim))
}

/// The name of the claim that this guest needs, if it keeps anything.
pub(crate) fn name_for(vmi: &VirtualMachineInstance) -> Option<String> {
    let kept = Parsed::of(vmi).kept_state();
    (!kept.is_empty()).then(|| name(&vmi.name_any()))
}

/// Who may write to the claim: with storage that offers it, all nodes, so that the guest can move to another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    OneNode,
    AllNodes,
}

impl Access {
    /// The best that a storage class offers, by its profile.
    pub(super) fn offered(sets: &[ClaimPropertySet]) -> Self {
        let offers = sets.iter().any(|set| {
            set.volume_mode == FILESYSTEM && set.access_modes.iter().any(|mode| mode == ALL_NODES)
        });
        if offers {
            Self::AllNodes
        } else {
            Self::OneNode
        }
    }

    fn mode(self) -> &'static str {
        match self {
            Self::OneNode => "ReadWriteOnce",
            Self::AllNodes => ALL_NODES,
        }
    }
}

fn name(guest: &str) -> String {
    let suffix = launcher_pod::label_value(guest);
    format!("{}-{suffix}", labels::PERSISTENT_STATE_FOR)
}

pub(super) fn render(
    vmi: &Guest,
    storage_class: Option<&str>,
    access: Access,
) -> PersistentVolumeClaim {
    let guest = vmi.name_any();
    let label = (
        labels::PERSISTENT_STATE_FOR.to_owned(),
        launcher_pod::label_value(&guest),
    );
    let requests = [("storage".to_owned(), Quantity(SIZE.to_owned()))];
    let class = storage_class.filter(|class| !class.is_empty());
    PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: Some(name(&guest)),
            namespace: vmi.namespace(),
            labels: Some([label].into()),
            owner_references: Some(vec![owner(vmi)]),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: Some(vec![access.mode().to_owned()]),
            volume_mode: Some(FILESYSTEM.to_owned()),
            storage_class_name: class.map(str::to_owned),
            resources: Some(VolumeResourceRequirements {
                requests: Some(requests.into()),
                limits: None,
            }),
            ..PersistentVolumeClaimSpec::default()
        }),
        status: None,
    }
}

/// The VM, or the VMI if no VM controls it.
fn owner(vmi: &Guest) -> OwnerReference {
    let mut owners = vmi.owner_references().iter();
    let vm = owners
        .find(|owner| owner.controller == Some(true) && owner.kind == VirtualMachine::KIND)
        .cloned();
    vm.unwrap_or_else(|| OwnerReference {
        api_version: kubevirt_api::API_VERSION.to_owned(),
        kind: VirtualMachineInstance::KIND.to_owned(),
        name: vmi.name_any(),
        uid: vmi.uid().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn guest(owners: &Value, domain: &Value) -> Guest {
        serde_json::from_value(json!({
            "metadata": {"name": "a", "namespace": "n", "uid": "vmi-uid", "ownerReferences": owners},
            "spec": {"domain": domain},
        }))
        .unwrap()
    }

    #[test]
    fn only_guests_that_keep_something_have_a_claim() {
        let persistent = json!({"devices": {"tpm": {"persistent": true}}});
        let found = key(&guest(&json!([]), &persistent)).map(|key| key.to_string());
        assert_eq!(found.as_deref(), Some("n/persistent-state-for-a"));
        assert_eq!(
            key(&guest(&json!([]), &json!({"devices": {"tpm": {}}}))),
            None
        );
    }

    #[test]
    fn claim_belongs_to_the_vm_or_else_to_the_vmi() {
        let vm = json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "a",
                        "uid": "vm-uid", "controller": true});
        for (owners, class, uid) in [
            (json!([vm]), Some("fast"), "vm-uid"),
            (json!([]), None, "vmi-uid"),
        ] {
            let claim = render(&guest(&owners, &json!({})), class, Access::AllNodes);
            assert_eq!(claim.owner_references()[0].uid, uid);
            assert_eq!(claim.labels()["persistent-state-for"], "a");
            let spec = claim.spec.unwrap();
            assert_eq!(spec.storage_class_name.as_deref(), class);
            assert_eq!(spec.access_modes, Some(vec!["ReadWriteMany".to_owned()]));
        }
    }

    #[test]
    fn all_nodes_may_write_if_the_storage_offers_that() {
        let check = |sets: Value, expected: Access| {
            let parsed: Vec<ClaimPropertySet> = serde_json::from_value(sets.clone()).unwrap();
            assert_eq!(Access::offered(&parsed), expected, "{sets}");
        };
        check(json!([]), Access::OneNode);
        let set = |mode: &str, volume: &str| json!({"accessModes": [mode], "volumeMode": volume});
        let shared = set("ReadWriteMany", "Filesystem");
        check(json!([set("ReadWriteMany", "Block")]), Access::OneNode);
        check(json!([set("ReadWriteOnce", "Filesystem")]), Access::OneNode);
        check(
            json!([set("ReadWriteOnce", "Filesystem"), shared]),
            Access::AllNodes,
        );
    }
}
