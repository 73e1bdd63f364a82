//! Changes of a VMI outside its volumes. Users cannot change the spec at all; components can change
//! only fields that a running guest can follow.

use kubevirt_api::{VirtualMachineInstance, labels};
use serde_json::Value;
use validation::Violation;

use super::input::{Caller, Identity, Update, is_by_user};

/// The spec of a running guest is immutable for users, who change the VM and restart it.
pub(super) fn spec(update: &Update<'_>) -> Vec<Violation> {
    if !is_by_user(update) || update.old.spec == update.new.spec {
        return Vec::new();
    }
    let [old, new] = [&update.old.spec, &update.new.spec]
        .map(|spec| serde_json::to_value(spec).unwrap_or_default());
    let field = first_difference(&old, &new, "spec".to_owned());
    let detail = "the spec of a VirtualMachineInstance is immutable; change the VirtualMachine \
                  and restart it, or delete the VirtualMachineInstance and create it again";
    vec![Violation::not_supported(field, detail)]
}

pub(super) fn system_labels(update: &Update<'_>) -> Vec<Violation> {
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
            let detail = format!("label {key} is reserved for the system; do not change it");
            Violation::not_supported("metadata.labels", detail)
        })
        .collect()
}

/// A compromised virt-handler must not be able to change guests of other nodes.
pub(super) fn node(update: &Update<'_>) -> Vec<Violation> {
    let Caller::Handler(Identity::Token(node)) = update.caller else {
        return Vec::new();
    };
    if !update.config.has_gate("NodeRestriction") {
        return Vec::new();
    }
    let Some(node) = node else {
        let detail = "the token of virt-handler names no node; it must be bound to its pod";
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
    let is_on_node = [&own, &old_target]
        .into_iter()
        .flatten()
        .any(|name| name == node);
    let mut found = Vec::new();
    if !is_on_node {
        let detail =
            format!("the VirtualMachineInstance is not on node {node:?} of this virt-handler");
        found.push(Violation::invalid("status.nodeName", detail));
    }
    if old_target.is_none() && new_target.is_some() {
        let detail = "virt-handler must not choose the target of a migration";
        found.push(Violation::invalid(
            "status.migrationState.targetNode",
            detail,
        ));
    }
    found
}

/// Streams to a guest's vsock go to this address, so a user could reach another guest by a false one.
pub(super) fn vsock_address(update: &Update<'_>) -> Vec<Violation> {
    let address =
        |vmi: &VirtualMachineInstance| vmi.status.as_ref().and_then(|status| status.vsock_cid);
    if !is_by_user(update) || address(update.old) == address(update.new) {
        return Vec::new();
    }
    let detail =
        "the address of the guest on the vsock; virt-controller chooses it, do not change it";
    vec![Violation::not_supported("status.VSOCKCID", detail)]
}

pub(super) fn hotplug_maximums(update: &Update<'_>) -> Vec<Violation> {
    if is_by_user(update) {
        return Vec::new();
    }
    let sockets = |vmi: &VirtualMachineInstance| vmi.spec.domain.cpu.as_ref()?.max_sockets;
    let guest = |vmi: &VirtualMachineInstance| {
        let memory = vmi.spec.domain.memory.as_ref()?;
        memory.max_guest.clone()
    };
    let (old, new) = (update.old, update.new);
    let detail = "fixed since the guest's start; do not change it";
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

/// Path of the first difference.
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
