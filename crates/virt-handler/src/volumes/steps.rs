//! The launcher's preparation steps for each volume and for the Ignition configuration: pure.

use domain_xml::{TaggedBus, TaggedDevice, TaggedKind};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubevirt_api::{quantity::Amount, volumes::ContainerDiskSource};
use launcher_channel::{Backing, DiskAccess, Prepare};
use model::{
    Claim, CloudInitFormat, FILES_LABEL, Guest, HostDisk, HostFileCreation, Propagation, SeedPart,
    Volume, VolumeSource, paths,
};
use seed::{CloudInit, CloudInitError, Data, Device, DeviceBus, DeviceKind, Flavour};

use super::Claims;

/// By how many percent a new disk may be smaller than its claim if the file system is smaller.
const TOLERATED_PERCENT: u8 = 10;
/// Free space left on a claim besides the disk.
const RESERVE_BYTES: u64 = 128 << 10;

/// Why a volume cannot be prepared.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StepError {
    #[error(transparent)]
    CloudInit(#[from] CloudInitError),
    #[error(transparent)]
    Capacity(#[from] CapacityNotUsable),
}

#[derive(Debug, thiserror::Error)]
#[error("volume {volume}: capacity {value:?} is not a valid size")]
pub(crate) struct CapacityNotUsable {
    volume: String,
    value: String,
}

/// All steps, in the order of the volumes.
pub(crate) fn steps(
    guest: &Guest<'_>,
    claims: &Claims,
    devices: &[TaggedDevice],
) -> Result<Vec<Prepare>, StepError> {
    // The guest mounts the directory of a filesystem as it is.
    let volumes = guest.volumes.iter();
    let steps = volumes
        .filter(|volume| !guest.is_filesystem(volume.name))
        .filter_map(|volume| step(guest, claims, volume, devices).transpose());
    let ignition = guest.ignition().map(|text| Prepare::Text {
        path: paths::ignition(guest.namespace(), guest.name()),
        text: text.to_owned(),
    });
    steps.chain(ignition.map(Ok)).collect()
}

fn step(
    guest: &Guest<'_>,
    claims: &Claims,
    volume: &Volume<'_>,
    devices: &[TaggedDevice],
) -> Result<Option<Prepare>, StepError> {
    Ok(match volume.source {
        VolumeSource::ContainerDisk(disk) => Some(container_disk(volume, disk)),
        VolumeSource::EmptyDisk(disk) => Some(Prepare::EmptyDisk {
            path: paths::empty_disk(volume.name),
            bytes: bytes(volume, &disk.capacity)?,
        }),
        VolumeSource::HostDisk(disk) => host_disk(volume, disk)?,
        VolumeSource::CloudInit(seed) => Some(cloud_init(guest, volume.name, &seed, devices)?),
        VolumeSource::Files(files) => Some(Prepare::FilesImage {
            path: files.image(volume.name),
            label: files.label().to_owned(),
            directory: files.directory(volume.name),
        }),
        VolumeSource::ServiceAccount(_) => Some(Prepare::FilesImage {
            path: paths::SERVICE_ACCOUNT_IMAGE.to_owned(),
            label: FILES_LABEL.to_owned(),
            directory: paths::SERVICE_ACCOUNT.to_owned(),
        }),
        VolumeSource::PersistentVolumeClaim(claim) | VolumeSource::DataVolume(claim) => {
            claim_image(volume, claim, claims)
        }
        VolumeSource::Ephemeral(_) => Some(ephemeral_overlay(volume, claims)),
        // The launcher makes the disk with the first metrics.
        VolumeSource::DownwardMetrics
        // Not a disk: rendering the domain reports the error.
        | VolumeSource::MemoryDump(_)
        | VolumeSource::SavedState(_)
        | VolumeSource::ContainerPath(_)
        | VolumeSource::Missing => None,
    })
}

fn container_disk(volume: &Volume<'_>, disk: &ContainerDiskSource) -> Prepare {
    let backing = Backing::ImageRoot {
        root: paths::image_volume(volume.index),
        path: disk.path.clone(),
    };
    Prepare::Overlay {
        path: paths::overlay(volume.name),
        backing,
    }
}

fn host_disk(volume: &Volume<'_>, disk: HostDisk<'_>) -> Result<Option<Prepare>, StepError> {
    let Ok(file) = disk.file else {
        // Rendering the domain reports the error with the field's name.
        return Ok(None);
    };
    let access = match (disk.creation, disk.capacity) {
        (HostFileCreation::IfMissing, Some(capacity)) => create(bytes(volume, capacity)?),
        (HostFileCreation::IfMissing, None) | (HostFileCreation::Never, _) => DiskAccess::Write,
    };
    Ok(Some(Prepare::RawDisk {
        directory: paths::disk_directory(volume.name),
        name: file.name.to_owned(),
        access,
    }))
}

/// A claim with a file system has an image to prepare; a block device has none.
fn claim_image(volume: &Volume<'_>, claim: Claim<'_>, claims: &Claims) -> Option<Prepare> {
    if claims.is_block(volume.name) {
        return None;
    }
    Some(raw_disk(
        paths::disk_directory(volume.name),
        volume,
        claim,
        claims,
    ))
}

/// The image of a volume that another pod brings.
pub(crate) fn hot_step(volume: &Volume<'_>, claim: Claim<'_>, claims: &Claims) -> Prepare {
    raw_disk(paths::hotplugged(volume.name), volume, claim, claims)
}

fn raw_disk(directory: String, volume: &Volume<'_>, claim: Claim<'_>, claims: &Claims) -> Prepare {
    let access = match (claim.is_read_only, claims.bytes(volume.name)) {
        (true, _) => DiskAccess::Read,
        (false, Some(bytes)) => create(bytes),
        (false, None) => DiskAccess::Write,
    };
    Prepare::RawDisk {
        directory,
        name: paths::CLAIM_IMAGE.to_owned(),
        access,
    }
}

fn ephemeral_overlay(volume: &Volume<'_>, claims: &Claims) -> Prepare {
    let name = volume.name;
    let backing = if claims.is_block(name) {
        Backing::Device(paths::device(name))
    } else {
        Backing::Claim {
            directory: paths::disk_directory(name),
            name: paths::CLAIM_IMAGE.to_owned(),
        }
    };
    Prepare::Overlay {
        path: paths::overlay(name),
        backing,
    }
}

fn create(bytes: u64) -> DiskAccess {
    DiskAccess::Create {
        bytes,
        tolerated_percent: TOLERATED_PERCENT,
        reserve_bytes: RESERVE_BYTES,
    }
}

fn bytes(volume: &Volume<'_>, capacity: &Quantity) -> Result<u64, CapacityNotUsable> {
    let amount = Amount::parse(capacity).map_err(|_| CapacityNotUsable {
        volume: volume.name.to_owned(),
        value: capacity.0.clone(),
    })?;
    Ok(amount.units())
}

fn cloud_init(
    guest: &Guest<'_>,
    volume: &str,
    source: &model::CloudInit<'_>,
    devices: &[TaggedDevice],
) -> Result<Prepare, CloudInitError> {
    let flavour = match source.format {
        CloudInitFormat::NoCloud => Flavour::NoCloud,
        CloudInitFormat::ConfigDrive => Flavour::ConfigDrive,
    };
    let user_secret = SeedPart::UserData.secret_directory(volume);
    let network_secret = SeedPart::NetworkData.secret_directory(volume);
    let keys: Vec<String> = guest
        .credentials()
        .filter(|credential| credential.propagation == Propagation::Seed(source.format))
        .map(|credential| credential.directory())
        .collect();
    let devices: Vec<Device> = devices.iter().map(device).collect();
    let files = seed::cloud_init_files(&CloudInit {
        flavour,
        namespace: guest.namespace(),
        vmi: guest.name(),
        hostname: &guest.hostname(),
        instance_type: None,
        volume,
        user_data: first_source(source.user_data, &user_secret),
        network_data: first_source(source.network_data, &network_secret),
        keys: &keys,
        devices: &devices,
    })?;
    Ok(Prepare::Seed {
        path: paths::seed(guest.namespace(), guest.name(), source.format),
        label: flavour.label().to_owned(),
        files,
    })
}

fn device(device: &TaggedDevice) -> Device {
    Device {
        kind: match device.kind {
            TaggedKind::Interface => DeviceKind::Interface,
            TaggedKind::HostDevice => DeviceKind::HostDevice,
            TaggedKind::Disk => DeviceKind::Disk,
        },
        bus: match device.bus {
            TaggedBus::Pci => DeviceBus::Pci,
            TaggedBus::Scsi => DeviceBus::Scsi,
        },
        address: device.address.clone(),
        mac: device.mac.clone(),
        serial: device.serial.clone(),
        numa_cell: device.near.cell,
        near_cpus: device.near.cpus.clone(),
        tag: device.tag.clone(),
    }
}

/// The data that counts: text, else base64, else a secret mounted at the directory.
fn first_source<'a>(data: model::SeedData<'a>, directory: &'a str) -> Option<Data<'a>> {
    let text = data.text.map(Data::Plain);
    text.or_else(|| data.base64.map(Data::Base64))
        .or_else(|| data.secret.map(|_| Data::Secret { directory }))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn tagged() -> TaggedDevice {
        TaggedDevice {
            kind: TaggedKind::Interface,
            bus: TaggedBus::Pci,
            address: "0000:01:00.0".to_owned(),
            mac: None,
            serial: None,
            near: domain_xml::Near::default(),
            tag: "red".to_owned(),
        }
    }

    #[test]
    fn tagged_device_is_in_the_config_drive() {
        for (format, is_there) in [("cloudInitNoCloud", false), ("cloudInitConfigDrive", true)] {
            let found = steps_of(&json!({"name": "v", format: {"userData": "x"}})).unwrap();
            let found = format!("{found:?}");
            assert_eq!(found.contains("0000:01:00.0"), is_there, "{found}");
        }
    }

    fn steps_of(volume: &Value) -> Result<Vec<Prepare>, StepError> {
        let vmi: kubevirt_api::VirtualMachineInstance = serde_json::from_value(json!({
            "metadata": {"name": "a", "namespace": "n"},
            "spec": {"volumes": [volume]},
        }))
        .unwrap();
        let pod = serde_json::from_value(json!({
            "metadata": {"annotations": {"ferrovirt.io/claims": json!({
                "v": {"capacity": {"storage": "1Gi"}},
            }).to_string()}},
            "spec": {"containers": [
                {"name": "compute", "volumeDevices": [{"name": "raw", "devicePath": "/dev/raw"}]},
            ]},
        }))
        .unwrap();
        steps(&Guest::of(&vmi), &Claims::of(&pod), &[tagged()])
    }

    const DISKS: &str = "/var/run/kubevirt-private/vmi-disks/v";

    #[test]
    fn ignition_configuration_becomes_a_file() {
        let text = r#"{"ignition": {"version": "3.4.0"}}"#;
        let vmi: kubevirt_api::VirtualMachineInstance =
            serde_json::from_value(json!({"metadata": {
                "name": "a", "namespace": "n",
                "annotations": {"kubevirt.io/ignitiondata": text},
            }}))
            .unwrap();
        let pod = serde_json::from_value(json!({"metadata": {}, "spec": {"containers": []}}));
        let found = steps(&Guest::of(&vmi), &Claims::of(&pod.unwrap()), &[]).unwrap();
        let path = "/var/run/kubevirt-ephemeral-disks/ignition-data/n/a/data.ign";
        let expected = Prepare::Text {
            path: path.to_owned(),
            text: text.to_owned(),
        };
        assert_eq!(found, [expected]);
    }

    #[test]
    fn claim_image_is_created_if_its_size_is_known() {
        let create = json!({"create": {
            "bytes": 1 << 30, "toleratedPercent": 10, "reserveBytes": 131_072,
        }});
        let claim = |rest: Value| {
            let mut volume = json!({"name": "v"});
            json_merge(&mut volume, rest);
            volume
        };
        for (volume, access) in [
            (
                claim(json!({"persistentVolumeClaim": {"claimName": "c"}})),
                create.clone(),
            ),
            (claim(json!({"dataVolume": {"name": "c"}})), create),
            (
                claim(json!({"persistentVolumeClaim": {"claimName": "c", "readOnly": true}})),
                json!("read"),
            ),
        ] {
            let found = serde_json::to_value(steps_of(&volume).unwrap()).unwrap();
            let expected = json!([{"rawDisk": {
                "directory": DISKS, "name": "disk.img", "access": access,
            }}]);
            assert_eq!(found, expected);
        }
        let unknown = json!({"name": "w", "persistentVolumeClaim": {"claimName": "c"}});
        let found = serde_json::to_value(steps_of(&unknown).unwrap()).unwrap();
        assert_eq!(found[0]["rawDisk"]["access"], "write");
    }

    #[test]
    fn block_device_needs_no_step_and_ephemeral_volume_an_overlay() {
        let claim = json!({"name": "raw", "persistentVolumeClaim": {"claimName": "c"}});
        assert_eq!(steps_of(&claim).unwrap(), []);
        let source = json!({"persistentVolumeClaim": {"claimName": "c"}});
        for (name, backing) in [
            ("raw", json!({"device": "/dev/raw"})),
            (
                "v",
                json!({"claim": {"directory": DISKS, "name": "disk.img"}}),
            ),
        ] {
            let found = steps_of(&json!({"name": name, "ephemeral": source})).unwrap();
            let found = serde_json::to_value(found).unwrap();
            assert_eq!(found[0]["overlay"]["backing"], backing);
        }
    }

    #[test]
    fn file_volumes_become_images_with_the_expected_labels() {
        let private = "/var/run/kubevirt-private";
        for (volume, image, label, directory) in [
            (
                json!({"name": "v", "configMap": {"name": "c"}}),
                format!("{private}/config-map-disks/v.iso"),
                "cfgdata",
                format!("{private}/config-map/v"),
            ),
            (
                json!({"name": "v", "secret": {"secretName": "c", "volumeLabel": "mine"}}),
                format!("{private}/secret-disks/v.iso"),
                "mine",
                format!("{private}/secret/v"),
            ),
            (
                json!({"name": "v", "downwardAPI": {"fields": [], "volumeLabel": ""}}),
                format!("{private}/downwardapi-disks/v.iso"),
                "cfgdata",
                format!("{private}/downwardapi/v"),
            ),
            (
                json!({"name": "v", "sysprep": {"secret": {"name": "c"}}}),
                format!("{private}/sysprep-disks/v.iso"),
                "unattendCD",
                format!("{private}/sysprep/v"),
            ),
            (
                json!({"name": "v", "serviceAccount": {"serviceAccountName": "c"}}),
                format!("{private}/service-account-disk/service-account.iso"),
                "cfgdata",
                "/var/run/secrets/kubernetes.io/serviceaccount".to_owned(),
            ),
        ] {
            let expected = [Prepare::FilesImage {
                path: image,
                label: label.to_owned(),
                directory,
            }];
            assert_eq!(steps_of(&volume).unwrap(), expected);
        }
    }

    #[test]
    fn host_disk_is_created_only_if_requested() {
        let disk = |kind: &str, capacity: Value| json!({"name": "v", "hostDisk": {"path": "/d/x.img", "type": kind, "capacity": capacity}});
        for (volume, created) in [
            (disk("Disk", Value::Null), false),
            (disk("DiskOrCreate", json!("2Gi")), true),
        ] {
            let found = steps_of(&volume).unwrap();
            let [Prepare::RawDisk { name, access, .. }] = &found[..] else {
                panic!("{found:?}");
            };
            assert_eq!(name, "x.img");
            assert_eq!(matches!(access, DiskAccess::Create { .. }), created);
        }
        let error = steps_of(&disk("DiskOrCreate", json!("much"))).unwrap_err();
        assert_eq!(
            error.to_string(),
            "volume v: capacity \"much\" is not a valid size"
        );
    }

    #[test]
    fn empty_disk_has_its_capacity() {
        let disk = json!({"name": "v", "emptyDisk": {"capacity": "3Mi"}});
        let found = steps_of(&disk).unwrap();
        let [Prepare::EmptyDisk { bytes, .. }] = found.as_slice() else {
            panic!("{found:?}");
        };
        assert_eq!(*bytes, 3 << 20);
    }

    #[test]
    fn seeds_of_both_formats_have_the_data_in_any_of_its_forms() {
        for format in ["cloudInitNoCloud", "cloudInitConfigDrive"] {
            for (data, expected) in [
                (json!({"userData": "plain-user"}), "plain-user"),
                (json!({"userDataBase64": "Y29kZWQ="}), "coded"),
                (json!({"secretRef": {"name": "s"}}), "/secret/v-udata"),
                (json!({"networkData": "plain-network"}), "plain-network"),
                (json!({"networkDataBase64": "Y29kZWQ="}), "coded"),
                (
                    json!({"networkDataSecretRef": {"name": "s"}}),
                    "/secret/v-ndata",
                ),
            ] {
                let found = steps_of(&json!({"name": "v", format: data})).unwrap();
                let [Prepare::Seed { files, .. }] = found.as_slice() else {
                    panic!("{found:?}");
                };
                let files = format!("{files:?}");
                assert!(files.contains(expected), "{format} {data}: {files}");
            }
        }
    }

    fn json_merge(into: &mut Value, from: Value) {
        let Value::Object(members) = from else { return };
        for (key, value) in members {
            into[key] = value;
        }
    }
}
