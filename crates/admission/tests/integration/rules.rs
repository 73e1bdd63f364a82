//! Every rule with its cases, which are data in `tests/cases/`: a check accepts and refuses objects, a
//! default fills in fields and leaves others unchanged. A case is a patch of a valid object.
//!
//! A case of a check:
//!
//! ```yaml
//! - rule: disks.bus
//!   passes: [{ disk: { disk: { bus: sata } } }]
//!   fails: [{ disk: { disk: { bus: ide } }, field: spec.domain.devices.disks[0].disk.bus, cause: Invalid }]
//! ```
//!
//! Besides `patch` (a merge patch of the object) there are shortcuts for the first disk, volume,
//! network and interface. `gates`, `configuration` and `by` (the user) set the circumstances, `on` the
//! object (`vmi`, `template` of a VM, `vm`), `was` the object before an update; `as-it-is` skips the
//! defaults. A case under `fails` reports exactly the named violation and those under `also`.
//!
//! Related objects are under `instancetype`, `preference`, `presets` and `source-architecture`. The
//! cases of a default are under `fills` and `leaves`, each with `expect`: JSON pointers and values
//! after the defaults. The same holds for the rules `size.*` and `prefer.*`, by which instance type
//! and preference complete the template of a VM.

use std::{collections::BTreeMap, fs, path::PathBuf};

use admission::{checks::Requester, kinds::Related, review::Stage, review_with, rules, vm, vmi};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use cluster_config::ClusterConfig;
use defaults::Environment;
use instancetype::{Choice, Target};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kubevirt_api::{VirtualMachine, cluster_config::KubeVirtConfiguration};
use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;
use validation::Violation;

const VALID: &str = r#"
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: { name: good, namespace: default }
spec:
  domain:
    devices:
      disks: [{ name: root, disk: { bus: virtio } }, { name: seed, disk: { bus: virtio } }]
      interfaces: [{ name: default, masquerade: {} }]
    memory: { guest: 128Mi }
  networks: [{ name: default, pod: {} }]
  volumes:
    - { name: root, containerDisk: { image: "registry.example/guest:1" } }
    - { name: seed, cloudInitNoCloud: { userData: "hello" } }
"#;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    rule: String,
    #[serde(default)]
    passes: Vec<Case>,
    #[serde(default)]
    fails: Vec<Case>,
    #[serde(default)]
    fills: Vec<Case>,
    #[serde(default)]
    leaves: Vec<Case>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
struct Case {
    patch: Value,
    disk: Value,
    volume: Value,
    network: Value,
    interface: Value,
    on: On,
    was: Option<Value>,
    by: Option<String>,
    gates: Vec<String>,
    configuration: Value,
    as_it_is: bool,
    field: String,
    cause: String,
    also: Vec<(String, String, String)>,
    instancetype: Option<Value>,
    preference: Option<Value>,
    presets: Vec<Value>,
    source_architecture: Option<String>,
    expect: BTreeMap<String, Value>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum On {
    #[default]
    Vmi,
    Template,
    Vm,
}

fn rows() -> Vec<Row> {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut rows = Vec::new();
    for entry in fs::read_dir(directory).expect("cases") {
        let path = entry.expect("entry").path();
        let text = fs::read_to_string(&path).expect("readable");
        let shown = path.display().to_string();
        let own: Vec<Row> = serde_saphyr::from_str(&text).expect(&shown);
        rows.extend(own);
    }
    rows
}

/// The cases of `tests/kinds/`, only counted here: the tests of the table of kinds run them.
fn rows_of_kinds() -> Vec<Row> {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/kinds");
    let mut rows: BTreeMap<String, Row> = BTreeMap::new();
    for entry in fs::read_dir(directory).expect("cases") {
        let text = fs::read_to_string(entry.expect("entry").path()).expect("readable");
        let file: Value = serde_saphyr::from_str(&text).expect("cases");
        for case in file["cases"].as_array().expect("a list") {
            let rule = case["rule"].as_str().expect("a rule").to_owned();
            let row = rows.entry(rule.clone()).or_insert_with(|| Row {
                rule,
                passes: Vec::new(),
                fails: Vec::new(),
                fills: Vec::new(),
                leaves: Vec::new(),
            });
            let is_refused = ["refused", "rejected", "fills"]
                .iter()
                .any(|key| !case[key].is_null());
            let list = if is_refused {
                &mut row.fails
            } else {
                &mut row.passes
            };
            list.push(Case::default());
        }
    }
    rows.into_values().collect()
}

#[test]
fn checks_accept_and_refuse_their_cases() {
    let mut problems = Vec::new();
    for row in rows() {
        for case in &row.passes {
            let found = found(case);
            if !found.is_empty() {
                problems.push(format!("{}: {case:?} reports {found:#?}", row.rule));
            }
        }
        for case in &row.fails {
            let mut wanted = case.also.clone();
            wanted.push((row.rule.clone(), case.field.clone(), case.cause.clone()));
            wanted.sort();
            let mut found: Vec<_> = found(case).iter().map(signature).collect();
            found.sort();
            if found != wanted {
                problems.push(format!("{}: {case:?} reports {found:#?}", row.rule));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n\n"));
}

#[test]
fn defaults_fill_in_the_expected_values() {
    let mut problems = Vec::new();
    for row in rows() {
        for case in row.fills.iter().chain(&row.leaves) {
            let after = if is_applied(&row.rule) {
                applied(case, object(case))
            } else {
                completed(case, &object(case))
            };
            for (pointer, wanted) in &case.expect {
                let value = after.pointer(pointer).unwrap_or(&Value::Null);
                let is_right = match wanted.as_str() {
                    Some("a UUID") => value
                        .as_str()
                        .is_some_and(|text| Uuid::try_parse(text).is_ok()),
                    _ => value == wanted,
                };
                if !is_right {
                    problems.push(format!("{}: {case:?}: {pointer} is {value}", row.rule));
                }
            }
            if case.expect.is_empty() {
                problems.push(format!("{}: {case:?} expects nothing", row.rule));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n\n"));
}

#[test]
fn every_rule_has_accepted_and_refused_cases() {
    let mut rows = rows();
    rows.extend(rows_of_kinds());
    let list = rules::all();
    let mut problems = Vec::new();
    for rule in &list {
        let mut of_rule = rows.iter().filter(|row| row.rule == rule.id);
        let Some(row) = of_rule.next() else {
            problems.push(format!("{} has no cases: {}", rule.id, rule.description));
            continue;
        };
        let (accepted, refused) = if rule.id.starts_with("default.") || is_applied(rule.id) {
            (row.leaves.len(), row.fills.len())
        } else {
            (row.passes.len(), row.fails.len())
        };
        if accepted == 0 || refused == 0 {
            problems.push(format!(
                "{}: {accepted} cases pass, {refused} fail",
                rule.id
            ));
        }
        if of_rule.next().is_some() {
            problems.push(format!("{} has two rows of cases", rule.id));
        }
    }
    for row in &rows {
        if list.iter().all(|rule| rule.id != row.rule) {
            problems.push(format!("cases of {}, which is not a rule", row.rule));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    let count = |list: fn(&Row) -> usize| rows.iter().map(list).sum::<usize>();
    println!(
        "rules: {}, cases that pass: {}, that fail: {}",
        list.len(),
        count(|row| row.passes.len() + row.leaves.len()),
        count(|row| row.fails.len() + row.fills.len()),
    );
}

#[test]
fn ids_are_unique_and_rules_are_described() {
    let mut ids: Vec<_> = rules::all().iter().map(|rule| rule.id).collect();
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count);
    for rule in rules::all() {
        assert!(!rule.description.is_empty(), "{rule:?}");
    }
}

/// Whether a rule is one of instance types or preferences.
fn is_applied(rule: &str) -> bool {
    rule.starts_with("size.") || rule.starts_with("prefer.")
}

fn signature(violation: &Violation) -> (String, String, String) {
    (
        violation.rule.to_owned(),
        violation.field.clone(),
        format!("{:?}", violation.cause),
    )
}

fn config(case: &Case) -> ClusterConfig {
    let mut written = match &case.configuration {
        Value::Null => json!({}),
        given => given.clone(),
    };
    if !case.gates.is_empty() {
        written["developerConfiguration"]["featureGates"] = json!(case.gates);
    }
    let written: KubeVirtConfiguration = serde_json::from_value(written).expect("configuration");
    let mut config = ClusterConfig::from_kubevirt(&written);
    config.even_emulator_threads = Some(String::new());
    config
}

/// The object of a case, before defaults.
fn object(case: &Case) -> Value {
    let mut vmi: Value = serde_saphyr::from_str(VALID).expect("valid YAML");
    let shortcuts = [
        (&case.disk, "/spec/domain/devices/disks/0"),
        (&case.volume, "/spec/volumes/0"),
        (&case.network, "/spec/networks/0"),
        (&case.interface, "/spec/domain/devices/interfaces/0"),
    ];
    for (given, pointer) in shortcuts {
        if let Value::Object(members) = given {
            let element = vmi.pointer_mut(pointer).expect("an element");
            let mut other = json!({ "name": element["name"] });
            json_patch::merge(&mut other, &Value::Object(members.clone()));
            *element = other;
        }
    }
    let mut object = match case.on {
        On::Vmi => vmi,
        On::Template | On::Vm => json!({
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachine",
            "metadata": { "name": "good", "namespace": "default" },
            "spec": { "runStrategy": "Halted", "template": { "spec": vmi["spec"] } },
        }),
    };
    match case.on {
        On::Template => json_patch::merge(&mut object["spec"]["template"], &case.patch_or_none()),
        On::Vmi | On::Vm => json_patch::merge(&mut object, &case.patch_or_none()),
    }
    object
}

impl Case {
    fn patch_or_none(&self) -> Value {
        match &self.patch {
            Value::Null => json!({}),
            patch => patch.clone(),
        }
    }
}

fn now() -> Time {
    serde_json::from_value(json!("2026-01-02T03:04:05Z")).expect("time")
}

fn related(case: &Case) -> Related {
    let preset = |preset: &Value| serde_json::from_value(preset.clone()).expect("a preset");
    Related {
        instancetype: case
            .instancetype
            .clone()
            .map(|size| serde_json::from_value(size).expect("an instance type")),
        preference: case
            .preference
            .clone()
            .map(|preference| serde_json::from_value(preference).expect("a preference")),
        presets: case.presets.iter().map(preset).collect(),
        architecture: case.source_architecture.clone(),
        ..Related::default()
    }
}

/// The VM with instance type and preference applied.
fn applied(case: &Case, mut object: Value) -> Value {
    let related = related(case);
    let vm: VirtualMachine = serde_json::from_value(object.clone()).expect("reads");
    let mut spec = vm.spec.template.spec.expect("a template");
    let metadata = vm.spec.template.metadata.unwrap_or_default();
    let mut annotations = metadata.annotations.unwrap_or_default();
    let mut target = Target {
        spec: &mut spec,
        annotations: &mut annotations,
    };
    let choice = Choice {
        instancetype: related.instancetype.as_deref(),
        preference: related.preference.as_deref(),
    };
    defaults::template::complete(&mut target, choice, &config(case), "spec").expect("completes");
    object["spec"]["template"]["spec"] = json!(spec);
    object["spec"]["template"]["metadata"]["annotations"] = json!(annotations);
    object
}

/// The object after the mutating webhook.
fn completed(case: &Case, object: &Value) -> Value {
    let now = now();
    let env = Environment {
        now: &now,
        new_uuid: &Uuid::new_v4,
    };
    let request = json!({
        "request": {
            "uid": "1",
            "operation": if case.was.is_some() { "UPDATE" } else { "CREATE" },
            "kind": { "group": "kubevirt.io", "version": "v1", "kind": object["kind"] },
            "userInfo": { "username": case.by.as_deref().unwrap_or("a-user") },
            "object": object,
            "oldObject": object,
        },
    });
    let related = related(case);
    let review = review_with(Stage::Mutate, &request, &config(case), env, &related);
    let response = &review["response"];
    assert_eq!(response["allowed"], true, "{case:?}: {response:#}");
    let mut object = object.clone();
    if let Some(patch) = response["patch"].as_str() {
        let patch = STANDARD.decode(patch).expect("base64");
        let patch = serde_json::from_slice::<json_patch::Patch>(&patch).expect("JSON patch");
        json_patch::patch(&mut object, &patch).expect("applies");
    }
    object
}

/// The violations that the checks report about the object of a case.
fn found(case: &Case) -> Vec<Violation> {
    let config = config(case);
    let now = now();
    let env = Environment {
        now: &now,
        new_uuid: &Uuid::new_v4,
    };
    let raw = object(case);
    let complete = |raw: &Value| {
        if case.as_it_is {
            raw.clone()
        } else {
            completed(case, raw)
        }
    };
    let is_component = case.by.as_deref().is_some_and(|by| config.is_component(by));
    let requester = if is_component {
        Requester::Component
    } else {
        Requester::User
    };
    match (case.on, &case.was) {
        (On::Vmi, None) => {
            let vmi = serde_json::from_value(complete(&raw)).expect("reads");
            vmi::validate_create(&vmi, &config, requester)
        }
        (On::Vmi, Some(was)) => {
            let old = object(&Case {
                patch: was.clone(),
                ..Case::default()
            });
            let [old, new] =
                [old, raw].map(|object| serde_json::from_value(object).expect("reads"));
            vmi::validate_update(&vmi::Update {
                old: &old,
                new: &new,
                config: &config,
                caller: match case.by.as_deref() {
                    None => vmi::Caller::User,
                    Some("a token of no node") => vmi::Caller::Handler(vmi::Identity::Token(None)),
                    Some(node) if node.starts_with("node") => {
                        vmi::Caller::Handler(vmi::Identity::Token(Some(node)))
                    }
                    Some(_) => vmi::Caller::Component,
                },
            })
        }
        (On::Template | On::Vm, was) => {
            let old = was.as_ref().map(|was| {
                let old = Case {
                    patch: was.clone(),
                    on: case.on,
                    ..Case::default()
                };
                serde_json::from_value(object(&old)).expect("reads")
            });
            let new = serde_json::from_value(complete(&raw)).expect("reads");
            let related = related(case);
            vm::validate(&vm::Input {
                vm: &new,
                old: old.as_ref(),
                found: vm::Found {
                    instancetype: related.instancetype.as_deref(),
                    preference: related.preference.as_deref(),
                    vmi: None,
                },
                config: &config,
                requester,
                env,
            })
        }
    }
}
