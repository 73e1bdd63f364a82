//! Interfaces of a template that a running guest gets and loses: pure.
//!
//! The VMI gets a new interface with its network, and an interface that is to go gets the state `absent`. Both lists keep
//! an interface until guest and pod have lost it; then the VMI drops it first, and the template after it.

use std::collections::{BTreeMap, BTreeSet};

use kubevirt_api::VirtualMachineInstance;
use kubevirt_api::vmi::VirtualMachineInstanceSpec as Spec;
use kubevirt_api::vmi_status::VirtualMachineInstancePhase as Phase;
use model::{Guest, Network};
use serde_json::{Map, Value, json};

use crate::view;

pub(super) const INTERFACES: &str = "template.spec.domain.devices.interfaces";
pub(super) const NETWORKS: &str = "template.spec.networks";
/// Paths in the spec of a VMI.
pub(super) const INTERFACES_PATH: &str = "/domain/devices/interfaces";
pub(super) const NETWORKS_PATH: &str = "/networks";

/// What the guest follows of the interfaces.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Nics {
    /// Members of the spec of the VMI.
    pub(super) part: Option<Value>,
    /// What a change waits for.
    pub(super) waits: Option<String>,
    /// Changes that need a restart.
    pub(super) refused: Vec<String>,
}

/// The specs that are compared.
#[derive(Debug)]
pub(super) struct Specs<'a> {
    pub(super) before: &'a Value,
    pub(super) now: &'a Value,
    pub(super) vmi: &'a VirtualMachineInstance,
    /// Whether the VMI has followed such a change before.
    pub(super) has_followed: bool,
    /// By network: why it cannot be joined.
    pub(super) missing: &'a BTreeMap<String, String>,
}

/// The networks with the definitions that they name, of the interfaces that the guest would get.
pub(super) fn coming(now: &Value, vmi: &VirtualMachineInstance) -> Vec<(String, String)> {
    let Some(template) = guest_of(now) else {
        return Vec::new();
    };
    let own = Guest::of(vmi);
    let has = |name: &str| own.interfaces.iter().any(|one| one.name() == name);
    let guest = Guest::of(&template);
    let plugged = guest.plugged_interfaces();
    let coming = plugged.filter(|one| one.is_pluggable() && !has(one.name()));
    coming
        .filter_map(|interface| match interface.network {
            Some(Network::Multus(multus)) => {
                Some((interface.name().to_owned(), multus.network_name.clone()))
            }
            _ => None,
        })
        .collect()
}

pub(super) fn follow(specs: &Specs<'_>) -> Nics {
    let mut found = Nics::default();
    let Some(template) = guest_of(specs.now) else {
        return found;
    };
    let own = json!(specs.vmi.spec);
    let pluggable = pluggable(&template);
    let own_pluggable = self::pluggable(specs.vmi);
    let [before, now, had] =
        [specs.before, specs.now, &own].map(|spec| by_name(spec, INTERFACES_PATH));
    let mut interfaces = list(&own, INTERFACES_PATH);
    let mut networks = list(&own, NETWORKS_PATH);
    let (of_now, of_vmi) = (
        by_name(specs.now, NETWORKS_PATH),
        by_name(&own, NETWORKS_PATH),
    );
    let mut is_changed = false;
    let refuse = |name: &str, why: &str| format!("{INTERFACES} (interface {name}: {why})");
    for (name, interface) in &now {
        let name = *name;
        match had.get(name) {
            None if is_absent(interface) => {}
            None if !pluggable.contains(name) => {
                let why = "only bridge interfaces of secondary networks come to a running guest";
                found.refused.push(refuse(name, why));
            }
            None if specs.missing.contains_key(name) => {
                found.waits = specs.missing.get(name).cloned();
            }
            None => {
                is_changed = true;
                interfaces.push((*interface).clone());
                let network = of_now.get(name).filter(|_| !of_vmi.contains_key(name));
                networks.extend(network.map(|network| (*network).clone()));
            }
            Some(has) if is_absent(has) && !is_absent(interface) => {
                found.waits = Some(format!(
                    "interface {name} is still being taken from the guest"
                ));
            }
            Some(has) if !is_absent(has) && is_absent(interface) => {
                if own_pluggable.contains(name) {
                    is_changed = true;
                    let all = interfaces.iter_mut();
                    for one in all.filter(|one| one["name"] == *name) {
                        one["state"] = "absent".into();
                    }
                } else {
                    let why = "only bridge interfaces of secondary networks leave a running guest";
                    found.refused.push(refuse(name, why));
                }
            }
            Some(has) => {
                if !is_absent(has) && differs(before.get(name), interface, has) {
                    found.refused.push(refuse(name, "it is changed"));
                }
            }
        }
    }
    for (name, has) in &had {
        let was_followed = specs.has_followed && own_pluggable.contains(*name);
        let is_known = before.contains_key(name) || was_followed;
        if !is_absent(has) && is_known && !now.contains_key(name) {
            let why = "set its state to absent to take it from the running guest";
            found.refused.push(refuse(name, why));
        }
    }
    let before = by_name(specs.before, NETWORKS_PATH);
    for (name, network) in &of_now {
        let has = of_vmi.get(name);
        if has.is_some_and(|has| differs(before.get(name), network, has)) {
            let refused = format!("{NETWORKS} (network {name})");
            found.refused.push(refused);
        }
    }
    found.part = is_changed.then(|| {
        json!({
            "domain": {"devices": {"interfaces": interfaces}},
            "networks": networks,
        })
    });
    found
}

/// Whether the template has interfaces that guest and pod have lost.
pub(super) fn has_left_over(template: &Value, vmi: &view::Guest) -> bool {
    let is_settled =
        *vmi.phase() == Phase::Running && !vmi.is_deleting() && !vmi.status.is_migrating;
    is_settled && !left_over(template, vmi).is_empty()
}

/// The patch of the template's spec without those interfaces and their networks.
pub(super) fn without_left_over(template: &Value, vmi: &view::Guest) -> Option<Value> {
    let gone = left_over(template, vmi);
    let spec = template.get("spec")?;
    (!gone.is_empty()).then(|| without(spec, &gone))
}

/// Both lists of a spec without these names.
pub(crate) fn without(spec: &Value, gone: &BTreeSet<String>) -> Value {
    let [interfaces, networks] = [INTERFACES_PATH, NETWORKS_PATH].map(|path| {
        let mut all = list(spec, path);
        all.retain(|one| one["name"].as_str().is_none_or(|name| !gone.contains(name)));
        all
    });
    json!({"domain": {"devices": {"interfaces": interfaces}}, "networks": networks})
}

fn left_over(template: &Value, vmi: &view::Guest) -> BTreeSet<String> {
    let Some(spec) = template.get("spec") else {
        return BTreeSet::new();
    };
    let interfaces = by_name(spec, INTERFACES_PATH).into_iter();
    let gone = interfaces
        .filter(|(name, one)| is_absent(one) && !vmi.links.contains_key(*name))
        .map(|(name, _)| name.to_owned());
    gone.collect()
}

/// A VMI of that spec; `None` for an invalid one, which admission refuses.
fn guest_of(spec: &Value) -> Option<VirtualMachineInstance> {
    let spec: Spec = serde_json::from_value(spec.clone()).ok()?;
    Some(VirtualMachineInstance {
        spec,
        ..VirtualMachineInstance::default()
    })
}

fn pluggable(vmi: &VirtualMachineInstance) -> BTreeSet<String> {
    let guest = Guest::of(vmi);
    let all = guest.interfaces.iter().filter(|one| one.is_pluggable());
    all.map(|one| one.name().to_owned()).collect()
}

fn list(spec: &Value, path: &str) -> Vec<Value> {
    let all = spec.pointer(path).and_then(Value::as_array);
    all.cloned().unwrap_or_default()
}

fn by_name<'a>(spec: &'a Value, path: &str) -> BTreeMap<&'a str, &'a Value> {
    let all = spec.pointer(path).and_then(Value::as_array);
    let named = all
        .into_iter()
        .flatten()
        .filter_map(|one| Some((one["name"].as_str()?, one)));
    named.collect()
}

fn is_absent(interface: &Value) -> bool {
    interface["state"] == "absent"
}

/// Whether an item is another one than at the guest's start, and than that of the VMI: it may have left the guest and
/// come again since. The one of the VMI may have further members, such as defaults, but none that the template has
/// dropped. The link is followed elsewhere.
fn differs(before: Option<&&Value>, now: &Value, has: &Value) -> bool {
    let [now, has] = [members(now), members(has)];
    let before = before.map(|before| members(before));
    if before.as_ref() == Some(&now) {
        return false;
    }
    let mut dropped = before.iter().flatten();
    now.iter().any(|(name, value)| has.get(name) != Some(value))
        || dropped.any(|(name, value)| !now.contains_key(name) && has.get(name) == Some(value))
}

fn members(item: &Value) -> Map<String, Value> {
    let all = item.as_object().into_iter().flatten();
    all.filter(|(name, value)| *name != "state" && !value.is_null())
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(interfaces: &Value) -> Value {
        json!({
            "domain": {"devices": {"interfaces": interfaces}},
            "networks": [
                {"name": "default", "pod": {}},
                {"name": "lan", "multus": {"networkName": "n"}},
            ],
        })
    }

    fn lan(state: &Value) -> Value {
        json!([{"name": "default", "masquerade": {}}, {"name": "lan", "bridge": {}, "state": state}])
    }

    fn pod_alone() -> Value {
        let mut spec = spec(&json!([{"name": "default", "masquerade": {}}]));
        spec["networks"].as_array_mut().unwrap().truncate(1);
        spec
    }

    fn followed(before: &Value, now: &Value, own: &Value) -> Nics {
        let vmi = serde_json::from_value(json!({"spec": own})).unwrap();
        follow(&Specs {
            before,
            now,
            vmi: &vmi,
            has_followed: true,
            missing: &BTreeMap::new(),
        })
    }

    fn states(nics: &Nics) -> Vec<String> {
        let part = nics.part.clone().unwrap_or_default();
        let all = list(&part, INTERFACES_PATH);
        all.iter()
            .map(|one| format!("{} {}", one["name"], one["state"]))
            .collect()
    }

    #[test]
    fn guest_gets_interfaces_and_loses_them_by_their_state() {
        let (none, absent) = (json!(null), json!("absent"));
        let (with, gone) = (spec(&lan(&none)), spec(&lan(&absent)));
        let without = pod_alone();
        let came = followed(&without, &with, &without);
        assert_eq!(states(&came), ["\"default\" null", "\"lan\" null"]);
        assert_eq!(came.part.unwrap()["networks"], with["networks"]);
        assert_eq!(followed(&without, &with, &with), Nics::default());
        let goes = followed(&with, &gone, &with);
        assert_eq!(states(&goes), ["\"default\" null", "\"lan\" \"absent\""]);
        assert_eq!(followed(&with, &gone, &gone), Nics::default());
        // The VMI has dropped it, and then the template.
        assert_eq!(followed(&with, &gone, &without), Nics::default());
        assert_eq!(followed(&with, &without, &without), Nics::default());
        // One that is to come again waits until it is gone.
        let again = followed(&with, &with, &gone);
        assert_eq!(again.part, None);
        assert!(again.waits.unwrap().contains("lan"));
        assert_eq!(followed(&with, &with, &without).waits, None);
    }

    #[test]
    fn what_a_running_guest_cannot_follow_is_named() {
        let with = spec(&lan(&json!(null)));
        let change = |path: &str, value: Value| {
            let mut spec = with.clone();
            *spec.pointer_mut(path).unwrap() = value;
            spec
        };
        let refused = |before: &Value, now: &Value, own: &Value| {
            let found = followed(before, now, own);
            assert_eq!(found.part, None, "{now}");
            found.refused.join("; ")
        };
        let sriov = json!([{"name": "default", "masquerade": {}}, {"name": "lan", "sriov": {}}]);
        let found = refused(&pod_alone(), &spec(&sriov), &pod_alone());
        assert!(found.contains("interface lan: only bridge"), "{found}");
        let model = json!({"name": "lan", "bridge": {}, "model": "e1000e"});
        let changed = change("/domain/devices/interfaces/1", model);
        // At its start, and since.
        for before in [&with, &pod_alone()] {
            let found = refused(before, &changed, &with);
            assert!(found.contains("lan: it is changed"), "{found}");
            let found = refused(before, &pod_alone(), &with);
            assert!(found.contains("set its state to absent"), "{found}");
        }
        let network = json!({"name": "lan", "multus": {"networkName": "other"}});
        let found = refused(&with, &change("/networks/1", network), &with);
        assert_eq!(found, "template.spec.networks (network lan)");
        let absent = json!({"name": "default", "masquerade": {}, "state": "absent"});
        let found = refused(
            &with,
            &change("/domain/devices/interfaces/0", absent),
            &with,
        );
        assert!(found.contains("default: only bridge"), "{found}");
        // A default of the API, and a link, are no changes.
        let mut own = with.clone();
        own["domain"]["devices"]["interfaces"][1]["model"] = "virtio".into();
        let down = change("/domain/devices/interfaces/1/state", json!("down"));
        for before in [&with, &pod_alone()] {
            assert_eq!(refused(before, &down, &own), "");
        }
    }

    #[test]
    fn interface_that_came_again_is_compared_with_the_one_of_the_guest() {
        let of = |members: &Value| {
            let mut spec = spec(&lan(&json!(null)));
            let lan = spec["domain"]["devices"]["interfaces"][1].as_object_mut();
            lan.unwrap().extend(members.as_object().unwrap().clone());
            spec
        };
        let (plain, other) = (json!({}), json!({"macAddress": "02:00:00:00:00:0c"}));
        for (before, now, own, expected) in [
            (&plain, &other, &other, 0),
            (&other, &plain, &plain, 0),
            (&plain, &other, &plain, 1),
            // Dropped by the template, and the guest has it still.
            (&other, &plain, &other, 1),
        ] {
            let found = followed(&of(before), &of(now), &of(own));
            assert_eq!(found.refused.len(), expected, "{before} {now} {own}");
        }
        let network = |name: &str| {
            let mut spec = of(&plain);
            spec["networks"][1]["multus"]["networkName"] = name.into();
            spec
        };
        let (first, second) = (network("n"), network("m"));
        assert_eq!(followed(&first, &second, &second), Nics::default());
        assert_eq!(followed(&first, &second, &first).refused.len(), 1);
    }

    #[test]
    fn interface_waits_for_its_definition() {
        let (before, now) = (pod_alone(), spec(&lan(&json!(null))));
        let vmi = serde_json::from_value(json!({"spec": before})).unwrap();
        let names = coming(&now, &vmi);
        assert_eq!(names, [("lan".to_owned(), "n".to_owned())]);
        let missing = BTreeMap::from([("lan".to_owned(), "it is missing".to_owned())]);
        let found = follow(&Specs {
            before: &before,
            now: &now,
            vmi: &vmi,
            has_followed: false,
            missing: &missing,
        });
        let expected = Nics {
            waits: Some("it is missing".to_owned()),
            ..Nics::default()
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn template_drops_what_the_vmi_has_dropped() {
        let template = json!({"spec": spec(&lan(&json!("absent")))});
        let guest = |spec: &Value, phase: &str| -> view::Guest {
            let vmi = json!({"metadata": {"name": "a"}, "spec": spec, "status": {"phase": phase}});
            serde_json::from_value(vmi).unwrap()
        };
        let dropped = guest(&pod_alone(), "Running");
        assert!(has_left_over(&template, &dropped));
        let patch = without_left_over(&template, &dropped).unwrap();
        assert_eq!(patch, pod_alone());
        assert!(!has_left_over(&template, &guest(&pod_alone(), "Scheduled")));
        let has_it = guest(&template["spec"], "Running");
        assert!(!has_left_over(&template, &has_it));
        assert_eq!(without_left_over(&template, &has_it), None);
    }
}
