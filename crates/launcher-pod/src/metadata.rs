//! Names, labels, annotations, owner.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kubevirt_api::{API_VERSION, VirtualMachineInstance, annotations, labels};

use crate::PodError;
use crate::pod::CONTAINER;

/// Longest value of a label, longest host name.
const LABEL: usize = 63;
const MIGRATION_TRANSPORT_UNIX: &str = "kubevirt.io/migrationTransportUnix";
const REQUEST_EVICT_ONLY: &str = "descheduler.alpha.kubernetes.io/request-evict-only";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
const ISTIO_INJECT: &str = "sidecar.istio.io/inject";
/// A service mesh in the pod must catch what comes from the guest's bridge.
const MESH_BRIDGES: [&str; 2] = [
    "istio.io/reroute-virtual-interfaces",
    "traffic.sidecar.istio.io/kubevirtInterfaces",
];
const BRIDGE: &str = "k6t-eth0";

/// The pod's name: made from the VMI's name and UID, so a VMI re-created under the same name
/// gets another pod, and one VMI never gets two.
pub fn pod_name(vmi: &VirtualMachineInstance) -> String {
    let meta = &vmi.metadata;
    let name: String = meta
        .name
        .as_deref()
        .unwrap_or_default()
        .chars()
        .take(220)
        .collect();
    let uid = meta.uid.as_deref().unwrap_or_default();
    format!("virt-launcher-{name}-{}", suffix(uid))
}

/// Host name of guest and pod.
pub fn hostname(vmi: &VirtualMachineInstance) -> String {
    if let Some(name) = vmi.spec.hostname.as_deref().filter(|name| !name.is_empty()) {
        return name.to_owned();
    }
    let name = vmi.metadata.name.as_deref().unwrap_or_default();
    let first = name.split('.').next().unwrap_or_default();
    let cut: String = first.chars().take(LABEL).collect();
    cut.trim_end_matches('-').to_owned()
}

/// The name, or when it is too long for a label, its beginning and a hash of all of it.
pub fn label_value(name: &str) -> String {
    if name.len() <= LABEL {
        return name.to_owned();
    }
    let hash = suffix(name);
    let kept: String = name.chars().take(LABEL - hash.len() - 1).collect();
    format!("{}-{hash}", kept.trim_end_matches(['-', '.', '_']))
}

pub(crate) fn render(vmi: &VirtualMachineInstance) -> Result<ObjectMeta, PodError> {
    let meta = &vmi.metadata;
    let missing = |field| PodError::missing(field);
    let name = meta.name.clone().ok_or_else(|| missing("metadata.name"))?;
    let uid = meta.uid.clone().ok_or_else(|| missing("metadata.uid"))?;
    Ok(ObjectMeta {
        name: Some(pod_name(vmi)),
        namespace: meta.namespace.clone(),
        labels: Some(render_labels(vmi, &name, &uid)),
        annotations: Some(render_annotations(vmi, &name)),
        owner_references: Some(vec![OwnerReference {
            api_version: API_VERSION.to_owned(),
            kind: VirtualMachineInstance::KIND.to_owned(),
            name,
            uid,
            controller: Some(true),
            block_owner_deletion: Some(true),
        }]),
        ..ObjectMeta::default()
    })
}

fn render_labels(vmi: &VirtualMachineInstance, name: &str, uid: &str) -> BTreeMap<String, String> {
    let mut all = vmi.metadata.labels.clone().unwrap_or_default();
    let ours = [
        (
            labels::COMPONENT,
            labels::COMPONENT_VIRT_LAUNCHER.to_owned(),
        ),
        (labels::CREATED_BY, uid.to_owned()),
        (labels::VM_NAME, hostname(vmi)),
        (labels::VMI_ID, label_value(name)),
    ];
    all.extend(ours.map(|(key, value)| (key.to_owned(), value)));
    if let Some(inject) = vmi
        .metadata
        .annotations
        .as_ref()
        .and_then(|all| all.get(ISTIO_INJECT))
    {
        all.insert(ISTIO_INJECT.to_owned(), inject.clone());
    }
    // Says where the VMI is; the pod has nodeName for that, and a copy taken before it is bound
    // would be wrong.
    all.remove(labels::NODE_NAME);
    all
}

fn render_annotations(vmi: &VirtualMachineInstance, name: &str) -> BTreeMap<String, String> {
    let mut all = vmi.metadata.annotations.clone().unwrap_or_default();
    for bookkeeping in [
        LAST_APPLIED,
        annotations::LATEST_OBSERVED_API_VERSION,
        annotations::STORAGE_OBSERVED_API_VERSION,
    ] {
        all.remove(bookkeeping);
    }
    let ours = [
        (annotations::DOMAIN, name),
        (annotations::DEFAULT_CONTAINER, CONTAINER),
        (MIGRATION_TRANSPORT_UNIX, "true"),
        (REQUEST_EVICT_ONLY, ""),
    ];
    all.extend(ours.map(|(key, value)| (key.to_owned(), value.to_owned())));
    let interfaces = &vmi.spec.domain.devices.interfaces;
    if interfaces
        .iter()
        .any(|interface| interface.masquerade.is_some())
    {
        all.extend(MESH_BRIDGES.map(|key| (key.to_owned(), BRIDGE.to_owned())));
    }
    all
}

/// Eight characters that depend on every byte of the text. FNV-1a: stable over versions, and
/// nobody gains from making two collide, as UIDs are given by the API server.
fn suffix(text: &str) -> String {
    const ALPHABET: &[u8; 32] = b"bcdfghjklmnpqrstvwxz0123456789ae";
    let mut hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    // The low bits of FNV are weak; fold the high ones in.
    hash ^= hash >> 32;
    (0..8)
        .map(|position| {
            let index = (hash >> (position * 5)) % 32;
            char::from(ALPHABET[usize::try_from(index).unwrap_or_default()])
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vmi(name: &str, uid: &str) -> VirtualMachineInstance {
        let mut vmi = VirtualMachineInstance::default();
        vmi.metadata.name = Some(name.into());
        vmi.metadata.uid = Some(uid.into());
        vmi
    }

    #[test]
    fn pod_name_is_fixed_by_name_and_uid() {
        let first = pod_name(&vmi("a", "1b5c"));
        assert_eq!(first, pod_name(&vmi("a", "1b5c")));
        assert_ne!(first, pod_name(&vmi("a", "1b5d")));
        assert!(first.starts_with("virt-launcher-a-"));
        assert!(pod_name(&vmi(&"x".repeat(253), "u")).len() <= 253);
    }

    #[test]
    fn host_name_ends_at_the_first_dot_and_fits() {
        let long = format!("{}-{}", "a".repeat(62), "b".repeat(10));
        for (name, host) in [("web.example.org", "web"), (long.as_str(), &"a".repeat(62))] {
            assert_eq!(hostname(&vmi(name, "u")), *host);
        }
    }

    #[test]
    fn long_label_values_stay_different() {
        let (a, b) = ("a".repeat(80), format!("{}b", "a".repeat(79)));
        assert_ne!(label_value(&a), label_value(&b));
        assert!(label_value(&a).len() <= LABEL);
        assert_eq!(label_value("short"), "short");
    }
}
