//! Constraints on the nodes that the pod may be scheduled to.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Affinity, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm,
    PodAffinityTerm, PodAntiAffinity, PreferredSchedulingTerm,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use kubevirt_api::features::{FeatureHyperv, FeatureState};
use kubevirt_api::{VirtualMachineInstance, labels};
use model::{Architecture, CpuModel, Guest};

use crate::{Feature, Input, metadata};

const ARCHITECTURE: &str = "kubernetes.io/arch";
pub(crate) const HOST_NAME: &str = "kubernetes.io/hostname";
/// Weight of nodes with the guest's architecture, which need not emulate it.
const NATIVE_WEIGHT: i32 = 100;

/// Labels that the cluster requires of every node, then the user's, and last, so that neither can
/// override them, the labels that the guest needs.
pub(crate) fn node_selector(input: &Input<'_>) -> BTreeMap<String, String> {
    let Input {
        guest, settings, ..
    } = input;
    let mut all = BTreeMap::new();
    if !settings.has(Feature::CrossArchitecture) {
        let architecture = guest.architecture.as_str().to_owned();
        all.insert(ARCHITECTURE.to_owned(), architecture);
    }
    all.insert(labels::SCHEDULABLE.to_owned(), "true".to_owned());
    all.extend(settings.node_selectors.clone());
    all.extend(guest.vmi.spec.node_selector.clone());
    let needed = needed(input).into_iter();
    all.extend(needed.map(|label| (label, "true".to_owned())));
    all
}

/// Labels of nodes that can run this guest.
fn needed(input: &Input<'_>) -> Vec<String> {
    let vmi = input.guest.vmi;
    let mut all = Vec::new();
    if input.guest.has_dedicated_cpus() {
        all.push(labels::CPU_MANAGER.to_owned());
    }
    all.extend(hyperv(input));
    all.extend(cpu(input.guest));
    let machine = vmi.spec.domain.machine.as_ref();
    let machine = machine.and_then(|machine| machine.type_.as_deref());
    let machine = machine.filter(|machine| !machine.is_empty());
    all.extend(machine.map(|machine| format!("{}{machine}", labels::MACHINE_TYPE_PREFIX)));
    all.extend(tsc_frequency(vmi));
    let realtime = vmi.spec.domain.cpu.as_ref().map(|cpu| &cpu.realtime);
    if realtime.is_some_and(Option::is_some) {
        all.push(labels::REALTIME.to_owned());
    }
    all.extend(protection(input.guest).into_iter().map(str::to_owned));
    if input.settings.has(Feature::CrossArchitecture) {
        let architecture = input.guest.architecture.as_str();
        all.push(format!(
            "{}{architecture}",
            labels::GUEST_ARCHITECTURE_PREFIX
        ));
    }
    all
}

fn cpu(guest: &Guest<'_>) -> Vec<String> {
    let Some(cpu) = &guest.vmi.spec.domain.cpu else {
        return Vec::new();
    };
    let model = match guest.cpu_model {
        CpuModel::Named(model) => Some(format!("{}{model}", labels::CPU_MODEL_PREFIX)),
        CpuModel::Unset | CpuModel::HostModel | CpuModel::HostPassthrough => None,
    };
    let required = cpu
        .features
        .iter()
        .filter(|feature| matches!(feature.policy.as_deref(), None | Some("" | "require")));
    model
        .into_iter()
        .chain(required.map(|feature| feature_label(&feature.name)))
        .collect()
}

/// Enlightenments that not every node has. The others (`relaxed`, `vapic`, `spinlocks`, `vendorid`)
/// do not depend on the node.
fn hyperv(input: &Input<'_>) -> Vec<String> {
    let features = input.guest.vmi.spec.domain.features.as_ref();
    let Some(hyperv) = features.and_then(|features| features.hyperv.as_ref()) else {
        return Vec::new();
    };
    let mut all = Vec::new();
    if input.settings.has(Feature::HypervStrictCheck) {
        let wanted = enlightenments(hyperv);
        all.extend(wanted.map(|name| format!("{}{name}", labels::HYPERV_PREFIX)));
    }
    if is_on(hyperv.evmcs.as_ref()) {
        all.push(format!("{}Intel", labels::CPU_VENDOR_PREFIX));
    }
    all
}

fn enlightenments(hyperv: &FeatureHyperv) -> impl Iterator<Item = &'static str> {
    let timer = hyperv.synictimer.as_ref();
    let flush = hyperv.tlbflush.as_ref();
    let all = [
        ("vpindex", is_on(hyperv.vpindex.as_ref())),
        ("runtime", is_on(hyperv.runtime.as_ref())),
        ("reset", is_on(hyperv.reset.as_ref())),
        ("synic", is_on(hyperv.synic.as_ref())),
        (
            "synictimer",
            timer.is_some_and(|timer| timer.enabled != Some(false)),
        ),
        ("frequencies", is_on(hyperv.frequencies.as_ref())),
        ("reenlightenment", is_on(hyperv.reenlightenment.as_ref())),
        (
            "tlbflush",
            flush.is_some_and(|flush| flush.enabled != Some(false)),
        ),
        ("ipi", is_on(hyperv.ipi.as_ref())),
    ];
    all.into_iter().filter(|(_, on)| *on).map(|(name, _)| name)
}

fn is_on(state: Option<&FeatureState>) -> bool {
    state.is_some_and(|state| state.enabled != Some(false))
}

/// The label of nodes with the frequency of the guest's time stamp counter.
fn tsc_frequency(vmi: &VirtualMachineInstance) -> Option<String> {
    let hints = vmi.status.as_ref()?.topology_hints.as_ref()?;
    let frequency = hints.tsc_frequency?;
    Some(format!("{}{frequency}", labels::TSC_FREQUENCY_PREFIX))
}

/// Labels of nodes whose processors can encrypt the guest's memory.
fn protection(guest: &Guest<'_>) -> Vec<&'static str> {
    let Some(security) = &guest.vmi.spec.domain.launch_security else {
        return Vec::new();
    };
    if guest.architecture == Architecture::S390x {
        return vec![labels::S390_PV];
    }
    let sev = security.sev.as_ref();
    let policy = sev.and_then(|sev| sev.policy.as_ref());
    let with_state = policy.is_some_and(|policy| policy.encrypted_state == Some(true));
    [
        (labels::SEV, sev.is_some()),
        (labels::SEV_ES, with_state),
        (labels::SEV_SNP, security.snp.is_some()),
        (labels::TDX, security.tdx.is_some()),
    ]
    .into_iter()
    .filter(|(_, needed)| *needed)
    .map(|(label, _)| label)
    .collect()
}

/// The VMI's own affinity. Every term also excludes nodes that its CPU model forbids, and the pod
/// avoids nodes with other reservations of its claims.
pub(crate) fn affinity(input: &Input<'_>) -> Option<Affinity> {
    let mut affinity = input.guest.vmi.spec.affinity.clone();
    exclude_nodes(&mut affinity, &forbidden(input.guest));
    if input.settings.has(Feature::CrossArchitecture) {
        prefer_native(&mut affinity, input.guest.architecture.as_str());
    }
    separate_reservations(&mut affinity, &metadata::reservation_labels(input));
    affinity
}

fn exclude_nodes(affinity: &mut Option<Affinity>, added: &[NodeSelectorRequirement]) {
    if added.is_empty() {
        return;
    }
    let required = node_affinity(affinity)
        .required_during_scheduling_ignored_during_execution
        .get_or_insert_with(NodeSelector::default);
    if required.node_selector_terms.is_empty() {
        required
            .node_selector_terms
            .push(NodeSelectorTerm::default());
    }
    for term in &mut required.node_selector_terms {
        let expressions = term.match_expressions.get_or_insert_default();
        expressions.extend(added.iter().cloned());
    }
}

fn prefer_native(affinity: &mut Option<Affinity>, architecture: &str) {
    let is_native = NodeSelectorRequirement {
        key: ARCHITECTURE.to_owned(),
        operator: "In".to_owned(),
        values: Some(vec![architecture.to_owned()]),
    };
    let preferred =
        &mut node_affinity(affinity).preferred_during_scheduling_ignored_during_execution;
    preferred
        .get_or_insert_default()
        .push(PreferredSchedulingTerm {
            weight: NATIVE_WEIGHT,
            preference: NodeSelectorTerm {
                match_expressions: Some(vec![is_native]),
                match_fields: None,
            },
        });
}

fn separate_reservations(affinity: &mut Option<Affinity>, reservations: &[String]) {
    if reservations.is_empty() {
        return;
    }
    let anti = affinity
        .get_or_insert_default()
        .pod_anti_affinity
        .get_or_insert_with(PodAntiAffinity::default);
    let terms = reservations.iter().map(|label| PodAffinityTerm {
        topology_key: HOST_NAME.to_owned(),
        label_selector: Some(LabelSelector {
            match_expressions: Some(vec![LabelSelectorRequirement {
                key: label.clone(),
                operator: "Exists".to_owned(),
                values: None,
            }]),
            match_labels: None,
        }),
        ..PodAffinityTerm::default()
    });
    anti.required_during_scheduling_ignored_during_execution
        .get_or_insert_default()
        .extend(terms);
}

fn node_affinity(affinity: &mut Option<Affinity>) -> &mut NodeAffinity {
    affinity
        .get_or_insert_default()
        .node_affinity
        .get_or_insert_with(NodeAffinity::default)
}

fn forbidden(guest: &Guest<'_>) -> Vec<NodeSelectorRequirement> {
    let absent = |key: String| NodeSelectorRequirement {
        key,
        operator: "DoesNotExist".to_owned(),
        values: None,
    };
    let Some(cpu) = &guest.vmi.spec.domain.cpu else {
        return Vec::new();
    };
    let is_host_model = guest.cpu_model == CpuModel::HostModel;
    let obsolete = is_host_model.then(|| absent(labels::OBSOLETE_HOST_MODEL.to_owned()));
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
    format!("{}{name}", labels::CPU_FEATURE_PREFIX)
}
