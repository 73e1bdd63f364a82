//! Generated objects of a structural schema, as a strategy of proptest.
//!
//! Required fields are always set, the others at random; fields that were not reached yet,
//! or that contain such fields, are preferred, so that a few dozen objects reach every field of a kind. Fields
//! are in the order of the schema and keys of maps in alphabetical order, as the types write
//! them. Lists and maps are never empty: an empty one is the same as none on the wire.

use std::{cell::RefCell, collections::BTreeSet};

use proptest::{
    prelude::*,
    strategy::{NewTree, ValueTree},
    test_runner::{TestRng, TestRunner},
};
use serde_json::{Map, Value, json};

/// Strings that YAML readers may parse as another type.
const TEXTS: &[&str] = &[
    "",
    "a",
    "no",
    "on",
    "~",
    "null",
    "true",
    "1",
    "1.0",
    "0x10",
    "1e3",
    "0o7",
    "-",
    "- a",
    "a: b",
    "#",
    "a #b",
    " a",
    "a ",
    "'",
    "\"",
    "\\",
    "a\nb",
    "a\n",
    "\t",
    "ä",
    "\u{1f980}",
    "{}",
    "[]",
    "&a",
    "*a",
    "!a",
    "%",
    "@",
    "`",
    "2026-01-02",
    "12:30:45",
    "1m30s",
    "1h0m0.5s",
    "250ms",
    "-1h",
    ".inf",
    ".nan",
    "=",
    "<<",
    "?",
    "|",
    ">",
];
const QUANTITIES: &[&str] = &[
    "0",
    "1",
    "-1",
    "+2",
    "1.5",
    ".5",
    "5.",
    "100m",
    "100n",
    "7u",
    "3k",
    "4M",
    "5G",
    "6T",
    "7P",
    "8E",
    "128Ki",
    "128Mi",
    "1.5Gi",
    "2Ti",
    "3Pi",
    "1Ei",
    "1e3",
    "2E2",
    "1e-3",
    "12e6",
    "0.0001",
    "9223372036854775807",
    "00012",
];
/// Fractions of a second can be read but are never written, see the table in `main.rs`.
const TIMES: &[&str] = &[
    "2026-01-02T03:04:05Z",
    "1970-01-01T00:00:00Z",
    "2038-01-19T03:14:08Z",
];

/// Objects of one kind.
#[derive(Debug)]
pub(crate) struct Objects {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) schema: Value,
    /// Paths of fields that some object had.
    pub(crate) reached: RefCell<BTreeSet<String>>,
}

/// A value that does not get simpler.
#[derive(Debug, Clone)]
pub(crate) struct Fixed(Value);

impl ValueTree for Fixed {
    type Value = Value;

    fn current(&self) -> Value {
        self.0.clone()
    }

    fn simplify(&mut self) -> bool {
        false
    }

    fn complicate(&mut self) -> bool {
        false
    }
}

impl Strategy for Objects {
    type Tree = Fixed;
    type Value = Value;

    fn new_tree(&self, runner: &mut TestRunner) -> NewTree<Self> {
        let mut maker = Maker {
            rng: runner.new_rng(),
            reached: &mut self.reached.borrow_mut(),
        };
        let mut object = Map::new();
        object.insert("apiVersion".to_owned(), json!(self.api_version));
        object.insert("kind".to_owned(), json!(self.kind));
        object.insert("metadata".to_owned(), maker.metadata());
        let properties = self.schema["properties"].as_object();
        for (name, schema) in properties.into_iter().flatten() {
            if object.contains_key(name) {
                continue;
            }
            let path = format!(".{name}");
            if requires(&self.schema, name) || maker.wants(&path, schema) {
                let value = maker.value(&path, schema);
                object.insert(name.clone(), value);
            }
        }
        Ok(Fixed(Value::Object(object)))
    }
}

/// Every path that a schema has, but those every kind shares.
pub(crate) fn paths(schema: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
        if !matches!(name.as_str(), "apiVersion" | "kind" | "metadata") {
            collect(&format!(".{name}"), schema, &mut found);
        }
    }
    found
}

fn collect(path: &str, schema: &Value, found: &mut BTreeSet<String>) {
    found.insert(path.to_owned());
    for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
        collect(&format!("{path}.{name}"), schema, found);
    }
    for (key, mark) in [("items", "[]"), ("additionalProperties", "{}")] {
        if schema[key].is_object() {
            collect(&format!("{path}{mark}"), &schema[key], found);
        }
    }
}

/// Required fields, and names with a default, are in every stored object.
fn requires(schema: &Value, name: &str) -> bool {
    let names = schema["required"].as_array();
    let has_default = schema["properties"][name]["default"] == "";
    has_default || names.is_some_and(|names| names.iter().any(|one| one == name))
}

struct Maker<'a> {
    rng: TestRng,
    reached: &'a mut BTreeSet<String>,
}

impl Maker<'_> {
    fn one_in(&mut self, count: u32) -> bool {
        self.rng.random_range(0..count) == 0
    }

    fn pick<'t>(&mut self, values: &[&'t str]) -> &'t str {
        let index = self.rng.random_range(0..values.len());
        values.get(index).copied().unwrap_or_default()
    }

    /// Whether an optional field shall be there.
    fn wants(&mut self, path: &str, schema: &Value) -> bool {
        if !self.holds_new(path, schema) {
            self.one_in(12)
        } else if self.reached.contains(path) {
            !self.one_in(6)
        } else {
            self.one_in(2)
        }
    }

    /// Whether a path at or below this one was not reached yet.
    fn holds_new(&self, path: &str, schema: &Value) -> bool {
        let properties = schema["properties"].as_object();
        !self.reached.contains(path)
            || properties
                .into_iter()
                .flatten()
                .any(|(name, inner)| self.holds_new(&format!("{path}.{name}"), inner))
            || [("items", "[]"), ("additionalProperties", "{}")]
                .into_iter()
                .filter(|(key, _)| schema[key].is_object())
                .any(|(key, mark)| self.holds_new(&format!("{path}{mark}"), &schema[key]))
    }

    fn value(&mut self, path: &str, schema: &Value) -> Value {
        self.reached.insert(path.to_owned());
        if schema["x-kubernetes-int-or-string"] == true {
            return self.int_or_string(schema);
        }
        if let Some(values) = schema["enum"].as_array() {
            let index = self.rng.random_range(0..values.len());
            return values.get(index).cloned().unwrap_or_default();
        }
        match schema["type"].as_str().unwrap_or_default() {
            "boolean" => json!(self.one_in(2)),
            "integer" => self.integer(schema),
            // Halves are exact in 32 bits too.
            "number" => json!(f64::from(self.rng.random_range(-99..99_i16)) + 0.5),
            "string" => self.text(schema),
            "array" => {
                let count = self.rng.random_range(1..3);
                let path = format!("{path}[]");
                (0..count)
                    .map(|_| self.value(&path, &schema["items"]))
                    .collect()
            }
            _ => self.object(path, schema),
        }
    }

    fn object(&mut self, path: &str, schema: &Value) -> Value {
        if path.ends_with(".metadata") && !schema["properties"].is_object() {
            return self.template_metadata();
        }
        if schema["additionalProperties"].is_object() {
            let inner = format!("{path}{{}}");
            let keys = ["a", "example.com/b-c", "z_9"];
            let count = self.rng.random_range(1..=keys.len());
            let entries = keys.iter().take(count);
            return entries
                .map(|key| {
                    (
                        (*key).to_owned(),
                        self.value(&inner, &schema["additionalProperties"]),
                    )
                })
                .collect();
        }
        let Some(properties) = schema["properties"].as_object() else {
            let free = schema["x-kubernetes-preserve-unknown-fields"] == true;
            return if free {
                json!({ "any": [1, "x", null, { "deep": true }] })
            } else {
                json!({})
            };
        };
        let mut object = Map::new();
        for (name, inner) in properties {
            let path = format!("{path}.{name}");
            if requires(schema, name) || self.wants(&path, inner) {
                let value = self.value(&path, inner);
                object.insert(name.clone(), value);
            }
        }
        Value::Object(object)
    }

    fn integer(&mut self, schema: &Value) -> Value {
        let (least, most) = match schema["format"].as_str() {
            Some("int32") => (i64::from(i32::MIN), i64::from(i32::MAX)),
            _ => (i64::MIN, i64::MAX),
        };
        let least = schema["minimum"]
            .as_f64()
            .map_or(least, |bound| bound as i64);
        let most = if least >= 0 {
            most.min(i64::from(i32::MAX))
        } else {
            most
        };
        let most = schema["maximum"]
            .as_f64()
            .map_or(most, |bound| bound as i64);
        match self.rng.random_range(0..4) {
            0 => json!(most),
            1 => json!(least),
            _ => json!(
                self.rng
                    .random_range(least.max(-1000)..=most.min(1_000_000))
            ),
        }
    }

    fn int_or_string(&mut self, schema: &Value) -> Value {
        if schema["pattern"].is_string() {
            // Numbers are quantities too, but are written as strings.
            return json!(self.pick(QUANTITIES));
        }
        if self.one_in(2) {
            json!(self.rng.random_range(0..=i32::MAX))
        } else {
            json!(self.pick(&["25%", "http", ""]))
        }
    }

    fn text(&mut self, schema: &Value) -> Value {
        match schema["format"].as_str() {
            Some("date-time") => json!(self.pick(TIMES)),
            Some("byte") => json!(self.pick(&["", "AA==", "aGVsbG8="])),
            _ if self.one_in(3) => {
                let letters = (0..12).map(|_| self.rng.random_range('\u{20}'..'\u{17f}'));
                json!(letters.collect::<String>())
            }
            _ => json!(self.pick(TEXTS)),
        }
    }

    fn metadata(&mut self) -> Value {
        json!({
            "annotations": { "a": self.pick(TEXTS), "b": self.pick(TEXTS) },
            "creationTimestamp": "2026-01-02T03:04:05Z",
            "finalizers": ["example.com/keep"],
            "generation": 3,
            "labels": { "app": "x" },
            "name": "made-up",
            "namespace": "default",
            "resourceVersion": "17",
            "uid": "0d5a4f3e-37a4-4f8f-9d1c-8a1de7c0f0aa",
        })
    }

    fn template_metadata(&mut self) -> Value {
        json!({ "annotations": { "a": self.pick(TEXTS) }, "labels": { "app": "x" } })
    }
}
