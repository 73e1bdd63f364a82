//! Names: each object has one of its own, so that all examples can be applied together, and what
//! an example leans on is in one of them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::catalogue::{examples, group_and_version, kind};

/// Kind and name.
type Named = (String, String);

#[test]
fn no_two_examples_make_the_same_object() {
    let mut made: BTreeMap<[String; 4], String> = BTreeMap::new();
    for example in examples() {
        for object in &example.objects {
            let metadata = &object["metadata"];
            let name = metadata["name"].as_str().expect("a name");
            let namespace = metadata["namespace"].as_str().unwrap_or_default();
            let (group, _) = group_and_version(object);
            // The platform has one such object, which several examples show from several sides.
            if kind(object) == "KubeVirt" {
                assert_eq!((namespace, name), ("kubevirt", "kubevirt"));
                continue;
            }
            let key = [group, kind(object), namespace, name].map(str::to_owned);
            if let Some(other) = made.insert(key, example.file.clone()) {
                panic!(
                    "{} and {other} both make {} {name}",
                    example.file,
                    kind(object)
                );
            }
        }
    }
}

#[test]
fn what_an_example_names_is_in_an_example() {
    let all = examples();
    let made: BTreeSet<Named> = all
        .iter()
        .flat_map(|example| &example.objects)
        .map(|object| named(kind(object), &object["metadata"]["name"]))
        .collect();
    let mut missing = Vec::new();
    for example in &all {
        let mut wanted = Vec::new();
        for object in &example.objects {
            collect("", &object["spec"], &mut wanted);
        }
        missing.extend(
            wanted
                .iter()
                .filter(|reference| !made.contains(*reference))
                .map(|(kind, name)| format!("{}: no example makes {kind} {name}", example.file)),
        );
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

/// References by kind and name, and fields that hold a bare name. Claims, secrets and the like
/// are the reader's own.
fn collect(key: &str, value: &Value, wanted: &mut Vec<Named>) {
    match (key, value) {
        // Made by the object that names it.
        ("target", _) => {}
        ("priorityClassName", name) => wanted.push(named("PriorityClass", name)),
        ("resourceClaimTemplateName", name) => wanted.push(named("ResourceClaimTemplate", name)),
        ("virtualMachineSnapshotName", name) => wanted.push(named("VirtualMachineSnapshot", name)),
        (_, Value::Object(fields)) => {
            let own = |kind: &&str| *kind != "PersistentVolumeClaim";
            if let Some(kind) = value["kind"].as_str().filter(own)
                && value["name"].is_string()
            {
                wanted.push(named(kind, &value["name"]));
            }
            for (key, value) in fields {
                collect(key, value, wanted);
            }
        }
        (key, Value::Array(items)) => items.iter().for_each(|item| collect(key, item, wanted)),
        _ => {}
    }
}

fn named(kind: &str, name: &Value) -> Named {
    (kind.to_owned(), name.as_str().expect("a name").to_owned())
}
