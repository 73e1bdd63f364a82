//! The launcher's preparation steps for each volume: pure.

use domain_xml::paths::{self, FilesOf};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubevirt_api::{
    VirtualMachineInstance,
    quantity::Amount,
    volumes::{ContainerDiskSource, HostDisk, HostDiskType, Volume},
};
use launcher_channel::{Backing, DiskAccess, Prepare};
use seed::{CloudInit, CloudInitError, Data, Flavour};

use super::Claims;

/// Default label of disk images made from files.
const FILES_LABEL: &str = "cfgdata";
/// The label that Windows Setup searches for.
const ANSWERS_LABEL: &str = "unattendCD";
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
    vmi: &VirtualMachineInstance,
    claims: &Claims,
) -> Result<Vec<Prepare>, StepError> {
    let volumes = vmi.spec.volumes.iter().enumerate();
    volumes
        .filter_map(|(index, volume)| step(vmi, claims, index, volume).transpose())
        .collect()
}

fn step(
    vmi: &VirtualMachineInstance,
    claims: &Claims,
    index: usize,
    volume: &Volume,
) -> Result<Option<Prepare>, StepError> {
    if let Some(disk) = &volume.container_disk {
        return Ok(Some(container_disk(volume, index, disk)));
    }
    if let Some(disk) = &volume.empty_disk {
        return Ok(Some(Prepare::EmptyDisk {
            path: paths::empty_disk(&volume.name),
            bytes: bytes(volume, &disk.capacity)?,
        }));
    }
    if let Some(disk) = &volume.host_disk {
        return host_disk(volume, disk);
    }
    if let Some(step) = seed(vmi, volume)? {
        return Ok(Some(step));
    }
    Ok(files(volume).or_else(|| claim(volume, claims)))
}

fn container_disk(volume: &Volume, index: usize, disk: &ContainerDiskSource) -> Prepare {
    let backing = Backing::ImageRoot {
        root: paths::image_volume(index),
        path: disk.path.clone(),
    };
    Prepare::Overlay {
        path: paths::overlay(&volume.name),
        backing,
    }
}

fn host_disk(volume: &Volume, disk: &HostDisk) -> Result<Option<Prepare>, StepError> {
    let Some(name) = domain_xml::host_disk_name(disk) else {
        // Rendering the domain reports the error with the field's name.
        return Ok(None);
    };
    let access = match (&disk.type_, &disk.capacity) {
        (HostDiskType::DiskOrCreate, Some(capacity)) => create(bytes(volume, capacity)?),
        _ => DiskAccess::Write,
    };
    Ok(Some(Prepare::RawDisk {
        directory: paths::disk_directory(&volume.name),
        name: name.to_owned(),
        access,
    }))
}

/// A claim with a file system has an image to prepare; a block device has none.
fn claim(volume: &Volume, claims: &Claims) -> Option<Prepare> {
    let name = &volume.name;
    let directory = paths::disk_directory(name);
    let image = paths::CLAIM_IMAGE.to_owned();
    if volume.ephemeral.is_some() {
        let backing = if claims.is_block(name) {
            Backing::Device(paths::device(name))
        } else {
            Backing::Claim {
                directory,
                name: image,
            }
        };
        return Some(Prepare::Overlay {
            path: paths::overlay(name),
            backing,
        });
    }
    let source = volume.persistent_volume_claim.as_ref();
    if source.is_none() && volume.data_volume.is_none() || claims.is_block(name) {
        return None;
    }
    let read_only = source.is_some_and(|source| source.read_only == Some(true));
    let access = match (read_only, claims.bytes(name)) {
        (true, _) => DiskAccess::Read,
        (false, Some(bytes)) => create(bytes),
        (false, None) => DiskAccess::Write,
    };
    Some(Prepare::RawDisk {
        directory,
        name: image,
        access,
    })
}

fn create(bytes: u64) -> DiskAccess {
    DiskAccess::Create {
        bytes,
        tolerated_percent: TOLERATED_PERCENT,
        reserve_bytes: RESERVE_BYTES,
    }
}

/// Volumes whose disk is an image made from files mounted in the pod.
fn files(volume: &Volume) -> Option<Prepare> {
    let name = &volume.name;
    if volume.service_account.is_some() {
        return Some(Prepare::FilesImage {
            path: paths::SERVICE_ACCOUNT_IMAGE.to_owned(),
            label: FILES_LABEL.to_owned(),
            directory: paths::SERVICE_ACCOUNT.to_owned(),
        });
    }
    let (kind, label) = if let Some(source) = &volume.config_map {
        (FilesOf::ConfigMap, source.volume_label.as_deref())
    } else if let Some(source) = &volume.secret {
        (FilesOf::Secret, source.volume_label.as_deref())
    } else if let Some(source) = &volume.downward_api {
        (FilesOf::DownwardApi, source.volume_label.as_deref())
    } else if volume.sysprep.is_some() {
        (FilesOf::Sysprep, Some(ANSWERS_LABEL))
    } else {
        return None;
    };
    let label = label.filter(|label| !label.is_empty());
    Some(Prepare::FilesImage {
        path: kind.image(name),
        label: label.unwrap_or(FILES_LABEL).to_owned(),
        directory: kind.directory(name),
    })
}

fn bytes(volume: &Volume, capacity: &Quantity) -> Result<u64, CapacityNotUsable> {
    let amount = Amount::parse(capacity).map_err(|_| CapacityNotUsable {
        volume: volume.name.clone(),
        value: capacity.0.clone(),
    })?;
    Ok(amount.units())
}

/// The sources of data, in order of precedence: text, base64, a mounted secret.
type Sources<'a> = (&'a Option<String>, &'a Option<String>, bool);

struct SeedData<'a> {
    user: Sources<'a>,
    network: Sources<'a>,
}

fn seed(vmi: &VirtualMachineInstance, volume: &Volume) -> Result<Option<Prepare>, CloudInitError> {
    let (flavour, data) = if let Some(source) = &volume.cloud_init_no_cloud {
        let user = (
            &source.user_data,
            &source.user_data_base64,
            source.secret_ref.is_some(),
        );
        let network = (
            &source.network_data,
            &source.network_data_base64,
            source.network_data_secret_ref.is_some(),
        );
        (Flavour::NoCloud, SeedData { user, network })
    } else if let Some(source) = &volume.cloud_init_config_drive {
        let user = (
            &source.user_data,
            &source.user_data_base64,
            source.secret_ref.is_some(),
        );
        let network = (
            &source.network_data,
            &source.network_data_base64,
            source.network_data_secret_ref.is_some(),
        );
        (Flavour::ConfigDrive, SeedData { user, network })
    } else {
        return Ok(None);
    };
    cloud_init(vmi, &volume.name, flavour, &data).map(Some)
}

fn cloud_init(
    vmi: &VirtualMachineInstance,
    volume: &str,
    flavour: Flavour,
    data: &SeedData<'_>,
) -> Result<Prepare, CloudInitError> {
    let name = vmi.metadata.name.as_deref().unwrap_or_default();
    let namespace = vmi.metadata.namespace.as_deref().unwrap_or_default();
    let files = seed::cloud_init_files(&CloudInit {
        flavour,
        namespace,
        vmi: name,
        hostname: &host_name(vmi),
        instance_type: None,
        volume,
        user_data: first_source(&data.user),
        network_data: first_source(&data.network),
    })?;
    Ok(Prepare::Seed {
        path: paths::seed(namespace, name, flavour.file_name()),
        label: flavour.label().to_owned(),
        files,
    })
}

fn first_source<'a>((text, base64, secret): &Sources<'a>) -> Option<Data<'a>> {
    let text = text.as_deref().map(Data::Plain);
    text.or_else(|| base64.as_deref().map(Data::Base64))
        .or(secret.then_some(Data::Secret))
}

/// The pod's host name: from the spec, else the VMI's name up to the first dot.
fn host_name(vmi: &VirtualMachineInstance) -> String {
    let name = vmi.metadata.name.as_deref().unwrap_or_default();
    let name = vmi.spec.hostname.as_deref().unwrap_or(name);
    name.split('.')
        .next()
        .unwrap_or_default()
        .chars()
        .take(63)
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn steps_of(volume: &Value) -> Result<Vec<Prepare>, StepError> {
        let vmi = serde_json::from_value(json!({
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
        steps(&vmi, &Claims::of(&pod))
    }

    const DISKS: &str = "/var/run/kubevirt-private/vmi-disks/v";

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

    fn json_merge(into: &mut Value, from: Value) {
        let Value::Object(members) = from else { return };
        for (key, value) in members {
            into[key] = value;
        }
    }
}
