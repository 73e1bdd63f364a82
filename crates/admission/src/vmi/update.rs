//! What may change in an instance. Users may change nothing of the spec; our own components plug
//! and unplug, and even they only what can be.

use std::collections::BTreeSet;

use kubevirt_api::{
    VirtualMachineInstance, disks::Disk, labels, vmi::UtilityVolume, volumes::Volume,
};
use serde_json::Value;

use crate::{
    ClusterConfig, Violation,
    checks::{Requester, gate_is_off, hotplugged_disk_faults, repeated},
    rules::Rule,
};

/// What a check may look at.
#[derive(Clone, Copy, Debug)]
pub struct Update<'a> {
    pub old: &'a VirtualMachineInstance,
    pub new: &'a VirtualMachineInstance,
    pub config: &'a ClusterConfig,
    pub caller: Caller<'a>,
}

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub enum Caller<'a> {
    User,
    Component,
    /// The agent of a node, with the name of the node that its token was issued for. Who does not
    /// come with a token has `Identity::Certificate`.
    Handler(Identity<'a>),
}

/// How an agent shows which node it is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity<'a> {
    /// By certificate: nothing is said about nodes.
    Certificate,
    /// By a token that is bound to a node, or should be.
    Token(Option<&'a str>),
}

impl Caller<'_> {
    pub fn requester(self) -> Requester {
        match self {
            Self::User => Requester::User,
            Self::Component | Self::Handler(_) => Requester::Component,
        }
    }
}

pub type Check = fn(&Update<'_>) -> Vec<Violation>;

/// Every check of a change, in the order of the answer.
#[rustfmt::skip]
pub const ALL: &[Rule<Check>] = &[
    Rule::new("vmi-update.spec", "2", "spec changed by a user", spec),
    Rule::new("vmi-update.labels", "2", "labels of the system changed by a user", system_labels),
    Rule::new("vmi-update.node", "2", "instance of another node changed by a node's agent", node),
    Rule::new("vmi-update.head-room", "2", "limits of growth changed under a guest", head_room),
    Rule::new("vmi-update.utility-volumes", "2", "utility volumes incomplete, repeated or changed", utility_volumes),
    Rule::new("vmi-update.counts", "2", "volumes and what shows them differ in number", counts),
    Rule::new("vmi-update.permanent-volumes", "2", "volumes changed that were there at the start", permanent_volumes),
    Rule::new("vmi-update.plugged-volumes", "2", "plugged volumes changed, or of a kind that cannot be plugged", plugged_volumes),
];

fn is_by_user(update: &Update<'_>) -> bool {
    update.caller.requester() == Requester::User
}

/// A guest that runs cannot be rewritten; users change the VM and restart it.
fn spec(update: &Update<'_>) -> Vec<Violation> {
    if !is_by_user(update) || update.old.spec == update.new.spec {
        return Vec::new();
    }
    let [old, new] = [&update.old.spec, &update.new.spec]
        .map(|spec| serde_json::to_value(spec).unwrap_or_default());
    let field = first_difference(&old, &new, "spec".to_owned());
    let detail = "the spec of an instance cannot be changed; change the VirtualMachine and \
                  restart it, or delete the instance and create it anew";
    vec![Violation::not_supported(field, detail)]
}

fn system_labels(update: &Update<'_>) -> Vec<Violation> {
    if !is_by_user(update) {
        return Vec::new();
    }
    let label = |vmi: &VirtualMachineInstance, key: &str| {
        let labels = vmi.metadata.labels.as_ref();
        labels.and_then(|labels| labels.get(key)).cloned()
    };
    labels::RESERVED_ON_VMI
        .iter()
        .filter(|key| label(update.old, key) != label(update.new, key))
        .map(|key| {
            let detail = format!("label {key} is written by the system only; leave it as it is");
            Violation::not_supported("metadata.labels", detail)
        })
        .collect()
}

/// A node's agent that was taken over must not reach guests of other nodes.
fn node(update: &Update<'_>) -> Vec<Violation> {
    let Caller::Handler(Identity::Token(node)) = update.caller else {
        return Vec::new();
    };
    if !update.config.has_gate("NodeRestriction") {
        return Vec::new();
    }
    let Some(node) = node else {
        let detail = "the token of the node's agent names no node; it must be bound to its pod";
        return vec![Violation::invalid("status.nodeName", detail)];
    };
    let target = |vmi: &VirtualMachineInstance| {
        let state = vmi.status.as_ref()?.migration_state.as_ref()?;
        state
            .target_node
            .clone()
            .filter(|target| !target.is_empty())
    };
    let own = update.old.status.as_ref();
    let own = own.and_then(|status| status.node_name.clone());
    let (old_target, new_target) = (target(update.old), target(update.new));
    let is_its = [&own, &old_target]
        .into_iter()
        .flatten()
        .any(|name| name == node);
    let mut found = Vec::new();
    if !is_its {
        let detail = format!("the instance is not on node {node:?}, whose agent asks");
        found.push(Violation::invalid("status.nodeName", detail));
    }
    if old_target.is_none() && new_target.is_some() {
        let detail = "a node's agent does not choose the target of a migration";
        found.push(Violation::invalid(
            "status.migrationState.targetNode",
            detail,
        ));
    }
    found
}

fn head_room(update: &Update<'_>) -> Vec<Violation> {
    if is_by_user(update) {
        return Vec::new();
    }
    let sockets = |vmi: &VirtualMachineInstance| vmi.spec.domain.cpu.as_ref()?.max_sockets;
    let guest = |vmi: &VirtualMachineInstance| {
        let memory = vmi.spec.domain.memory.as_ref()?;
        memory.max_guest.clone()
    };
    let (old, new) = (update.old, update.new);
    let detail = "fixed when the guest starts; leave it as it is";
    let mut found = Vec::new();
    if sockets(old) != sockets(new) {
        found.push(Violation::invalid("spec.domain.cpu.maxSockets", detail));
    }
    if let (Some(old), Some(new)) = (guest(old), guest(new))
        && old != new
    {
        found.push(Violation::invalid("spec.domain.memory.maxGuest", detail));
    }
    found
}

fn utility_volumes(update: &Update<'_>) -> Vec<Violation> {
    let (old, new) = (
        &update.old.spec.utility_volumes,
        &update.new.spec.utility_volumes,
    );
    if is_by_user(update) || new.is_empty() {
        return Vec::new();
    }
    let gate = "UtilityVolumes";
    let mut found = Vec::new();
    if !update.config.has_gate(gate) {
        found.push(Violation::invalid("spec.utilityVolumes", gate_is_off(gate)));
    }
    for i in repeated(new, |volume| &volume.name) {
        let detail = "another utility volume has this name; names must be unique";
        let field = format!("spec.utilityVolumes[{i}].name");
        found.push(Violation::duplicate(field, detail));
    }
    for (i, volume) in new.iter().enumerate() {
        found.extend(utility_volume(update, old, i, volume));
    }
    found
}

fn utility_volume(
    update: &Update<'_>,
    old: &[UtilityVolume],
    i: usize,
    volume: &UtilityVolume,
) -> Vec<Violation> {
    let path = format!("spec.utilityVolumes[{i}]");
    let mut found = Vec::new();
    for (field, value) in [("name", &volume.name), ("claimName", &volume.claim_name)] {
        if value.is_empty() {
            let detail = "empty; name the volume and its claim";
            found.push(Violation::required(format!("{path}.{field}"), detail));
        }
    }
    let volumes = &update.new.spec.volumes;
    if volumes.iter().any(|other| other.name == volume.name) {
        let detail = "a volume of the guest has this name; use another one";
        found.push(Violation::duplicate(format!("{path}.name"), detail));
    }
    if is_permanent(update, &volume.name) {
        let detail = "this volume was there at the start; it cannot become a utility volume";
        found.push(Violation::invalid(format!("{path}.name"), detail));
    }
    let before = old.iter().find(|other| other.name == volume.name);
    if before.is_some_and(|before| before != volume) {
        let detail = "an attached utility volume does not change; remove it first";
        found.push(Violation::invalid(path, detail));
    }
    found
}

fn counts(update: &Update<'_>) -> Vec<Violation> {
    let spec = &update.new.spec;
    // Whoever changes other things is not asked about these.
    let is_same = spec.volumes == update.old.spec.volumes
        && spec.domain.devices.disks == update.old.spec.domain.devices.disks;
    if is_by_user(update) || is_same {
        return Vec::new();
    }
    let may_be_empty = update.config.has_gate("DeclarativeHotplugVolumes");
    let has_volume = |name: &str| spec.volumes.iter().any(|volume| volume.name == name);
    let disks = spec.domain.devices.disks.iter();
    let disks =
        disks.filter(|disk| !(disk.cdrom.is_some() && may_be_empty && !has_volume(&disk.name)));
    let shown = disks.count() + spec.domain.devices.filesystems.len();
    let volumes = spec.volumes.iter();
    let volumes = volumes
        .filter(|volume| volume.memory_dump.is_none())
        .count();
    if shown == volumes {
        return Vec::new();
    }
    let detail =
        format!("{shown} disks and filesystems for {volumes} volumes; each volume is shown by one");
    vec![Violation::invalid("spec.domain.devices.disks", detail)]
}

/// Whether a volume was there at the start: the status has it, and not as plugged.
fn is_permanent(update: &Update<'_>, name: &str) -> bool {
    let status = update.old.status.as_ref();
    status.is_some_and(|status| {
        let mut volumes = status.volume_status.iter();
        volumes.any(|volume| volume.name == name && volume.hotplug_volume.is_none())
    })
}

fn is_migrated(update: &Update<'_>, name: &str) -> bool {
    let status = update.new.status.as_ref();
    status.is_some_and(|status| {
        let mut volumes = status.migrated_volumes.iter();
        volumes.any(|volume| volume.volume_name == name)
    })
}

fn volume_of<'a>(vmi: &'a VirtualMachineInstance, name: &str) -> Option<&'a Volume> {
    vmi.spec.volumes.iter().find(|volume| volume.name == name)
}

fn disk_of<'a>(vmi: &'a VirtualMachineInstance, name: &str) -> Option<&'a Disk> {
    let disks = &vmi.spec.domain.devices.disks;
    disks.iter().find(|disk| disk.name == name)
}

fn permanent_volumes(update: &Update<'_>) -> Vec<Violation> {
    if is_by_user(update) {
        return Vec::new();
    }
    let (old, new) = (update.old, update.new);
    let lists = old.spec.volumes.iter().chain(&new.spec.volumes);
    let names: BTreeSet<&str> = lists.map(|volume| &*volume.name).collect();
    let mut found = Vec::new();
    for name in names.into_iter().filter(|name| is_permanent(update, name)) {
        let detail = match (volume_of(old, name), volume_of(new, name)) {
            (Some(_), None) => "was there at the start; it cannot be removed",
            (None, Some(_)) => "was there at the start; it cannot be added again",
            (Some(before), Some(after)) if before != after && !is_migrated(update, name) => {
                "was there at the start; it cannot be changed"
            }
            _ if disk_of(old, name) != disk_of(new, name) => {
                "was there at the start; its disk cannot be changed"
            }
            _ => continue,
        };
        let detail = format!("volume {name:?} {detail}");
        found.push(Violation::invalid("spec.volumes", detail));
    }
    found
}

fn plugged_volumes(update: &Update<'_>) -> Vec<Violation> {
    if is_by_user(update) {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (i, volume) in update.new.spec.volumes.iter().enumerate() {
        let name = &*volume.name;
        let field = format!("spec.volumes[{i}]");
        if is_permanent(update, name) {
            continue;
        }
        match volume_of(update.old, name) {
            Some(before) => found.extend(still_plugged(update, &field, before, volume)),
            None => found.extend(newly_plugged(update, &field, volume)),
        }
    }
    found
}

fn still_plugged(
    update: &Update<'_>,
    field: &str,
    before: &Volume,
    after: &Volume,
) -> Option<Violation> {
    let disks = [update.old, update.new].map(|vmi| disk_of(vmi, &after.name));
    let detail = match disks {
        _ if before != after && !is_migrated(update, &after.name) => {
            "a plugged volume does not change; unplug it first"
        }
        [Some(_), None] => "its disk is gone; unplug the volume with it",
        [Some(before), Some(after)] if before != after => {
            "the disk of a plugged volume does not change; unplug it first"
        }
        _ => return None,
    };
    Some(Violation::invalid(field, detail))
}

fn newly_plugged(update: &Update<'_>, field: &str, volume: &Volume) -> Vec<Violation> {
    let mut found = Vec::new();
    let is_dump = volume.memory_dump.is_some();
    let is_claim = volume.persistent_volume_claim.is_some() || volume.data_volume.is_some();
    if !is_claim && !is_dump {
        let detail = "only persistentVolumeClaim and dataVolume can be plugged";
        found.push(Violation::invalid(field, detail));
    }
    let disks = update.new.spec.domain.devices.disks.iter().enumerate();
    let mut disks = disks.filter(|(_, disk)| disk.name == volume.name);
    if let Some((i, disk)) = disks.next() {
        // A drive that was there takes a medium: nothing is plugged.
        let is_medium = disk.cdrom.is_some() && disk_of(update.old, &disk.name) == Some(disk);
        let faults = hotplugged_disk_faults(disk);
        let faults = faults.into_iter().filter(|_| !is_medium);
        found.extend(faults.map(|(at, detail)| {
            let path = format!("spec.domain.devices.disks[{i}]");
            let field = match at {
                "" => path,
                at => format!("{path}.{at}"),
            };
            Violation::invalid(field, detail)
        }));
    }
    found
}

/// Path of the first value that differs.
fn first_difference(old: &Value, new: &Value, path: String) -> String {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            let absent = Value::Null;
            let keys = old.keys().chain(new.keys());
            for key in keys {
                let (old, new) = (
                    old.get(key).unwrap_or(&absent),
                    new.get(key).unwrap_or(&absent),
                );
                if old != new {
                    return first_difference(old, new, format!("{path}.{key}"));
                }
            }
            path
        }
        (Value::Array(old), Value::Array(new)) if old.len() == new.len() => {
            let differs = old
                .iter()
                .zip(new)
                .enumerate()
                .find(|(_, (old, new))| old != new);
            match differs {
                Some((i, (old, new))) => first_difference(old, new, format!("{path}[{i}]")),
                None => path,
            }
        }
        _ => path,
    }
}
