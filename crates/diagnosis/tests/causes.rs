//! Every cause with situations as data, in `causes.yaml`: a world that is well, or one on the way,
//! and what is different in it. The first cause that is found is the one of the case.

use std::collections::{BTreeMap, BTreeSet};

use diagnosis::{Diagnosis, Observed, Severity, TABLE, diagnose, references};
use kubevirt_api::vmi::VirtualMachineInstanceSpec;
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    worlds: BTreeMap<String, World>,
    cases: Vec<Case>,
}

/// A starting point: another one and what is different.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct World {
    from: Option<String>,
    set: Value,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    /// Nothing is found without it.
    cause: Option<String>,
    on: String,
    #[serde(default)]
    set: Value,
    /// Ids that are found after the first, all of them.
    #[serde(default)]
    also: Vec<String>,
    /// Part of the sentence.
    #[serde(default)]
    says: String,
    /// Part of the evidence.
    #[serde(default)]
    seen: String,
    /// Part of the next command.
    #[serde(default)]
    next: String,
}

fn file() -> File {
    serde_saphyr::from_str(include_str!("causes.yaml")).expect("cases")
}

fn world(worlds: &BTreeMap<String, World>, name: &str) -> Value {
    let own = worlds.get(name).expect("a world of that name");
    let mut base = match &own.from {
        Some(from) => world(worlds, from),
        None => json!({}),
    };
    json_patch::merge(&mut base, &own.set);
    base
}

fn answer(file: &File, case: &Case) -> Diagnosis {
    let mut world = world(&file.worlds, &case.on);
    if case.set.is_object() {
        json_patch::merge(&mut world, &case.set);
    }
    for map in [
        "claims",
        "dataVolumes",
        "secrets",
        "configMaps",
        "serviceAccounts",
        "storageClasses",
    ] {
        for (_, found) in world
            .get_mut(map)
            .and_then(Value::as_object_mut)
            .into_iter()
            .flatten()
        {
            if found == "absent" {
                *found = Value::Null;
            }
        }
    }
    let seen: Observed = serde_json::from_value(world).expect("a world");
    diagnose(&seen)
}

#[test]
fn every_situation_is_recognized() {
    let file = file();
    let mut faults = Vec::new();
    for case in &file.cases {
        let found = answer(&file, case);
        let ids: Vec<&str> = found.causes.iter().map(|cause| cause.id).collect();
        let wanted: Vec<&str> = case
            .cause
            .iter()
            .chain(&case.also)
            .map(String::as_str)
            .collect();
        if ids != wanted {
            faults.push(format!("{case:?} is {ids:?}: {:#?}", found.causes));
            continue;
        }
        let Some(first) = found.causes.first() else {
            assert!(found.healthy, "{case:?}");
            continue;
        };
        let evidence = serde_json::to_string(&first.evidence).expect("evidence");
        let parts = [
            (&first.sentence, &case.says),
            (&evidence, &case.seen),
            (&first.next, &case.next),
        ];
        for (text, part) in parts {
            if !text.contains(part.as_str()) {
                faults.push(format!("{case:?}: {text:?} lacks {part:?}"));
            }
        }
        let is_bad = matches!(first.severity, Severity::Broken | Severity::Waiting);
        assert_eq!(found.healthy, !is_bad, "{case:?}");
    }
    assert!(faults.is_empty(), "{}", faults.join("\n\n"));
}

#[test]
fn every_cause_has_a_situation_and_says_what_to_do() {
    let file = file();
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    for case in &file.cases {
        seen.extend(case.cause.as_deref());
        for cause in answer(&file, case).causes {
            assert!(cause.sentence.ends_with(['.', '?']), "{cause:?}");
            assert!(!cause.evidence.is_empty(), "{cause:?}");
            let is_command = ["kubectl ", "virtctl "]
                .iter()
                .any(|program| cause.next.starts_with(program));
            assert!(is_command, "{cause:?}");
        }
    }
    let ids: BTreeSet<&str> = TABLE.iter().map(|rule| rule.id).collect();
    assert_eq!(ids.len(), TABLE.len(), "ids are unique");
    assert_eq!(seen, ids);
    println!("causes: {}, situations: {}", ids.len(), file.cases.len());
}

#[test]
fn references_of_a_spec_are_found_with_their_places() {
    let spec = json!({
        "serviceAccountName": "robot",
        "domain": {},
        "volumes": [
            { "name": "a", "persistentVolumeClaim": { "claimName": "data" } },
            { "name": "b", "ephemeral": { "persistentVolumeClaim": { "claimName": "base" } } },
            { "name": "c", "dataVolume": { "name": "import" } },
            { "name": "d", "containerDisk": { "image": "i", "imagePullSecret": "pull" } },
            { "name": "e", "cloudInitNoCloud": {
                "secretRef": { "name": "user" }, "networkDataSecretRef": { "name": "net" } } },
            { "name": "f", "sysprep": { "configMap": { "name": "answers" } } },
            { "name": "g", "secret": { "secretName": "maybe", "optional": true } },
            { "name": "h", "configMap": { "name": "files" } },
            { "name": "i", "serviceAccount": { "serviceAccountName": "token" } },
        ],
    });
    let spec: VirtualMachineInstanceSpec = serde_json::from_value(spec).expect("a spec");
    let found = references(&spec, "spec");
    let names = |map: &BTreeMap<String, String>| map.keys().cloned().collect::<Vec<_>>().join(" ");
    assert_eq!(names(&found.claims), "base data");
    assert_eq!(names(&found.data_volumes), "import");
    assert_eq!(names(&found.secrets), "net pull user");
    assert_eq!(names(&found.config_maps), "answers files");
    assert_eq!(names(&found.service_accounts), "robot token");
    assert_eq!(
        found.claims["base"],
        "spec.volumes[1].ephemeral.persistentVolumeClaim.claimName"
    );
}
