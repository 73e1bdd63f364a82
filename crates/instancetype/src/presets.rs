//! Presets: parts of a domain that are merged into new VMIs with matching labels.
//!
//! A preset fills in unset fields. Fields that both set must be equal: a preset overrides neither
//! the VMI nor another preset.

use std::collections::BTreeMap;

use apimachinery::selector;
use kubevirt_api::{
    VirtualMachineInstance, annotations,
    domain::{DomainSpec, ResourceRequirements},
    preset::VirtualMachineInstancePreset,
};
use serde_json::json;
use validation::{Rule, Subject, Violation};

const PATH: &str = "spec.domain";
/// Value of the annotation that records an applied preset.
const APPLIED: &str = "kubevirt.io/v1";

pub(crate) type Fill = fn(
    &mut VirtualMachineInstance,
    &[VirtualMachineInstancePreset],
) -> Result<Vec<String>, Vec<Violation>>;

#[rustfmt::skip]
pub(crate) const RULE: Rule<Fill> =
    Rule::new("default.presets", Subject::VmiDefaults, "parts of the presets whose selector matches", fill);

/// Merges matching presets into a new VMI. Returns warnings for its author.
pub fn apply(
    vmi: &mut VirtualMachineInstance,
    presets: &[VirtualMachineInstancePreset],
) -> Result<Vec<String>, Vec<Violation>> {
    (RULE.apply)(vmi, presets).map_err(|violations| RULE.attribute(violations).collect())
}

fn fill(
    vmi: &mut VirtualMachineInstance,
    presets: &[VirtualMachineInstancePreset],
) -> Result<Vec<String>, Vec<Violation>> {
    let own = vmi.metadata.annotations.as_ref();
    if own.is_some_and(|own| {
        own.get(annotations::EXCLUDE_PRESETS)
            .is_some_and(|value| value == "true")
    }) {
        return Ok(Vec::new());
    }
    let matching: Vec<_> = presets.iter().filter(|one| matches(one, vmi)).collect();
    let mut merged = vmi.spec.domain.clone();
    let mut conflicts = Vec::new();
    for preset in &matching {
        if let Some(domain) = &preset.spec.domain {
            merge(&mut merged, domain, name(preset), &mut conflicts);
        }
    }
    if !conflicts.is_empty() {
        return Err(conflicts);
    }
    vmi.spec.domain = merged;
    if matching.is_empty() {
        return Ok(Vec::new());
    }
    let own = vmi.metadata.annotations.get_or_insert_default();
    Ok(matching
        .into_iter()
        .map(|preset| {
            let key = format!("{}{}", annotations::APPLIED_PRESET_PREFIX, name(preset));
            own.insert(key, APPLIED.to_owned());
            format!(
                "preset {} was applied; presets are deprecated, use an instance type and a \
                 preference",
                name(preset)
            )
        })
        .collect())
}

fn name(preset: &VirtualMachineInstancePreset) -> &str {
    preset.metadata.name.as_deref().unwrap_or_default()
}

/// Whether the preset's selector matches the VMI. An empty selector matches everything, an invalid
/// one nothing.
fn matches(preset: &VirtualMachineInstancePreset, vmi: &VirtualMachineInstance) -> bool {
    let object = serde_json::to_value(&preset.spec.selector).unwrap_or_default();
    let labelled = json!({ "metadata": { "labels": vmi.metadata.labels } });
    match selector::LabelSelector::from_object(&object) {
        Ok(Some(selector)) => selector.matches(&labelled),
        Ok(None) => true,
        Err(_) => false,
    }
}

/// Merges the domain of a preset and collects the conflicts.
fn merge(own: &mut DomainSpec, preset: &DomainSpec, name: &str, conflicts: &mut Vec<Violation>) {
    merge_requests(own, preset, name, conflicts);
    let mut differs = |field: &str| conflicts.push(conflict(field, name));
    part(&mut own.cpu, preset.cpu.as_ref(), || differs("cpu"));
    let firmware = preset.firmware.as_ref();
    part(&mut own.firmware, firmware, || differs("firmware"));
    part(&mut own.clock, preset.clock.as_ref(), || differs("clock"));
    let features = preset.features.as_ref();
    part(&mut own.features, features, || differs("features"));
    let watchdog = preset.devices.watchdog.as_ref();
    let field = &mut own.devices.watchdog;
    part(field, watchdog, || differs("devices.watchdog"));
    let policy = preset.io_threads_policy.as_ref();
    let field = &mut own.io_threads_policy;
    part(field, policy, || differs("ioThreadsPolicy"));
}

fn merge_requests(
    own: &mut DomainSpec,
    preset: &DomainSpec,
    name: &str,
    conflicts: &mut Vec<Violation>,
) {
    let none = BTreeMap::new();
    let wanted = preset.resources.as_ref();
    let wanted = wanted.map_or(&none, |resources| &resources.requests);
    for (resource, wanted) in wanted {
        let resources: &mut ResourceRequirements = own.resources.get_or_insert_default();
        let request = resources.requests.entry(resource.clone());
        if request.or_insert_with(|| wanted.clone()) != wanted {
            conflicts.push(conflict(&format!("resources.requests.{resource}"), name));
        }
    }
}

fn part<T: Clone + PartialEq>(own: &mut Option<T>, wanted: Option<&T>, differs: impl FnOnce()) {
    match (&*own, wanted) {
        (_, None) => {}
        (None, Some(wanted)) => *own = Some(wanted.clone()),
        (Some(own), Some(wanted)) if own == wanted => {}
        (Some(_), Some(_)) => differs(),
    }
}

fn conflict(field: &str, preset: &str) -> Violation {
    let detail = format!(
        "preset {preset} differs; make both equal, or set the annotation {}: \"true\"",
        annotations::EXCLUDE_PRESETS
    );
    Violation::invalid(format!("{PATH}.{field}"), detail)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn preset(name: &str, domain: &Value) -> VirtualMachineInstancePreset {
        let preset = json!({
            "metadata": { "name": name },
            "spec": { "selector": { "matchLabels": { "size": "small" } }, "domain": domain },
        });
        serde_json::from_value(preset).expect("a preset")
    }

    fn vmi(domain: &Value) -> VirtualMachineInstance {
        let vmi = json!({
            "metadata": { "name": "a", "labels": { "size": "small" } },
            "spec": { "domain": domain },
        });
        serde_json::from_value(vmi).expect("a VMI")
    }

    #[test]
    fn conflict_names_field_and_preset() {
        let cores = json!({ "cpu": { "cores": 2 } });
        let own = json!({ "cpu": { "cores": 4 } });
        let memory = |size: &str| json!({ "resources": { "requests": { "memory": size } } });
        for (domain, presets, field, named) in [
            (own, vec![preset("p", &cores)], "spec.domain.cpu", "p"),
            (
                memory("1Gi"),
                vec![preset("p", &memory("2Gi"))],
                "spec.domain.resources.requests.memory",
                "p",
            ),
            (
                json!({}),
                vec![preset("p", &memory("1Gi")), preset("q", &memory("2Gi"))],
                "spec.domain.resources.requests.memory",
                "q",
            ),
        ] {
            let mut vmi = vmi(&domain);
            let before = vmi.clone();
            let found = apply(&mut vmi, &presets).expect_err("a conflict");
            assert_eq!(found.len(), 1, "{found:?}");
            assert_eq!(
                (&*found[0].field, found[0].rule),
                (field, "default.presets")
            );
            assert!(
                found[0].message.contains(&format!("preset {named} ")),
                "{found:?}"
            );
            assert_eq!(vmi, before, "partly applied");
        }
    }

    #[test]
    fn each_applied_preset_is_a_warning() {
        let mut vmi = vmi(&json!({}));
        let same = json!({ "cpu": { "cores": 2 } });
        let warnings = apply(&mut vmi, &[preset("p", &same), preset("q", &same)]).expect("applies");
        assert_eq!(warnings.len(), 2);
        assert!(warnings[0].contains("deprecated"), "{warnings:?}");
    }
}
