//! Labels with the node's capabilities, for the scheduler: pure.

use std::collections::BTreeMap;

use kubevirt_api::labels::{self, HANDLER_NODE_PREFIXES};
use serde_json::{Map, Value};

use super::ObsoleteModels;
use crate::capabilities::NodeFacts;

const TRUE: &str = "true";
/// Kubernetes' limit of the part after the slash.
const MAX_NAME_LENGTH: usize = 63;

/// The labels of capabilities without a prefix of their own.
const SINGLE: [&str; 2] = [labels::OBSOLETE_HOST_MODEL, labels::REALTIME];

/// The input of the labels.
#[derive(Debug)]
pub(super) struct Facts<'a> {
    pub(super) node: &'a NodeFacts,
    pub(super) obsolete: ObsoleteModels<'a>,
    /// The kernel does not limit the CPU time of real-time processes.
    pub(super) realtime: bool,
}

/// The desired labels.
pub(super) fn labels(facts: &Facts<'_>) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let node = facts.node;
    let mut each = |prefix: &str, names: &[String]| {
        for name in names.iter().filter(|name| is_label_name(name)) {
            all.insert(format!("{prefix}{name}"), TRUE.to_owned());
        }
    };
    let models: Vec<String> = node
        .cpu_models
        .iter()
        .filter(|model| !facts.obsolete.contains(model))
        .cloned()
        .collect();
    each(labels::CPU_MODEL_PREFIX, &models);
    each(labels::CPU_MODEL_MIGRATION_PREFIX, &models);
    each(labels::CPU_FEATURE_PREFIX, &node.cpu_features);
    each(labels::MACHINE_TYPE_PREFIX, &node.machine_types);
    each(labels::HYPERV_PREFIX, &node.hyperv);
    each(labels::CPU_VENDOR_PREFIX, node.cpu_vendor.as_slice());
    if let Some(model) = &node.host_model {
        each(labels::HOST_MODEL_CPU_PREFIX, std::slice::from_ref(model));
        let features = &node.host_model_required_features;
        each(labels::HOST_MODEL_REQUIRED_FEATURES_PREFIX, features);
        if facts.obsolete.contains(model) {
            all.insert(labels::OBSOLETE_HOST_MODEL.to_owned(), TRUE.to_owned());
        } else {
            each(
                labels::CPU_MODEL_MIGRATION_PREFIX,
                std::slice::from_ref(model),
            );
        }
    }
    if let Some(tsc) = node.tsc {
        for (name, value) in [
            ("tsc-frequency", tsc.frequency.to_string()),
            ("tsc-scalable", tsc.scalable.to_string()),
        ] {
            all.insert(format!("{}{name}", labels::CPU_TIMER_PREFIX), value);
        }
    }
    if facts.realtime {
        all.insert(labels::REALTIME.to_owned(), TRUE.to_owned());
    }
    all
}

fn is_label_name(name: &str) -> bool {
    let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = name.as_bytes();
    bytes.len() <= MAX_NAME_LENGTH
        && ends(bytes.first())
        && ends(bytes.last())
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

/// The merge patch of a node's labels; empty if they match.
pub(super) fn changes(
    current: &BTreeMap<String, String>,
    wanted: &BTreeMap<String, String>,
) -> Map<String, Value> {
    let has_prefix = |key: &str| {
        let mut prefixes = HANDLER_NODE_PREFIXES.iter();
        prefixes.any(|prefix| key.starts_with(prefix))
    };
    let is_owned = |key: &str| SINGLE.contains(&key) || has_prefix(key);
    let stale = current
        .keys()
        .filter(|key| is_owned(key) && !wanted.contains_key(*key))
        .map(|key| (key.clone(), Value::Null));
    let new = wanted
        .iter()
        .filter(|(key, value)| current.get(*key) != Some(value))
        .map(|(key, value)| (key.clone(), Value::from(value.as_str())));
    stale.chain(new).collect()
}

#[cfg(test)]
mod tests {
    use kubevirt_api::cluster_config::KubeVirtConfiguration;
    use serde_json::json;

    use super::*;
    use crate::capabilities::Tsc;

    fn facts() -> NodeFacts {
        let names = |text: &str| text.split(' ').map(ToOwned::to_owned).collect();
        NodeFacts {
            kvm: true,
            machine_types: names("q35 pc-q35-10.0"),
            cpu_models: names("qemu64 Conroe-v1 Penryn EPYC"),
            host_model: Some("EPYC-Milan".to_owned()),
            cpu_features: names("apic -broken"),
            host_model_required_features: names("x2apic"),
            cpu_vendor: Some("AMD".to_owned()),
            hyperv: names("vpindex synictimer"),
            tsc: Some(Tsc {
                frequency: 2_000_000_000,
                scalable: true,
            }),
            ..NodeFacts::default()
        }
    }

    fn lines(facts: &Facts<'_>) -> Vec<String> {
        let labels = labels(facts);
        labels.iter().map(|(k, v)| format!("{k}={v}")).collect()
    }

    #[test]
    fn each_capability_has_its_label() {
        let node = facts();
        let facts = Facts {
            node: &node,
            obsolete: ObsoleteModels::BuiltIn,
            realtime: true,
        };
        assert_eq!(
            lines(&facts),
            [
                "cpu-feature.node.kubevirt.io/apic=true",
                "cpu-model-migration.node.kubevirt.io/EPYC=true",
                "cpu-model-migration.node.kubevirt.io/EPYC-Milan=true",
                "cpu-model-migration.node.kubevirt.io/Penryn=true",
                "cpu-model.node.kubevirt.io/EPYC=true",
                "cpu-model.node.kubevirt.io/Penryn=true",
                "cpu-timer.node.kubevirt.io/tsc-frequency=2000000000",
                "cpu-timer.node.kubevirt.io/tsc-scalable=true",
                "cpu-vendor.node.kubevirt.io/AMD=true",
                "host-model-cpu.node.kubevirt.io/EPYC-Milan=true",
                "host-model-required-features.node.kubevirt.io/x2apic=true",
                "hyperv.node.kubevirt.io/synictimer=true",
                "hyperv.node.kubevirt.io/vpindex=true",
                "kubevirt.io/realtime=true",
                "machine-type.node.kubevirt.io/pc-q35-10.0=true",
                "machine-type.node.kubevirt.io/q35=true",
            ]
        );
    }

    #[test]
    fn obsolete_models_have_no_label_and_obsolete_host_is_marked() {
        let written = |names: &[&str]| KubeVirtConfiguration {
            obsolete_cpu_models: names
                .iter()
                .map(|name| ((*name).to_owned(), true))
                .collect(),
            // Older releases excluded the features of this model; later ones do not.
            min_cpu_model: Some("EPYC".to_owned()),
            ..KubeVirtConfiguration::default()
        };
        // The configured list, a model, and whether it is obsolete.
        for (names, model, obsolete) in [
            (&[][..], "Opteron_G1", true),
            (&[], "Opteron_G1-v1", true),
            (&[], "qemu64-v1", true),
            (&[], "Opteron_G3", false),
            (&[], "EPYC-v1", false),
            (&["EPYC"], "EPYC", true),
            (&["EPYC"], "EPYC-v1", false),
            (&["EPYC"], "EPYC-Milan", false),
            (&["EPYC"], "qemu64", false),
        ] {
            let written = written(names);
            let node = NodeFacts {
                host_model: Some(model.to_owned()),
                cpu_models: vec![model.to_owned()],
                cpu_features: vec!["apic".to_owned()],
                ..NodeFacts::default()
            };
            let labels = labels(&Facts {
                node: &node,
                obsolete: ObsoleteModels::of(&written),
                realtime: false,
            });
            let case = format!("{model} with {names:?}");
            let has = |prefix: &str| labels.contains_key(&format!("{prefix}{model}"));
            assert_eq!(
                labels.contains_key(labels::OBSOLETE_HOST_MODEL),
                obsolete,
                "{case}"
            );
            assert_eq!(has(labels::CPU_MODEL_PREFIX), !obsolete, "{case}");
            assert_eq!(has(labels::CPU_MODEL_MIGRATION_PREFIX), !obsolete, "{case}");
            assert!(has(labels::HOST_MODEL_CPU_PREFIX), "{case}");
            assert!(
                labels.contains_key("cpu-feature.node.kubevirt.io/apic"),
                "{case}"
            );
        }
        assert!(
            lines(&Facts {
                node: &NodeFacts::default(),
                obsolete: ObsoleteModels::BuiltIn,
                realtime: false
            })
            .is_empty()
        );
    }

    #[test]
    fn outdated_labels_are_removed_and_foreign_labels_stay() {
        let map = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            let owned = |(k, v): &(&str, &str)| ((*k).to_owned(), (*v).to_owned());
            pairs.iter().map(owned).collect()
        };
        let current = map(&[
            ("cpu-model.node.kubevirt.io/Old", "true"),
            ("cpu-model.node.kubevirt.io/Kept", "true"),
            ("cpu-timer.node.kubevirt.io/tsc-frequency", "1"),
            ("scheduling.node.kubevirt.io/tsc-frequency-1", "true"),
            ("kubevirt.io/realtime", "true"),
            ("kubevirt.io/schedulable", "true"),
            ("mine", "x"),
        ]);
        let wanted = map(&[
            ("cpu-model.node.kubevirt.io/Kept", "true"),
            ("cpu-model.node.kubevirt.io/New", "true"),
            ("cpu-timer.node.kubevirt.io/tsc-frequency", "2"),
        ]);
        let changes = Value::Object(changes(&current, &wanted));
        assert_eq!(
            changes,
            json!({
                "cpu-model.node.kubevirt.io/Old": null,
                "cpu-model.node.kubevirt.io/New": "true",
                "cpu-timer.node.kubevirt.io/tsc-frequency": "2",
                "kubevirt.io/realtime": null,
            })
        );
        assert!(super::changes(&wanted, &wanted).is_empty());
    }
}
