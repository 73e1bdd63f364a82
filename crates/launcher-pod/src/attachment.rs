//! The pod that brings volumes to a guest that runs: it mounts their claims on the guest's node, and does
//! nothing else. virt-handler takes the mounts from there.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{
    Affinity, Container, EmptyDirVolumeSource, LocalObjectReference, NodeAffinity, NodeSelector,
    NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec, ResourceRequirements, Toleration,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kubevirt_api::{annotations, labels};
use model::paths;

use crate::scheduling::HOST_NAME;
use crate::volumes::{claim, empty_dir, mount};
use crate::{Settings, metadata, security};

/// Names of all attachment pods begin with it; evictions of such pods are refused.
const PREFIX: &str = "hp-volume-";
/// The name of the container, and the value of the pod's label.
const CONTAINER: &str = "hotplug-disk";
/// Taints that a node of a running guest may get.
const TOLERATED: [&str; 5] = [
    "node.kubernetes.io/unschedulable",
    "node.kubernetes.io/network-unavailable",
    "node.kubernetes.io/disk-pressure",
    "node.kubernetes.io/memory-pressure",
    "node.kubernetes.io/pid-pressure",
];
/// Requests and limits, as for the program of a container disk.
const REQUESTS: [(&str, &str); 2] = [("cpu", "10m"), ("memory", "2M")];
const LIMITS: [(&str, &str); 2] = [("cpu", "100m"), ("memory", "80M")];

/// What an attachment pod is rendered from.
#[derive(Debug, Clone, Copy)]
pub struct Attachment<'a> {
    pub namespace: &'a str,
    pub vmi_name: &'a str,
    pub vmi_uid: &'a str,
    /// The pod of the guest, which owns this one.
    pub launcher_name: &'a str,
    pub launcher_uid: &'a str,
    pub node: &'a str,
    /// Claims by volume.
    pub volumes: &'a BTreeMap<String, String>,
    /// Those of the guest.
    pub tolerations: &'a [Toleration],
    pub settings: &'a Settings,
}

/// The name of the pod: it follows from the launcher pod and the set of volumes, so that a set has one
/// pod, and another set another one.
pub fn attachment_pod_name(launcher_uid: &str, volumes: &BTreeMap<String, String>) -> String {
    let set = volumes.iter().fold(launcher_uid.to_owned(), |text, one| {
        let (volume, claim) = one;
        format!("{text}/{volume}={claim}")
    });
    format!("{PREFIX}{}", metadata::suffix(&set))
}

/// The selector of attachment pods.
pub fn attachment_selector() -> String {
    format!("{}={CONTAINER}", labels::COMPONENT)
}

pub fn attachment_pod(input: &Attachment<'_>) -> Pod {
    let texts = |all: &[(&str, &str)]| -> BTreeMap<String, String> {
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        all.iter().map(owned).collect()
    };
    let own = [
        (annotations::OWNER_VMI_NAME, input.vmi_name),
        (annotations::OWNER_VMI_UID, input.vmi_uid),
    ];
    Pod {
        metadata: ObjectMeta {
            name: Some(attachment_pod_name(input.launcher_uid, input.volumes)),
            namespace: Some(input.namespace.to_owned()),
            labels: Some(texts(&[(labels::COMPONENT, CONTAINER)])),
            annotations: Some(texts(&own)),
            owner_references: Some(vec![OwnerReference {
                api_version: "v1".to_owned(),
                kind: "Pod".to_owned(),
                name: input.launcher_name.to_owned(),
                uid: input.launcher_uid.to_owned(),
                controller: Some(true),
                block_owner_deletion: Some(true),
            }]),
            ..ObjectMeta::default()
        },
        spec: Some(spec(input)),
        status: None,
    }
}

fn spec(input: &Attachment<'_>) -> PodSpec {
    let settings = input.settings;
    let mut volumes = vec![empty_dir(
        paths::HOTPLUG_VOLUME,
        EmptyDirVolumeSource::default(),
    )];
    let mut mounts = vec![mount(paths::HOTPLUG_VOLUME, paths::ATTACHMENT)];
    for (index, (volume, one)) in input.volumes.iter().enumerate() {
        // A volume of the guest may have any name.
        let name = format!("volume{index}");
        // Whether the guest may write is a matter of its disk.
        volumes.push(claim(&name, one, false));
        mounts.push(mount(
            &name,
            &format!("{}/{volume}", paths::ATTACHED_VOLUMES),
        ));
    }
    let secrets = settings.image_pull_secrets.iter();
    let secrets: BTreeSet<String> = secrets.cloned().collect();
    let secrets: Vec<_> = secrets
        .into_iter()
        .map(|name| LocalObjectReference { name })
        .collect();
    PodSpec {
        containers: vec![Container {
            name: CONTAINER.to_owned(),
            image: Some(settings.launcher_image.clone()),
            image_pull_policy: Some(settings.image_pull_policy.clone()),
            command: Some(vec!["/usr/bin/virt-launcher".to_owned()]),
            args: Some(vec!["hold-volumes".to_owned()]),
            resources: Some(ResourceRequirements {
                requests: Some(quantities(&REQUESTS)),
                limits: Some(quantities(&LIMITS)),
                claims: None,
            }),
            security_context: Some(security::container_context()),
            volume_mounts: Some(mounts),
            ..Container::default()
        }],
        volumes: Some(volumes),
        restart_policy: Some("Always".to_owned()),
        enable_service_links: Some(false),
        automount_service_account_token: Some(false),
        termination_grace_period_seconds: Some(0),
        security_context: Some(security::pod_context(settings)),
        affinity: Some(on_node(input.node)),
        tolerations: Some(tolerations_beside(input.tolerations)),
        image_pull_secrets: Some(secrets).filter(|all| !all.is_empty()),
        ..PodSpec::default()
    }
}

fn quantities(all: &[(&str, &str)]) -> BTreeMap<String, Quantity> {
    let all = all.iter();
    all.map(|(name, value)| ((*name).to_owned(), Quantity((*value).to_owned())))
        .collect()
}

/// Through the scheduler, which binds claims that wait for their first consumer.
pub fn on_node(node: &str) -> Affinity {
    let requirement = NodeSelectorRequirement {
        key: HOST_NAME.to_owned(),
        operator: "In".to_owned(),
        values: Some(vec![node.to_owned()]),
    };
    Affinity {
        node_affinity: Some(NodeAffinity {
            required_during_scheduling_ignored_during_execution: Some(NodeSelector {
                node_selector_terms: vec![NodeSelectorTerm {
                    match_expressions: Some(vec![requirement]),
                    match_fields: None,
                }],
            }),
            ..NodeAffinity::default()
        }),
        ..Affinity::default()
    }
}

/// Of a pod that has to run beside a guest with these tolerations, whatever happens to its node.
pub fn tolerations_beside(own: &[Toleration]) -> Vec<Toleration> {
    let taints = TOLERATED.iter().map(|key| Toleration {
        key: Some((*key).to_owned()),
        operator: Some("Exists".to_owned()),
        effect: Some("NoSchedule".to_owned()),
        ..Toleration::default()
    });
    own.iter().cloned().chain(taints).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Acceleration;

    fn volumes(all: &[(&str, &str)]) -> BTreeMap<String, String> {
        let owned = |(volume, claim): &(&str, &str)| ((*volume).to_owned(), (*claim).to_owned());
        all.iter().map(owned).collect()
    }

    #[test]
    fn name_follows_from_pod_and_volumes() {
        let one = volumes(&[("a", "x")]);
        let name = attachment_pod_name("u", &one);
        assert!(name.starts_with("hp-volume-"), "{name}");
        assert_eq!(name, attachment_pod_name("u", &one));
        for other in [
            attachment_pod_name("v", &one),
            attachment_pod_name("u", &volumes(&[("a", "y")])),
            attachment_pod_name("u", &volumes(&[("a", "x"), ("b", "y")])),
        ] {
            assert_ne!(name, other);
        }
    }

    #[test]
    fn pod_mounts_the_claims_without_any_privilege() {
        let settings = Settings::defaults("launcher:1", Acceleration::Kvm);
        let pod = attachment_pod(&Attachment {
            namespace: "n",
            vmi_name: "a",
            vmi_uid: "vmi",
            launcher_name: "virt-launcher-a-x",
            launcher_uid: "launcher",
            node: "n1",
            volumes: &volumes(&[("data", "claim-a"), ("usr", "claim-b")]),
            tolerations: &[],
            settings: &settings,
        });
        let pod = serde_json::to_value(pod).expect("a pod is JSON");
        let owner = &pod["metadata"]["ownerReferences"][0];
        assert_eq!(
            (&owner["kind"], &owner["uid"]),
            (&"Pod".into(), &"launcher".into())
        );
        let spec = &pod["spec"];
        assert_eq!(
            spec["volumes"][1]["persistentVolumeClaim"]["claimName"],
            "claim-a"
        );
        let container = &spec["containers"][0];
        let paths = container["volumeMounts"].as_array().expect("mounts");
        let paths: Vec<_> = paths.iter().map(|mount| &mount["mountPath"]).collect();
        assert_eq!(paths, ["/path", "/volumes/data", "/volumes/usr"]);
        let security = &container["securityContext"];
        assert_eq!(security["capabilities"]["drop"][0], "ALL");
        assert_eq!(security["allowPrivilegeEscalation"], false);
        assert_eq!(spec["securityContext"]["runAsUser"], 107);
        assert_eq!(spec["automountServiceAccountToken"], false);
        let terms = "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution\
                     /nodeSelectorTerms/0/matchExpressions/0/values/0";
        assert_eq!(spec.pointer(terms), Some(&"n1".into()));
    }
}
