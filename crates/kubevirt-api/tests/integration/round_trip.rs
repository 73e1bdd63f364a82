//! Every object that is read is written again unchanged: real, odd and generated ones.

use kube::ResourceExt;
use kubevirt_api::{
    VirtualMachine, VirtualMachineInstance, vm::VirtualMachineRunStrategy,
    vmi_status::VirtualMachineInstancePhase,
};
use proptest::prelude::*;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

const RUNNING: &str = r"
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata:
  name: web
  namespace: shop
  finalizers: [kubevirt.io/foregroundDeleteVirtualMachine]
  generation: 3
spec:
  architecture: amd64
  domain:
    cpu: { cores: 1, maxSockets: 4, model: host-model, sockets: 1, threads: 1 }
    devices:
      disks: [{ name: root, disk: { bus: virtio }, bootOrder: 1, dedicatedIOThread: true }]
      interfaces: [{ name: default, masquerade: {}, ports: [{ name: http, port: 80 }] }]
      autoattachVSOCK: false
      rng: {}
    features: { acpi: { enabled: true } }
    firmware:
      uuid: 3f9cf9a5-6c39-4b3f-8e2f-5a0e4bb35b8f
      kernelBoot: { kernelArgs: quiet, container: { image: 'kernel:1', kernelPath: /boot/k } }
    machine: { type: q35 }
    memory: { guest: 128Mi }
    resources: { requests: { cpu: 100m, memory: 128Mi } }
  evictionStrategy: None
  networks: [{ name: default, pod: { vmNetworkCIDR: 10.1.0.0/24 } }]
  terminationGracePeriodSeconds: 0
  volumes:
    - { name: root, containerDisk: { image: 'guest:1', imagePullPolicy: Never } }
status:
  VSOCKCID: 4294967295
  activePods: { 0d5a4f3e-37a4-4f8f-9d1c-8a1de7c0f0aa: node-7 }
  conditions:
    - { lastTransitionTime: '2026-01-02T03:04:05Z', status: 'True', type: Ready }
    - { status: 'False', type: LiveMigratable, reason: DisksNotLiveMigratable, message: shared }
  currentCPUTopology: { cores: 1, sockets: 1, threads: 1 }
  guestOSInfo: {}
  interfaces:
    - { name: default, mac: 02:00:00:00:00:01, ipAddress: 10.0.0.1, ipAddresses: [10.0.0.1], queueCount: 1 }
  machine: { type: pc-q35-10.0 }
  memory: { guestAtBoot: 128Mi, guestCurrent: 128Mi, guestRequested: 128Mi }
  migrationState: { migrationUid: a, targetCPUSet: [1, 2], targetState: { attachmentPodUID: b } }
  phase: Running
  phaseTransitionTimestamps: [{ phase: Running, phaseTransitionTimestamp: '2026-01-02T03:04:05Z' }]
  runtimeUser: 107
  volumeStatus: [{ name: root, target: vda }]
";

fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).expect("YAML")
}

fn survives<T: Serialize + DeserializeOwned>(object: &Value) {
    let typed: T = serde_json::from_value(object.clone()).expect("reads");
    assert_eq!(&serde_json::to_value(&typed).expect("writes"), object);
}

#[test]
fn running_instance_survives() {
    survives::<VirtualMachineInstance>(&yaml(RUNNING));
}

#[test]
fn kind_and_version_are_written() {
    let vm = VirtualMachine::new("a", kubevirt_api::vm::VirtualMachineSpec::default());
    let written = serde_json::to_value(&vm).expect("writes");
    assert_eq!(
        written,
        json!({
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachine",
            "metadata": { "name": "a" },
            "spec": { "template": {} },
        })
    );
    assert_eq!(vm.name_any(), "a");
}

#[test]
fn unknown_values_and_fields_do_not_make_an_object_unreadable() {
    let object = json!({
        "spec": { "runStrategy": "Whenever", "template": {}, "new": { "deep": 1 } },
        "status": { "printableStatus": "Thinking", "conditions": null },
    });
    let vm: VirtualMachine = serde_json::from_value(object).expect("reads");
    let strategy = vm.spec.run_strategy.expect("a strategy");
    assert_eq!(
        strategy,
        VirtualMachineRunStrategy::Other("Whenever".to_owned())
    );
    assert_eq!(strategy.to_string(), "Whenever");
    assert!(vm.status.expect("a status").conditions.is_empty());
}

#[test]
fn numbers_are_quantities_too() {
    let object = json!({ "spec": { "domain": { "memory": { "guest": 1024 } } } });
    let vmi: VirtualMachineInstance = serde_json::from_value(object).expect("reads");
    assert_eq!(
        vmi.spec
            .domain
            .memory
            .expect("memory")
            .guest
            .expect("guest")
            .0,
        "1024"
    );
}

#[test]
fn empty_phase_is_a_value() {
    let phase: VirtualMachineInstancePhase = serde_json::from_value(json!("")).expect("reads");
    assert_eq!(phase, VirtualMachineInstancePhase::Unset);
    assert_eq!(phase, VirtualMachineInstancePhase::default());
}

/// A volume, disk or interface with a random choice of what it may hold.
fn objects() -> impl Strategy<Value = Value> {
    let name = "[a-z]{1,8}";
    let source = prop_oneof![
        name.prop_map(|image| json!({ "containerDisk": { "image": image } })),
        Just(json!({ "emptyDisk": { "capacity": "1Gi" } })),
        name.prop_map(|data| json!({ "cloudInitNoCloud": { "userData": data } })),
        (name, any::<bool>()).prop_map(|(claim, ro)| {
            json!({ "persistentVolumeClaim": { "claimName": claim, "readOnly": ro } })
        }),
    ];
    let bus = prop_oneof![Just("virtio"), Just("sata"), Just("made-up"), Just("")];
    let target = prop_oneof![Just("disk"), Just("lun"), Just("cdrom")];
    let order = proptest::option::of(1_u64..9);
    let volume = (name, source, bus, target, order);
    (
        proptest::collection::vec(volume, 1..4),
        any::<u32>(),
        any::<i64>(),
    )
        .prop_map(|(volumes, cores, grace)| {
            let mut spec = json!({
                "domain": { "cpu": { "cores": cores }, "devices": { "disks": [] } },
                "terminationGracePeriodSeconds": grace,
                "volumes": [],
            });
            for (name, mut source, bus, target, order) in volumes {
                source["name"] = json!(name);
                let mut disk = json!({ "name": name, target: { "bus": bus } });
                if let Some(order) = order {
                    disk["bootOrder"] = json!(order);
                }
                for (list, item) in [("/volumes", source), ("/domain/devices/disks", disk)] {
                    let list = spec.pointer_mut(list).and_then(Value::as_array_mut);
                    list.expect("a list").push(item);
                }
            }
            json!({
                "apiVersion": "kubevirt.io/v1",
                "kind": "VirtualMachineInstance",
                "metadata": {},
                "spec": spec,
            })
        })
}

proptest! {
    #[test]
    fn generated_objects_round_trip(object in objects()) {
        survives::<VirtualMachineInstance>(&object);
    }
}
