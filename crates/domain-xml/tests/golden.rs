//! VMIs as data, domains as golden files.

#![expect(clippy::unwrap_used, reason = "tests")]

use domain_xml::{
    Acceleration, Allocation, BlockSizes, DirectIo, EfiFirmware, Facts, HostCell, HostCpu, Input,
    InterfaceFacts, Provisioning, RenderError, SmbiosFacts, VolumeFacts, VolumeMode, render,
    tagged_devices,
};
use kubevirt_api::VirtualMachineInstance;
use model::{AllocatedDevices, PciAddress, Supported};
use serde_json::{Value, json};

fn facts() -> Facts {
    Facts {
        acceleration: Acceleration::Kvm,
        direct_io: DirectIo::Supported,
        hotplugged: [].into(),
        volumes: [].into(),
        interfaces: vec![InterfaceFacts {
            name: "default".into(),
            tap: Some("tap0".into()),
            mac: "12:81:b8:38:4f:52".into(),
            mtu: 1500,
        }],
        allocated: AllocatedDevices::default(),
        virtual_functions: [].into(),
        device_cells: [].into(),
        smbios: SmbiosFacts::defaults(),
        balloon_stats_seconds: 10,
        free_page_reporting: true,
        efi: EfiFirmware::debian(),
        block_size: 4096,
        cpus: Vec::new(),
        cells: Vec::new(),
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

/// The `driver` of the disk of a claim.
fn driver_of(volume: VolumeFacts) -> String {
    let mut object = vmi();
    let claim = json!([{"name": "d", "persistentVolumeClaim": {"claimName": "c"}}]);
    set(&mut object, "/spec/volumes", claim);
    set(&mut object, "/spec/domain/firmware/kernelBoot", Value::Null);
    let volumes = [("d".to_owned(), volume)].into();
    let facts = Facts { volumes, ..facts() };
    let xml = render_with(&object, &facts).unwrap();
    line(&xml, "<driver name=\"qemu\"").to_owned()
}

fn line<'a>(xml: &'a str, start: &str) -> &'a str {
    let mut lines = xml.lines().map(str::trim);
    lines.find(|line| line.starts_with(start)).unwrap()
}

#[test]
fn preallocated_volumes_keep_their_space_and_need_no_threads() {
    let thin = VolumeFacts {
        mode: VolumeMode::Filesystem,
        direct_io: DirectIo::Supported,
        blocks: BlockSizes {
            logical: 512,
            physical: 512,
            discard: 0,
        },
        provisioning: Provisioning::Thin,
        allocation: Allocation::Sparse,
    };
    assert_eq!(
        driver_of(thin),
        r#"<driver name="qemu" type="raw" cache="none" error_policy="stop" discard="unmap"/>"#
    );
    let full = VolumeFacts {
        allocation: Allocation::Full,
        ..thin
    };
    assert_eq!(
        driver_of(full),
        r#"<driver name="qemu" type="raw" cache="none" error_policy="stop" io="native" discard="unmap"/>"#
    );
    let thick = VolumeFacts {
        provisioning: Provisioning::Thick,
        ..full
    };
    assert_eq!(
        driver_of(thick),
        r#"<driver name="qemu" type="raw" cache="none" error_policy="stop" io="native"/>"#
    );
    let cached = VolumeFacts {
        direct_io: DirectIo::Unsupported,
        ..thick
    };
    assert_eq!(
        driver_of(cached),
        r#"<driver name="qemu" type="raw" cache="writethrough" error_policy="stop"/>"#
    );
}

#[test]
fn guest_that_depends_on_the_tsc_gets_its_frequency() {
    let tsc = |spec: Value, hints: Value| {
        let mut object = vmi();
        for (key, value) in spec.as_object().unwrap() {
            set(&mut object, &format!("/spec/domain/{key}"), value.clone());
        }
        set(&mut object, "/status", json!({"topologyHints": hints}));
        let xml = render_with(&object, &facts()).unwrap();
        let clock = xml.split_once("<clock").map(|(_, rest)| rest);
        let clock = clock.and_then(|rest| rest.split_once("</clock>"));
        clock.map(|(inner, _)| inner.split_whitespace().collect::<Vec<_>>().join(" "))
    };
    let hints = json!({"tscFrequency": 2_000_000_000});
    let invariant = json!({"cpu": {
        "cores": 1, "sockets": 1, "threads": 1, "model": "host-model",
        "features": [{"name": "invtsc", "policy": "require"}],
    }});
    let timer = "<timer name=\"tsc\" frequency=\"2000000000\"/>";
    let rendered = tsc(invariant.clone(), hints.clone()).unwrap();
    assert_eq!(rendered, format!("offset=\"utc\"> {timer}"));
    // Beside other timers.
    let mut windows = json!({"clock": {"timer": {"hpet": {"present": false}}}});
    windows["features"] = json!({"hyperv": {"reenlightenment": {"enabled": true}}});
    let rendered = tsc(windows, hints.clone()).unwrap();
    assert!(
        rendered.ends_with(&format!("<timer name=\"hpet\" present=\"no\"/> {timer}")),
        "{rendered}"
    );
    assert_eq!(tsc(invariant.clone(), json!({})), None, "unknown frequency");
    let mut optional = invariant;
    optional["cpu"]["features"][0]["policy"] = "optional".into();
    assert_eq!(tsc(optional, hints), None, "not required");
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
        "raw" => json!({"name": name, "disk": {"bus": "virtio"}, "blockSize": {"matchVolume": {}}}),
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
    let blocks = BlockSizes {
        logical: 512,
        physical: 4096,
        discard: 65536,
    };
    let volume = |mode, direct_io| VolumeFacts {
        mode,
        direct_io,
        blocks,
        provisioning: Provisioning::Thin,
        allocation: Allocation::Sparse,
    };
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
            "autoattachSerialConsole": false, "logSerialConsole": false, "autoattachGraphicsDevice": false,
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

/// A host with two cells of two cores with two threads; the pod has all but the first core.
fn with_cpus() -> Facts {
    let cpu = |id| HostCpu {
        id,
        core: id / 2,
        cell: id / 4,
    };
    let cell = |id, other| HostCell {
        id,
        distances: [(id, 10), (other, 21)].into(),
    };
    Facts {
        cpus: (2..8).map(cpu).collect(),
        cells: vec![cell(0, 1), cell(1, 0)],
        ..facts()
    }
}

#[test]
fn guest_with_cpus_and_pages_of_its_own() {
    let mut object = vmi();
    set(
        &mut object,
        "/spec/domain/cpu",
        json!({
            "sockets": 1, "cores": 2, "threads": 2, "model": "host-passthrough",
            "dedicatedCpuPlacement": true, "isolateEmulatorThread": true,
            "numa": {"guestMappingPassthrough": {}}, "realtime": {"mask": "0-1"},
        }),
    );
    set(
        &mut object,
        "/spec/domain/memory",
        json!({"guest": "130Mi", "hugepages": {"pageSize": "2Mi"}}),
    );
    set(&mut object, "/spec/domain/ioThreadsPolicy", json!("auto"));
    set(
        &mut object,
        "/spec/domain/devices/disks/0/dedicatedIOThread",
        json!(true),
    );
    insta::assert_snapshot!(render_with(&object, &with_cpus()).unwrap());
}

#[test]
fn tagged_device_of_the_node_has_what_is_near_to_it() {
    let variables = [("PCI_RESOURCE_EXAMPLE_ORG_NIC", "0000:81:00.0")];
    let device = PciAddress::parse("0000:81:00.0").unwrap();
    let near = |cpu: Value, cell: u32, own: std::ops::Range<usize>| {
        let mut object = vmi();
        set(&mut object, "/spec/domain/cpu", cpu);
        let pages = json!({"guest": "130Mi", "hugepages": {"pageSize": "2Mi"}});
        set(&mut object, "/spec/domain/memory", pages);
        let devices = json!([{"name": "fast", "deviceName": "example.org/nic", "tag": "data"}]);
        set(&mut object, "/spec/domain/devices/hostDevices", devices);
        let vmi: VirtualMachineInstance = serde_json::from_value(object).unwrap();
        let all = with_cpus();
        let facts = Facts {
            allocated: AllocatedDevices::of(variables.into_iter()).unwrap(),
            device_cells: [(device, cell)].into(),
            cpus: all.cpus[own].to_vec(),
            ..all
        };
        let guest = &Supported::of(&vmi).unwrap();
        let input = Input {
            guest,
            facts: &facts,
        };
        let found = tagged_devices(&input).unwrap();
        assert_eq!(found.len(), 1);
        (found[0].near.cell, found[0].near.cpus.clone())
    };
    let shared = json!({"cores": 2, "threads": 2});
    let own = json!({"cores": 2, "threads": 2, "dedicatedCpuPlacement": true});
    let sees = |cores: u32| {
        json!({
            "cores": cores, "threads": 2, "dedicatedCpuPlacement": true,
            "numa": {"guestMappingPassthrough": {}},
        })
    };
    assert_eq!(near(shared, 1, 0..6), (None, vec![]));
    // The first core is on cell 0.
    assert_eq!(near(own.clone(), 1, 0..6), (None, vec![2, 3]));
    assert_eq!(near(own.clone(), 0, 0..6), (None, vec![0, 1]));
    assert_eq!(near(own, 2, 0..6), (None, vec![]));
    assert_eq!(near(sees(2), 1, 0..6), (Some(1), vec![]));
    // The guest's only cell is the node's second one.
    assert_eq!(near(sees(1), 1, 2..6), (Some(0), vec![]));
    assert_eq!(near(sees(1), 0, 2..6), (None, vec![]));
}

#[test]
fn guest_with_huge_pages_and_a_pool_of_io_threads() {
    let mut object = vmi();
    set(
        &mut object,
        "/spec/domain/memory",
        json!({"guest": "128Mi", "hugepages": {"pageSize": "2Mi"}}),
    );
    set(
        &mut object,
        "/spec/domain/ioThreadsPolicy",
        json!("supplementalPool"),
    );
    set(
        &mut object,
        "/spec/domain/ioThreads",
        json!({"supplementalPoolThreadCount": 2}),
    );
    set(&mut object, "/spec/domain/devices/tpm", json!({}));
    set(
        &mut object,
        "/spec/domain/devices/autoattachVSOCK",
        json!(true),
    );
    let error = render_with(&object, &facts()).unwrap_err();
    assert!(error.is_transient(), "{error}");
    set(&mut object, "/status/VSOCKCID", json!(77));
    insta::assert_snapshot!(render_with(&object, &facts()).unwrap());
    set(
        &mut object,
        "/metadata/annotations",
        json!({"kubevirt.io/memfd": "false"}),
    );
    let xml = render_with(&object, &facts()).unwrap();
    assert!(
        xml.contains("<hugepages/>") && !xml.contains("memfd"),
        "{xml}"
    );
}

#[test]
fn identity_tables_and_addresses() {
    let devices = "/spec/domain/devices";
    let mut object = vmi();
    set(
        &mut object,
        "/spec/domain/chassis",
        json!({"manufacturer": "ACME", "version": "2", "serial": "c-1", "asset": "a-1", "sku": ""}),
    );
    set(
        &mut object,
        "/spec/domain/firmware/acpi",
        json!({"slicNameRef": "slic", "msdmNameRef": "msdm"}),
    );
    set(
        &mut object,
        "/spec/volumes",
        json!([
            {"name": "d", "containerDisk": {"image": "a"}},
            {"name": "slic", "secret": {"secretName": "s"}},
            {"name": "msdm", "secret": {"secretName": "m"}},
        ]),
    );
    set(
        &mut object,
        &format!("{devices}/disks/0"),
        json!({"name": "d", "disk": {"bus": "virtio", "pciAddress": "0000:05:00.0"},
               "blockSize": {"matchVolume": {}}}),
    );
    set(
        &mut object,
        &format!("{devices}/interfaces/0"),
        json!({"name": "default", "masquerade": {}, "pciAddress": "0000:0c:00.0", "acpiIndex": 7}),
    );
    insta::assert_snapshot!(render_with(&object, &facts()).unwrap());
    check_errors([(
        with(
            &format!("{devices}/interfaces/0/pciAddress"),
            json!("0000:0c:20.0"),
        ),
        "spec.domain.devices.interfaces[0].pciAddress: \"0000:0c:20.0\" is not a PCI address; use the \
         form 0000:81:01.0",
    )]);
}

#[test]
fn guests_of_other_architectures() {
    let devices = "/spec/domain/devices";
    let mut object = with("/spec/architecture", json!("arm64"));
    set(&mut object, "/spec/domain/machine", json!({"type": "virt"}));
    set(&mut object, "/spec/domain/firmware/kernelBoot", Value::Null);
    set(
        &mut object,
        "/spec/domain/firmware/bootloader",
        json!({"efi": {"secureBoot": false}}),
    );
    set(
        &mut object,
        "/spec/domain/cpu",
        json!({"model": "host-passthrough", "sockets": 2, "maxSockets": 8}),
    );
    insta::assert_snapshot!("arm64", render_with(&object, &facts()).unwrap());
    let mut object = with("/spec/architecture", json!("s390x"));
    set(&mut object, "/spec/domain/machine", Value::Null);
    set(&mut object, "/spec/domain/launchSecurity", json!({}));
    set(&mut object, &format!("{devices}/rng"), json!({}));
    set(
        &mut object,
        &format!("{devices}/watchdog"),
        json!({"name": "dog", "diag288": {"action": "poweroff"}}),
    );
    insta::assert_snapshot!("s390x", render_with(&object, &facts()).unwrap());
}

#[test]
fn confidential_guests() {
    for (name, secure, security) in [
        (
            "sev-es",
            false,
            json!({"sev": {"policy": {"encryptedState": true}, "session": "c2Vz",
            "dhCert": "Y2VydA=="}}),
        ),
        ("snp", false, json!({"snp": {}})),
        ("tdx", true, json!({"tdx": {}})),
    ] {
        let mut object = with("/spec/domain/launchSecurity", security);
        set(
            &mut object,
            "/metadata/annotations",
            json!({"kubevirt.io/qgs-socket-path": "/run/qgs.socket"}),
        );
        set(&mut object, "/spec/domain/firmware/kernelBoot", Value::Null);
        set(
            &mut object,
            "/spec/domain/firmware/bootloader",
            json!({"efi": {"secureBoot": secure}}),
        );
        insta::assert_snapshot!(name, render_with(&object, &facts()).unwrap());
    }
}

/// The VMI with filesystems of these volumes.
fn sharing(volumes: &[Value]) -> Value {
    let mut object = vmi();
    let filesystem = |volume: &Value| json!({"name": volume["name"], "virtiofs": {}});
    let filesystems: Vec<Value> = volumes.iter().map(filesystem).collect();
    set(
        &mut object,
        "/spec/domain/devices/filesystems",
        json!(filesystems),
    );
    let all = object["spec"]["volumes"].as_array_mut().unwrap();
    all.extend_from_slice(volumes);
    object
}

#[test]
fn guest_with_shared_filesystems() {
    let object = sharing(&[
        json!({"name": "settings", "configMap": {"name": "c"}}),
        json!({"name": "data", "persistentVolumeClaim": {"claimName": "c"}}),
        json!({"name": "identity", "containerPath": {"path": "/var/run/secrets/x"}}),
    ]);
    insta::assert_snapshot!(render_with(&object, &facts()).unwrap());
}

#[test]
fn guest_connected_by_passt() {
    let mut object = vmi();
    let interfaces = json!([{"name": "default", "passtBinding": {}}]);
    set(&mut object, "/spec/domain/devices/interfaces", interfaces);
    let mut facts = facts();
    facts.interfaces[0].tap = None;
    insta::assert_snapshot!(render_with(&object, &facts).unwrap());
    let model = "/spec/domain/devices/interfaces/0/model";
    set(&mut object, model, json!("e1000e"));
    let error = render_with(&object, &facts).unwrap_err();
    let expected = "spec.domain.devices.interfaces[0].model: passt connects virtio interfaces only; leave it out";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn guest_with_usb_ports_for_clients() {
    let object = with("/spec/domain/devices/clientPassthrough", json!({}));
    insta::assert_snapshot!(render_with(&object, &facts()).unwrap());
}

#[test]
fn shared_memory_of_huge_pages_is_a_file() {
    let mut object = sharing(&[json!({"name": "settings", "secret": {"secretName": "c"}})]);
    let pages = json!({"pageSize": "2Mi"});
    set(&mut object, "/spec/domain/memory/hugepages", pages);
    set(
        &mut object,
        "/metadata/annotations",
        json!({"kubevirt.io/memfd": "false"}),
    );
    let xml = render_with(&object, &facts()).unwrap();
    let backing = xml.split("<memoryBacking>").nth(1).unwrap();
    let backing = backing.split("</memoryBacking>").next().unwrap();
    let backing: Vec<&str> = backing.split_whitespace().collect();
    let expected = "<hugepages/> <source type=\"memfd\"/> <access mode=\"shared\"/>";
    assert_eq!(backing.join(" "), expected);
}

#[test]
fn volumes_without_a_directory_are_not_shared() {
    let disk = json!({"name": "e", "emptyDisk": {"capacity": "1Gi"}});
    let mut missing = sharing(&[]);
    let filesystems = json!([{"name": "gone", "virtiofs": {}}]);
    set(
        &mut missing,
        "/spec/domain/devices/filesystems",
        filesystems,
    );
    let mut twice = sharing(&[json!({"name": "c", "configMap": {"name": "c"}})]);
    let disks = json!([{"name": "d", "disk": {}}, {"name": "c", "disk": {}}]);
    set(&mut twice, "/spec/domain/devices/disks", disks);
    check_errors([
        (
            sharing(&[disk]),
            "spec.domain.devices.filesystems[0]: emptyDisk has no directory to share; use a disk",
        ),
        (
            missing,
            "spec.domain.devices.filesystems[0]: there is no volume named \"gone\"",
        ),
        (
            twice,
            "spec.domain.devices.filesystems[0]: its volume is a disk already; use one of the two",
        ),
    ]);
}

#[test]
fn unsupported_fields_are_named() {
    let devices = "/spec/domain/devices";
    check_errors([
        (
            with(
                &format!("{devices}/interfaces/0"),
                json!({"name": "default", "sriov": {}}),
            ),
            "render interface \"default\": it is not plumbed into the pod",
        ),
        (
            with(
                &format!("{devices}/interfaces/0"),
                json!({"name": "default", "slirp": {}}),
            ),
            "not supported yet: spec.domain.devices.interfaces[0].slirp: use masquerade: {}, bridge: {} or passtBinding: {}",
        ),
        (
            with("/spec/architecture", json!("mips")),
            "not supported yet: spec.architecture: use amd64, arm64 or s390x",
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

/// The disk of volume `v`, which another pod brings.
fn hot_disk(disk: &Value) -> Result<domain_xml::HotDisk, RenderError> {
    let mut object = vmi();
    let claim = json!({"claimName": "c", "hotpluggable": true});
    object["spec"]["volumes"] = json!([{"name": "v", "persistentVolumeClaim": claim}]);
    object["spec"]["domain"]["devices"]["disks"] = json!([disk]);
    let vmi: VirtualMachineInstance = serde_json::from_value(object).unwrap();
    let facts = Facts {
        hotplugged: ["v".to_owned()].into(),
        ..facts()
    };
    let guest = Supported::of(&vmi).unwrap();
    let input = Input {
        guest: &guest,
        facts: &facts,
    };
    domain_xml::hot_disk(&input, "v")
}

#[test]
fn plugged_interface_has_no_address_and_those_of_the_start_keep_theirs() {
    let mut object = vmi();
    let devices = &mut object["spec"]["domain"]["devices"];
    devices["interfaces"] = json!([
        {"name": "default", "masquerade": {}},
        {"name": "lan", "bridge": {}, "state": "down"},
    ]);
    object["spec"]["networks"] = json!([
        {"name": "default", "pod": {}},
        {"name": "lan", "multus": {"networkName": "lan"}},
    ]);
    let vmi: VirtualMachineInstance = serde_json::from_value(object).unwrap();
    let of = |name: &str, tap: &str| InterfaceFacts {
        name: name.to_owned(),
        tap: Some(tap.to_owned()),
        mac: "02:00:00:00:00:0b".to_owned(),
        mtu: 1400,
    };
    let facts = Facts {
        interfaces: vec![of("default", "tap0"), of("lan", "tap1")],
        ..facts()
    };
    let guest = Supported::of(&vmi).unwrap();
    let input = Input {
        guest: &guest,
        facts: &facts,
    };
    let xml = domain_xml::hot_interface(&input, "lan").unwrap();
    for part in [
        "<interface type=\"ethernet\">",
        "<target dev=\"tap1\" managed=\"no\"/>",
        "<alias name=\"ua-lan\"/>",
        "<link state=\"down\"/>",
        "<mtu size=\"1400\"/>",
    ] {
        assert!(xml.contains(part), "{part}: {xml}");
    }
    assert!(!xml.contains("<address"), "{xml}");
    let error = domain_xml::hot_interface(&input, "none").unwrap_err();
    assert!(error.to_string().contains("interface none"), "{error}");
}

#[test]
fn hot_plugged_disk_has_its_own_place_and_a_drive_keeps_its_properties() {
    let image = "/var/run/kubevirt/hotplug-disks/v/disk.img";
    let disk = hot_disk(&json!({"name": "v", "disk": {"bus": "scsi"}, "serial": "s"})).unwrap();
    assert_eq!(disk.target, "sda");
    assert_eq!(disk.source.as_deref(), Some(image));
    for part in [
        "<alias name=\"ua-v\"/>",
        "<serial>s</serial>",
        "cache=\"none\"",
        "<address type=\"drive\" controller=\"0\" bus=\"0\" unit=\"0\"/>",
        &format!("<source file=\"{image}\"/>"),
    ] {
        assert!(disk.xml.contains(part), "{part}: {}", disk.xml);
    }
    // libvirt exchanges a medium only if nothing but the source differs.
    let medium = hot_disk(&json!({"name": "v", "cdrom": {"bus": "sata"}})).unwrap();
    assert!(medium.xml.contains(image), "{}", medium.xml);
    assert!(!medium.xml.contains("cache="), "{}", medium.xml);
    let threaded = json!({"name": "v", "disk": {"bus": "virtio"}, "dedicatedIOThread": true});
    let error = hot_disk(&threaded).unwrap_err().to_string();
    assert!(error.contains("dedicatedIOThread"), "{error}");
}
