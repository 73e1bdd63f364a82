//! VMIs as data, domains as golden files.

#![expect(clippy::unwrap_used, reason = "tests")]

use domain_xml::{
    Acceleration, DirectIo, EfiFirmware, Facts, Input, InterfaceFacts, RenderError, SmbiosFacts,
    VolumeFacts, VolumeMode, render,
};
use kubevirt_api::VirtualMachineInstance;
use model::Supported;
use serde_json::{Value, json};

fn facts() -> Facts {
    Facts {
        acceleration: Acceleration::Kvm,
        direct_io: DirectIo::Supported,
        volumes: [].into(),
        interfaces: vec![InterfaceFacts {
            name: "default".into(),
            tap: "tap0".into(),
            mac: "12:81:b8:38:4f:52".into(),
            mtu: 1500,
        }],
        smbios: SmbiosFacts::defaults(),
        balloon_stats_seconds: 10,
        efi: EfiFirmware::debian(),
    }
}

fn emulated() -> Facts {
    Facts {
        acceleration: Acceleration::Emulation,
        ..facts()
    }
}

/// A VMI with kernel boot, one container disk and masquerade: the one in `observed/`.
fn vmi() -> Value {
    json!({
        "metadata": {
            "name": "b1",
            "namespace": "default",
            "uid": "f741ae22-8952-4f7d-8511-7c2739f234d7",
        },
        "spec": {
            "architecture": "amd64",
            "domain": {
                "cpu": {"cores": 1, "maxSockets": 4, "model": "host-model", "sockets": 1, "threads": 1},
                "devices": {
                    "disks": [{"disk": {"bus": "virtio"}, "name": "d"}],
                    "interfaces": [{"masquerade": {}, "name": "default"}],
                },
                "features": {"acpi": {"enabled": true}},
                "firmware": {
                    "kernelBoot": {
                        "container": {
                            "image": "localhost/guest:1",
                            "initrdPath": "/boot/initrd",
                            "kernelPath": "/boot/vmlinuz",
                        },
                        "kernelArgs": "console=ttyS0 panic=-1",
                    },
                    "uuid": "69a61d3f-50cc-4611-b6e2-e53205a02bad",
                },
                "machine": {"type": "q35"},
                "memory": {"guest": "128Mi"},
            },
            "networks": [{"name": "default", "pod": {}}],
            "terminationGracePeriodSeconds": 0,
            "volumes": [{"containerDisk": {"image": "localhost/guest:1"}, "name": "d"}],
        },
    })
}

fn with(path: &str, value: Value) -> Value {
    let mut object = vmi();
    set(&mut object, path, value);
    object
}

/// Sets a member by JSON pointer, making objects on the way.
fn set(object: &mut Value, path: &str, value: Value) {
    let mut at = object;
    for part in path.split('/').skip(1) {
        at = match part.parse::<usize>() {
            Ok(index) => &mut at[index],
            Err(_) => &mut at[part],
        };
    }
    *at = value;
}

fn render_with(object: &Value, facts: &Facts) -> Result<String, RenderError> {
    let vmi: VirtualMachineInstance = serde_json::from_value(object.clone()).unwrap();
    let guest = &Supported::of(&vmi)?;
    render(&Input { guest, facts })
}

#[test]
fn kernel_boot_with_container_disk_and_masquerade() {
    insta::assert_snapshot!(render_with(&vmi(), &facts()).unwrap());
}

#[test]
fn emulated_guest_has_a_small_cache_of_translated_code() {
    let xml = render_with(&vmi(), &emulated()).unwrap();
    insta::assert_snapshot!(xml);
}

#[test]
fn every_kind_of_disk() {
    let mut object = vmi();
    set(&mut object, "/spec/domain/firmware/kernelBoot", Value::Null);
    set(
        &mut object,
        "/spec/domain/devices/disks",
        json!([
            {"name": "root", "disk": {"bus": "virtio"}, "bootOrder": 1, "serial": "root-1"},
            {"name": "scratch", "disk": {"bus": "scsi"}, "cache": "writeback", "io": "threads",
             "errorPolicy": "report",
             "blockSize": {"custom": {"logical": 4096, "physical": 4096}}},
            {"name": "old", "disk": {}},
            {"name": "seed", "cdrom": {"bus": "sata", "tray": "closed", "readonly": true}},
            {"name": "config", "disk": {"bus": "virtio", "readonly": true}},
            {"name": "tray", "cdrom": {"bus": "sata"}},
        ]),
    );
    set(
        &mut object,
        "/spec/domain/devices/blockMultiQueue",
        json!(true),
    );
    set(
        &mut object,
        "/spec/volumes",
        json!([
            {"name": "root", "containerDisk": {"image": "a"}},
            {"name": "scratch", "emptyDisk": {"capacity": "1Gi"}},
            {"name": "old", "emptyDisk": {"capacity": "1Gi"}},
            {"name": "seed", "cloudInitNoCloud": {"userData": "#cloud-config"}},
            {"name": "config", "cloudInitConfigDrive": {"userData": "#cloud-config"}},
        ]),
    );
    set(
        &mut object,
        "/status/volumeStatus",
        json!([{"name": "config", "target": "vda"}]),
    );
    let facts = Facts {
        direct_io: DirectIo::Unsupported,
        ..facts()
    };
    insta::assert_snapshot!(render_with(&object, &facts).unwrap());
}

#[test]
fn every_kind_of_volume() {
    let names = [
        "image", "image-ro", "raw", "lun", "data", "over", "host", "map", "keys", "down", "token",
        "answers",
    ];
    let disk = |name: &&str| match *name {
        "lun" => json!({"name": name, "lun": {"bus": "scsi"}}),
        "answers" => json!({"name": name, "cdrom": {"bus": "sata"}}),
        _ => json!({"name": name, "disk": {"bus": "virtio"}}),
    };
    let mut object = vmi();
    let disks: Vec<Value> = names.iter().map(disk).collect();
    set(&mut object, "/spec/domain/devices/disks", json!(disks));
    set(
        &mut object,
        "/spec/volumes",
        json!([
            {"name": "image", "persistentVolumeClaim": {"claimName": "a"}},
            {"name": "image-ro", "persistentVolumeClaim": {"claimName": "a", "readOnly": true}},
            {"name": "raw", "persistentVolumeClaim": {"claimName": "b"}},
            {"name": "lun", "persistentVolumeClaim": {"claimName": "c"}},
            {"name": "data", "dataVolume": {"name": "d"}},
            {"name": "over", "ephemeral": {"persistentVolumeClaim": {"claimName": "e"}}},
            {"name": "host", "hostDisk": {"path": "/data/host.img", "type": "Disk"}},
            {"name": "map", "configMap": {"name": "f"}},
            {"name": "keys", "secret": {"secretName": "g"}},
            {"name": "down", "downwardAPI": {"fields": []}},
            {"name": "token", "serviceAccount": {"serviceAccountName": "h"}},
            {"name": "answers", "sysprep": {"configMap": {"name": "i"}}},
        ]),
    );
    let volume = |mode, direct_io| VolumeFacts { mode, direct_io };
    let facts = Facts {
        volumes: [
            ("image", VolumeMode::Filesystem, DirectIo::Unsupported),
            ("raw", VolumeMode::Block, DirectIo::Supported),
            ("lun", VolumeMode::Block, DirectIo::Supported),
        ]
        .map(|(name, mode, direct_io)| (name.to_owned(), volume(mode, direct_io)))
        .into(),
        ..facts()
    };
    insta::assert_snapshot!(render_with(&object, &facts).unwrap());
}

#[test]
fn windows_like_guest() {
    let mut object = vmi();
    set(
        &mut object,
        "/spec/domain/firmware",
        json!({
            "uuid": "69a61d3f-50cc-4611-b6e2-e53205a02bad",
            "serial": "<&\"'>",
            "bootloader": {"efi": {"secureBoot": true}},
        }),
    );
    set(
        &mut object,
        "/spec/domain/features",
        json!({
            "acpi": {}, "apic": {}, "smm": {"enabled": true},
            "hyperv": {
                "relaxed": {"enabled": true}, "vapic": {"enabled": true},
                "spinlocks": {"enabled": true, "spinlocks": 8191},
                "synictimer": {"enabled": true, "direct": {"enabled": true}},
                "tlbflush": {"enabled": true}, "evmcs": {"enabled": false},
            },
            "kvm": {"hidden": true},
        }),
    );
    set(
        &mut object,
        "/spec/domain/clock",
        json!({"utc": {}, "timer": {
            "hpet": {"present": false}, "pit": {"tickPolicy": "delay"},
            "rtc": {"tickPolicy": "catchup", "track": "guest"}, "hyperv": {},
        }}),
    );
    set(
        &mut object,
        "/spec/domain/cpu",
        json!({"sockets": 1, "cores": 2, "threads": 2, "model": "Skylake-Server",
               "features": [{"name": "vmx", "policy": "require"}, {"name": "pcid"}]}),
    );
    set(
        &mut object,
        "/spec/domain/memory",
        json!({"guest": "4Gi", "maxGuest": "16Gi"}),
    );
    let devices = "/spec/domain/devices";
    set(
        &mut object,
        &format!("{devices}/networkInterfaceMultiqueue"),
        json!(true),
    );
    set(
        &mut object,
        &format!("{devices}/interfaces/0/bootOrder"),
        json!(2),
    );
    set(
        &mut object,
        &format!("{devices}/interfaces/0/state"),
        json!("down"),
    );
    set(
        &mut object,
        &format!("{devices}/inputs"),
        json!([{"name": "pointer", "type": "tablet", "bus": "usb"},
               {"name": "keys", "type": "keyboard", "bus": "virtio"}]),
    );
    set(&mut object, &format!("{devices}/rng"), json!({}));
    set(
        &mut object,
        &format!("{devices}/watchdog"),
        json!({"name": "dog", "i6300esb": {"action": "poweroff"}}),
    );
    set(
        &mut object,
        &format!("{devices}/sound"),
        json!({"name": "loud"}),
    );
    set(
        &mut object,
        &format!("{devices}/panicDevices"),
        json!([{"model": "hyperv"}]),
    );
    set(&mut object, "/spec/startStrategy", json!("Paused"));
    set(&mut object, "/spec/domain/rebootPolicy", json!("Terminate"));
    insta::assert_snapshot!(render_with(&object, &facts()).unwrap());
}

#[test]
fn bare_guest() {
    let mut object = vmi();
    set(
        &mut object,
        "/spec/domain/devices",
        json!({
            "autoattachSerialConsole": false, "autoattachGraphicsDevice": false,
            "autoattachMemBalloon": false, "disableHotplug": true,
            "useVirtioTransitional": true,
            "disks": [{"name": "d", "disk": {"bus": "virtio"}}],
        }),
    );
    set(
        &mut object,
        "/spec/domain/cpu",
        json!({"model": "host-passthrough"}),
    );
    insta::assert_snapshot!(render_with(&object, &emulated()).unwrap());
}

#[test]
fn unsupported_fields_are_named() {
    let devices = "/spec/domain/devices";
    check_errors([
        (
            with("/spec/architecture", json!("arm64")),
            "not supported yet: spec.architecture: use amd64",
        ),
        (
            with(&format!("{devices}/tpm"), json!({})),
            "not supported yet: spec.domain.devices.tpm: leave it out",
        ),
        (
            with(
                "/spec/volumes/0",
                json!({"name": "d", "downwardMetrics": {}}),
            ),
            "not supported yet: spec.volumes[0].downwardMetrics: leave it out",
        ),
        (
            with(
                &format!("{devices}/disks/0"),
                json!({"name": "d", "lun": {"bus": "scsi", "reservation": true}}),
            ),
            "not supported yet: spec.domain.devices.disks[0].lun.reservation: leave it out",
        ),
        (
            with(
                &format!("{devices}/interfaces/0"),
                json!({"name": "default", "sriov": {}}),
            ),
            "not supported yet: spec.domain.devices.interfaces[0].sriov: use masquerade: {} or bridge: {}",
        ),
        (
            with(
                &format!("{devices}/interfaces/0"),
                json!({"name": "default", "slirp": {}}),
            ),
            "not supported yet: spec.domain.devices.interfaces[0].slirp: use masquerade: {} or bridge: {}",
        ),
        (
            with("/spec/architecture", json!("mips")),
            "not supported yet: spec.architecture: use amd64",
        ),
    ]);
}

#[test]
fn missing_and_invalid_fields_are_named() {
    let devices = "/spec/domain/devices";
    check_errors([
        (
            with(
                "/spec/volumes/0",
                json!({"name": "d", "hostDisk": {"path": "/data/..", "type": "Disk"}}),
            ),
            "spec.volumes[0].hostDisk.path: give the absolute path of a file on the node",
        ),
        (
            with(
                &format!("{devices}/disks/0"),
                json!({"name": "d", "lun": {"bus": "scsi"}}),
            ),
            "spec.domain.devices.disks[0].lun: only a volume that is a block device takes SCSI commands",
        ),
        (
            with(&format!("{devices}/disks/0/name"), json!("x")),
            "spec.domain.devices.disks[0].name: there is no volume named \"x\"",
        ),
        (
            with(&format!("{devices}/disks/0/disk/bus"), json!("ide")),
            "spec.domain.devices.disks[0].bus: there is no bus ide",
        ),
        (
            with(
                &format!("{devices}/interfaces/0"),
                json!({"name": "default"}),
            ),
            "spec.domain.devices.interfaces[0].masquerade: needs a value",
        ),
        (
            with("/spec/volumes/0", json!({"name": "d"})),
            "spec.volumes[0]: needs a value",
        ),
        (
            with(&format!("{devices}/interfaces/0/name"), json!("other")),
            "render interface \"other\": it is not plumbed into the pod",
        ),
        (
            with("/spec/domain/memory", Value::Null),
            "spec.domain.memory.guest: needs a value",
        ),
        (
            with("/spec/domain/memory/guest", json!("lots")),
            "spec.domain.memory.guest: \"lots\" is not a quantity; write a number such as 2, 500m, 128Mi or \
             2G",
        ),
        (
            with("/spec/domain/firmware/uuid", Value::Null),
            "spec.domain.firmware.uuid: needs a value",
        ),
        (
            with(
                "/spec/domain/firmware/kernelBoot/container/kernelPath",
                json!("/boot/../../etc/shadow"),
            ),
            "spec.domain.firmware.kernelBoot.container.kernelPath: must not contain \"..\"",
        ),
        (
            with(
                "/spec/domain/firmware/kernelBoot/kernelArgs",
                json!("a\u{1}b"),
            ),
            "spec: control character '\\u{1}' cannot be passed to the hypervisor",
        ),
        (
            with("/spec/domain/cpu", json!({"sockets": 8, "maxSockets": 4})),
            "spec.domain.cpu.maxSockets: must not be less than spec.domain.cpu.sockets",
        ),
    ]);
}

fn check_errors<const N: usize>(cases: [(Value, &str); N]) {
    for (object, message) in cases {
        let error = render_with(&object, &facts()).unwrap_err();
        assert_eq!(error.to_string(), message);
    }
}
