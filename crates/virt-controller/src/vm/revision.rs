//! Revisions of a VM's spec, one for each started generation, and the changes since.
//!
//! A revision is a `ControllerRevision` that the VM owns. Only the latest is kept.

use std::collections::BTreeSet;

use kubevirt_api::labels;
use serde_json::{Map, Value, json};

use super::live::Live;
use super::view::Vm;
use super::volume_moves::{self, Moves};
use super::{hotplug, links, live, template};

/// How many changed fields a message names.
const NAMED: usize = 5;
/// Members of a revision beside the spec: they show what the spec refers to.
const INSTANCETYPE: &str = "instancetypeRevision";
const VOLUMES: &str = "template.spec.volumes";
const PREFERENCE: &str = "preferenceRevision";

pub(super) fn name(vm: &Vm, generation: i64) -> String {
    let uid = vm.metadata.uid.as_deref().unwrap_or_default();
    format!("revision-start-vm-{uid}-{generation}")
}

/// Selects all revisions of a VM.
pub(super) fn selector(vm: &Vm) -> String {
    let uid = vm.metadata.uid.as_deref().unwrap_or_default();
    format!("{}={uid}", labels::CREATED_BY)
}

/// The revisions of instance type and preference that a guest is started with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) instancetype: Option<String>,
    pub(super) preference: Option<String>,
}

impl Choice {
    /// That of a stored revision of the spec.
    pub(super) fn of(data: &Value) -> Self {
        let name = |member: &str| data[member].as_str().map(ToOwned::to_owned);
        Self {
            instancetype: name(INSTANCETYPE),
            preference: name(PREFERENCE),
        }
    }
}

/// The revision to create when the VM is started.
pub(super) fn body(vm: &Vm, generation: i64, choice: &Choice) -> Value {
    let mut spec = json!(vm.spec);
    spec["template"] = vm.spec.template.clone();
    json!({
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": name(vm, generation),
            "namespace": vm.metadata.namespace,
            "labels": {labels::CREATED_BY: vm.metadata.uid},
            "ownerReferences": [template::owner(vm)],
        },
        "data": without_nulls(&json!({
            "spec": spec,
            (INSTANCETYPE): choice.instancetype,
            (PREFERENCE): choice.preference,
        })),
        "revision": generation,
    })
}

/// What a running guest may get and lose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Plugs {
    Nothing,
    Volumes,
}

/// Paths below `spec` of changes that the running guest does not have yet, in order.
///
/// Not counted: volumes that a running guest may get and lose, links of interfaces, and a firmware UUID
/// that was added later and equals the one that the guest has already.
pub(super) fn changes(vm: &Vm, started_from: &Value, plugs: Plugs, moves: &Moves) -> Vec<String> {
    let nothing = Value::Null;
    let before = started_from.pointer("/template/spec").unwrap_or(&nothing);
    let now = vm.spec.template.get("spec").unwrap_or(&nothing);
    let before = &volume_moves::with_followed(before, now, &moves.followed);
    let mut found = template_changes(vm, before, now, plugs);
    for (matcher, now) in [
        ("instancetype", &vm.spec.instancetype),
        ("preference", &vm.spec.preference),
    ] {
        let now = now.as_ref().unwrap_or(&nothing);
        for part in ["kind", "name"] {
            let before = &started_from[matcher][part];
            compare(&format!("{matcher}.{part}"), before, &now[part], &mut found);
        }
    }
    explained(moves, found)
}

/// The same for a guest that follows changes of its VM: between the specs with instance type and preference,
/// without the fields that it follows.
pub(super) fn changes_beyond(vm: &Vm, guest: &Live, plugs: Plugs, moves: &Moves) -> Vec<String> {
    let now = &guest.now;
    let before = volume_moves::with_followed(&guest.before, now, &moves.followed);
    let [before, now] = [&before, now].map(|spec| live::without_followed(spec, now));
    explained(moves, template_changes(vm, &before, &now, plugs))
}

/// Volumes that do not move as they should are not passed over in silence.
fn explained(moves: &Moves, found: BTreeSet<String>) -> Vec<String> {
    let explain = |path: String| match &moves.refused {
        Some(why) if path == VOLUMES => {
            format!("{path} ({why}; a restart does not copy their contents)")
        }
        _ => path,
    };
    found.into_iter().map(explain).collect()
}

fn template_changes(vm: &Vm, before: &Value, now: &Value, plugs: Plugs) -> BTreeSet<String> {
    let without_plugs = |spec: &Value| match plugs {
        Plugs::Volumes => hotplug::without_plugs(spec),
        Plugs::Nothing => spec.clone(),
    };
    let [before, now] = [before, now].map(|spec| {
        let spec = links::without_links(&without_plugs(spec));
        with_uuid(vm, &spec)
    });
    let mut found = BTreeSet::new();
    compare("template.spec", &before, &now, &mut found);
    found
}

/// Whether labels or annotations of the template have changed: they never reach a running guest, so
/// its VMI stays older than the VM.
pub(super) fn is_metadata_changed(vm: &Vm, started_from: &Value) -> bool {
    let part = |template: Option<&Value>, name: &str| {
        let part = template.and_then(|template| template.pointer(&format!("/metadata/{name}")));
        part.map(without_nulls)
            .filter(|part| part.as_object().is_some_and(|members| !members.is_empty()))
    };
    ["labels", "annotations"]
        .into_iter()
        .any(|name| part(started_from.get("template"), name) != part(Some(&vm.spec.template), name))
}

pub(super) fn message(changes: &[String]) -> String {
    let mut named: Vec<String> = changes
        .iter()
        .take(NAMED)
        .map(|path| format!("spec.{path}"))
        .collect();
    if changes.len() > NAMED {
        named.push(format!("{} more", changes.len() - NAMED));
    }
    format!(
        "changed since the start, restart to apply: {}",
        named.join(", ")
    )
}

/// The template with the firmware UUID that the guest gets.
fn with_uuid(vm: &Vm, spec: &Value) -> Value {
    let mut spec = without_nulls(spec);
    template::set_firmware_uuid(&mut spec, vm.metadata.name.as_deref().unwrap_or_default());
    spec
}

/// A null member means the same as a missing one.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let members = members.iter().filter(|(_, value)| !value.is_null());
            let kept = members.map(|(name, value)| (name.clone(), without_nulls(value)));
            Value::Object(kept.collect::<Map<_, _>>())
        }
        Value::Array(items) => items.iter().map(without_nulls).collect(),
        plain => plain.clone(),
    }
}

fn compare(path: &str, before: &Value, now: &Value, found: &mut BTreeSet<String>) {
    match (before, now) {
        (Value::Object(before), Value::Object(now)) => {
            let names: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
            for name in names {
                let side = |of: &Map<String, Value>| of.get(name).cloned().unwrap_or_default();
                compare(&format!("{path}.{name}"), &side(before), &side(now), found);
            }
        }
        (before, now) if before == now => {}
        // An empty list means the same as a missing one.
        (Value::Array(list), Value::Null) | (Value::Null, Value::Array(list))
            if list.is_empty() => {}
        _ => {
            found.insert(path.to_owned());
        }
    }
}
