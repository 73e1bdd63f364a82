//! Whether the whole state of a running guest can be saved, so that it goes on in another pod.

use kubevirt_api::VirtualMachineInstance;
use model::{Binding, Growth, Guest, Target, VolumeSource};

type Check = fn(&Guest<'_>) -> Option<String>;

/// In order of precedence.
const CHECKS: [Check; 9] = [
    host_devices,
    confidential,
    helpers,
    kept_state,
    tpm,
    vsock,
    dedicated_cpus,
    reservations,
    lost_disks,
];

/// The first reason why the guest cannot be suspended, with the remedy.
pub fn obstacle(vmi: &VirtualMachineInstance) -> Option<String> {
    let guest = Guest::of(vmi);
    let found = CHECKS.iter().find_map(|check| check(&guest));
    let size = || Growth::of(vmi).obstacle_to_saving().map(str::to_owned);
    found.or_else(|| plugged(vmi)).or_else(size)
}

fn host_devices(guest: &Guest<'_>) -> Option<String> {
    let devices = &guest.vmi.spec.domain.devices;
    let mut interfaces = guest.interfaces.iter();
    let has_any = !devices.host_devices.is_empty()
        || !devices.gpus.is_empty()
        || interfaces.any(|one| one.binding == Binding::Sriov);
    has_any.then(|| "the guest uses a device of its host: remove it".to_owned())
}

fn confidential(guest: &Guest<'_>) -> Option<String> {
    guest.is_confidential().then(|| {
        "the memory of the guest is encrypted: remove spec.template.spec.domain.launchSecurity"
            .to_owned()
    })
}

fn helpers(guest: &Guest<'_>) -> Option<String> {
    guest.shares_memory().then(|| {
        "shared filesystems and passt have a state of their own: use disks and masquerade"
            .to_owned()
    })
}

fn kept_state(guest: &Guest<'_>) -> Option<String> {
    (!guest.kept_state().is_empty()).then(|| {
        "this version cannot suspend a guest that keeps firmware variables or a TPM: make them not \
         persistent"
            .to_owned()
    })
}

fn tpm(guest: &Guest<'_>) -> Option<String> {
    guest
        .tpm()
        .map(|_| "this version cannot suspend a guest with a TPM: remove devices.tpm".to_owned())
}

fn vsock(guest: &Guest<'_>) -> Option<String> {
    let devices = &guest.vmi.spec.domain.devices;
    (devices.autoattach_vsock == Some(true)).then(|| {
        "the address of the guest on the vsock may belong to another guest later: set \
         devices.autoattachVSOCK to false"
            .to_owned()
    })
}

fn dedicated_cpus(guest: &Guest<'_>) -> Option<String> {
    guest.has_dedicated_cpus().then(|| {
        "this version cannot suspend a guest with dedicated CPUs: unset cpu.dedicatedCpuPlacement"
            .to_owned()
    })
}

fn reservations(guest: &Guest<'_>) -> Option<String> {
    let mut disks = guest.disks.iter();
    let disk = disks.find(|disk| matches!(disk.target, Target::Lun { .. }))?;
    let name = &disk.spec.name;
    Some(format!(
        "the state of disk {name} is in its storage, as it is a lun: use a disk"
    ))
}

/// What the guest has written would be lost with its pod.
fn lost_disks(guest: &Guest<'_>) -> Option<String> {
    let is_written = |name: &str| {
        let mut disks = guest.disks.iter();
        let is_disk = |disk: &model::Disk<'_>| {
            disk.spec.name == name
                && !disk.is_read_only
                && !matches!(disk.target, Target::CdRom { .. })
        };
        disks.any(is_disk)
    };
    let mut volumes = guest.volumes.iter();
    let volume = volumes.find(|volume| {
        let is_lost = matches!(
            volume.source,
            VolumeSource::ContainerDisk(_)
                | VolumeSource::Ephemeral(_)
                | VolumeSource::EmptyDisk(_)
        );
        is_lost && is_written(volume.name)
    })?;
    let (name, kind) = (volume.name, volume.source.member());
    Some(format!(
        "disk {name} is of kind {kind} and is lost with the pod: use a claim or a data volume"
    ))
}

fn plugged(vmi: &VirtualMachineInstance) -> Option<String> {
    let mut volumes = vmi.status.iter().flat_map(|status| &status.volume_status);
    let volume = volumes.find(|volume| volume.hotplug_volume.is_some())?;
    let name = &volume.name;
    Some(format!(
        "volume {name} was attached while the guest runs: detach it, or restart the VM with it as a disk \
         that is not hot-pluggable"
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn found(devices: &Value, volumes: &Value, rest: &Value) -> Option<String> {
        let mut vmi = json!({
            "metadata": {"name": "a", "namespace": "n"},
            "spec": {"domain": {"devices": devices}, "volumes": volumes},
        });
        for (path, value) in rest.as_object().into_iter().flatten() {
            let (parent, member) = path.rsplit_once('/').unwrap();
            vmi.pointer_mut(parent).unwrap()[member] = value.clone();
        }
        obstacle(&serde_json::from_value(vmi).unwrap())
    }

    #[test]
    fn what_cannot_be_saved_is_named() {
        let (none, empty) = (json!({}), json!([]));
        let disk = |kind: Value| json!({"disks": [{"name": "d", "disk": kind}]});
        let cd = json!({"disks": [{"name": "d", "cdrom": {}}]});
        let image = json!([{"name": "d", "containerDisk": {"image": "i"}}]);
        let claim = json!([{"name": "d", "persistentVolumeClaim": {"claimName": "c"}}]);
        let hot = json!({"/status": {"volumeStatus": [
            {"name": "h", "target": "", "hotplugVolume": {}},
        ]}});
        for (devices, volumes, rest, expected) in [
            (none.clone(), &empty, none.clone(), None),
            (disk(none.clone()), &claim, none.clone(), None),
            (cd, &image, none.clone(), None),
            (disk(json!({"readonly": true})), &image, none.clone(), None),
            (
                disk(none.clone()),
                &image,
                none.clone(),
                Some("disk d is of kind containerDisk"),
            ),
            (
                disk(none.clone()),
                &json!([{"name": "d", "emptyDisk": {"capacity": "1Gi"}}]),
                none.clone(),
                Some("disk d is of kind emptyDisk"),
            ),
            (
                json!({"disks": [{"name": "d", "lun": {}}]}),
                &claim,
                none.clone(),
                Some("the state of disk d"),
            ),
            (
                json!({"hostDevices": [{"name": "h", "deviceName": "x/y"}]}),
                &empty,
                none.clone(),
                Some("the guest uses a device"),
            ),
            (
                json!({"tpm": {}}),
                &empty,
                none.clone(),
                Some("this version cannot suspend a guest with"),
            ),
            (
                json!({"tpm": {"persistent": true}}),
                &empty,
                none.clone(),
                Some("this version cannot suspend a guest that keeps"),
            ),
            (
                json!({"autoattachVSOCK": true}),
                &empty,
                none.clone(),
                Some("the address of the guest"),
            ),
            (
                json!({"filesystems": [{"name": "d", "virtiofs": {}}]}),
                &claim,
                none.clone(),
                Some("shared filesystems"),
            ),
            (
                none.clone(),
                &empty,
                json!({"/spec/domain/launchSecurity": {"sev": {}}}),
                Some("the memory of the guest is encrypted"),
            ),
            (
                none.clone(),
                &empty,
                json!({"/spec/domain/cpu": {"dedicatedCpuPlacement": true}}),
                Some("this version cannot suspend a guest with dedicated"),
            ),
            (none.clone(), &empty, hot, Some("volume h was attached")),
            (
                none.clone(),
                &empty,
                json!({"/metadata/annotations": {"ferrovirt.io/memory-changed": "true"}}),
                Some("the memory of the guest was changed"),
            ),
        ] {
            let message = found(&devices, volumes, &rest);
            match expected {
                None => assert_eq!(message, None, "{devices} {volumes}"),
                Some(start) => {
                    let message = message.unwrap_or_default();
                    assert!(message.starts_with(start), "{message}: {devices} {volumes}");
                }
            }
        }
    }
}
