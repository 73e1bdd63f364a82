//! Converts the schemas of `schemars` to the structural schemas of an API server.
//!
//! Invariants of the result: no `$ref`, every level has one `type` (or is int-or-string),
//! `nullable` only where the wire format has it, defaults only where the API has them, and only
//! our own descriptions.

use k8s_openapi::apimachinery::pkg::{
    api::resource::Quantity, apis::meta::v1::ObjectMeta, util::intstr::IntOrString,
};
use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::{Map, Value, json};

/// What a quantity looks like as text.
const QUANTITY: &str = r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+))?$";

/// Types of Kubernetes that server-side apply owns as a whole.
const ATOMIC: &[&str] = &[
    "ConfigMapKeySelector",
    "LabelSelector",
    "LocalObjectReference",
    "NodeSelector",
    "NodeSelectorTerm",
    "ObjectFieldSelector",
    "ObjectReference",
    "ResourceFieldSelector",
    "SecretKeySelector",
    "SecretReference",
    "TopologySelectorTerm",
    "TypedLocalObjectReference",
];

/// Types of Kubernetes whose name is empty when unset.
const UNNAMED: &[&str] = &[
    "ConfigMapEnvSource",
    "ConfigMapKeySelector",
    "ConfigMapProjection",
    "ConfigMapVolumeSource",
    "LocalObjectReference",
    "SecretEnvSource",
    "SecretKeySelector",
    "SecretProjection",
];

/// Schema of specs, which users write: unknown values of enumerations are refused.
pub(super) fn of_spec<T: JsonSchema>() -> Value {
    convert::<T>(Enums::Closed)
}

/// Schema of statuses, which components write: values are open and there are no rules, so that a component newer
/// than the definition can still report.
pub(super) fn of_status<T: JsonSchema>() -> Value {
    convert::<T>(Enums::Open)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Enums {
    Closed,
    Open,
}

struct Converter<'a> {
    definitions: &'a Map<String, Value>,
    enums: Enums,
}

fn convert<T: JsonSchema>(enums: Enums) -> Value {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let mut root = settings
        .into_generator()
        .into_root_schema_for::<T>()
        .to_value();
    let definitions = match root.as_object_mut().and_then(|root| root.remove("$defs")) {
        Some(Value::Object(definitions)) => definitions,
        _ => Map::new(),
    };
    let converter = Converter {
        definitions: &definitions,
        enums,
    };
    converter.schema(root)
}

impl Converter<'_> {
    fn schema(&self, schema: Value) -> Value {
        let Value::Object(mut schema) = schema else {
            return json!({ "x-kubernetes-preserve-unknown-fields": true });
        };
        let is_status = self.resolve(&mut schema);
        tidy(&mut schema);
        if is_status && self.enums == Enums::Closed {
            // A copy of a status inside of a spec: whatever was reported can be copied.
            let open = Converter {
                enums: Enums::Open,
                ..*self
            };
            return open.schema(Value::Object(schema));
        }
        if self.enums == Enums::Open {
            schema.remove("enum");
            schema.remove("x-kubernetes-validations");
        } else if let Some(Value::Array(values)) = schema.get_mut("enum") {
            allow_empty(values);
        }
        if let Some(Value::Object(properties)) = schema.get_mut("properties") {
            for property in properties.values_mut() {
                *property = self.schema(property.take());
            }
        }
        for key in ["items", "additionalProperties"] {
            if let Some(inner) = schema.get_mut(key).filter(|inner| inner.is_object()) {
                *inner = self.schema(inner.take());
            }
        }
        Value::Object(schema)
    }

    /// Puts the content of `$ref` and of "this or null" in place; what stands beside it wins.
    /// True for the status of a kind.
    fn resolve(&self, schema: &mut Map<String, Value>) -> bool {
        let mut is_status = false;
        loop {
            let reference = schema.get("$ref").and_then(Value::as_str);
            is_status |= reference.is_some_and(|name| name.ends_with("Status"));
            let Some(inner) = take_option(schema).or_else(|| self.take_reference(schema)) else {
                return is_status;
            };
            for (key, value) in inner {
                schema.entry(key).or_insert(value);
            }
        }
    }

    fn take_reference(&self, schema: &mut Map<String, Value>) -> Option<Map<String, Value>> {
        let reference = schema.remove("$ref")?;
        let name = reference.as_str()?.strip_prefix("#/$defs/")?;
        if name == Quantity::schema_name() {
            return as_object(json!({
                "anyOf": [{ "type": "integer" }, { "type": "string" }],
                "pattern": QUANTITY,
                "x-kubernetes-int-or-string": true,
            }));
        }
        if name == IntOrString::schema_name() {
            return as_object(json!({
                "anyOf": [{ "type": "integer" }, { "type": "string" }],
                "x-kubernetes-int-or-string": true,
            }));
        }
        if name == ObjectMeta::schema_name() {
            return as_object(json!({ "type": "object" }));
        }
        let mut definition = self.definitions.get(name)?.clone();
        if name.starts_with("io.k8s.") {
            drop_descriptions(&mut definition);
            describe_reference(&mut definition);
            let name = name.rsplit('.').next().unwrap_or_default();
            if ATOMIC.contains(&name) {
                definition["x-kubernetes-map-type"] = json!("atomic");
            }
            if UNNAMED.contains(&name) {
                default_name(&mut definition);
            }
        }
        as_object(definition)
    }
}

fn as_object(value: Value) -> Option<Map<String, Value>> {
    match value {
        Value::Object(object) => Some(object),
        _ => None,
    }
}

/// Takes `X` out of `anyOf: [X, null]`.
fn take_option(schema: &mut Map<String, Value>) -> Option<Map<String, Value>> {
    if schema.contains_key("x-kubernetes-int-or-string") {
        return None;
    }
    let Some(Value::Array(choices)) = schema.remove("anyOf") else {
        return None;
    };
    choices
        .into_iter()
        .filter(|choice| choice["type"] != "null")
        .find_map(as_object)
}

fn tidy(schema: &mut Map<String, Value>) {
    for key in ["$schema", "title", "default"] {
        schema.remove(key);
    }
    if let Some(default) = schema.remove("x-default") {
        schema.insert("default".to_owned(), default);
    }
    if let Some(Value::Array(types)) = schema.get("type")
        && let Some(kind) = types.iter().find(|kind| *kind != "null").cloned()
    {
        schema.insert("type".to_owned(), kind);
    }
    if let Some(format) = schema.get("format").and_then(Value::as_str)
        && format.starts_with("uint")
    {
        if format == "uint32" {
            schema.entry("maximum").or_insert_with(|| json!(u32::MAX));
        }
        schema.insert("format".to_owned(), json!("int64"));
    }
    if let Some(text) = schema.get("description").and_then(Value::as_str) {
        match own_words(text) {
            Some(text) => schema.insert("description".to_owned(), json!(text)),
            None => schema.remove("description"),
        };
    }
}

/// The description for users, or nothing when the comment only speaks to programmers.
fn own_words(text: &str) -> Option<String> {
    (!text.contains("[`")).then(|| text.replace('`', "").replace('\n', " "))
}

/// The empty string stands for "not set" in every enumeration.
fn allow_empty(values: &mut Vec<Value>) {
    values.retain(|value| !value.is_null());
    if !values.iter().any(|value| value == "") {
        values.push(json!(""));
    }
}

/// References to objects get our descriptions: they have the same members everywhere.
fn describe_reference(schema: &mut Value) {
    let description = |member: &str| {
        Some(match member {
            "apiGroup" => "Group of the object; unset for the core group.",
            "kind" => "Kind of the object.",
            "name" => "Name of the object.",
            "namespace" => "Namespace of the object; the same one when unset.",
            _ => return None,
        })
    };
    let Some(Value::Object(members)) = schema.get_mut("properties") else {
        return;
    };
    if !members.contains_key("name") || members.keys().any(|member| description(member).is_none()) {
        return;
    }
    for (member, schema) in members {
        schema["description"] = json!(description(member));
    }
}

/// The name may be left out, as in `secretRef: {}`.
fn default_name(schema: &mut Value) {
    schema["properties"]["name"]["x-default"] = json!("");
    if let Some(Value::Array(required)) = schema.get_mut("required") {
        required.retain(|name| name != "name");
    }
    if let Value::Object(fields) = schema {
        let is_empty = |required: &Value| required.as_array().is_some_and(Vec::is_empty);
        if fields.get("required").is_some_and(is_empty) {
            fields.remove("required");
        }
    }
}

fn drop_descriptions(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            if object.get("description").is_some_and(Value::is_string) {
                object.remove("description");
            }
            object.values_mut().for_each(drop_descriptions);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_descriptions),
        _ => {}
    }
}
