//! Reasons of conditions and of events: stable words that users and programs match on.

/// Events by which controller and handler tell of a guest's life.
pub const SYNC_EVENTS: &[&str] = &[
    event::CREATED,
    event::DELETED,
    event::PRESET_FAILED,
    event::OVERRIDE,
    event::STARTED,
    event::SHUTTING_DOWN,
    event::STOPPED,
    event::PREPARING_TARGET,
    event::MIGRATING,
    event::MIGRATED,
    event::SYNC_FAILED,
    event::RESUMED,
    event::ACCESS_CREDENTIALS_SYNC_FAILED,
    event::ACCESS_CREDENTIALS_SYNC_SUCCESS,
];

/// Why a container waits, in the words of a kubelet: all that say that it does not start.
pub const CONTAINER_WAITS: [&str; 8] = [
    vmi::ERR_IMAGE_PULL,
    vmi::IMAGE_PULL_BACK_OFF,
    "ErrImageNeverPull",
    "InvalidImageName",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
    "CrashLoopBackOff",
];

pub mod vm {
    //! On a `VirtualMachine`.
    pub const VMI_NOT_EXISTS: &str = "VMINotExists";
    pub const VMI_CONDITION_MISSING: &str = "VMIConditionMissing";
    pub const FAILED_CREATE: &str = "FailedCreate";
    pub const FAILED_DELETE: &str = "FailedDelete";
    /// As on instances: the VM asks for something that this version cannot run.
    pub const FEATURE_NOT_SUPPORTED: &str = "FeatureNotSupported";
    pub const HOT_PLUG_VOLUME_ERROR: &str = "HotPlugVolumeError";
    pub const HOT_PLUG_CPU_ERROR: &str = "HotPlugCPUError";
    pub const HOT_PLUG_MEMORY_ERROR: &str = "HotPlugMemoryError";
    pub const HOT_PLUG_NETWORK_INTERFACE_ERROR: &str = "HotPlugNetworkInterfaceError";
    pub const AFFINITY_CHANGE_ERROR: &str = "AffinityChangeError";
    pub const TOLERATIONS_CHANGE_ERROR: &str = "TolerationsChangeError";
    pub const ANNOTATIONS_LABELS_CHANGE_ERROR: &str = "AnnotationsLabelsChangeError";
    pub const VOLUMES_UPDATE_ERROR: &str = "VolumesUpdateError";
    pub const FAILED_UPDATE_ERROR: &str = "FailedUpdateError";
    pub const FIRMWARE_UUID_ERROR: &str = "FirmwareUUIDError";
    pub const UNSUPPORTED_SYNC_ERROR: &str = "UnsupportedSyncError";
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
    pub const FAILED_HAND_OVER: &str = "FailedHandOver";
    pub const FAILED_BACKEND_STORAGE_CREATE: &str = "FailedBackendStorageCreate";
    pub const FAILED_BACKEND_STORAGE_PROBE: &str = "FailedBackendStorageProbe";
    pub const BACKEND_STORAGE_NOT_READY: &str = "BackendStorageNotReady";
    pub const FAILED_DATA_VOLUME_IMPORT: &str = "FailedDataVolumeImport";
    pub const FAILED_PVC_NOT_FOUND: &str = "FailedPvcNotFound";
    pub const MISSING_ATTACHMENT_POD: &str = "MissingAttachmentPod";
    pub const PVC_NOT_READY: &str = "PVCNotReady";
    /// An image holds no disk, or not the one that is named.
    pub const CONTAINER_DISK_MISSING: &str = "ContainerDiskMissing";
    /// A disk could not be copied out of its image.
    pub const CONTAINER_DISK_NOT_COPIED: &str = "ContainerDiskNotCopied";
    pub const FAILED_HOTPLUG_SYNC: &str = "FailedHotplugSync";
    pub const FAILED_POD_PATCH: &str = "FailedPodPatch";
    pub const CONTAINER_PATH_VOLUMES_DISABLED: &str = "ContainerPathVolumesDisabled";
    pub const MISSING_VIRTIOFS_CONTAINERS: &str = "MissingVirtiofsContainers";
    pub const ERR_IMAGE_PULL: &str = "ErrImagePull";
    pub const IMAGE_PULL_BACK_OFF: &str = "ImagePullBackOff";
    /// The spec asks for something that this version cannot run. Ours: the API has no word for it.
    pub const FEATURE_NOT_SUPPORTED: &str = "FeatureNotSupported";
    pub const UNSCHEDULABLE: &str = "Unschedulable";
    pub const ALL_DVS_READY: &str = "AllDVsReady";
    pub const NOT_ALL_DVS_READY: &str = "NotAllDVsReady";
    pub const PAUSED_BY_USER: &str = "PausedByUser";
    pub const PAUSED_IO_ERROR: &str = "PausedIOError";
    pub const PAUSED_BY_MIGRATION_MONITOR: &str = "PausedByMigrationMonitor";
    pub const NODE_UNRESPONSIVE: &str = "NodeUnresponsive";
    // Why a guest has failed. Ours: the API has the phase and no word for the cause.
    pub const GUEST_PANICKED: &str = "GuestPanicked";
    pub const WATCHDOG_EXPIRED: &str = "WatchdogExpired";
    pub const QEMU_CRASHED: &str = "QEMUCrashed";
    pub const OUT_OF_MEMORY: &str = "OOMKilled";
    pub const SHUTDOWN_FORCED: &str = "ShutdownForced";
    pub const START_FAILED: &str = "StartFailed";
    pub const POSTCOPY_FAILED: &str = "PostcopyFailed";
    pub const LAUNCHER_UNRESPONSIVE: &str = "LauncherUnresponsive";
    pub const INTERFACE_NOT_LIVE_MIGRATABLE: &str = "InterfaceNotLiveMigratable";
    /// Spelt so: clients match on it.
    pub const CPU_MODE_NOT_LIVE_MIGRATABLE: &str = "CPUModeLiveMigratable";
    pub const HOST_DEVICE_NOT_LIVE_MIGRATABLE: &str = "HostDeviceNotLiveMigratable";
    pub const SEV_NOT_LIVE_MIGRATABLE: &str = "SEVNotLiveMigratable";
    pub const TDX_NOT_LIVE_MIGRATABLE: &str = "TDXNotLiveMigratable";
    pub const SECURE_EXECUTION_NOT_LIVE_MIGRATABLE: &str = "SecureExecutionNotLiveMigratable";
    pub const NO_TSC_FREQUENCY_NOT_LIVE_MIGRATABLE: &str = "NoTSCFrequencyNotLiveMigratable";
    pub const HYPERV_PASSTHROUGH_NOT_LIVE_MIGRATABLE: &str = "HypervPassthroughNotLiveMigratable";
    pub const DISKS_NOT_LIVE_MIGRATABLE: &str = "DisksNotLiveMigratable";
    pub const PERSISTENT_RESERVATION_NOT_LIVE_MIGRATABLE: &str =
        "PersistentReservationNotLiveMigratable";
    pub const HOTPLUG_NOT_LIVE_MIGRATABLE: &str = "HotplugNotLiveMigratable";
    pub const VIRTIOFS_NOT_LIVE_MIGRATABLE: &str = "VirtIOFSNotLiveMigratable";
    pub const DECENTRALIZED_NOT_LIVE_MIGRATABLE: &str = "DecentralizedNotLiveMigratable";
    pub const NOT_MIGRATABLE: &str = "NotMigratable";
    pub const AUTO_MIGRATION_DUE_TO_LIVE_UPDATE: &str = "AutoMigrationDueToLiveUpdate";
    pub const AUTO_MIGRATION_PENDING: &str = "AutoMigrationPending";
    pub const VOLUMES_CHANGE_CANCELLATION: &str = "VolumesChangeCancellation";
    pub const EVICTION_REQUESTED: &str = "EvictionRequested";
    pub const CROSS_ARCHITECTURE_EMULATION: &str = "CrossArchitectureEmulation";
}

pub mod migration {
    //! On a `VirtualMachineInstanceMigration`.
    pub const UTILITY_VOLUMES_PRESENT: &str = "UtilityVolumesPresent";
    pub const BACKUP_IN_PROGRESS: &str = "BackupInProgress";
}

pub mod replica_set {
    //! On a `VirtualMachineInstanceReplicaSet`.
    pub const FAILED_CREATE: &str = "FailedCreate";
    pub const FAILED_DELETE: &str = "FailedDelete";
    pub const PAUSED: &str = "Paused";
}

pub mod pool {
    //! On a `VirtualMachinePool`.
    pub const FAILED_SCALE_OUT: &str = "FailedScaleOut";
    pub const FAILED_SCALE_IN: &str = "FailedScaleIn";
    pub const FAILED_UPDATE: &str = "FailedUpdate";
    pub const FAILED_REVISION_PRUNING: &str = "FailedRevisionPruning";
    pub const SUCCESSFUL_PAUSED: &str = "SuccessfulPaused";
}

pub mod clone {
    //! On a `VirtualMachineClone`.
    pub const PENDING: &str = "Pending";
    pub const FAILED: &str = "Failed";
    pub const READY: &str = "Ready";
}

pub mod export {
    //! On a `VirtualMachineExport`.
    pub const INITIALIZING: &str = "Initializing";
    pub const IN_USE: &str = "InUse";
    pub const POD_PENDING: &str = "PodPending";
    pub const POD_READY: &str = "PodReady";
    pub const POD_COMPLETED: &str = "PodCompleted";
    pub const UNKNOWN: &str = "Unknown";
    pub const VM_NOT_FOUND: &str = "VMNotFound";
    pub const VOLUMES_NOT_POPULATED: &str = "VolumesNotPopulated";
    pub const VM_NO_VOLUMES: &str = "VMNoVolumes";
    pub const VM_SNAPSHOT_NOT_FOUND: &str = "VMSnapshotNotFound";
    pub const PVC_PENDING: &str = "PVCPending";
    pub const NOT_ALL_PVCS_CREATED: &str = "NotAllPVCsCreated";
    pub const VIRTUAL_MACHINE_BACKUP_READY: &str = "VirtualMachineBackupReady";
    pub const PVC_NOT_FOUND: &str = "PVCNotFound";
    pub const PVC_BOUND: &str = "PVCBound";
    pub const ALL_PVCS_READY: &str = "AllPVCsReady";
    pub const NOT_ALL_PVCS_READY: &str = "NotAllPVCsReady";
    pub const VM_SNAPSHOT_NO_VOLUMES: &str = "VMSnapshotNoVolumes";
    pub const DIGESTS_COMPUTED: &str = "DigestsComputed";
    pub const DIGESTS_PENDING: &str = "DigestsPending";
}

pub mod backup {
    //! On a `VirtualMachineBackup`.
    pub const INITIALIZING: &str = "Initializing";
    pub const INITIATED: &str = "Initiated";
    pub const PREPARING_EXPORT: &str = "PreparingExport";
    pub const EXPORT_INITIATED: &str = "ExportInitiated";
    pub const EXPORT_READY: &str = "ExportReady";
    pub const ABORTING: &str = "Aborting";
    pub const COMPLETED: &str = "Completed";
    pub const COMPLETED_WITH_WARNING: &str = "CompletedWithWarning";
    pub const FAILED: &str = "Failed";
    pub const SOURCE_LOST: &str = "SourceLost";
    pub const SOURCE_UNHEALTHY: &str = "SourceUnhealthy";
    pub const DELETED_DURING_INIT: &str = "DeletedDuringInit";
    pub const QUIESCE_SUCCEEDED: &str = "QuiesceSucceeded";
    pub const QUIESCE_FAILED: &str = "QuiesceFailed";
    pub const QUIESCE_SKIPPED: &str = "QuiesceSkipped";
}

pub mod kubevirt {
    //! On a `KubeVirt`.
    pub const DEPLOYMENT_IN_PROGRESS: &str = "DeploymentInProgress";
    pub const ALL_RESOURCES_CREATED: &str = "AllResourcesCreated";
    pub const ALL_COMPONENTS_READY: &str = "AllComponentsReady";
    pub const UPDATE_IN_PROGRESS: &str = "UpdateInProgress";
    pub const DEPLOYMENT_FAILED: &str = "DeploymentFailed";
    pub const EXISTING_DEPLOYMENT: &str = "ExistingDeployment";
    pub const DELETION_IN_PROGRESS: &str = "DeletionInProgress";
    pub const DELETION_FAILED: &str = "DeletionFailed";
}

pub mod event {
    //! Reasons of events.
    pub const SUCCESSFUL_CREATE: &str = "SuccessfulCreate";
    pub const SUCCESSFUL_DELETE: &str = "SuccessfulDelete";
    pub const FAILED_CREATE: &str = "FailedCreate";
    pub const FAILED_DELETE: &str = "FailedDelete";
    pub const FAILED_UPDATE: &str = "FailedUpdate";
    pub const STARTED: &str = "Started";
    pub const STOPPED: &str = "Stopped";
    pub const CREATED: &str = "Created";
    pub const DELETED: &str = "Deleted";
    pub const SHUTTING_DOWN: &str = "ShuttingDown";
    pub const SYNC_FAILED: &str = "SyncFailed";
    pub const PRESET_FAILED: &str = "PresetFailed";
    pub const OVERRIDE: &str = "Override";
    pub const PREPARING_TARGET: &str = "PreparingTarget";
    pub const MIGRATING: &str = "Migrating";
    pub const MIGRATED: &str = "Migrated";
    pub const RESUMED: &str = "Resumed";
    pub const ACCESS_CREDENTIALS_SYNC_FAILED: &str = "AccessCredentialsSyncFailed";
    pub const ACCESS_CREDENTIALS_SYNC_SUCCESS: &str = "AccessCredentialsSyncSuccess";
    pub const FREEZE_ERROR: &str = "FreezeError";
    pub const SUCCESSFUL_DATA_VOLUME_CREATE: &str = "SuccessfulDataVolumeCreate";
    pub const FAILED_DATA_VOLUME_CREATE: &str = "FailedDataVolumeCreate";
    pub const UNAUTHORIZED_DATA_VOLUME_CREATE: &str = "UnauthorizedDataVolumeCreate";
    pub const FAILED_DATA_VOLUME_IMPORT: &str = "FailedDataVolumeImport";
    /// Spelt so: clients match on it.
    pub const SOURCE_PVC_NOT_AVAILABLE: &str = "SourcePVCNotAvailabe";
    pub const SUCCESSFUL_HAND_OVER: &str = "SuccessfulHandOver";
    pub const FAILED_HAND_OVER: &str = "FailedHandOver";
    pub const SUCCESSFUL_MIGRATION: &str = "SuccessfulMigration";
    pub const FAILED_MIGRATION: &str = "FailedMigration";
    pub const SUCCESSFUL_ABORT_MIGRATION: &str = "SuccessfulAbortMigration";
    pub const FAILED_ABORT_MIGRATION: &str = "FailedAbortMigration";
    pub const MIGRATION_BACKOFF: &str = "MigrationBackoff";
    pub const UTILITY_VOLUME_MIGRATION_PENDING: &str = "UtilityVolumeMigrationPending";
    pub const BACKUP_ABORTED_FOR_MIGRATION: &str = "BackupAbortedForMigration";
    pub const BACKUP_ABORT_FAILED: &str = "BackupAbortFailed";
    pub const NO_SUITABLE_NODES_FOR_HOST_MODEL_MIGRATION: &str =
        "NoSuitableNodesForHostModelMigration";
    pub const MIGRATION_TARGET_POD_UNSCHEDULABLE: &str = "migrationTargetPodUnschedulable";
    pub const SUCCESSFUL_EVICT: &str = "SuccessfulEvict";
    pub const FAILED_EVICT: &str = "FailedEvict";
    pub const SUCCESSFUL_CHANGE_ABORTION: &str = "SuccessfulChangeAbortion";
    pub const FAILED_CHANGE_ABORTION: &str = "FailedChangeAbortion";
    pub const SUCCESSFUL_PAUSED: &str = "SuccessfulPaused";
    pub const SUCCESSFUL_RESUMED: &str = "SuccessfulResumed";
    pub const SUCCESSFUL_VIRTUAL_MACHINE_SNAPSHOT_CONTENT_CREATE: &str =
        "SuccessfulVirtualMachineSnapshotContentCreate";
    pub const SUCCESSFUL_VOLUME_SNAPSHOT_CREATE: &str = "SuccessfulVolumeSnapshotCreate";
    pub const VOLUME_SNAPSHOT_MISSING: &str = "VolumeSnapshotMissing";
    pub const VIRTUAL_MACHINE_RESTORE_COMPLETE: &str = "VirtualMachineRestoreComplete";
    pub const VIRTUAL_MACHINE_RESTORE_ERROR: &str = "VirtualMachineRestoreError";
    pub const RESTORE_TARGET_NOT_READY: &str = "RestoreTargetNotReady";
    pub const RESTORE_DATA_VOLUME_CREATE_ERROR: &str = "RestoreDataVolumeCreateError";
    pub const SNAPSHOT_CREATED: &str = "SnapshotCreated";
    pub const SNAPSHOT_READY: &str = "SnapshotReady";
    pub const SNAPSHOT_CONTENT_INVALID: &str = "SnapshotContentInvalid";
    pub const RESTORE_CREATED: &str = "RestoreCreated";
    pub const RESTORE_CREATION_FAILED: &str = "RestoreCreationFailed";
    pub const RESTORE_READY: &str = "RestoreReady";
    pub const TARGET_VM_CREATED: &str = "TargetVMCreated";
    pub const PVC_BOUND: &str = "PVCBound";
    pub const SNAPSHOT_DELETED: &str = "SnapshotDeleted";
    pub const SOURCE_DOES_NOT_EXIST: &str = "SourceDoesNotExist";
    pub const SOURCE_VM_WITH_BACKEND_STORAGE_INVALID: &str = "SourceVMWithBackendStorageInvalid";
    pub const VM_VOLUME_SNAPSHOTS_INVALID: &str = "VMVolumeSnapshotsInvalid";
    pub const EXPORTER_POD_CREATED: &str = "ExporterPodCreated";
    pub const EXPORTER_POD_FAILED_OR_COMPLETED: &str = "ExporterPodFailedOrCompleted";
    pub const EXPORT_PAUSED: &str = "ExportPaused";
    pub const SECRET_CREATED: &str = "SecretCreated";
    pub const SERVICE_CREATED: &str = "ServiceCreated";
    pub const CERTIFICATE_PARAMETERS_CHANGED: &str = "CertificateParametersChanged";
    pub const DATA_MANIFEST_CREATED: &str = "DataManifestCreated";
    pub const VIRTUAL_MACHINE_BACKUP_ABORTING: &str = "VirtualMachineBackupAborting";
    pub const VIRTUAL_MACHINE_BACKUP_COMPLETED_SUCCESSFULLY: &str =
        "VirtualMachineBackupCompletedSuccessfully";
    pub const VIRTUAL_MACHINE_BACKUP_COMPLETED_WITH_WARNING: &str =
        "VirtualMachineBackupCompletedWithWarning";
    pub const VIRTUAL_MACHINE_BACKUP_FAILED: &str = "VirtualMachineBackupFailed";
}
