//! Objects around a spec.

use serde_json::{Value, json};

/// Kind and name of an object.
#[derive(Clone, Copy, Debug)]
pub(super) struct Identity<'a> {
    pub(super) api_version: &'static str,
    pub(super) kind: &'static str,
    /// Of a random name.
    pub(super) prefix: &'static str,
    pub(super) name: Option<&'a str>,
    /// Left out for a kind without namespace, and if the command line names none.
    pub(super) namespace: Option<&'a str>,
}

impl Identity<'_> {
    /// The name; a random one if none is given.
    pub(super) fn name_with(self, suffix: &mut dyn FnMut() -> String) -> String {
        match self.name {
            Some(name) => name.to_owned(),
            None => format!("{}-{}", self.prefix, suffix()),
        }
    }

    pub(super) fn object(self, name: &str, spec: &Value) -> Value {
        let mut metadata = json!({"name": name});
        if let Some(namespace) = self.namespace {
            metadata["namespace"] = namespace.into();
        }
        json!({
            "apiVersion": self.api_version,
            "kind": self.kind,
            "metadata": metadata,
            "spec": spec,
        })
    }
}

/// Sets a field, unless the list is empty.
pub(super) fn set_list(object: &mut Value, field: &str, list: Vec<Value>) {
    if !list.is_empty() {
        object[field] = list.into();
    }
}
