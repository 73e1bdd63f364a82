//! Group `kubevirt.io`: v1, and v1alpha3 for older manifests. Both have the same schema.

use serde_json::Value;

use crate::{
    GROUP, KubeVirt, VirtualMachine, VirtualMachineInstance, VirtualMachineInstanceMigration,
    VirtualMachineInstancePreset, VirtualMachineInstanceReplicaSet,
    crds::{
        definition::{Column, Definition, Object, REPLICAS, Scope, StatusIs, Version},
        structural,
    },
    kubevirt::{KubeVirtSpec, KubeVirtStatus},
    migration_request::{
        VirtualMachineInstanceMigrationSpec, VirtualMachineInstanceMigrationStatus,
    },
    preset::VirtualMachineInstancePresetSpec,
    replica_set::{VirtualMachineInstanceReplicaSetSpec, VirtualMachineInstanceReplicaSetStatus},
    vm::VirtualMachineSpec,
    vm_status::VirtualMachineStatus,
    vmi::VirtualMachineInstanceSpec,
    vmi_status::VirtualMachineInstanceStatus,
};

const LABEL: Option<&str> = Some("kubevirt.io");

pub(super) fn rows() -> Vec<Definition> {
    vec![
        machines(),
        instances(),
        replica_sets(),
        migrations(),
        presets(),
        installations(),
    ]
}

fn instances() -> Definition {
    let schema = Object::new(
        "One run of a guest. Its spec is fixed; when the guest has ended, the object only reports \
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

fn replica_sets() -> Definition {
    let schema = Object::new(
        "Keeps a number of equal guests running: instances that end are replaced. For guests \
         that keep nothing of their own.",
    )
    .required(
        "spec",
        structural::of_spec::<VirtualMachineInstanceReplicaSetSpec>(),
    )
    .nullable(
        "status",
        structural::of_status::<VirtualMachineInstanceReplicaSetStatus>(),
    )
    .schema();
    Definition {
        group: GROUP,
        kind: VirtualMachineInstanceReplicaSet::KIND,
        plural: VirtualMachineInstanceReplicaSet::PLURAL,
        singular: "virtualmachineinstancereplicaset",
        short_names: &["vmirs", "vmirss"],
        categories: &["all"],
        scope: Scope::Namespaced,
        label: LABEL,
        versions: versions(&schema),
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

fn migrations() -> Definition {
    let schema = Object::new(
        "The wish to move a running guest to another node, and how far it has come. Deleting it \
         while it is under way cancels the move.",
    )
    .required(
        "spec",
        structural::of_spec::<VirtualMachineInstanceMigrationSpec>(),
    )
    .optional(
        "status",
        structural::of_status::<VirtualMachineInstanceMigrationStatus>(),
    )
    .schema();
    Definition {
        group: GROUP,
        kind: VirtualMachineInstanceMigration::KIND,
        plural: VirtualMachineInstanceMigration::PLURAL,
        singular: "virtualmachineinstancemigration",
        short_names: &["vmim", "vmims"],
        categories: &["all"],
        scope: Scope::Namespaced,
        label: LABEL,
        versions: versions(&schema),
        status: StatusIs::Subresource,
        scale: None,
        columns: vec![
            Column::text("Phase", ".status.phase"),
            Column::text("VMI", ".spec.vmiName"),
        ],
    }
}

fn presets() -> Definition {
    const INSTEAD: &str = "Use a VirtualMachineInstancetype and a VirtualMachinePreference";
    let schema = Object::new(
        "Defaults for instances with certain labels. Deprecated: use instance types and \
         preferences.",
    )
    // KubeVirt has it optional here and refuses a preset without content in its webhook.
    .required(
        "spec",
        structural::of_spec::<VirtualMachineInstancePresetSpec>(),
    )
    .schema();
    Definition {
        group: GROUP,
        kind: VirtualMachineInstancePreset::KIND,
        plural: VirtualMachineInstancePreset::PLURAL,
        singular: "virtualmachineinstancepreset",
        short_names: &["vmipreset", "vmipresets"],
        categories: &["all"],
        scope: Scope::Namespaced,
        label: LABEL,
        versions: vec![
            Version::served("v1", &schema).removed(INSTEAD),
            Version::stored("v1alpha3", &schema).removed(INSTEAD),
        ],
        status: StatusIs::PartOfObject,
        scale: None,
        columns: Vec::new(),
    }
}

fn installations() -> Definition {
    let schema = Object::new(
        "One installation of the system: its components, configuration and status. There \
         is one in a cluster.",
    )
    .required("spec", structural::of_spec::<KubeVirtSpec>())
    .optional("status", structural::of_status::<KubeVirtStatus>())
    .schema();
    Definition {
        group: GROUP,
        kind: KubeVirt::KIND,
        plural: KubeVirt::PLURAL,
        singular: "kubevirt",
        short_names: &["kv", "kvs"],
        categories: &["all"],
        scope: Scope::Namespaced,
        label: Some("operator.kubevirt.io"),
        versions: versions(&schema),
        status: StatusIs::Subresource,
        scale: None,
        columns: vec![Column::age(), Column::text("Phase", ".status.phase")],
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
