use serde_json::{Value, json};

use super::*;

fn bindings() -> RegisteredBindings {
    let all = json!({
        "stays": {"sidecarImage": "registry.example/binding:1"},
        "moves": {"sidecarImage": "registry.example/binding:1", "migration": {}},
        "managed": {"domainAttachmentType": "managedTap", "migration": {"method": "link-refresh"}},
    });
    serde_json::from_value(all).unwrap()
}

fn status_of(vmi: &Value, reach: Reach) -> VirtualMachineInstanceStatus {
    let vmi: VirtualMachineInstance = serde_json::from_value(vmi.clone()).unwrap();
    let mut status = vmi.status.clone().unwrap_or_default();
    let bindings = bindings();
    let input = Input {
        vmi: &vmi,
        host_model_is_obsolete: true,
        reach,
        bound_interfaces: Some(&[]),
        state: StateSharing::OnePod,
        bindings: &bindings,
    };
    set(&mut status, &input, &Time(jiff::Timestamp::UNIX_EPOCH));
    status
}

/// The reason of a condition that is false; empty if it is true.
fn reason(status: &VirtualMachineInstanceStatus, kind: &Condition) -> String {
    let condition = conditions::find(&status.conditions, kind).unwrap();
    if condition.status == "True" {
        return String::new();
    }
    condition.reason.clone().unwrap()
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
            domain(json!({"devices": {"interfaces": [{"name": "n", "sriov": {}}]}})),
            "InterfaceNotLiveMigratable",
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
        let status = status_of(&vmi, Reach::OtherNodes);
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

#[test]
fn bridge_on_the_pod_network_does_not_move_within_a_host() {
    let vmi = json!({
        "metadata": {"annotations": {"kubevirt.io/allow-pod-bridge-network-live-migration": ""}},
        "spec": {"networks": [{"name": "n", "pod": {}}], "domain": {"devices":
            {"interfaces": [{"name": "n", "bridge": {}}]}}},
    });
    let status = status_of(&vmi, Reach::OwnNode);
    assert_eq!(
        reason(&status, &Condition::LiveMigratable),
        "InterfaceNotLiveMigratable"
    );
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
        (
            claim(),
            shared_files,
            none(),
            "LiveMigration",
            "LiveMigrationNotSupported",
        ),
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
        let status = status_of(&vmi, Reach::OtherNodes);
        let found = status.migration_method.as_ref().unwrap();
        assert_eq!(found.as_str(), method, "{vmi}");
        assert_eq!(
            reason(&status, &Condition::LiveMigratable),
            expected,
            "{vmi}"
        );
        // Disks do not prevent it, other obstacles do.
        let is_of_disks = expected != "LiveMigrationNotSupported";
        let storage = if is_of_disks { "" } else { "NotMigratable" };
        assert_eq!(
            reason(&status, &Condition::StorageLiveMigratable),
            storage,
            "{vmi}"
        );
    }
}

#[test]
fn guests_with_state_outside_of_their_disks_do_not_migrate() {
    let check = |domain: Value| {
        for reach in [Reach::OtherNodes, Reach::OwnNode] {
            let status = status_of(&json!({"spec": {"domain": domain}}), reach);
            let live = reason(&status, &Condition::LiveMigratable);
            assert_eq!(live, "LiveMigrationNotSupported", "{domain}");
            let storage = reason(&status, &Condition::StorageLiveMigratable);
            assert_eq!(storage, "NotMigratable", "{domain}");
        }
    };
    check(json!({"devices": {"tpm": {"persistent": true}}}));
    check(json!({"devices": {"filesystems": [{"name": "v", "virtiofs": {}}]}}));
}

#[test]
fn guests_with_dedicated_cpus_and_attached_volumes_migrate() {
    let own = json!({"spec": {"domain": {"cpu": {"dedicatedCpuPlacement": true}}}});
    let attached = |phase: &str, change: Value| {
        let mut volume = json!({"name": "v", "target": "sda", "phase": phase, "hotplugVolume": {},
            "persistentVolumeClaimInfo": {"claimName": "c", "accessModes": ["ReadWriteMany"]}});
        for (name, value) in change.as_object().unwrap() {
            volume[name] = value.clone();
        }
        json!({
            "spec": {
                "volumes": [{"name": "v",
                    "persistentVolumeClaim": {"claimName": "c", "hotpluggable": true}}],
                "domain": {"devices": {"disks": [{"name": "v", "disk": {"bus": "scsi"}}]}},
            },
            "status": {"volumeStatus": [volume]},
        })
    };
    let none = || json!({});
    let dump = || json!({"memoryDumpVolume": {"claimName": "c"}});
    let of_one_node = json!({"persistentVolumeClaimInfo": {
        "claimName": "c", "accessModes": ["ReadWriteOnce"]}});
    let stays = "HotplugNotLiveMigratable";
    for (vmi, elsewhere, within) in [
        (own, "", ""),
        (attached("Ready", none()), "", ""),
        (attached("MountedToPod", none()), "", ""),
        (attached("Detaching", none()), stays, stays),
        (attached("MemoryDumpInProgress", dump()), stays, stays),
        (attached("MemoryDumpCompleted", dump()), "", ""),
        (attached("Ready", of_one_node), "DisksNotLiveMigratable", ""),
    ] {
        for (reach, expected) in [(Reach::OtherNodes, elsewhere), (Reach::OwnNode, within)] {
            let status = status_of(&vmi, reach);
            let found = reason(&status, &Condition::LiveMigratable);
            assert_eq!(found, expected, "{vmi} {reach:?}");
        }
    }
}

#[test]
fn kept_state_moves_where_all_pods_of_the_guest_have_it() {
    use StateSharing::{AllPods, OnePod, PodsOfNode};
    let variables = json!({"firmware": {"bootloader": {"efi": {"persistent": true}}}});
    let tpm = json!({"devices": {"tpm": {"persistent": true}}});
    let stays = "LiveMigrationNotSupported";
    let bindings = bindings();
    for (state, elsewhere, within) in [
        (
            OnePod,
            "LiveMigrationNotSupported",
            "LiveMigrationNotSupported",
        ),
        (PodsOfNode, "LiveMigrationNotSupported", ""),
        (AllPods, "", ""),
    ] {
        for (domain, expected) in [(&variables, [elsewhere, within]), (&tpm, [stays, stays])] {
            let vmi = json!({"spec": {"domain": domain}});
            let vmi: VirtualMachineInstance = serde_json::from_value(vmi).unwrap();
            let found = [Reach::OtherNodes, Reach::OwnNode].map(|reach| {
                let input = Input {
                    vmi: &vmi,
                    host_model_is_obsolete: false,
                    reach,
                    bound_interfaces: Some(&[]),
                    state,
                    bindings: &bindings,
                };
                let mut status = VirtualMachineInstanceStatus::default();
                set(&mut status, &input, &Time(jiff::Timestamp::UNIX_EPOCH));
                let live = reason(&status, &Condition::LiveMigratable);
                let storage = reason(&status, &Condition::StorageLiveMigratable);
                assert_eq!(live.is_empty(), storage.is_empty(), "{state:?} {reach:?}");
                live
            });
            assert_eq!(found, expected, "{state:?} {domain}");
        }
    }
}

#[test]
fn guest_of_a_single_host_moves_within_it() {
    let check = |vmi: Value, status: &str, reason: &str| {
        let found = status_of(&vmi, Reach::OwnNode);
        let found = conditions::find(&found.conditions, &Condition::LiveMigratable).unwrap();
        let found = (found.status.as_str(), found.reason.as_deref());
        assert_eq!(found, (status, Some(reason)), "{vmi}");
    };
    let moves = |vmi: Value| check(vmi, "True", "OnlyWithinNode");
    let of_domain = |domain: Value| json!({"spec": {"domain": domain}});
    moves(of_domain(json!({})));
    // Another node is not needed to continue its CPU, and both pods have the files of the node.
    moves(of_domain(json!({"cpu": {"model": "host-model"}})));
    let with = |source: Value| {
        let mut volume = source;
        volume["name"] = json!("v");
        json!({"spec": {"volumes": [volume],
            "domain": {"devices": {"disks": [{"name": "v", "disk": {}}]}}}})
    };
    moves(with(json!({"persistentVolumeClaim": {"claimName": "c"}})));
    moves(with(json!({"hostDisk": {"path": "/x", "type": "Disk"}})));
    let vsock = of_domain(json!({"devices": {"autoattachVSOCK": true}}));
    check(vsock.clone(), "False", "LiveMigrationNotSupported");
    let elsewhere = status_of(&vsock, Reach::OtherNodes);
    assert_eq!(reason(&elsewhere, &Condition::LiveMigratable), "");
    let lun = json!({"disks": [{"name": "v", "lun": {"reservation": true}}]});
    let lun = of_domain(json!({"devices": lun}));
    check(lun, "False", "LiveMigrationNotSupported");
    let bridge = json!({"spec": {"networks": [{"name": "n", "pod": {}}],
        "domain": {"devices": {"interfaces": [{"name": "n", "bridge": {}}]}}}});
    check(bridge, "False", "InterfaceNotLiveMigratable");
}

#[test]
fn guest_moves_after_it_has_lost_an_interface() {
    let tied = "InterfaceNotLiveMigratable";
    for (state, sources, expected) in [
        (json!("absent"), "domain, multus-status", tied),
        (json!("absent"), "multus-status", ""),
        (json!(null), "domain, multus-status", ""),
    ] {
        let vmi = json!({
            "spec": {
                "networks": [{"name": "n", "multus": {"networkName": "x"}}],
                "domain": {"devices": {"interfaces": [
                    {"name": "n", "bridge": {}, "state": state},
                ]}},
            },
            "status": {"interfaces": [{"name": "n", "infoSource": sources}]},
        });
        let found = status_of(&vmi, Reach::OtherNodes);
        let found = reason(&found, &Condition::LiveMigratable);
        assert_eq!(found, expected, "{vmi}");
    }
}

#[test]
fn registered_binding_decides_whether_its_guests_move() {
    let tied = "InterfaceNotLiveMigratable";
    for (network, binding, elsewhere, within) in [
        (json!({"pod": {}}), "moves", "", ""),
        (json!({"pod": {}}), "stays", tied, tied),
        (json!({"pod": {}}), "unknown", tied, tied),
        // A single host lets no other hardware address out of a pod.
        (json!({"pod": {}}), "managed", "", tied),
        (json!({"multus": {"networkName": "x"}}), "stays", "", ""),
    ] {
        let mut network = network;
        network["name"] = json!("n");
        let interface = json!({"name": "n", "binding": {"name": binding}});
        let vmi = json!({"spec": {"networks": [network],
            "domain": {"devices": {"interfaces": [interface]}}}});
        let of = |reach| reason(&status_of(&vmi, reach), &Condition::LiveMigratable);
        let found = [of(Reach::OtherNodes), of(Reach::OwnNode)];
        assert_eq!(found, [elsewhere, within], "{vmi}");
    }
}

#[test]
fn guest_on_a_macvlan_does_not_move_within_its_node() {
    let vmi: VirtualMachineInstance = serde_json::from_value(json!({"spec": {
        "networks": [{"name": "lan", "multus": {"networkName": "x"}}],
        "domain": {"devices": {"interfaces": [{"name": "lan", "bridge": {}}]}},
    }}))
    .unwrap();
    let now = Time(jiff::Timestamp::UNIX_EPOCH);
    let lan = ["lan".to_owned()];
    let (unknown, free, bound): (Option<&[String]>, _, _) = (None, Some(&[][..]), Some(&lan[..]));
    let (within, tied) = ("OnlyWithinNode", "InterfaceNotLiveMigratable");
    let bindings = bindings();
    // Each row continues with the status of the one before.
    let mut status = VirtualMachineInstanceStatus::default();
    for (reach, bound_interfaces, is_true, expected) in [
        (Reach::OwnNode, unknown, "True", within),
        (Reach::OwnNode, bound, "False", tied),
        // virt-handler was restarted.
        (Reach::OwnNode, unknown, "False", tied),
        (Reach::OwnNode, free, "True", within),
        (Reach::OtherNodes, bound, "True", ""),
        (Reach::OtherNodes, unknown, "True", ""),
    ] {
        let input = Input {
            vmi: &vmi,
            host_model_is_obsolete: false,
            reach,
            bound_interfaces,
            state: StateSharing::OnePod,
            bindings: &bindings,
        };
        set(&mut status, &input, &now);
        let found = conditions::find(&status.conditions, &Condition::LiveMigratable).unwrap();
        let found = (&*found.status, found.reason.as_deref().unwrap_or_default());
        assert_eq!(found, (is_true, expected), "{reach:?} {bound_interfaces:?}");
    }
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
    assert_eq!(moved_disks(&vmi), [""; 0]);
    // Those that this migration carries to other claims, but not those of a list that another one carries.
    for (carrier, copied, moved) in [
        ("m", &["vda", "vdb", "vdc"][..], &["vdb"][..]),
        ("other", &["vda", "vdc"][..], &[][..]),
    ] {
        let mut vmi = vmi.clone();
        let annotation = (
            "ferrovirt.io/volumes-carried-by".to_owned(),
            carrier.to_owned(),
        );
        vmi.metadata.annotations = Some([annotation].into());
        let status = vmi.status.as_mut().unwrap();
        let list = json!([{"volumeName": "data", "sourcePVCInfo": {"claimName": "c"},
            "destinationPVCInfo": {"claimName": "d"}}]);
        status.migrated_volumes = serde_json::from_value(list).unwrap();
        let state = json!({"migrationUid": "m"});
        status.migration_state = serde_json::from_value(state).unwrap();
        assert_eq!(copied_disks(&vmi), copied, "{carrier}");
        assert_eq!(moved_disks(&vmi), moved, "{carrier}");
    }
}
