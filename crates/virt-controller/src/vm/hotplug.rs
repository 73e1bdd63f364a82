//! Volumes that a running guest gets and loses by a change of its VM's template, and by the requests of
//! `virtctl addvolume` and `removevolume`: pure.

use kubevirt_api::VirtualMachineInstance;
use kubevirt_api::vm_status::VirtualMachineVolumeRequest;
use kubevirt_api::vmi_status::VirtualMachineInstancePhase as Phase;
use serde_json::{Value, json};

use crate::view::{Guest, Plug, Purpose, plugs};

/// The bus of a hot-plugged disk that names none.
const BUS: &str = "scsi";

/// Whether the guest lacks volumes of the template, or has others.
pub(super) fn is_behind(template: &Value, vmi: &Guest) -> bool {
    if *vmi.phase() != Phase::Running || vmi.is_deleting() || vmi.status.is_migrating {
        return false;
    }
    let wanted = of_template(template);
    let has = |all: &[Plug], plug: &Plug| all.contains(plug);
    let mut present = vmi.plugs.iter();
    let is_left = present.any(|plug| plug.purpose != Purpose::Backup && !has(&wanted, plug));
    let is_free = |plug: &Plug| {
        let mut status = vmi.status.volumes.iter();
        !vmi.plugs.iter().any(|one| one.volume == plug.volume)
            && status.all(|volume| volume.name != plug.volume)
    };
    is_left || wanted.iter().any(is_free)
}

/// The merge patch of a VMI that follows the template; `None` if there is nothing to change. A volume of
/// another claim under the same name is removed first, and added once it has left the guest.
pub(super) fn patch(template: &Value, vmi: &Value) -> Option<Value> {
    let wanted = of_template(template);
    let typed = json!({"spec": vmi.get("spec")?, "status": vmi.get("status")});
    let typed: VirtualMachineInstance = serde_json::from_value(typed).ok()?;
    let present = plugs(&typed);
    let status = typed.status.unwrap_or_default();
    let volumes = items(vmi.pointer("/spec/volumes"));
    let disks = items(vmi.pointer("/spec/domain/devices/disks"));
    let is_leaving = |name: &str| {
        let mut all = present.iter().filter(|plug| plug.volume == name);
        all.any(|plug| !wanted.contains(plug))
    };
    let mut new_volumes: Vec<Value> = volumes
        .iter()
        .filter(|volume| !is_leaving(name(volume)))
        .cloned()
        .collect();
    let mut new_disks: Vec<Value> = disks
        .iter()
        .filter(|disk| !is_leaving(name(disk)) || disk.get("cdrom").is_some())
        .cloned()
        .collect();
    for plug in &wanted {
        let is_taken = volumes.iter().any(|volume| name(volume) == plug.volume)
            || status
                .volume_status
                .iter()
                .any(|one| one.name == plug.volume);
        if is_taken {
            continue;
        }
        let volume = find(template.pointer("/spec/volumes"), &plug.volume);
        let disk = find(template.pointer("/spec/domain/devices/disks"), &plug.volume);
        if plug.purpose == Purpose::MemoryDump {
            new_volumes.extend(volume);
            continue;
        }
        let (Some(volume), Some(disk)) = (volume, disk) else {
            continue;
        };
        let has_disk = new_disks.iter().any(|disk| name(disk) == plug.volume);
        match (has_disk, disk.get("cdrom").is_some()) {
            // The medium of a drive.
            (true, _) => {}
            // A drive exists from the guest's start on.
            (false, true) => continue,
            (false, false) => new_disks.push(with_bus(disk)),
        }
        new_volumes.push(volume);
    }
    if new_volumes == volumes && new_disks == disks {
        return None;
    }
    Some(json!({
        "metadata": {"resourceVersion": vmi.pointer("/metadata/resourceVersion")},
        "spec": {"volumes": new_volumes, "domain": {"devices": {"disks": new_disks}}},
    }))
}

/// The spec of a template without what a running guest may get and lose.
pub(super) fn without_plugs(spec: &Value) -> Value {
    let plugged = of_template(&json!({"spec": spec}));
    let is_plugged = |item: &Value| plugged.iter().any(|plug| plug.volume == name(item));
    let mut rest = spec.clone();
    for (path, keeps_drives) in [("/volumes", false), ("/domain/devices/disks", true)] {
        if let Some(Value::Array(all)) = rest.pointer_mut(path) {
            all.retain(|item| !is_plugged(item) || (keeps_drives && item.get("cdrom").is_some()));
        }
    }
    // What has become empty means the same as what is missing.
    for (path, emptied) in [
        ("/domain/devices", "disks"),
        ("/domain", "devices"),
        ("", "volumes"),
    ] {
        if let Some(Value::Object(members)) = rest.pointer_mut(path) {
            let is_empty = |value: &Value| *value == json!([]) || *value == json!({});
            members.retain(|member, value| member != emptied || !is_empty(value));
        }
    }
    rest
}

/// The volumes and disks of a template after pending requests, as a merge patch of its spec.
pub(super) fn requested(template: &Value, requests: &[VirtualMachineVolumeRequest]) -> Value {
    let mut volumes = items(template.pointer("/spec/volumes"));
    let mut disks = items(template.pointer("/spec/domain/devices/disks"));
    for request in requests {
        if let Some(remove) = &request.remove_volume_options {
            volumes.retain(|volume| name(volume) != remove.name);
            disks.retain(|disk| name(disk) != remove.name || disk.get("cdrom").is_some());
        }
        if let Some(add) = &request.add_volume_options {
            volumes.retain(|volume| name(volume) != add.name);
            disks.retain(|disk| name(disk) != add.name);
            let mut volume = json!(add.volume_source);
            volume["name"] = add.name.as_str().into();
            let mut disk = json!(add.disk);
            disk["name"] = add.name.as_str().into();
            volumes.push(volume);
            disks.push(disk);
        }
    }
    json!({"volumes": volumes, "domain": {"devices": {"disks": disks}}})
}

fn of_template(template: &Value) -> Vec<Plug> {
    let vmi = json!({"spec": template.get("spec")});
    let vmi: Result<VirtualMachineInstance, _> = serde_json::from_value(vmi);
    // An invalid template is refused by admission.
    vmi.as_ref().map_or_else(|_| Vec::new(), plugs)
}

fn items(list: Option<&Value>) -> Vec<Value> {
    let list = list.and_then(Value::as_array);
    list.cloned().unwrap_or_default()
}

fn find(list: Option<&Value>, wanted: &str) -> Option<Value> {
    items(list).into_iter().find(|item| name(item) == wanted)
}

fn name(item: &Value) -> &str {
    let name = item.get("name").and_then(Value::as_str);
    name.unwrap_or_default()
}

fn with_bus(mut disk: Value) -> Value {
    let device = if disk.get("lun").is_some() {
        "lun"
    } else {
        "disk"
    };
    if disk[device]["bus"].is_null() {
        disk[device]["bus"] = BUS.into();
    }
    disk
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(name: &str, claim: &str) -> Value {
        json!({"name": name, "persistentVolumeClaim": {"claimName": claim, "hotpluggable": true}})
    }

    fn root() -> Value {
        json!({"name": "root", "containerDisk": {"image": "i"}})
    }

    fn disk(name: &str) -> Value {
        json!({"name": name, "disk": {"bus": "virtio"}})
    }

    fn drive(name: &str) -> Value {
        json!({"name": name, "cdrom": {"bus": "sata"}})
    }

    fn spec(volumes: &[Value], disks: &[Value]) -> Value {
        json!({"volumes": volumes, "domain": {"devices": {"disks": disks}}})
    }

    /// The names of volumes and disks after the patch.
    fn patched(template: &Value, vmi_spec: &Value, status: &Value) -> Option<(String, String)> {
        let vmi = json!({
            "metadata": {"resourceVersion": "7"}, "spec": vmi_spec,
            "status": {"phase": "Running", "volumeStatus": status},
        });
        let patch = patch(&json!({"spec": template}), &vmi)?;
        assert_eq!(patch["metadata"]["resourceVersion"], "7");
        let names = |list: &Value| {
            let items = list.as_array().unwrap().iter();
            items.map(name).collect::<Vec<_>>().join(",")
        };
        let spec = &patch["spec"];
        let disks = &spec["domain"]["devices"]["disks"];
        Some((names(&spec["volumes"]), names(disks)))
    }

    #[test]
    fn vmi_follows_the_template() {
        let (v, w) = (volume("v", "a"), volume("v", "b"));
        let plain = spec(&[root()], &[disk("root")]);
        let with_v = spec(&[root(), v.clone()], &[disk("root"), disk("v")]);
        let with_w = spec(&[root(), w], &[disk("root"), disk("v")]);
        let inserted = spec(&[root(), v.clone()], &[disk("root"), drive("v")]);
        let ejected = spec(&[root()], &[disk("root"), drive("v")]);
        let pair = |volumes: &str, disks: &str| Some((volumes.to_owned(), disks.to_owned()));
        let nothing = json!([]);
        let leaving = json!([{"name": "v", "phase": "Detaching", "hotplugVolume": {}}]);
        for (template, vmi, status, expected) in [
            (&plain, &plain, &nothing, None),
            (&with_v, &with_v, &nothing, None),
            (&with_v, &plain, &nothing, pair("root,v", "root,v")),
            (&plain, &with_v, &nothing, pair("root", "root")),
            // Another claim: the old one leaves first.
            (&with_w, &with_v, &nothing, pair("root", "root")),
            (&with_w, &plain, &leaving, None),
            (&inserted, &ejected, &nothing, pair("root,v", "root,v")),
            (&ejected, &inserted, &nothing, pair("root", "root,v")),
            // A new drive needs a restart.
            (&inserted, &plain, &nothing, None),
        ] {
            assert_eq!(patched(template, vmi, status), expected, "{template} {vmi}");
        }
    }

    #[test]
    fn volume_of_a_memory_dump_comes_without_a_disk() {
        let dump = json!({"name": "dump", "memoryDump": {"claimName": "a", "hotpluggable": true}});
        let plain = spec(&[root()], &[disk("root")]);
        let with_dump = spec(&[root(), dump], &[disk("root")]);
        let names = |volumes: &str| Some((volumes.to_owned(), "root".to_owned()));
        let nothing = json!([]);
        assert_eq!(patched(&with_dump, &plain, &nothing), names("root,dump"));
        assert_eq!(patched(&plain, &with_dump, &nothing), names("root"));
        assert_eq!(without_plugs(&with_dump), plain);
    }

    #[test]
    fn restart_is_not_required_for_what_can_be_plugged() {
        let plain = spec(&[root()], &[disk("root")]);
        let with_v = spec(&[root(), volume("v", "a")], &[disk("root"), disk("v")]);
        assert_eq!(without_plugs(&with_v), plain);
        let inserted = spec(&[root(), volume("v", "a")], &[disk("root"), drive("v")]);
        let ejected = spec(&[root()], &[disk("root"), drive("v")]);
        assert_eq!(without_plugs(&inserted), ejected);
        assert_ne!(without_plugs(&inserted), plain);
        let only = spec(&[volume("v", "a")], &[disk("v")]);
        assert_eq!(without_plugs(&only), without_plugs(&spec(&[], &[])));
    }

    #[test]
    fn requests_change_the_template() {
        let requests: Vec<VirtualMachineVolumeRequest> = serde_json::from_value(json!([
            {"addVolumeOptions": {"name": "v", "disk": {"disk": {"bus": "scsi"}, "serial": "s"},
                "volumeSource": {"persistentVolumeClaim": {"claimName": "a", "hotpluggable": true}}}},
            {"removeVolumeOptions": {"name": "old"}},
        ]))
        .unwrap();
        let before = spec(&[root(), volume("old", "o")], &[disk("root"), disk("old")]);
        let after = requested(&json!({"spec": before}), &requests);
        assert_eq!(after["volumes"], json!([root(), volume("v", "a")]));
        let disks = &after["domain"]["devices"]["disks"];
        assert_eq!(disks[1]["name"], "v");
        assert_eq!(disks[1]["serial"], "s");
        // A repeated request changes nothing.
        assert_eq!(requested(&json!({"spec": after.clone()}), &requests), after);
    }
}
