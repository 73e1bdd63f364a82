//! The schemas of kinds, lists and the types they reference.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::Resource;
use crate::shape::Type;

/// The `OpenAPI` version of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    V2,
    V3,
}

impl Dialect {
    /// The path of definitions in a document.
    fn prefix(self) -> &'static str {
        match self {
            Self::V2 => "#/definitions/",
            Self::V3 => "#/components/schemas/",
        }
    }

    /// A reference to a definition.
    pub fn reference(self, name: &str) -> Value {
        json!({"$ref": format!("{}{name}", self.prefix())})
    }

    /// A reference with a description: version 3 allows no sibling of `$ref`.
    fn described(self, name: &str, what: &str) -> Value {
        match self {
            Self::V2 => json!({"$ref": format!("{}{name}", self.prefix()), "description": what}),
            Self::V3 => json!({"allOf": [self.reference(name)], "description": what}),
        }
    }
}

pub(super) const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
pub(super) const LIST_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";
pub(super) const STATUS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Status";
pub(super) const PATCH: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch";

const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";
const GVK: &str = "x-kubernetes-group-version-kind";

/// The name of a kind's definition: `io.kubevirt.v1.VirtualMachine`.
pub(super) fn name_of(resource: &Resource) -> String {
    let group = match resource.group.as_str() {
        "" => "io.k8s.api.core".to_owned(),
        group => group.split('.').rev().collect::<Vec<_>>().join("."),
    };
    format!("{group}.{}.{}", resource.version, resource.kind)
}

pub(super) fn definitions(resources: &[&Resource], dialect: Dialect) -> Value {
    let mut out = shared();
    for resource in resources {
        add_kind(&mut out, resource, dialect);
    }
    out.sort_keys();
    for schema in out.values_mut() {
        adapt(schema, dialect);
    }
    Value::Object(out)
}

fn add_kind(out: &mut Map<String, Value>, resource: &Resource, dialect: Dialect) {
    let name = name_of(resource);
    let mut root = match &resource.schema {
        Value::Object(_) => resource.schema.clone(),
        _ => json!({"type": "object"}),
    };
    if dialect == Dialect::V2 && root[PRESERVE] == true {
        // kubectl would refuse every field that is not among declared ones.
        root = json!({"type": "object", GVK: gvk(resource, &resource.kind)});
        out.insert(name.clone(), root);
        out.insert(format!("{name}List"), list_schema(resource, &name, dialect));
        return;
    }
    let Value::Object(fields) = &mut root else {
        return;
    };
    for key in ["$defs", "definitions"] {
        if let Some(Value::Object(defs)) = fields.shift_remove(key) {
            for (name, schema) in defs {
                // The kind's own ObjectMeta is more detailed than the shared one.
                out.insert(name, schema);
            }
        }
    }
    fields.shift_remove("$schema");
    fields.shift_remove("title");
    fields.insert(GVK.to_owned(), gvk(resource, &resource.kind));
    let properties = crate::meta::object_mut(fields.entry("properties").or_insert(Value::Null));
    for (key, schema) in type_properties() {
        properties.insert(key.to_owned(), schema);
    }
    let what = "Standard object metadata: name, labels, owners, times.";
    properties.insert("metadata".to_owned(), dialect.described(OBJECT_META, what));
    let ty = Type::built_in(&resource.group, &resource.kind);
    annotate(&mut root, ty, out, &mut BTreeSet::new());
    out.insert(name.clone(), root);
    out.insert(format!("{name}List"), list_schema(resource, &name, dialect));
}

fn gvk(resource: &Resource, kind: &str) -> Value {
    json!([{"group": resource.group, "kind": kind, "version": resource.version}])
}

fn type_properties() -> [(&'static str, Value); 2] {
    let text = |what: &str| json!({"type": "string", "description": what});
    [
        (
            "apiVersion",
            text("APIVersion defines the group and version of this representation of the object."),
        ),
        (
            "kind",
            text("Kind is the type of the object, in CamelCase; immutable."),
        ),
    ]
}

fn list_schema(resource: &Resource, item: &str, dialect: Dialect) -> Value {
    let mut properties: Map<String, Value> = type_properties()
        .into_iter()
        .map(|(k, v)| (k.to_owned(), v))
        .collect();
    let items = json!({"type": "array", "items": dialect.reference(item),
        "description": format!("List of the objects of kind {}.", resource.kind)});
    properties.insert("items".to_owned(), items);
    let what = "Standard list metadata.";
    properties.insert("metadata".to_owned(), dialect.described(LIST_META, what));
    let kind = format!("{}List", resource.kind);
    json!({
        "description": format!("{kind} is a list of {}", resource.kind),
        "type": "object", "required": ["items"], "properties": properties,
        GVK: gvk(resource, &kind),
    })
}

/// Adds merge extensions to the fields of a built-in kind, including referenced definitions.
fn annotate(
    node: &mut Value,
    ty: Type<'_>,
    all: &mut Map<String, Value>,
    seen: &mut BTreeSet<String>,
) {
    let Value::Object(fields) = node else { return };
    if let Some(name) = fields.get("$ref").and_then(Value::as_str).and_then(target) {
        let name = name.to_owned();
        if seen.insert(name.clone())
            && let Some(mut schema) = all.get(&name).cloned()
        {
            annotate(&mut schema, ty, all, seen);
            all.insert(name, schema);
        }
        return;
    }
    for branch in fields
        .get_mut("allOf")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        annotate(branch, ty, all, seen);
    }
    for (name, property) in fields
        .get_mut("properties")
        .and_then(Value::as_object_mut)
        .into_iter()
        .flatten()
    {
        let ty = ty.field(name);
        if let Value::Object(property) = property {
            for (key, value) in ty.marks() {
                property.insert(key.to_owned(), value);
            }
        }
        annotate(property, ty, all, seen);
    }
    if let Some(items) = fields.get_mut("items") {
        annotate(items, ty.item(), all, seen);
    }
}

/// The definition name in a reference to any of the usual places.
fn target(reference: &str) -> Option<&str> {
    let places = ["#/$defs/", "#/definitions/", "#/components/schemas/"];
    places
        .iter()
        .find_map(|place| reference.strip_prefix(place))
}

/// Rewrites references to the document's definitions, and drops keywords its version does not
/// support.
pub(super) fn adapt(node: &mut Value, dialect: Dialect) {
    match node {
        Value::Object(fields) => {
            let renamed = fields.get("$ref").and_then(Value::as_str).and_then(target);
            if let Some(name) = renamed.map(|name| format!("{}{name}", dialect.prefix())) {
                fields.insert("$ref".to_owned(), name.into());
            }
            if dialect == Dialect::V2 {
                simplify(fields);
                for key in ["nullable", "anyOf", "oneOf", "not"] {
                    // A property may have such a name; its schema is an object.
                    if fields
                        .get(key)
                        .is_some_and(|value| key == "not" || !value.is_object())
                    {
                        fields.shift_remove(key);
                    }
                }
            }
            // These values are data, not schemas.
            let data = |key: &str| matches!(key, "default" | "enum" | "example");
            for (_, value) in fields
                .iter_mut()
                .filter(|(key, value)| !data(key) || value.is_object())
            {
                adapt(value, dialect);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| adapt(item, dialect)),
        _ => {}
    }
}

/// Removes what kubectl cannot read in version 2: fields of nodes that may be null or that keep
/// unknown fields, and the type of these nodes.
fn simplify(fields: &mut Map<String, Value>) {
    let is_nullable = |schema: &Value| schema["nullable"] == true;
    if let Some(Value::Object(properties)) = fields.get("properties") {
        let nullable = properties.iter().filter(|(_, schema)| is_nullable(schema));
        let nullable: BTreeSet<String> = nullable.map(|(name, _)| name.clone()).collect();
        if let Some(Value::Array(required)) = fields.get_mut("required") {
            required.retain(|name| name.as_str().is_none_or(|name| !nullable.contains(name)));
        }
    }
    let is = |key: &str| fields.get(key) == Some(&Value::Bool(true));
    if is("nullable") || is(PRESERVE) {
        for key in ["type", "items", "properties"] {
            fields.shift_remove(key);
        }
    }
    if fields
        .get("required")
        .and_then(Value::as_array)
        .is_some_and(Vec::is_empty)
    {
        fields.shift_remove("required");
    }
}

/// The shared definitions that every document references.
fn shared() -> Map<String, Value> {
    let text = |what: &str| json!({"type": "string", "description": what});
    let time = |what: &str| json!({"type": "string", "format": "date-time", "description": what});
    let map = |what: &str| json!({"type": "object", "additionalProperties": {"type": "string"}, "description": what});
    let whole = |what: &str| json!({"type": "integer", "format": "int64", "description": what});
    let owner = json!({"type": "object", "x-kubernetes-map-type": "atomic",
    "required": ["apiVersion", "kind", "name", "uid"], "properties": {
        "apiVersion": text("Group and version of the owner."),
        "kind": text("Kind of the owner."),
        "name": text("Name of the owner."),
        "uid": text("UID of the owner."),
        "controller": {"type": "boolean", "description": "Whether this owner is the managing controller."},
        "blockOwnerDeletion": {"type": "boolean", "description": "Foreground deletion of the owner waits for this object."},
    }});
    let object_meta = json!({
        "type": "object", "description": "Standard object metadata: name, labels, owners, times.",
        "properties": {
            "annotations": map("Data for tools and people; not selectable."),
            "creationTimestamp": time("Time of creation. Set by the server."),
            "deletionGracePeriodSeconds": whole("Seconds left for graceful termination. Set by the server."),
            "deletionTimestamp": time("Time after which the object is deleted. Set by the server."),
            "finalizers": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set",
                "x-kubernetes-patch-strategy": "merge",
                "description": "Finalizers that must be removed before the object is deleted."},
            "generateName": text("Prefix of a name that the server completes."),
            "generation": whole("Counts changes of the desired state. Set by the server."),
            "labels": map("Short values to select objects by."),
            "managedFields": {"type": "array", "items": {"type": "object"},
                "description": "Field ownership by manager. Maintained by the server."},
            "name": text("Unique among objects of the kind in the namespace; immutable."),
            "namespace": text("The namespace in which the name is unique."),
            "ownerReferences": {"type": "array", "items": owner,
                "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["uid"],
                "x-kubernetes-patch-merge-key": "uid", "x-kubernetes-patch-strategy": "merge",
                "description": "Owners of this object: it is deleted when all of them are gone."},
            "resourceVersion": text("Changes with every write; compare, never interpret."),
            "selfLink": text("No longer set."),
            "uid": text("Unique in time and space. Set by the server."),
        },
    });
    let list_meta = json!({
        "type": "object", "description": "Standard list metadata.",
        "properties": {
            "continue": text("Token to get the next part of the list with."),
            "remainingItemCount": whole("Number of objects that are not in this chunk."),
            "resourceVersion": text("The version of the collection."),
            "selfLink": text("No longer set."),
        },
    });
    let status = json!({
        "type": "object", "description": "The outcome of a request that returns no object.",
        "properties": {
            "apiVersion": {"type": "string"}, "kind": {"type": "string"},
            "code": {"type": "integer", "format": "int32"},
            "details": {"type": "object"},
            "message": {"type": "string"}, "metadata": {"type": "object"},
            "reason": {"type": "string"}, "status": {"type": "string"},
        },
        "x-kubernetes-group-version-kind": [{"group": "", "kind": "Status", "version": "v1"}],
    });
    let patch = json!({"type": "object", "description": "A change to an object, in one of the patch formats."});
    [
        (OBJECT_META, object_meta),
        (LIST_META, list_meta),
        (STATUS, status),
        (PATCH, patch),
    ]
    .into_iter()
    .map(|(name, schema)| (name.to_owned(), schema))
    .collect()
}
