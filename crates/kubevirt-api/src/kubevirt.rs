//! `KubeVirt`: one installation of the system, its settings and its state.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{Affinity, LocalObjectReference, Toleration},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    cluster_config::KubeVirtConfiguration, conditions::condition, duration::Duration,
    open_enum::open_enum, resource::kind, tolerant::null_as_default,
};

/// One installation of the system: its components, configuration and status.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct KubeVirt {
    #[serde(deserialize_with = "null_as_default")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "null_as_default")]
    pub spec: KubeVirtSpec,
    pub status: Option<KubeVirtStatus>,
}

kind!(KubeVirt {
    group: "kubevirt.io",
    version: "v1",
    plural: "kubevirts",
    scope: NamespaceResourceScope,
    spec: KubeVirtSpec,
    status: KubeVirtStatus,
});

/// Components and configuration of an installation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct KubeVirtSpec {
    /// Tag of the images to install; that of the operator when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_tag: Option<String>,
    /// Registry and path of the images to install; those of the operator when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_registry: Option<String>,
    /// When nodes pull the images: Always, Never or `IfNotPresent`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["Always", "Never", "IfNotPresent", ""])))]
    pub image_pull_policy: Option<String>,
    /// Secrets with credentials for the registry, in the namespace of the installation.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub image_pull_secrets: Vec<LocalObjectReference>,
    /// Namespace in which Prometheus runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub monitor_namespace: Option<String>,
    /// Namespace for the service monitor; monitorNamespace when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_monitor_namespace: Option<String>,
    /// Service account that Prometheus runs under.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub monitor_account: Option<String>,
    /// What happens to running guests when the system was updated; nothing when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workload_update_strategy: Option<KubeVirtWorkloadUpdateStrategy>,
    /// What the deletion of this object does while guests exist: `RemoveWorkloads` (when unset)
    /// ends and removes them, `BlockUninstallIfWorkloadsExist` refuses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uninstall_strategy: Option<KubeVirtUninstallStrategy>,
    /// How long the system's own certificates last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate_rotate_strategy: Option<KubeVirtCertificateRotateStrategy>,
    /// Version of the product that the system is a part of; becomes a label of the installed
    /// objects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub product_version: Option<String>,
    /// Name of the product that the system is a part of; becomes a label of the installed objects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub product_name: Option<String>,
    /// Part of the product that the system is; becomes a label of the installed objects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub product_component: Option<String>,
    /// Port for migrations between clusters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub synchronization_port: Option<String>,
    /// Settings for all guests and all components.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub configuration: Option<KubeVirtConfiguration>,
    /// Where and how often the control plane runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub infra: Option<ComponentConfig>,
    /// Where guests, and the handlers for them, run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workloads: Option<ComponentConfig>,
    /// Changes to the installed objects, applied last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub customize_components: Option<CustomizeComponents>,
}

/// What happens to running guests when the system was updated.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct KubeVirtWorkloadUpdateStrategy {
    /// Ways to bring a guest to the new version, in any order: `LiveMigrate` moves those that can
    /// move, Evict ends the others. None leaves guests as they are.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub workload_update_methods: Vec<WorkloadUpdateMethod>,
    /// Guests that are ended at a time; 10 when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch_eviction_size: Option<i64>,
    /// Time between such batches, such as 1m; 1m when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch_eviction_interval: Option<Duration>,
}

/// How long the system's own certificates last.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct KubeVirtCertificateRotateStrategy {
    /// The system signs its certificates itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub self_signed: Option<KubeVirtSelfSignConfiguration>,
}

/// Life times of certificates that the system signs itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct KubeVirtSelfSignConfiguration {
    /// Older form of ca.duration; not together with ca or server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_rotate_interval: Option<Duration>,
    /// Older form of server.duration; not together with ca or server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cert_rotate_interval: Option<Duration>,
    /// Older form of ca.renewBefore; not together with ca or server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_overlap_interval: Option<Duration>,
    /// The authority.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<CertConfig>,
    /// The servers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<CertConfig>,
}

/// Life time of a certificate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct CertConfig {
    /// How long it is valid, such as 168h.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<Duration>,
    /// How long before its end it is replaced; less than duration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renew_before: Option<Duration>,
}

/// Where and how often a part of the system runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ComponentConfig {
    /// Nodes it may run on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_placement: Option<NodePlacement>,
    /// Copies of each component of the control plane; reckoned from the number of nodes when
    /// unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<u8>,
}

/// Nodes that pods may run on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct NodePlacement {
    /// Labels that a node must have.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub node_selector: BTreeMap<String, String>,
    /// Where pods should or must run, relative to nodes and other pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,
    /// Taints that the pods put up with.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub tolerations: Vec<Toleration>,
}

/// Changes to the installed objects.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct CustomizeComponents {
    /// Patches, applied in order.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub patches: Vec<CustomizeComponentsPatch>,
    /// Flags of the components' command lines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flags: Option<Flags>,
}

/// A patch of one installed object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct CustomizeComponentsPatch {
    /// Name of the object, or * for all of the kind.
    #[cfg_attr(feature = "schema", schemars(length(min = 1)))]
    #[serde(deserialize_with = "null_as_default")]
    pub resource_name: String,
    /// Kind of the object, such as Deployment.
    #[cfg_attr(feature = "schema", schemars(length(min = 1)))]
    #[serde(deserialize_with = "null_as_default")]
    pub resource_type: String,
    /// The patch, as JSON in a text.
    #[serde(deserialize_with = "null_as_default")]
    pub patch: String,
    /// How the patch is written: json, merge or strategic.
    #[serde(deserialize_with = "null_as_default", rename = "type")]
    pub type_: PatchType,
}

/// Flags by component; names without leading dashes, an empty value for a bare flag.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Flags {
    /// Flags of the API component.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub api: BTreeMap<String, String>,
    /// Flags of the controller.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub controller: BTreeMap<String, String>,
    /// Flags of the handlers.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub handler: BTreeMap<String, String>,
}

/// Observed state of an installation; written by the operator.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct KubeVirtStatus {
    /// State.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<KubeVirtPhase>,
    /// Details of the state, one entry per type.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub conditions: Vec<KubeVirtCondition>,
    /// Version of the operator at work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operator_version: Option<String>,
    /// Registry that is being installed from.
    #[serde(
        rename = "targetKubeVirtRegistry",
        skip_serializing_if = "Option::is_none"
    )]
    pub target_kubevirt_registry: Option<String>,
    /// Version that is being installed.
    #[serde(
        rename = "targetKubeVirtVersion",
        skip_serializing_if = "Option::is_none"
    )]
    pub target_kubevirt_version: Option<String>,
    /// Settings that are being installed, as JSON in a text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_deployment_config: Option<String>,
    /// Hash of those settings.
    #[serde(rename = "targetDeploymentID", skip_serializing_if = "Option::is_none")]
    pub target_deployment_id: Option<String>,
    /// Registry that was installed from last.
    #[serde(
        rename = "observedKubeVirtRegistry",
        skip_serializing_if = "Option::is_none"
    )]
    pub observed_kubevirt_registry: Option<String>,
    /// Version that was installed last.
    #[serde(
        rename = "observedKubeVirtVersion",
        skip_serializing_if = "Option::is_none"
    )]
    pub observed_kubevirt_version: Option<String>,
    /// Settings that were installed last, as JSON in a text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_deployment_config: Option<String>,
    /// Hash of those settings.
    #[serde(
        rename = "observedDeploymentID",
        skip_serializing_if = "Option::is_none"
    )]
    pub observed_deployment_id: Option<String>,
    /// Guests that still run on an older version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outdated_virtual_machine_instance_workloads: Option<i64>,
    /// Generation of the spec that the operator has seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Architecture of guests that name none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_architecture: Option<String>,
    /// Generations of installed objects as the operator left them; a difference is undone.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub generations: Vec<GenerationStatus>,
    /// Addresses for migrations between clusters.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub synchronization_addresses: Vec<String>,
}

/// The generation that an installed object had when the operator left it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct GenerationStatus {
    /// Group of the object.
    #[serde(deserialize_with = "null_as_default")]
    pub group: String,
    /// Resource of the object, such as deployments.
    #[serde(deserialize_with = "null_as_default")]
    pub resource: String,
    /// Namespace of the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name of the object.
    #[serde(deserialize_with = "null_as_default")]
    pub name: String,
    /// The generation.
    #[serde(deserialize_with = "null_as_default")]
    pub last_generation: i64,
    /// Hash of the content, for objects without a generation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
}

/// One aspect of the state of an installation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct KubeVirtCondition {
    /// What it is about.
    #[serde(deserialize_with = "null_as_default", rename = "type")]
    pub type_: KubeVirtConditionType,
    /// True, False or Unknown.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["True", "False", "Unknown"])))]
    #[serde(deserialize_with = "null_as_default")]
    pub status: String,
    /// Not in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("nullable" = true)))]
    pub last_probe_time: Option<Time>,
    /// When status changed last.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("nullable" = true)))]
    pub last_transition_time: Option<Time>,
    /// Reason as a stable CamelCase name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

condition!(KubeVirtCondition, KubeVirtConditionType);

open_enum! {
    /// States of an installation.
    KubeVirtPhase {
        Deploying = "Deploying",
        Deployed = "Deployed",
        Deleting = "Deleting",
        Deleted = "Deleted",
    }
}

open_enum! {
    /// Aspects of the state of an installation; the order is that of lists of conditions.
    KubeVirtConditionType {
        Synchronized = "Synchronized",
        Created = "Created",
        Available = "Available",
        Progressing = "Progressing",
        Degraded = "Degraded",
    }
}

open_enum! {
    /// How a guest is brought to a new version of the system.
    WorkloadUpdateMethod {
        LiveMigrate = "LiveMigrate",
        Evict = "Evict",
    }
}

open_enum! {
    /// What the deletion of an installation does while guests exist.
    KubeVirtUninstallStrategy {
        RemoveWorkloads = "RemoveWorkloads",
        BlockUninstallIfWorkloadsExist = "BlockUninstallIfWorkloadsExist",
    }
}

open_enum! {
    /// How a patch is written.
    PatchType {
        Json = "json",
        Merge = "merge",
        Strategic = "strategic",
    }
}
