//! Pure: the whole graph of a VM or VMI.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::TypedObjectReference;
use kube::ResourceExt as _;
use kubevirt_api::{
    VirtualMachine, VirtualMachineInstance, object_graph::ObjectGraphNode,
    vm_status::InstancetypeStatusRef, vmi::VirtualMachineInstanceSpec, volumes::Volume,
};

/// The label of a node that gives the kind of dependency.
pub(super) const DEPENDENCY: &str = "kubevirt.io/dependency-type";

/// A kind that occurs in graphs.
#[derive(Debug, Clone, Copy)]
struct Kind {
    group: &'static str,
    name: &'static str,
    dependency: &'static str,
}

const fn kind(group: &'static str, name: &'static str, dependency: &'static str) -> Kind {
    Kind {
        group,
        name,
        dependency,
    }
}

const VM: Kind = kind("kubevirt.io", "VirtualMachine", "compute");
const VMI: Kind = kind("kubevirt.io", "VirtualMachineInstance", "compute");
const POD: Kind = kind("", "Pod", "compute");
const CLAIM: Kind = kind("", "PersistentVolumeClaim", "storage");
const DATA_VOLUME: Kind = kind("cdi.kubevirt.io", "DataVolume", "storage");
const CONFIG_MAP: Kind = kind("", "ConfigMap", "config");
const SECRET: Kind = kind("", "Secret", "config");
const SERVICE_ACCOUNT: Kind = kind("", "ServiceAccount", "config");
const REVISION: Kind = kind("apps", "ControllerRevision", "config");
const NETWORK: Kind = kind("k8s.cni.cncf.io", "NetworkAttachmentDefinition", "network");
const SIZES: &str = "instancetype.kubevirt.io";
const SIZE: [Kind; 2] = [
    kind(SIZES, "VirtualMachineClusterInstancetype", "config"),
    kind(SIZES, "VirtualMachineInstancetype", "config"),
];
const PREFERENCE: [Kind; 2] = [
    kind(SIZES, "VirtualMachineClusterPreference", "config"),
    kind(SIZES, "VirtualMachinePreference", "config"),
];

pub(super) fn of_vm(vm: &VirtualMachine, pod: Option<&str>) -> ObjectGraphNode {
    let namespace = vm.namespace().unwrap_or_default();
    let status = vm.status.clone().unwrap_or_default();
    let mut children = vec![];
    if status.created == Some(true) {
        let mut vmi = node(VMI, &namespace, &vm.name_any());
        vmi.children = pod
            .map(|pod| node(POD, &namespace, pod))
            .into_iter()
            .collect();
        children.push(vmi);
    }
    if let Some(matcher) = &vm.spec.instancetype {
        let choice = Choice {
            name: matcher.name.as_deref(),
            kind: matcher.kind.as_deref(),
            revision: matcher.revision_name.as_deref(),
            status: status.instancetype_ref.as_ref(),
        };
        children.extend(choice.nodes(SIZE, &namespace));
    }
    if let Some(matcher) = &vm.spec.preference {
        let choice = Choice {
            name: matcher.name.as_deref(),
            kind: matcher.kind.as_deref(),
            revision: matcher.revision_name.as_deref(),
            status: status.preference_ref.as_ref(),
        };
        children.extend(choice.nodes(PREFERENCE, &namespace));
    }
    let spec = vm.spec.template.spec.iter();
    children.extend(spec.flat_map(|spec| of_spec(spec, &namespace)));
    ObjectGraphNode {
        children,
        ..node(VM, &namespace, &vm.name_any())
    }
}

pub(super) fn of_vmi(vmi: &VirtualMachineInstance, pod: Option<&str>) -> ObjectGraphNode {
    let namespace = vmi.namespace().unwrap_or_default();
    let pod = pod.map(|pod| node(POD, &namespace, pod));
    ObjectGraphNode {
        children: pod
            .into_iter()
            .chain(of_spec(&vmi.spec, &namespace))
            .collect(),
        ..node(VMI, &namespace, &vmi.name_any())
    }
}

fn node(kind: Kind, namespace: &str, name: &str) -> ObjectGraphNode {
    ObjectGraphNode {
        object_reference: TypedObjectReference {
            api_group: Some(kind.group.to_owned()),
            kind: kind.name.to_owned(),
            name: name.to_owned(),
            namespace: Some(namespace.to_owned()),
        },
        labels: BTreeMap::from([(DEPENDENCY.to_owned(), kind.dependency.to_owned())]),
        ..ObjectGraphNode::default()
    }
}

/// An instance type or a preference of a VM.
struct Choice<'a> {
    name: Option<&'a str>,
    kind: Option<&'a str>,
    revision: Option<&'a str>,
    status: Option<&'a InstancetypeStatusRef>,
}

impl Choice<'_> {
    /// The object, which the VM can do without once its revision exists, and that revision.
    fn nodes(&self, [cluster, namespaced]: [Kind; 2], namespace: &str) -> Vec<ObjectGraphNode> {
        let is_namespaced = self
            .kind
            .is_some_and(|kind| kind.eq_ignore_ascii_case(namespaced.name));
        let object = self.name.map(|name| {
            let object = if is_namespaced {
                node(namespaced, namespace, name)
            } else {
                node(cluster, "", name)
            };
            ObjectGraphNode {
                optional: Some(true),
                ..object
            }
        });
        let revision = match self.status {
            Some(status) => status
                .controller_revision_ref
                .as_ref()
                .and_then(|revision| revision.name.as_deref()),
            None => self.revision,
        };
        let revision = revision.map(|name| node(REVISION, namespace, name));
        object.into_iter().chain(revision).collect()
    }
}

/// The objects that the spec of a VMI names.
fn of_spec(spec: &VirtualMachineInstanceSpec, namespace: &str) -> Vec<ObjectGraphNode> {
    let credentials = spec.access_credentials.iter().filter_map(|credential| {
        let keys = credential.ssh_public_key.as_ref();
        let keys = keys.and_then(|keys| keys.source.secret.as_ref());
        let password = credential.user_password.as_ref();
        let password = password.and_then(|password| password.source.secret.as_ref());
        keys.or(password)
    });
    let credentials = credentials.map(|secret| node(SECRET, namespace, &secret.secret_name));
    let volumes = spec
        .volumes
        .iter()
        .flat_map(|volume| of_volume(volume, namespace));
    let networks = spec.networks.iter().filter_map(|network| {
        let name = &network.multus.as_ref()?.network_name;
        let (namespace, name) = name.split_once('/').unwrap_or((namespace, name));
        let is_named = !name.is_empty();
        is_named.then(|| ObjectGraphNode {
            optional: Some(true),
            ..node(NETWORK, namespace, name)
        })
    });
    credentials.chain(volumes).chain(networks).collect()
}

fn of_volume(volume: &Volume, namespace: &str) -> Vec<ObjectGraphNode> {
    let object = |kind: Kind, name: &str| (!name.is_empty()).then(|| node(kind, namespace, name));
    let optional = |kind: Kind, name: Option<&str>| name.and_then(|name| object(kind, name));
    let secret = |reference: Option<&k8s_openapi::api::core::v1::LocalObjectReference>| {
        reference.and_then(|reference| object(SECRET, &reference.name))
    };
    let config_map = |reference: Option<&k8s_openapi::api::core::v1::LocalObjectReference>| {
        reference.and_then(|reference| object(CONFIG_MAP, &reference.name))
    };
    let mut found = vec![];
    if let Some(source) = &volume.data_volume {
        let claim = object(CLAIM, &source.name);
        found.push(
            object(DATA_VOLUME, &source.name).map(|data_volume| ObjectGraphNode {
                children: claim.into_iter().collect(),
                ..data_volume
            }),
        );
    }
    if let Some(source) = &volume.persistent_volume_claim {
        found.push(object(CLAIM, &source.claim_name));
    }
    if let Some(source) = &volume.ephemeral {
        let claim = source.persistent_volume_claim.as_ref();
        found.push(optional(
            CLAIM,
            claim.map(|claim| claim.claim_name.as_str()),
        ));
    }
    if let Some(source) = &volume.memory_dump {
        found.push(object(CLAIM, &source.claim_name));
    }
    if let Some(source) = &volume.config_map {
        found.push(optional(CONFIG_MAP, source.name.as_deref()));
    }
    if let Some(source) = &volume.secret {
        found.push(optional(SECRET, source.secret_name.as_deref()));
    }
    if let Some(source) = &volume.service_account {
        found.push(optional(
            SERVICE_ACCOUNT,
            source.service_account_name.as_deref(),
        ));
    }
    if let Some(source) = &volume.cloud_init_no_cloud {
        found.push(secret(source.secret_ref.as_ref()));
        found.push(secret(source.network_data_secret_ref.as_ref()));
    }
    if let Some(source) = &volume.cloud_init_config_drive {
        found.push(secret(source.secret_ref.as_ref()));
        found.push(secret(source.network_data_secret_ref.as_ref()));
    }
    if let Some(source) = &volume.sysprep {
        found.push(secret(source.secret.as_ref()));
        found.push(config_map(source.config_map.as_ref()));
    }
    found.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A node and its children as text: kind, name, a question mark if optional.
    pub(super) fn text(node: &ObjectGraphNode) -> String {
        let reference = &node.object_reference;
        let optional = if node.optional == Some(true) { "?" } else { "" };
        let children: Vec<String> = node.children.iter().map(text).collect();
        let children = match children.as_slice() {
            [] => String::new(),
            some => format!("({})", some.join(" ")),
        };
        format!("{}/{}{optional}{children}", reference.kind, reference.name)
    }

    fn spec() -> Value {
        json!({
            "domain": {"devices": {}},
            "accessCredentials": [{"sshPublicKey": {
                "source": {"secret": {"secretName": "keys"}},
                "propagationMethod": {"noCloud": {}},
            }}],
            "networks": [
                {"name": "default", "pod": {}},
                {"name": "lan", "multus": {"networkName": "infra/vlan7"}},
            ],
            "volumes": [
                {"name": "root", "dataVolume": {"name": "disk"}},
                {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
                {"name": "temp", "ephemeral": {"persistentVolumeClaim": {"claimName": "base"}}},
                {"name": "image", "containerDisk": {"image": "i"}},
                {"name": "conf", "configMap": {"name": "conf"}},
                {"name": "cert", "secret": {"secretName": "cert"}},
                {"name": "account", "serviceAccount": {"serviceAccountName": "robot"}},
                {"name": "seed", "cloudInitNoCloud": {
                    "secretRef": {"name": "user"}, "networkDataSecretRef": {"name": "net"},
                }},
            ],
        })
    }

    #[test]
    fn graph_of_a_vm_has_everything_it_names() {
        let vm: VirtualMachine = serde_json::from_value(json!({
            "metadata": {"name": "a", "namespace": "tests"},
            "spec": {
                "instancetype": {"name": "small"},
                "preference": {"name": "linux", "kind": "VirtualMachinePreference", "revisionName": "r2"},
                "template": {"spec": spec()},
            },
            "status": {
                "created": true,
                "instancetypeRef": {"name": "small", "controllerRevisionRef": {"name": "r1"}},
            },
        }))
        .unwrap();
        let graph = of_vm(&vm, Some("virt-launcher-a"));
        assert_eq!(
            text(&graph),
            "VirtualMachine/a(VirtualMachineInstance/a(Pod/virt-launcher-a) \
             VirtualMachineClusterInstancetype/small? ControllerRevision/r1 \
             VirtualMachinePreference/linux? ControllerRevision/r2 Secret/keys \
             DataVolume/disk(PersistentVolumeClaim/disk) PersistentVolumeClaim/data \
             PersistentVolumeClaim/base ConfigMap/conf Secret/cert ServiceAccount/robot \
             Secret/user Secret/net NetworkAttachmentDefinition/vlan7?)"
        );
        let value = serde_json::to_value(&graph).unwrap();
        assert_eq!(
            value["objectReference"],
            json!({
                "apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "a", "namespace": "tests",
            })
        );
        assert_eq!(value["labels"][DEPENDENCY], "compute");
        let children = value["children"].as_array().unwrap();
        let sizes = &children[1]["objectReference"];
        assert_eq!(sizes["namespace"], "");
        let network = &children.last().unwrap()["objectReference"];
        assert_eq!(network["namespace"], "infra");
    }

    #[test]
    fn graph_of_a_vmi_begins_with_its_pod() {
        let vmi: VirtualMachineInstance = serde_json::from_value(json!({
            "metadata": {"name": "a", "namespace": "tests"},
            "spec": {"domain": {"devices": {}}},
        }))
        .unwrap();
        assert_eq!(
            text(&of_vmi(&vmi, Some("virt-launcher-a"))),
            "VirtualMachineInstance/a(Pod/virt-launcher-a)"
        );
        assert_eq!(text(&of_vmi(&vmi, None)), "VirtualMachineInstance/a");
    }
}
