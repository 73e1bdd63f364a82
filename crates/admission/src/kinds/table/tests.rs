//! Runs the cases under `tests/kinds/` and compares them with the list of rules.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::*;
use crate::kinds::kind::Rejection;

/// The gates that a case can disable.
const GATES: &[&str] = &[
    "DecentralizedLiveMigration",
    "IncrementalBackup",
    "MigrationDowntimeTuning",
    "MigrationStallDetection",
    "OCIExport",
    "Plugins",
    "Snapshot",
    "Template",
];

const FILES: &[(&str, &str)] = &[
    ("backup", include_str!("../../../tests/kinds/backup.yaml")),
    ("clone", include_str!("../../../tests/kinds/clone.yaml")),
    ("export", include_str!("../../../tests/kinds/export.yaml")),
    (
        "instancetype",
        include_str!("../../../tests/kinds/instancetype.yaml"),
    ),
    (
        "kubevirt",
        include_str!("../../../tests/kinds/kubevirt.yaml"),
    ),
    (
        "migration-policy",
        include_str!("../../../tests/kinds/migration-policy.yaml"),
    ),
    ("plugin", include_str!("../../../tests/kinds/plugin.yaml")),
    ("pool", include_str!("../../../tests/kinds/pool.yaml")),
    (
        "snapshot",
        include_str!("../../../tests/kinds/snapshot.yaml"),
    ),
    (
        "template",
        include_str!("../../../tests/kinds/template.yaml"),
    ),
    (
        "workloads",
        include_str!("../../../tests/kinds/workloads.yaml"),
    ),
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// Valid objects by name.
    objects: BTreeMap<String, Value>,
    cases: Vec<Case>,
}

/// One request and the expected response; without `refused`, `rejected` and `fills`, it is accepted.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    rule: String,
    on: String,
    /// Differences from the valid object by JSON pointer; null removes a field.
    #[serde(default)]
    set: BTreeMap<String, Value>,
    /// Differences of the old object; turns the request into an update.
    old: Option<BTreeMap<String, Value>>,
    /// The request is a deletion.
    #[serde(default)]
    delete: bool,
    /// Disabled gates; all others of [`GATES`] are enabled.
    #[serde(default)]
    off: BTreeSet<String>,
    /// Enabled gates in addition to [`GATES`].
    #[serde(default, rename = "on-gates")]
    on_gates: Vec<String>,
    user: Option<String>,
    #[serde(default)]
    related: Related,
    /// Field and cause of the expected violation.
    refused: Option<(String, String)>,
    /// Part of the message of a refusal without a field.
    rejected: Option<String>,
    /// Part of the expected warning.
    warned: Option<String>,
    /// Expected defaults by JSON pointer.
    fills: Option<BTreeMap<String, Value>>,
}

impl Case {
    fn is_accepted(&self) -> bool {
        self.refused.is_none() && self.rejected.is_none() && self.fills.is_none()
    }

    fn config(&self) -> ClusterConfig {
        let on = GATES.iter().filter(|gate| !self.off.contains(**gate));
        let on: Vec<&str> = on
            .copied()
            .chain(self.on_gates.iter().map(String::as_str))
            .collect();
        let written = json!({
            "developerConfiguration": { "featureGates": on, "disabledFeatureGates": self.off },
        });
        ClusterConfig::from_kubevirt(&serde_json::from_value(written).expect("configuration"))
    }

    fn request(&self, base: &Value) -> Value {
        let object = changed(base, &self.set);
        let (group, version) = base["apiVersion"]
            .as_str()
            .and_then(|text| text.split_once('/'))
            .expect("group and version");
        let kind = json!({ "group": group, "version": version, "kind": base["kind"] });
        let user = self.user.as_deref().unwrap_or("a-user");
        let mut request = json!({ "kind": kind, "userInfo": { "username": user } });
        match &self.old {
            Some(old) => {
                request["operation"] = json!("UPDATE");
                request["oldObject"] = changed(base, old);
                request["object"] = object;
            }
            None if self.delete => {
                request["operation"] = json!("DELETE");
                request["oldObject"] = object;
            }
            None => {
                request["operation"] = json!("CREATE");
                request["object"] = object;
            }
        }
        request
    }
}

fn changed(base: &Value, set: &BTreeMap<String, Value>) -> Value {
    let mut object = base.clone();
    for (pointer, value) in set {
        set_pointer(&mut object, pointer, value);
    }
    object
}

/// Creates missing objects on the path; elements of lists must exist.
fn set_pointer(object: &mut Value, pointer: &str, value: &Value) {
    let (parent, key) = pointer.rsplit_once('/').expect("a pointer");
    let mut at = object;
    for step in parent.split('/').skip(1) {
        at = if let Ok(i) = step.parse::<usize>() {
            &mut at[i]
        } else {
            if at[step].is_null() {
                at[step] = Value::Object(Map::new());
            }
            &mut at[step]
        };
    }
    match (at.as_object_mut(), value) {
        (Some(parent), Value::Null) => {
            parent.remove(key);
        }
        (Some(parent), value) => {
            parent.insert(key.to_owned(), value.clone());
        }
        (None, value) => at[key.parse::<usize>().expect("an index")] = value.clone(),
    }
}

fn check(file: &str, number: usize, case: &Case, base: &Value) {
    let what = format!("{file}.yaml case {number} ({})", case.rule);
    let now: Time = serde_json::from_value(json!("2026-01-02T03:04:05Z")).expect("time");
    let new_uuid = || Uuid::from_u128(0xabcd_ef00_0000_0000_0000_0000_0000_0001);
    let env = Environment {
        now: &now,
        new_uuid: &new_uuid,
    };
    let config = case.config();
    let raw = case.request(base);
    let requester = if config.is_component(raw["userInfo"]["username"].as_str().expect("a user")) {
        Requester::Component
    } else {
        Requester::User
    };
    let row = find(&raw["kind"]).unwrap_or_else(|| panic!("{what}: no row for the kind"));
    let request = RawRequest {
        raw: &raw,
        operation: Operation::read(&raw["operation"]).expect("an operation"),
        requester,
        config: &config,
        env,
        related: &case.related,
    };
    let filled = row.fill(&request).expect("readable");
    if let Some(fills) = &case.fills {
        let filled = filled.unwrap_or_else(|| panic!("{what}: nothing is filled in"));
        for (pointer, value) in fills {
            assert_eq!(filled.after.pointer(pointer), Some(value), "{what}");
            assert_ne!(
                filled.before.pointer(pointer),
                Some(value),
                "{what}: it was set before"
            );
        }
        return;
    }
    if request.operation == Operation::Create
        && let Some(filled) = filled
        && DEFAULTS.contains(&case.rule.as_str())
    {
        assert_eq!(filled.before, filled.after, "{what}: changed");
    }
    let findings = row.validate(&request).expect("readable");
    if let Some((field, cause)) = &case.refused {
        let found = findings.violations.iter().any(|violation| {
            violation.rule == case.rule
                && violation.field == *field
                && violation.cause.as_str() == format!("FieldValue{cause}")
        });
        assert!(found, "{what}: {findings:#?}");
        assert!(findings.rejection.is_none(), "{what}: {findings:#?}");
    } else if let Some(part) = &case.rejected {
        let Rejection { rule, message } = findings
            .rejection
            .unwrap_or_else(|| panic!("{what}: no refusal"));
        assert_eq!(rule, case.rule, "{what}: {message}");
        assert!(message.contains(part), "{what}: {message}");
    } else {
        assert_eq!(findings.violations, [], "{what}");
        assert_eq!(findings.rejection, None, "{what}");
    }
    // The warning about an unsupported kind does not depend on the object.
    let of_kind = unsupported::kind(row.group, row.kind);
    let is_new = request.operation == Operation::Create;
    let mut warnings = findings.warnings;
    if let Some(of_kind) = of_kind.filter(|_| is_new) {
        let at = warnings.iter().position(|warning| *warning == of_kind);
        warnings.remove(at.unwrap_or_else(|| panic!("{what}: no warning about the kind")));
    }
    match &case.warned {
        Some(part) => assert!(
            warnings.iter().any(|warning| warning.contains(part)),
            "{what}: {warnings:?}"
        ),
        None => assert_eq!(warnings, Vec::<String>::new(), "{what}"),
    }
}

/// The rules that are defaults.
const DEFAULTS: &[&str] = &["clone.target", "migration.fill-label"];

#[test]
fn status_is_checked_for_its_types_only() {
    let config = ClusterConfig::default();
    let now: Time = serde_json::from_value(json!("2026-01-02T03:04:05Z")).expect("time");
    let env = Environment {
        now: &now,
        new_uuid: &Uuid::new_v4,
    };
    let check = |kind: &str, status: Value| {
        let object = json!({ "metadata": { "name": "a" }, "spec": {}, "status": status });
        let review = json!({ "request": {
            "kind": { "group": "kubevirt.io", "version": "v1", "kind": kind },
            "operation": "UPDATE", "subResource": "status", "object": object, "oldObject": object,
        }});
        let review = crate::review(crate::review::Stage::Validate, &review, &config, env);
        review["response"].clone()
    };
    for (kind, valid, invalid, field) in [
        (
            "VirtualMachineInstanceReplicaSet",
            json!({ "replicas": 1 }),
            json!({ "replicas": "one" }),
            "status.replicas",
        ),
        (
            "VirtualMachineInstanceMigration",
            json!({ "phase": "Pending" }),
            json!({ "conditions": {} }),
            "status.conditions",
        ),
    ] {
        // The spec would be refused.
        assert_eq!(check(kind, valid)["allowed"], true, "{kind}");
        let refused = check(kind, invalid);
        assert_eq!(refused["status"]["code"], 422, "{kind}: {refused}");
        let causes = &refused["status"]["details"]["causes"];
        assert_eq!(causes[0]["field"], field, "{kind}: {refused}");
    }
}

#[test]
fn cases_hold_and_every_rule_accepts_and_refuses() {
    let mut accepted = BTreeSet::new();
    let mut refused = BTreeSet::new();
    for (name, text) in FILES {
        let file: File = serde_saphyr::from_str(text).unwrap_or_else(|e| panic!("{name}: {e}"));
        for (i, case) in file.cases.iter().enumerate() {
            let base = &file.objects[&case.on];
            check(name, i + 1, case, base);
            let list = if case.is_accepted() {
                &mut accepted
            } else {
                &mut refused
            };
            list.insert(case.rule.clone());
        }
    }
    let known: BTreeSet<String> = rules().iter().map(|rule| rule.id.to_owned()).collect();
    assert_eq!(rules().len(), known.len(), "ids are unique");
    assert_eq!(accepted, known, "every rule has a case that it accepts");
    assert_eq!(
        refused, known,
        "every rule has a case that it refuses or fills in"
    );
}

#[test]
fn unsupported_kinds_are_in_the_table_and_warn() {
    for unsupported in unsupported::KINDS {
        let (group, kind) = (unsupported.group, unsupported.kind);
        let is_known = ROWS
            .iter()
            .any(|row| row.group == group && row.kind == kind);
        assert!(is_known, "{kind} is not in the table");
        let warning = unsupported::kind(group, kind).expect("a warning");
        assert!(warning.contains("this version cannot run it yet"));
    }
    assert_eq!(unsupported::kind("kubevirt.io", "KubeVirt"), None);
}
