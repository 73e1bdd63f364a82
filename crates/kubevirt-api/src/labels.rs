//! Label keys that the path of a VM needs. Selectors of users and other programs depend on them.

/// Marks an object as a part of the system; the value says which part.
pub const COMPONENT: &str = "kubevirt.io";
/// Value of [`COMPONENT`] on launcher pods.
pub const COMPONENT_VIRT_LAUNCHER: &str = "virt-launcher";
/// On launcher pods: UID of the VMI they belong to. Reserved on VMIs.
pub const CREATED_BY: &str = "kubevirt.io/created-by";
/// On VMIs and launcher pods: the node that owns the VMI. Reserved on VMIs.
pub const NODE_NAME: &str = "kubevirt.io/nodeName";
/// Reserved on VMIs: the node a migration goes to.
pub const MIGRATION_TARGET_NODE_NAME: &str = "kubevirt.io/migrationTargetNodeName";
/// On target pods: UID of the migration. Reserved on VMIs.
pub const MIGRATION_JOB_UID: &str = "kubevirt.io/migrationJobUID";
/// On config maps of the operator. Reserved on VMIs.
pub const INSTALL_STRATEGY: &str = "kubevirt.io/install-strategy";
/// On nodes: `true` while launcher pods may go there. Reserved on VMIs.
pub const SCHEDULABLE: &str = "kubevirt.io/schedulable";
/// Conventional label that users select their VM by.
pub const VM: &str = "kubevirt.io/vm";
/// On launcher pods: host name of the guest; an older selector for services.
pub const VM_NAME: &str = "vm.kubevirt.io/name";
/// On launcher pods: name of the VMI, shortened with a hash when too long for a label.
pub const VMI_ID: &str = "vmi.kubevirt.io/id";
/// On VMIs and launcher pods whose launcher image is no longer the current one.
pub const OUTDATED_LAUNCHER_IMAGE: &str = "kubevirt.io/outdatedLauncherImage";

/// Keys that only our own components may put on a VMI.
pub const RESERVED_ON_VMI: &[&str] = &[
    CREATED_BY,
    MIGRATION_JOB_UID,
    NODE_NAME,
    MIGRATION_TARGET_NODE_NAME,
    SCHEDULABLE,
    INSTALL_STRATEGY,
];
