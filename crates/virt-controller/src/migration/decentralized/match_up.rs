//! Whether the guest of one VMI can go on in the pod of another one: both must give it the same devices. Pure.

use kubevirt_api::VirtualMachineInstance;
use kubevirt_api::conditions::{self, Condition as _};
use kubevirt_api::vmi_status::VirtualMachineInstanceConditionType;
use model::{Guest, KeptState, Storage};
use reasons::Reason;
use serde_json::{Value, json};

use crate::view;

/// Parts of a domain that each VMI has of its own. The guest keeps those that it has.
const OWN: [&str; 2] = ["/firmware/uuid", "/firmware/serial"];

/// Why the guest cannot be migrated to another VMI. Its disks are copied, so they need not be shared.
pub(super) fn immovable(source: &view::Guest) -> Option<String> {
    let kind = VirtualMachineInstanceConditionType::LiveMigratable;
    let found = conditions::find(&source.status.conditions, &kind)?;
    let is_obstacle = found.status == conditions::FALSE
        && found.reason() != Reason::DisksNotLiveMigratable.as_str();
    is_obstacle.then(|| format!("the guest cannot be migrated: {}", found.message()))
}

/// The first thing that would differ for the guest.
pub(super) fn mismatch(
    source: &VirtualMachineInstance,
    target: &VirtualMachineInstance,
) -> Option<String> {
    if let Some(state) = KeptState::of(&source.spec.domain).first() {
        return Some(format!(
            "{}: what it keeps for the guest does not go to another VMI",
            state.field()
        ));
    }
    let guest = Guest::of(source);
    let mut volumes = guest.volumes.iter();
    if let Some(volume) = volumes.find(|volume| guest.is_hotplugged(volume)) {
        return Some(format!(
            "volume {} was attached while the guest runs: detach it first",
            volume.name
        ));
    }
    let mut volumes = guest.volumes.iter();
    if let Some(volume) = volumes.find(|volume| matches!(volume.source.storage(), Storage::Host(_)))
    {
        return Some(format!(
            "volume {} is a file of its node, which does not go to another VMI",
            volume.name
        ));
    }
    let path = differing("spec.domain", &domain(source), &domain(target))
        .or_else(|| differing("spec.networks", &networks(source), &networks(target)))
        .or_else(|| differing("spec.volumes", &volumes_of(source), &volumes_of(target)))?;
    Some(format!(
        "{path} differs between the two VMIs: give both VMs the same value"
    ))
}

fn domain(vmi: &VirtualMachineInstance) -> Value {
    let mut domain = json!(vmi.spec.domain);
    for path in OWN {
        if let Some(value) = domain.pointer_mut(path) {
            *value = Value::Null;
        }
    }
    domain
}

fn networks(vmi: &VirtualMachineInstance) -> Value {
    let names = vmi.spec.networks.iter().map(|one| one.name.clone());
    Value::from(names.collect::<Vec<_>>())
}

/// Names and kinds, in their order: container disks have numbers.
fn volumes_of(vmi: &VirtualMachineInstance) -> Value {
    let guest = Guest::of(vmi);
    let all = guest.volumes.iter().map(|volume| {
        let is_on_claim = matches!(volume.source.storage(), Storage::Claim(_));
        json!({"name": volume.name, "isOnClaim": is_on_claim})
    });
    Value::from(all.collect::<Vec<_>>())
}

/// The path of the first difference. Nothing counts as equal to an absent member.
fn differing(path: &str, one: &Value, other: &Value) -> Option<String> {
    match (one, other) {
        (Value::Object(left), Value::Object(right)) => {
            let mut names: Vec<_> = left.keys().chain(right.keys()).collect();
            names.sort();
            names.dedup();
            let get = |object: &serde_json::Map<String, Value>, name: &str| {
                object.get(name).cloned().unwrap_or_default()
            };
            let mut found = names.into_iter().filter_map(|name| {
                let path = format!("{path}.{name}");
                differing(&path, &get(left, name), &get(right, name))
            });
            found.next()
        }
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            let mut pairs = left.iter().zip(right).enumerate();
            pairs.find_map(|(at, (left, right))| differing(&format!("{path}[{at}]"), left, right))
        }
        _ => (one != other).then(|| path.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vmi(change: &Value) -> VirtualMachineInstance {
        let mut vmi = json!({
            "metadata": {"name": "a", "namespace": "n"},
            "spec": {
                "domain": {
                    "firmware": {"uuid": "1"}, "memory": {"guest": "64Mi"},
                    "devices": {"disks": [{"name": "root", "disk": {"bus": "virtio"}}],
                                "interfaces": [{"name": "default", "masquerade": {}}]},
                },
                "networks": [{"name": "default", "pod": {}}],
                "volumes": [{"name": "root", "containerDisk": {"image": "i"}}],
            },
        });
        for (path, value) in change.as_object().unwrap() {
            *vmi.pointer_mut(path).unwrap() = value.clone();
        }
        serde_json::from_value(vmi).unwrap()
    }

    #[test]
    fn first_difference_is_named() {
        let check = |change: Value, expected: Option<&str>| {
            let found = mismatch(&vmi(&json!({})), &vmi(&change));
            let found = found.as_deref();
            match (found, expected) {
                (None, None) => {}
                (Some(found), Some(expected)) => assert!(found.contains(expected), "{found}"),
                _ => panic!("{change}: {found:?}"),
            }
        };
        check(json!({}), None);
        check(json!({"/spec/domain/firmware/uuid": "2"}), None);
        check(
            json!({"/spec/domain/memory/guest": "65Mi"}),
            Some("spec.domain.memory.guest"),
        );
        check(
            json!({"/spec/domain/devices/disks/0/disk/bus": "sata"}),
            Some("spec.domain.devices.disks[0].disk.bus"),
        );
        check(
            json!({"/spec/volumes/0": {"name": "root", "persistentVolumeClaim": {"claimName": "c"}}}),
            Some("spec.volumes[0].isOnClaim"),
        );
    }

    #[test]
    fn file_of_a_node_does_not_go() {
        let disk = json!({"/spec/volumes/0": {"name": "root", "hostDisk": {"path": "/d", "type": "Disk"}}});
        let found = mismatch(&vmi(&disk), &vmi(&disk)).unwrap();
        assert!(found.contains("file of its node"), "{found}");
    }
}
