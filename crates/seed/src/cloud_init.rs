//! The files of a cloud-init seed.
//!
//! The content of a secret never passes through here: a file names the path at which the pod mounts
//! the secret, and the launcher reads it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use launcher_channel::{FileSource, SeedFile};
use serde_json::{Value, json};

/// The two layouts that cloud-init recognises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavour {
    NoCloud,
    ConfigDrive,
}

impl Flavour {
    /// The volume label by which cloud-init finds the image.
    pub fn label(self) -> &'static str {
        match self {
            Self::NoCloud => "cidata",
            Self::ConfigDrive => "config-2",
        }
    }
}

/// The source of user data or network data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Data<'a> {
    Plain(&'a str),
    Base64(&'a str),
    /// A secret that the pod mounts at this directory.
    Secret {
        directory: &'a str,
    },
}

/// One cloud-init volume of one VMI.
#[derive(Debug, Clone, Copy)]
pub struct CloudInit<'a> {
    pub flavour: Flavour,
    pub namespace: &'a str,
    pub vmi: &'a str,
    /// The guest's host name.
    pub hostname: &'a str,
    /// Name of the instance type, if the VM has one.
    pub instance_type: Option<&'a str>,
    /// Name of the volume.
    pub volume: &'a str,
    pub user_data: Option<Data<'a>>,
    pub network_data: Option<Data<'a>>,
    /// Directories with public keys for the guest's default user.
    pub keys: &'a [String],
    /// Devices with tags, for the config drive alone.
    pub devices: &'a [Device],
}

/// A device of the guest that the user has tagged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    pub kind: DeviceKind,
    pub bus: DeviceBus,
    /// Such as `0000:01:00.0`, or `0:0:0:1` on the bus SCSI.
    pub address: String,
    /// Hardware address of a network interface.
    pub mac: Option<String>,
    /// Serial number of a disk.
    pub serial: Option<String>,
    /// The guest's NUMA cell that the device is near to.
    pub numa_cell: Option<u32>,
    /// Virtual CPUs that the device is near to.
    pub near_cpus: Vec<u32>,
    pub tag: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceKind {
    Interface,
    HostDevice,
    Disk,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceBus {
    Pci,
    Scsi,
}

/// Why the data of a volume cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CloudInitError {
    #[error("decode {field} of cloud-init volume {volume:?} as base64")]
    Base64 {
        volume: String,
        field: &'static str,
        #[source]
        source: base64::DecodeError,
    },
    #[error("use {field} of cloud-init volume {volume:?}: the decoded bytes are not UTF-8 text")]
    NotText { volume: String, field: &'static str },
}

/// The files of the seed, meta data first.
pub fn cloud_init_files(seed: &CloudInit<'_>) -> Result<Vec<SeedFile>, CloudInitError> {
    let [meta, user, network] = match seed.flavour {
        Flavour::NoCloud => ["meta-data", "user-data", "network-config"],
        Flavour::ConfigDrive => [
            "openstack/latest/meta_data.json",
            "openstack/latest/user_data",
            "openstack/latest/network_data.json",
        ],
    };
    let mut files = vec![file(meta, with_keys(seed, meta_data(seed)))];
    // cloud-init ignores a NoCloud seed without user-data, so the file is always present.
    let user_data = seed.user_data.unwrap_or(Data::Plain(""));
    files.push(file(user, source(seed, "userData", user_data)?));
    if let Some(data) = seed.network_data {
        files.push(file(network, source(seed, "networkData", data)?));
    }
    Ok(files)
}

fn meta_data(seed: &CloudInit<'_>) -> String {
    let id = format!("{}.{}", seed.vmi, seed.namespace);
    let mut meta = match seed.flavour {
        Flavour::NoCloud => json!({"instance-id": id, "local-hostname": seed.hostname}),
        Flavour::ConfigDrive => json!({
            "instance_id": id,
            "uuid": id,
            "hostname": seed.hostname,
            "local_hostname": seed.hostname,
        }),
    };
    if let Some(instance_type) = seed.instance_type {
        let key = match seed.flavour {
            Flavour::NoCloud => "instance-type",
            Flavour::ConfigDrive => "instance_type",
        };
        meta[key] = instance_type.into();
    }
    if seed.flavour == Flavour::ConfigDrive && !seed.devices.is_empty() {
        meta["devices"] = seed.devices.iter().map(device).collect();
    }
    meta.to_string()
}

/// In the form of `OpenStack`'s metadata.
fn device(device: &Device) -> Value {
    let kind = match device.kind {
        DeviceKind::Interface => "nic",
        DeviceKind::HostDevice => "hostdev",
        DeviceKind::Disk => "disk",
    };
    let bus = match device.bus {
        DeviceBus::Pci => "pci",
        DeviceBus::Scsi => "scsi",
    };
    let mut described = json!({
        "type": kind,
        "bus": bus,
        "address": device.address,
        "tags": [device.tag],
    });
    if let Some(mac) = &device.mac {
        described["mac"] = mac.as_str().into();
    }
    if let Some(serial) = &device.serial {
        described["serial"] = serial.as_str().into();
    }
    if let Some(cell) = device.numa_cell {
        described["numaNode"] = cell.into();
    }
    if !device.near_cpus.is_empty() {
        described["alignedCPUs"] = device.near_cpus.clone().into();
    }
    described
}

fn with_keys(seed: &CloudInit<'_>, meta: String) -> FileSource {
    if seed.keys.is_empty() {
        return FileSource::Text(meta);
    }
    let member = match seed.flavour {
        Flavour::NoCloud => "public-keys",
        Flavour::ConfigDrive => "public_keys",
    };
    FileSource::WithKeys {
        object: meta,
        member: member.to_owned(),
        directories: seed.keys.to_vec(),
    }
}

fn source(
    seed: &CloudInit<'_>,
    field: &'static str,
    data: Data<'_>,
) -> Result<FileSource, CloudInitError> {
    let volume = seed.volume;
    match data {
        Data::Plain(text) => Ok(FileSource::Text(text.to_owned())),
        Data::Base64(text) => {
            // Manifests often break the text into lines.
            let packed: String = text.split_ascii_whitespace().collect();
            let bytes = STANDARD
                .decode(packed)
                .map_err(|source| CloudInitError::Base64 {
                    volume: volume.to_owned(),
                    field,
                    source,
                })?;
            let text = String::from_utf8(bytes).map_err(|_| CloudInitError::NotText {
                volume: volume.to_owned(),
                field,
            })?;
            Ok(FileSource::Text(text))
        }
        Data::Secret { directory } => {
            // Both spellings of the key are in use.
            let keys = [field.to_lowercase(), field.to_owned()];
            Ok(FileSource::FirstOf(
                keys.iter()
                    .map(|key| format!("{directory}/{key}"))
                    .collect(),
            ))
        }
    }
}

fn file(name: &str, source: FileSource) -> SeedFile {
    SeedFile {
        name: name.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seed(flavour: Flavour) -> CloudInit<'static> {
        CloudInit {
            flavour,
            namespace: "default",
            vmi: "a",
            hostname: "a",
            instance_type: None,
            volume: "init",
            user_data: Some(Data::Base64("aGVs\nbG8=")),
            keys: &[],
            devices: &[],
            network_data: Some(Data::Secret {
                directory: "/secrets/init-ndata",
            }),
        }
    }

    #[test]
    fn no_cloud_has_meta_user_and_network_files() {
        let files = cloud_init_files(&seed(Flavour::NoCloud)).unwrap();
        let expected = [
            file(
                "meta-data",
                FileSource::Text(r#"{"instance-id":"a.default","local-hostname":"a"}"#.into()),
            ),
            file("user-data", FileSource::Text("hello".into())),
            file(
                "network-config",
                FileSource::FirstOf(vec![
                    "/secrets/init-ndata/networkdata".into(),
                    "/secrets/init-ndata/networkData".into(),
                ]),
            ),
        ];
        assert_eq!(files, expected);
    }

    #[test]
    fn config_drive_has_the_openstack_paths() {
        let names: Vec<String> = cloud_init_files(&seed(Flavour::ConfigDrive))
            .unwrap()
            .into_iter()
            .map(|file| file.name)
            .collect();
        assert_eq!(
            names,
            [
                "openstack/latest/meta_data.json",
                "openstack/latest/user_data",
                "openstack/latest/network_data.json"
            ]
        );
    }

    #[test]
    fn config_drive_names_tagged_devices() {
        let device = |kind, mac: Option<&str>| Device {
            kind,
            bus: DeviceBus::Pci,
            address: "0000:01:00.0".to_owned(),
            mac: mac.map(str::to_owned),
            serial: None,
            numa_cell: None,
            near_cpus: Vec::new(),
            tag: "red".to_owned(),
        };
        let devices = [
            device(DeviceKind::Interface, Some("02:00:00:00:00:01")),
            Device {
                numa_cell: Some(0),
                ..device(DeviceKind::HostDevice, None)
            },
            Device {
                near_cpus: vec![2, 3],
                ..device(DeviceKind::HostDevice, None)
            },
            Device {
                bus: DeviceBus::Scsi,
                address: "0:0:0:1".to_owned(),
                serial: Some("D1".to_owned()),
                ..device(DeviceKind::Disk, None)
            },
        ];
        for (flavour, expected) in [
            (Flavour::NoCloud, Value::Null),
            (
                Flavour::ConfigDrive,
                json!([
                    {"type": "nic", "bus": "pci", "address": "0000:01:00.0", "mac": "02:00:00:00:00:01", "tags": ["red"]},
                    {"type": "hostdev", "bus": "pci", "address": "0000:01:00.0", "numaNode": 0, "tags": ["red"]},
                    {"type": "hostdev", "bus": "pci", "address": "0000:01:00.0", "alignedCPUs": [2, 3], "tags": ["red"]},
                    {"type": "disk", "bus": "scsi", "address": "0:0:0:1", "serial": "D1", "tags": ["red"]},
                ]),
            ),
        ] {
            let files = cloud_init_files(&CloudInit {
                devices: &devices,
                ..seed(flavour)
            });
            let FileSource::Text(text) = &files.unwrap()[0].source else {
                panic!("no text")
            };
            let meta: Value = serde_json::from_str(text).unwrap();
            assert_eq!(meta["devices"], expected);
        }
    }

    #[test]
    fn missing_user_data_is_an_empty_file() {
        let mut seed = seed(Flavour::NoCloud);
        (seed.user_data, seed.network_data) = (None, None);
        let files = cloud_init_files(&seed).unwrap();
        assert_eq!(files[1], file("user-data", FileSource::Text(String::new())));
        assert_eq!(files.len(), 2);
    }

    #[test]
    fn broken_base64_names_volume_and_field() {
        let mut seed = seed(Flavour::NoCloud);
        seed.user_data = Some(Data::Base64("###"));
        assert_eq!(
            cloud_init_files(&seed).unwrap_err().to_string(),
            "decode userData of cloud-init volume \"init\" as base64"
        );
    }

    #[test]
    fn keys_are_added_to_the_meta_data_by_the_launcher() {
        let directories = ["/secret".to_owned()];
        for (flavour, expected) in [
            (Flavour::NoCloud, "public-keys"),
            (Flavour::ConfigDrive, "public_keys"),
        ] {
            let files = cloud_init_files(&CloudInit {
                keys: &directories,
                ..seed(flavour)
            });
            let FileSource::WithKeys { member, .. } = &files.unwrap()[0].source else {
                panic!("no keys")
            };
            assert_eq!(member, expected);
        }
    }
}
