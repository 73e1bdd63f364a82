//! Group `snapshot.kubevirt.io`: v1beta1 is stored, v1alpha1 served beside it with the same schema.

use crate::{
    crds::{
        definition::{Column, Definition, Object, Scope, StatusIs, Version},
        structural,
    },
    restore::{VirtualMachineRestore, VirtualMachineRestoreSpec, VirtualMachineRestoreStatus},
    snapshot::{
        VirtualMachineSnapshot, VirtualMachineSnapshotContent, VirtualMachineSnapshotContentSpec,
        VirtualMachineSnapshotContentStatus, VirtualMachineSnapshotSpec,
        VirtualMachineSnapshotStatus,
    },
};

const GROUP: &str = "snapshot.kubevirt.io";
const LABEL: Option<&str> = Some("kubevirt.io");

pub(super) fn rows() -> Vec<Definition> {
    vec![snapshots(), contents(), restores()]
}

fn snapshots() -> Definition {
    let schema = Object::new(
        "A copy of a VM's definition and disks as of one moment, kept under a name; a \
         VirtualMachineRestore brings it back.",
    )
    .required("spec", structural::of_spec::<VirtualMachineSnapshotSpec>())
    .optional(
        "status",
        structural::of_status::<VirtualMachineSnapshotStatus>(),
    )
    .schema();
    Definition {
        group: GROUP,
        kind: VirtualMachineSnapshot::KIND,
        plural: VirtualMachineSnapshot::PLURAL,
        singular: "virtualmachinesnapshot",
        short_names: &["vmsnapshot", "vmsnapshots"],
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
            Column::text("SourceKind", ".spec.source.kind"),
            Column::text("SourceName", ".spec.source.name"),
            Column::text("Phase", ".status.phase"),
            Column::yes_or_no("ReadyToUse", ".status.readyToUse"),
            Column::date("CreationTime", ".status.creationTime"),
            Column::text("Error", ".status.error.message"),
        ],
    }
}

fn contents() -> Definition {
    let schema = Object::new(
        "The copy behind a snapshot: the VM's definition and one volume snapshot for each of \
         its disks. Made by the controller.",
    )
    .required(
        "spec",
        structural::of_spec::<VirtualMachineSnapshotContentSpec>(),
    )
    .optional(
        "status",
        structural::of_status::<VirtualMachineSnapshotContentStatus>(),
    )
    .schema();
    Definition {
        group: GROUP,
        kind: VirtualMachineSnapshotContent::KIND,
        plural: VirtualMachineSnapshotContent::PLURAL,
        singular: "virtualmachinesnapshotcontent",
        short_names: &["vmsnapshotcontent", "vmsnapshotcontents"],
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
            Column::yes_or_no("ReadyToUse", ".status.readyToUse"),
            Column::date("CreationTime", ".status.creationTime"),
            Column::text("Error", ".status.error.message"),
        ],
    }
}

fn restores() -> Definition {
    let schema = Object::new("Takes a VM back to a snapshot, or makes a new VM from one.")
        .required("spec", structural::of_spec::<VirtualMachineRestoreSpec>())
        .optional(
            "status",
            structural::of_status::<VirtualMachineRestoreStatus>(),
        )
        .schema();
    Definition {
        group: GROUP,
        kind: VirtualMachineRestore::KIND,
        plural: VirtualMachineRestore::PLURAL,
        singular: "virtualmachinerestore",
        short_names: &["vmrestore", "vmrestores"],
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
            Column::text("TargetKind", ".spec.target.kind"),
            Column::text("TargetName", ".spec.target.name"),
            Column::yes_or_no("Complete", ".status.complete"),
            Column::date("RestoreTime", ".status.restoreTime"),
        ],
    }
}
