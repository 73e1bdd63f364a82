//! Which nodes the pod may go to.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Affinity, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm,
};
use kubevirt_api::{VirtualMachineInstance, labels};

use crate::{NodeLabels, Settings};

const HOST_MODEL: &str = "host-model";
const HOST_PASSTHROUGH: &str = "host-passthrough";
const OBSOLETE_HOST_MODEL: &str = "node-labeller.kubevirt.io/obsolete-host-model";

pub(crate) fn node_selector(
    vmi: &VirtualMachineInstance,
    settings: &Settings,
) -> BTreeMap<String, String> {
    let architecture = vmi
        .spec
        .architecture
        .as_deref()
        .filter(|arch| !arch.is_empty());
    let architecture = architecture.unwrap_or("amd64");
    let mut all = BTreeMap::from([("kubernetes.io/arch".to_owned(), architecture.to_owned())]);
    if settings.node_labels == NodeLabels::Present {
        all.insert(labels::SCHEDULABLE.to_owned(), "true".to_owned());
        all.extend(
            needed(vmi)
                .into_iter()
                .map(|label| (label, "true".to_owned())),
        );
    }
    all.extend(settings.node_selectors.clone());
    all.extend(vmi.spec.node_selector.clone());
    all
}

/// Labels of nodes that can run this guest.
fn needed(vmi: &VirtualMachineInstance) -> Vec<String> {
    let domain = &vmi.spec.domain;
    let machine = domain
        .machine
        .as_ref()
        .and_then(|machine| machine.type_.as_deref());
    let mut all: Vec<String> = machine
        .filter(|machine| !machine.is_empty())
        .map(|machine| format!("machine-type.node.kubevirt.io/{machine}"))
        .into_iter()
        .collect();
    let Some(cpu) = &domain.cpu else { return all };
    let model = cpu.model.as_deref().unwrap_or_default();
    if !["", HOST_MODEL, HOST_PASSTHROUGH].contains(&model) {
        all.push(format!("cpu-model.node.kubevirt.io/{model}"));
    }
    let required = cpu
        .features
        .iter()
        .filter(|feature| matches!(feature.policy.as_deref(), None | Some("" | "require")));
    all.extend(required.map(|feature| feature_label(&feature.name)));
    all
}

/// The VMI's own affinity, with what its CPU must not meet added to every term.
pub(crate) fn affinity(vmi: &VirtualMachineInstance, settings: &Settings) -> Option<Affinity> {
    let mut affinity = vmi.spec.affinity.clone();
    let added = match settings.node_labels {
        NodeLabels::Present => forbidden(vmi),
        NodeLabels::Absent => Vec::new(),
    };
    if added.is_empty() {
        return affinity;
    }
    let node = affinity
        .get_or_insert_default()
        .node_affinity
        .get_or_insert_with(NodeAffinity::default);
    let required = node
        .required_during_scheduling_ignored_during_execution
        .get_or_insert_with(NodeSelector::default);
    if required.node_selector_terms.is_empty() {
        required
            .node_selector_terms
            .push(NodeSelectorTerm::default());
    }
    for term in &mut required.node_selector_terms {
        term.match_expressions
            .get_or_insert_default()
            .extend(added.clone());
    }
    affinity
}

fn forbidden(vmi: &VirtualMachineInstance) -> Vec<NodeSelectorRequirement> {
    let absent = |key: String| NodeSelectorRequirement {
        key,
        operator: "DoesNotExist".to_owned(),
        values: None,
    };
    let Some(cpu) = &vmi.spec.domain.cpu else {
        return Vec::new();
    };
    let host_model = cpu.model.as_deref() == Some(HOST_MODEL);
    let obsolete = host_model.then(|| absent(OBSOLETE_HOST_MODEL.to_owned()));
    let features = cpu
        .features
        .iter()
        .filter(|f| f.policy.as_deref() == Some("forbid"));
    obsolete
        .into_iter()
        .chain(features.map(|f| absent(feature_label(&f.name))))
        .collect()
}

fn feature_label(name: &str) -> String {
    format!("cpu-feature.node.kubevirt.io/{name}")
}
