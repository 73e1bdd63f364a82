//! The table of reasons: name, retry class, meaning, remedy.

use crate::declare::reasons;

reasons! {
    Machines {
        VMINotExists: NotNeeded,
            "The VirtualMachine has no VirtualMachineInstance.",
            "";
        VMIConditionMissing: Transient,
            "The VMI has no condition Ready yet.",
            "";
        FeatureNotSupported: NeedsChange,
            "The spec asks for a feature that this version cannot run.",
            "Remove the fields that the message names.";
        FailedCreate: Transient,
            "An object could not be created: the VMI of a VirtualMachine, the pod of a VMI.",
            "Correct the object, the quota or the webhook that the API server names.";
        FailedBackendStorageCreate: Transient,
            "The claim for the state that a guest keeps, such as its TPM, could not be created.",
            "Correct the quota or the webhook that the API server names.";
        FailedFindInstancetype: NeedsChange,
            "The VirtualMachine names an instance type, or a revision of one, that cannot be found or read.",
            "Create the instance type, or correct `spec.instancetype`.";
        FailedFindPreference: NeedsChange,
            "The VirtualMachine names a preference, or a revision of one, that cannot be found or read.",
            "Create the preference, or correct `spec.preference`.";
        FailedDelete: Transient,
            "An object could not be deleted.",
            "Correct the request, or grant the permission that the API server names.";
        FailedUpdate: Transient,
            "An object could not be updated.",
            "Correct the request, or grant the permission that the API server names.";
        FailedScaleOut: Transient,
            "A pool could not create VMs that it lacks.",
            "Correct the template, the quota or the webhook that the message names.";
        FailedScaleIn: Transient,
            "A pool could not delete VMs that are too many, or keep their disks.",
            "Correct what the message names, or grant the permission.";
        FailedRevisionPruning: Transient,
            "A pool could not delete old revisions of its spec.",
            "Correct what the message names, or grant the permission.";
        Paused: NotNeeded,
            "The replica set is paused: it neither creates nor deletes VMIs.",
            "Set `spec.paused` to false to resume it.";
    }

    Starting {
        PodNotExists: Transient,
            "The VMI has no pod.",
            "";
        PodTerminating: NotNeeded,
            "The VMI's pod is being deleted.",
            "";
        PodConditionMissing: Transient,
            "The pod has no condition Ready yet.",
            "";
        GuestNotRunning: NotNeeded,
            "The guest has not started yet, is paused or has ended.",
            "";
        PodNameTaken: Permanent,
            "A pod of another owner has the name of the VMI's pod.",
            "Delete that pod, or delete the VMI if its owner does not create another one.";
        FailedGuaranteeResources: NeedsChange,
            "The guest asks for dedicated CPUs and its pod is not of QoS class Guaranteed.",
            "Make requests and limits of CPU and memory equal.";
        DomainNotRenderable: Permanent,
            "The spec cannot be turned into a libvirt domain.",
            "Correct the field that the message names.";
        DomainInvalid = "Synchronizing with the Domain failed.": NeedsChange,
            "libvirt rejected the definition of the domain, and it is tried again. The name is KubeVirt's.",
            "Correct the part of the VM that libvirt names.";
        InvalidPlan: Permanent,
            "The launcher rejected the plan of the guest.",
            "Correct the field that the message names.";
        InterfaceNotPlumbed: Transient,
            "The pod's network is not ready for the guest yet.",
            "";
        VsockAddressMissing: Transient,
            "virt-controller has not given the guest an address on the vsock yet.",
            "";
        CapacityNotUsable: Permanent,
            "The capacity of an emptyDisk is not a usable size.",
            "Correct `capacity` of the emptyDisk.";
        CloudInitNotUsable: Permanent,
            "The cloud-init source cannot be used.",
            "Correct the cloud-init volume that the message names.";
        SeedInvalid: Permanent,
            "No seed disk can be made of the cloud-init or Sysprep data.",
            "Correct the data that the message names.";
        SeedFileMissing: NeedsChange,
            "A Secret or ConfigMap of the seed does not have the expected key.",
            "Add the key that the message names.";
        SeedFileTooLarge: Permanent,
            "A file of the seed is too large.",
            "Make the user data smaller.";
        ContainerDiskMissing: Permanent,
            "The image has no disk in /disk/ or at `path`, or has more than one.",
            "Correct the image, or name the disk by `path`.";
        ContainerDiskNotCopied: Permanent,
            "A disk could not be copied out of its image on a node without image volumes.",
            "Free disk space or memory on the node.";
        DiskImageInvalid: Permanent,
            "A disk image cannot be read.",
            "Use a raw or qcow2 image that is intact.";
        DiskImageForbidden: Permanent,
            "A disk image refers to other files.",
            "Flatten the image: `qemu-img convert`.";
        DiskInvalid: Permanent,
            "A disk of the guest cannot be made as described.",
            "Correct the volume that the message names.";
        DiskDoesNotFit: NeedsChange,
            "The disk image is larger than the volume that should hold it.",
            "Use a larger volume.";
        DiskNotAFile: Permanent,
            "The path of a disk is neither a regular file nor a block device.",
            "Correct the content of the volume.";
        DiskNotUsable: Transient,
            "A disk of the guest could not be opened or given to the launcher.",
            "Check the storage of the volume.";
        StartFailed: Permanent,
            "libvirt could not start the guest.",
            "Read the pod's log for the whole error of libvirt.";
        PodNotReachable: Transient,
            "virt-handler cannot reach the directories of the pod.",
            "Read the pod's log and check free disk space on the node.";
        LimitsNotRaised: Transient,
            "virt-handler cannot raise the limits of locked memory or realtime priority in the pod.",
            "Give virt-handler the capability SYS_RESOURCE on the node.";
        HostDeviceNotUsable: Transient,
            "The devices of the node that the pod has cannot be handed over to the guest.",
            "Use the vendor's device plugin for virtual machines; read the message and the log of virt-handler on the node.";
        PrepareFailed: Transient,
            "The launcher could not prepare the guest's files.",
            "Read the pod's log and check free disk space on the node.";
        FilesystemNotServed: Transient,
            "The launcher could not share a directory with the guest.",
            "Create the directory that the message names, and read the pod's log.";
        FilesystemLost: Transient,
            "The server of a shared filesystem has ended while the guest runs.",
            "Restart the VM, and read the pod's log for the cause.";
        PasstNotStarted: Transient,
            "The launcher could not start passt, which connects the guest to the pod's network.",
            "Read the message of passt; free the ports it names, or use `masquerade: {}`.";
        HookSidecarNotReady: Transient,
            "A hook sidecar has not opened its socket yet.",
            "Read the log of the container that the message names; correct its image, command or arguments.";
        HookSidecarFailed: NeedsChange,
            "A hook sidecar failed, did not answer in time, or answered with something unusable.",
            "Read the log of the container that the message names; correct its hook, or remove the sidecar.";
        LauncherStorage: Transient,
            "The launcher could not write its record of the guest.",
            "Read the pod's log and check free disk space on the node.";
        LauncherUnavailable: Transient,
            "virt-handler has no connection to the launcher in the pod.",
            "Read the pod's log.";
        LibvirtRefused: Transient,
            "libvirt returned an error.",
            "Read the pod's log for the whole error of libvirt.";
        LibvirtUnavailable: Transient,
            "The launcher lost its connection to libvirt.",
            "Read the pod's log.";
        LibvirtTimedOut: Transient,
            "libvirt did not answer in time.",
            "Read the pod's log and check the load of the node.";
        LibvirtProtocol: Transient,
            "libvirt sent a message that the launcher cannot read.",
            "Read the pod's log.";
        LibvirtAuthentication: NeedsChange,
            "libvirt asked for a password.",
            "Use the launcher image of this version.";
        WrongGuest: Permanent,
            "The launcher in the pod belongs to another VMI.",
            "Delete the VMI; a new pod is created with the next one.";
        Ending: Permanent,
            "The pod is shutting down, so the guest cannot start in it.",
            "Start the VM again.";
        InvalidField: NeedsChange,
            "A field has a value that cannot be used.",
            "Correct the field that the message names.";
        MissingField: NeedsChange,
            "A required field has no value.",
            "Set the field that the message names.";
        UnknownClaim: Transient,
            "A persistent volume claim of the spec is not known yet.",
            "Create the claim that the message names.";
        HostDeviceNotPermitted: NeedsChange,
            "The cluster does not permit the host device.",
            "Ask the administrator to permit it in the KubeVirt configuration (`permittedHostDevices`).";
    }

    Ended {
        GuestPanicked: Permanent,
            "The guest kernel panicked.",
            "Read the guest's console output; correct the guest and start the VM again.";
        WatchdogExpired: Permanent,
            "The guest stopped resetting its watchdog, whose action is to power it off.",
            "Find out why the guest hung, and start the VM again.";
        QEMUCrashed: Permanent,
            "QEMU exited or was killed by a signal.",
            "Read the pod's log for QEMU's last output, and start the VM again.";
        OOMKilled: Permanent,
            "The pod reached its memory limit, and the kernel killed it.",
            "Raise the memory limit or remove it.";
        ShutdownForced: Permanent,
            "The guest did not power off within its grace period and was switched off.",
            "Raise `terminationGracePeriodSeconds` if the guest needs longer.";
        PostcopyFailed: Permanent,
            "A migration failed while the guest's memory was split between two nodes.",
            "Start the VM again.";
        LauncherUnresponsive: Permanent,
            "The launcher did not answer for 30 s while the state of the guest was unknown.",
            "Read the pod's log, and start the VM again.";
        NodeUnresponsive: Permanent,
            "The node stopped reporting, so the guest was marked as failed.",
            "Check the node; the VM starts on another one if its run strategy restarts it.";
    }

    Paused {
        PausedByUser: NeedsChange,
            "A user paused the guest.",
            "Unpause it: `virtctl unpause vmi NAME`.";
        PausedIOError: Transient,
            "A disk could not be read or written, and QEMU paused the guest.",
            "Check the volume, which may be full; the guest resumes by itself when its storage works.";
        PausedByMigrationMonitor: Transient,
            "The guest is paused so that its migration can finish.",
            "Wait for the migration.";
    }

    Migration {
        LiveMigrationNotSupported: NeedsChange,
            "This version cannot migrate this guest while it runs.",
            "Stop and start the VM instead.";
        OnlyWithinNode: NotNeeded,
            "The guest can migrate, but only to another pod of its node.",
            "";
        AwaitsPeer: Transient,
            "A migration between two VirtualMachineInstances waits for its other end.",
            "Create the other migration with the same migrationID, and look at the VirtualMachineInstance of each.";
        SeveralPeers: NeedsChange,
            "More than two migrations have the same migrationID, so their ends are not known.",
            "Delete those that you did not create, and choose an ID that other users cannot guess.";
        SuccessfulVolumeMigration: NotNeeded,
            "The guest has moved to other claims, with the contents of its volumes.",
            "The former claims may be deleted.";
        VolumesChangeCancellation: NotNeeded,
            "The move of volumes to other claims was taken back; the guest keeps its claims.",
            "";
        ManualRecoveryRequired: NeedsChange,
            "The guest ended while its volumes were copied to other claims, which may be incomplete.",
            "Name the former claims in the template, or verify the new ones and set `updateVolumesStrategy: Replacement`.";
        DisksNotLiveMigratable: NeedsChange,
            "A disk is not on shared storage.",
            "Use claims with access mode ReadWriteMany.";
        InterfaceNotLiveMigratable: NeedsChange,
            "A network interface cannot be moved to another pod.",
            "Use the masquerade binding, or on a single host a network of type `bridge` in place of a macvlan.";
        CPUModeNotLiveMigratable = "CPUModeLiveMigratable": NeedsChange,
            "No other node can run the guest's CPU model. The name is misspelled in KubeVirt.",
            "Choose a CPU model that several nodes have.";
        HostDeviceNotLiveMigratable: NeedsChange,
            "The guest uses a device of its host.",
            "Remove the host device.";
        SEVNotLiveMigratable: NeedsChange,
            "The guest uses AMD SEV.",
            "";
        TDXNotLiveMigratable: NeedsChange,
            "The guest uses Intel TDX.",
            "";
        SecureExecutionNotLiveMigratable: NeedsChange,
            "The guest uses IBM Secure Execution.",
            "";
        NoTSCFrequencyNotLiveMigratable: NeedsChange,
            "The guest needs a fixed TSC frequency, and the node's is unknown.",
            "Remove the Hyper-V re-enlightenment feature or an invariant TSC.";
        HypervPassthroughNotLiveMigratable: NeedsChange,
            "The guest uses all Hyper-V features of its host.",
            "Name the Hyper-V features instead of `hypervPassthrough`.";
        HotplugNotLiveMigratable: NeedsChange,
            "A volume that was attached to the guest is leaving it, or receives its memory.",
            "Wait until that is over, then migrate it.";
        SuccessfulHandOver: NotNeeded,
            "The guest's new pod is ready, and virt-handler moves the guest.",
            "";
        SuccessfulEvict: NotNeeded,
            "The pod of a guest with an outdated launcher was evicted, as the update strategy wants it.",
            "";
        FailedEvict: Transient,
            "The pod of a guest with an outdated launcher could not be evicted.",
            "Read the message: a disruption budget or the guest's eviction strategy keeps it.";
        SuccessfulChangeAbortion: NotNeeded,
            "A migration for a change or an update was ended: it is not needed now, or the guest has to leave its node first.",
            "";
        FailedChangeAbortion: Transient,
            "A migration for a change of a VM, or for an update, is not needed and could not be ended.",
            "Read the message; it is tried again.";
        SuccessfulMigration: NotNeeded,
            "The guest runs in its new pod.",
            "";
        FailedMigration: Transient,
            "A migration ended without success; the guest stays where it is.",
            "Read the message, remove its cause and migrate again.";
        SuccessfulAbortMigration: NotNeeded,
            "A migration was cancelled; the guest stays where it is.",
            "";
        NotMigratable: NeedsChange,
            "Volumes of the guest cannot migrate.",
            "Move their data to shared storage.";
    }

    Volumes {
        FailedPvcNotFound: NeedsChange,
            "A persistent volume claim of the spec does not exist.",
            "Create the claim that the message names.";
        FailedDataVolumeImport: Permanent,
            "A data volume could not be filled.",
            "Check the data volume: `kubectl describe datavolume NAME`.";
        ClaimOverCapacity: NeedsChange,
            "The files of a volume take more than its capacity, or all of it where the file system of the host enforces it.",
            "Remove files, or move them to a larger claim.";
        HotPlugVolumeError: NeedsChange,
            "The volumes of a running guest cannot follow the template of its VM.",
            "Correct the template as the message says.";
        GuestResizeFailed: NeedsChange,
            "libvirt or QEMU refused to plug processors or memory into a running guest.",
            "Restart the VM, which applies the change; or take the change back.";
        VolumeReady: NotNeeded,
            "The running guest has the volume.",
            "";
        VolumeMountedToPod: NotNeeded,
            "A volume is in the pod of the running guest.",
            "";
        VolumeUnMountedFromPod: NotNeeded,
            "The guest has released a volume, and it left the pod.",
            "";
        VolumePending: Transient,
            "A volume waits for its claim, or for the pod that brings it.",
            "";
        VolumeBound: NotNeeded,
            "The claim of a volume is bound.",
            "";
        VolumeAttachedToNode: NotNeeded,
            "A pod on the node of the guest has the volume.",
            "";
        VolumeDetaching: NotNeeded,
            "A volume is leaving the running guest.",
            "";
        VolumeModeNotSupported: NeedsChange,
            "This version cannot attach a claim in block mode to a running guest.",
            "Use a claim with `volumeMode: Filesystem`, or add the volume while the VM is stopped, without `hotpluggable`.";
        VolumeNotMounted: Transient,
            "A volume could not be mounted in the pod of the running guest.",
            "Read the message; the next attempt follows by itself.";
        VolumeNotAttached: NeedsChange,
            "The hypervisor refused to attach a volume to the running guest.",
            "Read the message for the cause. If the bus has no free place, use the bus scsi.";
        VolumeInUse: NeedsChange,
            "Another guest uses the disk image of the volume.",
            "Detach the volume from the other guest, or stop it.";
        VolumeNotReleased: NeedsChange,
            "The guest does not release a disk.",
            "Unmount the disk in the guest, or restart the VM.";
        VolumeNotUnmounted: Transient,
            "A volume that the guest has released could not be unmounted.",
            "Read the message; the next attempt follows by itself.";
        MemoryDumpInProgress: Transient,
            "The memory of the guest is being written to a claim; disks and migrations wait.",
            "Wait for the end of the dump.";
        MemoryDumpFailed: NeedsChange,
            "The memory of a guest could not be written to a claim.",
            "Read the message. If the claim has too little space, use a larger one, and request the dump again.";
        Suspending: Transient,
            "The state of the guest is being saved to a claim.",
            "Wait for its end.";
        Suspended: NotNeeded,
            "The state of the guest is saved in a claim, and the guest does not run.",
            "Run `virtctl resume` to continue from the saved state, or `virtctl resume --discard-state` to discard it and boot the guest.";
        SuspendFailed: NeedsChange,
            "The state of the guest could not be saved.",
            "Read the message. If the storage is full, free space, and suspend the VM again.";
        Resuming: Transient,
            "The guest is about to go on from its saved state.",
            "Wait until it runs.";
        ResumeFailed: Permanent,
            "The guest could not go on from its saved state, which is kept.",
            "Remove the cause that the message names, such as a changed VM, and try `virtctl resume` again; or start the guest anew by `virtctl resume --discard-state`.";
        AttachmentPodFailed: Transient,
            "The pod that brings volumes to a running guest failed or was refused.",
            "Read the message, and describe the pod whose name begins with `hp-volume-`.";
        VolumeBindingFailed: Permanent,
            "The pod that was created to bind the claims failed.",
            "Check the claims of the VMI, and start the VM again.";
        AllDVsReady: NotNeeded,
            "All data volumes are ready.",
            "";
        NotAllDVsReady: Transient,
            "Not all data volumes are ready.",
            "";
        SuccessfulDataVolumeCreate: NotNeeded,
            "A data volume was created.",
            "";
        FailedDataVolumeCreate: Transient,
            "A data volume could not be created.",
            "Correct the request, or grant the permission that the API server names.";
        UnauthorizedDataVolumeCreate: NeedsChange,
            "The VM's service account may not copy the source of a data volume.",
            "Allow it to create `datavolumes/source` in the namespace of the source.";
        SourcePVCNotAvailable = "SourcePVCNotAvailabe": NeedsChange,
            "The claim that a data volume copies does not exist. The name is misspelled in KubeVirt.",
            "Create the source claim.";
        WaitForFirstConsumer: Transient,
            "The claim is bound when a pod that uses it has a node.",
            "";
        ExternalProvisioning: Transient,
            "An external provisioner has to create the volume.",
            "Check the provisioner of the storage class.";
        Provisioning: NotNeeded,
            "A volume is being created for the claim.",
            "";
        ProvisioningSucceeded: NotNeeded,
            "A volume was created for the claim.",
            "";
        ProvisioningFailed: NeedsChange,
            "No volume could be created for the claim.",
            "Read the message for the cause.";
        FailedBinding: NeedsChange,
            "No volume fits the claim, and it has no storage class that creates one.",
            "Create a volume or set a storage class.";
        ClaimLost: NeedsChange,
            "The volume of a bound claim is gone, and its data with it.",
            "Restore the data into a new claim.";
        ClaimMisbound: NeedsChange,
            "The volume of the claim is bound to another claim.",
            "Create a new claim.";
        VolumeFailedDelete: Transient,
            "A volume could not be deleted.",
            "Read the message for the cause.";
        Error: Transient,
            "A container ended with an error, or a data volume could not be filled.",
            "Read the message for the cause.";
        ImportSourceNotUsable: NeedsChange,
            "The source of an import cannot be used as it is given.",
            "Correct the source that the message names.";
        ImportSourceNotFound: NeedsChange,
            "The address of an import leads to no file.",
            "Correct the address, or put the file there: the import is tried again.";
        ImportSourceRefused: NeedsChange,
            "The server of an import refused the request.",
            "Correct the secret or the headers of the source: the import is tried again.";
        ImportSourceUnreachable: Transient,
            "The server of an import cannot be reached, or its response ended early.",
            "Check the server and the network between it and the node.";
        ImportSourceChanged: Transient,
            "The file of an import changed on its server while it was read.",
            "";
        ImportChecksumMismatch: NeedsChange,
            "The file of an import does not have the expected checksum.",
            "Correct the checksum or the file, and create the data volume again.";
        ImportFailed: Transient,
            "The importer could not read or write its files, or its pod failed.",
            "Check the storage of the volume and free disk space on the node.";
        ImportNotSupported: NeedsChange,
            "A data volume asks for something that the importer cannot do.",
            "Change what the message names, and create the data volume again.";
        ImportScheduled: NotNeeded,
            "A pod that populates a claim was created.",
            "";
        ImportInProgress: NotNeeded,
            "A claim is being populated.",
            "";
        ImportSucceeded: NotNeeded,
            "A claim is populated.",
            "";
        UploadScheduled: NotNeeded,
            "A pod that receives an upload was created.",
            "";
        UploadReady: NotNeeded,
            "An upload can be sent.",
            "";
        UploadSucceeded: NotNeeded,
            "An upload was received, and its disk is complete.",
            "";
        UploadRefused: NeedsChange,
            "The last file that was uploaded did not become a disk; the volume is unchanged.",
            "Correct what the message names, and upload again: the volume takes another file.";
        ClaimAwaitsUpload: Transient,
            "A claim of the VM receives an upload, which would overwrite its disk.",
            "Upload the disk, or delete the claim if it is not needed.";
        ClaimBeingRestored: Transient,
            "A claim of the VM has no complete disk: a restore of a backup writes to it, failed or was deleted.",
            "Wait for the restore; if it failed or is gone, make another one onto the claim, or delete the claim.";
        UploadTargetInUse: Transient,
            "Another pod uses the claim that is to be overwritten by an upload.",
            "Stop the VM or the pod that uses the claim, or upload into another claim.";
        ClaimNotUsable = "ErrClaimNotValid": NeedsChange,
            "A data volume cannot use the claim of its name, which something else created.",
            "Delete the claim if its data is not needed, or rename the data volume.";
        SourceSnapshotNotAvailable: NeedsChange,
            "The volume snapshot that a data volume copies does not exist, or is not ready.",
            "Create the volume snapshot, or correct what its status names.";
        DataSourceNotReady: NeedsChange,
            "The data source that a data volume names does not exist, or stands for no source.",
            "Create the data source, or correct what the message names.";
        SourceNotPermitted: NeedsChange,
            "A data volume or a data source refers to another namespace, from which nothing may be copied.",
            "Allow the account to create `datavolumes/source` of `cdi.kubevirt.io` in that namespace.";
        CloneSourceInUse: Transient,
            "The claim that a data volume copies is in use by a pod.",
            "Stop the VM that uses it.";
        ImagePullFailed: Transient,
            "The image of a data volume could not be pulled.",
            "Correct the source of the data volume.";
        ErrExceededQuota: NeedsChange,
            "A data volume does not fit the quota of its namespace.",
            "Raise the quota.";
    }

    Snapshots {
        SnapshotCreationFailed: Transient,
            "A volume snapshot could not be taken.",
            "Read the message for the cause.";
        SnapshotInProgress: NotNeeded,
            "The disks of the VM are being copied.",
            "";
        SnapshotComplete: NotNeeded,
            "The snapshot is complete; restores can start from it.",
            "";
        SnapshotSourceMissing: NeedsChange,
            "The VM or a claim that the snapshot is to copy does not exist.",
            "Create the object that the message names, or delete the snapshot.";
        SnapshotSourceBusy: Transient,
            "The VM is locked by another operation, or its guest cannot be frozen or paused yet.",
            "";
        SnapshotsNotSupported: NeedsChange,
            "No disk of the VM can be copied: its storage has no volume snapshots or no snapshot class.",
            "Install the CSI snapshot controller, or create a VolumeSnapshotClass for the driver that the message names.";
        VolumeSnapshotNotReady: Transient,
            "A volume snapshot is not ready yet.",
            "Read the message for the cause.";
        VolumeSnapshotMissing: Permanent,
            "A volume snapshot of a finished snapshot is gone, and its data with it.",
            "Use another snapshot.";
        SnapshotDeadlineExceeded: Permanent,
            "The snapshot did not complete within its `failureDeadline`.",
            "Remove the cause that the message names, and create another snapshot.";
        SnapshotInconsistent: Permanent,
            "The guest was started or resumed while its disks were copied.",
            "Create another snapshot.";
        SuccessfulVirtualMachineSnapshotContentCreate: NotNeeded,
            "The content of a snapshot was created.",
            "";
        SuccessfulVolumeSnapshotCreate: NotNeeded,
            "A volume snapshot was created.",
            "";
        RestoreInProgress: NotNeeded,
            "The VM is being restored.",
            "";
        VirtualMachineRestoreComplete: NotNeeded,
            "The VM was restored.",
            "";
        VirtualMachineRestoreError: Transient,
            "A step of a restore failed.",
            "Read the message for the cause.";
        RestoreTargetNotReady: NeedsChange,
            "The VM to restore is still running, or is locked by another operation.",
            "Stop the VM, or use `targetReadinessPolicy: StopTarget`.";
        RestoreTargetFailed: Permanent,
            "The VM to restore was still running when its time was over.",
            "Stop the VM, and create another restore.";
        RestoreSourceNotReady: NeedsChange,
            "The snapshot to restore does not exist or is not ready.",
            "Wait for the snapshot, or create the restore of another one.";
        RestoreNotPossible: NeedsChange,
            "The restore cannot be carried out as it is written.",
            "Correct what the message names, and create another restore.";
        Initiated: NotNeeded,
            "The disks of a running guest are being copied to a claim.",
            "";
        Aborting: NotNeeded,
            "A backup is being cancelled, and its files are removed.",
            "";
        PreparingExport: NotNeeded,
            "The disks of a running guest are offered, and the server by which clients read them is starting.",
            "";
        ExportReady: NotNeeded,
            "The disks of a running guest are offered, and wait for the client that reads them.",
            "Read them from the addresses in the status, and delete the backup then; it ends by itself when its time is over.";
        CompletedWithWarning: NotNeeded,
            "A backup is complete, but the guest did not write its caches to disk first.",
            "Check the guest agent; the disks are as after a power cut.";
        SourceLost: Permanent,
            "The guest ended before its backup did.",
            "Create another backup once the guest runs.";
        BackupInProgress: Transient,
            "A backup of the guest is in progress: memory dumps wait, migrations are refused.",
            "Wait for the end of the backup, or delete it.";
        QuiesceSucceeded: NotNeeded,
            "The guest wrote its caches to disk before its disks were copied.",
            "";
        QuiesceFailed: NotNeeded,
            "The guest was asked to write its caches to disk before its disks were copied, and did not.",
            "";
        QuiesceSkipped: NotNeeded,
            "The disks of the guest were copied as they were, without its help.",
            "";
        VirtualMachineBackupAborting: NotNeeded,
            "A backup was deleted before its end.",
            "";
        VirtualMachineBackupCompletedSuccessfully: NotNeeded,
            "A backup is complete.",
            "";
        VirtualMachineBackupCompletedWithWarning: NotNeeded,
            "A backup is complete, but the guest did not write its caches to disk first.",
            "Check the guest agent; the disks are as after a power cut.";
        VirtualMachineBackupFailed: Permanent,
            "A backup could not be made.",
            "Remove the cause that the message names, such as a claim that is too small, and create another backup.";
        BackupNotUsable: Permanent,
            "The directory of a backup is incomplete or damaged, or has something that no backup has.",
            "Restore another backup, such as the one that it builds on.";
        BackupRestoreWaits: Transient,
            "The restore of a backup waits for the backup, for a claim, or for what uses it.",
            "Create, complete or stop what the message names.";
        BackupRestoreNotPossible: Permanent,
            "The restore of a backup cannot be carried out as it is written.",
            "Correct what the message names, and create another restore.";
        VirtualMachineBackupRestoreComplete: NotNeeded,
            "The disks of a backup are restored.",
            "";
        VirtualMachineBackupRestoreFailed: Permanent,
            "A backup could not be restored.",
            "Remove the cause that the message names, and create another restore.";
        CloneInProgress: NotNeeded,
            "The VM is being cloned.",
            "";
        CloneReady = "Ready": NotNeeded,
            "The clone exists. The name is KubeVirt's.",
            "";
        SourceDoesNotExist: NeedsChange,
            "The VM or snapshot to clone, or the VM to make a template of, does not exist.",
            "Create it, or delete the clone or the request.";
        SourceVMWithBackendStorageInvalid: Permanent,
            "The VM to copy keeps state of its TPM or firmware outside of its disks, which a clone or template cannot get.",
            "Copy a VM without persistent TPM and firmware variables.";
        VMVolumeSnapshotsInvalid: NeedsChange,
            "A volume of the VM to copy cannot be copied, or it is not known yet whether it can.",
            "Move the volumes that the message names to storage with volume snapshots, or remove them from the VM.";
        SnapshotContentInvalid: Permanent,
            "The snapshot does not have everything that the clone needs.",
            "Take another snapshot, or leave out volumes by `spec.patches` of another clone.";
        SnapshotDeleted: Permanent,
            "The snapshot was deleted before the clone had its data.",
            "Create another clone.";
        CloneTargetExists: Permanent,
            "A VM has the name of the target already.",
            "Create another clone with another `spec.target.name`, or without one.";
        CloneNotPossible: Permanent,
            "The clone cannot be carried out as it is written.",
            "Correct what the message names, and create another clone.";
        RestoreCreationFailed: Transient,
            "The restore of a clone could not be created.",
            "Correct what the API server names.";
        SnapshotCreated: NotNeeded,
            "The snapshot of a clone was created.",
            "";
        SnapshotReady: NotNeeded,
            "The snapshot of a clone is ready.",
            "";
        RestoreCreated: NotNeeded,
            "The restore of a clone was created.",
            "";
        RestoreReady: NotNeeded,
            "The restore of a clone is complete.",
            "";
        TargetVMCreated: NotNeeded,
            "The target of a clone was created.",
            "";
        PVCBound: NotNeeded,
            "The claims of a clone or an export have their data; the snapshot and restore of a clone are deleted.",
            "";
        TemplateInProgress: NotNeeded,
            "A template is being made of a VM.",
            "";
        TemplateReady: NotNeeded,
            "The template of a VM exists.",
            "";
        TemplateExists: Permanent,
            "A template has the name that the request asks for.",
            "Create another request with another `spec.templateName`, or delete the template first.";
        TemplateNotPossible: Permanent,
            "No template can be made of the VM as the request asks.",
            "Correct what the message names, and create another request.";
    }

    Exports {
        Initializing: Transient,
            "An export or a backup waits for what it needs.",
            "Create or start what the message names.";
        ExportSourceInUse = "InUse": Transient,
            "A guest or another pod uses the disks that are to be exported, and may write to them.",
            "Stop the VM or the pod, or export a snapshot of the VM.";
        ExporterPodPending = "PodPending": Transient,
            "The export server is starting.",
            "Read the message for the cause, if that takes long.";
        ExporterPodReady = "PodReady": NotNeeded,
            "The export can be downloaded.",
            "";
        ExportVMNotFound = "VMNotFound": NeedsChange,
            "The VM to export does not exist.",
            "Create the VM, or delete the export.";
        VMNoVolumes: NeedsChange,
            "The VM to export has no volume with a claim.",
            "Export a VM with a claim or data volume.";
        VMSnapshotNotFound: NeedsChange,
            "The snapshot to export does not exist.",
            "Create the snapshot, or delete the export.";
        VMSnapshotNoVolumes: NeedsChange,
            "The snapshot to export has no copies of disks.",
            "Export a snapshot of a VM whose storage has volume snapshots.";
        VolumesNotPopulated: Transient,
            "A claim that is to be exported does not exist yet, or is being deleted.",
            "";
        ExportPVCNotFound = "PVCNotFound": NeedsChange,
            "A claim that is to be exported does not exist, or is being deleted.",
            "Create the claim, or delete the export.";
        ExportPVCPending = "PVCPending": Transient,
            "A claim that is to be exported does not have its volume or its data yet.",
            "";
        NotAllPVCsCreated: Transient,
            "The claims that are restored from a snapshot for an export do not all exist.",
            "Read the message for the cause.";
        NotAllPVCsReady: Transient,
            "The claims that are restored from a snapshot for an export are not all bound.",
            "Read the message for the cause.";
        AllPVCsReady: NotNeeded,
            "The claims that are restored from a snapshot for an export have their data.",
            "";
        ExportPaused: NotNeeded,
            "The export server was removed, because its source has changed or cannot be offered now.",
            "";
        ExporterPodCreated: NotNeeded,
            "The pod of an export server was created.",
            "";
        ExporterPodFailedOrCompleted: NotNeeded,
            "The pod of an export server has failed and is replaced.",
            "";
        SecretCreated: NotNeeded,
            "The token of an export was created.",
            "";
        ServiceCreated: NotNeeded,
            "The service of an export was created.",
            "";
    }

    Network {
        NoSuchNetwork: Permanent,
            "An interface has no network of the same name.",
            "Add the network to `spec.networks`.";
        SecondInterface: Permanent,
            "Two interfaces are on one network.",
            "Remove one of them.";
        NetworkDefinitionMissing: NeedsChange,
            "A network attachment definition that a pod names does not exist, or the pod may not use it.",
            "Create it in the namespace of the VMI or in `default`, or correct `networkName`. The VM then starts by itself.";
        NetworkDefinitionInvalid: NeedsChange,
            "The configuration in a network attachment definition is not valid.",
            "Correct the setting that the message names. The VM then starts by itself.";
        NetworkDefinitionNotSupported: NeedsChange,
            "A network attachment definition needs a plugin or setting that a single host does not have.",
            "Correct the setting that the message names. The VM then starts by itself.";
        NetworkNotJoined: NeedsChange,
            "A pod could not be connected to one of its networks.",
            "Create or correct what the message names, on the host or in the definition. The VM then starts by itself.";
        NetworkNotAttached: NeedsChange,
            "The pod has no interface on a secondary network of its VMI.",
            "Install Multus on the cluster, or correct the network, and delete the VMI: its VM gets another one.";
        InterfaceNotInPod: NeedsChange,
            "The pod of a running guest has not joined a network that its VM was given.",
            "Read the events of the pod for the cause. On a cluster without a controller that adds networks to running pods, migrate the VM: the new pod joins the network.";
        AutoMigrationDueToLiveUpdate: NotNeeded,
            "A running guest is to move to a pod that joins the networks which its VM was given.",
            "";
        InterfaceNotPlugged: NeedsChange,
            "An interface could not be plugged into the running guest, or taken from it.",
            "Read the message for the cause. If the guest has no free PCI port, restart the VM.";
        InterfaceNotReleased: NeedsChange,
            "The guest does not release an interface.",
            "Stop using the interface in the guest, or restart the VM.";
        NetworkBindingNotRegistered: NeedsChange,
            "The cluster does not have the network binding that an interface names.",
            "Ask the administrator to register it in the KubeVirt configuration (`network.binding`); the VM then starts by itself.";
        NetworkBindingNotOfPod: NeedsChange,
            "The pod was made without the network binding of an interface, as by an earlier version.",
            "Delete the VMI: its VM gets another one.";
        NetworkBindingWithoutTap: NeedsChange,
            "The pod has no tap for an interface whose network binding expects one from the cluster's network plugin.",
            "Ask the administrator for a network whose plugin makes taps, and delete the VMI: its VM gets another one.";
        BadNetworkCidr: Permanent,
            "The address range of a network is not valid.",
            "Correct the field that the message names.";
        BadMacAddress: Permanent,
            "A MAC address is not valid.",
            "Correct `macAddress`.";
        BadPort: Permanent,
            "A port of an interface is not valid.",
            "Correct `ports`.";
        PodHasNoAddress: Transient,
            "The pod's interface has no global address yet.",
            "";
        TooManyRoutes: Permanent,
            "The pod's interface has more routes than DHCP can give to the guest.",
            "Use the masquerade binding.";
        NetworkNotPermitted: NeedsChange,
            "virt-handler may not configure the pod's network.",
            "Let virt-handler run with CAP_NET_ADMIN.";
        KernelFeatureMissing: NeedsChange,
            "The node's kernel does not have a feature that the pod's network needs.",
            "Load the module that the message names.";
        ForeignLink: NeedsChange,
            "A link of that name exists and belongs to another program.",
            "Remove the link, or choose another name.";
        NoSuchLink: Transient,
            "A link of the pod does not exist.",
            "";
        BadLinkName: NeedsChange,
            "The name of a link is not valid.",
            "Choose another name.";
        NetworkRefused: Transient,
            "The kernel rejected a change of the network.",
            "Read virt-handler's log on the node.";
        NoSuchNamespace: Transient,
            "The network namespace of the pod cannot be opened.",
            "";
        SysctlFailed: Transient,
            "A kernel parameter of the pod could not be set.",
            "Read virt-handler's log on the node.";
        TapFailed: Transient,
            "A TAP device could not be created.",
            "Check that /dev/net/tun works: `modprobe tun`.";
        NetlinkFailed: Transient,
            "The kernel's netlink interface failed.",
            "";
        BadPodRange: NeedsChange,
            "The pod range is not a usable network, or the host has no IPv6.",
            "Choose an IPv4 network between /8 and /30, and for IPv6 one at least as large.";
        PodRangeTaken: NeedsChange,
            "The pod range overlaps a network of the host.",
            "Choose another pod range.";
        PodRangeFull: Transient,
            "All addresses of the pod range are in use.",
            "Delete pods, or choose a larger pod range.";
        BadPodUid: NeedsChange,
            "The UID of a pod is not valid.",
            "";
        PodNetworkLocked: NeedsChange,
            "Another process uses the records of the pod network.",
            "Stop the other process, or use another state directory.";
        PodRangeChanged: NeedsChange,
            "The records of the pod network are of another pod range.",
            "Remove the old network first: `ferrovirt down`.";
        PodNetworkState: Transient,
            "The records of the pod network could not be written.",
            "Free disk space on the node.";
        FailedServices: Transient,
            "The packet rules of services could not be changed.",
            "Read virt-handler's log on the node.";
        FailedNetworkPolicies: Transient,
            "The packet rules of network policies could not be changed.",
            "Do what the message says; if it names br_netfilter: `modprobe br_netfilter`.";
        NetworkPoliciesTooLarge: NeedsChange,
            "The network policies of a namespace need more packet rules than a host takes.",
            "Use ranges of addresses, or fewer policies.";
    }

    Guest {
        NotRunning: NeedsChange,
            "The guest is not running.",
            "Start the VM.";
        MigrationConflict: Transient,
            "The launcher takes part in another migration of the guest.",
            "Wait for the end of the migration, or cancel it.";
        AgentNotConnected: NeedsChange,
            "No guest agent is connected.",
            "Install and start qemu-guest-agent in the guest.";
        AgentBusy: Transient,
            "The queue of the guest agent is full.",
            "";
        GuestAgentPingFailed: NeedsChange,
            "A probe of the guest agent got no answer.",
            "Start qemu-guest-agent in the guest, or pause the probes: annotation `kubevirt.io/pause-guest-agent-probes`.";
        AgentUnavailable: Transient,
            "The guest agent failed or did not answer.",
            "";
        StillRunning: Transient,
            "The guest is still running, so the launcher keeps its pod.",
            "";
        FreezeError: NeedsChange,
            "The guest did not freeze its file systems.",
            "Check the guest agent and its freeze hooks in the guest.";
    }

    Pods {
        Unschedulable: NeedsChange,
            "No node can take the pod.",
            "Free or add the resources that the message names, or change the VM.";
        FailedScheduling: NeedsChange,
            "No node can take the pod.",
            "Free or add the resources that the message names, or change the VM.";
        ErrImagePull: NeedsChange,
            "An image cannot be pulled.",
            "Check the image's name, its registry and the pull secret.";
        ImagePullBackOff: NeedsChange,
            "An image cannot be pulled, and the kubelet waits before it tries again.",
            "Check the image's name, its registry and the pull secret.";
        ErrImageNeverPull: NeedsChange,
            "The image is not on the node and must not be pulled.",
            "Load the image on the node, or change `imagePullPolicy`.";
        InvalidImageName: NeedsChange,
            "The name of an image is not valid.",
            "Correct the name.";
        ImageInspectError: NeedsChange,
            "The node cannot read an image that it has.",
            "Remove the image from the node, so that it is pulled again: `crictl rmi IMAGE`.";
        SignatureValidationFailed: NeedsChange,
            "The signature of an image does not satisfy the policy of the node.",
            "Use a signed image, or correct the signature policy of the node's container runtime.";
        RegistryUnavailable: Transient,
            "The registry of an image does not answer.",
            "Check the node's connection to the registry.";
        ErrImagePush: Transient,
            "An image could not be pushed.",
            "";
        RegistryRefuses: NeedsChange,
            "The registry did not accept an image.",
            "Check the credentials and the permissions of the user.";
        LayoutUnreadable: NeedsChange,
            "An OCI image layout cannot be read.",
            "Check the directory that the message names.";
        InvalidPullSecret: NeedsChange,
            "A pull secret is not a valid Docker configuration.",
            "Create it again: `kubectl create secret docker-registry`.";
        CreateContainerConfigError: NeedsChange,
            "A container cannot be configured: an object that it refers to does not exist.",
            "Create the object that the message names.";
        CreateContainerError: Transient,
            "The kubelet cannot create the container.",
            "Check the pod: `kubectl describe pod NAME`.";
        RunContainerError: Transient,
            "The kubelet cannot start the container.",
            "Check the pod: `kubectl describe pod NAME`.";
        PostStartHookError: Transient,
            "The start hook of a container failed.",
            "Check the pod: `kubectl describe pod NAME`.";
        CrashLoopBackOff: Transient,
            "A container ended repeatedly, and the kubelet waits before it starts it again.",
            "Read the container's log: `kubectl logs NAME --previous`.";
        BackOff: Transient,
            "The kubelet waits before it tries again.",
            "";
        ContainerCreating: Transient,
            "The container is being created.",
            "";
        PodInitializing: Transient,
            "The init containers of the pod have not finished yet.",
            "";
        ContainersNotInitialized: Transient,
            "Init containers of the pod have not finished.",
            "";
        ContainersNotReady: Transient,
            "Containers of the pod are not ready, or a readiness probe fails.",
            "Check what the probe asks the guest for, and the pod: `kubectl describe pod NAME`.";
        ReadinessGatesNotReady: Transient,
            "A readiness gate of the pod is not true.",
            "Check the condition of the pod that the gate names.";
        Completed: NotNeeded,
            "A container ended successfully.",
            "";
        StartError: Transient,
            "A container could not be started.",
            "Check the pod: `kubectl describe pod NAME`.";
        ContainerStatusUnknown: Transient,
            "A container ended while its supervisor was not running.",
            "";
        PodCompleted: NotNeeded,
            "All containers of the pod ended successfully.",
            "";
        FailedCreatePodSandBox: Transient,
            "The pod's sandbox or its network could not be created.",
            "Read the message for the cause.";
        FailedMount: Transient,
            "A volume of the pod could not be mounted.",
            "Check the volume that the message names.";
        WaitingForVolumes: Transient,
            "The volumes of the pod are being created.",
            "";
        FailedKillPod: Transient,
            "The pod could not be ended.",
            "Read the message for the cause.";
        FailedStatus: Transient,
            "The status of the pod could not be written.",
            "";
        Failed: Transient,
            "A step of the pod failed.",
            "Read the message for the cause.";
        Unhealthy: Transient,
            "A probe of a container failed.",
            "";
        SysctlForbidden: Permanent,
            "The pod has a kernel setting that is not safe for other pods.",
            "Remove the setting that the message names from `securityContext.sysctls`.";
        FailedPostStartHook: Transient,
            "The start hook of a container failed, and the container is ended.",
            "Check the `postStart` hook of the container.";
        FailedPreStopHook: Transient,
            "The stop hook of a container failed; the container is ended all the same.",
            "Check the `preStop` hook of the container.";
        DeadlineExceeded: Permanent,
            "The pod was active for longer than its deadline.",
            "Raise `activeDeadlineSeconds` of the pod.";
        NodeRestarted: Permanent,
            "The node restarted while the pod ran.",
            "Start the VM again.";
        Evicted: Permanent,
            "The pod was evicted from its node.",
            "Free the resource that the message names; the VM starts again if its run strategy restarts it.";
    }

    Nodes {
        KubeletReady: NotNeeded,
            "The node is ready.",
            "";
        KubeletHasNoDiskPressure: NotNeeded,
            "The disk of the node has enough space.",
            "";
        KubeletHasDiskPressure: NeedsChange,
            "The disk of the node is nearly full: no pod starts and no image is pulled until there is space.",
            "Free disk space on the host, or give it a larger disk; guests that run keep running.";
        KvmMissing: NeedsChange,
            "No guest runs with KVM on the node: guests are emulated or run elsewhere.",
            "Load `kvm_intel` or `kvm_amd`, or enable virtualization in the firmware or in the node's host.";
        TunMissing: NeedsChange,
            "/dev/net/tun cannot be used, so no guest with a network runs on the node.",
            "Load it: `modprobe tun`.";
        VhostNetMissing: NeedsChange,
            "/dev/vhost-net cannot be used, so no guest with a network runs on the node.",
            "Load it: `modprobe vhost_net`.";
        CgroupV1: NeedsChange,
            "The node uses cgroup v1, which kubelets from 1.35 on do not accept by default.",
            "Boot with `systemd.unified_cgroup_hierarchy=1`.";
        MigrationNetworkMissing: NeedsChange,
            "The node is not on the configured network for migrations, so no guest migrates from it or to it.",
            "Check that its network attachment definition exists, and that the pod of virt-handler on the node has the interface `migration0`.";
    }

    Installation {
        AllComponentsReady: NotNeeded,
            "All components run.",
            "";
        AllResourcesCreated: NotNeeded,
            "All objects of the installation exist.",
            "";
        DeploymentInProgress: NotNeeded,
            "The components are being started for the first time.",
            "";
        UpdateInProgress: NotNeeded,
            "Pods of the components are being replaced.",
            "";
        ComponentsNotReady: Transient,
            "Components of a complete installation are missing or do not run.",
            "Look at the components that the message names: `kubectl get pods -n kubevirt`; on a single host, the log of `ferrovirt up`.";
        ExistingDeployment: NeedsChange,
            "The object is not in effect: the oldest `KubeVirt` object configures the only installation of a cluster.",
            "Move its settings to the object that the message names, and delete it.";
        RightMissing: NeedsChange,
            "A component does not have a permission that it needs: a role or binding was changed.",
            "Apply the manifest again: `kubectl apply --server-side --force-conflicts -f deploy/ferrovirt.yaml`.";
        NotInstalled: NeedsChange,
            "A component has no permissions at all and does nothing.",
            "Delete the namespace of a second installation, or apply the manifest again.";
        SecondInstallation: NeedsChange,
            "The manifest was applied to a second namespace.",
            "Delete the second namespace, but not by its manifest, which has the objects of both.";
        AuthorityExpired: Transient,
            "The certificate authority in the secret `kubevirt-ca` was not valid and was replaced.",
            "Check the clocks of the nodes.";
        CertificateNotRenewed: NeedsChange,
            "A component could not renew its certificate.",
            "Follow the message; if the secret `kubevirt-ca` cannot be read, delete it.";
    }

    Writes {
        ServerUnavailable: Transient,
            "The API server did not answer or asked to try again.",
            "";
        Conflict: Transient,
            "The object was changed in the meantime.",
            "";
        NotFound: Transient,
            "The object does not exist.",
            "";
        AlreadyExists: Transient,
            "The object exists already.",
            "";
        Refused: NeedsChange,
            "The API server rejected the request.",
            "Correct the request, or grant the permission that the API server names.";
        FailedStatusUpdate: Transient,
            "The status of an object could not be written.",
            "Correct the request, or grant the permission that the API server names.";
        ReconcilePanicked: Transient,
            "A component has a bug that this object shows; it tries again after growing delays, and other objects \
             are not affected.",
            "Report the message of the panic in the component's log.";
        Compacted: Transient,
            "The changes from that version on are no longer kept.",
            "";
        DiskFull: NeedsChange,
            "The disk of the API server's database is full.",
            "Free disk space on the host.";
        FutureRevision: NeedsChange,
            "A watch starts at a revision that the API server has not reached.",
            "List the objects again, then watch from the revision of the list.";
        DatabaseCorrupt: NeedsChange,
            "The API server's database is damaged.",
            "Restore a copy with `ferrovirt restore FILE`; guests keep running meanwhile.";
        DatabaseFailed: Transient,
            "The API server's database failed.",
            "";
        DatabaseTooNew: NeedsChange,
            "A newer version wrote the API server's database.",
            "Use the newer version.";
        BadObject: NeedsChange,
            "The API server's database holds an object that is not JSON.",
            "";
        Cancelled: Transient,
            "The API server is shutting down.",
            "";
    }

    Progress {
        SuccessfulCreate: NotNeeded,
            "An object was created: the VMI of a VM, the pod of a VMI.",
            "";
        SuccessfulDelete: NotNeeded,
            "An object was deleted.",
            "";
        SuccessfulUpdate: NotNeeded,
            "An object was updated: a VM of a pool got the present template.",
            "";
        SuccessfulPaused: NotNeeded,
            "The replica set or pool was paused.",
            "";
        SuccessfulResumed: NotNeeded,
            "The replica set was resumed.",
            "";
        SuccessfulResume: NotNeeded,
            "The pool was resumed.",
            "";
        Started: NotNeeded,
            "The guest or a container started.",
            "";
        ShuttingDown: NotNeeded,
            "The guest was asked to power off.",
            "";
        Stopped: NotNeeded,
            "The guest ended.",
            "";
        Deleted: NotNeeded,
            "The guest of a deleted VMI ended.",
            "";
        SyncFailed: Transient,
            "The guest could not be started.",
            "The condition Synchronized has the reason.";
        Scheduled: NotNeeded,
            "The pod was given to a node.",
            "";
        Pulling: NotNeeded,
            "An image is being pulled.",
            "";
        Pulled: NotNeeded,
            "An image is on the node.",
            "";
        Created: NotNeeded,
            "A container was created.",
            "";
        Killing: NotNeeded,
            "A container is being stopped.",
            "";
    }
}
