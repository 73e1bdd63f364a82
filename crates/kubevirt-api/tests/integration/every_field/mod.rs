//! Objects of every kind, generated from the schemas until every field was set: they are
//! written as they were read, as JSON and as YAML, byte for byte.

#![expect(
    clippy::cast_possible_truncation,
    reason = "bounds of schemas are small or those of the integers themselves"
)]

mod objects;

use std::{cell::RefCell, collections::BTreeSet};

use kubevirt_api::{VirtualMachineInstance, crds};
use proptest::{
    strategy::{Strategy as _, ValueTree as _},
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use serde::{Deserialize as _, Serialize, de::DeserializeOwned};
use serde_json::Value;

use objects::{Objects, paths};

/// So many objects of a kind at most.
const CASES: usize = 600;
/// And so many at least, however early every field was reached.
const AT_LEAST: usize = 24;

/// A kind: the name of its definition, the version that the type writes, the test of one object.
struct Kind {
    name: String,
    api_version: &'static str,
    survives: fn(&Value),
    read: fn(&Value) -> Result<(), String>,
}

macro_rules! kinds {
    ($($kind:ty,)+) => {
        /// Every kind.
        fn kinds() -> Vec<Kind> {
            vec![$(Kind {
                name: format!("{}.{}", <$kind>::PLURAL, <$kind>::GROUP),
                api_version: <$kind>::API_VERSION,
                survives: survives::<$kind>,
                read: |object| <$kind>::deserialize(object).map(drop).map_err(|e| e.to_string()),
            },)+]
        }
    };
}
kubevirt_api::for_every_kind!(kinds);

fn survives<T: Serialize + DeserializeOwned>(object: &Value) {
    let json = serde_json::to_string_pretty(object).expect("writes");
    let typed: T = serde_json::from_str(&json).expect(&json);
    same(
        &json,
        &serde_json::to_string_pretty(&typed).expect("writes"),
    );
    let yaml = serde_saphyr::to_string(object).expect("writes");
    let typed: T = serde_saphyr::from_str(&yaml).expect(&yaml);
    same(&yaml, &serde_saphyr::to_string(&typed).expect("writes"));
}

#[test]
fn notations_are_preserved_or_normalised_like_kubernetes() {
    let check = |path: &str, read: Value, written: Value| {
        let mut object = serde_json::json!({ "spec": { "domain": { "devices": {} } } });
        let mut place = &mut object;
        for step in path.split('.') {
            place = &mut place[step];
        }
        *place = read;
        let vmi: VirtualMachineInstance = serde_json::from_value(object).expect(path);
        let after = serde_json::to_value(vmi).expect("writes");
        let found = path.split('.').fold(&after, |value, step| &value[step]);
        assert_eq!(*found, written, "{path}");
    };
    let guest = "spec.domain.memory.guest";
    for text in ["1.5Gi", "1e3", "100m", "+2", "00012", "-1", "5.", ".5"] {
        check(guest, Value::from(text), Value::from(text));
    }
    check(guest, Value::from(1024), Value::from("1024"));
    check(guest, Value::from(1.5), Value::from("1.5"));
    let created = "metadata.creationTimestamp";
    for (read, written) in [
        ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"),
        ("2026-01-02T03:04:05.123456Z", "2026-01-02T03:04:05Z"),
        ("2026-01-02T04:04:05+01:00", "2026-01-02T03:04:05Z"),
    ] {
        check(created, Value::from(read), Value::from(written));
    }
    let port = "spec.readinessProbe.httpGet.port";
    for value in [Value::from(80), Value::from("http"), Value::from("80")] {
        check(port, value.clone(), value);
    }
}

/// Shows the first line that differs, with the lines before it.
fn same(before: &str, after: &str) {
    let lines = before.lines().zip(after.lines());
    let equal = lines.take_while(|(before, after)| before == after).count();
    let around = |text: &str| {
        let lines = text.lines().skip(equal.saturating_sub(6)).take(10);
        lines.collect::<Vec<_>>().join("\n")
    };
    assert!(
        before == after,
        "read:\n{}\nwritten:\n{}",
        around(before),
        around(after)
    );
}

fn definition(name: &str) -> Value {
    let (_, text) = crds::ALL.iter().find(|(one, _)| *one == name).expect(name);
    serde_saphyr::from_str(text).expect("YAML")
}

#[test]
fn list_of_kinds_matches_the_definitions() {
    let listed: BTreeSet<String> = kinds().into_iter().map(|kind| kind.name).collect();
    let defined: BTreeSet<String> = crds::ALL
        .iter()
        .map(|(name, _)| (*name).to_owned())
        .collect();
    assert_eq!(listed, defined);
}

impl Kind {
    fn objects(&self) -> Objects {
        let definition = definition(&self.name);
        let spec = &definition["spec"];
        let versions = spec["versions"].as_array().expect("versions");
        let stored = versions.iter().find(|version| version["storage"] == true);
        let stored = stored.expect("a stored version");
        Objects {
            api_version: self.api_version.to_owned(),
            kind: spec["names"]["kind"].as_str().expect("a kind").to_owned(),
            schema: stored["schema"]["openAPIV3Schema"].clone(),
            reached: RefCell::default(),
        }
    }
}

fn runner() -> TestRunner {
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    TestRunner::new_with_rng(Config::default(), rng)
}

#[test]
fn generated_objects_of_every_kind_round_trip_with_every_field() {
    for kind in kinds() {
        let (name, objects, mut runner) = (&kind.name, kind.objects(), runner());
        let all = paths(&objects.schema);
        for case in 0..CASES {
            let object = objects.new_tree(&mut runner).expect("an object").current();
            (kind.survives)(&object);
            if case >= AT_LEAST && all.is_subset(&objects.reached.borrow()) {
                break;
            }
        }
        let reached = objects.reached.borrow();
        let missed: Vec<&String> = all.difference(&reached).collect();
        assert!(missed.is_empty(), "{name}: never reached: {missed:#?}");
        println!("{name}: {} of {} paths", reached.len(), all.len());
    }
}

/// Go's decoder reads null as the empty value of any type.
#[test]
fn null_in_place_of_any_field_leaves_an_object_readable() {
    let mut wrong = BTreeSet::new();
    for kind in kinds() {
        let (objects, mut runner, mut done) = (kind.objects(), runner(), BTreeSet::new());
        for _ in 0..AT_LEAST {
            let object = objects.new_tree(&mut runner).expect("an object").current();
            let mut pointers = Vec::new();
            let root = Place {
                pointer: "",
                path: "",
            };
            fields(&object, &objects.schema, root, &mut pointers);
            // The time of Kubernetes' own type of conditions is required.
            pointers.retain(|(_, path)| path != ".status.conditions[].lastTransitionTime");
            for (pointer, path) in pointers {
                if !done.insert(path.clone()) {
                    continue;
                }
                let mut holed = object.clone();
                *holed.pointer_mut(&pointer).expect("a field") = Value::Null;
                if let Err(why) = (kind.read)(&holed) {
                    wrong.insert(format!("{}{path}: {why}", kind.name));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The fields of objects that the schema names: where each is, and its path without indices. Keys of
/// maps are data, and metadata is Kubernetes' own type.
fn fields(value: &Value, schema: &Value, at: Place<'_>, out: &mut Vec<(String, String)>) {
    let Place { pointer, path } = at;
    match value {
        Value::Object(members) => {
            for (name, inner) in members {
                let step = name.replace('~', "~0").replace('/', "~1");
                let pointer = &format!("{pointer}/{step}");
                let path = &format!("{path}.{name}");
                let place = Place { pointer, path };
                let declared = &schema["properties"][name];
                if declared.is_object() {
                    out.push((pointer.clone(), path.clone()));
                    fields(inner, declared, place, out);
                } else {
                    fields(inner, &schema["additionalProperties"], place, out);
                }
            }
        }
        Value::Array(items) => {
            for (index, inner) in items.iter().enumerate() {
                let pointer = &format!("{pointer}/{index}");
                let path = &format!("{path}[]");
                fields(inner, &schema["items"], Place { pointer, path }, out);
            }
        }
        _ => {}
    }
}

/// Where a value is in an object.
#[derive(Clone, Copy)]
struct Place<'a> {
    pointer: &'a str,
    path: &'a str,
}
