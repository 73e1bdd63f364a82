//! Every served kind is also served as protobuf.

use apimachinery::{protobuf, resource::join_api_version};
use serde_json::{Map, Value, json};

use super::{KINDS, References};

/// Definitions of types whose JSON is not that of their schema.
const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";

/// An object with a value in every field of the schema.
struct Sample<'a> {
    definitions: &'a Value,
    /// Definitions that are being sampled: schemas may be recursive.
    open: Vec<String>,
}

impl Sample<'_> {
    fn of(&mut self, schema: &Value) -> Value {
        if let Some(name) = schema["$ref"].as_str().and_then(|r| r.rsplit('/').next()) {
            let name = name.to_owned();
            match name.strip_prefix(META) {
                Some("MicroTime") => return json!("2026-01-02T03:04:05.000006Z"),
                Some("Time") => return json!("2026-01-02T03:04:05Z"),
                _ => {}
            }
            match name.rsplit('.').next() {
                Some("IntOrString") => return json!(8080),
                Some("Quantity") => return json!("100m"),
                Some("JSONSchemaPropsOrArray") => return json!([{"type": "string"}]),
                Some("JSONSchemaPropsOrBool") => return json!({"type": "string"}),
                Some("JSONSchemaPropsOrStringArray") => return json!(["text"]),
                Some("CustomResourceSubresourceStatus") => return json!({}),
                _ => {}
            }
            if self.open.contains(&name) {
                return Value::Null;
            }
            self.open.push(name.clone());
            let found = self.of(&self.definitions[&name].clone());
            self.open.pop();
            return found;
        }
        if let Some(all) = schema["allOf"].as_array() {
            return self.of(&all[0].clone());
        }
        match schema["type"].as_str() {
            Some("string") => match schema["format"].as_str() {
                Some("date-time") => json!("2026-01-02T03:04:05Z"),
                Some("byte") => json!("Ynl0ZXM="),
                _ => json!("text"),
            },
            Some("integer") => json!(7),
            Some("number") => json!(0.5),
            Some("boolean") => json!(true),
            Some("array") => match self.of(&schema["items"].clone()) {
                Value::Null => Value::Null,
                item => json!([item]),
            },
            Some("object") if schema["properties"].is_object() => {
                let properties = schema["properties"].as_object().unwrap().clone();
                let fields = properties
                    .iter()
                    .map(|(name, schema)| (name.clone(), self.of(schema)));
                let fields: Map<_, _> = fields.filter(|(_, value)| !value.is_null()).collect();
                fields.into()
            }
            Some("object") if schema["additionalProperties"].is_object() => {
                match self.of(&schema["additionalProperties"].clone()) {
                    Value::Null => Value::Null,
                    item => json!({"key": item}),
                }
            }
            // Free-form JSON.
            _ => json!({"any": [1]}),
        }
    }
}

/// The paths of values that are lost.
fn lost(sent: &Value, found: &Value, path: &str, out: &mut Vec<String>) {
    match (sent, found) {
        (Value::Object(sent), Value::Object(found)) => {
            for (name, value) in sent {
                let found = found.get(name).unwrap_or(&Value::Null);
                lost(value, found, &format!("{path}.{name}"), out);
            }
        }
        (Value::Array(sent), Value::Array(found)) if sent.len() == found.len() => {
            for (sent, found) in sent.iter().zip(found) {
                lost(sent, found, &format!("{path}[]"), out);
            }
        }
        _ if sent != found => out.push(format!("{path}: {sent} became {found}")),
        _ => {}
    }
}

#[test]
fn every_field_of_every_kind_round_trips_as_protobuf() {
    let mut wrong = Vec::new();
    for kind in KINDS {
        let schema = (kind.schema)(References::Kept);
        if schema.is_null() {
            continue;
        }
        let mut sample = Sample {
            definitions: &schema["$defs"],
            open: Vec::new(),
        };
        let mut object = sample.of(&schema);
        object["apiVersion"] = join_api_version(kind.group, kind.version).into();
        object["kind"] = kind.kind.into();
        let path = format!("{}/{}", kind.group, kind.kind);
        match protobuf::encode(&object) {
            Ok(body) => lost(
                &object,
                &protobuf::decode(&body).unwrap(),
                &path,
                &mut wrong,
            ),
            Err(why) => wrong.push(format!("{path}: {why}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_kind_list_and_subresource_has_a_message() {
    for kind in KINDS {
        let own = join_api_version(kind.group, kind.version);
        assert!(
            protobuf::has_message(&own, kind.kind),
            "{own} {}",
            kind.kind
        );
        let list = format!("{}List", kind.kind);
        let is_listed = kind.verbs.contains(&"list");
        assert!(
            !is_listed || protobuf::has_message(&own, &list),
            "{own} {list}"
        );
        for sub in kind.subresources {
            // Streams have no body.
            let has_body = !sub.kind.ends_with("Options");
            let api_version = sub.api_version.unwrap_or(&own);
            assert!(
                !has_body || protobuf::has_message(api_version, sub.kind),
                "{api_version} {}",
                sub.kind
            );
        }
    }
    for kind in [
        "Status",
        "DeleteOptions",
        "PartialObjectMetadata",
        "PartialObjectMetadataList",
    ] {
        assert!(protobuf::has_message("meta.k8s.io/v1", kind), "{kind}");
    }
    assert!(protobuf::has_message("autoscaling/v1", "Scale"));
}
