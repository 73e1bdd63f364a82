//! Group `kubevirt.io`: v1, and v1alpha3 as older texts have it. Both have the same schema.

use serde_json::Value;

use crate::{
    GROUP, VirtualMachine, VirtualMachineInstance,
    crds::{
        definition::{Column, Definition, Object, Scope, StatusIs, Version},
        structural,
    },
    vm::VirtualMachineSpec,
    vm_status::VirtualMachineStatus,
    vmi::VirtualMachineInstanceSpec,
    vmi_status::VirtualMachineInstanceStatus,
};

const LABEL: Option<&str> = Some("kubevirt.io");

pub(super) fn rows() -> Vec<Definition> {
    vec![instances(), machines()]
}

fn instances() -> Definition {
    let schema = Object::new(
        "One run of a guest. Its spec is fixed; when the guest has ended, the object only tells \
         how. Usually made by a VirtualMachine.",
    )
    .required("spec", structural::of_spec::<VirtualMachineInstanceSpec>())
    .optional(
        "status",
        structural::of_status::<VirtualMachineInstanceStatus>(),
    )
    .schema();
    Definition {
        group: GROUP,
        kind: VirtualMachineInstance::KIND,
        plural: VirtualMachineInstance::PLURAL,
        singular: "virtualmachineinstance",
        short_names: &["vmi", "vmis"],
        categories: &["all"],
        scope: Scope::Namespaced,
        label: LABEL,
        versions: versions(&schema),
        status: StatusIs::PartOfObject,
        scale: None,
        columns: vec![
            Column::age(),
            Column::text("Phase", ".status.phase"),
            Column::text("IP", ".status.interfaces[0].ipAddress"),
            Column::text("NodeName", ".status.nodeName"),
            Column::condition("Ready", "Ready"),
            Column::condition("Live-Migratable", "LiveMigratable").wide(),
            Column::condition("Paused", "Paused").wide(),
        ],
    }
}

fn machines() -> Definition {
    let schema = Object::new(
        "A VM that exists whether its guest runs or not. It makes a VirtualMachineInstance \
         whenever the guest should run.",
    )
    .required("spec", structural::of_spec::<VirtualMachineSpec>())
    .optional("status", structural::of_status::<VirtualMachineStatus>())
    .schema();
    Definition {
        group: GROUP,
        kind: VirtualMachine::KIND,
        plural: VirtualMachine::PLURAL,
        singular: "virtualmachine",
        short_names: &["vm", "vms"],
        categories: &["all"],
        scope: Scope::Namespaced,
        label: LABEL,
        versions: versions(&schema),
        status: StatusIs::Subresource,
        scale: None,
        columns: vec![
            Column::age(),
            Column::text("Status", ".status.printableStatus"),
            Column::condition("Ready", "Ready"),
        ],
    }
}

/// v1, and v1alpha3 with a warning.
fn versions(schema: &Value) -> Vec<Version> {
    vec![
        Version::stored("v1", schema),
        Version::served("v1alpha3", schema)
            .deprecated("use kubevirt.io/v1, which has the same fields"),
    ]
}
