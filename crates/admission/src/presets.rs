//! Presets: parts of a domain that are merged into new instances with certain labels.
//!
//! A preset fills in what an instance lacks. What both say must be the same: a preset never
//! overrules, neither the instance nor another preset.

use std::collections::BTreeMap;

use apimachinery::selector;
use kubevirt_api::{
    VirtualMachineInstance, annotations,
    domain::{DomainSpec, ResourceRequirements},
    preset::VirtualMachineInstancePreset,
};
use serde_json::json;

use crate::{
    Violation,
    rules::{Rule, Summary},
};

const PATH: &str = "spec.domain";
/// What an instance says of a preset that was applied to it.
const APPLIED: &str = "kubevirt.io/v1";

pub(crate) type Fill = fn(
    &mut VirtualMachineInstance,
    &[VirtualMachineInstancePreset],
) -> Result<Vec<String>, Vec<Violation>>;

/// The rule, for the list.
#[rustfmt::skip]
pub(crate) const RULE: Rule<Fill> =
    Rule::new("default.presets", "D3.2", "parts of the presets whose selector matches", fill);

pub(crate) fn summary() -> Summary {
    RULE.summary()
}

/// Applies presets to a new instance; the answer is what its author should know.
pub fn apply(
    vmi: &mut VirtualMachineInstance,
    presets: &[VirtualMachineInstancePreset],
) -> Result<Vec<String>, Vec<Violation>> {
    let found = (RULE.apply)(vmi, presets);
    found.map_err(|violations| RULE.sign(violations).collect())
}

fn fill(
    vmi: &mut VirtualMachineInstance,
    presets: &[VirtualMachineInstancePreset],
) -> Result<Vec<String>, Vec<Violation>> {
    let own = vmi.metadata.annotations.as_ref();
    if own.is_some_and(|own| {
        own.get(annotations::EXCLUDE_PRESETS)
            .is_some_and(|word| word == "true")
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
    let notes = vmi.metadata.annotations.get_or_insert_default();
    Ok(matching
        .into_iter()
        .map(|preset| {
            let key = format!("{}{}", annotations::APPLIED_PRESET_PREFIX, name(preset));
            notes.insert(key, APPLIED.to_owned());
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

/// Whether the preset is for the instance. An empty selector is for all, as everywhere; one that
/// cannot be read is for none.
fn matches(preset: &VirtualMachineInstancePreset, vmi: &VirtualMachineInstance) -> bool {
    let object = serde_json::to_value(&preset.spec.selector).unwrap_or_default();
    let labelled = json!({ "metadata": { "labels": vmi.metadata.labels } });
    match selector::LabelSelector::from_object(&object) {
        Ok(Some(selector)) => selector.matches(&labelled),
        Ok(None) => true,
        Err(_) => false,
    }
}

/// Puts the preset's part into what is there already.
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
    let place = &mut own.devices.watchdog;
    part(place, watchdog, || differs("devices.watchdog"));
    let policy = preset.io_threads_policy.as_ref();
    let place = &mut own.io_threads_policy;
    part(place, policy, || differs("ioThreadsPolicy"));
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
        let place = resources.requests.entry(resource.clone());
        if place.or_insert_with(|| wanted.clone()) != wanted {
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
        "preset {preset} says otherwise; make both the same, or set the annotation {}: \"true\"",
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
        serde_json::from_value(vmi).expect("an instance")
    }

    #[test]
    fn parts_that_differ_are_conflicts_named_by_field_and_preset() {
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
            assert_eq!(vmi, before, "half applied");
        }
    }

    #[test]
    fn each_preset_that_was_applied_is_told() {
        let mut vmi = vmi(&json!({}));
        let same = json!({ "cpu": { "cores": 2 } });
        let warnings = apply(&mut vmi, &[preset("p", &same), preset("q", &same)]).expect("applies");
        assert_eq!(warnings.len(), 2);
        assert!(warnings[0].contains("deprecated"), "{warnings:?}");
    }
}
