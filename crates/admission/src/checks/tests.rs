//! Every check with a spec that passes and one that fails, as data: a merge patch over a good
//! guest, and the field and kind of the violation it must bring.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kubevirt_api::VirtualMachineInstance;
use serde_json::{Value, json};

use super::*;
use crate::{Surroundings, defaults};

const GOOD: &str = r#"
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: { name: good, namespace: default }
spec:
  domain:
    devices:
      disks: [{ name: root, disk: { bus: virtio } }, { name: seed, disk: { bus: virtio } }]
      interfaces: [{ name: default, masquerade: {} }]
    memory: { guest: 128Mi }
  networks: [{ name: default, pod: {} }]
  volumes:
    - { name: root, containerDisk: { image: "registry.example/guest:1" } }
    - { name: seed, cloudInitNoCloud: { userData: "hello" } }
"#;

/// Applies a merge patch to the good guest, fills in the defaults and runs the checks.
fn violations(patch: &str, origin: Origin, requester: Requester) -> Vec<Violation> {
    let mut object: Value = serde_saphyr::from_str(GOOD).expect("good YAML");
    let patch: Value = serde_saphyr::from_str(patch).expect(patch);
    json_patch::merge(&mut object, &patch);
    let mut vmi: VirtualMachineInstance = serde_json::from_value(object).expect("reads");
    let config = ClusterConfig::default();
    let now: Time = serde_json::from_value(json!("2026-01-02T03:04:05Z")).expect("time");
    let around = Surroundings {
        now: &now,
        new_uuid: &|| uuid::Uuid::nil(),
    };
    defaults::vmi::set(&mut vmi, &config, around).expect("defaults");
    let none = BTreeMap::new();
    run(&Input {
        spec: &vmi.spec,
        labels: vmi.metadata.labels.as_ref().unwrap_or(&none),
        annotations: vmi.metadata.annotations.as_ref().unwrap_or(&none),
        config: &config,
        origin,
        requester,
    })
}

fn check(patch: &str, expected: &[(&str, Cause)]) {
    let found = violations(patch, Origin::Instance, Requester::User);
    // What this version refuses for now has a test of its own, below.
    let found: Vec<_> = found
        .iter()
        .filter(|v| !v.message.contains("not supported by this version"))
        .map(|v| (v.field.as_str(), v.cause))
        .collect();
    assert_eq!(found, expected, "{patch}");
}

fn passes(patches: &[&str]) {
    for patch in patches {
        check(patch, &[]);
    }
}

fn fails(cases: &[(&str, &str, Cause)]) {
    for (patch, field, cause) in cases {
        check(patch, &[(field, *cause)]);
    }
}

use Cause::{Duplicate, Invalid, NotSupported, Required};

#[test]
fn good_guest_passes_everywhere() {
    for origin in [Origin::Instance, Origin::TemplateOfVm] {
        assert_eq!(violations("{}", origin, Requester::User), []);
    }
}

#[test]
fn paths_of_a_template_begin_at_the_vm() {
    let found = violations(
        "{spec: {hostname: A}}",
        Origin::TemplateOfVm,
        Requester::User,
    );
    assert_eq!(found[0].field, "spec.template.spec.hostname");
}

#[test]
fn reserved_labels_are_for_components() {
    let patch = "{metadata: {labels: {kubevirt.io/nodeName: a}}}";
    check(patch, &[("metadata.labels", NotSupported)]);
    assert_eq!(
        violations(patch, Origin::Instance, Requester::Component),
        []
    );
    passes(&["{metadata: {labels: {kubevirt.io/vm: a}}}"]);
}

#[test]
fn annotations_behind_gates() {
    fails(&[(
        "{metadata: {annotations: {kubevirt.io/ignitiondata: x}}}",
        "metadata.annotations",
        Invalid,
    )]);
    passes(&["{metadata: {annotations: {example.com/note: x}}}"]);
}

#[test]
fn identity() {
    passes(&[
        "{spec: {hostname: web-1, subdomain: a.b, serviceAccountName: me}}",
        "{spec: {architecture: amd64}}",
        "{spec: {evictionStrategy: LiveMigrate, startStrategy: Paused}}",
        "{spec: {terminationGracePeriodSeconds: 0}}",
        "{spec: {dnsPolicy: None, dnsConfig: {nameservers: [10.96.0.10], searches: [a.b]}}}",
    ]);
    fails(&[
        ("{spec: {hostname: Web}}", "spec.hostname", Invalid),
        ("{spec: {hostname: a.b}}", "spec.hostname", Invalid),
        ("{spec: {subdomain: a..b}}", "spec.subdomain", Invalid),
        (
            "{spec: {serviceAccountName: a_b}}",
            "spec.serviceAccountName",
            Invalid,
        ),
        ("{spec: {architecture: mips}}", "spec.architecture", Invalid),
        (
            "{spec: {evictionStrategy: Sometimes}}",
            "spec.evictionStrategy",
            Invalid,
        ),
        (
            "{spec: {startStrategy: Later}}",
            "spec.startStrategy",
            Invalid,
        ),
        (
            "{spec: {terminationGracePeriodSeconds: -1}}",
            "spec.terminationGracePeriodSeconds",
            Invalid,
        ),
        ("{spec: {dnsPolicy: Mine}}", "spec.dnsPolicy", NotSupported),
        (
            "{spec: {dnsPolicy: None}}",
            "spec.dnsConfig.nameservers",
            Required,
        ),
        (
            "{spec: {dnsConfig: {nameservers: [x]}}}",
            "spec.dnsConfig.nameservers[0]",
            Invalid,
        ),
        (
            "{spec: {dnsConfig: {nameservers: [1.1.1.1, 1.1.1.2, 1.1.1.3, 1.1.1.4]}}}",
            "spec.dnsConfig.nameservers",
            Invalid,
        ),
        (
            "{spec: {dnsConfig: {searches: [a_b]}}}",
            "spec.dnsConfig.searches[0]",
            Invalid,
        ),
    ]);
}

#[test]
fn memory() {
    passes(&[
        "{spec: {domain: {memory: null, resources: {requests: {memory: 64Mi}}}}}",
        "{spec: {domain: {resources: {requests: {memory: 64Mi}, limits: {memory: 1G}}}}}",
        "{spec: {domain: {memory: {guest: 1073741824}}}}",
    ]);
    fails(&[
        (
            "{spec: {domain: {memory: null}}}",
            "spec.domain.memory",
            Required,
        ),
        (
            "{spec: {domain: {memory: {guest: lots}}}}",
            "spec.domain.memory.guest",
            Invalid,
        ),
        (
            "{spec: {domain: {memory: {guest: 128}}}}",
            "spec.domain.memory.guest",
            Invalid,
        ),
        (
            "{spec: {domain: {resources: {requests: {memory: -1}}}}}",
            "spec.domain.resources.requests.memory",
            Invalid,
        ),
        (
            "{spec: {domain: {resources: {requests: {memory: 2Gi}, limits: {memory: 1Gi}}}}}",
            "spec.domain.resources.requests.memory",
            Invalid,
        ),
    ]);
}

#[test]
fn cpu() {
    passes(&[
        "{spec: {domain: {cpu: {sockets: 2, maxSockets: 2, model: host-passthrough}}}}",
        "{spec: {domain: {cpu: {features: [{name: vmx, policy: require}]}}}}",
        "{spec: {domain: {resources: {requests: {cpu: 100m}, limits: {cpu: 2}}}}}",
    ]);
    fails(&[
        (
            "{spec: {domain: {cpu: {sockets: 3, maxSockets: 2}}}}",
            "spec.domain.cpu.sockets",
            Invalid,
        ),
        (
            "{spec: {domain: {cpu: {features: [{name: vmx, policy: maybe}]}}}}",
            "spec.domain.cpu.features[0].policy",
            NotSupported,
        ),
        (
            "{spec: {domain: {cpu: {isolateEmulatorThread: true}}}}",
            "spec.domain.cpu.isolateEmulatorThread",
            Invalid,
        ),
        (
            "{spec: {domain: {resources: {requests: {cpu: 3}, limits: {cpu: 2}}}}}",
            "spec.domain.resources.requests.cpu",
            Invalid,
        ),
    ]);
}

#[test]
fn machine() {
    passes(&["{spec: {domain: {machine: {type: pc-q35-10.0}}}}"]);
    fails(&[
        (
            "{spec: {domain: {machine: {type: pc}}}}",
            "spec.domain.machine.type",
            Invalid,
        ),
        (
            "{spec: {domain: {ioThreadsPolicy: many}}}",
            "spec.domain.ioThreadsPolicy",
            Invalid,
        ),
        (
            "{spec: {domain: {ioThreadsPolicy: supplementalPool}}}",
            "spec.domain.ioThreads.supplementalPoolThreadCount",
            Invalid,
        ),
    ]);
}

#[test]
fn firmware() {
    passes(&[
        "{spec: {domain: {firmware: {bootloader: {bios: {}}}}}}",
        "{spec: {domain: {firmware: {kernelBoot: {kernelArgs: quiet, container: {image: a, kernelPath: /boot/k}}}}}}",
        "{spec: {domain: {features: {hyperv: {synictimer: {}}}}}}",
    ]);
    fails(&[
        (
            "{spec: {domain: {firmware: {kernelBoot: {kernelArgs: quiet}}}}}",
            "spec.domain.firmware.kernelBoot",
            Invalid,
        ),
        (
            "{spec: {domain: {firmware: {kernelBoot: {container: {kernelPath: /k}}}}}}",
            "spec.domain.firmware.kernelBoot.container.image",
            Required,
        ),
        (
            "{spec: {domain: {firmware: {kernelBoot: {container: {image: a}}}}}}",
            "spec.domain.firmware.kernelBoot.container",
            Required,
        ),
        (
            "{spec: {domain: {firmware: {kernelBoot: {container: {image: a, kernelPath: /a/../k}}}}}}",
            "spec.domain.firmware.kernelBoot.container.kernelPath",
            Invalid,
        ),
        (
            "{spec: {domain: {firmware: {uuid: mine}}}}",
            "spec.domain.firmware.uuid",
            Invalid,
        ),
        (
            "{spec: {domain: {features: {hyperv: {ipi: {}, vpindex: {enabled: false}}}}}}",
            "spec.domain.features.hyperv.ipi",
            Invalid,
        ),
        (
            "{spec: {domain: {features: {hyperv: {relaxed: {}}, hypervPassthrough: {enabled: true}}}}}",
            "spec.domain.features.hyperv",
            Invalid,
        ),
    ]);
}

#[test]
fn secure_boot_needs_smm() {
    let efi = "spec.domain.firmware.bootloader.efi";
    let patch = "{spec: {domain: {firmware: {bootloader: {efi: {}}}}}}";
    check(patch, &[(&format!("{efi}.secureBoot"), Invalid)]);
    let patch = "{spec: {domain: {features: {smm: {}}, firmware: {bootloader: {efi: {}}}}}}";
    check(patch, &[]);
    let both = "{spec: {domain: {firmware: {bootloader: {bios: {}, efi: {secureBoot: false}}}}}}";
    check(both, &[("spec.domain.firmware.bootloader", Invalid)]);
}

#[test]
fn other_devices() {
    passes(&[
        "{spec: {domain: {devices: {inputs: [{name: a, bus: usb, type: tablet}], video: {type: virtio}}}}}",
    ]);
    fails(&[
        (
            "{spec: {domain: {devices: {inputs: [{name: a, type: keyboard}]}}}}",
            "spec.domain.devices.inputs[0].type",
            Invalid,
        ),
        (
            "{spec: {domain: {devices: {inputs: [{name: a, bus: ps2}]}}}}",
            "spec.domain.devices.inputs[0].bus",
            Invalid,
        ),
        (
            "{spec: {domain: {devices: {video: {type: cga}}}}}",
            "spec.domain.devices.video.type",
            NotSupported,
        ),
        (
            "{spec: {domain: {devices: {autoattachGraphicsDevice: false, video: {type: vga}}}}}",
            "spec.domain.devices.video",
            Invalid,
        ),
    ]);
}

/// The good guest with other properties of its first disk.
fn root(properties: &str) -> String {
    let seed = "{ name: seed, disk: { bus: virtio } }";
    format!("{{spec: {{domain: {{devices: {{disks: [{{name: root, {properties}}}, {seed}]}}}}}}}}")
}

#[test]
fn disks() {
    for properties in [
        "disk: {bus: sata}",
        "cdrom: {}",
        "disk: {bus: virtio, pciAddress: '0000:81:01.0'}, bootOrder: 1, serial: A-1",
        "disk: {bus: virtio}, cache: none, io: native, errorPolicy: stop, dedicatedIOThread: true",
        "disk: {bus: virtio}, blockSize: {custom: {logical: 512, physical: 4096}}",
    ] {
        check(&root(properties), &[]);
    }
    let disk = "spec.domain.devices.disks[0]";
    for (properties, field, cause) in [
        ("disk: {bus: ide}", ".disk.bus", Invalid),
        ("cdrom: {bus: virtio}", ".cdrom.bus", Invalid),
        ("disk: {bus: sata, readonly: true}", ".disk.bus", Invalid),
        ("disk: {}, cdrom: {}", "", Invalid),
        (
            "disk: {bus: sata, pciAddress: '0000:81:01.0'}",
            ".disk.pciAddress",
            Invalid,
        ),
        (
            "disk: {bus: virtio, pciAddress: '81:01'}",
            ".disk.pciAddress",
            Invalid,
        ),
        (
            "disk: {bus: sata}, dedicatedIOThread: true",
            ".dedicatedIOThread",
            NotSupported,
        ),
        ("bootOrder: 0", ".bootOrder", Invalid),
        ("serial: 'a b'", ".serial", Invalid),
        ("cache: always", ".cache", Invalid),
        ("io: fast", ".io", NotSupported),
        ("errorPolicy: panic", ".errorPolicy", Invalid),
        (
            "blockSize: {custom: {logical: 4096, physical: 512}}",
            ".blockSize.custom",
            Invalid,
        ),
        (
            "blockSize: {custom: {logical: 500, physical: 512}}",
            ".blockSize.custom",
            Invalid,
        ),
        (
            "blockSize: {custom: {logical: 512, physical: 512}, matchVolume: {}}",
            ".blockSize",
            Invalid,
        ),
    ] {
        check(&root(properties), &[(&format!("{disk}{field}"), cause)]);
    }
}

#[test]
fn names_of_disks_and_volumes_meet() {
    check(
        "{spec: {domain: {devices: {disks: [{name: root}, {name: seed}, {name: none}]}}}}",
        &[("spec.domain.devices.disks[2].name", Invalid)],
    );
    check(
        "{spec: {domain: {devices: {disks: [{name: root}, {name: seed}, {name: root}]}}}}",
        &[("spec.domain.devices.disks[2].name", Duplicate)],
    );
    check(
        "{spec: {domain: {devices: {disks: [{name: root, bootOrder: 1}, {name: seed, bootOrder: 1}]}}}}",
        &[("spec.domain.devices.disks[1].bootOrder", Invalid)],
    );
    let twice = "{spec: {volumes: [
        {name: root, emptyDisk: {capacity: 1Gi}}, {name: root, emptyDisk: {capacity: 1Gi}},
        {name: seed, emptyDisk: {capacity: 1Gi}}]}}";
    check(twice, &[("spec.volumes[1].name", Duplicate)]);
    // A volume that nothing shows gets a disk, so nobody has to write one.
    let more = "{spec: {volumes: [
        {name: root, emptyDisk: {capacity: 1Gi}}, {name: seed, emptyDisk: {capacity: 1Gi}},
        {name: more, emptyDisk: {capacity: 1Gi}}]}}";
    check(more, &[]);
}

#[test]
fn volume_without_disk_is_refused_when_defaults_did_not_run() {
    let spec = VirtualMachineInstanceSpec {
        volumes: vec![kubevirt_api::volumes::Volume {
            name: "a".to_owned(),
            ..Default::default()
        }],
        ..VirtualMachineInstanceSpec::default()
    };
    let none = BTreeMap::new();
    let input = Input {
        spec: &spec,
        labels: &none,
        annotations: &none,
        config: &ClusterConfig::default(),
        origin: Origin::Instance,
        requester: Requester::User,
    };
    assert_eq!(volumes::are_used(&input)[0].field, "spec.volumes[0].name");
}

/// The good guest with another source of its first volume.
fn source(source: &str) -> String {
    let seed = "{name: seed, emptyDisk: {capacity: 1Mi}}";
    format!("{{spec: {{volumes: [{{name: root, {source}}}, {seed}]}}}}")
}

#[test]
fn volumes_are_checked() {
    for good in [
        "emptyDisk: {capacity: 2Gi}",
        "containerDisk: {image: a, path: /disk/a.qcow2}",
        "cloudInitNoCloud: {userDataBase64: aGk=, networkData: 'version: 2'}",
    ] {
        check(&source(good), &[]);
    }
    let volume = "spec.volumes[0]";
    let long = format!("cloudInitNoCloud: {{userData: {}}}", "x".repeat(2049));
    for (bad, field, cause) in [
        ("emptyDisk: null", "", Invalid),
        (
            "emptyDisk: {capacity: 1Gi}, containerDisk: {image: a}",
            "",
            Invalid,
        ),
        ("emptyDisk: {capacity: 0}", ".emptyDisk.capacity", Invalid),
        ("emptyDisk: {capacity: big}", ".emptyDisk.capacity", Invalid),
        ("containerDisk: {}", ".containerDisk.image", Required),
        (
            "containerDisk: {image: a, path: disk}",
            ".containerDisk.path",
            Invalid,
        ),
        ("cloudInitNoCloud: {}", ".cloudInitNoCloud", Invalid),
        (
            "cloudInitNoCloud: {userData: a, userDataBase64: YQ==}",
            ".cloudInitNoCloud",
            Invalid,
        ),
        (
            "cloudInitNoCloud: {userDataBase64: '?'}",
            ".cloudInitNoCloud.userDataBase64",
            Invalid,
        ),
        (long.as_str(), ".cloudInitNoCloud.userData", Invalid),
        ("cloudInitConfigDrive: {}", ".cloudInitConfigDrive", Invalid),
    ] {
        check(&source(bad), &[(&format!("{volume}{field}"), cause)]);
    }
    check(
        &source("cloudInitNoCloud: {userData: a, secretRef: {name: b}}"),
        &[("spec.volumes[0].cloudInitNoCloud", Invalid)],
    );
    fails(&[(
        "{spec: {utilityVolumes: [{name: a, claimName: b}]}}",
        "spec.utilityVolumes",
        Invalid,
    )]);
}

/// The good guest with other properties of its interface.
fn interface(properties: &str) -> String {
    format!("{{spec: {{domain: {{devices: {{interfaces: [{{name: default, {properties}}}]}}}}}}}}")
}

#[test]
fn interfaces_are_checked() {
    for good in [
        "masquerade: {}, model: e1000e, macAddress: '02:00:00:00:00:01', bootOrder: 1",
        "masquerade: {}, ports: [{port: 80, name: http, protocol: TCP}, {port: 53, protocol: UDP}]",
        "masquerade: {}, state: down",
        "masquerade: {}, dhcpOptions: {ntpServers: [10.0.0.1], privateOptions: [{option: 240, value: a}]}",
    ] {
        check(&interface(good), &[]);
    }
    let path = "spec.domain.devices.interfaces[0]";
    for (bad, field, cause) in [
        ("model: virtio", "", Invalid),
        ("slirp: {}", ".slirp", Invalid),
        ("bridge: {}, masquerade: {}", "", Invalid),
        ("masquerade: {}, model: rtl", ".model", NotSupported),
        (
            "masquerade: {}, macAddress: '02:00'",
            ".macAddress",
            Invalid,
        ),
        (
            "masquerade: {}, macAddress: '02:00:00:00:00:00'",
            ".macAddress",
            Invalid,
        ),
        ("masquerade: {}, state: gone", ".state", Invalid),
        ("masquerade: {}, state: absent", ".state", Invalid),
        ("masquerade: {}, pciAddress: x", ".pciAddress", Invalid),
        (
            "masquerade: {}, ports: [{name: a}]",
            ".ports[0].port",
            Required,
        ),
        (
            "masquerade: {}, ports: [{port: 70000}]",
            ".ports[0].port",
            Invalid,
        ),
        (
            "masquerade: {}, ports: [{port: 1, protocol: ICMP}]",
            ".ports[0].protocol",
            Invalid,
        ),
        (
            "masquerade: {}, ports: [{port: 1, name: Web}]",
            ".ports[0].name",
            Invalid,
        ),
        (
            "masquerade: {}, ports: [{port: 1, name: a}, {port: 2, name: a}]",
            ".ports[1].name",
            Duplicate,
        ),
        (
            "masquerade: {}, dhcpOptions: {privateOptions: [{option: 1, value: a}]}",
            ".dhcpOptions.privateOptions[0].option",
            Invalid,
        ),
        (
            "masquerade: {}, dhcpOptions: {ntpServers: [x]}",
            ".dhcpOptions.ntpServers[0]",
            Invalid,
        ),
    ] {
        check(&interface(bad), &[(&format!("{path}{field}"), cause)]);
    }
}

#[test]
fn networks_are_checked() {
    check(
        "{spec: {networks: [{name: default}]}}",
        &[("spec.networks[0]", Required)],
    );
    check(
        "{spec: {networks: [{name: default, pod: {}}, {name: lonely, pod: {}}]}}",
        &[
            ("spec.networks[1].name", Required),
            ("spec.networks", Duplicate),
        ],
    );
    check(
        "{spec: {networks: [{name: other, pod: {}}]}}",
        &[
            ("spec.networks[0].name", Required),
            ("spec.domain.devices.interfaces[0].name", Invalid),
        ],
    );
    check(
        "{spec: {networks: [{name: default, multus: {networkName: a}}]}}",
        &[("spec.domain.devices.interfaces[0].masquerade", Invalid)],
    );
    // Without networks and interfaces the guest joins the pod network by itself.
    passes(&["{spec: {networks: null, domain: {devices: {interfaces: null}}}}"]);
}

#[test]
fn probes_have_one_way_to_ask() {
    passes(&["{spec: {readinessProbe: {tcpSocket: {port: 80}}}}"]);
    fails(&[
        (
            "{spec: {readinessProbe: {periodSeconds: 3}}}",
            "spec.readinessProbe",
            Required,
        ),
        (
            "{spec: {livenessProbe: {tcpSocket: {port: 80}, httpGet: {port: 80}}}}",
            "spec.livenessProbe",
            Invalid,
        ),
        (
            "{spec: {networks: null, domain: {devices: {interfaces: null, autoattachPodInterface: false}}, livenessProbe: {tcpSocket: {port: 80}}}}",
            "spec.livenessProbe",
            Invalid,
        ),
    ]);
}

#[test]
fn what_cannot_run_yet_is_refused_with_the_way_out() {
    for (patch, message) in [
        (
            source("dataVolume: {name: a}"),
            "spec.volumes[0].dataVolume: not supported by this version yet; use containerDisk or \
             emptyDisk",
        ),
        (
            interface("bridge: {}"),
            "spec.domain.devices.interfaces[0].bridge: not supported by this version yet; use \
             masquerade: {}",
        ),
        (
            "{spec: {domain: {cpu: {dedicatedCpuPlacement: true}}}}".to_owned(),
            "spec.domain.cpu.dedicatedCpuPlacement: not supported by this version yet; set it to \
             false",
        ),
    ] {
        let found = violations(&patch, Origin::Instance, Requester::User);
        assert_eq!(found.len(), 1, "{patch}");
        assert_eq!(found[0].message, message);
        assert_eq!(found[0].cause, NotSupported);
    }
}
