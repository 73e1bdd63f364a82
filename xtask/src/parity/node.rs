//! A level of a schema, whether of a definition or as `schemars` makes it of a type.

use serde_json::{Map, Value};

const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";
const INT_OR_STRING: &str = "io.k8s.apimachinery.pkg.util.intstr.IntOrString";

/// Definitions that `$ref` may name.
pub(super) type Definitions = Map<String, Value>;

/// One level, with `$ref` and "this or null" resolved.
#[derive(Debug, Clone)]
pub(super) struct Node(Map<String, Value>);

impl Node {
    pub(super) fn open(value: &Value, definitions: &Definitions) -> Self {
        let mut object = value.as_object().cloned().unwrap_or_default();
        while let Some(inner) = step(&mut object, definitions) {
            for (key, value) in inner {
                object.entry(key).or_insert(value);
            }
        }
        Self(object)
    }

    pub(super) fn get(&self, key: &str) -> &Value {
        self.0.get(key).unwrap_or(&Value::Null)
    }

    /// The JSON type; null beside it does not count.
    pub(super) fn kind(&self) -> &str {
        match self.get("type") {
            Value::String(kind) => kind,
            Value::Array(kinds) => kinds
                .iter()
                .filter_map(Value::as_str)
                .find(|kind| *kind != "null")
                .unwrap_or_default(),
            _ => "",
        }
    }

    pub(super) fn format(&self) -> &str {
        self.get("format").as_str().unwrap_or_default()
    }

    pub(super) fn is_marked(&self, key: &str) -> bool {
        *self.get(key) == Value::Bool(true)
    }

    pub(super) fn is_int_or_string(&self) -> bool {
        self.is_marked("x-kubernetes-int-or-string")
    }

    pub(super) fn is_quantity(&self) -> bool {
        self.is_int_or_string() && !self.get("pattern").is_null()
    }

    pub(super) fn property(&self, name: &str, definitions: &Definitions) -> Option<Self> {
        let value = self.get("properties").get(name)?;
        Some(Self::open(value, definitions))
    }

    pub(super) fn properties(&self) -> impl Iterator<Item = &str> {
        let properties = self.get("properties").as_object();
        properties
            .into_iter()
            .flat_map(Map::keys)
            .map(String::as_str)
    }

    pub(super) fn inner(&self, key: &str, definitions: &Definitions) -> Option<Self> {
        let value = self.get(key);
        value.is_object().then(|| Self::open(value, definitions))
    }

    pub(super) fn requires(&self, name: &str) -> bool {
        let required = self.get("required").as_array();
        required.is_some_and(|names| names.iter().any(|one| one == name))
    }

    /// The enum values; the empty one means "not set" and does not count.
    pub(super) fn values(&self) -> Option<Vec<&str>> {
        let values = self.get("enum").as_array()?;
        let values = values.iter().filter_map(Value::as_str);
        Some(values.filter(|value| !value.is_empty()).collect())
    }
}

/// Resolves one reference of the object.
fn step(object: &mut Map<String, Value>, definitions: &Definitions) -> Option<Map<String, Value>> {
    if let Some(Value::String(reference)) = object.remove("$ref") {
        let name = reference.strip_prefix("#/$defs/")?;
        let known = match name {
            QUANTITY => serde_json::json!({ "x-kubernetes-int-or-string": true, "pattern": "" }),
            INT_OR_STRING => serde_json::json!({ "x-kubernetes-int-or-string": true }),
            name => definitions.get(name)?.clone(),
        };
        return known.as_object().cloned();
    }
    if object.contains_key("x-kubernetes-int-or-string") {
        return None;
    }
    for key in ["anyOf", "allOf"] {
        if let Some(Value::Array(choices)) = object.remove(key) {
            let mut choices = choices
                .into_iter()
                .filter(|choice| choice["type"] != "null");
            return choices.next()?.as_object().cloned();
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn indirections_are_followed() {
        let definitions = json!({ "A": { "type": "object", "properties": { "b": {
            "anyOf": [{ "$ref": format!("#/$defs/{QUANTITY}") }, { "type": "null" }] } } } });
        let definitions = definitions.as_object().unwrap();
        let node = Node::open(
            &json!({ "$ref": "#/$defs/A", "type": "array" }),
            definitions,
        );
        assert_eq!(node.kind(), "array");
        assert!(node.property("b", definitions).unwrap().is_quantity());
        assert!(node.property("c", definitions).is_none());
    }
}
