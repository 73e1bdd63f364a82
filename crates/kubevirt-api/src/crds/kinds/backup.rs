//! Group `backup.kubevirt.io`: backups and their trackers.

use crate::{
    backup::{
        VirtualMachineBackup, VirtualMachineBackupSpec, VirtualMachineBackupStatus,
        VirtualMachineBackupTracker, VirtualMachineBackupTrackerSpec,
        VirtualMachineBackupTrackerStatus,
    },
    crds::{
        definition::{Column, Definition, Object, Scope, StatusIs, Version},
        structural,
    },
};

const GROUP: &str = "backup.kubevirt.io";
const LABEL: Option<&str> = Some("kubevirt.io");

pub(super) fn rows() -> Vec<Definition> {
    vec![backups(), trackers()]
}

fn backups() -> Definition {
    let schema = Object::new(
        "Copies the disks of a running VM once: into a claim (Push), or by offering them to a \
         backup program (Pull).",
    )
    .required("spec", structural::of_spec::<VirtualMachineBackupSpec>())
    .optional(
        "status",
        structural::of_status::<VirtualMachineBackupStatus>(),
    )
    .schema();
    Definition {
        group: GROUP,
        kind: VirtualMachineBackup::KIND,
        plural: VirtualMachineBackup::PLURAL,
        singular: "virtualmachinebackup",
        short_names: &["vmbackup", "vmbackups"],
        categories: &["all"],
        scope: Scope::Namespaced,
        label: LABEL,
        versions: vec![Version::stored("v1alpha1", &schema)],
        status: StatusIs::Subresource,
        scale: None,
        columns: vec![
            Column::text("SourceKind", ".spec.source.kind"),
            Column::text("SourceName", ".spec.source.name"),
            Column::text("Type", ".status.type"),
            Column::text("CheckpointName", ".status.checkpointName"),
        ],
    }
}

fn trackers() -> Definition {
    let schema = Object::new(
        "Remembers the last checkpoint of a VM's disks, so that a backup need only copy what \
         changed since.",
    )
    .required(
        "spec",
        structural::of_spec::<VirtualMachineBackupTrackerSpec>(),
    )
    .optional(
        "status",
        structural::of_status::<VirtualMachineBackupTrackerStatus>(),
    )
    .schema();
    Definition {
        group: GROUP,
        kind: VirtualMachineBackupTracker::KIND,
        plural: VirtualMachineBackupTracker::PLURAL,
        singular: "virtualmachinebackuptracker",
        short_names: &["vmbackuptracker", "vmbackuptrackers"],
        categories: &["all"],
        scope: Scope::Namespaced,
        label: LABEL,
        versions: vec![Version::stored("v1alpha1", &schema)],
        status: StatusIs::Subresource,
        scale: None,
        columns: vec![
            Column::text("SourceKind", ".spec.source.kind"),
            Column::text("SourceName", ".spec.source.name"),
            Column::text("LatestCheckpoint", ".status.latestCheckpoint.name"),
            Column::date("CheckpointTime", ".status.latestCheckpoint.creationTime"),
        ],
    }
}
