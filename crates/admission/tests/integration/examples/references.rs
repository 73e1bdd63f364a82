//! Names: every object has a unique name, so that all examples can be applied together; referenced
//! objects are in one of the examples.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::catalogue::{examples, group_and_version, kind};

/// Kind and name.
type Named = (String, String);

#[test]
fn objects_are_unique_across_examples() {
    let mut made: BTreeMap<[String; 4], String> = BTreeMap::new();
    for example in examples() {
        for object in &example.objects {
            let metadata = &object["metadata"];
            let name = metadata["name"].as_str().expect("a name");
            let namespace = metadata["namespace"].as_str().unwrap_or_default();
            let (group, _) = group_and_version(object);
            // There is only one such object; several examples show different settings of it.
            if kind(object) == "KubeVirt" {
                assert_eq!((namespace, name), ("kubevirt", "kubevirt"));
                continue;
            }
            let key = [group, kind(object), namespace, name].map(str::to_owned);
            if let Some(other) = made.insert(key, example.file.clone()) {
                panic!(
                    "{} and {other} both create {} {name}",
                    example.file,
                    kind(object)
                );
            }
        }
    }
}

#[test]
fn referenced_objects_exist_in_the_examples() {
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
                .map(|(kind, name)| format!("{}: no example creates {kind} {name}", example.file)),
        );
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

/// References by kind and name, and fields that contain a name only. Users provide PVCs, secrets and
/// similar objects.
fn collect(key: &str, value: &Value, wanted: &mut Vec<Named>) {
    match (key, value) {
        // Created by the referencing object.
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
