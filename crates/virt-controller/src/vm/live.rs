//! Changes of a template that a running guest follows: processors, memory, and the nodes that it may run on.
//! Pure.
//!
//! The VMI gets them at once. Processors and memory take effect after a migration to a pod of that size, the
//! others at the next migration.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubevirt_api::VirtualMachineInstance;
use kubevirt_api::conditions::{self, Condition as _};
use kubevirt_api::quantity::Amount;
use kubevirt_api::vmi::VirtualMachineInstanceSpec as Spec;
use kubevirt_api::vmi_status::{
    VirtualMachineInstanceCondition, VirtualMachineInstanceConditionType as Condition,
    VirtualMachineInstancePhase as Phase,
};
use model::{MEMORY_CHANGED, Topology};
use serde_json::{Map, Value, json};

use crate::merge_patch::in_place_of;

pub(super) const SOCKETS: &str = "template.spec.domain.cpu.sockets";
pub(super) const MEMORY: &str = "template.spec.domain.memory.guest";
/// Paths in the spec of a VMI.
const FOLLOWED: [&str; 5] = [
    "/domain/cpu/sockets",
    "/domain/memory/guest",
    "/nodeSelector",
    "/affinity",
    "/tolerations",
];
/// Followed by copy.
const PLACEMENT: [&str; 3] = ["nodeSelector", "affinity", "tolerations"];

/// A running guest and the spec that it could follow.
#[derive(Debug)]
pub(super) struct Live {
    /// The spec of a VMI made of the VM as it was at the guest's start.
    pub(super) before: Value,
    /// The spec of a VMI made of the VM as it is now.
    pub(super) now: Value,
    pub(super) vmi: Box<VirtualMachineInstance>,
    /// Virtual CPUs for one CPU that their pod requests.
    pub(super) cpu_allocation_ratio: u64,
}

/// What the guest follows.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Follow {
    /// A merge patch of the VMI.
    pub(super) patch: Option<Value>,
    /// The guest takes no changes now.
    pub(super) waits: bool,
    /// Fields that need a restart, with the reason.
    pub(super) refused: Vec<String>,
}

enum Outcome {
    Same,
    /// Members of the spec.
    Apply(Value),
    /// The same, of a change that is taken back: the guest has it already.
    TakeBack(Value),
    Refuse(String),
}

/// A spec without the fields that a running guest follows. `now` decides: a field that was removed from the
/// template is not followed.
pub(super) fn without_followed(spec: &Value, now: &Value) -> Value {
    let mut rest = spec.clone();
    for path in FOLLOWED {
        let is_placement = path.matches('/').count() == 1;
        if now.pointer(path).is_none_or(Value::is_null) && !is_placement {
            continue;
        }
        remove(&mut rest, path);
    }
    for path in ["/domain/cpu", "/domain/memory"] {
        if rest.pointer(path) == Some(&json!({})) {
            remove(&mut rest, path);
        }
    }
    rest
}

fn remove(spec: &mut Value, path: &str) {
    let Some((parent, member)) = path.rsplit_once('/') else {
        return;
    };
    if let Some(Value::Object(members)) = spec.pointer_mut(parent) {
        members.remove(member);
    }
}

/// The changes that failed after the VMI had got them, or wait for a move that is not possible any more.
pub(super) fn failed(all: &[VirtualMachineInstanceCondition]) -> Vec<String> {
    let immobile = immobility(all);
    let of = |kind: &Condition, field: &str| {
        let condition = conditions::find(all, kind)?;
        if condition.status == conditions::FALSE {
            return Some(format!("{field} ({})", condition.message()));
        }
        Some(format!("{field} ({})", immobile.as_ref()?))
    };
    [
        of(&Condition::HotVCPUChange, SOCKETS),
        of(&Condition::HotMemoryChange, MEMORY),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The changes that were taken back, which the guest follows even if it needs a restart: otherwise it would still
/// migrate for them.
pub(super) fn take_back(live: &Live) -> Follow {
    let wanted = serde_json::from_value::<Spec>(live.now.clone());
    let outcomes = wanted.map(|wanted| [processors(live, &wanted), memory(live, &wanted)]);
    let mut spec = Map::new();
    for outcome in outcomes.into_iter().flatten() {
        if let Outcome::TakeBack(part) = outcome {
            merge(&mut spec, part);
        }
    }
    patched(live, &spec)
}

pub(super) fn follow(live: &Live) -> Follow {
    let Ok(wanted) = serde_json::from_value::<Spec>(live.now.clone()) else {
        // An invalid template is refused by admission.
        return Follow::default();
    };
    let mut found = Follow::default();
    let mut spec = Map::new();
    for outcome in [
        processors(live, &wanted),
        memory(live, &wanted),
        placement(live),
    ] {
        match outcome {
            Outcome::Same => {}
            Outcome::Refuse(why) => found.refused.push(why),
            Outcome::Apply(part) | Outcome::TakeBack(part) => merge(&mut spec, part),
        }
    }
    Follow {
        refused: found.refused,
        ..patched(live, &spec)
    }
}

fn patched(live: &Live, spec: &Map<String, Value>) -> Follow {
    let mut found = Follow::default();
    if spec.is_empty() {
        return found;
    }
    if takes_changes(&live.vmi) {
        let mut metadata = json!({"resourceVersion": live.vmi.metadata.resource_version});
        let memory = spec.get("domain").and_then(|domain| domain.get("memory"));
        if memory.is_some() {
            metadata["annotations"] = json!({MEMORY_CHANGED: "true"});
        }
        found.patch = Some(json!({"metadata": metadata, "spec": spec}));
    } else {
        found.waits = true;
    }
    found
}

/// Whether the guest runs, and does not move: its new pod was made for the spec at the start of the move.
fn takes_changes(vmi: &VirtualMachineInstance) -> bool {
    let Some(status) = &vmi.status else {
        return false;
    };
    let is_moving = status.migration_state.as_ref().is_some_and(|state| {
        state.start_timestamp.is_some()
            && state.completed != Some(true)
            && state.failed != Some(true)
    });
    let can_move = conditions::find(&status.conditions, &Condition::LiveMigratable);
    status.phase == Some(Phase::Running) && !is_moving && can_move.is_some()
}

/// Why the guest cannot move to another pod, if it is known that it cannot.
fn immobility(all: &[VirtualMachineInstanceCondition]) -> Option<String> {
    let condition = conditions::find(all, &Condition::LiveMigratable)?;
    let why = || format!("the guest cannot migrate: {}", condition.message());
    (condition.status == conditions::FALSE).then(why)
}

fn known(vmi: &VirtualMachineInstance) -> &[VirtualMachineInstanceCondition] {
    let status = vmi.status.as_ref();
    status.map_or(&[], |status| &status.conditions)
}

fn has_failed(vmi: &VirtualMachineInstance, kind: &Condition) -> bool {
    let mut all = known(vmi).iter();
    all.any(|one| one.type_ == *kind && one.status == conditions::FALSE)
}

fn processors(live: &Live, wanted: &Spec) -> Outcome {
    let vmi = &live.vmi;
    let known = known(vmi);
    let sockets = wanted.domain.cpu.as_ref().and_then(|cpu| cpu.sockets);
    let Some(sockets) = sockets.filter(|sockets| *sockets > 0) else {
        return Outcome::Same;
    };
    let own = Topology::of(vmi.spec.domain.cpu.as_ref());
    if sockets == own.sockets {
        return Outcome::Same;
    }
    let status = vmi.status.as_ref();
    let current = status.and_then(|status| status.current_cpu_topology.as_ref()?.sockets);
    let current = current.unwrap_or(own.sockets);
    let refuse = |why: &str| Outcome::Refuse(format!("{SOCKETS} ({why})"));
    let max = own.max_sockets.unwrap_or(current);
    if sockets != current {
        if vmi.spec.architecture.as_deref() == Some("arm64") {
            return refuse("processors cannot be plugged into a guest of architecture arm64");
        }
        if sockets < current {
            return refuse("a running guest cannot lose processors");
        }
        if sockets > max {
            return refuse(&format!(
                "the guest was started with room for {max} sockets; see spec.domain.cpu.maxSockets"
            ));
        }
        if has_failed(vmi, &Condition::HotVCPUChange) {
            return refuse("an earlier change of the processors failed");
        }
        if let Some(why) = immobility(known) {
            return refuse(&why);
        }
    }
    let mut part = json!({"domain": {"cpu": {"sockets": sockets}}});
    let of_socket = i128::from(own.cores) * i128::from(own.threads);
    let added = (i128::from(sockets) - i128::from(own.sockets)) * of_socket;
    let ratio = i128::from(live.cpu_allocation_ratio.max(1));
    let millis = added * 1000 / ratio;
    adjust(&mut part, live, wanted, "cpu", |amount| {
        let millis = i128::from(amount.millis()) + millis;
        Quantity(format!("{}m", millis.max(1)))
    });
    if sockets == current {
        Outcome::TakeBack(part)
    } else {
        Outcome::Apply(part)
    }
}

fn memory(live: &Live, wanted: &Spec) -> Outcome {
    let vmi = &live.vmi;
    let known = known(vmi);
    let guest = |spec: &Spec| spec.domain.memory.as_ref()?.guest.clone();
    let bytes = |quantity: &Option<Quantity>| Amount::parse(quantity.as_ref()?).ok();
    let (now, own) = (guest(wanted), guest(&vmi.spec));
    let Some(bytes_now) = bytes(&now).filter(|now| Some(*now) != bytes(&own)) else {
        return Outcome::Same;
    };
    let refuse = |why: &str| Outcome::Refuse(format!("{MEMORY} ({why})"));
    let status = vmi.status.as_ref();
    let status = status.and_then(|status| status.memory.as_ref());
    let (Some(status), Some(bytes_own)) = (status, bytes(&own)) else {
        return refuse("the memory of this guest cannot change while it runs");
    };
    let is_had = Some(bytes_now) == bytes(&status.guest_requested);
    if !is_had {
        if has_failed(vmi, &Condition::HotMemoryChange) {
            return refuse("an earlier change of the memory failed");
        }
        let own_memory = vmi.spec.domain.memory.as_ref();
        let Some(max) = own_memory.and_then(|memory| memory.max_guest.as_ref()) else {
            return refuse("the memory of this guest cannot change while it runs");
        };
        if Amount::parse(max).is_ok_and(|max| bytes_now > max) {
            return refuse(&format!(
                "the guest was started with room for {}; see spec.domain.memory.maxGuest",
                max.0
            ));
        }
        if bytes(&status.guest_at_boot).is_none_or(|start| bytes_now < start) {
            return refuse("a running guest cannot have less memory than at its start");
        }
        let architecture = vmi.spec.architecture.as_deref().unwrap_or_default();
        let domain = &vmi.spec.domain;
        let problem = defaults::growth::problem(domain, architecture, now.as_ref(), max);
        if let Some(problem) = problem {
            return refuse(problem);
        }
        if let Some(why) = immobility(known) {
            return refuse(&why);
        }
    }
    let mut part = json!({"domain": {"memory": {"guest": now}}});
    adjust(&mut part, live, wanted, "memory", |amount| {
        let moved = amount.plus(bytes_now).minus(bytes_own);
        moved.max(bytes_now).to_binary()
    });
    if is_had {
        Outcome::TakeBack(part)
    } else {
        Outcome::Apply(part)
    }
}

/// Changes what the template requests, or limits, of a resource along with the guest.
fn adjust(
    part: &mut Value,
    live: &Live,
    wanted: &Spec,
    resource: &str,
    changed: impl Fn(Amount) -> Quantity,
) {
    let (wanted, own) = (&wanted.domain.resources, &live.vmi.spec.domain.resources);
    let (Some(wanted), Some(own)) = (wanted, own) else {
        return;
    };
    for (list, wanted, own) in [
        ("requests", &wanted.requests, &own.requests),
        ("limits", &wanted.limits, &own.limits),
    ] {
        let is_given = wanted.contains_key(resource);
        let amount = own.get(resource).map(Amount::parse);
        if let (true, Some(Ok(amount))) = (is_given, amount) {
            part["domain"]["resources"][list][resource] = json!(changed(amount));
        }
    }
}

fn placement(live: &Live) -> Outcome {
    let own = json!(live.vmi.spec);
    let mut part = Map::new();
    for member in PLACEMENT {
        let empty = |value: &Value| value.is_null() || *value == json!({}) || *value == json!([]);
        let now = without_nulls(live.now.get(member).unwrap_or(&Value::Null));
        let before = without_nulls(own.get(member).unwrap_or(&Value::Null));
        if now == before || (empty(&now) && empty(&before)) {
            continue;
        }
        part.insert(member.to_owned(), in_place_of(&before, now));
    }
    if part.is_empty() {
        Outcome::Same
    } else {
        Outcome::Apply(Value::Object(part))
    }
}

fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let members = members.iter().filter(|(_, value)| !value.is_null());
            let kept = members.map(|(name, value)| (name.clone(), without_nulls(value)));
            Value::Object(kept.collect())
        }
        Value::Array(items) => items.iter().map(without_nulls).collect(),
        plain => plain.clone(),
    }
}

/// Adds the members of an object, and those of the objects in it.
fn merge(into: &mut Map<String, Value>, part: Value) {
    let Value::Object(part) = part else {
        return;
    };
    for (name, value) in part {
        match (into.get_mut(&name), value) {
            (Some(Value::Object(there)), value @ Value::Object(_)) => merge(there, value),
            (_, value) => {
                into.insert(name, value);
            }
        }
    }
}
