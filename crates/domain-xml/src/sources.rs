//! What QEMU opens for a volume.

use kubevirt_api::volumes::{HostDisk, Volume};

use crate::paths::{self, FilesOf};
use crate::{Input, RenderError, VolumeMode};

/// What QEMU opens, and as what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) format: &'static str,
    pub(crate) at: At,
    /// The pod itself cannot write to it.
    pub(crate) is_read_only: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum At {
    File(String),
    Device(String),
}

/// The source of the volume of that name; `None` when there is no such volume.
pub(crate) fn of(
    input: &Input<'_>,
    name: &str,
    disk_field: &impl Fn(&str) -> String,
) -> Result<Option<Source>, RenderError> {
    let volumes = &input.vmi.spec.volumes;
    let Some(index) = volumes.iter().position(|volume| volume.name == name) else {
        return Ok(None);
    };
    check_name(name).map_err(|problem| RenderError::invalid(disk_field(".name"), problem))?;
    let volume = &volumes[index];
    let found = made_in_the_pod(input, volume).or_else(|| brought_to_the_pod(input, volume));
    match found {
        Some(source) => Ok(Some(source)),
        None => host_disk(volume, index).map(Some),
    }
}

/// Images that the launcher makes.
fn made_in_the_pod(input: &Input<'_>, volume: &Volume) -> Option<Source> {
    let name = &volume.name;
    let meta = &input.vmi.metadata;
    let seed = |file_name| {
        let namespace = meta.namespace.as_deref().unwrap_or_default();
        let vmi = meta.name.as_deref().unwrap_or_default();
        paths::seed(namespace, vmi, file_name)
    };
    let (format, file) = if volume.container_disk.is_some() || volume.ephemeral.is_some() {
        ("qcow2", paths::overlay(name))
    } else if volume.empty_disk.is_some() {
        ("qcow2", paths::empty_disk(name))
    } else if volume.cloud_init_no_cloud.is_some() {
        ("raw", seed("noCloud.iso"))
    } else if volume.cloud_init_config_drive.is_some() {
        ("raw", seed("configdrive.iso"))
    } else if volume.service_account.is_some() {
        ("raw", paths::SERVICE_ACCOUNT_IMAGE.to_owned())
    } else {
        ("raw", files_of(volume)?.image(name))
    };
    Some(Source {
        format,
        at: At::File(file),
        is_read_only: false,
    })
}

/// Of which other object's files a volume is made.
fn files_of(volume: &Volume) -> Option<FilesOf> {
    let kinds = [
        (FilesOf::ConfigMap, volume.config_map.is_some()),
        (FilesOf::Secret, volume.secret.is_some()),
        (FilesOf::DownwardApi, volume.downward_api.is_some()),
        (FilesOf::Sysprep, volume.sysprep.is_some()),
    ];
    let found = kinds.into_iter().find(|(_, is)| *is);
    found.map(|(kind, _)| kind)
}

/// Claims: what the tenant keeps, raw whatever its first bytes look like.
fn brought_to_the_pod(input: &Input<'_>, volume: &Volume) -> Option<Source> {
    let claim = volume.persistent_volume_claim.as_ref();
    if claim.is_none() && volume.data_volume.is_none() {
        return None;
    }
    let name = &volume.name;
    let known = input.facts.volumes.get(name);
    let at = if known.is_some_and(|known| known.mode == VolumeMode::Block) {
        At::Device(paths::device(name))
    } else {
        let directory = paths::disk_directory(name);
        At::File(format!("{directory}/{}", paths::CLAIM_IMAGE))
    };
    Some(Source {
        format: "raw",
        at,
        is_read_only: claim.is_some_and(|claim| claim.read_only == Some(true)),
    })
}

/// An image on the node, if the volume is one; all other sorts are known by now.
fn host_disk(volume: &Volume, index: usize) -> Result<Source, RenderError> {
    let Some(disk) = &volume.host_disk else {
        let kind = kind_of(volume);
        let field = format!("spec.volumes[{index}].{kind}");
        return Err(RenderError::unsupported(field));
    };
    let Some(name) = host_disk_name(disk) else {
        let field = format!("spec.volumes[{index}].hostDisk.path");
        let problem = "give the absolute path of a file on the node";
        return Err(RenderError::invalid(field, problem));
    };
    let directory = paths::disk_directory(&volume.name);
    Ok(Source {
        format: "raw",
        at: At::File(format!("{directory}/{name}")),
        is_read_only: false,
    })
}

/// Name of the image in its directory.
pub fn host_disk_name(disk: &HostDisk) -> Option<&str> {
    let (_, name) = disk.path.rsplit_once('/')?;
    let is_plain = !name.is_empty() && name != "." && name != "..";
    (is_plain && disk.path.starts_with('/')).then_some(name)
}

/// Volume names become parts of paths.
fn check_name(name: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.starts_with('.') || name.is_empty() || !name.chars().all(plain) {
        return Err(format!("{name:?} is not a usable volume name"));
    }
    Ok(())
}

fn kind_of(volume: &Volume) -> &'static str {
    let kinds = [
        ("downwardMetrics", volume.downward_metrics.is_some()),
        ("memoryDump", volume.memory_dump.is_some()),
        ("containerPath", volume.container_path.is_some()),
    ];
    let found = kinds.into_iter().find(|(_, is)| *is);
    found.map_or("name", |(kind, _)| kind)
}
