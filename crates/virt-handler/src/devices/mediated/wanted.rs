//! The types of mediated devices that the administrator wants on a node, from `mediatedDevicesConfiguration`. Pure.

use std::collections::BTreeMap;

use cluster_config::ClusterConfig;
use kubevirt_api::cluster_config::{MediatedDevicesConfiguration, NodeMediatedDeviceTypesConfig};

use super::super::permitted::with_underscores;

/// The older switch of `mediatedDevicesConfiguration.enabled`.
const DISABLING_GATE: &str = "DisableMDEVConfiguration";

/// What to do about mediated devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wanted {
    /// Others make and remove them.
    Unmanaged,
    Types(Types),
}

/// Types by name, with `_` for blanks, or by the name of their directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Types {
    /// Devices to make, in the order of preference.
    pub(super) made: Vec<String>,
    /// Another program offers devices of these types: they are not removed.
    pub(super) kept: Vec<String>,
}

/// Whether the answer depends on the labels of the node.
pub(super) fn needs_labels(config: &ClusterConfig) -> bool {
    let written = config.written.mediated_devices_configuration.as_ref();
    written.is_some_and(|written| !written.node_mediated_device_types.is_empty())
}

pub(super) fn of(config: &ClusterConfig, labels: &BTreeMap<String, String>) -> Wanted {
    let written = config.written.mediated_devices_configuration.as_ref();
    let enabled = written.and_then(|written| written.enabled);
    if !enabled.unwrap_or_else(|| !config.has_gate(DISABLING_GATE)) {
        return Wanted::Unmanaged;
    }
    let permitted = config.written.permitted_host_devices.as_ref();
    let permitted = permitted.map_or(&[][..], |permitted| permitted.mediated_devices.as_slice());
    let external = permitted
        .iter()
        .filter(|one| one.external_resource_provider == Some(true));
    Wanted::Types(Types {
        made: written.map_or_else(Vec::new, |written| types_of_node(written, labels)),
        kept: external
            .map(|one| with_underscores(&one.mdev_name_selector))
            .collect(),
    })
}

/// Those of all entries that select the node, or those for every node if none names a type.
fn types_of_node(
    written: &MediatedDevicesConfiguration,
    labels: &BTreeMap<String, String>,
) -> Vec<String> {
    let selects = |one: &&NodeMediatedDeviceTypesConfig| {
        let mut wanted = one.node_selector.iter();
        wanted.all(|(key, value)| labels.get(key) == Some(value))
    };
    let entries = written.node_mediated_device_types.iter().filter(selects);
    let of_entries = entries
        .flat_map(|one| newer_or_older(&one.mediated_device_types, &one.mediated_devices_types));
    let mut types = distinct(of_entries);
    if types.is_empty() {
        let of_all = newer_or_older(
            &written.mediated_device_types,
            &written.mediated_devices_types,
        );
        types = distinct(of_all.iter());
    }
    types
}

fn newer_or_older<'a>(newer: &'a [String], older: &'a [String]) -> &'a [String] {
    if newer.is_empty() { older } else { newer }
}

fn distinct<'a>(names: impl Iterator<Item = &'a String>) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for name in names.map(|name| with_underscores(name)) {
        if !name.is_empty() && !all.contains(&name) {
            all.push(name);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn wanted(configuration: Value, labels: &[(&str, &str)]) -> Wanted {
        let written = serde_json::from_value(configuration).unwrap();
        let labels = labels
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect();
        of(&ClusterConfig::from_kubevirt(&written), &labels)
    }

    #[test]
    fn types_are_those_of_the_nodes_entries_or_of_all_nodes() {
        let entry = |zone: &str, types: Value| json!({"nodeSelector": {"zone": zone}, "mediatedDeviceTypes": types});
        let older = |zone: &str, types: Value| json!({"nodeSelector": {"zone": zone}, "mediatedDevicesTypes": types});
        for (configuration, expected) in [
            (json!({}), vec![]),
            (
                json!({"mediatedDeviceTypes": ["b", " GRID T4-1Q ", "b", ""]}),
                vec!["b", "GRID_T4-1Q"],
            ),
            (json!({"mediatedDevicesTypes": ["old"]}), vec!["old"]),
            (
                json!({"mediatedDeviceTypes": ["new"], "mediatedDevicesTypes": ["old"]}),
                vec!["new"],
            ),
            (
                json!({"mediatedDeviceTypes": ["all"], "nodeMediatedDeviceTypes": [entry("a", json!(["x", "y"])), entry("b", json!(["z"])), older("a", json!(["x", "w"]))]}),
                vec!["x", "y", "w"],
            ),
            (
                json!({"mediatedDeviceTypes": ["all"], "nodeMediatedDeviceTypes": [entry("b", json!(["z"]))]}),
                vec!["all"],
            ),
            (
                json!({"mediatedDeviceTypes": ["all"], "nodeMediatedDeviceTypes": [entry("a", json!([]))]}),
                vec!["all"],
            ),
            (
                json!({"nodeMediatedDeviceTypes": [{"nodeSelector": {}, "mediatedDeviceTypes": ["every"]}]}),
                vec!["every"],
            ),
        ] {
            let text = configuration.to_string();
            let found = wanted(
                json!({"mediatedDevicesConfiguration": configuration}),
                &[("zone", "a"), ("other", "x")],
            );
            let Wanted::Types(types) = found else {
                panic!("{text} is managed")
            };
            assert_eq!(types.made, expected, "{text}");
        }
    }

    #[test]
    fn administrator_may_leave_them_to_others() {
        let gate = json!({"featureGates": [DISABLING_GATE]});
        for (enabled, configuration, is_managed) in [
            (None, json!({}), true),
            (Some(true), json!({}), true),
            (Some(false), json!({}), false),
            (None, gate.clone(), false),
            (Some(true), gate, true),
        ] {
            let mut written = json!({"developerConfiguration": configuration});
            if let Some(enabled) = enabled {
                written["mediatedDevicesConfiguration"] = json!({"enabled": enabled});
            }
            let found = wanted(written, &[]);
            assert_eq!(found != Wanted::Unmanaged, is_managed, "{enabled:?}");
        }
        let permitted = json!({"permittedHostDevices": {"mediatedDevices": [
            {"mdevNameSelector": "GRID T4-1Q", "resourceName": "a/b", "externalResourceProvider": true},
            {"mdevNameSelector": "GRID T4-2Q", "resourceName": "a/c"},
        ]}});
        let expected = Types {
            made: vec![],
            kept: vec!["GRID_T4-1Q".to_owned()],
        };
        assert_eq!(wanted(permitted, &[]), Wanted::Types(expected));
    }
}
