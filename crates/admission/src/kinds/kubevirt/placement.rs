//! Placement of components: refuses settings that Kubernetes would refuse in their pods.

use k8s_openapi::api::core::v1::Toleration;
use kubevirt_api::{kubevirt::NodePlacement, vmi::VirtualMachineInstanceSpec};
use validation::Violation;

use super::request::Request;
use crate::kinds::kind::Problem;

/// Maximum length of a label value.
const MAX_LABEL: usize = 63;

pub(super) fn check(request: &Request<'_>) -> Vec<Problem> {
    let spec = &request.new.spec;
    let parts = [("infra", &spec.infra), ("workloads", &spec.workloads)];
    let placements = parts.into_iter().filter_map(|(name, part)| {
        let placement = part.as_ref()?.node_placement.as_ref()?;
        Some((format!("spec.{name}.nodePlacement"), placement))
    });
    let found = placements.flat_map(|(path, placement)| {
        let mut found = selector(&path, placement);
        found.extend(affinity(request, &path, placement));
        for (i, toleration) in placement.tolerations.iter().enumerate() {
            let detail = toleration_problem(toleration);
            let field = format!("{path}.tolerations[{i}]");
            found.extend(detail.map(|detail| Violation::invalid(field, detail)));
        }
        found
    });
    found.map(Problem::from).collect()
}

fn selector(path: &str, placement: &NodePlacement) -> Vec<Violation> {
    let labels = placement.node_selector.iter();
    let wrong = labels.filter(|(_, value)| !is_label_value(value));
    let violations = wrong.map(|(key, value)| {
        let detail = format!(
            "{value:?} is not a label value; use at most {MAX_LABEL} letters, digits, -, _ and ."
        );
        Violation::invalid(format!("{path}.nodeSelector[{key}]"), detail)
    });
    violations.collect()
}

/// Checks affinity by the rules of a guest, which are those of any pod.
fn affinity(request: &Request<'_>, path: &str, placement: &NodePlacement) -> Vec<Violation> {
    let spec = VirtualMachineInstanceSpec {
        affinity: placement.affinity.clone(),
        ..VirtualMachineInstanceSpec::default()
    };
    let found = request.check_guest(&spec);
    found
        .into_iter()
        .filter(|violation| violation.field.starts_with("spec.affinity"))
        .map(|violation| violation.rebased("spec", path))
        .collect()
}

fn toleration_problem(toleration: &Toleration) -> Option<String> {
    let text = |part: &Option<String>| part.clone().unwrap_or_default();
    let (key, operator) = (text(&toleration.key), text(&toleration.operator));
    let (value, effect) = (text(&toleration.value), text(&toleration.effect));
    if !["", "Exists", "Equal"].contains(&operator.as_str()) {
        return Some(format!(
            "operator {operator:?} is unknown; use Exists or Equal"
        ));
    }
    if key.is_empty() && operator != "Exists" {
        return Some("a toleration without key needs operator Exists".to_owned());
    }
    if operator == "Exists" && !value.is_empty() {
        return Some("operator Exists takes no value; remove it or use Equal".to_owned());
    }
    if !["", "NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect.as_str()) {
        return Some(format!(
            "effect {effect:?} is unknown; use NoSchedule, PreferNoSchedule or NoExecute"
        ));
    }
    if toleration.toleration_seconds.is_some() && effect != "NoExecute" {
        return Some("tolerationSeconds needs effect NoExecute".to_owned());
    }
    (!is_label_value(&value)).then(|| format!("{value:?} is not a taint value"))
}

fn is_label_value(text: &str) -> bool {
    let is_end = |c: char| c.is_ascii_alphanumeric();
    text.is_empty()
        || (text.len() <= MAX_LABEL
            && text.starts_with(is_end)
            && text.ends_with(is_end)
            && text.chars().all(|c| is_end(c) || "-_.".contains(c)))
}
