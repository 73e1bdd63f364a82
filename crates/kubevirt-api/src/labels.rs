//! Label keys. Selectors of users and other programs depend on them. A constant that ends in `PREFIX`
//! is the start of a key.

/// Marks an object as a part of the system; the value names the part.
pub const COMPONENT: &str = "kubevirt.io";
/// Value of [`COMPONENT`] on launcher pods.
pub const COMPONENT_VIRT_LAUNCHER: &str = "virt-launcher";
/// Value of [`COMPONENT`] on pods that populate a claim.
pub const COMPONENT_DISK_IMPORT: &str = "disk-import";
/// Value of [`COMPONENT`] on pods and services of exports.
pub const COMPONENT_EXPORTER: &str = "virt-exporter";
/// On the definition of data volumes: it was installed with Ferrovirt, whose importer populates them.
pub const OWN_IMPORTER: &str = "ferrovirt.io/importer";
/// On claims with the saved state of a guest: the UID of its VM.
pub const SUSPENDED_VM: &str = "ferrovirt.io/suspended-vm";
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
/// Conventional label for selectors of users.
pub const VM: &str = "kubevirt.io/vm";
/// On launcher pods: host name of the guest; an older selector for services.
pub const VM_NAME: &str = "vm.kubevirt.io/name";
/// On launcher pods: name of the VMI, shortened with a hash when too long for a label.
pub const VMI_ID: &str = "vmi.kubevirt.io/id";
/// On VMIs and launcher pods whose launcher image is no longer the current one.
pub const OUTDATED_LAUNCHER_IMAGE: &str = "kubevirt.io/outdatedLauncherImage";
/// On deployments, daemon sets and pods of components: older label with the component name.
pub const COMPONENT_NAME: &str = "name";
/// On component Deployments (object metadata only): names the component workload; value: the
/// Deployment name.
pub const APP_NAME: &str = "app.kubernetes.io/name";
/// On managed objects and their pod templates: product version taken from the `KubeVirt` CR;
/// value: spec.productVersion.
pub const APP_VERSION: &str = "app.kubernetes.io/version";
/// On every managed object: component grouping label; value: spec.productComponent, else kubevirt.
pub const APP_COMPONENT: &str = "app.kubernetes.io/component";
/// On every managed object: umbrella product label; value: spec.productName.
pub const APP_PART_OF: &str = "app.kubernetes.io/part-of";
/// On every managed object: selector used by the operator informers and by the mutating pod hooks.
pub const APP_MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// On state claims of a target: name of the migration they were made for.
pub const MIGRATION_NAME: &str = "kubevirt.io/migrationName";
/// On migrations: selector for migrations of one VMI; immutable while not final; value: VMI name.
pub const MIGRATION_VMI_NAME: &str = "kubevirt.io/vmi-name";
/// On migrations: migration carries a volume replacement.
pub const VOLUME_UPDATE_MIGRATION: &str = "kubevirt.io/volume-update-migration";
/// On nodes: deprecated copy of kubevirt.io/cpumanager; value: true or false.
pub const CPU_MANAGER_OLD: &str = "cpumanager";
/// On nodes: kubelet static CPU manager found and gate on; value: true or false.
pub const CPU_MANAGER: &str = "kubevirt.io/cpumanager";
/// On VMs, VM template, VMIs: pool revision of this VM; value: `ControllerRevision` name.
pub const POOL_REVISION_NAME: &str = "kubevirt.io/vm-pool-revision-name";
/// On claims, data volumes, data sources: source for spec.instancetype.inferFromVolume; value:
/// name.
pub const DEFAULT_INSTANCETYPE: &str = "instancetype.kubevirt.io/default-instancetype";
/// On claims, data volumes, data sources: kind for the above.
pub const DEFAULT_INSTANCETYPE_KIND: &str = "instancetype.kubevirt.io/default-instancetype-kind";
/// On claims, data volumes, data sources: source for spec.preference.inferFromVolume; value: name.
pub const DEFAULT_PREFERENCE: &str = "instancetype.kubevirt.io/default-preference";
/// On claims, data volumes, data sources: kind for the above.
pub const DEFAULT_PREFERENCE_KIND: &str = "instancetype.kubevirt.io/default-preference-kind";
/// On controller revisions: generation of the stashed object; value: integer.
pub const OBJECT_GENERATION: &str = "instancetype.kubevirt.io/object-generation";
/// On controller revisions: kind of the stashed object; value: kind.
pub const OBJECT_KIND: &str = "instancetype.kubevirt.io/object-kind";
/// On controller revisions: name of the stashed object; value: name.
pub const OBJECT_NAME: &str = "instancetype.kubevirt.io/object-name";
/// On controller revisions: uid of the stashed object; value: UID.
pub const OBJECT_UID: &str = "instancetype.kubevirt.io/object-uid";
/// On controller revisions: version the stashed object is stored in (latest v1beta1); value: API
/// version.
pub const OBJECT_VERSION: &str = "instancetype.kubevirt.io/object-version";
/// On instance types and preferences: vendor; metrics name only known vendors.
pub const INSTANCETYPE_VENDOR: &str = "instancetype.kubevirt.io/vendor";
/// On what a template request has made: its UID.
pub const TEMPLATE_REQUEST_UID: &str = "template.kubevirt.io/RequestUID";
/// On data sources: architecture default for the VM when unset; value: amd64, arm64, s390x.
pub const TEMPLATE_ARCHITECTURE: &str = "template.kubevirt.io/architecture";
/// On VMIs: ratio in force when a memory hotplug began; value: float string.
pub const MEMORY_HOTPLUG_OVERHEAD_RATIO: &str = "kubevirt.io/memory-hotplug-overhead-ratio";
/// On VMIs: CPU limit of the target pod (dedicated CPU hotplug); value: integer.
pub const VMI_POD_CPU_RESOURCE_LIMITS: &str = "kubevirt.io/vmi-pod-cpu-resource-limits";
/// On VMIs: memory request of the target pod (memory hotplug); value: quantity.
pub const VMI_POD_MEMORY_RESOURCE_REQUESTS: &str = "kubevirt.io/vmi-pod-memory-resource-requests";
/// On VMIs, launcher pods: proxy injection; changes masquerade rules; value: true.
pub const ISTIO_INJECT: &str = "sidecar.istio.io/inject";
/// On launcher pods: suffix is a PVC UID; pods sharing a reserved PVC avoid one node.
pub const PERSISTENT_RESERVATION_PREFIX: &str = "pr.kubevirt.io/";
/// On claims: state volume of a VM (TPM, NVRAM, CBT); value: VM or VMI name.
pub const PERSISTENT_STATE_FOR: &str = "persistent-state-for";
/// On volume snapshot: origin of the snapshot; value: VM name.
pub const SNAPSHOT_SOURCE_VM_NAME: &str = "snapshot.kubevirt.io/source-vm-name";
/// On volume snapshot: origin of the snapshot; value: namespace.
pub const SNAPSHOT_SOURCE_VM_NAMESPACE: &str = "snapshot.kubevirt.io/source-vm-namespace";
/// On restored claims: origin; value: VM name.
pub const RESTORE_SOURCE_VM_NAME: &str = "restore.kubevirt.io/source-vm-name";
/// On restored claims: origin; value: namespace.
pub const RESTORE_SOURCE_VM_NAMESPACE: &str = "restore.kubevirt.io/source-vm-namespace";
/// On old state claims: deleted at the end of the restore; value: name of the clean-up set.
pub const RESTORE_CLEANUP_BACKEND_PVC: &str = "restore.kubevirt.io/cleanup-backend-pvc";
/// On exporter pods: Service selector; value: export name (hashed when long).
pub const EXPORT_SERVICE: &str = "kubevirt.io.virt-export-service";
/// On VMs, namespaces: value used by the shipped selector example for CBT; value: true.
pub const CHANGED_BLOCK_TRACKING: &str = "changedBlockTracking";
/// On namespaces: ratio for automatic memory limits (default 2); value: float >= 1.
pub const AUTO_MEMORY_LIMITS_RATIO: &str = "alpha.kubevirt.io/auto-memory-limits-ratio";
/// On nodes: usable host CPU feature; value: true.
pub const CPU_FEATURE_PREFIX: &str = "cpu-feature.node.kubevirt.io/";
/// On nodes: usable CPU model (not obsolete, usable=yes); value: true.
pub const CPU_MODEL_PREFIX: &str = "cpu-model.node.kubevirt.io/";
/// On nodes: known CPU model, target check for host-model migration; value: true.
pub const CPU_MODEL_MIGRATION_PREFIX: &str = "cpu-model-migration.node.kubevirt.io/";
/// On nodes: TSC counter facts.
pub const CPU_TIMER_PREFIX: &str = "cpu-timer.node.kubevirt.io/";
/// On nodes: CPU vendor; value: true.
pub const CPU_VENDOR_PREFIX: &str = "cpu-vendor.node.kubevirt.io/";
/// On nodes: model that host-model resolves to; value: true.
pub const HOST_MODEL_CPU_PREFIX: &str = "host-model-cpu.node.kubevirt.io/";
/// On nodes: features that host-model requires; value: true.
pub const HOST_MODEL_REQUIRED_FEATURES_PREFIX: &str =
    "host-model-required-features.node.kubevirt.io/";
/// On nodes: supported Hyper-V enlightenment; value: true.
pub const HYPERV_PREFIX: &str = "hyperv.node.kubevirt.io/";
/// On nodes: supported machine type; value: true.
pub const MACHINE_TYPE_PREFIX: &str = "machine-type.node.kubevirt.io/";
/// On nodes: suffix is a usable TSC frequency; value: true.
pub const TSC_FREQUENCY_PREFIX: &str = "scheduling.node.kubevirt.io/tsc-frequency-";
/// On nodes: host model is on the obsolete list; value: true.
pub const OBSOLETE_HOST_MODEL: &str = "node-labeller.kubevirt.io/obsolete-host-model";
/// On nodes: `kernel.sched_rt_runtime_us` is -1; value: true.
pub const REALTIME: &str = "kubevirt.io/realtime";
/// On nodes: SEV capable; value: true.
pub const SEV: &str = "kubevirt.io/sev";
/// On nodes: SEV-ES capable; value: true.
pub const SEV_ES: &str = "kubevirt.io/sev-es";
/// On nodes: SEV-SNP capable; value: true.
pub const SEV_SNP: &str = "kubevirt.io/sev-snp";
/// On nodes: TDX capable; value: true.
pub const TDX: &str = "kubevirt.io/tdx";
/// On nodes: s390x protected virtualisation capable; value: true.
pub const S390_PV: &str = "kubevirt.io/s390-pv";
/// On nodes: suffix is a guest architecture (gate `CrossArchitectureVirtualization`); value: true.
pub const GUEST_ARCHITECTURE_PREFIX: &str = "kubevirt.io/vm-arch-";
/// On nodes: node matches the KSM selector; value: true or false.
pub const KSM_ENABLED: &str = "kubevirt.io/ksm-enabled";
/// On component pods and the pod of the strategy job: pod selector for egress network policies;
/// value: true.
pub const ALLOW_ACCESS_CLUSTER_SERVICES: &str = "np.kubevirt.io/allow-access-cluster-services";
/// On metrics Service, component pods, `ServiceMonitor`, `PrometheusRule`: metrics selection;
/// value: true (empty on some).
pub const PROMETHEUS: &str = "prometheus.kubevirt.io";
/// On nodes of the object graph: storage, compute, network or config.
pub const DEPENDENCY_TYPE: &str = "kubevirt.io/dependency-type";
/// On VMIs: launcher log verbosity; value: integer.
pub const LOG_VERBOSITY: &str = "logVerbosity";
/// On VMIs: libvirt debug logs; value: true.
pub const DEBUG_LOGS: &str = "debugLogs";
/// On VMIs: virtiofsd debug logs; value: true.
pub const VIRTIOFSD_DEBUG_LOGS: &str = "virtiofsdDebugLogs";
/// On claims: importer webhook fills PVC fields; value: true.
pub const CDI_APPLY_STORAGE_PROFILE: &str = "cdi.kubevirt.io/applyStorageProfile";
/// On data volumes and data sources: the name of the periodic import that made them.
pub const CDI_DATA_IMPORT_CRON: &str = "cdi.kubevirt.io/dataImportCron";

/// Keys that only our own components may put on a VMI.
pub const RESERVED_ON_VMI: &[&str] = &[
    CREATED_BY,
    MIGRATION_JOB_UID,
    NODE_NAME,
    MIGRATION_TARGET_NODE_NAME,
    SCHEDULABLE,
    INSTALL_STRATEGY,
];

/// Prefixes of a node's labels that belong to virt-handler.
pub const HANDLER_NODE_PREFIXES: [&str; 9] = [
    CPU_FEATURE_PREFIX,
    CPU_MODEL_PREFIX,
    CPU_MODEL_MIGRATION_PREFIX,
    CPU_TIMER_PREFIX,
    CPU_VENDOR_PREFIX,
    HOST_MODEL_CPU_PREFIX,
    HOST_MODEL_REQUIRED_FEATURES_PREFIX,
    HYPERV_PREFIX,
    MACHINE_TYPE_PREFIX,
];
/// Other labels of a node that belong to virt-handler.
pub const HANDLER_NODE_LABELS: [&str; 5] = [
    SCHEDULABLE,
    CPU_MANAGER,
    CPU_MANAGER_OLD,
    OBSOLETE_HOST_MODEL,
    REALTIME,
];
