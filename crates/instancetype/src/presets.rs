//! Presets: parts of a domain that are merged into new VMIs with matching labels.
//!
//! A preset fills in unset parts; a part that the VMI sets stays as it is. A preset is applied if one of its
//! parts holds afterwards. Presets that match the same VMI must not set a part to different values.

use std::collections::BTreeMap;

use apimachinery::selector;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubevirt_api::{
    VirtualMachineInstance, annotations, clock::Clock, domain::DomainSpec,
    preset::VirtualMachineInstancePreset, quantity::Amount,
};
use serde_json::json;
use validation::{Rule, Subject, Violation};

/// The warning of presets. Clients of `KubeVirt` leave out warnings that contain its first sentence.
pub const DEPRECATION: &str = "kubevirt.io/v1 VirtualMachineInstancePresets is now deprecated and will be \
     removed in v2. Use a VirtualMachineInstancetype and a VirtualMachinePreference";
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
    let conflicts = conflicts(&matching);
    if !conflicts.is_empty() {
        return Err(conflicts);
    }
    let mut warnings = Vec::new();
    for preset in matching {
        let Some(domain) = &preset.spec.domain else {
            continue;
        };
        let name = name(preset);
        let merged = merge(&mut vmi.spec.domain, domain);
        if merged.is_applied {
            let key = format!("{}{name}", annotations::APPLIED_PRESET_PREFIX);
            let own = vmi.metadata.annotations.get_or_insert_default();
            own.insert(key, APPLIED.to_owned());
            warnings.push(format!("{DEPRECATION}. Preset {name} was applied"));
        }
        warnings.extend(merged.kept.into_iter().map(|field| {
            format!("preset {name}: {PATH}.{field} is set to another value, which is kept")
        }));
    }
    Ok(warnings)
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

/// The parts that two presets set to different values.
fn conflicts(presets: &[&VirtualMachineInstancePreset]) -> Vec<Violation> {
    let mut conflicts = Vec::new();
    for (at, second) in presets.iter().enumerate() {
        for first in presets.iter().take(at) {
            let (Some(one), Some(other)) = (&first.spec.domain, &second.spec.domain) else {
                continue;
            };
            let (first, second) = (name(first), name(second));
            let fields = differences(one, other).into_iter();
            conflicts.extend(fields.map(|field| conflict(&field, first, second)));
        }
    }
    conflicts
}

fn conflict(field: &str, first: &str, second: &str) -> Violation {
    let detail = format!(
        "presets {first} and {second} differ; make both equal, or set the annotation {}: \"true\"",
        annotations::EXCLUDE_PRESETS
    );
    Violation::invalid(format!("{PATH}.{field}"), detail)
}

/// The parts that both set, to different values.
fn differences(one: &DomainSpec, other: &DomainSpec) -> Vec<String> {
    let offset = |clock: &Clock| Clock {
        timer: None,
        ..clock.clone()
    };
    let timer = |domain: &DomainSpec| domain.clock.as_ref()?.timer.clone();
    let (one_clock, other_clock) = (one.clock.as_ref(), other.clock.as_ref());
    let parts = [
        ("cpu", differ(one.cpu.as_ref(), other.cpu.as_ref())),
        (
            "firmware",
            differ(one.firmware.as_ref(), other.firmware.as_ref()),
        ),
        (
            "clock",
            differ(
                one_clock.map(offset).as_ref(),
                other_clock.map(offset).as_ref(),
            ),
        ),
        (
            "clock.timer",
            differ(timer(one).as_ref(), timer(other).as_ref()),
        ),
        (
            "features",
            differ(one.features.as_ref(), other.features.as_ref()),
        ),
        (
            "devices.watchdog",
            differ(
                one.devices.watchdog.as_ref(),
                other.devices.watchdog.as_ref(),
            ),
        ),
        (
            "ioThreadsPolicy",
            differ(
                one.io_threads_policy.as_ref(),
                other.io_threads_policy.as_ref(),
            ),
        ),
    ];
    let parts = parts.into_iter().filter(|(_, differ)| *differ);
    let (one, other) = (requests(one), requests(other));
    let different = one.iter().filter(|(resource, amount)| {
        let other = other.get(*resource);
        other.is_some_and(|other| !same_amount(amount, other))
    });
    different
        .map(|(resource, _)| format!("resources.requests.{resource}"))
        .chain(parts.map(|(field, _)| field.to_owned()))
        .collect()
}

fn differ<T: PartialEq>(one: Option<&T>, other: Option<&T>) -> bool {
    one.zip(other).is_some_and(|(one, other)| one != other)
}

type Requests = BTreeMap<String, Quantity>;

fn requests(domain: &DomainSpec) -> Requests {
    let resources = domain.resources.as_ref();
    resources.map_or_else(Requests::new, |resources| resources.requests.clone())
}

/// Quantities of the same amount are equal, however they are written.
fn same_amount(one: &Quantity, other: &Quantity) -> bool {
    match (Amount::parse(one), Amount::parse(other)) {
        (Ok(one), Ok(other)) => one == other,
        _ => one == other,
    }
}

/// The effect of one preset.
#[derive(Debug, Default)]
struct Merged {
    /// A part of it holds.
    is_applied: bool,
    /// The other parts, which have another value.
    kept: Vec<&'static str>,
}

impl Merged {
    fn record(&mut self, field: &'static str, holds: Option<bool>) {
        match holds {
            Some(true) => self.is_applied = true,
            Some(false) => self.kept.push(field),
            None => {}
        }
    }
}

/// Fills in the unset parts.
fn merge(own: &mut DomainSpec, preset: &DomainSpec) -> Merged {
    let mut merged = Merged::default();
    merged.record("resources.requests", merge_requests(own, preset));
    merged.record("cpu", part(&mut own.cpu, preset.cpu.as_ref()));
    let firmware = preset.firmware.as_ref();
    merged.record("firmware", part(&mut own.firmware, firmware));
    merged.record("clock", merge_clock(&mut own.clock, preset.clock.as_ref()));
    let features = preset.features.as_ref();
    merged.record("features", part(&mut own.features, features));
    let watchdog = preset.devices.watchdog.as_ref();
    let field = &mut own.devices.watchdog;
    merged.record("devices.watchdog", part(field, watchdog));
    let policy = preset.io_threads_policy.as_ref();
    let field = &mut own.io_threads_policy;
    merged.record("ioThreadsPolicy", part(field, policy));
    merged
}

/// Whether the wanted value holds in the end. None if none is wanted.
fn part<T: Clone + PartialEq>(own: &mut Option<T>, wanted: Option<&T>) -> Option<bool> {
    let wanted = wanted?;
    Some(own.get_or_insert_with(|| wanted.clone()) == wanted)
}

/// Requests are one part: a VMI with some gets no others.
fn merge_requests(own: &mut DomainSpec, preset: &DomainSpec) -> Option<bool> {
    let wanted = requests(preset);
    if wanted.is_empty() {
        return None;
    }
    let own = &mut own.resources.get_or_insert_default().requests;
    if own.is_empty() {
        own.clone_from(&wanted);
    }
    let same = |(resource, amount)| {
        let wanted = wanted.get(resource);
        wanted.is_some_and(|wanted| same_amount(amount, wanted))
    };
    Some(own.len() == wanted.len() && own.iter().all(same))
}

/// The timers of a clock are a part of their own.
fn merge_clock(own: &mut Option<Clock>, wanted: Option<&Clock>) -> Option<bool> {
    let wanted = wanted?;
    let own = own.get_or_insert_with(|| Clock {
        timer: None,
        ..wanted.clone()
    });
    let is_equal = own == wanted;
    let timers_hold = part(&mut own.timer, wanted.timer.as_ref()).unwrap_or(false);
    Some(is_equal || timers_hold)
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

    fn memory(size: &str) -> Value {
        json!({ "resources": { "requests": { "memory": size } } })
    }

    fn watchdog(name: &str) -> Value {
        json!({ "devices": { "watchdog": { "name": name, "i6300esb": { "action": "reset" } } } })
    }

    fn hpet(policy: &str) -> Value {
        json!({ "hpet": { "tickPolicy": policy } })
    }

    /// A part, another value of it, and its field.
    fn parts() -> [(Value, Value, &'static str); 8] {
        [
            (memory("1Gi"), memory("2Gi"), "resources.requests"),
            (
                json!({ "cpu": { "cores": 2 } }),
                json!({ "cpu": { "cores": 4 } }),
                "cpu",
            ),
            (
                json!({ "firmware": { "serial": "a" } }),
                json!({ "firmware": { "serial": "b" } }),
                "firmware",
            ),
            (
                json!({ "clock": { "timezone": "Europe/Rome" } }),
                json!({ "clock": { "utc": {} } }),
                "clock",
            ),
            (
                json!({ "clock": { "utc": {}, "timer": hpet("delay") } }),
                json!({ "clock": { "utc": {}, "timer": hpet("catchup") } }),
                "clock",
            ),
            (
                json!({ "features": { "smm": {} } }),
                json!({ "features": { "acpi": {} } }),
                "features",
            ),
            (watchdog("a"), watchdog("b"), "devices.watchdog"),
            (
                json!({ "ioThreadsPolicy": "auto" }),
                json!({ "ioThreadsPolicy": "shared" }),
                "ioThreadsPolicy",
            ),
        ]
    }

    /// Checks the VMI that comes of a VMI and presets `p`, `q` and so on, and which were applied.
    fn check(own: &Value, presets: &[Value], expected: &Value, applied: &[&str]) -> Vec<String> {
        let names = ["p", "q"];
        let presets: Vec<_> = names
            .iter()
            .zip(presets)
            .map(|(name, domain)| preset(name, domain))
            .collect();
        let mut found = vmi(own);
        let warnings = apply(&mut found, &presets).expect("no conflict");
        assert_eq!(found.spec, vmi(expected).spec, "{own}");
        let annotations: BTreeMap<String, String> = applied
            .iter()
            .map(|name| {
                let key = format!("virtualmachinepreset.kubevirt.io/{name}");
                (key, "kubevirt.io/v1".to_owned())
            })
            .collect();
        let found = found.metadata.annotations.unwrap_or_default();
        assert_eq!(found, annotations, "{own}");
        warnings
    }

    #[test]
    fn unset_part_is_filled_in_and_equal_part_counts_as_applied() {
        for (part, _, _) in parts() {
            for own in [json!({}), part.clone()] {
                let warnings = check(&own, std::slice::from_ref(&part), &part, &["p"]);
                assert_eq!(warnings.len(), 1, "{warnings:?}");
                assert!(warnings[0].contains("deprecated"), "{warnings:?}");
            }
        }
    }

    #[test]
    fn vmi_keeps_its_value_and_its_author_is_warned() {
        for (part, other, field) in parts() {
            let warnings = check(&other, &[part], &other, &[]);
            let expected =
                format!("preset p: spec.domain.{field} is set to another value, which is kept");
            assert_eq!(warnings, [expected]);
        }
    }

    #[test]
    fn preset_is_applied_if_a_part_of_it_holds() {
        let cores = |cores: u32| json!({ "cpu": { "cores": cores } });
        let policy = |cores: u32| json!({ "cpu": { "cores": cores }, "ioThreadsPolicy": "auto" });
        let both = json!({ "resources": { "requests": { "memory": "1Gi", "cpu": "1" } } });
        let clock = |offset: Value, timer: &str| {
            let mut clock = offset;
            clock["timer"] = hpet(timer);
            json!({ "clock": clock })
        };
        let rome = || json!({ "timezone": "Europe/Rome" });
        let utc = || json!({ "utc": {} });
        let cpu_request = json!({ "resources": { "requests": { "cpu": "1" } } });
        for (own, presets, expected, applied, warnings) in [
            (cores(4), vec![policy(2)], policy(4), &["p"][..], 2),
            // A VMI with requests gets no others.
            (memory("1Gi"), vec![both.clone()], memory("1Gi"), &[], 1),
            (
                memory("1Gi"),
                vec![memory("1024Mi")],
                memory("1Gi"),
                &["p"],
                1,
            ),
            // The first preset sets the requests.
            (
                json!({}),
                vec![memory("1Gi"), cpu_request],
                memory("1Gi"),
                &["p"],
                2,
            ),
            // Timers are filled in whatever the clock shows.
            (
                json!({ "clock": rome() }),
                vec![clock(utc(), "delay")],
                clock(rome(), "delay"),
                &["p"],
                1,
            ),
            (
                clock(utc(), "delay"),
                vec![json!({ "clock": utc() })],
                clock(utc(), "delay"),
                &[],
                1,
            ),
            (
                json!({}),
                vec![cores(2), cores(2)],
                cores(2),
                &["p", "q"],
                2,
            ),
            (json!({}), vec![json!({})], json!({}), &[], 0),
        ] {
            let found = check(&own, &presets, &expected, applied);
            assert_eq!(found.len(), warnings, "{found:?}");
            // What KubeVirt's clients look for to leave the warning out.
            let known = "VirtualMachineInstancePresets is now deprecated and will be removed in v2";
            let count = found.iter().filter(|one| one.contains(known)).count();
            assert_eq!(count, applied.len(), "{found:?}");
        }
    }

    #[test]
    fn presets_that_differ_are_refused_whatever_the_vmi_sets() {
        for (part, other, field) in parts() {
            for own in [json!({}), part.clone(), other.clone()] {
                let mut vmi = vmi(&own);
                let before = vmi.clone();
                let presets = [preset("p", &part), preset("q", &other)];
                let found = apply(&mut vmi, &presets).expect_err("a conflict");
                assert_eq!(found.len(), 1, "{found:?}");
                let path = format!("spec.domain.{field}");
                assert!(found[0].field.starts_with(&path), "{found:?}");
                assert_eq!(found[0].rule, "default.presets");
                let message = &found[0].message;
                assert!(message.contains("presets p and q differ"), "{message}");
                assert_eq!(vmi, before, "partly applied");
            }
        }
    }

    #[test]
    fn preset_with_another_selector_conflicts_with_none() {
        let mut other = preset("q", &json!({ "cpu": { "cores": 4 } }));
        let selector = json!({ "matchLabels": { "size": "large" } });
        other.spec.selector = serde_json::from_value(selector).expect("a selector");
        let presets = [preset("p", &json!({ "cpu": { "cores": 2 } })), other];
        let mut vmi = vmi(&json!({}));
        assert_eq!(apply(&mut vmi, &presets).expect("no conflict").len(), 1);
    }
}
