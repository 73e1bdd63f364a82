//! The legacy configuration: a config map of flat keys, used before the `KubeVirt` object.
//!
//! Invariant: a malformed value is an error that names its key, never a silent default; unknown
//! keys are ignored.

use std::collections::BTreeMap;

use kubevirt_api::cluster_config::KubeVirtConfiguration;
use serde_json::{Map, Value, json};

/// Name of the config map, in the namespace of the installation.
pub const NAME: &str = "kubevirt-config";

/// Why a config map cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    pub key: String,
    pub value: String,
    pub expected: &'static str,
}

impl std::fmt::Display for Unreadable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            key,
            value,
            expected,
        } = self;
        write!(f, "{key}: {value:?} is invalid; write {expected}")
    }
}

impl std::error::Error for Unreadable {}

/// Syntax of the value of a key.
#[derive(Clone, Copy)]
enum Form {
    Text,
    /// One of these values.
    Enum(&'static [&'static str]),
    /// `true` or `false`.
    Bool,
    /// An integer from 0 to this maximum.
    Number(i64),
    /// Strings separated by commas.
    List,
    /// Lines of `key=value`.
    Pairs,
    /// An object, as JSON or YAML.
    Object,
    /// An object whose numbers and booleans are quoted strings.
    Quoted,
}

/// A key of the map.
struct Key {
    name: &'static str,
    /// JSON pointer of the field in the configuration.
    pointer: &'static str,
    form: Form,
}

const fn key(name: &'static str, pointer: &'static str, form: Form) -> Key {
    Key {
        name,
        pointer,
        form,
    }
}

/// All known keys.
const KEYS: &[Key] = &[
    key(
        "feature-gates",
        "/developerConfiguration/featureGates",
        Form::List,
    ),
    key(
        "debug.useEmulation",
        "/developerConfiguration/useEmulation",
        Form::Bool,
    ),
    key(
        "memory-overcommit",
        "/developerConfiguration/memoryOvercommit",
        Form::Number(i32::MAX as i64),
    ),
    key(
        "cpu-allocation-ratio",
        "/developerConfiguration/cpuAllocationRatio",
        Form::Number(i32::MAX as i64),
    ),
    key(
        "pvc-tolerate-less-space-up-to-percent",
        "/developerConfiguration/pvcTolerateLessSpaceUpToPercent",
        Form::Number(100),
    ),
    key(
        "node-selectors",
        "/developerConfiguration/nodeSelectors",
        Form::Pairs,
    ),
    key("machine-type", "/machineType", Form::Text),
    key("emulated-machines", "/emulatedMachines", Form::List),
    key("default-cpu-model", "/cpuModel", Form::Text),
    key("cpu-request", "/cpuRequest", Form::Text),
    key(
        "dev.imagePullPolicy",
        "/imagePullPolicy",
        Form::Enum(&["Always", "Never", "IfNotPresent"]),
    ),
    key(
        "default-network-interface",
        "/network/defaultNetworkInterface",
        Form::Enum(&["bridge", "masquerade", "slirp"]),
    ),
    key(
        "permitSlirpInterface",
        "/network/permitSlirpInterface",
        Form::Bool,
    ),
    key(
        "permitBridgeInterfaceOnPodNetwork",
        "/network/permitBridgeInterfaceOnPodNetwork",
        Form::Bool,
    ),
    key("selinuxLauncherType", "/selinuxLauncherType", Form::Text),
    key(
        "supported-guest-agent",
        "/supportedGuestAgentVersions",
        Form::List,
    ),
    key("ovmfPath", "/ovmfPath", Form::Text),
    key(
        "memBalloonStatsPeriod",
        "/memBalloonStatsPeriod",
        Form::Number(u32::MAX as i64),
    ),
    key("smbios", "/smbios", Form::Object),
    key(
        "permittedHostDevices",
        "/permittedHostDevices",
        Form::Object,
    ),
    key("migrations", "/migrations", Form::Quoted),
];

/// Converts the map's data to the shape of a `KubeVirt` object's `spec.configuration`.
pub fn read(data: &BTreeMap<String, String>) -> Result<Value, Unreadable> {
    let mut written = json!({});
    for key in KEYS {
        let Some(text) = data.get(key.name).map(|text| text.trim()) else {
            continue;
        };
        if text.is_empty() {
            continue;
        }
        let value = key.form.read(text).map_err(|expected| Unreadable {
            key: key.name.to_owned(),
            value: text.to_owned(),
            expected,
        })?;
        set(&mut written, key.pointer, value);
    }
    // Attribute a type error to its key: deserialize each field alone.
    for key in KEYS {
        let Some(value) = written.pointer(key.pointer) else {
            continue;
        };
        let mut alone = json!({});
        set(&mut alone, key.pointer, value.clone());
        if serde_json::from_value::<KubeVirtConfiguration>(alone).is_err() {
            return Err(Unreadable {
                key: key.name.to_owned(),
                value: value.to_string(),
                expected: "a value of the same field of the KubeVirt object",
            });
        }
    }
    Ok(written)
}

/// Merges the configuration of a `KubeVirt` object over that of the legacy map. Feature gates are
/// united.
pub fn join(legacy: Value, current: &Value) -> Value {
    const GATES: &str = "/developerConfiguration/featureGates";
    let list = |value: &Value| value.pointer(GATES).and_then(Value::as_array).cloned();
    let gates = [list(&legacy), list(current)]
        .into_iter()
        .flatten()
        .flatten()
        .collect::<Vec<_>>();
    let mut joined = legacy;
    overlay(&mut joined, current);
    if !gates.is_empty() {
        set(&mut joined, GATES, gates.into());
    }
    joined
}

fn overlay(base: &mut Value, top: &Value) {
    match (base, top) {
        (Value::Object(base), Value::Object(top)) => {
            for (key, top) in top.iter().filter(|(_, value)| !value.is_null()) {
                overlay(base.entry(key.clone()).or_insert(Value::Null), top);
            }
        }
        (base, top) => *base = top.clone(),
    }
}

fn set(root: &mut Value, pointer: &str, value: Value) {
    let mut at = root;
    for part in pointer.split('/').skip(1) {
        if !at.is_object() {
            *at = Value::Object(Map::new());
        }
        at = &mut at[part];
    }
    *at = value;
}

impl Form {
    /// Parses a value; the error describes the expected syntax.
    fn read(self, text: &str) -> Result<Value, &'static str> {
        let parts = |separator| {
            let parts = text.split(separator).map(str::trim);
            parts.filter(|part: &&str| !part.is_empty())
        };
        match self {
            Self::Text => Ok(json!(text)),
            Self::Enum(values) if values.contains(&text) => Ok(json!(text)),
            Self::Enum(_) => Err("one of the values of the same field of the KubeVirt object"),
            Self::Bool => text
                .parse::<bool>()
                .map(Value::from)
                .map_err(|_| "true or false"),
            Self::Number(max) => match text.parse::<i64>() {
                Ok(number) if (0..=max).contains(&number) => Ok(number.into()),
                _ => Err("an integer in the range of the field"),
            },
            Self::List => Ok(parts(',').collect()),
            Self::Pairs => parts('\n')
                .map(|line| match line.split_once('=') {
                    Some((key, value)) => Ok((key.trim().to_owned(), json!(value.trim()))),
                    None => Err("lines of key=value"),
                })
                .collect::<Result<Map<_, _>, _>>()
                .map(Value::Object),
            Self::Object | Self::Quoted => serde_saphyr::from_str::<Value>(text)
                .ok()
                .filter(Value::is_object)
                .map(|value| match self {
                    Self::Quoted => unquote(value),
                    _ => value,
                })
                .ok_or("an object as JSON or YAML"),
        }
    }
}

fn unquote(value: Value) -> Value {
    match value {
        Value::Object(members) => members
            .into_iter()
            .map(|(key, value)| (key, unquote(value)))
            .collect(),
        Value::String(text) => match text.parse::<i64>() {
            Ok(number) => number.into(),
            Err(_) => text
                .parse::<bool>()
                .map_or(Value::String(text), Value::from),
        },
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ClusterConfig;

    fn data(rows: &[(&str, &str)]) -> BTreeMap<String, String> {
        rows.iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn keys_are_mapped_to_fields() {
        let written = read(&data(&[
            ("feature-gates", "HostDisk, LiveMigration,,"),
            ("debug.useEmulation", "true"),
            ("default-network-interface", "masquerade"),
            ("permitBridgeInterfaceOnPodNetwork", "false"),
            ("node-selectors", "a=b\nc=d"),
            ("memory-overcommit", "150"),
            (
                "migrations",
                "parallelMigrationsPerCluster: \"7\"\nallowPostCopy: \"true\"",
            ),
            ("smbios", "{family: f, version: \"1\"}"),
            (
                "permittedHostDevices",
                "pciHostDevices: [{pciVendorSelector: \"10DE:1DB6\", resourceName: a/b}]",
            ),
            ("ours", "ignored"),
        ]))
        .expect("reads");
        assert_eq!(
            written,
            json!({
                "developerConfiguration": {
                    "featureGates": ["HostDisk", "LiveMigration"],
                    "useEmulation": true,
                    "nodeSelectors": { "a": "b", "c": "d" },
                    "memoryOvercommit": 150,
                },
                "network": {
                    "defaultNetworkInterface": "masquerade",
                    "permitBridgeInterfaceOnPodNetwork": false,
                },
                "migrations": { "parallelMigrationsPerCluster": 7, "allowPostCopy": true },
                "smbios": { "family": "f", "version": "1" },
                "permittedHostDevices": {
                    "pciHostDevices": [{ "pciVendorSelector": "10DE:1DB6", "resourceName": "a/b" }],
                },
            })
        );
        let config = serde_json::from_value(written).expect("configuration");
        let config = ClusterConfig::from_kubevirt(&config);
        assert!(config.has_gate("HostDisk"));
        assert_eq!(config.pci_devices["a/b"], "10DE:1DB6");
    }

    #[test]
    fn malformed_value_names_its_key() {
        for (key, value) in [
            ("debug.useEmulation", "yes"),
            ("memory-overcommit", "-1"),
            ("memory-overcommit", "lots"),
            ("pvc-tolerate-less-space-up-to-percent", "101"),
            ("default-network-interface", "token-ring"),
            ("dev.imagePullPolicy", "Sometimes"),
            ("node-selectors", "a"),
            ("migrations", "- 1"),
            ("smbios", "{family: [1]}"),
        ] {
            let error = read(&data(&[(key, value)])).expect_err(key);
            assert_eq!(error.key, key);
            assert!(error.to_string().starts_with(key), "{error}");
        }
    }

    #[test]
    fn kubevirt_object_wins_and_gates_are_united() {
        let legacy = json!({
            "cpuModel": "Penryn",
            "machineType": "q35",
            "developerConfiguration": { "featureGates": ["HostDisk"] },
        });
        let current = json!({
            "cpuModel": "Haswell",
            "machineType": null,
            "developerConfiguration": { "featureGates": ["Sidecar"] },
        });
        assert_eq!(
            join(legacy, &current),
            json!({
                "cpuModel": "Haswell",
                "machineType": "q35",
                "developerConfiguration": { "featureGates": ["HostDisk", "Sidecar"] },
            })
        );
    }
}
