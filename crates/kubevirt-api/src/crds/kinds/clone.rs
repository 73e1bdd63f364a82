//! Group `clone.kubevirt.io`: v1beta1 is stored, v1alpha1 served beside it with the same schema.

use crate::{
    clone::{VirtualMachineClone, VirtualMachineCloneSpec, VirtualMachineCloneStatus},
    crds::{
        definition::{Column, Definition, Object, Scope, StatusIs, Version},
        structural,
    },
};

const GROUP: &str = "clone.kubevirt.io";
const LABEL: Option<&str> = Some("kubevirt.io");

pub(super) fn rows() -> Vec<Definition> {
    vec![clones()]
}

fn clones() -> Definition {
    let schema = Object::new("Makes a new VM from a VM or a snapshot, with its own disks.")
        .required("spec", structural::of_spec::<VirtualMachineCloneSpec>())
        .optional(
            "status",
            structural::of_status::<VirtualMachineCloneStatus>(),
        )
        .schema();
    Definition {
        group: GROUP,
        kind: VirtualMachineClone::KIND,
        plural: VirtualMachineClone::PLURAL,
        singular: "virtualmachineclone",
        short_names: &["vmclone", "vmclones"],
        categories: &["all"],
        scope: Scope::Namespaced,
        label: LABEL,
        versions: vec![
            Version::served("v1alpha1", &schema),
            Version::stored("v1beta1", &schema),
        ],
        status: StatusIs::Subresource,
        scale: None,
        columns: vec![
            Column::text("Phase", ".status.phase"),
            Column::text("SourceVirtualMachine", ".spec.source.name"),
            Column::text("TargetVirtualMachine", ".spec.target.name"),
        ],
    }
}
