//! `VirtualMachineInstance`: one run of a guest.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{
        Affinity, ExecAction, HTTPGetAction, PodDNSConfig, TCPSocketAction, Toleration,
        TopologySpreadConstraint,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[cfg(feature = "schema")]
use crate::crds::rules;
use crate::{
    access_credentials::AccessCredential, domain::DomainSpec, network::Network,
    open_enum::open_enum, resource::kind, tolerant::null_as_default,
    vmi_status::VirtualMachineInstanceStatus, volumes::Volume,
};

/// One run of a guest. Its spec never changes; when the guest is over, so is the object's use.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineInstance {
    #[serde(deserialize_with = "null_as_default")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "null_as_default")]
    pub spec: VirtualMachineInstanceSpec,
    pub status: Option<VirtualMachineInstanceStatus>,
}

kind!(VirtualMachineInstance {
    group: "kubevirt.io",
    version: "v1",
    plural: "virtualmachineinstances",
    scope: NamespaceResourceScope,
    spec: VirtualMachineInstanceSpec,
    status: VirtualMachineInstanceStatus,
});

/// What the guest consists of and where it may run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineInstanceSpec {
    /// Priority class of the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority_class_name: Option<String>,
    /// The virtual hardware: CPU, memory, firmware, devices.
    #[serde(deserialize_with = "null_as_default")]
    pub domain: DomainSpec,
    /// Labels a node must have to run the guest.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub node_selector: BTreeMap<String, String>,
    /// Where the pod should or must run, relative to nodes and other pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,
    /// Scheduler that places the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler_name: Option<String>,
    /// Service account of the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,
    /// Taints that the pod puts up with.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub tolerations: Vec<Toleration>,
    /// How pods of a group spread over zones and nodes.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "map"), extend("x-kubernetes-list-map-keys" = ["topologyKey", "whenUnsatisfiable"])))]
    pub topology_spread_constraints: Vec<TopologySpreadConstraint>,
    /// What a drain of the node does: None ends the guest, `LiveMigrate` moves it or holds up
    /// the drain, `LiveMigrateIfPossible` moves it if it can, External leaves it to another
    /// controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eviction_strategy: Option<EvictionStrategy>,
    /// Paused starts the guest stopped before its first instruction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_strategy: Option<StartStrategy>,
    /// Seconds the guest gets to shut down by itself before it is switched off; 30 when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub termination_grace_period_seconds: Option<i64>,
    /// Where the data of disks and filesystems comes from; every disk needs a volume of its
    /// name.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(length(max = 256)))]
    pub volumes: Vec<Volume>,
    /// Check that ends the instance when it keeps failing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub liveness_probe: Option<Probe>,
    /// Check that decides whether the instance counts as ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub readiness_probe: Option<Probe>,
    /// Host name of the guest; the instance's name when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// Makes the full name `hostname.subdomain.namespace.svc`, with a headless service of that
    /// name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subdomain: Option<String>,
    /// Networks that the guest's interfaces join; every interface needs a network of its name.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(length(max = 256)))]
    pub networks: Vec<Network>,
    /// Where the guest's name servers come from, as for pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dns_policy: Option<String>,
    /// Name servers and search domains, added to those of the policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dns_config: Option<PodDNSConfig>,
    /// Keys and passwords that are kept up to date in the guest.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic"), length(max = 256)))]
    pub access_credentials: Vec<AccessCredential>,
    /// amd64, arm64 or s390x; the cluster's default when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
    /// Claims on devices that the pod makes.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "map"), extend("x-kubernetes-list-map-keys" = ["name"])))]
    pub resource_claims: Vec<VirtualMachineInstanceResourceClaim>,
    /// Volumes that the platform attaches for its own work.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(length(max = 256), extend("x-kubernetes-list-type" = "map"), extend("x-kubernetes-list-map-keys" = ["name"])))]
    pub utility_volumes: Vec<UtilityVolume>,
}

/// A check that is repeated while the guest runs. Exactly one of exec, `guestAgentPing`,
/// `httpGet` and `tcpSocket`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-validations" = [rules::exactly_one(&["exec", "guestAgentPing", "httpGet", "tcpSocket"])])))]
pub struct Probe {
    /// Command run in the guest by its agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exec: Option<ExecAction>,
    /// Asks whether the guest agent answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guest_agent_ping: Option<GuestAgentPing>,
    /// Request that must be answered with a status from 200 to 399.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_get: Option<HTTPGetAction>,
    /// Port that must accept a connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp_socket: Option<TCPSocketAction>,
    /// Seconds after the start before the first check.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial_delay_seconds: Option<i32>,
    /// Seconds a check may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<i32>,
    /// Seconds between checks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub period_seconds: Option<i32>,
    /// Successes in a row that count as healthy again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub success_threshold: Option<i32>,
    /// Failures in a row that count as failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_threshold: Option<i32>,
}

/// A claim of the pod on devices.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineInstanceResourceClaim {
    /// Name that devices refer to.
    #[serde(deserialize_with = "null_as_default")]
    pub name: String,
    /// Claim that exists already, in the namespace of the VM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_claim_name: Option<String>,
    /// Template that a claim is made from, for this pod alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_claim_template_name: Option<String>,
}

/// A volume that the platform attaches for its own work, such as a memory dump.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct UtilityVolume {
    /// Name of the volume.
    #[serde(deserialize_with = "null_as_default")]
    pub name: String,
    /// Claim that is attached, in the namespace of the VM.
    #[serde(deserialize_with = "null_as_default")]
    pub claim_name: String,
    /// Attaches the claim read-only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
    /// What it is for: `MemoryDump` or Backup.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<UtilityVolumeType>,
}

/// Names an instance. No object holds one today; older clients know the shape.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VMISelector {
    /// Name of the instance.
    #[serde(deserialize_with = "null_as_default")]
    pub name: String,
}

/// `guestAgentPing` of [`Probe`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct GuestAgentPing {}

open_enum! {
    /// What a drain of the node does to a guest.
    EvictionStrategy {
        None = "None",
        LiveMigrate = "LiveMigrate",
        LiveMigrateIfPossible = "LiveMigrateIfPossible",
        External = "External",
    }
}

open_enum! {
    /// How a guest starts.
    StartStrategy {
        Paused = "Paused",
    }
}

open_enum! {
    /// Values of `type`.
    UtilityVolumeType {
        MemoryDump = "MemoryDump",
        Backup = "Backup",
    }
}
