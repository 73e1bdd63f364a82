//! Changes of a template that a running guest follows: processors, memory, interfaces, and the nodes that it may run on.
//! Pure.
//!
//! The VMI gets them at once. Processors and memory take effect after a migration to a pod of that size, interfaces as
//! soon as the pod has them, the others at the next migration.

use std::collections::BTreeMap;

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

use super::nics::{self, Nics};
use crate::merge_patch::in_place_of;

pub(super) const SOCKETS: &str = "template.spec.domain.cpu.sockets";
pub(super) const MEMORY: &str = "template.spec.domain.memory.guest";
/// Paths in the spec of a VMI.
const FOLLOWED: [&str; 7] = [
    nics::INTERFACES_PATH,
    nics::NETWORKS_PATH,
    "/domain/cpu/sockets",
    "/domain/memory/guest",
    "/nodeSelector",
    "/affinity",
    "/tolerations",
];
/// Followed by copy.
const PLACEMENT: [&str; 3] = ["nodeSelector", "affinity", "tolerations"];
/// On a VMI: the fields that it has followed since its start, by these names. Another field may differ from that of
/// the VM without any change since: a webhook may change a VMI at its creation.
const FOLLOWED_FIELDS: &str = "ferrovirt.io/followed-fields";
const FIELDS: [&str; 6] = [
    INTERFACES,
    PROCESSORS,
    GUEST_MEMORY,
    PLACEMENT[0],
    PLACEMENT[1],
    PLACEMENT[2],
];
const INTERFACES: &str = "interfaces";
const PROCESSORS: &str = "sockets";
const GUEST_MEMORY: &str = "memory";

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
    /// By network that the guest would join: why it cannot.
    pub(super) missing: BTreeMap<String, String>,
}

/// What the guest follows.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Follow {
    /// A merge patch of the VMI.
    pub(super) patch: Option<Value>,
    /// Why the guest takes no changes now, if there is one.
    pub(super) waits: Option<String>,
    /// Fields that need a restart, with the reason.
    pub(super) refused: Vec<String>,
}

/// The specs of the VM, as far as they can be read.
struct Specs {
    before: Option<Spec>,
    now: Spec,
}

impl Specs {
    /// `None` for an invalid template, which admission refuses.
    fn of(live: &Live) -> Option<Self> {
        let read = |spec: &Value| serde_json::from_value(spec.clone()).ok();
        Some(Self {
            before: read(&live.before),
            now: read(&live.now)?,
        })
    }

    /// Whether a field is as it was at the guest's start.
    fn agree<T: PartialEq>(&self, field: impl Fn(&Spec) -> T) -> bool {
        let before = self.before.as_ref();
        before.is_some_and(|before| field(before) == field(&self.now))
    }
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
        let is_of_interfaces = [nics::INTERFACES_PATH, nics::NETWORKS_PATH].contains(&path);
        let may_be_removed = is_placement || is_of_interfaces;
        if now.pointer(path).is_none_or(Value::is_null) && !may_be_removed {
            continue;
        }
        remove(&mut rest, path);
    }
    for path in ["/domain/cpu", "/domain/memory", "/domain/devices"] {
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
    let outcomes = Specs::of(live).map(|specs| [processors(live, &specs), memory(live, &specs)]);
    let mut spec = Map::new();
    for outcome in outcomes.into_iter().flatten() {
        if let Outcome::TakeBack(part) = outcome {
            merge(&mut spec, part);
        }
    }
    patched(live, &spec)
}

pub(super) fn follow(live: &Live) -> Follow {
    let Some(specs) = Specs::of(live) else {
        return Follow::default();
    };
    let mut found = Follow::default();
    let mut spec = Map::new();
    for outcome in [
        processors(live, &specs),
        memory(live, &specs),
        placement(live, &specs),
    ] {
        match outcome {
            Outcome::Same => {}
            Outcome::Refuse(why) => found.refused.push(why),
            Outcome::Apply(part) | Outcome::TakeBack(part) => merge(&mut spec, part),
        }
    }
    let Nics {
        part,
        waits,
        refused,
    } = nics::follow(&nics::Specs {
        before: &live.before,
        now: &live.now,
        vmi: &live.vmi,
        has_followed: has_followed(&live.vmi, INTERFACES),
        missing: &live.missing,
    });
    found.refused.extend(refused);
    if let Some(part) = part {
        merge(&mut spec, part);
    }
    let followed = patched(live, &spec);
    Follow {
        refused: found.refused,
        waits: followed.waits.or(waits),
        patch: followed.patch,
    }
}

fn patched(live: &Live, spec: &Map<String, Value>) -> Follow {
    let mut found = Follow::default();
    if spec.is_empty() {
        return found;
    }
    found.waits = obstacle(&live.vmi).map(ToOwned::to_owned);
    if found.waits.is_none() {
        let is_followed = |field: &&str| match *field {
            INTERFACES => is_in(spec, "devices"),
            PROCESSORS => is_in(spec, "cpu"),
            GUEST_MEMORY => is_in(spec, "memory"),
            member => spec.contains_key(member),
        };
        let fields = FIELDS.into_iter();
        let fields = fields.filter(|field| is_followed(field) || has_followed(&live.vmi, field));
        let fields: Vec<&str> = fields.collect();
        let mut annotations = json!({FOLLOWED_FIELDS: fields.join(",")});
        if is_in(spec, "memory") {
            annotations[MEMORY_CHANGED] = "true".into();
        }
        found.patch = Some(json!({
            "metadata": {
                "resourceVersion": live.vmi.metadata.resource_version,
                "annotations": annotations,
            },
            "spec": spec,
        }));
    }
    found
}

/// Whether a change of the spec concerns this part of the domain.
fn is_in(spec: &Map<String, Value>, part: &str) -> bool {
    let domain = spec.get("domain");
    domain.is_some_and(|domain| domain.get(part).is_some())
}

/// Whether the VMI has followed a change of the field.
fn has_followed(vmi: &VirtualMachineInstance, field: &str) -> bool {
    let annotations = vmi.metadata.annotations.as_ref();
    let annotation = |name: &str| annotations.and_then(|all| all.get(name));
    let is_listed = |all: &String| all.split(',').any(|one| one == field);
    if annotation(FOLLOWED_FIELDS).is_some_and(is_listed) {
        return true;
    }
    // Earlier versions kept no list.
    match field {
        PROCESSORS => conditions::find(known(vmi), &Condition::HotVCPUChange).is_some(),
        GUEST_MEMORY => annotation(MEMORY_CHANGED).is_some(),
        _ => false,
    }
}

/// Why the guest takes no changes now. While it moves, its new pod was made for the spec at the start of the move.
fn obstacle(vmi: &VirtualMachineInstance) -> Option<&'static str> {
    let status = vmi.status.as_ref();
    let Some(status) = status.filter(|status| status.phase == Some(Phase::Running)) else {
        return Some("the guest does not run yet");
    };
    let is_moving = status.migration_state.as_ref().is_some_and(|state| {
        state.start_timestamp.is_some()
            && state.completed != Some(true)
            && state.failed != Some(true)
    });
    if is_moving {
        return Some("the guest is migrating");
    }
    let can_move = conditions::find(&status.conditions, &Condition::LiveMigratable);
    can_move
        .is_none()
        .then_some("it is not known yet whether the guest can migrate")
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

fn processors(live: &Live, specs: &Specs) -> Outcome {
    let (vmi, wanted) = (&live.vmi, &specs.now);
    let known = known(vmi);
    let of = |spec: &Spec| spec.domain.cpu.as_ref().and_then(|cpu| cpu.sockets);
    let Some(sockets) = of(wanted).filter(|sockets| *sockets > 0) else {
        return Outcome::Same;
    };
    if specs.agree(of) && !has_followed(vmi, PROCESSORS) {
        return Outcome::Same;
    }
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

fn memory(live: &Live, specs: &Specs) -> Outcome {
    let (vmi, wanted) = (&live.vmi, &specs.now);
    let known = known(vmi);
    let guest = |spec: &Spec| spec.domain.memory.as_ref()?.guest.clone();
    let bytes = |quantity: &Option<Quantity>| Amount::parse(quantity.as_ref()?).ok();
    if specs.agree(|spec| bytes(&guest(spec))) && !has_followed(vmi, GUEST_MEMORY) {
        return Outcome::Same;
    }
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

fn placement(live: &Live, specs: &Specs) -> Outcome {
    let [own, now] = [&live.vmi.spec, &specs.now].map(|spec| json!(spec));
    let before = json!(specs.before);
    let mut part = Map::new();
    for member in PLACEMENT {
        let [own, now, before] = [&own, &now, &before]
            .map(|spec| without_nulls(spec.get(member).unwrap_or(&Value::Null)));
        let is_changed = !is_same(&now, &before) || has_followed(&live.vmi, member);
        if is_changed && !is_same(&now, &own) {
            part.insert(member.to_owned(), in_place_of(&own, now));
        }
    }
    if part.is_empty() {
        Outcome::Same
    } else {
        Outcome::Apply(Value::Object(part))
    }
}

fn is_same(one: &Value, other: &Value) -> bool {
    let is_empty = |value: &Value| value.is_null() || *value == json!({}) || *value == json!([]);
    one == other || (is_empty(one) && is_empty(other))
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
