//! Volumes: one source each, shown by a disk or filesystem.

use std::collections::BTreeSet;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use k8s_openapi::api::core::v1::LocalObjectReference;
use kubevirt_api::{quantity::Amount, volumes::Volume};

use super::{
    Input, Origin, dns_label_fault,
    firmware::{is_clean_path, not_clean},
    repeated,
};
use crate::violation::Violation;

/// Inline seeds make objects large; more belongs into a secret.
const MAX_INLINE: usize = 2048;
/// Names of the fields for plain text and base64.
const USER: (&str, &str) = ("userData", "userDataBase64");
const NETWORK: (&str, &str) = ("networkData", "networkDataBase64");

pub(super) fn names(input: &Input<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for i in repeated(&input.spec.volumes, |volume| &volume.name) {
        let detail = "another volume has this name; names must be unique";
        found.push(input.duplicate(&format!("volumes[{i}].name"), detail));
    }
    for (path, volume) in paths(input) {
        if let Some(fault) = dns_label_fault(&volume.name) {
            found.push(input.invalid(&format!("{path}.name"), fault));
        }
    }
    found
}

pub(super) fn sources(input: &Input<'_>) -> Vec<Violation> {
    paths(input)
        .filter_map(|(path, volume)| {
            let given = sources_of(volume);
            match given.as_slice() {
                [_] => None,
                [] => {
                    let detail = "no source; give one, such as containerDisk or emptyDisk";
                    Some(input.invalid(&path, detail))
                }
                several => {
                    let detail =
                        format!("{} together; a volume has one source", several.join(", "));
                    Some(input.invalid(&path, detail))
                }
            }
        })
        .collect()
}

/// Only instances: their volumes have disks by default, so one without is a mistake.
pub(super) fn are_used(input: &Input<'_>) -> Vec<Violation> {
    if input.origin != Origin::Instance {
        return Vec::new();
    }
    let devices = &input.spec.domain.devices;
    let disks = devices.disks.iter().map(|disk| &disk.name);
    let filesystems = devices.filesystems.iter().map(|one| &one.name);
    let used: BTreeSet<&String> = disks.chain(filesystems).collect();
    paths(input)
        .filter(|(_, volume)| volume.memory_dump.is_none() && !used.contains(&volume.name))
        .map(|(path, volume)| {
            let detail = format!(
                "no disk is named {:?}; add one to domain.devices.disks",
                volume.name
            );
            input.invalid(&format!("{path}.name"), detail)
        })
        .collect()
}

pub(super) fn cloud_init(input: &Input<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for (path, volume) in paths(input) {
        for (kind, seed) in seeds(volume) {
            let field = format!("{path}.{kind}");
            found.extend(seed.faults().into_iter().map(|(at, detail)| {
                let field = if at.is_empty() {
                    field.clone()
                } else {
                    format!("{field}.{at}")
                };
                input.invalid(&field, detail)
            }));
        }
    }
    found
}

/// What the two kinds of cloud-init volumes have in common.
struct Seed<'a> {
    user: Vec<Inline<'a>>,
    network: Vec<Inline<'a>>,
    user_secret: Option<&'a LocalObjectReference>,
    network_secret: Option<&'a LocalObjectReference>,
}

fn seeds(volume: &Volume) -> Vec<(&'static str, Seed<'_>)> {
    let no_cloud = volume.cloud_init_no_cloud.as_ref().map(|source| Seed {
        user: inline(
            USER,
            source.user_data.as_deref(),
            source.user_data_base64.as_deref(),
        ),
        network: inline(
            NETWORK,
            source.network_data.as_deref(),
            source.network_data_base64.as_deref(),
        ),
        user_secret: source.secret_ref.as_ref(),
        network_secret: source.network_data_secret_ref.as_ref(),
    });
    let config_drive = volume.cloud_init_config_drive.as_ref().map(|source| Seed {
        user: inline(
            USER,
            source.user_data.as_deref(),
            source.user_data_base64.as_deref(),
        ),
        network: inline(
            NETWORK,
            source.network_data.as_deref(),
            source.network_data_base64.as_deref(),
        ),
        user_secret: source.secret_ref.as_ref(),
        network_secret: source.network_data_secret_ref.as_ref(),
    });
    let no_cloud = no_cloud.map(|seed| ("cloudInitNoCloud", seed));
    no_cloud
        .into_iter()
        .chain(config_drive.map(|seed| ("cloudInitConfigDrive", seed)))
        .collect()
}

impl Seed<'_> {
    /// Field below the source (empty for the source itself) and what is wrong.
    fn faults(&self) -> Vec<(&'static str, String)> {
        let (user, network) = (&self.user, &self.network);
        let user_count = user.len() + usize::from(self.user_secret.is_some());
        let network_count = network.len() + usize::from(self.network_secret.is_some());
        let mut found = Vec::new();
        if user_count > 1 {
            let detail = "more than one of secretRef, userData and userDataBase64; choose one";
            found.push(("", detail.to_owned()));
        }
        if network_count > 1 {
            let detail = "more than one of networkDataSecretRef, networkData and networkDataBase64; choose one";
            found.push(("", detail.to_owned()));
        }
        if user_count + network_count == 0 {
            found.push((
                "",
                "no data; give userData, for example \"#cloud-config\"".to_owned(),
            ));
        }
        found.extend(user.iter().chain(network).filter_map(Inline::fault));
        found
    }
}

/// Data written into the object itself.
struct Inline<'a> {
    field: &'static str,
    text: &'a str,
    is_base64: bool,
}

fn inline<'a>(
    (name, base64_name): (&'static str, &'static str),
    plain: Option<&'a str>,
    base64: Option<&'a str>,
) -> Vec<Inline<'a>> {
    [(name, plain, false), (base64_name, base64, true)]
        .into_iter()
        .filter_map(|(field, text, is_base64)| {
            let text = text.filter(|text| !text.is_empty())?;
            Some(Inline {
                field,
                text,
                is_base64,
            })
        })
        .collect()
}

impl Inline<'_> {
    fn fault(&self) -> Option<(&'static str, String)> {
        let length = if self.is_base64 {
            match STANDARD.decode(self.text) {
                Ok(data) => data.len(),
                Err(error) => return Some((self.field, format!("no base64: {error}"))),
            }
        } else {
            self.text.len()
        };
        (length > MAX_INLINE).then(|| {
            let detail = format!("{length} bytes; at most {MAX_INLINE} may be written here");
            (self.field, detail)
        })
    }
}

pub(super) fn container_disks(input: &Input<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for (path, volume) in paths(input) {
        let Some(disk) = &volume.container_disk else {
            continue;
        };
        if disk.image.is_empty() {
            let detail = "empty; name the image that holds the disk";
            found.push(input.required(&format!("{path}.containerDisk.image"), detail));
        }
        if let Some(at) = disk
            .path
            .as_deref()
            .filter(|at| !at.is_empty() && !is_clean_path(at))
        {
            found.push(input.invalid(&format!("{path}.containerDisk.path"), not_clean(at)));
        }
    }
    found
}

pub(super) fn empty_disks(input: &Input<'_>) -> Vec<Violation> {
    paths(input)
        .filter_map(|(path, volume)| {
            let capacity = &volume.empty_disk.as_ref()?.capacity;
            let detail = match Amount::parse(capacity) {
                Ok(amount) if amount > Amount::ZERO => return None,
                Ok(_) => "a disk needs a size; write one such as 2Gi".to_owned(),
                Err(error) => error.to_string(),
            };
            Some(input.invalid(&format!("{path}.emptyDisk.capacity"), detail))
        })
        .collect()
}

pub(super) fn utility_volumes(input: &Input<'_>) -> Vec<Violation> {
    if input.spec.utility_volumes.is_empty() {
        return Vec::new();
    }
    vec![input.invalid(
        "utilityVolumes",
        "only the system attaches these; leave the list empty",
    )]
}

fn paths<'a>(input: &Input<'a>) -> impl Iterator<Item = (String, &'a Volume)> + use<'a> {
    input
        .spec
        .volumes
        .iter()
        .enumerate()
        .map(|(i, volume)| (format!("volumes[{i}]"), volume))
}

fn sources_of(volume: &Volume) -> Vec<&'static str> {
    [
        ("hostDisk", volume.host_disk.is_some()),
        (
            "persistentVolumeClaim",
            volume.persistent_volume_claim.is_some(),
        ),
        ("cloudInitNoCloud", volume.cloud_init_no_cloud.is_some()),
        (
            "cloudInitConfigDrive",
            volume.cloud_init_config_drive.is_some(),
        ),
        ("sysprep", volume.sysprep.is_some()),
        ("containerDisk", volume.container_disk.is_some()),
        ("ephemeral", volume.ephemeral.is_some()),
        ("emptyDisk", volume.empty_disk.is_some()),
        ("dataVolume", volume.data_volume.is_some()),
        ("configMap", volume.config_map.is_some()),
        ("secret", volume.secret.is_some()),
        ("downwardAPI", volume.downward_api.is_some()),
        ("serviceAccount", volume.service_account.is_some()),
        ("downwardMetrics", volume.downward_metrics.is_some()),
        ("memoryDump", volume.memory_dump.is_some()),
        ("containerPath", volume.container_path.is_some()),
    ]
    .into_iter()
    .filter(|(_, is_given)| *is_given)
    .map(|(name, _)| name)
    .collect()
}
