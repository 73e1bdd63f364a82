//! A node, reduced to its capabilities and its last heartbeat.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Taint};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubevirt_api::{annotations, labels};
use serde::Deserialize;

use super::Labels;
use crate::container_disks::ImageVolumes;
use crate::tsc::{self, Tsc};

const KVM: &str = "devices.kubevirt.io/kvm";

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(from = "Raw")]
pub(crate) struct Host {
    pub(crate) metadata: ObjectMeta,
    pub(crate) has_kvm: bool,
    /// `None` if virt-handler never reported.
    pub(crate) heartbeat: Option<Timestamp>,
    /// Labelled as schedulable for launcher pods.
    pub(crate) is_schedulable: bool,
    pub(crate) image_volumes: ImageVolumes,
    pub(crate) tsc: Option<Tsc>,
    /// The frequencies of the time stamp counter that the node is labelled with.
    pub(crate) tsc_frequencies: BTreeSet<i64>,
    /// Labels of nodes that can continue a guest with the CPU model of this node.
    pub(crate) compatible: Vec<String>,
    /// The keys of its taints that keep new pods away.
    pub(crate) no_schedule: BTreeSet<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Raw {
    metadata: ObjectMeta,
    spec: Demand,
    status: Offer,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Demand {
    taints: Option<Vec<Taint>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Offer {
    allocatable: BTreeMap<String, Quantity>,
    #[serde(rename = "nodeInfo")]
    programs: Programs,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Programs {
    kubelet_version: String,
    container_runtime_version: String,
}

impl Host {
    /// Whether virt-handler ever ran there: only such a node can run guests.
    pub(crate) fn takes_guests(&self) -> bool {
        self.is_schedulable || self.heartbeat.is_some()
    }
}

impl From<Raw> for Host {
    fn from(raw: Raw) -> Self {
        let programs = &raw.status.programs;
        let kvm = raw.status.allocatable.get(KVM);
        let annotations = raw.metadata.annotations.as_ref();
        let heartbeat = annotations
            .and_then(|all| all.get(annotations::HEARTBEAT))
            .and_then(|time| time.parse().ok());
        let labels = raw.metadata.labels.as_ref();
        let schedulable = labels.and_then(|all| all.get(labels::SCHEDULABLE));
        Self {
            has_kvm: kvm.is_some_and(|count| count.0 != "0"),
            heartbeat,
            image_volumes: ImageVolumes::of_node(
                &programs.kubelet_version,
                &programs.container_runtime_version,
            ),
            no_schedule: no_schedule(raw.spec.taints.unwrap_or_default()),
            compatible: labels.map(compatible).unwrap_or_default(),
            is_schedulable: schedulable.is_some_and(|value| value == "true"),
            tsc: labels.and_then(Tsc::of_labels),
            tsc_frequencies: labels.map(tsc::labelled).unwrap_or_default(),
            metadata: super::slim(raw.metadata, Labels::Dropped, &[]),
        }
    }
}

fn no_schedule(taints: Vec<Taint>) -> BTreeSet<String> {
    let keeping = taints
        .into_iter()
        .filter(|taint| taint.effect == "NoSchedule");
    keeping.map(|taint| taint.key).collect()
}

fn compatible(labels: &BTreeMap<String, String>) -> Vec<String> {
    let renamed = |from: &str, to: &str| {
        let of_kind = labels.keys().filter_map(|key| key.strip_prefix(from));
        of_kind
            .map(|rest| format!("{to}{rest}"))
            .collect::<Vec<_>>()
    };
    let mut all = renamed(
        labels::HOST_MODEL_CPU_PREFIX,
        labels::CPU_MODEL_MIGRATION_PREFIX,
    );
    all.extend(renamed(
        labels::HOST_MODEL_REQUIRED_FEATURES_PREFIX,
        labels::CPU_FEATURE_PREFIX,
    ));
    all
}

reconcile::resource_view!(Host, Node, ClusterResourceScope);
