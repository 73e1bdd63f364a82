//! Group `pool.kubevirt.io`: v1beta1 is stored, v1alpha1 served beside it with the same schema.

use crate::{
    crds::{
        definition::{Column, Definition, Object, REPLICAS, Scope, StatusIs, Version},
        structural,
    },
    pool::{VirtualMachinePool, VirtualMachinePoolSpec, VirtualMachinePoolStatus},
};

const GROUP: &str = "pool.kubevirt.io";
const LABEL: Option<&str> = Some("kubevirt.io");

pub(super) fn rows() -> Vec<Definition> {
    vec![pools()]
}

fn pools() -> Definition {
    let schema = Object::new(
        "Keeps a number of VMs that are made from one template, each with a name and disks of \
         its own.",
    )
    .required("spec", structural::of_spec::<VirtualMachinePoolSpec>())
    .optional(
        "status",
        structural::of_status::<VirtualMachinePoolStatus>(),
    )
    .schema();
    Definition {
        group: GROUP,
        kind: VirtualMachinePool::KIND,
        plural: VirtualMachinePool::PLURAL,
        singular: "virtualmachinepool",
        short_names: &["vmpool", "vmpools"],
        categories: &["all"],
        scope: Scope::Namespaced,
        label: LABEL,
        versions: vec![
            Version::served("v1alpha1", &schema),
            Version::stored("v1beta1", &schema),
        ],
        status: StatusIs::Subresource,
        scale: Some(REPLICAS),
        columns: vec![
            Column::number("Desired", ".spec.replicas"),
            Column::number("Current", ".status.replicas"),
            Column::number("Ready", ".status.readyReplicas"),
            Column::age(),
        ],
    }
}
