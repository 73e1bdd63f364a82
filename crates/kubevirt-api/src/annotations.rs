//! Annotation keys. A constant that ends in `PREFIX` is the start of a key.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Whether an annotation is present and true, in any of Go's spellings of booleans.
pub fn is_true(metadata: &ObjectMeta, key: &str) -> bool {
    let all = metadata.annotations.as_ref();
    let value = all.and_then(|all| all.get(key)).map(String::as_str);
    matches!(value, Some("1" | "t" | "T" | "true" | "TRUE" | "True"))
}

/// On launcher pods: name of the VMI.
pub const DOMAIN: &str = "kubevirt.io/domain";
/// On launcher pods: the claims behind the guest's volumes at the time the pod was created, a
/// JSON object by volume name.
pub const CLAIMS: &str = "ferrovirt.io/claims";
/// On launcher pods that a guest moves to: the processors and the memory that the pod was made for, as
/// `vcpus=COUNT,memory=BYTES`.
pub const GUEST_SIZE: &str = "ferrovirt.io/guest-size";
/// On launcher pods that a guest moves to: the volumes that leave their claims by the move; value: JSON object of the
/// former and the new claim, by volume name.
pub const MIGRATED_VOLUMES: &str = "ferrovirt.io/migrated-volumes";
/// On VMIs: UID of the migration that carries the volumes of `status.migratedVolumes`.
pub const VOLUMES_CARRIED_BY: &str = "ferrovirt.io/volumes-carried-by";
/// On launcher pods: the networks whose devices a sidecar of a network binding reads; value: JSON list of names.
pub const DEVICE_NETWORKS: &str = "ferrovirt.io/device-networks";
/// On launcher pods: how the network bindings of the guest were registered when the pod was created; value: JSON object
/// by name.
pub const NETWORK_BINDINGS: &str = "ferrovirt.io/network-bindings";
/// On launcher pods: the hardware address that the guest has on the pod network instead of the pod's.
pub const GUEST_MAC: &str = "ferrovirt.io/guest-mac";
/// On VMIs: generation of the VM they were started from.
pub const VM_GENERATION: &str = "kubevirt.io/vm-generation";
/// First write of a controller on an object: the API version it used.
pub const LATEST_OBSERVED_API_VERSION: &str = "kubevirt.io/latest-observed-api-version";
/// The storage version a controller saw.
pub const STORAGE_OBSERVED_API_VERSION: &str = "kubevirt.io/storage-observed-api-version";
/// Scheme by which PCI hot-plug ports are laid out.
pub const PCI_TOPOLOGY_VERSION: &str = "kubevirt.io/pci-topology-version";
/// The scheme new guests get.
pub const PCI_TOPOLOGY_VERSION_V3: &str = "v3";
/// On nodes: time of the last heartbeat of virt-handler.
pub const HEARTBEAT: &str = "kubevirt.io/heartbeat";
/// On nodes: address and port of virt-handler's server.
pub const HANDLER_ADDRESS: &str = "ferrovirt.io/handler-address";
/// On nodes: requirements of guests that are missing there, with the remedy, one per line.
pub const MISSING_REQUIREMENTS: &str = "ferrovirt.io/lacks";
/// On data volumes: the checksum of the file that is imported, as `sha256:HEX` or `sha512:HEX`.
pub const IMPORT_CHECKSUM: &str = "ferrovirt.io/import-checksum";
/// On importer pods: how often the import was restarted before this pod was created.
pub const IMPORT_RESTARTS: &str = "ferrovirt.io/import-restarts";
/// On importer pods: the UID of the claim that the pod fills.
pub const IMPORT_CLAIM: &str = "ferrovirt.io/import-claim";
/// On data volumes of periodic imports: the version of the image, as sha256:DIGITS.
pub const IMPORT_DIGEST: &str = "ferrovirt.io/import-digest";
/// On claims of data volumes that name a data source: what it stood for when the claim was created, as pvc/NAME or
/// snapshot/NAME.
pub const COPIED_FROM: &str = "ferrovirt.io/copied-from";
/// On data volumes: the claim or snapshot that its creator may copy, as pvc/NAMESPACE/NAME or snapshot/NAMESPACE/NAME.
/// Reviewed when it is written, where virt-api reviews data volumes; nothing elsewhere.
pub const COPY_PERMITTED: &str = "ferrovirt.io/copy-permitted";
/// On exports that serve a copy to another namespace: the data volume, as NAMESPACE/NAME/UID.
pub const COPY_FOR: &str = "ferrovirt.io/copy-for";
/// On such exports: both Secrets with the token exist.
pub const COPY_COMPLETE: &str = "ferrovirt.io/copy-complete";
/// On importer pods: what identifies the export server that the pod reads from.
pub const COPY_LINK: &str = "ferrovirt.io/copy-link";
/// On claims that receive an upload: why the last file did not become a disk.
pub const UPLOAD_REFUSED: &str = "ferrovirt.io/upload-refused";
/// On claims: the restore of a backup that writes to it, or that has; value: JSON.
pub const BACKUP_RESTORE: &str = "ferrovirt.io/backup-restore";
/// On services of exports: the name of the Secret with the certificate of the export server.
pub const EXPORT_CERTIFICATE: &str = "ferrovirt.io/export-certificate";
/// On services of exports: the authority of that certificate, in PEM.
pub const EXPORT_AUTHORITY: &str = "ferrovirt.io/export-authority";
/// On services of exports: the name of the Secret with the token.
pub const EXPORT_TOKEN: &str = "ferrovirt.io/export-token";
/// On claims with the saved state of a guest: what the guest that goes on must have as before; value: JSON.
pub const SUSPENDED_GUEST: &str = "ferrovirt.io/suspended-guest";
/// On VMIs: the checkpoints that trackers need while a backup is made, separated by commas.
pub const KEPT_CHECKPOINTS: &str = "ferrovirt.io/kept-checkpoints";
/// On VMIs: the checkpoint that the backup of a tracker is to build on, or its own if it is to be full.
pub const REQUESTED_CHECKPOINT: &str = "ferrovirt.io/requested-checkpoint";
/// On VMIs: the mode of the backup that is to be made, if it is not to copy the disks.
pub const BACKUP_MODE: &str = "ferrovirt.io/backup-mode";
/// On VMIs: configuration for guests that read it by `fw_cfg`.
pub const IGNITION_DATA: &str = "kubevirt.io/ignitiondata";
/// On VMIs: sidecars that may change the domain.
pub const HOOK_SIDECARS: &str = "hooks.kubevirt.io/hookSidecars";
/// On VMIs: keep the launcher after the hypervisor died, to debug it.
pub const KEEP_LAUNCHER_AFTER_FAILURE: &str = "kubevirt.io/keep-launcher-alive-after-failure";
/// On launcher pods: the default container of `kubectl logs` and `kubectl exec`.
pub const DEFAULT_CONTAINER: &str = "kubectl.kubernetes.io/default-container";
/// On VMs: `false` delays the creation of data volumes to the start.
pub const IMMEDIATE_DATA_VOLUME_CREATION: &str = "kubevirt.io/immediate-data-volume-creation";
/// On hotplug attachment and trigger pods: finds the VMI when the owner chain is broken; value:
/// VMI name.
pub const OWNER_VMI_NAME: &str = "kubevirt.io/owner-vmi-name";
/// On hotplug attachment and trigger pods: same, checked against the live VMI; value: VMI UID.
pub const OWNER_VMI_UID: &str = "kubevirt.io/owner-vmi-uid";
/// On target pods and target attachment pods: reverse lookup of the migration object; value:
/// migration name.
pub const MIGRATION_JOB_NAME: &str = "kubevirt.io/migrationJobName";
/// On migrations: migration made for a drain; enters back-off bookkeeping; value: source node
/// name.
pub const EVACUATION_MIGRATION: &str = "kubevirt.io/evacuationMigration";
/// On migrations: migration made for a launcher update, hotplug or volume update.
pub const WORKLOAD_UPDATE_MIGRATION: &str = "kubevirt.io/workloadUpdateMigration";
/// On VMIs: aborts and blocks workload-update migrations.
pub const TEST_WORKLOAD_UPDATE_MIGRATION_ABORTION: &str =
    "kubevirt.io/testWorkloadUpdateMigrationAbortion";
/// On every managed object, strategy config map and Job: version that made the object; value:
/// version tag.
pub const INSTALL_STRATEGY_VERSION: &str = "kubevirt.io/install-strategy-version";
/// On every managed object, strategy config map and Job: registry that made the object; value:
/// image registry.
pub const INSTALL_STRATEGY_REGISTRY: &str = "kubevirt.io/install-strategy-registry";
/// On every managed object, strategy config map and Job: deployment id that made the object;
/// value: deployment id (sha1).
pub const INSTALL_STRATEGY_IDENTIFIER: &str = "kubevirt.io/install-strategy-identifier";
/// On strategy config map: encoding of the manifests key; value: gzip+base64.
pub const INSTALL_STRATEGY_CM_ENCODING: &str = "kubevirt.io/install-strategy-cm-encoding";
/// On managed objects: change detector; value: hash of `customizeComponents`.
pub const CUSTOMIZER_IDENTIFIER: &str = "kubevirt.io/customizer-identifier";
/// On managed objects: which CR generation made the object; value: `KubeVirt` CR generation.
pub const INSTALLED_BY_GENERATION: &str = "kubevirt.io/generation";
/// On SCC, `ClusterRole` backups during update: temporary copy made while replacing an immutable
/// object.
pub const EPHEMERAL_BACKUP_OBJECT: &str = "kubevirt.io/ephemeral-backup-object";
/// On VMIs: namespaced instancetype used; value: name.
pub const INSTANCETYPE_NAME: &str = "kubevirt.io/instancetype-name";
/// On VMIs: cluster instancetype used; value: name.
pub const CLUSTER_INSTANCETYPE_NAME: &str = "kubevirt.io/cluster-instancetype-name";
/// On VMIs: namespaced preference used; value: name.
pub const PREFERENCE_NAME: &str = "kubevirt.io/preference-name";
/// On VMIs: cluster preference used; value: name.
pub const CLUSTER_PREFERENCE_NAME: &str = "kubevirt.io/cluster-preference-name";
/// On VM template / VMIs: read by the VM metrics as os, workload and flavor labels; value: os,
/// workload, flavor.
pub const VM_METADATA_PREFIX: &str = "vm.kubevirt.io/";
/// On VMIs: VMI is a receiver of a decentralised migration; value: true.
pub const CREATE_MIGRATION_TARGET: &str = "kubevirt.io/create-migration-target";
/// On VMs: strategy to set once a received VM is up; value: run strategy.
pub const RESTORE_RUN_STRATEGY: &str = "kubevirt.io/restore-run-strategy";
/// On VMIs: deprecated marker of unprivileged mode; still maintained on migration; value: true.
pub const NON_ROOT: &str = "kubevirt.io/nonroot";
/// On launcher pods: source and target talk over unix sockets; value: true.
pub const MIGRATION_TRANSPORT_UNIX: &str = "kubevirt.io/migrationTransportUnix";
/// On target pods: guest became active on target; value: time.
pub const MIGRATION_TARGET_READY_TIMESTAMP: &str = "kubevirt.io/migration-target-ready-timestamp";
/// On migrations: overrides the 300 s unschedulable limit; value: integer seconds.
pub const MIGRATION_UNSCHEDULABLE_POD_TIMEOUT_SECONDS: &str =
    "kubevirt.io/migrationUnschedulablePodTimeoutSeconds";
/// On migrations: overrides the 900 s pending limit; value: integer seconds.
pub const MIGRATION_PENDING_POD_TIMEOUT_SECONDS: &str =
    "kubevirt.io/migrationPendingPodTimeoutSeconds";
/// On migrations: overrides the 150 s wait for utility volumes; value: integer seconds.
pub const MIGRATION_UTILITY_VOLUMES_TIMEOUT_SECONDS: &str =
    "kubevirt.io/migrationUtilityVolumesTimeoutSeconds";
/// On VMIs: chooses migration priority; value: descheduler or empty.
pub const EVICTION_SOURCE: &str = "kubevirt.io/eviction-source";
/// On launcher pods: marks eviction as asynchronous for the descheduler.
pub const DESCHEDULER_REQUEST_EVICT_ONLY: &str =
    "descheduler.alpha.kubernetes.io/request-evict-only";
/// On launcher pods: present while the VMI is marked for eviction; value: true.
pub const DESCHEDULER_EVICTION_IN_PROGRESS: &str =
    "descheduler.alpha.kubernetes.io/eviction-in-progress";
/// On VM template, VMIs, launcher pods: always synced VM to VMI to Pod.
pub const DESCHEDULER_EVICT: &str = "descheduler.alpha.kubernetes.io/evict";
/// On VM template, VMIs, launcher pods: always synced VM to VMI to Pod.
pub const DESCHEDULER_PREFER_NO_EVICTION: &str =
    "descheduler.alpha.kubernetes.io/prefer-no-eviction";
/// On VMIs: passed to the launcher; value: libvirt log filter string.
pub const LIBVIRT_LOG_FILTERS: &str = "kubevirt.io/libvirt-log-filters";
/// On VMIs: launcher fails a migration.
pub const FUNC_TEST_FORCE_LAUNCHER_MIGRATION_FAILURE: &str =
    "kubevirt.io/func-test-force-launcher-migration-failure";
/// On VMIs: target preparation never ends.
pub const FUNC_TEST_BLOCK_MIGRATION_TARGET_PREPARATION: &str =
    "kubevirt.io/func-test-block-migration-target-preparation";
/// On migrations: image of the target compute container; value: image.
pub const FUNC_TEST_MIGRATION_TARGET_IMAGE_OVERRIDE: &str =
    "kubevirt.io/func-test-migration-target-image-override";
/// On VMIs: launcher simulates a crash at start.
pub const FUNC_TEST_VIRT_LAUNCHER_FAIL_FAST: &str = "kubevirt.io/func-test-virt-launcher-fail-fast";
/// On migrations: skips migration back-off.
pub const FUNC_TEST_IGNORE_MIGRATION_BACKOFF: &str =
    "kubevirt.io/func-test-ignore-migration-backoff";
/// On VMIs: memory hotplug fails.
pub const FUNC_TEST_MEMORY_HOTPLUG_FAIL: &str = "kubevirt.io/func-test-memory-hotplug-fail";
/// On VMIs: PCI devices get root bus slots, no root ports, no hotplug ports; value: true.
pub const PLACE_PCI_DEVICES_ON_ROOT_COMPLEX: &str = "kubevirt.io/placePCIDevicesOnRootComplex";
/// On VM template, VMIs: frozen total of placeholder plus boot NICs; value: integer.
pub const PCI_INTERFACE_SLOT_COUNT: &str = "kubevirt.io/pci-interface-slot-count";
/// On VMIs: pcihole64 size 0 on the root controller; value: true.
pub const DISABLE_PCI_HOLE64: &str = "kubevirt.io/disablePCIHole64";
/// On VMIs: turns off memfd backing; value: false.
pub const MEMFD: &str = "kubevirt.io/memfd";
/// On VMIs: opts out of balloon free page reporting; value: true.
pub const FREE_PAGE_REPORTING_DISABLED: &str = "kubevirt.io/free-page-reporting-disabled";
/// On VMIs: makes a pod-network bridge VMI migratable.
pub const ALLOW_POD_BRIDGE_NETWORK_LIVE_MIGRATION: &str =
    "kubevirt.io/allow-pod-bridge-network-live-migration";
/// On VMIs: no digest init containers with `ImageVolume`; value: true.
pub const IMAGE_VOLUME_SKIP_DIGEST_RESOLUTION: &str =
    "kubevirt.io/image-volume-skip-digest-resolution";
/// On VMIs: TDX quote service socket; value: path.
pub const QGS_SOCKET_PATH: &str = "kubevirt.io/qgs-socket-path";
/// On VMIs: guest agent ping probes answer success while true; value: parsable bool.
pub const PAUSE_GUEST_AGENT_PROBES: &str = "kubevirt.io/pause-guest-agent-probes";
/// On VMs, VMIs, `KubeVirt`: no Velero freeze hooks on the launcher pod; VM value synced to VMI;
/// value: parsable bool.
pub const SKIP_BACKUP_HOOKS: &str = "kubevirt.io/skip-backup-hooks";
/// On launcher pods: Velero pre hook container; value: compute.
pub const VELERO_PRE_HOOK_CONTAINER: &str = "pre.hook.backup.velero.io/container";
/// On launcher pods: Velero pre hook.
pub const VELERO_PRE_HOOK_COMMAND: &str = "pre.hook.backup.velero.io/command";
/// On launcher pods: Velero pre hook limit; value: 60s.
pub const VELERO_PRE_HOOK_TIMEOUT: &str = "pre.hook.backup.velero.io/timeout";
/// On launcher pods: Velero post hook container; value: compute.
pub const VELERO_POST_HOOK_CONTAINER: &str = "post.hook.backup.velero.io/container";
/// On launcher pods: Velero post hook.
pub const VELERO_POST_HOOK_COMMAND: &str = "post.hook.backup.velero.io/command";
/// On temporary pods: pod that only triggers `WaitForFirstConsumer` binding; value: true.
pub const EPHEMERAL_PROVISIONING: &str = "kubevirt.io/ephemeral-provisioning";
/// On launcher pods: overhead computed for the pod (gate `VmiMemoryOverheadReport`); value:
/// integer bytes.
pub const MEMORY_OVERHEAD_BYTES: &str = "kubevirt.io/memory-overhead-bytes";
/// On launcher pods: device info for SR-IOV and binding plugins, mounted through the downward API.
pub const NETWORK_INFO: &str = "kubevirt.io/network-info";
/// On launcher pods: secondary network attachments; value: JSON list.
pub const CNI_NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";
/// On launcher pods: read back to fill VMI interface status; value: JSON list.
pub const CNI_NETWORK_STATUS: &str = "k8s.v1.cni.cncf.io/network-status";
/// On network attachment definition: device plugin resource requested for the pod; value: resource
/// name.
pub const CNI_RESOURCE_NAME: &str = "k8s.v1.cni.cncf.io/resourceName";
/// On launcher pods: replaces the cluster default network; value: namespace/name.
pub const MULTUS_DEFAULT_NETWORK: &str = "v1.multus-cni.io/default-network";
/// On VMIs, launcher pods: proxy injection; changes masquerade rules; value: true.
pub const ISTIO_INJECT: &str = "sidecar.istio.io/inject";
/// On launcher pods: bridge names the mesh must capture (masquerade); value: k6t-eth0.
pub const ISTIO_KUBEVIRT_INTERFACES: &str = "traffic.sidecar.istio.io/kubevirtInterfaces";
/// On launcher pods: same for newer meshes; value: k6t-eth0.
pub const ISTIO_REROUTE_VIRTUAL_INTERFACES: &str = "istio.io/reroute-virtual-interfaces";
/// On VMIs: read by the sample SMBIOS sidecar; value: string.
pub const SMBIOS_BASE_BOARD_MANUFACTURER: &str = "smbios.vm.kubevirt.io/baseBoardManufacturer";
/// On VMIs: read by the sample disk mutation sidecar; value: file name.
pub const DISK_BOOT_IMAGE_NAME: &str = "diskimage.vm.kubevirt.io/bootImageName";
/// On VMIs: presets are not applied; value: true.
pub const EXCLUDE_PRESETS: &str = "virtualmachineinstancepresets.admission.kubevirt.io/exclude";
/// On VMIs: one per applied preset, suffix is the preset name; value: kubevirt.io/v1.
pub const APPLIED_PRESET_PREFIX: &str = "virtualmachinepreset.kubevirt.io/";
/// On claims: last memory dump stored in the PVC; value: dump name.
pub const MEMORY_DUMP: &str = "kubevirt.io/memory-dump";
/// On storage classes: preferred class for state volumes; value: true.
pub const DEFAULT_VIRT_STORAGE_CLASS: &str = "storageclass.kubevirt.io/is-default-virt-class";
/// On storage classes: true for the class of claims that name none.
pub const DEFAULT_STORAGE_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
/// On storage classes: how the importer should copy their claims: copy, snapshot or csi-clone.
pub const CDI_CLONE_STRATEGY: &str = "cdi.kubevirt.io/clone-strategy";
/// On volume snapshot classes: tie break among several classes.
pub const DEFAULT_SNAPSHOT_CLASS: &str = "snapshot.storage.kubernetes.io/is-default-class";
/// On restored claims, data volumes: made by this restore; value: restore name.
pub const RESTORE_NAME: &str = "restore.kubevirt.io/name";
/// On VMs and claims: name and UID of the last restore that was applied; a clone drops it.
pub const LAST_RESTORE_UID: &str = "restore.kubevirt.io/lastRestoreUID";
/// On restored claims: owner reference to be set once the VM exists; value: restore name.
pub const RESTORE_OWNED_BY_VM: &str = "restore.kubevirt.io/owned-by-vm";
/// On exporter pods: the certificate settings they were made with; another value remakes them.
pub const EXPORT_CERT_PARAMETERS: &str = "kubevirt.io/export.certParameters";
/// On `KubeVirt`, VMIs: emulator threads rounded so the CPU total is even.
pub const EMULATOR_THREAD_COMPLETE_TO_EVEN_PARITY: &str =
    "alpha.kubevirt.io/EmulatorThreadCompleteToEvenParity";
/// On `KubeVirt`: EFI guests keep VGA instead of bochs display.
pub const VGA_DISPLAY_EFI_X86: &str = "kubevirt.io/vga-display-efi-x86";
/// On nodes: labeller leaves this node alone.
pub const SKIP_NODE_LABELLER: &str = "node-labeller.kubevirt.io/skip-node";
/// On nodes: KSM was switched on by the handler; value: true or false.
pub const KSM_HANDLER_MANAGED: &str = "kubevirt.io/ksm-handler-managed";
/// On nodes: KSM tuning; value: integer >= 0 (default 300).
pub const KSM_PAGES_BOOST_OVERRIDE: &str = "kubevirt.io/ksm-pages-boost-override";
/// On nodes: KSM tuning; value: integer <= 0 (default -50).
pub const KSM_PAGES_DECAY_OVERRIDE: &str = "kubevirt.io/ksm-pages-decay-override";
/// On nodes: KSM tuning; value: integer (default 64).
pub const KSM_PAGES_MIN_OVERRIDE: &str = "kubevirt.io/ksm-pages-min-override";
/// On nodes: KSM tuning; value: integer (default 1250).
pub const KSM_PAGES_MAX_OVERRIDE: &str = "kubevirt.io/ksm-pages-max-override";
/// On nodes: KSM tuning; value: integer (default 100).
pub const KSM_PAGES_INIT_OVERRIDE: &str = "kubevirt.io/ksm-pages-init-override";
/// On nodes: KSM tuning; value: integer >= 1 (default 100).
pub const KSM_SLEEP_MS_BASELINE_OVERRIDE: &str = "kubevirt.io/ksm-sleep-ms-baseline-override";
/// On nodes: KSM tuning; value: float 0..1 (default 0.2).
pub const KSM_FREE_PERCENT_OVERRIDE: &str = "kubevirt.io/ksm-free-percent-override";
/// On webhook configurations, `APIServices`: whose CA bundle is injected; value: Secret name.
pub const CERTIFICATES_SECRET: &str = "certificates.kubevirt.io/secret";
/// On certificate Secrets: lifetime asked; a change re-issues; value: Go duration.
pub const CERTIFICATE_DURATION: &str = "kubevirt.io/duration";
/// On requests for evictions: the requesting component; `sigs.k8s.io/descheduler` for the descheduler.
pub const REQUESTED_BY: &str = "requested-by";
/// On data volume made from a template: importer may adopt an existing PVC; value: true.
pub const CDI_ALLOW_CLAIM_ADOPTION: &str = "cdi.kubevirt.io/allowClaimAdoption";
/// On data volumes, claims: bind at once.
pub const CDI_BIND_IMMEDIATE_REQUESTED: &str = "cdi.kubevirt.io/storage.bind.immediate.requested";
/// On claims: an upload can be received, or why not; value: true or false.
pub const CDI_RUNNING: &str = "cdi.kubevirt.io/storage.condition.running";
/// On claims: a sentence about the former.
pub const CDI_RUNNING_MESSAGE: &str = "cdi.kubevirt.io/storage.condition.running.message";
/// On claims: the reason of the former; value: a reason of conditions.
pub const CDI_RUNNING_REASON: &str = "cdi.kubevirt.io/storage.condition.running.reason";
/// On claims: content kind; value: kubevirt or archive.
pub const CDI_CONTENT_TYPE: &str = "cdi.kubevirt.io/storage.contentType";
/// On data volumes: keep after success; value: false.
pub const CDI_DELETE_AFTER_COMPLETION: &str = "cdi.kubevirt.io/storage.deleteAfterCompletion";
/// On claims: upload progress; value: pod phase.
pub const CDI_POD_PHASE: &str = "cdi.kubevirt.io/storage.pod.phase";
/// On claims: upload server ready; value: true.
pub const CDI_POD_READY: &str = "cdi.kubevirt.io/storage.pod.ready";
/// On claims: PVC counts as populated for that `DataVolume`; value: `DataVolume` name.
pub const CDI_POPULATED_FOR: &str = "cdi.kubevirt.io/storage.populatedFor";
/// On data volumes: importer leaves the data alone; value: `DataVolume` name or true.
pub const CDI_PRE_POPULATED: &str = "cdi.kubevirt.io/storage.prePopulated";
/// On claims: temporary PVC of a populator; value: PVC name.
pub const CDI_POPULATOR_PVC_PRIME: &str = "cdi.kubevirt.io/storage.populator.pvcPrime";
/// On claims: PVC is an upload target.
pub const CDI_UPLOAD_TARGET: &str = "cdi.kubevirt.io/storage.upload.target";
/// On data volumes, claims: populator in use; value: true or false.
pub const CDI_USE_POPULATOR: &str = "cdi.kubevirt.io/storage.usePopulator";

/// Annotations of a node that belong to virt-handler.
pub const HANDLER_NODE_ANNOTATIONS: [&str; 3] = [HEARTBEAT, HANDLER_ADDRESS, MISSING_REQUIREMENTS];
