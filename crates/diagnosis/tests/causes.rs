//! Every cause with situations as data, in `causes.yaml`: a base, such as a healthy VM, and a patch of
//! it. The first cause that is found is the one of the case.

use std::collections::{BTreeMap, BTreeSet};

use diagnosis::{Diagnosis, Observed, Severity, TABLE, diagnose, references};
use kubevirt_api::vmi::VirtualMachineInstanceSpec;
use reasons::{Reason, Subject};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    bases: BTreeMap<String, Base>,
    cases: Vec<Case>,
}

/// A starting point: another one and a patch of it.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Base {
    from: Option<String>,
    set: Value,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    /// Without it the VM is healthy.
    cause: Option<String>,
    on: String,
    #[serde(default)]
    set: Value,
    /// Ids of all further causes.
    #[serde(default)]
    also: Vec<String>,
    /// Part of the sentence.
    #[serde(default)]
    sentence: String,
    /// Part of the evidence.
    #[serde(default)]
    evidence: String,
    /// Part of the next command.
    #[serde(default)]
    next: String,
}

fn file() -> File {
    serde_saphyr::from_str(include_str!("causes.yaml")).expect("cases")
}

fn base(bases: &BTreeMap<String, Base>, name: &str) -> Value {
    let own = bases.get(name).expect("a base of that name");
    let mut value = match &own.from {
        Some(from) => base(bases, from),
        None => json!({}),
    };
    json_patch::merge(&mut value, &own.set);
    value
}

fn observed(file: &File, case: &Case) -> Value {
    let mut objects = base(&file.bases, &case.on);
    if case.set.is_object() {
        json_patch::merge(&mut objects, &case.set);
    }
    for map in [
        "claims",
        "dataVolumes",
        "secrets",
        "configMaps",
        "serviceAccounts",
        "storageClasses",
    ] {
        for (_, found) in objects
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
    objects
}

fn diagnosis(file: &File, case: &Case) -> Diagnosis {
    let observed: Observed = serde_json::from_value(observed(file, case)).expect("a situation");
    diagnose(&observed)
}

#[test]
fn situations_have_their_causes() {
    let file = file();
    let mut failures = Vec::new();
    for case in &file.cases {
        let found = diagnosis(&file, case);
        let ids: Vec<&str> = found.causes.iter().map(|cause| cause.id).collect();
        let wanted: Vec<&str> = case
            .cause
            .iter()
            .chain(&case.also)
            .map(String::as_str)
            .collect();
        if ids != wanted {
            failures.push(format!("{case:?} is {ids:?}: {:#?}", found.causes));
            continue;
        }
        let Some(first) = found.causes.first() else {
            assert!(found.healthy, "{case:?}");
            continue;
        };
        let evidence = serde_json::to_string(&first.evidence).expect("evidence");
        let parts = [
            (&first.sentence, &case.sentence),
            (&evidence, &case.evidence),
            (&first.next, &case.next),
        ];
        for (text, part) in parts {
            if !text.contains(part.as_str()) {
                failures.push(format!("{case:?}: {part:?} is not in {text:?}"));
            }
        }
        let is_bad = matches!(first.severity, Severity::Broken | Severity::Waiting);
        assert_eq!(found.healthy, !is_bad, "{case:?}");
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

#[test]
fn every_cause_has_a_situation_and_a_next_command() {
    let file = file();
    let mut covered: BTreeSet<&str> = BTreeSet::new();
    for case in &file.cases {
        covered.extend(case.cause.as_deref());
        for cause in diagnosis(&file, case).causes {
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
    assert_eq!(covered, ids);
    println!("causes: {}, situations: {}", ids.len(), file.cases.len());
}

/// Whether `name` is the reason of a condition, a container, a pod, an event or a status.
fn has_reason(value: &Value, name: &str) -> bool {
    match value {
        Value::Object(map) => {
            map.get("reason").is_some_and(|reason| reason == name)
                || map.values().any(|part| has_reason(part, name))
        }
        Value::Array(list) => list.iter().any(|part| has_reason(part, name)),
        _ => false,
    }
}

/// The reason and remedy of `why` are those of the condition, container or event.
#[test]
fn causes_name_the_reason_of_the_condition_and_its_remedy() {
    // Causes that follow from the spec name the reason that the condition will have.
    let inferred = [
        Reason::FailedPvcNotFound,
        Reason::ClaimLost,
        Reason::ProvisioningFailed,
        Reason::FailedDataVolumeImport,
        Reason::NotAllDVsReady,
        // That of the event; the state of the migration has no reason.
        Reason::FailedMigration,
        // That of the event; the one of the condition is Kubernetes' `Failed`.
        Reason::VirtualMachineBackupFailed,
        Reason::VirtualMachineBackupRestoreFailed,
    ];
    let file = file();
    for case in &file.cases {
        let found = diagnosis(&file, case);
        let Some(first) = found.causes.first() else {
            continue;
        };
        let rule = TABLE.iter().find(|rule| rule.id == first.id);
        let rule = rule.expect("a cause has a rule");
        let Some(name) = first.reason else {
            let is_optional = rule.id == "claim-pending";
            assert!(rule.reasons.is_empty() || is_optional, "{first:?}");
            continue;
        };
        let reason: Reason = name.parse().expect("a reason of the table");
        let is_listed = rule.reasons.is_empty() || rule.reasons.contains(&reason);
        assert!(is_listed, "{first:?}");
        let is_reported = has_reason(&observed(&file, case), name);
        assert!(is_reported || inferred.contains(&reason), "{first:?}");
        let remedy = Some(reason.remedy()).filter(|remedy| !remedy.is_empty());
        assert_eq!(first.remedy, remedy, "{first:?}");
    }
}

/// The conditions of a situation with the remedies that components write into their messages.
fn with_remedies(mut situation: Value) -> Value {
    for object in ["vm", "vmi"] {
        let Some(status) = situation.pointer_mut(&format!("/{object}/status")) else {
            continue;
        };
        let ending = status["reason"].as_str().unwrap_or_default().to_owned();
        let conditions = status["conditions"].as_array_mut();
        let conditions = conditions.map(Vec::as_mut_slice).unwrap_or_default();
        let pause = conditions.iter().find(|one| one["type"] == "Paused");
        let pause = pause.map(|one| one["reason"].as_str().unwrap_or_default().to_owned());
        for condition in conditions {
            let kind = condition["type"].as_str().unwrap_or_default();
            let own = condition["reason"].as_str().unwrap_or_default();
            // A guest is not ready because it is paused or has ended.
            let reason = match (kind, own) {
                ("Ready", "GuestNotRunning") => pause.as_deref().unwrap_or(&ending),
                ("Ready" | "Paused" | "Synchronized" | "Failure", own) => own,
                _ => continue,
            };
            if let Some(message) = condition["message"].as_str() {
                let plain = reasons::without_advice(reason, message);
                condition["message"] = reasons::advise(reason, plain).into();
            }
        }
    }
    situation
}

/// Components write the remedy into the message of a condition, and `why` prints it once.
#[test]
fn remedies_in_conditions_are_not_repeated() {
    let file = file();
    let mut advised = 0;
    for case in &file.cases {
        let plain = observed(&file, case);
        let with_remedies = with_remedies(plain.clone());
        advised += usize::from(plain != with_remedies);
        let found = |situation: Value| {
            let situation: Observed = serde_json::from_value(situation).expect("a situation");
            let text = serde_json::to_string_pretty(&diagnose(&situation)).expect("a diagnosis");
            // A removed remedy leaves its full stop.
            text.replace(".\"", "\"").replace("..", ".")
        };
        assert_eq!(found(with_remedies), found(plain), "{case:?}");
    }
    assert!(advised > 20, "{advised} situations have a remedy");
}

/// A reason that a component writes to a VMI is named by `why`, whichever it is.
#[test]
fn every_reason_of_a_vmi_is_named_with_its_remedy() {
    let file = file();
    let subjects = [Subject::Starting, Subject::Ended, Subject::Network];
    let all = Reason::ALL.iter();
    for reason in all.filter(|reason| subjects.contains(&reason.subject())) {
        let condition = json!({
            "type": "Synchronized", "status": "False", "reason": reason.as_str(), "message": "text",
        });
        let status = if reason.subject() == Subject::Ended {
            json!({"reason": reason.as_str()})
        } else {
            json!({"conditions": [condition]})
        };
        let on = if reason.subject() == Subject::Ended {
            "failed"
        } else {
            "scheduling"
        };
        let case = Case {
            cause: None,
            on: on.to_owned(),
            set: json!({"vmi": {"status": status}}),
            also: Vec::new(),
            sentence: String::new(),
            evidence: String::new(),
            next: String::new(),
        };
        let found = diagnosis(&file, &case);
        let first = found.causes.first().expect("a cause");
        assert_eq!(first.reason, Some(reason.as_str()), "{first:?}");
        assert_eq!(first.remedy.unwrap_or_default(), reason.remedy());
    }
}

#[test]
fn references_of_a_spec_have_their_fields() {
    let spec = json!({
        "serviceAccountName": "robot",
        "domain": {"firmware": {"kernelBoot": {"container": {
            "image": "k", "kernelPath": "/k", "imagePullSecret": "kernel"}}}},
        "accessCredentials": [{"sshPublicKey": {
            "source": {"secret": {"secretName": "keys"}}, "propagationMethod": {"noCloud": {}}}}],
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
    assert_eq!(names(&found.secrets), "keys net user");
    assert_eq!(names(&found.pull_secrets), "kernel pull");
    assert_eq!(names(&found.config_maps), "answers files");
    assert_eq!(names(&found.service_accounts), "robot token");
    assert_eq!(
        found.secrets["keys"],
        "spec.accessCredentials[0].sshPublicKey.source.secret.secretName"
    );
    assert_eq!(
        found.claims["base"],
        "spec.volumes[1].ephemeral.persistentVolumeClaim.claimName"
    );
}
