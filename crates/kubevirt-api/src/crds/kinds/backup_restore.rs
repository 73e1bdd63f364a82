//! Group `backup.ferrovirt.io`: restores of backups. The group is ours.

use crate::{
    backup_restore::{
        VirtualMachineBackupRestore, VirtualMachineBackupRestoreSpec,
        VirtualMachineBackupRestoreStatus,
    },
    crds::{
        definition::{Column, Definition, Object, Scope, StatusIs, Version},
        structural,
    },
};

const LABEL: Option<&str> = Some("kubevirt.io");

pub(super) fn rows() -> Vec<Definition> {
    let schema = Object::new(
        "Fills claims with the disks of a backup and of the backups that it builds on.",
    )
    .required(
        "spec",
        structural::of_spec::<VirtualMachineBackupRestoreSpec>(),
    )
    .optional(
        "status",
        structural::of_status::<VirtualMachineBackupRestoreStatus>(),
    )
    .schema();
    vec![Definition {
        group: VirtualMachineBackupRestore::GROUP,
        kind: VirtualMachineBackupRestore::KIND,
        plural: VirtualMachineBackupRestore::PLURAL,
        singular: "virtualmachinebackuprestore",
        short_names: &["vmbackuprestore", "vmbackuprestores"],
        categories: &["all"],
        scope: Scope::Namespaced,
        label: LABEL,
        versions: vec![Version::stored("v1alpha1", &schema)],
        status: StatusIs::Subresource,
        scale: None,
        columns: vec![
            Column::text("Phase", ".status.phase"),
            Column::text("Progress", ".status.progress"),
            Column::text("Directory", ".status.directory"),
        ],
    }]
}
