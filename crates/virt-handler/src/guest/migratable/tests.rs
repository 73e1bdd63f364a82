use serde_json::{Value, json};

use super::*;

fn status_of(vmi: Value) -> VirtualMachineInstanceStatus {
    let vmi: VirtualMachineInstance = serde_json::from_value(vmi).unwrap();
    let mut status = vmi.status.clone().unwrap_or_default();
    let input = Input {
        vmi: &vmi,
        host_model_is_obsolete: true,
        can_migrate: false,
    };
    set(&mut status, &input, &Time(jiff::Timestamp::UNIX_EPOCH));
    status
}

/// The obstacle of this guest that the condition names; empty if it names only that there is no other
/// node.
fn reason(status: &VirtualMachineInstanceStatus, kind: &Condition) -> String {
    let condition = conditions::find(&status.conditions, kind).unwrap();
    assert_eq!(condition.status, "False");
    let reason = condition.reason.clone().unwrap();
    let is_general = condition.message.as_deref() == Some(NOT_SUPPORTED);
    let general = match kind {
        Condition::LiveMigratable => "LiveMigrationNotSupported",
        _ => "NotMigratable",
    };
    if is_general {
        assert_eq!(reason, general);
        String::new()
    } else {
        reason
    }
}

#[test]
fn each_obstacle_has_its_reason_and_prevents_storage_migration() {
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
        // The first in the order of precedence.
        (
            domain(json!({"launchSecurity": {"sev": {}}, "cpu": {"model": "host-model"}})),
            "CPUModeLiveMigratable",
        ),
    ];
    for (vmi, expected) in table {
        let status = status_of(vmi.clone());
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

/// A volume, the guest's devices, the VMI's status; the expected method and reason.
type VolumeCase = (Value, Value, Value, &'static str, &'static str);

fn volume_cases() -> Vec<VolumeCase> {
    let disk = || json!({"disks": [{"name": "v", "disk": {}}]});
    let claim = || json!({"persistentVolumeClaim": {"claimName": "c"}});
    let host_disk =
        |shared: bool| json!({"hostDisk": {"path": "/x", "type": "Disk", "shared": shared}});
    let modes = |mode: &str| {
        json!({"volumeStatus": [{"name": "v", "target": "vda",
            "persistentVolumeClaimInfo": {"accessModes": [mode]}}]})
    };
    let none = || json!({});
    let not_migratable = "DisksNotLiveMigratable";
    let migrated = json!({"migratedVolumes": [{"volumeName": "v"}]});
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
            not_migratable,
        ),
        (claim(), disk(), none(), "BlockMigration", not_migratable),
        (claim(), disk(), migrated, "BlockMigration", ""),
        (
            host_disk(false),
            disk(),
            none(),
            "BlockMigration",
            not_migratable,
        ),
        (host_disk(true), disk(), none(), "LiveMigration", ""),
        (container_disk, disk(), none(), "BlockMigration", ""),
        (empty_disk, disk(), none(), "BlockMigration", ""),
        (claim(), drive, none(), "LiveMigration", ""),
        (claim(), read_only, none(), "LiveMigration", ""),
        (claim(), shared_files, none(), "LiveMigration", ""),
    ]
}

#[test]
fn volumes_decide_the_method_and_only_live_migratable() {
    for (mut volume, devices, status, method, expected) in volume_cases() {
        volume["name"] = json!("v");
        let vmi = json!({
            "spec": {"volumes": [volume], "domain": {"devices": devices}},
            "status": status,
        });
        let status = status_of(vmi.clone());
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

#[test]
fn guest_without_obstacles_is_migratable_where_there_are_other_nodes() {
    let check = |vmi: Value, live: &str, storage: &str| {
        let vmi: VirtualMachineInstance = serde_json::from_value(vmi).unwrap();
        let mut status = VirtualMachineInstanceStatus::default();
        let input = Input {
            vmi: &vmi,
            host_model_is_obsolete: false,
            can_migrate: true,
        };
        set(&mut status, &input, &Time(jiff::Timestamp::UNIX_EPOCH));
        for (kind, expected) in [
            (Condition::LiveMigratable, live),
            (Condition::StorageLiveMigratable, storage),
        ] {
            let condition = conditions::find(&status.conditions, &kind).unwrap();
            let reason = condition.reason.as_deref().unwrap_or_default();
            assert_eq!(reason, expected, "{kind}");
            let is_true = conditions::is_true(&status.conditions, &kind);
            assert_eq!(is_true, expected.is_empty(), "{kind}");
        }
    };
    check(json!({"spec": {"domain": {}}}), "", "");
    let claim = json!({"spec": {
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
        "domain": {"devices": {"disks": [{"name": "v", "disk": {}}]}},
    }});
    check(claim, "DisksNotLiveMigratable", "");
    let pinned = json!({"spec": {"domain": {"cpu": {"dedicatedCpuPlacement": true}}}});
    check(pinned, "LiveMigrationNotSupported", "NotMigratable");
    let kept = json!({"spec": {"domain": {"devices": {"tpm": {"persistent": true}}}}});
    check(kept, "LiveMigrationNotSupported", "NotMigratable");
    let shared = json!({"filesystems": [{"name": "v", "virtiofs": {}}]});
    let shared = json!({"spec": {"domain": {"devices": shared}}});
    check(shared, "LiveMigrationNotSupported", "NotMigratable");
}

#[test]
fn disks_that_the_pods_do_not_share_are_copied() {
    let vmi: VirtualMachineInstance = serde_json::from_value(json!({
        "spec": {
            "volumes": [
                {"name": "root", "containerDisk": {"image": "i"}},
                {"name": "data", "persistentVolumeClaim": {"claimName": "c"}},
                {"name": "seed", "cloudInitNoCloud": {"userData": "x"}},
                {"name": "drive", "containerDisk": {"image": "i"}},
            ],
            "domain": {"devices": {"disks": [
                {"name": "root", "disk": {}},
                {"name": "data", "disk": {}},
                {"name": "seed", "disk": {}},
                {"name": "drive", "cdrom": {}},
            ]}},
        },
        "status": {"volumeStatus": [
            {"name": "root", "target": "vda"},
            {"name": "data", "target": "vdb",
             "persistentVolumeClaimInfo": {"accessModes": ["ReadWriteMany"]}},
            {"name": "seed", "target": "vdc"},
            {"name": "drive", "target": "sda"},
        ]},
    }))
    .unwrap();
    assert_eq!(copied_disks(&vmi), ["vda", "vdc"]);
}
