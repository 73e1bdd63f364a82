//! Obstacles to a migration other than disks.

use kubevirt_api::{VirtualMachineInstance, annotations, vmi_status::VolumePhase};
use model::{
    Attachment, BindingPlugin, Guest, KeptState, LinkState, Target, backup_volume,
    is_backup_volume, last_backup,
};
use reasons::Reason;

use super::{Input, Obstacle, Reach, StateSharing};

const HOST_MODEL: &str = "host-model";

/// All checks, in order of precedence.
const CHECKS: [fn(&Input<'_>) -> Option<Obstacle>; 16] = [
    interfaces,
    leaving_interfaces,
    bound_interfaces,
    virtual_functions,
    cpu_model,
    host_devices,
    sev,
    tdx,
    secure_execution,
    tsc,
    hyperv,
    kept_state,
    hotplugged,
    helpers,
    vsock,
    reservations,
];

pub(super) fn find(input: &Input<'_>) -> Vec<Obstacle> {
    CHECKS.iter().filter_map(|check| check(input)).collect()
}

fn obstacle(reason: Reason, message: impl Into<String>) -> Obstacle {
    Obstacle {
        reason,
        message: message.into(),
    }
}

fn interfaces(input: &Input<'_>) -> Option<Obstacle> {
    let spec = &input.vmi.spec;
    let pod = spec.networks.iter().find(|network| network.pod.is_some())?;
    let interfaces = &spec.domain.devices.interfaces;
    let interface = interfaces.iter().find(|one| one.name == pod.name)?;
    let annotated = input.vmi.metadata.annotations.as_ref();
    let allowed = annotated
        .is_some_and(|all| all.contains_key(annotations::ALLOW_POD_BRIDGE_NETWORK_LIVE_MIGRATION));
    // A single host passes frames of a pod's own addresses alone, and the guest has those of its first pod.
    let is_filtered = input.reach == Reach::OwnNode;
    let used = interface.binding.as_ref();
    let registered = used.and_then(|used| input.bindings.get(&used.name));
    let plugin_migrates = registered.is_some_and(|registered| {
        let attachment = BindingPlugin::of(registered).attachment;
        registered.migration.is_some() && !(is_filtered && attachment != Attachment::Sidecar)
    });
    let migratable = interface.masquerade.is_some()
        || interface.passt_binding.is_some()
        || plugin_migrates
        || (interface.bridge.is_some() && allowed && !is_filtered);
    if let Some(used) = used.filter(|_| registered.is_none()) {
        let message = format!(
            "interface {}: the cluster no longer has the network binding {:?}: have the administrator register it",
            interface.name, used.name
        );
        return Some(obstacle(Reason::InterfaceNotLiveMigratable, message));
    }
    (!migratable).then(|| {
        obstacle(
            Reason::InterfaceNotLiveMigratable,
            format!(
                "interface {} is on the pod network with a binding that does not survive a change \
                 of the pod's address: use masquerade",
                interface.name
            ),
        )
    })
}

/// The new pod would not have the network of an interface that the guest is to lose, and still has.
fn leaving_interfaces(input: &Input<'_>) -> Option<Obstacle> {
    let guest = Guest::of(input.vmi);
    let has_it = |name: &str| {
        let mut shown = input
            .vmi
            .status
            .iter()
            .flat_map(|status| &status.interfaces);
        shown.any(|one| {
            let sources = one.info_source.as_deref().unwrap_or_default();
            one.name.as_deref() == Some(name) && sources.split(", ").any(|one| one == "domain")
        })
    };
    let mut leaving = guest
        .interfaces
        .iter()
        .filter(|one| one.is_pluggable() && one.link == LinkState::Absent && has_it(one.name()));
    let name = leaving.next()?.name();
    Some(obstacle(
        Reason::InterfaceNotLiveMigratable,
        format!("interface {name} is being taken from the guest: it can move after that"),
    ))
}

/// Two macvlans of one link cannot have the same hardware address, which is the guest's.
fn bound_interfaces(input: &Input<'_>) -> Option<Obstacle> {
    let name = input.bound_interfaces?.first()?;
    (input.reach == Reach::OwnNode).then(|| {
        obstacle(
            Reason::InterfaceNotLiveMigratable,
            format!(
                "interface {name} is on a macvlan, whose hardware address cannot be in two pods of one \
                 node: use a network of type bridge"
            ),
        )
    })
}

fn virtual_functions(input: &Input<'_>) -> Option<Obstacle> {
    let interfaces = input.vmi.spec.domain.devices.interfaces.iter();
    let mut functions = interfaces.filter(|interface| interface.sriov.is_some());
    functions.next().map(|interface| {
        obstacle(
            Reason::InterfaceNotLiveMigratable,
            format!(
                "interface {} is a device of its host (SR-IOV)",
                interface.name
            ),
        )
    })
}

fn cpu_model(input: &Input<'_>) -> Option<Obstacle> {
    let cpu = input.vmi.spec.domain.cpu.as_ref()?;
    let host_model = cpu.model.as_deref() == Some(HOST_MODEL);
    let is_needed = host_model && input.reach == Reach::OtherNodes;
    (is_needed && input.host_model_is_obsolete).then(|| {
        obstacle(
            Reason::CPUModeNotLiveMigratable,
            "the guest uses the CPU model of its host, which is obsolete: set a CPU model",
        )
    })
}

fn host_devices(input: &Input<'_>) -> Option<Obstacle> {
    let devices = &input.vmi.spec.domain.devices;
    let has_any = !devices.host_devices.is_empty() || !devices.gpus.is_empty();
    has_any.then(|| {
        obstacle(
            Reason::HostDeviceNotLiveMigratable,
            "the guest uses a device of its host",
        )
    })
}

fn sev(input: &Input<'_>) -> Option<Obstacle> {
    let security = input.vmi.spec.domain.launch_security.as_ref()?;
    let found = security.sev.is_some() || security.snp.is_some();
    found.then(|| {
        obstacle(
            Reason::SEVNotLiveMigratable,
            "the guest's memory is encrypted by SEV",
        )
    })
}

fn tdx(input: &Input<'_>) -> Option<Obstacle> {
    let security = input.vmi.spec.domain.launch_security.as_ref()?;
    security.tdx.as_ref().map(|_| {
        obstacle(
            Reason::TDXNotLiveMigratable,
            "the guest's memory is encrypted by TDX",
        )
    })
}

fn secure_execution(input: &Input<'_>) -> Option<Obstacle> {
    let spec = &input.vmi.spec;
    let secure = spec.domain.launch_security.is_some();
    (secure && spec.architecture.as_deref() == Some("s390x")).then(|| {
        obstacle(
            Reason::SecureExecutionNotLiveMigratable,
            "the guest uses IBM Secure Execution",
        )
    })
}

fn tsc(input: &Input<'_>) -> Option<Obstacle> {
    let features = input.vmi.spec.domain.features.as_ref()?;
    let feature = features.hyperv.as_ref()?.reenlightenment.as_ref()?;
    let status = input.vmi.status.as_ref();
    let hints = status.and_then(|status| status.topology_hints.as_ref());
    let known = hints.is_some_and(|hints| hints.tsc_frequency.is_some());
    (feature.enabled != Some(false) && !known).then(|| {
        obstacle(
            Reason::NoTSCFrequencyNotLiveMigratable,
            "the guest depends on the TSC frequency, which is unknown",
        )
    })
}

fn hyperv(input: &Input<'_>) -> Option<Obstacle> {
    let features = input.vmi.spec.domain.features.as_ref()?;
    let passthrough = features.hyperv_passthrough.as_ref()?;
    (passthrough.enabled != Some(false)).then(|| {
        obstacle(
            Reason::HypervPassthroughNotLiveMigratable,
            "the guest passes through the Hyper-V enlightenments of its host",
        )
    })
}

/// Disks that were attached move along; a volume that is on its way, or in which the pod writes, does not.
fn hotplugged(input: &Input<'_>) -> Option<Obstacle> {
    let status = input.vmi.status.as_ref()?;
    let volumes = status.volume_status.iter();
    let mut plugged = volumes.filter(|volume| volume.hotplug_volume.is_some());
    plugged.find_map(|volume| {
        let name = &volume.name;
        if receives_backup(input.vmi, name) {
            let message = format!("volume {name} receives a backup");
            return Some(obstacle(Reason::BackupInProgress, message));
        }
        let why = match &volume.phase {
            Some(VolumePhase::MemoryDumpCompleted | VolumePhase::MemoryDumpFailed) => return None,
            Some(VolumePhase::Detaching) => "is leaving the guest: it can move after that",
            _ if volume.memory_dump_volume.is_some() => "receives the guest's memory",
            _ => return None,
        };
        let message = format!("volume {name} {why}");
        Some(obstacle(Reason::HotplugNotLiveMigratable, message))
    })
}

/// The volume may still leave the pod when it has left the spec.
fn receives_backup(vmi: &VirtualMachineInstance, volume: &str) -> bool {
    let name = last_backup(vmi).and_then(|status| status.backup_name.as_deref());
    is_backup_volume(vmi, volume) || name.is_some_and(|name| backup_volume(name) == volume)
}

/// The processes that share the guest's memory have a state of their own.
fn helpers(input: &Input<'_>) -> Option<Obstacle> {
    let is_served = Guest::of(input.vmi).shares_memory();
    is_served.then(|| {
        obstacle(
            Reason::LiveMigrationNotSupported,
            "this version cannot migrate guests with shared filesystems or passt",
        )
    })
}

fn kept_state(input: &Input<'_>) -> Option<Obstacle> {
    let kept = Guest::of(input.vmi).kept_state();
    if kept.is_empty() {
        return None;
    }
    if kept.contains(&KeptState::Tpm) {
        // libvirt refuses: the swtpm of Debian 13 cannot give its lock on the state away.
        let message =
            "the guest keeps a TPM, whose emulator (swtpm) cannot move with its state on a claim";
        return Some(obstacle(Reason::LiveMigrationNotSupported, message));
    }
    let message = match (input.state, input.reach) {
        (StateSharing::AllPods, _) | (StateSharing::PodsOfNode, Reach::OwnNode) => return None,
        (StateSharing::PodsOfNode, Reach::OtherNodes) => {
            "the firmware variables that the guest keeps are on a persistent volume claim without access mode \
             ReadWriteMany"
        }
        (StateSharing::OnePod, _) => {
            "the guest keeps firmware variables, and an earlier version created its pod: restart it"
        }
    };
    Some(obstacle(Reason::LiveMigrationNotSupported, message))
}

/// The kernel gives an address on the vsock to one process of a node.
fn vsock(input: &Input<'_>) -> Option<Obstacle> {
    let devices = &input.vmi.spec.domain.devices;
    let has_it = devices.autoattach_vsock == Some(true) && input.reach == Reach::OwnNode;
    has_it.then(|| {
        obstacle(
            Reason::LiveMigrationNotSupported,
            "the guest has a vsock, whose address cannot be in two pods of one node",
        )
    })
}

/// The other pod would use the same path to the storage, for which the reservation is made.
fn reservations(input: &Input<'_>) -> Option<Obstacle> {
    let guest = Guest::of(input.vmi);
    let mut disks = guest.disks.iter();
    let reserves = disks.any(|disk| disk.target == Target::Lun { is_reserving: true });
    (reserves && input.reach == Reach::OwnNode).then(|| {
        obstacle(
            Reason::LiveMigrationNotSupported,
            "the guest makes persistent reservations, which two pods of one node cannot share",
        )
    })
}
