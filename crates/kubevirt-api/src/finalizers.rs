//! Finalizers: which components must process the deletion of an object.

/// On VMIs: kept until no pod of the VMI is left.
pub const VMI: &str = "kubevirt.io/foregroundDeleteVirtualMachine";
/// The unqualified form of [`VMI`] that older versions used.
pub const VMI_OLD: &str = "foregroundDeleteVirtualMachine";
/// On VMs and on VMIs made by a VM: the VM controller sees the last state before it goes.
pub const VM_CONTROLLER: &str = "kubevirt.io/virtualMachineControllerFinalize";
/// On managed Deployments, `DaemonSets` and CRDs: orders removal.
pub const OPERATOR: &str = "kubevirt.io/virtOperatorFinalizer";
/// On `KubeVirt`: operator finishes uninstall before the CR goes.
pub const KUBEVIRT: &str = "kubevirt.io/foregroundDeleteKubeVirt";
/// On `KubeVirt`: older unqualified form, replaced on sight.
pub const KUBEVIRT_OLD: &str = "foregroundDeleteKubeVirt";
/// On migrations: kept until the migration is final.
pub const MIGRATION: &str = "kubevirt.io/migrationJobFinalize";
/// On migrations: closes cross-cluster links of a decentralised migration.
pub const MIGRATION_SYNCHRONIZATION: &str = "synchronization.kubevirt.io/migrationFinalizer";
/// On pool and its VMs: scale-in clean-up.
pub const POOL: &str = "pool.kubevirt.io/finalizer";
/// On snapshots: kept until source unlocked.
pub const SNAPSHOT: &str = "snapshot.kubevirt.io/vmsnapshot-protection";
/// On snapshot content: kept until guest is thawed.
pub const SNAPSHOT_CONTENT: &str = "snapshot.kubevirt.io/vmsnapshotcontent-protection";
/// On VMs: source VM lock during a snapshot.
pub const SNAPSHOT_SOURCE: &str = "snapshot.kubevirt.io/snapshot-source-protection";
/// On restore: kept until target released.
pub const RESTORE: &str = "snapshot.kubevirt.io/vmrestore-protection";
/// On backup: kept until VMI cleaned up.
pub const BACKUP: &str = "backup.kubevirt.io/vmbackup-protection";
/// On template requests, ours: kept until the template owns its data volumes.
pub const TEMPLATE_REQUEST: &str = "template.ferrovirt.io/request-protection";
/// On restores of backups, ours: kept until claims that still have their old disks are given back.
pub const BACKUP_RESTORE: &str = "backup.ferrovirt.io/vmbackuprestore-protection";
