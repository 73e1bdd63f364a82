//! Whether a `VirtualMachineInstance` may be written.

use std::collections::BTreeMap;

use kubevirt_api::{VirtualMachineInstance, labels};
use serde_json::Value;

use crate::{
    ClusterConfig, Violation,
    checks::{self, Input, Origin, Requester},
};

/// Checks a new object, defaults already filled in.
pub fn validate_create(
    vmi: &VirtualMachineInstance,
    config: &ClusterConfig,
    requester: Requester,
) -> Vec<Violation> {
    let none = BTreeMap::new();
    checks::run(&Input {
        spec: &vmi.spec,
        labels: vmi.metadata.labels.as_ref().unwrap_or(&none),
        annotations: vmi.metadata.annotations.as_ref().unwrap_or(&none),
        config,
        origin: Origin::Instance,
        requester,
    })
}

/// Checks a change of an object.
pub fn validate_update(
    old: &VirtualMachineInstance,
    new: &VirtualMachineInstance,
    requester: Requester,
) -> Vec<Violation> {
    match requester {
        Requester::User => user_changes(old, new),
        Requester::Component => component_changes(old, new),
    }
}

/// A guest that runs cannot be rewritten; users change the VM and restart it.
fn user_changes(old: &VirtualMachineInstance, new: &VirtualMachineInstance) -> Vec<Violation> {
    let mut found = Vec::new();
    if old.spec != new.spec {
        let [old, new] =
            [&old.spec, &new.spec].map(|spec| serde_json::to_value(spec).unwrap_or_default());
        let field = first_difference(&old, &new, "spec".to_owned());
        let detail = "the spec of an instance cannot be changed; change the VirtualMachine and \
                      restart it, or delete the instance and create it anew";
        found.push(Violation::not_supported(field, detail));
    }
    let label = |vmi: &VirtualMachineInstance, key: &str| {
        vmi.metadata
            .labels
            .as_ref()
            .and_then(|labels| labels.get(key))
            .cloned()
    };
    for key in labels::RESERVED_ON_VMI
        .iter()
        .filter(|key| label(old, key) != label(new, key))
    {
        let detail = format!("label {key} is written by the system only; leave it as it is");
        found.push(Violation::not_supported("metadata.labels", detail));
    }
    found
}

fn component_changes(old: &VirtualMachineInstance, new: &VirtualMachineInstance) -> Vec<Violation> {
    let sockets =
        |vmi: &VirtualMachineInstance| vmi.spec.domain.cpu.as_ref().and_then(|cpu| cpu.max_sockets);
    let guest = |vmi: &VirtualMachineInstance| {
        vmi.spec
            .domain
            .memory
            .as_ref()
            .and_then(|memory| memory.max_guest.clone())
    };
    let mut found = Vec::new();
    if sockets(old) != sockets(new) {
        let detail = "fixed when the guest starts; leave it as it is";
        found.push(Violation::invalid("spec.domain.cpu.maxSockets", detail));
    }
    if guest(old).is_some() && guest(new).is_some() && guest(old) != guest(new) {
        let detail = "fixed when the guest starts; leave it as it is";
        found.push(Violation::invalid("spec.domain.memory.maxGuest", detail));
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
