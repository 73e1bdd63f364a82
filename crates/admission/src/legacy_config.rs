//! The configuration as versions before the `KubeVirt` object held it: a config map of flat keys.
//!
//! Invariant: a key that cannot be read is an error that names it, never a silent default; keys
//! that nobody knows are ignored.

use std::collections::BTreeMap;

use kubevirt_api::cluster_config::KubeVirtConfiguration;
use serde_json::{Map, Value, json};

/// Name of the map, in the namespace of the installation.
pub const NAME: &str = "kubevirt-config";

/// Why a map cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    pub key: String,
    pub value: String,
    pub wanted: &'static str,
}

impl std::fmt::Display for Unreadable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { key, value, wanted } = self;
        write!(f, "{key}: {value:?} does not fit; write {wanted}")
    }
}

impl std::error::Error for Unreadable {}

/// How the value of a key is written.
#[derive(Clone, Copy)]
enum Form {
    Text,
    /// One of these words.
    Word(&'static [&'static str]),
    /// `true` or `false`.
    Switch,
    /// A whole number from 0 to this.
    Number(i64),
    /// Words between commas.
    List,
    /// Lines of `key=value`.
    Pairs,
    /// An object, as JSON or YAML.
    Object,
    /// The same, with numbers and switches between quotes.
    Quoted,
}

/// Key of the map, where its value belongs in the configuration, and how it is written.
const KEYS: &[(&str, &str, Form)] = &[
    (
        "feature-gates",
        "/developerConfiguration/featureGates",
        Form::List,
    ),
    (
        "debug.useEmulation",
        "/developerConfiguration/useEmulation",
        Form::Switch,
    ),
    (
        "memory-overcommit",
        "/developerConfiguration/memoryOvercommit",
        Form::Number(i32::MAX as i64),
    ),
    (
        "cpu-allocation-ratio",
        "/developerConfiguration/cpuAllocationRatio",
        Form::Number(i32::MAX as i64),
    ),
    (
        "pvc-tolerate-less-space-up-to-percent",
        "/developerConfiguration/pvcTolerateLessSpaceUpToPercent",
        Form::Number(100),
    ),
    (
        "node-selectors",
        "/developerConfiguration/nodeSelectors",
        Form::Pairs,
    ),
    ("machine-type", "/machineType", Form::Text),
    ("emulated-machines", "/emulatedMachines", Form::List),
    ("default-cpu-model", "/cpuModel", Form::Text),
    ("cpu-request", "/cpuRequest", Form::Text),
    (
        "dev.imagePullPolicy",
        "/imagePullPolicy",
        Form::Word(&["Always", "Never", "IfNotPresent"]),
    ),
    (
        "default-network-interface",
        "/network/defaultNetworkInterface",
        Form::Word(&["bridge", "masquerade", "slirp"]),
    ),
    (
        "permitSlirpInterface",
        "/network/permitSlirpInterface",
        Form::Switch,
    ),
    (
        "permitBridgeInterfaceOnPodNetwork",
        "/network/permitBridgeInterfaceOnPodNetwork",
        Form::Switch,
    ),
    ("selinuxLauncherType", "/selinuxLauncherType", Form::Text),
    (
        "supported-guest-agent",
        "/supportedGuestAgentVersions",
        Form::List,
    ),
    ("ovmfPath", "/ovmfPath", Form::Text),
    (
        "memBalloonStatsPeriod",
        "/memBalloonStatsPeriod",
        Form::Number(u32::MAX as i64),
    ),
    ("smbios", "/smbios", Form::Object),
    (
        "permittedHostDevices",
        "/permittedHostDevices",
        Form::Object,
    ),
    ("migrations", "/migrations", Form::Quoted),
];

/// The map's data in the shape of a `KubeVirt` object's `spec.configuration`.
pub fn read(data: &BTreeMap<String, String>) -> Result<Value, Unreadable> {
    let mut written = json!({});
    for (key, place, form) in KEYS {
        let Some(text) = data.get(*key).map(|text| text.trim()) else {
            continue;
        };
        if text.is_empty() {
            continue;
        }
        let value = form.read(text).map_err(|wanted| Unreadable {
            key: (*key).to_owned(),
            value: text.to_owned(),
            wanted,
        })?;
        put(&mut written, place, value);
    }
    // What is no configuration as a whole is told by the key that spoils it.
    for (key, place, _) in KEYS {
        let Some(value) = written.pointer(place) else {
            continue;
        };
        let mut alone = json!({});
        put(&mut alone, place, value.clone());
        if serde_json::from_value::<KubeVirtConfiguration>(alone).is_err() {
            return Err(Unreadable {
                key: (*key).to_owned(),
                value: value.to_string(),
                wanted: "what the field of this name in the KubeVirt object takes",
            });
        }
    }
    Ok(written)
}

/// Lays what a `KubeVirt` object says over what the older map says. Gates of both count.
pub fn join(older: Value, newer: &Value) -> Value {
    const GATES: &str = "/developerConfiguration/featureGates";
    let list = |value: &Value| value.pointer(GATES).and_then(Value::as_array).cloned();
    let gates = [list(&older), list(newer)]
        .into_iter()
        .flatten()
        .flatten()
        .collect::<Vec<_>>();
    let mut joined = older;
    lay(&mut joined, newer);
    if !gates.is_empty() {
        put(&mut joined, GATES, gates.into());
    }
    joined
}

fn lay(under: &mut Value, over: &Value) {
    match (under, over) {
        (Value::Object(under), Value::Object(over)) => {
            for (key, over) in over.iter().filter(|(_, value)| !value.is_null()) {
                lay(under.entry(key.clone()).or_insert(Value::Null), over);
            }
        }
        (under, over) => *under = over.clone(),
    }
}

fn put(into: &mut Value, place: &str, value: Value) {
    let mut at = into;
    for part in place.split('/').skip(1) {
        if !at.is_object() {
            *at = Value::Object(Map::new());
        }
        at = &mut at[part];
    }
    *at = value;
}

impl Form {
    /// The value, or what would be right.
    fn read(self, text: &str) -> Result<Value, &'static str> {
        let parts = |separator| {
            let parts = text.split(separator).map(str::trim);
            parts.filter(|part: &&str| !part.is_empty())
        };
        match self {
            Self::Text => Ok(json!(text)),
            Self::Word(words) if words.contains(&text) => Ok(json!(text)),
            Self::Word(_) => Err("one of the words that the field of the KubeVirt object takes"),
            Self::Switch => text
                .parse::<bool>()
                .map(Value::from)
                .map_err(|_| "true or false"),
            Self::Number(most) => match text.parse::<i64>() {
                Ok(number) if (0..=most).contains(&number) => Ok(number.into()),
                _ => Err("a whole number in the range of the field"),
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
    fn keys_find_their_fields() {
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
    fn what_cannot_be_read_is_named() {
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
    fn the_newer_object_wins_and_gates_add_up() {
        let older = json!({
            "cpuModel": "Penryn",
            "machineType": "q35",
            "developerConfiguration": { "featureGates": ["HostDisk"] },
        });
        let newer = json!({
            "cpuModel": "Haswell",
            "machineType": null,
            "developerConfiguration": { "featureGates": ["Sidecar"] },
        });
        assert_eq!(
            join(older, &newer),
            json!({
                "cpuModel": "Haswell",
                "machineType": "q35",
                "developerConfiguration": { "featureGates": ["HostDisk", "Sidecar"] },
            })
        );
    }
}
