//! Accessors on objects held as `Value`.
//!
//! Invariant: a malformed field reads as an absent one.

use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::Violation;

pub fn name(object: &Value) -> &str {
    text(object, "name")
}

pub fn generate_name(object: &Value) -> &str {
    text(object, "generateName")
}

pub fn namespace(object: &Value) -> &str {
    text(object, "namespace")
}

pub fn uid(object: &Value) -> &str {
    text(object, "uid")
}

pub fn resource_version(object: &Value) -> &str {
    text(object, "resourceVersion")
}

pub fn api_version(object: &Value) -> &str {
    object["apiVersion"].as_str().unwrap_or_default()
}

pub fn kind(object: &Value) -> &str {
    object["kind"].as_str().unwrap_or_default()
}

pub fn generation(object: &Value) -> i64 {
    object["metadata"]["generation"]
        .as_i64()
        .unwrap_or_default()
}

pub fn creation_timestamp(object: &Value) -> Option<Timestamp> {
    text(object, "creationTimestamp").parse().ok()
}

pub fn deletion_timestamp(object: &Value) -> Option<Timestamp> {
    text(object, "deletionTimestamp").parse().ok()
}

pub fn is_deleting(object: &Value) -> bool {
    object["metadata"]
        .get("deletionTimestamp")
        .is_some_and(|time| !time.is_null())
}

/// The pairs of `metadata.labels`.
pub fn labels(object: &Value) -> impl Iterator<Item = (&str, &str)> {
    pairs(&object["metadata"]["labels"])
}

pub fn label<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object["metadata"]["labels"].get(key)?.as_str()
}

pub fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object["metadata"]["annotations"].get(key)?.as_str()
}

pub fn finalizers(object: &Value) -> impl Iterator<Item = &str> {
    list(&object["metadata"]["finalizers"])
        .iter()
        .filter_map(Value::as_str)
}

pub fn owner_references(object: &Value) -> impl Iterator<Item = OwnerReference<'_>> {
    list(&object["metadata"]["ownerReferences"])
        .iter()
        .map(|raw| OwnerReference {
            api_version: raw["apiVersion"].as_str().unwrap_or_default(),
            kind: raw["kind"].as_str().unwrap_or_default(),
            name: raw["name"].as_str().unwrap_or_default(),
            uid: raw["uid"].as_str().unwrap_or_default(),
            controller: raw["controller"].as_bool().unwrap_or_default(),
            block_owner_deletion: raw["blockOwnerDeletion"].as_bool().unwrap_or_default(),
        })
}

/// One entry of `metadata.ownerReferences`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnerReference<'a> {
    pub api_version: &'a str,
    pub kind: &'a str,
    pub name: &'a str,
    pub uid: &'a str,
    pub controller: bool,
    pub block_owner_deletion: bool,
}

/// The map of `metadata`, created if it is missing or not a map.
pub fn metadata_mut(object: &mut Value) -> &mut Map<String, Value> {
    object_mut(object_mut(object).entry("metadata").or_insert(Value::Null))
}

/// The value as a map; anything else becomes an empty one.
pub(crate) fn object_mut(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(map) => map,
        _ => unreachable!("made an object above"),
    }
}

/// Sets one field of `metadata`; a null removes it.
pub fn set(object: &mut Value, field: &str, value: impl Into<Value>) {
    let metadata = metadata_mut(object);
    match value.into() {
        Value::Null => drop(metadata.shift_remove(field)),
        value => drop(metadata.insert(field.to_owned(), value)),
    }
}

/// Whether the desired state differs, so that the generation must increase. Everything counts
/// except `metadata`, `status` (when it is a subresource: pass it in `ignored`) and the type.
pub fn spec_differs(old: &Value, new: &Value, ignored: &[&str]) -> bool {
    let counts =
        |key: &str| !matches!(key, "metadata" | "apiVersion" | "kind") && !ignored.contains(&key);
    let (Value::Object(old), Value::Object(new)) = (old, new) else {
        return old != new;
    };
    old.iter()
        .any(|(key, value)| counts(key) && new.get(key) != Some(value))
        || new.keys().any(|key| counts(key) && !old.contains_key(key))
}

/// Whether anything differs except the `resourceVersion` and the times of managed fields. If not,
/// an update need not be stored.
pub fn differs(old: &Value, new: &Value) -> bool {
    fn essence(object: &Value) -> Value {
        let mut out = object.clone();
        let metadata = metadata_mut(&mut out);
        metadata.shift_remove("resourceVersion");
        let entries = metadata
            .get_mut("managedFields")
            .and_then(Value::as_array_mut);
        for entry in entries.into_iter().flatten() {
            object_mut(entry).shift_remove("time");
        }
        out
    }
    old != new && essence(old) != essence(new)
}

/// The API's time format: seconds, UTC.
pub fn format_time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Validates the parts of `metadata` that are the same for every kind. `check_name` is the kind's
/// name rule (see [`crate::names`]).
pub fn validate(object: &Value, check_name: fn(&str) -> Vec<String>) -> Vec<Violation> {
    let mut out = Vec::new();
    let (name, generated) = (name(object), generate_name(object));
    if name.is_empty() && generated.is_empty() {
        out.push(Violation::required(
            "metadata.name",
            "name or generateName is required",
        ));
    }
    if !generated.is_empty() {
        // The trailing dash is followed by letters in the generated name.
        let prefix = match generated.strip_suffix('-') {
            Some(base) if !base.is_empty() => format!("{base}a"),
            _ => generated.to_owned(),
        };
        let wrong = check_name(&prefix).into_iter();
        out.extend(wrong.map(|why| Violation::invalid("metadata.generateName", generated, why)));
    }
    if !name.is_empty() {
        let wrong = check_name(name).into_iter();
        out.extend(wrong.map(|why| Violation::invalid("metadata.name", name, why)));
    }
    for (key, value) in labels(object) {
        let wrong = crate::names::qualified(key).into_iter();
        out.extend(wrong.map(|why| Violation::invalid("metadata.labels", key, why)));
        let wrong = crate::names::label_value(value).into_iter();
        out.extend(wrong.map(|why| Violation::invalid("metadata.labels", value, why)));
    }
    let mut size = 0;
    for (key, value) in pairs(&object["metadata"]["annotations"]) {
        size += key.len() + value.len();
        let wrong = crate::names::qualified(&key.to_lowercase()).into_iter();
        out.extend(wrong.map(|why| Violation::invalid("metadata.annotations", key, why)));
    }
    if size > MAX_ANNOTATIONS {
        let max = u64::try_from(MAX_ANNOTATIONS).unwrap_or(u64::MAX);
        out.push(Violation::too_long("metadata.annotations", "", max));
    }
    for (at, finalizer) in finalizers(object).enumerate() {
        let field = format!("metadata.finalizers[{at}]");
        let wrong = crate::names::qualified(finalizer).into_iter();
        out.extend(wrong.map(|why| Violation::invalid("metadata.finalizers", finalizer, why)));
        if !finalizer.contains('/') && !STANDARD_FINALIZERS.contains(&finalizer) {
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            out.push(Violation::invalid(field, finalizer, why));
        }
    }
    out.extend(owner_violations(object));
    out
}

/// The decoder's error for wrongly typed fields of `metadata`: it is the same for every kind.
/// `place` is the path prefix that the decoder prints.
pub fn mistyped(metadata: &Value, place: &str) -> Option<String> {
    const TEXTS: [(&str, &str); 6] = [
        ("name", "string"),
        ("generateName", "string"),
        ("namespace", "string"),
        ("selfLink", "string"),
        ("uid", "types.UID"),
        ("resourceVersion", "string"),
    ];
    const LISTS: [(&str, &str); 3] = [
        ("ownerReferences", "[]v1.OwnerReference"),
        ("finalizers", "[]string"),
        ("managedFields", "[]v1.ManagedFieldsEntry"),
    ];
    let Value::Object(fields) = metadata else {
        return (!metadata.is_null()).then(|| {
            let found = type_name(metadata);
            format!("json: cannot unmarshal {found} into Go value of type v1.ObjectMeta")
        });
    };
    let mismatch = |field: &str, found: &Value, wanted: &str| {
        let found = type_name(found);
        Some(format!(
            "json: cannot unmarshal {found} into Go struct field ObjectMeta.{place}{field} of type {wanted}"
        ))
    };
    for (field, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
        let field = field.as_str();
        let text = TEXTS.iter().find(|(name, _)| *name == field);
        let list = LISTS.iter().find(|(name, _)| *name == field);
        match (text, list) {
            (Some((_, wanted)), _) if !value.is_string() => {
                return mismatch(field, value, wanted);
            }
            (_, Some((_, wanted))) if !value.is_array() => {
                return mismatch(field, value, wanted);
            }
            _ => {}
        }
        if matches!(field, "labels" | "annotations") {
            let Value::Object(entries) = value else {
                return mismatch(field, value, "map[string]string");
            };
            let odd = |entry: &&Value| !entry.is_string() && !entry.is_null();
            if let Some(odd) = entries.values().find(odd) {
                return mismatch(field, odd, "string");
            }
        }
    }
    None
}

/// The decoder's name for the type of a value.
pub fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

const MAX_ANNOTATIONS: usize = 256 * 1024;
const STANDARD_FINALIZERS: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];

fn owner_violations(object: &Value) -> Vec<Violation> {
    let mut out = Vec::new();
    let mut controller: Option<OwnerReference<'_>> = None;
    for owner in owner_references(object) {
        let field = |name: &str| format!("metadata.ownerReferences.{name}");
        let texts = [
            ("apiVersion", owner.api_version),
            ("kind", owner.kind),
            ("name", owner.name),
            ("uid", owner.uid),
        ];
        for (name, text) in texts {
            if text.is_empty() {
                out.push(Violation::invalid(field(name), text, "must not be empty"));
            }
        }
        if owner.controller
            && let Some(first) = controller.replace(owner)
        {
            let why = format!(
                "Only one reference can have Controller set to true. Found \"true\" in references for {}/{} and {}/{}",
                first.kind, first.name, owner.kind, owner.name
            );
            let raw = object["metadata"]["ownerReferences"].clone();
            out.push(Violation::invalid("metadata.ownerReferences", raw, why));
        }
    }
    out
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"]
        .get(field)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn pairs(value: &Value) -> impl Iterator<Item = (&str, &str)> {
    value
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn accessors_tolerate_malformed_metadata() {
        let object = json!({"metadata": {"name": "a", "labels": {"k": "v"}, "finalizers": ["f", 1],
            "ownerReferences": [{"uid": "u", "controller": true}], "deletionTimestamp": "2026-01-01T00:00:00Z"}});
        assert_eq!((name(&object), namespace(&object)), ("a", ""));
        assert_eq!(label(&object, "k"), Some("v"));
        assert_eq!(finalizers(&object).collect::<Vec<_>>(), ["f"]);
        assert!(owner_references(&object).all(|owner| owner.controller && owner.uid == "u"));
        assert!(is_deleting(&object) && deletion_timestamp(&object).is_some());
        for odd in [
            json!(null),
            json!([1]),
            json!({"metadata": 3}),
            json!({"metadata": {"labels": "x"}}),
        ] {
            assert_eq!(
                (name(&odd), labels(&odd).count(), is_deleting(&odd)),
                ("", 0, false)
            );
        }
    }

    #[test]
    fn generation_increases_for_desired_state_only() {
        let old = json!({"metadata": {"name": "a"}, "spec": {"x": 1}, "status": {"y": 1}});
        let mut new = old.clone();
        new["status"] = json!({"y": 2});
        new["metadata"]["labels"] = json!({"k": "v"});
        assert!(!spec_differs(&old, &new, &["status"]));
        assert!(spec_differs(&old, &new, &[]));
        new["spec"]["x"] = json!(2);
        assert!(spec_differs(&old, &new, &["status"]));
    }

    #[test]
    fn change_of_manager_times_alone_is_not_stored() {
        let old = json!({"metadata": {"resourceVersion": "1", "managedFields": [{"manager": "m", "time": "a"}]}});
        let mut new = old.clone();
        new["metadata"]["managedFields"][0]["time"] = "b".into();
        new["metadata"]["resourceVersion"] = "2".into();
        assert!(!differs(&old, &new));
        new["metadata"]["managedFields"][0]["manager"] = "n".into();
        assert!(differs(&old, &new));
    }

    #[test]
    fn metadata_is_validated() {
        let check = |metadata: Value| -> Vec<String> {
            let object = json!({"metadata": metadata});
            validate(&object, crate::names::dns_subdomain)
                .iter()
                .map(ToString::to_string)
                .collect()
        };
        assert_eq!(
            check(json!({"name": "a", "labels": {"a/b": "c"}, "finalizers": ["a.io/b"]})),
            [""; 0]
        );
        assert_eq!(
            check(json!({})),
            ["metadata.name: Required value: name or generateName is required"]
        );
        let wrong = json!({"name": "A", "labels": {"a b": "-"}, "finalizers": ["f"],
            "ownerReferences": [{"apiVersion": "v1", "kind": "K", "name": "n"}]});
        let fields: Vec<String> = check(wrong)
            .iter()
            .filter_map(|text| Some(text.split_once(':')?.0.to_owned()))
            .collect();
        assert_eq!(
            fields,
            [
                "metadata.name",
                "metadata.labels",
                "metadata.labels",
                "metadata.finalizers[0]",
                "metadata.ownerReferences.uid"
            ]
        );
    }
}
