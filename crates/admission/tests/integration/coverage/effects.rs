//! What a guest becomes: its domain, its pod, its network, and its spec with defaults.

use std::collections::BTreeMap;

use admission::{
    kinds::Related,
    review::{Stage, review_with},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use defaults::Environment;
use domain_xml::{
    Acceleration, Allocation, BlockSizes, DirectIo, EfiFirmware, Facts, HostCell, HostCpu, Input,
    InterfaceFacts, Provisioning, SmbiosFacts, VolumeFacts, VolumeMode,
};
use kubevirt_api::{VirtualMachineInstance, cluster_config::InterfaceBindingPlugin};
use launcher_pod::{Claim, ContainerDisks, Feature, Namespace, Settings, Surroundings};
use model::{AllocatedDevices, BindingPlugin, PciAddress, Supported};
use net_plan::{Observed, PodInterface, PodRoute};
use serde_json::{Value, json};
use uuid::Uuid;

use super::guests::Guest;
use crate::examples::admitted;

/// Where a field has its effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Effect {
    Domain,
    Pod,
    Network,
    /// Another field of the spec gets another default.
    Defaults,
    /// The guest does not start, and says why.
    Unsupported,
    /// None: the author of the guest gets a warning.
    Warning,
}

/// Everything that a guest becomes, as text.
#[derive(Debug, PartialEq)]
pub(super) struct Outcome {
    domain: Result<String, String>,
    pods: Result<String, String>,
    network: Result<String, String>,
    spec: Value,
}

impl Outcome {
    /// `without` is a member that is not compared.
    pub(super) fn of(guest: &Guest, without: Option<&str>) -> Self {
        let vmi: Result<VirtualMachineInstance, _> = serde_json::from_value(guest.object.clone());
        let vmi = vmi.map_err(|error| error.to_string());
        let read = vmi.as_ref().map_err(Clone::clone);
        let mut spec = completed(&guest.object);
        if let Some(pointer) = without {
            super::remove(&mut spec, pointer);
        }
        Self {
            domain: read.clone().and_then(|vmi| domain(vmi, guest)),
            pods: read.clone().and_then(pods),
            network: read.and_then(network),
            spec,
        }
    }

    /// The effect of a field that `changed` lacks, compared with this outcome of `guest`.
    pub(super) fn effect_of(
        &self,
        pointer: &str,
        guest: &Guest,
        changed: &Guest,
    ) -> Option<Effect> {
        let after = Self::of(changed, Some(pointer));
        if self.domain.is_ok() && self.domain != after.domain {
            return Some(Effect::Domain);
        }
        if self.pods.is_ok() && self.pods != after.pods {
            return Some(Effect::Pod);
        }
        if self.network.is_ok() && self.network != after.network {
            return Some(Effect::Network);
        }
        let before = Self::of(guest, Some(pointer));
        (before.spec != after.spec).then_some(Effect::Defaults)
    }
}

/// The spec after the mutating webhook.
fn completed(object: &Value) -> Value {
    let mut object = object.clone();
    object["apiVersion"] = json!("kubevirt.io/v1");
    object["kind"] = json!("VirtualMachineInstance");
    let now = serde_json::from_value(json!("2026-01-02T03:04:05Z")).expect("time");
    let env = Environment {
        now: &now,
        new_uuid: &Uuid::nil,
    };
    let request = json!({
        "request": {
            "uid": "1",
            "operation": "CREATE",
            "kind": { "group": "kubevirt.io", "version": "v1", "kind": "VirtualMachineInstance" },
            "userInfo": { "username": "a-user" },
            "object": object,
        },
    });
    let config = admitted::config(&[]);
    let review = review_with(Stage::Mutate, &request, &config, env, &Related::default());
    if let Some(patch) = review["response"]["patch"].as_str() {
        let patch = STANDARD.decode(patch).expect("base64");
        let patch: json_patch::Patch = serde_json::from_slice(&patch).expect("JSON patch");
        json_patch::patch(&mut object, &patch).expect("applies");
    }
    object["spec"].take()
}

fn domain(vmi: &VirtualMachineInstance, guest: &Guest) -> Result<String, String> {
    let supported = &Supported::of(vmi).map_err(|error| error.to_string())?;
    let facts = &facts(vmi, guest);
    let input = Input {
        guest: supported,
        facts,
    };
    domain_xml::render(&input).map_err(|error| error.to_string())
}

/// A node with KVM and two NUMA cells, whose claims are files unless the guest says otherwise.
fn facts(vmi: &VirtualMachineInstance, guest: &Guest) -> Facts {
    let volume = |name: &String| VolumeFacts {
        mode: if guest.devices.contains(name) {
            VolumeMode::Block
        } else {
            VolumeMode::Filesystem
        },
        direct_io: DirectIo::Supported,
        blocks: BlockSizes {
            logical: 512,
            physical: 4096,
            discard: 65536,
        },
        provisioning: Provisioning::Thin,
        allocation: Allocation::Sparse,
    };
    let volumes = vmi.spec.volumes.iter().map(|one| &one.name);
    let interfaces = vmi.spec.domain.devices.interfaces.iter();
    let variables = guest
        .variables
        .iter()
        .map(|(name, value)| (&**name, &**value));
    Facts {
        acceleration: Acceleration::Kvm,
        direct_io: DirectIo::Supported,
        hotplugged: [].into(),
        volumes: volumes.map(|name| (name.clone(), volume(name))).collect(),
        interfaces: interfaces
            .map(|interface| InterfaceFacts {
                name: interface.name.clone(),
                tap: Some("tap0".to_owned()),
                mac: "12:81:b8:38:4f:52".to_owned(),
                mtu: 1500,
            })
            .collect(),
        allocated: AllocatedDevices::of(variables).expect("addresses"),
        virtual_functions: virtual_functions(vmi),
        device_cells: [].into(),
        smbios: SmbiosFacts::defaults(),
        balloon_stats_seconds: 10,
        free_page_reporting: true,
        efi: EfiFirmware::debian(),
        block_size: 4096,
        cpus: (2..8).map(cpu).collect(),
        cells: vec![cell(0, 1), cell(1, 0)],
    }
}

/// Each SR-IOV interface of the VMI has a device.
fn virtual_functions(vmi: &VirtualMachineInstance) -> BTreeMap<String, PciAddress> {
    let interfaces = vmi.spec.domain.devices.interfaces.iter().enumerate();
    let functions = interfaces.filter(|(_, interface)| interface.sriov.is_some());
    let devices = functions.map(|(index, interface)| {
        let address = format!("0000:65:02.{index}");
        let address = PciAddress::parse(&address).expect("an address");
        (interface.name.clone(), address)
    });
    devices.collect()
}

fn cpu(id: u32) -> HostCpu {
    HostCpu {
        id,
        core: id / 2,
        cell: id / 4,
    }
}

fn cell(id: u32, other: u32) -> HostCell {
    HostCell {
        id,
        distances: [(id, 10), (other, 21)].into(),
    }
}

/// The pod of a cluster without configuration, and that of one with features and copied disks.
fn pods(vmi: &VirtualMachineInstance) -> Result<String, String> {
    let image = "registry.example/virt-launcher:1";
    let mut usual = Settings::defaults(image, launcher_pod::Acceleration::Kvm);
    let mut other = Settings::defaults(image, launcher_pod::Acceleration::Kvm);
    other.container_disks = ContainerDisks::Copied;
    other.features = [Feature::HypervStrictCheck, Feature::HotplugDisks].into();
    for settings in [&mut usual, &mut other] {
        settings.binding_plugins = bindings();
    }
    let around = surroundings(vmi);
    let pods = [usual, other].map(|settings| launcher_pod::pod(vmi, &settings, &around));
    let pods: Result<Vec<_>, _> = pods.into_iter().collect();
    pods.map(|pods| json!(pods).to_string())
        .map_err(|error| error.to_string())
}

/// The network bindings that the guests name.
fn bindings() -> BTreeMap<String, InterfaceBindingPlugin> {
    let tap = json!({ "domainAttachmentType": "managedTap" });
    let sidecar = json!({ "sidecarImage": "registry.example/binding:1" });
    let all = [
        ("by-sidecar", &sidecar),
        ("fast", &sidecar),
        ("layer2", &tap),
        ("slow", &sidecar),
        ("tapped", &tap),
    ];
    let plugin = |(name, written): (&str, &Value)| {
        let plugin = serde_json::from_value(written.clone());
        (name.to_owned(), plugin.expect("a network binding"))
    };
    all.into_iter().map(plugin).collect()
}

/// Every claim that the VMI names exists.
fn surroundings(vmi: &VirtualMachineInstance) -> Surroundings {
    fn names(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(members) => {
                let claim = members.get("claimName").and_then(Value::as_str);
                let data = members
                    .get("dataVolume")
                    .and_then(|data| data["name"].as_str());
                found.extend(claim.into_iter().chain(data).map(str::to_owned));
                members.values().for_each(|value| names(value, found));
            }
            Value::Array(items) => items.iter().for_each(|item| names(item, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    names(&json!(vmi.spec.volumes), &mut found);
    let claim = |name: String| {
        let claim = serde_json::from_value(json!({
            "metadata": { "name": name, "uid": "1" },
            "spec": { "accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem" },
            "status": { "capacity": { "storage": "1Gi" } },
        }));
        let claim = Claim::of(&claim.expect("a claim"));
        (name, claim)
    };
    Surroundings {
        claims: found.into_iter().map(claim).collect(),
        state_claim: Some("state".to_owned()),
        namespace: Namespace {
            needs_cpu_limit: false,
            memory_limit_ratio: None,
        },
        network_resources: BTreeMap::new(),
    }
}

/// The plan for a pod with both address families.
fn network(vmi: &VirtualMachineInstance) -> Result<String, String> {
    let supported = Supported::of(vmi).map_err(|error| error.to_string())?;
    let names = net_plan::pod_interfaces(&supported, model::PRIMARY_POD_INTERFACE).into_iter();
    let interface = |name| PodInterface {
        name,
        mac: "12:81:b8:38:4f:52".parse().expect("an address"),
        mtu: 1500,
        ipv4: Some(("10.244.0.39".parse().expect("an address"), 24)),
        ipv6: Some(("fd00:10:244::27".parse().expect("an address"), 64)),
        routes: vec![PodRoute {
            destination: "0.0.0.0/0".parse().expect("a network"),
            via: Some("10.244.0.1".parse().expect("an address")),
        }],
        receives_own_only: false,
    };
    let plugins = bindings().into_iter();
    let plugins = plugins.map(|(name, written)| (name, BindingPlugin::of(&written)));
    let observed = Observed {
        primary: model::PRIMARY_POD_INTERFACE.to_owned(),
        interfaces: names.map(interface).collect(),
        taps: [].into(),
        plugins: plugins.collect(),
        resolv_conf: "nameserver 10.96.0.10\n".to_owned(),
    };
    let plan = net_plan::plan(&supported, &observed).map_err(|error| error.to_string())?;
    Ok(format!("{plan:?}"))
}
