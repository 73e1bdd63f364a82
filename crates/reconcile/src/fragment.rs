//! The part of an object that one field manager applies.

use serde_json::{Map, Value, json};

use crate::Key;

/// A part of an object, to be applied under a field manager.
///
/// The part holds every field its manager owns: the server drops the ownership of a field that was
/// applied before and is missing now. With `metadata.resourceVersion` inside, a stale write is a conflict.
///
/// **Invariant**: no member of an object is null, an empty map or an empty list; such a member is left
/// out, which removes the field. An API server turns an empty map or associative list over children
/// that this manager owned into null, and rejects the whole write.
#[derive(Debug)]
pub struct Fragment<'a> {
    pub(crate) manager: &'a str,
    pub(crate) key: &'a Key,
    /// `status`, or `None` for the main resource.
    pub(crate) subresource: Option<&'static str>,
    body: Value,
}

impl<'a> Fragment<'a> {
    /// A part of the main resource.
    pub fn new(manager: &'a str, key: &'a Key, body: Value) -> Self {
        Self {
            manager,
            key,
            subresource: None,
            body: pruned(body),
        }
    }

    /// A part of the status subresource.
    pub fn of_status(manager: &'a str, key: &'a Key, body: Value) -> Self {
        Self {
            subresource: Some("status"),
            ..Self::new(manager, key, body)
        }
    }

    /// Empties an atomic list of the status that another writer owns as well, so that leaving it out
    /// would not remove it. A list with items in the fragment stays.
    #[must_use]
    pub fn with_list_emptied(mut self, name: &str) -> Self {
        let list = &mut self.body["status"][name];
        if list.is_null() {
            *list = json!([]);
        }
        self
    }

    pub fn body(&self) -> &Value {
        &self.body
    }
}

/// Leaves out nulls, and members of objects that are empty. Items of lists stay even if they are
/// empty, because their number and order have a meaning; so do empty members of them.
fn pruned(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let kept = members.into_iter().filter_map(|(name, value)| {
                let value = pruned(value);
                (!is_empty(&value)).then_some((name, value))
            });
            Value::Object(kept.collect())
        }
        Value::Array(items) => items.into_iter().map(without_nulls).collect(),
        plain => plain,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(members) => members.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let kept = members.into_iter().filter(|(_, value)| !value.is_null());
            let kept = kept.map(|(name, value)| (name, without_nulls(value)));
            Value::Object(kept.collect::<Map<_, _>>())
        }
        Value::Array(items) => items.into_iter().map(without_nulls).collect(),
        plain => plain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragment_never_has_a_null_or_an_empty_member() {
        let key = Key::new("default", "a");
        let table = [
            (json!({"status": {"a": {}}}), json!({})),
            (
                json!({"status": {"a": [], "b": 1}}),
                json!({"status": {"b": 1}}),
            ),
            (
                json!({"status": {"a": {"b": {"c": {}}}, "d": null}}),
                json!({}),
            ),
            (
                json!({"metadata": {"labels": {}, "name": "a"}}),
                json!({"metadata": {"name": "a"}}),
            ),
            // Zero, false and "" are values.
            (
                json!({"status": {"a": 0, "b": false, "c": ""}}),
                json!({"status": {"a": 0, "b": false, "c": ""}}),
            ),
            // Items of lists: their empty members may have a meaning.
            (
                json!({"status": {"list": [{"hotplugVolume": {}, "reason": null}, {}]}}),
                json!({"status": {"list": [{"hotplugVolume": {}}, {}]}}),
            ),
        ];
        for (body, expected) in table {
            for fragment in [
                Fragment::new("m", &key, body.clone()),
                Fragment::of_status("m", &key, body.clone()),
            ] {
                assert_eq!(*fragment.body(), expected, "{body}");
            }
        }
    }

    #[test]
    fn only_a_list_can_be_emptied() {
        let key = Key::new("default", "a");
        let emptied = |body: Value| {
            let fragment = Fragment::of_status("m", &key, body).with_list_emptied("requests");
            fragment.body().clone()
        };
        let empty = json!({"status": {"requests": []}});
        assert_eq!(emptied(json!({})), empty);
        assert_eq!(emptied(json!({"status": {"requests": []}})), empty);
        let filled = json!({"status": {"requests": [1]}});
        assert_eq!(emptied(filled.clone()), filled);
    }
}
