//! Everything in a definition besides its schema, and the manifest of a definition.
//!
//! To add a kind: a row in the file of its group under `kinds`, `cargo xtask generate`, then the
//! entry in [`super::ALL`].

use serde_json::{Map, Value, json};

/// One kind of object.
#[derive(Debug)]
pub(super) struct Definition {
    pub(super) group: &'static str,
    pub(super) kind: &'static str,
    pub(super) plural: &'static str,
    pub(super) singular: &'static str,
    pub(super) short_names: &'static [&'static str],
    pub(super) categories: &'static [&'static str],
    pub(super) scope: Scope,
    /// Label with the part of the system that the definition belongs to.
    pub(super) label: Option<&'static str>,
    /// In the order of the manifest; exactly one is stored.
    pub(super) versions: Vec<Version>,
    pub(super) status: StatusIs,
    pub(super) scale: Option<Scale>,
    pub(super) columns: Vec<Column>,
}

/// Where objects of a kind live.
#[derive(Clone, Copy, Debug)]
pub(super) enum Scope {
    Namespaced,
    Cluster,
}

/// One version of a kind.
#[derive(Debug)]
pub(super) struct Version {
    name: &'static str,
    storage: bool,
    deprecation: Option<Deprecation>,
    schema: Value,
}

/// Why a version should not be used.
#[derive(Clone, Copy, Debug)]
enum Deprecation {
    /// Another version or kind replaces it.
    Replaced(&'static str),
    /// The kind will be removed. `KubeVirt`'s clients know the sentence.
    Removed(&'static str),
}

impl Version {
    /// Served beside the stored one.
    pub(super) fn served(name: &'static str, schema: &Value) -> Self {
        Self {
            name,
            storage: false,
            deprecation: None,
            schema: schema.clone(),
        }
    }

    /// The one that objects are stored in.
    pub(super) fn stored(name: &'static str, schema: &Value) -> Self {
        Self {
            storage: true,
            ..Self::served(name, schema)
        }
    }

    /// Deprecated; every use is answered with a warning that names the replacement, as an
    /// imperative phrase.
    pub(super) fn deprecated(self, instead: &'static str) -> Self {
        Self {
            deprecation: Some(Deprecation::Replaced(instead)),
            ..self
        }
    }

    /// The same for a kind that will be removed; the replacement is a sentence without full stop.
    pub(super) fn removed(self, instead: &'static str) -> Self {
        Self {
            deprecation: Some(Deprecation::Removed(instead)),
            ..self
        }
    }
}

/// How the status of a kind is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StatusIs {
    /// Through its own subresource.
    Subresource,
    /// Together with the rest of the object, or there is none.
    PartOfObject,
}

/// The paths that `kubectl scale` and autoscalers use.
#[derive(Debug)]
pub(super) struct Scale {
    pub(super) spec: &'static str,
    pub(super) status: &'static str,
    pub(super) selector: &'static str,
}

/// `spec.replicas` and its like: where every kind of ours that scales has them.
pub(super) const REPLICAS: Scale = Scale {
    spec: ".spec.replicas",
    status: ".status.replicas",
    selector: ".status.labelSelector",
};

/// A column of `kubectl get`.
#[derive(Clone, Debug)]
pub(super) struct Column {
    name: &'static str,
    path: String,
    kind: &'static str,
    /// Above 0: only with `-o wide`.
    priority: u8,
}

impl Column {
    pub(super) fn text(name: &'static str, path: &str) -> Self {
        Self::new(name, path, "string")
    }

    pub(super) fn number(name: &'static str, path: &str) -> Self {
        Self::new(name, path, "integer")
    }

    pub(super) fn yes_or_no(name: &'static str, path: &str) -> Self {
        Self::new(name, path, "boolean")
    }

    pub(super) fn date(name: &'static str, path: &str) -> Self {
        Self::new(name, path, "date")
    }

    pub(super) fn age() -> Self {
        Self::date("Age", ".metadata.creationTimestamp")
    }

    /// Status of the condition of that type.
    pub(super) fn condition(name: &'static str, kind: &str) -> Self {
        Self::text(
            name,
            &format!(".status.conditions[?(@.type=='{kind}')].status"),
        )
    }

    pub(super) fn wide(self) -> Self {
        Self {
            priority: 1,
            ..self
        }
    }

    fn new(name: &'static str, path: &str, kind: &'static str) -> Self {
        Self {
            name,
            path: path.to_owned(),
            kind,
            priority: 0,
        }
    }

    fn render(&self) -> Value {
        let mut value = json!({ "name": self.name, "type": self.kind, "jsonPath": self.path });
        if self.priority > 0 {
            value["priority"] = json!(self.priority);
        }
        value
    }
}

/// Schema of a whole object, member by member.
#[derive(Debug)]
pub(super) struct Object {
    description: &'static str,
    required: Vec<&'static str>,
    members: Map<String, Value>,
}

impl Object {
    /// Only `apiVersion`, `kind` and `metadata`.
    pub(super) fn new(description: &'static str) -> Self {
        let members = json!({
            "apiVersion": {
                "description": "Group and version that the object is written in.",
                "type": "string",
            },
            "kind": { "description": "What the object is.", "type": "string" },
            "metadata": { "type": "object" },
        });
        let members = match members {
            Value::Object(members) => members,
            _ => Map::new(),
        };
        Self {
            description,
            required: Vec::new(),
            members,
        }
    }

    pub(super) fn required(mut self, name: &'static str, schema: Value) -> Self {
        self.required.push(name);
        self.optional(name, schema)
    }

    pub(super) fn optional(mut self, name: &'static str, schema: Value) -> Self {
        self.members.insert(name.to_owned(), schema);
        self
    }

    /// May be absent, or there as `null`.
    pub(super) fn nullable(self, name: &'static str, mut schema: Value) -> Self {
        schema["nullable"] = json!(true);
        self.optional(name, schema)
    }

    pub(super) fn schema(self) -> Value {
        let mut schema = json!({
            "description": self.description,
            "type": "object",
            "properties": self.members,
        });
        if !self.required.is_empty() {
            schema["required"] = json!(self.required);
        }
        schema
    }
}

impl Definition {
    pub(super) fn name(&self) -> String {
        format!("{}.{}", self.plural, self.group)
    }

    pub(super) fn manifest(&self) -> Value {
        let versions: Vec<Value> = self
            .versions
            .iter()
            .map(|version| self.version(version))
            .collect();
        let mut metadata = json!({ "name": self.name() });
        if let Some(label) = self.label {
            metadata["labels"] = json!({ label: "" });
        }
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": metadata,
            "spec": {
                "group": self.group,
                "names": self.names(),
                "scope": format!("{:?}", self.scope),
                "versions": versions,
            },
        })
    }

    fn names(&self) -> Value {
        let mut names = json!({
            "kind": self.kind,
            "listKind": format!("{}List", self.kind),
            "plural": self.plural,
            "singular": self.singular,
        });
        for (key, values) in [
            ("categories", self.categories),
            ("shortNames", self.short_names),
        ] {
            if !values.is_empty() {
                names[key] = json!(values);
            }
        }
        names
    }

    fn version(&self, version: &Version) -> Value {
        let mut value = json!({ "name": version.name, "served": true, "storage": version.storage });
        if let Some(deprecation) = version.deprecation {
            let (kind, group, name) = (self.kind, self.group, version.name);
            value["deprecated"] = json!(true);
            value["deprecationWarning"] = json!(match deprecation {
                Deprecation::Replaced(instead) =>
                    format!("{kind} of {group}/{name} is deprecated; {instead}"),
                Deprecation::Removed(instead) => format!(
                    "{group}/{name} {kind}s is now deprecated and will be removed in v2. {instead}"
                ),
            });
        }
        if !self.columns.is_empty() {
            value["additionalPrinterColumns"] = self.columns.iter().map(Column::render).collect();
        }
        if let Some(subresources) = self.subresources() {
            value["subresources"] = subresources;
        }
        value["schema"] = json!({ "openAPIV3Schema": version.schema });
        value
    }

    fn subresources(&self) -> Option<Value> {
        let mut subresources = Map::new();
        if self.status == StatusIs::Subresource {
            subresources.insert("status".to_owned(), json!({}));
        }
        if let Some(scale) = &self.scale {
            let paths = json!({
                "specReplicasPath": scale.spec,
                "statusReplicasPath": scale.status,
                "labelSelectorPath": scale.selector,
            });
            subresources.insert("scale".to_owned(), paths);
        }
        (!subresources.is_empty()).then_some(Value::Object(subresources))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crds::kinds;

    #[test]
    fn every_kind_stores_exactly_one_version() {
        for kind in kinds::all() {
            let stored = kind.versions.iter().filter(|version| version.storage);
            assert_eq!(stored.count(), 1, "{}", kind.name());
        }
    }

    /// Fields whose content is a type of Kubernetes; `kubectl explain pod` and the like document them.
    const FOREIGN: &[&str] = &[
        "affinity",
        "dnsConfig",
        "exec",
        "fields",
        "httpGet",
        "nodeSelectorRequirementMatcher",
        "persistentVolumeClaim",
        "pvc",
        "resources",
        "selector",
        "tcpSocket",
        "tolerations",
        "topologySpreadConstraints",
    ];

    /// Paths of fields without a description.
    fn undescribed(schema: &Value, path: &str, found: &mut Vec<String>) {
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            let path = format!("{path}.{name}");
            if field["description"].as_str().is_none_or(str::is_empty) {
                found.push(path.clone());
            }
            if !FOREIGN.contains(&name.as_str()) && !name.ends_with("Selector") {
                undescribed(field, &path, found);
            }
        }
        for key in ["items", "additionalProperties"] {
            if schema[key].is_object() {
                undescribed(&schema[key], &format!("{path}[]"), found);
            }
        }
    }

    #[test]
    fn every_field_of_a_spec_has_a_description() {
        let mut found = Vec::new();
        for kind in kinds::all() {
            for version in &kind.versions {
                assert_ne!(version.schema["description"], "", "{}", kind.kind);
                let spec = &version.schema["properties"]["spec"];
                undescribed(spec, &format!("{}.spec", kind.kind), &mut found);
            }
        }
        assert!(found.is_empty(), "{}", found.join("\n"));
    }

    #[test]
    fn manifest_has_the_values_of_its_row() {
        let schema = Object::new("A thing.")
            .required("spec", json!({ "type": "object" }))
            .nullable("status", json!({ "type": "object" }))
            .schema();
        let row = Definition {
            group: "things.example",
            kind: "Thing",
            plural: "things",
            singular: "thing",
            short_names: &["th"],
            categories: &[],
            scope: Scope::Cluster,
            label: Some("part.example"),
            versions: vec![
                Version::served("v1alpha1", &schema).deprecated("use v1"),
                Version::stored("v1", &schema),
            ],
            status: StatusIs::Subresource,
            scale: Some(REPLICAS),
            columns: vec![Column::condition("Ready", "Ready").wide()],
        };
        let manifest = row.manifest();
        assert_eq!(manifest["metadata"]["name"], "things.things.example");
        assert_eq!(manifest["metadata"]["labels"]["part.example"], "");
        let spec = &manifest["spec"];
        assert_eq!(spec["scope"], "Cluster");
        assert_eq!(spec["names"]["listKind"], "ThingList");
        assert_eq!(spec["names"].get("categories"), None);
        let old = &spec["versions"][0];
        assert_eq!(
            old["deprecationWarning"],
            "Thing of things.example/v1alpha1 is deprecated; use v1"
        );
        assert_eq!(
            (&old["storage"], &old["served"]),
            (&json!(false), &json!(true))
        );
        let new = &spec["versions"][1];
        assert_eq!(new.get("deprecated"), None);
        assert_eq!(
            new["subresources"]["scale"]["labelSelectorPath"],
            ".status.labelSelector"
        );
        assert_eq!(
            new["additionalPrinterColumns"][0],
            json!({
                "name": "Ready", "type": "string", "priority": 1,
                "jsonPath": ".status.conditions[?(@.type=='Ready')].status",
            })
        );
        let schema = &new["schema"]["openAPIV3Schema"];
        assert_eq!(schema["required"], json!(["spec"]));
        assert_eq!(schema["properties"]["status"]["nullable"], true);
        assert_eq!(
            schema["properties"]["metadata"],
            json!({ "type": "object" })
        );
    }
}
