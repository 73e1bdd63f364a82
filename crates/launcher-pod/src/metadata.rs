//! Names, labels, annotations, owner.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kubevirt_api::vmi_status::PersistentVolumeClaimInfo;
use kubevirt_api::{API_VERSION, VirtualMachineInstance, annotations, labels};

use crate::compute::CONTAINER;
use crate::volumes::STATE_VOLUME;
use crate::{Feature, Input, PodError, guest, networks, overhead};

/// Longest value of a label.
const LABEL: usize = 63;
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// How long a backup tool waits until the guest's file systems are frozen.
const FREEZE_TIMEOUT: &str = "60s";

/// The pod's name: made from the VMI's name and UID, so a VMI re-created under the same name
/// gets another pod, and one VMI never gets two.
pub fn pod_name(vmi: &VirtualMachineInstance) -> String {
    name_with(vmi, vmi.metadata.uid.as_deref().unwrap_or_default())
}

/// The name of a pod of this VMI that differs by the whole of `identity`.
pub(crate) fn name_with(vmi: &VirtualMachineInstance, identity: &str) -> String {
    let name: String = vmi
        .metadata
        .name
        .as_deref()
        .unwrap_or_default()
        .chars()
        .take(220)
        .collect();
    format!("virt-launcher-{name}-{}", suffix(identity))
}

/// The name; if it is too long for a label, its beginning and a hash of the whole name.
pub fn label_value(name: &str) -> String {
    if name.len() <= LABEL {
        return name.to_owned();
    }
    let hash = suffix(name);
    let kept: String = name.chars().take(LABEL - hash.len() - 1).collect();
    format!("{}-{hash}", kept.trim_end_matches(['-', '.', '_']))
}

pub(crate) fn render(input: &Input<'_>) -> Result<ObjectMeta, PodError> {
    let meta = &input.guest.vmi.metadata;
    let missing = |field| PodError::missing(field);
    let name = meta.name.clone().ok_or_else(|| missing("metadata.name"))?;
    let uid = meta.uid.clone().ok_or_else(|| missing("metadata.uid"))?;
    Ok(ObjectMeta {
        name: Some(pod_name(input.guest.vmi)),
        namespace: meta.namespace.clone(),
        labels: Some(render_labels(input, &name, &uid)),
        annotations: Some(render_annotations(input, &name)?),
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

/// Labels of persistent volume claims on which the guest makes persistent reservations: two such
/// pods of one claim must not run on the same node.
pub(crate) fn reservation_labels(input: &Input<'_>) -> Vec<String> {
    let volumes = guest::volumes(input.guest, input.settings);
    volumes
        .filter(|volume| guest::reserves(input.guest, volume.name))
        .filter_map(|volume| {
            let claim = volume.source.claim()?;
            input.surroundings.claims.get(claim.name)
        })
        .map(|claim| format!("{}{}", labels::PERSISTENT_RESERVATION_PREFIX, claim.uid))
        .collect()
}

fn render_labels(input: &Input<'_>, name: &str, uid: &str) -> BTreeMap<String, String> {
    let meta = &input.guest.vmi.metadata;
    let mut all = meta.labels.clone().unwrap_or_default();
    let ours = [
        (
            labels::COMPONENT,
            labels::COMPONENT_VIRT_LAUNCHER.to_owned(),
        ),
        (labels::CREATED_BY, uid.to_owned()),
        (labels::VM_NAME, input.guest.hostname()),
        (labels::VMI_ID, label_value(name)),
    ];
    all.extend(ours.map(|(key, value)| (key.to_owned(), value)));
    let annotated = meta.annotations.as_ref();
    if let Some(inject) = annotated.and_then(|all| all.get(annotations::ISTIO_INJECT)) {
        all.insert(labels::ISTIO_INJECT.to_owned(), inject.clone());
    }
    let reserved = reservation_labels(input).into_iter();
    all.extend(reserved.map(|label| (label, String::new())));
    // The VMI's label names its node. The pod has nodeName for that, and a copy made before the pod
    // is bound would be wrong.
    all.remove(labels::NODE_NAME);
    all
}

fn render_annotations(input: &Input<'_>, name: &str) -> Result<BTreeMap<String, String>, PodError> {
    let mut all = input
        .guest
        .vmi
        .metadata
        .annotations
        .clone()
        .unwrap_or_default();
    for bookkeeping in [
        LAST_APPLIED,
        annotations::LATEST_OBSERVED_API_VERSION,
        annotations::STORAGE_OBSERVED_API_VERSION,
        // What the network plugin reports of the pod and what its bindings are, which no tenant may forge.
        annotations::CNI_NETWORK_STATUS,
        annotations::DEVICE_NETWORKS,
        annotations::NETWORK_BINDINGS,
        annotations::GUEST_MAC,
        annotations::NETWORK_INFO,
        annotations::MIGRATED_VOLUMES,
        annotations::VOLUMES_CARRIED_BY,
    ] {
        all.remove(bookkeeping);
    }
    let overhead = overhead::of(input.guest, input.settings)?.to_string();
    let ours = [
        (annotations::DOMAIN, name),
        (annotations::DEFAULT_CONTAINER, CONTAINER),
        (annotations::MIGRATION_TRANSPORT_UNIX, "true"),
        (annotations::DESCHEDULER_REQUEST_EVICT_ONLY, ""),
        (annotations::MEMORY_OVERHEAD_BYTES, &overhead),
    ];
    all.extend(ours.map(|(key, value)| (key.to_owned(), value.to_owned())));
    let claims = claim_infos(input);
    if !claims.is_empty() {
        let text = serde_json::to_string(&claims)
            .map_err(|error| PodError::invalid("spec.volumes", &error))?;
        all.insert(annotations::CLAIMS.to_owned(), text);
    }
    all.extend(networks::annotations(input)?);
    let skips = annotations::is_true(&input.guest.vmi.metadata, annotations::SKIP_BACKUP_HOOKS);
    if input.settings.has(Feature::BackupHooks) && !skips {
        all.extend(backup_hooks(name, input.guest.namespace()));
    }
    Ok(all)
}

/// The persistent volume claims of the guest's volumes, for virt-handler, which reads no claims
/// itself.
fn claim_infos<'a>(input: &Input<'a>) -> BTreeMap<&'a str, &'a PersistentVolumeClaimInfo> {
    let surroundings = input.surroundings;
    let volumes = guest::volumes(input.guest, input.settings);
    let of_volumes = volumes.filter_map(|volume| {
        let claim = volume.source.claim()?;
        Some((volume.name, &surroundings.claims.get(claim.name)?.info))
    });
    let state = surroundings.state_claim.as_ref();
    let state = state.and_then(|name| surroundings.claims.get(name));
    of_volumes
        .chain(state.map(|claim| (STATE_VOLUME, &claim.info)))
        .collect()
}

fn backup_hooks(name: &str, namespace: &str) -> [(String, String); 5] {
    let command = |verb| {
        format!(
            r#"["/usr/bin/virt-freezer", "{verb}", "--name", "{name}", "--namespace", "{namespace}"]"#
        )
    };
    [
        (annotations::VELERO_PRE_HOOK_CONTAINER, CONTAINER.to_owned()),
        (annotations::VELERO_PRE_HOOK_COMMAND, command("--freeze")),
        (
            annotations::VELERO_PRE_HOOK_TIMEOUT,
            FREEZE_TIMEOUT.to_owned(),
        ),
        (
            annotations::VELERO_POST_HOOK_CONTAINER,
            CONTAINER.to_owned(),
        ),
        (annotations::VELERO_POST_HOOK_COMMAND, command("--unfreeze")),
    ]
    .map(|(key, value)| (key.to_owned(), value))
}

/// Eight characters that depend on every byte of the text. FNV-1a is stable over versions;
/// collisions need not be prevented, since the API server generates the UIDs.
pub(crate) fn suffix(text: &str) -> String {
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
    fn long_label_values_stay_different() {
        let (a, b) = ("a".repeat(80), format!("{}b", "a".repeat(79)));
        assert_ne!(label_value(&a), label_value(&b));
        assert!(label_value(&a).len() <= LABEL);
        assert_eq!(label_value("short"), "short");
    }
}
