//! Whether a guest could be moved while it runs, and its storage with it: pure.
//!
//! The reasons are a list; the first that holds is the one that is told.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kubevirt_api::{
    VirtualMachineInstance, annotations,
    conditions::{self, ConditionValue},
    vmi_status::{
        VirtualMachineInstanceConditionType as Condition, VirtualMachineInstanceMigrationMethod,
        VirtualMachineInstanceStatus,
    },
    volumes::Volume,
};
use reasons::Reason;

const MANY: &str = "ReadWriteMany";
const HOST_MODEL: &str = "host-model";

/// All it follows from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Input<'a> {
    pub(super) vmi: &'a VirtualMachineInstance,
    /// No other node would take the host's model.
    pub(super) host_model_is_obsolete: bool,
}

/// A reason and a sentence.
type Obstacle = (Reason, String);

/// Every obstacle that is not a disk, in the order in which they count.
const OBSTACLES: [fn(&Input<'_>) -> Option<Obstacle>; 8] = [
    interfaces,
    cpu_model,
    host_devices,
    sev,
    tdx,
    secure_execution,
    tsc,
    hyperv,
];

/// Sets `LiveMigratable`, `StorageLiveMigratable` and the method.
pub(super) fn set(status: &mut VirtualMachineInstanceStatus, input: &Input<'_>, now: &Time) {
    let others: Vec<Obstacle> = OBSTACLES.iter().filter_map(|find| find(input)).collect();
    let disks = disks(input.vmi);
    let first = others.first().cloned().or_else(|| disks.obstacle.clone());
    let list = &mut status.conditions;
    let says = |obstacle: &Option<Obstacle>, list: &mut Vec<_>, kind| match obstacle {
        Some((reason, message)) => {
            conditions::set(list, kind, &ConditionValue::fails(*reason, message), now);
        }
        None => conditions::set(list, kind, &ConditionValue::holds(), now),
    };
    says(&first, list, Condition::LiveMigratable);
    let messages: Vec<&str> = others.iter().map(|(_, message)| message.as_str()).collect();
    let storage = (!messages.is_empty()).then(|| (Reason::NotMigratable, messages.join("; ")));
    says(&storage, list, Condition::StorageLiveMigratable);
    status.migration_method = Some(disks.method);
}

fn interfaces(input: &Input<'_>) -> Option<Obstacle> {
    let spec = &input.vmi.spec;
    let pod = spec.networks.iter().find(|network| network.pod.is_some())?;
    let interfaces = &spec.domain.devices.interfaces;
    let interface = interfaces.iter().find(|one| one.name == pod.name)?;
    let marks = input.vmi.metadata.annotations.as_ref();
    let allowed = marks.is_some_and(|marks| {
        marks.contains_key(annotations::ALLOW_POD_BRIDGE_NETWORK_LIVE_MIGRATION)
    });
    let fine = interface.masquerade.is_some()
        || interface.passt_binding.is_some()
        || (interface.bridge.is_some() && allowed);
    (!fine).then(|| {
        (
            Reason::InterfaceNotLiveMigratable,
            format!(
                "interface {} joins the pod network by a binding that does not survive a change \
                 of the pod's address: use masquerade",
                interface.name
            ),
        )
    })
}

fn cpu_model(input: &Input<'_>) -> Option<Obstacle> {
    let cpu = input.vmi.spec.domain.cpu.as_ref()?;
    let host_model = cpu.model.as_deref() == Some(HOST_MODEL);
    (host_model && input.host_model_is_obsolete).then(|| {
        (
            Reason::CPUModeNotLiveMigratable,
            "the guest has the model of its host, which is obsolete: name a model".to_owned(),
        )
    })
}

fn host_devices(input: &Input<'_>) -> Option<Obstacle> {
    let devices = &input.vmi.spec.domain.devices;
    let has_any = !devices.host_devices.is_empty() || !devices.gpus.is_empty();
    has_any.then(|| {
        (
            Reason::HostDeviceNotLiveMigratable,
            "the guest holds a device of its host".to_owned(),
        )
    })
}

fn sev(input: &Input<'_>) -> Option<Obstacle> {
    let security = input.vmi.spec.domain.launch_security.as_ref()?;
    let found = security.sev.is_some() || security.snp.is_some();
    found.then(|| {
        (
            Reason::SEVNotLiveMigratable,
            "the guest's memory is encrypted by SEV".to_owned(),
        )
    })
}

fn tdx(input: &Input<'_>) -> Option<Obstacle> {
    let security = input.vmi.spec.domain.launch_security.as_ref()?;
    security.tdx.as_ref().map(|_| {
        (
            Reason::TDXNotLiveMigratable,
            "the guest's memory is encrypted by TDX".to_owned(),
        )
    })
}

fn secure_execution(input: &Input<'_>) -> Option<Obstacle> {
    let spec = &input.vmi.spec;
    let secure = spec.domain.launch_security.is_some();
    (secure && spec.architecture.as_deref() == Some("s390x")).then(|| {
        (
            Reason::SecureExecutionNotLiveMigratable,
            "the guest runs by Secure Execution".to_owned(),
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
        (
            Reason::NoTSCFrequencyNotLiveMigratable,
            "the guest counts on the frequency of its clock, which is not known".to_owned(),
        )
    })
}

fn hyperv(input: &Input<'_>) -> Option<Obstacle> {
    let features = input.vmi.spec.domain.features.as_ref()?;
    let passthrough = features.hyperv_passthrough.as_ref()?;
    (passthrough.enabled != Some(false)).then(|| {
        (
            Reason::HypervPassthroughNotLiveMigratable,
            "the guest has whatever enlightenments its host has".to_owned(),
        )
    })
}

/// What the volumes say.
#[derive(Debug)]
struct Disks {
    obstacle: Option<Obstacle>,
    method: VirtualMachineInstanceMigrationMethod,
}

fn disks(vmi: &VirtualMachineInstance) -> Disks {
    use VirtualMachineInstanceMigrationMethod::{BlockMigration, LiveMigration};
    let migrated = vmi.status.as_ref().map(|status| &status.migrated_volumes);
    let is_migrated = |name: &str| {
        migrated
            .into_iter()
            .flatten()
            .any(|volume| volume.volume_name == name)
    };
    let mut found = Disks {
        obstacle: None,
        method: LiveMigration,
    };
    if migrated.is_some_and(|list| !list.is_empty()) {
        found.method = BlockMigration;
    }
    for volume in vmi.spec.volumes.iter().filter(|volume| counts(vmi, volume)) {
        let name = &volume.name;
        let stays = match of(volume) {
            Kind::Claim if is_migrated(name) || is_shared(vmi, name) => continue,
            Kind::Claim => Some("is a claim that one node at a time may use"),
            Kind::HostDisk { shared: true } => continue,
            Kind::HostDisk { shared: false } => Some("lies on the node"),
            Kind::Copied => None,
        };
        found.method = BlockMigration;
        if let (Some(why), None) = (stays, &found.obstacle) {
            let message = format!("volume {name} {why}");
            found.obstacle = Some((Reason::DisksNotLiveMigratable, message));
        }
    }
    found
}

/// How a volume is moved.
enum Kind {
    Claim,
    HostDisk {
        shared: bool,
    },
    /// It is the pod's own and goes over with the guest.
    Copied,
}

fn of(volume: &Volume) -> Kind {
    if volume.persistent_volume_claim.is_some() || volume.data_volume.is_some() {
        return Kind::Claim;
    }
    match &volume.host_disk {
        Some(disk) => Kind::HostDisk {
            shared: disk.shared == Some(true),
        },
        None => Kind::Copied,
    }
}

/// A volume that the guest cannot write by a disk does not have to be moved.
fn counts(vmi: &VirtualMachineInstance, volume: &Volume) -> bool {
    let devices = &vmi.spec.domain.devices;
    let mut disks = devices.disks.iter().filter(|disk| disk.name == volume.name);
    match disks.next() {
        Some(disk) => {
            let read_only = disk.disk.as_ref().and_then(|disk| disk.readonly) == Some(true);
            disk.cdrom.is_none() && !read_only
        }
        None => devices
            .filesystems
            .iter()
            .all(|shared| shared.name != volume.name),
    }
}

fn is_shared(vmi: &VirtualMachineInstance, volume: &str) -> bool {
    let status = vmi.status.as_ref();
    let found = status
        .into_iter()
        .flat_map(|status| &status.volume_status)
        .find(|one| one.name == volume);
    let claim = found.and_then(|one| one.persistent_volume_claim_info.as_ref());
    claim.is_some_and(|claim| claim.access_modes.iter().any(|mode| mode == MANY))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn judged(vmi: Value) -> VirtualMachineInstanceStatus {
        let vmi: VirtualMachineInstance = serde_json::from_value(vmi).unwrap();
        let mut status = vmi.status.clone().unwrap_or_default();
        let input = Input {
            vmi: &vmi,
            host_model_is_obsolete: true,
        };
        set(&mut status, &input, &Time(jiff::Timestamp::UNIX_EPOCH));
        status
    }

    fn reason(status: &VirtualMachineInstanceStatus, kind: &Condition) -> String {
        let condition = conditions::find(&status.conditions, kind).unwrap();
        let reason = condition.reason.clone().unwrap_or_default();
        assert_eq!(condition.status == "True", reason.is_empty());
        reason
    }

    #[test]
    fn each_obstacle_has_its_reason_and_holds_up_storage_as_well() {
        let domain = |domain: Value| json!({"spec": {"domain": domain}});
        let table = [
            (domain(json!({})), ""),
            (
                json!({"spec": {"networks": [{"name": "n", "pod": {}}], "domain": {"devices":
                    {"interfaces": [{"name": "n", "bridge": {}}]}}}}),
                "InterfaceNotLiveMigratable",
            ),
            (
                json!({"metadata": {"annotations": {
                        "kubevirt.io/allow-pod-bridge-network-live-migration": ""}},
                    "spec": {"networks": [{"name": "n", "pod": {}}], "domain": {"devices":
                    {"interfaces": [{"name": "n", "bridge": {}}]}}}}),
                "",
            ),
            (
                json!({"spec": {"networks": [{"name": "n", "multus": {"networkName": "x"}}],
                    "domain": {"devices": {"interfaces": [{"name": "n", "bridge": {}}]}}}}),
                "",
            ),
            (
                domain(json!({"cpu": {"model": "host-model"}})),
                "CPUModeLiveMigratable",
            ),
            (domain(json!({"cpu": {"model": "EPYC"}})), ""),
            (
                domain(json!({"devices": {"gpus": [{"name": "g", "deviceName": "d"}]}})),
                "HostDeviceNotLiveMigratable",
            ),
            (
                domain(json!({"launchSecurity": {"sev": {}}})),
                "SEVNotLiveMigratable",
            ),
            (
                domain(json!({"launchSecurity": {"tdx": {}}})),
                "TDXNotLiveMigratable",
            ),
            (
                json!({"spec": {"architecture": "s390x", "domain": {"launchSecurity": {}}}}),
                "SecureExecutionNotLiveMigratable",
            ),
            (
                domain(json!({"features": {"hyperv": {"reenlightenment": {}}}})),
                "NoTSCFrequencyNotLiveMigratable",
            ),
            (
                json!({"spec": {"domain": {"features": {"hyperv": {"reenlightenment": {}}}}},
                    "status": {"topologyHints": {"tscFrequency": 1}}}),
                "",
            ),
            (
                domain(json!({"features": {"hypervPassthrough": {"enabled": true}}})),
                "HypervPassthroughNotLiveMigratable",
            ),
            // The first in the order counts.
            (
                domain(json!({"launchSecurity": {"sev": {}}, "cpu": {"model": "host-model"}})),
                "CPUModeLiveMigratable",
            ),
        ];
        for (vmi, expected) in table {
            let status = judged(vmi.clone());
            assert_eq!(
                reason(&status, &Condition::LiveMigratable),
                expected,
                "{vmi}"
            );
            let storage = if expected.is_empty() {
                ""
            } else {
                "NotMigratable"
            };
            assert_eq!(
                reason(&status, &Condition::StorageLiveMigratable),
                storage,
                "{vmi}"
            );
        }
    }

    /// A volume, how the guest has it, what is known of it; the method and the reason.
    fn volumes() -> Vec<(Value, Value, Value, &'static str, &'static str)> {
        let disk = || json!({"disks": [{"name": "v", "disk": {}}]});
        let claim = || json!({"persistentVolumeClaim": {"claimName": "c"}});
        let host_disk =
            |shared: bool| json!({"hostDisk": {"path": "/x", "type": "Disk", "shared": shared}});
        let modes = |mode: &str| {
            json!({"volumeStatus": [{"name": "v", "target": "vda",
                "persistentVolumeClaimInfo": {"accessModes": [mode]}}]})
        };
        let none = || json!({});
        let stays = "DisksNotLiveMigratable";
        let moving = json!({"migratedVolumes": [{"volumeName": "v"}]});
        let drive = json!({"disks": [{"name": "v", "cdrom": {}}]});
        let read_only = json!({"disks": [{"name": "v", "disk": {"readonly": true}}]});
        let shared_files = json!({"filesystems": [{"name": "v", "virtiofs": {}}]});
        let container_disk = json!({"containerDisk": {"image": "i"}});
        let empty_disk = json!({"emptyDisk": {"capacity": "1Gi"}});
        vec![
            (claim(), disk(), modes("ReadWriteMany"), "LiveMigration", ""),
            (
                claim(),
                disk(),
                modes("ReadWriteOnce"),
                "BlockMigration",
                stays,
            ),
            (claim(), disk(), none(), "BlockMigration", stays),
            (claim(), disk(), moving, "BlockMigration", ""),
            (host_disk(false), disk(), none(), "BlockMigration", stays),
            (host_disk(true), disk(), none(), "LiveMigration", ""),
            (container_disk, disk(), none(), "BlockMigration", ""),
            (empty_disk, disk(), none(), "BlockMigration", ""),
            (claim(), drive, none(), "LiveMigration", ""),
            (claim(), read_only, none(), "LiveMigration", ""),
            (claim(), shared_files, none(), "LiveMigration", ""),
        ]
    }

    #[test]
    fn volumes_decide_the_method_and_hold_up_the_guest_alone() {
        for (mut volume, devices, status, method, expected) in volumes() {
            volume["name"] = json!("v");
            let vmi = json!({
                "spec": {"volumes": [volume], "domain": {"devices": devices}},
                "status": status,
            });
            let status = judged(vmi.clone());
            let found = status.migration_method.as_ref().unwrap();
            assert_eq!(found.as_str(), method, "{vmi}");
            assert_eq!(
                reason(&status, &Condition::LiveMigratable),
                expected,
                "{vmi}"
            );
            assert_eq!(
                reason(&status, &Condition::StorageLiveMigratable),
                "",
                "{vmi}"
            );
        }
    }
}
