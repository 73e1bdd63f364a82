//! Every cause, the deepest first.

use reasons::Reason as R;

use crate::{
    Rule,
    Severity::{Broken, Notice, Off, Waiting},
    backup_restores, backups, components, deletion, ending, images, moves, nodes, paused, pods,
    refusals, vm, vmi, volumes,
};

/// The order is the order of the output: a cause may be the reason for those below it.
#[rustfmt::skip]
pub const TABLE: &[Rule] = &[
    // Deletion.
    Rule::new("deletion-blocked", Broken, "the VM is being deleted, and a finalizer of another component blocks it", deletion::vm_held),
    Rule::new("instance-deletion-blocked", Broken, "the VMI is being deleted, and a finalizer of another component blocks it", deletion::vmi_held),
    Rule::new("stop-ignored", Broken, "the guest does not shut down", deletion::stop_ignored),
    Rule::new("deleting", Waiting, "the VM is being deleted", deletion::deleting),
    Rule::new("stopping", Waiting, "the guest is shutting down", deletion::stopping),
    // No component acts, or none has the right to.
    Rule::new("component-unavailable", Broken, "a component of Ferrovirt reports that it cannot work", components::unavailable).explains(components::REPORTED),
    Rule::new("component-image", Broken, "an image of Ferrovirt itself cannot be pulled", components::image).explains(images::PULLING),
    Rule::new("component-failing", Broken, "a component of Ferrovirt crashes repeatedly", components::failing).explains(&[R::CrashLoopBackOff]),
    Rule::new("name-taken", Broken, "another VMI has the name of the VM", vm::name_taken),
    Rule::new("controller-silent", Broken, "no controller has processed the VM", vm::controller_silent),
    Rule::new("webhook-certificate", Broken, "an admission webhook has an invalid certificate", refusals::webhook_certificate).explains(&[R::FailedCreate]),
    Rule::new("webhook-unreachable", Broken, "an admission webhook does not answer", refusals::webhook_unreachable).explains(&[R::FailedCreate]),
    Rule::new("quota-exceeded", Broken, "a resource quota is used up", refusals::quota).explains(&[R::FailedCreate]),
    Rule::new("controller-forbidden", Broken, "virt-controller does not have a permission that it needs", refusals::forbidden).explains(&[R::FailedCreate]),
    Rule::new("namespace-terminating", Broken, "the namespace is being deleted", refusals::namespace).explains(&[R::FailedCreate]),
    Rule::new("instance-refused", Broken, "the API server rejects the VMI", refusals::vmi).explains(&[R::FailedCreate]),
    Rule::new("feature-not-supported", Broken, "the VM asks for a feature that this version cannot run", vmi::not_supported).explains(&[R::FeatureNotSupported]),
    Rule::new("device-not-permitted", Broken, "the cluster does not permit a device of the guest", refusals::device).explains(&[R::FailedCreate]),
    // Objects that the guest needs.
    Rule::new("claim-missing", Broken, "a persistent volume claim does not exist", volumes::claim_missing).explains(&[R::FailedPvcNotFound]),
    Rule::new("claim-lost", Broken, "a claim has lost its volume", volumes::claim_lost).explains(&[R::ClaimLost]),
    Rule::new("data-volume-missing", Broken, "a data volume does not exist", volumes::data_volume_missing).explains(&[R::FailedPvcNotFound]),
    Rule::new("claim-restoring", Waiting, "a backup is being restored to a claim", backup_restores::claim_waits).explains(&[R::ClaimBeingRestored]),
    Rule::new("data-volume-failed", Broken, "a data volume cannot be populated", volumes::data_volume_failed).explains(&[R::FailedDataVolumeImport]),
    Rule::new("data-volume-importing", Waiting, "a data volume is being populated", volumes::data_volume_importing).explains(&[R::NotAllDVsReady]),
    Rule::new("storage-class-missing", Broken, "a claim names a storage class that does not exist", volumes::storage_class_missing).explains(&[R::ProvisioningFailed]),
    Rule::new("claim-waits-for-consumer", Waiting, "a claim is bound once its pod has a node", volumes::claim_waits).explains(&[R::WaitForFirstConsumer]),
    Rule::new("claim-pending", Broken, "a claim is not bound", volumes::claim_pending).explains(volumes::PROVISIONING),
    Rule::new("secret-missing", Broken, "a Secret does not exist", volumes::secret_missing),
    Rule::new("config-map-missing", Broken, "a ConfigMap does not exist", volumes::config_map_missing),
    Rule::new("service-account-missing", Broken, "a ServiceAccount does not exist", volumes::service_account_missing),
    Rule::new("launcher-image", Broken, "the launcher image cannot be pulled", images::of_launcher).explains(images::PULLING),
    Rule::new("image-name-invalid", Broken, "invalid image name", images::name_invalid).explains(&[R::InvalidImageName]),
    Rule::new("image-missing", Broken, "an image does not exist in its registry", images::missing).explains(images::PULLING),
    Rule::new("image-forbidden", Broken, "the registry denied access to an image", images::forbidden).explains(images::PULLING),
    Rule::new("registry-unreachable", Broken, "a registry does not answer", images::unreachable).explains(images::PULLING),
    Rule::new("image-pull", Broken, "an image cannot be pulled", images::other).explains(images::PULLING),
    // Nodes and scheduling.
    Rule::new("no-nodes", Broken, "there is no node", nodes::none),
    Rule::new("node-gone", Broken, "the guest's node does not exist any more", nodes::gone),
    Rule::new("node-not-ready", Broken, "the guest's node is not ready", nodes::not_ready),
    Rule::new("nodes-cordoned", Broken, "all nodes are cordoned", nodes::cordoned).explains(nodes::SCHEDULING),
    Rule::new("handler-silent", Broken, "virt-handler on the guest's node does not report", nodes::handler_silent),
    Rule::new("device-missing", Broken, "no node has a device that the guest needs", nodes::device_missing).explains(nodes::SCHEDULING),
    Rule::new("memory-short", Broken, "no node has enough free memory", nodes::memory_short).explains(nodes::SCHEDULING),
    Rule::new("cpu-short", Broken, "no node has enough free CPUs", nodes::cpu_short).explains(nodes::SCHEDULING),
    Rule::new("taint", Broken, "a taint keeps the guest off the nodes", nodes::taint).explains(nodes::SCHEDULING),
    Rule::new("no-matching-node", Broken, "no node matches the guest's node selector and affinity", nodes::no_match).explains(nodes::SCHEDULING),
    Rule::new("unschedulable", Broken, "no node can take the guest", nodes::unschedulable).explains(nodes::SCHEDULING),
    // The pod.
    Rule::new("container-config", Broken, "a container cannot be configured", pods::config).explains(pods::CONFIG),
    Rule::new("container-start", Broken, "a container cannot be started", pods::start).explains(pods::START),
    Rule::new("out-of-memory", Broken, "the pod ran out of memory", pods::out_of_memory).explains(&[R::OOMKilled]),
    Rule::new("pod-evicted", Broken, "the pod was evicted", pods::evicted).explains(&[R::Evicted]),
    Rule::new("launcher-crashing", Broken, "the launcher crashes repeatedly", pods::crashing).explains(&[R::CrashLoopBackOff]),
    Rule::new("pod-refused", Broken, "the API server rejects the pod", refusals::pod).explains(&[R::FailedCreate]),
    // The VMI.
    Rule::new("description-refused", Broken, "the guest cannot be built from the spec", vmi::description).explains(vmi::DESCRIPTION),
    Rule::new("seed-unusable", Broken, "the cloud-init data cannot be used", vmi::seed).explains(vmi::SEED),
    Rule::new("disk-missing", Broken, "an image has no disk", vmi::disk_missing).explains(&[R::ContainerDiskMissing]),
    Rule::new("disk-not-copied", Broken, "a disk cannot be copied out of its image", vmi::disk_not_copied).explains(&[R::ContainerDiskNotCopied]),
    Rule::new("disk-unusable", Broken, "a disk cannot be used", vmi::disk_unusable).explains(vmi::DISK),
    Rule::new("network-unusable", Broken, "the network of the pod cannot be set up", vmi::network).explains(vmi::NETWORK),
    Rule::new("start-refused", Broken, "the hypervisor could not start the guest", vmi::start_refused).explains(vmi::START),
    Rule::new("hook-sidecar", Broken, "a hook sidecar keeps the guest from starting", vmi::hook_sidecar).explains(vmi::HOOKS),
    Rule::new("pod-unreachable", Broken, "virt-handler or the launcher cannot work in the pod", vmi::pod_unreachable).explains(vmi::POD),
    Rule::new("node-lost", Broken, "the guest's node stopped reporting", ending::node_lost).explains(&[R::NodeUnresponsive]),
    Rule::new("vmi-blocked", Broken, "the VMI is blocked", vmi::blocked),
    Rule::new("paused-io-error", Broken, "a disk error paused the guest", paused::io_error).explains(&[R::PausedIOError]),
    Rule::new("started-paused", Broken, "the guest was started paused", paused::started).explains(&[R::PausedByUser]),
    Rule::new("paused-by-user", Broken, "a user paused the guest", paused::by_user).explains(&[R::PausedByUser]),
    Rule::new("paused-by-migration", Waiting, "the guest is paused for its migration", paused::by_migration).explains(&[R::PausedByMigrationMonitor]),
    Rule::new("claim-over-capacity", Notice, "a volume is full, or holds more than its capacity", volumes::over_capacity).explains(&[R::ClaimOverCapacity]),
    Rule::new("volume-not-attached", Notice, "a volume cannot be attached to the running guest", volumes::not_attached).explains(volumes::NOT_ATTACHED),
    Rule::new("volume-not-released", Notice, "the running guest keeps a volume that it should lose", volumes::not_released).explains(volumes::NOT_RELEASED),
    Rule::new("interface-not-plugged", Notice, "the running guest does not get or lose an interface", vmi::interface_not_plugged).explains(vmi::PLUGGED),
    Rule::new("pod-lost", Broken, "the guest's pod does not exist any more", vmi::pod_lost),
    Rule::new("guest-crashed", Broken, "the guest kernel panicked", ending::panicked).explains(&[R::GuestPanicked]),
    Rule::new("hypervisor-crashed", Broken, "QEMU crashed", ending::qemu_crashed).explains(&[R::QEMUCrashed]),
    Rule::new("watchdog-expired", Broken, "the guest hung, and its watchdog powered it off", ending::watchdog).explains(&[R::WatchdogExpired]),
    Rule::new("launcher-unresponsive", Broken, "the launcher stopped answering", ending::launcher_unresponsive).explains(&[R::LauncherUnresponsive]),
    Rule::new("migration-lost-guest", Broken, "a failed migration lost the guest", ending::postcopy_failed).explains(&[R::PostcopyFailed]),
    Rule::new("shutdown-forced", Broken, "the guest did not shut down and was switched off", ending::shutdown_forced).explains(&[R::ShutdownForced]),
    // The VM.
    Rule::new("manual-recovery", Broken, "the VM needs manual recovery", vm::manual_recovery).explains(&[R::ManualRecoveryRequired]),
    Rule::new("crash-loop", Broken, "the guest ended repeatedly before it ran", vm::crash_loop),
    Rule::new("guest-failed", Broken, "the guest failed", vmi::failed),
    Rule::new("not-ready", Broken, "the guest runs and is not ready", vmi::not_ready),
    Rule::new("restart-required", Notice, "changes take effect after a restart", vm::restart_required),
    Rule::new("change-pending", Notice, "the running guest follows a change of the VM later", vm::change_pending),
    Rule::new("change-awaits-move", Notice, "a change of the VM takes effect after a migration", moves::change_waits),
    Rule::new("eviction-blocked", Notice, "the guest should leave its node and cannot migrate", vmi::eviction_blocked),
    Rule::new("move-unschedulable", Notice, "no node takes the new pod of a guest that is to move", moves::no_node).explains(&[R::Unschedulable]),
    Rule::new("move-not-converging", Notice, "a guest changes its memory faster than it is copied to another pod", moves::not_converging),
    Rule::new("move-failed", Notice, "the last migration of the guest failed", moves::failed).explains(&[R::FailedMigration]),
    Rule::new("resume-failed", Broken, "the guest could not go on from its saved state", vm::resume_failed).explains(&[R::ResumeFailed]),
    Rule::new("suspend-failed", Notice, "the state of the guest could not be saved", vm::suspend_failed).explains(&[R::SuspendFailed]),
    Rule::new("suspending", Waiting, "the state of the guest is being saved", vm::suspending).explains(&[R::Suspending]),
    Rule::new("suspended", Off, "a user suspended the VM", vm::suspended).explains(&[R::Suspended]),
    Rule::new("backup-failed", Notice, "the last backup of the VM failed", backups::failed).explains(&[R::VirtualMachineBackupFailed]),
    Rule::new("backup-waits", Notice, "a backup of the VM has not begun", backups::waits).explains(&[R::Initializing]),
    Rule::new("backup-restore-failed", Notice, "the last restore of a backup of the VM failed", backup_restores::failed).explains(&[R::VirtualMachineBackupRestoreFailed]),
    Rule::new("backup-restore-waits", Notice, "a restore of a backup of the VM waits", backup_restores::waits).explains(&[R::BackupRestoreWaits]),
    Rule::new("halted", Off, "the VM is off, as its run strategy requests", vm::halted),
    Rule::new("not-started", Off, "the VM was not started by a user", vm::not_started),
    Rule::new("ended-well", Off, "the guest shut itself down", vm::ended_well),
    // Fallbacks, where nothing more precise is known.
    Rule::new("starting", Waiting, "the guest is starting", vmi::starting).if_nothing_found(),
    Rule::new("warned", Broken, "there is a warning event", vm::warned).if_nothing_found(),
    Rule::new("unexplained", Broken, "the guest does not run, and no object has an explanation", vm::unexplained).if_nothing_found(),
];

/// Whether a rule explains this reason of a condition.
pub(crate) fn is_explained(reason: &str) -> bool {
    TABLE
        .iter()
        .any(|rule| rule.reasons.iter().any(|known| *known == *reason))
}
