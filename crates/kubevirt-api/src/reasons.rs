//! Reasons of conditions and of events: stable words that users and programs match on.

pub mod vm {
    //! On a `VirtualMachine`.
    pub const VMI_NOT_EXISTS: &str = "VMINotExists";
    pub const VMI_CONDITION_MISSING: &str = "VMIConditionMissing";
    pub const FAILED_CREATE: &str = "FailedCreate";
    pub const FAILED_DELETE: &str = "FailedDelete";
}

pub mod vmi {
    //! On a `VirtualMachineInstance`.
    pub const POD_NOT_EXISTS: &str = "PodNotExists";
    pub const POD_TERMINATING: &str = "PodTerminating";
    pub const GUEST_NOT_RUNNING: &str = "GuestNotRunning";
    pub const POD_CONDITION_MISSING: &str = "PodConditionMissing";
    pub const FAILED_CREATE: &str = "FailedCreate";
    pub const FAILED_DELETE: &str = "FailedDelete";
    pub const FAILED_CREATE_VALIDATION: &str = "FailedCreateValidation";
    pub const FAILED_GUARANTEE_RESOURCES: &str = "FailedGuaranteeResources";
    pub const ERR_IMAGE_PULL: &str = "ErrImagePull";
    pub const IMAGE_PULL_BACK_OFF: &str = "ImagePullBackOff";
    pub const UNSCHEDULABLE: &str = "Unschedulable";
    pub const PAUSED_BY_USER: &str = "PausedByUser";
    pub const PAUSED_IO_ERROR: &str = "PausedIOError";
    pub const PAUSED_BY_MIGRATION_MONITOR: &str = "PausedByMigrationMonitor";
    pub const NODE_UNRESPONSIVE: &str = "NodeUnresponsive";
    pub const INTERFACE_NOT_LIVE_MIGRATABLE: &str = "InterfaceNotLiveMigratable";
    pub const DISKS_NOT_LIVE_MIGRATABLE: &str = "DisksNotLiveMigratable";
    pub const NOT_MIGRATABLE: &str = "NotMigratable";
}

pub mod event {
    //! Reasons of events.
    pub const SUCCESSFUL_CREATE: &str = "SuccessfulCreate";
    pub const SUCCESSFUL_DELETE: &str = "SuccessfulDelete";
    pub const FAILED_CREATE: &str = "FailedCreate";
    pub const FAILED_DELETE: &str = "FailedDelete";
    pub const STARTED: &str = "Started";
    pub const STOPPED: &str = "Stopped";
    pub const CREATED: &str = "Created";
    pub const DELETED: &str = "Deleted";
    pub const SHUTTING_DOWN: &str = "ShuttingDown";
    pub const SYNC_FAILED: &str = "SyncFailed";
}
