//! Init containers that copy container disks, for clusters whose nodes mount no images.
//!
//! The first container installs our copy program in a shared volume. Each of the others runs that
//! program in a user's image, which need not contain anything but a disk, and copies the disk to the
//! same path below a directory of the pod. The guest's container mounts that directory where it
//! would otherwise mount the image.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, ResourceRequirements, VolumeMount};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubevirt_api::volumes::ContainerDiskSource;
use model::VolumeSource;

use crate::volumes::{copied_disk, mount};
use crate::{Input, PodError, guest, security};

pub(crate) const PROGRAM_VOLUME: &str = "virt-bin-share-dir";
pub(crate) const DISKS_VOLUME: &str = "container-disks";
/// The directory for kernel and initial RAM disk, beside the copied disks.
pub(crate) const KERNEL_BOOT_DIRECTORY: &str = "kernel-boot";

const PROGRAM: &str = "/usr/bin/container-disk";
const PROGRAM_DIRECTORY: &str = "/container-disk-binary";
const DISKS_DIRECTORY: &str = "/var/run/kubevirt/container-disks";

/// Longest name of a container.
const MAX_NAME: usize = 63;

/// Whether the guest uses images.
pub(crate) fn has_images(input: &Input<'_>) -> bool {
    input.guest.kernel_boot().is_some() || container_disks(input).next().is_some()
}

pub(crate) fn render(input: &Input<'_>) -> Result<Vec<Container>, PodError> {
    if !has_images(input) {
        return Ok(Vec::new());
    }
    let is_guaranteed = input.guest.has_dedicated_cpus() || guest::is_guaranteed(input.guest)?;
    let class = if is_guaranteed {
        Class::Guaranteed
    } else {
        Class::Burstable
    };
    let mut copiers = Vec::new();
    copiers.extend(container_disks(input).map(|(name, index, disk)| {
        let mut args = vec!["--to".to_owned(), target(&copied_disk(index))];
        let path = disk.path.as_ref().filter(|path| !path.is_empty());
        args.extend(path.into_iter().map(|path| escaped(path)));
        let policy = disk.image_pull_policy.as_ref();
        copier(&container_name(name, index), &disk.image, policy, args)
    }));
    if let Some(container) = input.guest.kernel_boot() {
        let mut args = vec!["--to".to_owned(), target(KERNEL_BOOT_DIRECTORY)];
        let files = [&container.kernel_path, &container.initrd_path];
        args.extend(files.into_iter().flatten().map(|file| escaped(file)));
        let policy = container.image_pull_policy.as_ref();
        let name = "volumekernel-boot-volume-init";
        copiers.push(copier(name, &container.image, policy, args));
    }
    for container in &mut copiers {
        container.resources = Some(resources(input, &COPIER, class));
    }
    let mut first = installer(input);
    first.resources = Some(resources(input, &INSTALLER, class));
    Ok([vec![first], copiers].concat())
}

fn container_disks<'a>(
    input: &Input<'a>,
) -> impl Iterator<Item = (&'a str, usize, &'a ContainerDiskSource)> {
    let volumes = guest::volumes(input.guest, input.settings);
    volumes.filter_map(|volume| match volume.source {
        VolumeSource::ContainerDisk(disk) => Some((volume.name, volume.index, disk)),
        _ => None,
    })
}

/// An argument in which the kubelet expands no variables.
fn escaped(path: &str) -> String {
    path.replace('$', "$$")
}

/// The name that `KubeVirt` uses, or an index if that is too long.
fn container_name(volume: &str, index: usize) -> String {
    let name = format!("volume{volume}-init");
    if name.len() <= MAX_NAME {
        name
    } else {
        // No volume name begins with a dash, so this one is unique.
        format!("volume-{index}-init")
    }
}

fn target(directory: &str) -> String {
    format!("{DISKS_DIRECTORY}/{directory}")
}

fn installer(input: &Input<'_>) -> Container {
    Container {
        name: "container-disk-binary".to_owned(),
        image: Some(input.settings.launcher_image.clone()),
        image_pull_policy: Some(input.settings.image_pull_policy.clone()),
        command: Some(vec!["/usr/bin/cp".to_owned()]),
        args: Some(vec![
            "--preserve=mode".to_owned(),
            PROGRAM.to_owned(),
            format!("{PROGRAM_DIRECTORY}/container-disk"),
        ]),
        security_context: Some(security::container_context()),
        volume_mounts: Some(vec![mount(PROGRAM_VOLUME, PROGRAM_DIRECTORY)]),
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        ..Container::default()
    }
}

fn copier(name: &str, image: &str, policy: Option<&String>, args: Vec<String>) -> Container {
    let policy = policy.filter(|policy| !policy.is_empty());
    Container {
        name: name.to_owned(),
        image: Some(image.to_owned()),
        image_pull_policy: policy.cloned(),
        command: Some(vec![format!("{PROGRAM_DIRECTORY}/container-disk")]),
        args: Some(args),
        security_context: Some(security::container_context()),
        volume_mounts: Some(vec![
            VolumeMount {
                read_only: Some(true),
                ..mount(PROGRAM_VOLUME, PROGRAM_DIRECTORY)
            },
            mount(DISKS_VOLUME, DISKS_DIRECTORY),
        ]),
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        ..Container::default()
    }
}

/// Resources of a container, unless the administrator configures others.
struct DefaultResources {
    requests: &'static [(&'static str, &'static str)],
    limits: &'static [(&'static str, &'static str)],
    /// Both, in a pod of the guaranteed class.
    guaranteed: &'static [(&'static str, &'static str)],
}

const INSTALLER: DefaultResources = DefaultResources {
    requests: &[("cpu", "10m"), ("memory", "1M")],
    limits: &[("cpu", "100m"), ("memory", "40M")],
    guaranteed: &[("cpu", "10m"), ("memory", "40M")],
};
/// Copying takes CPU time, so the limit is a whole CPU. The request is small: the guest's own request
/// decides where the pod is scheduled.
const COPIER: DefaultResources = DefaultResources {
    requests: &[
        ("cpu", "1m"),
        ("ephemeral-storage", "50M"),
        ("memory", "1M"),
    ],
    limits: &[("cpu", "1"), ("memory", "40M")],
    guaranteed: &[("cpu", "1"), ("memory", "40M")],
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Guaranteed,
    Burstable,
}

fn resources(input: &Input<'_>, defaults: &DefaultResources, class: Class) -> ResourceRequirements {
    let list = |all: &[(&str, &str)]| -> BTreeMap<String, Quantity> {
        let pairs = all.iter();
        pairs
            .map(|(name, value)| ((*name).to_owned(), Quantity((*value).to_owned())))
            .collect()
    };
    let mut requests = list(defaults.requests);
    let mut limits = list(match class {
        Class::Guaranteed => defaults.guaranteed,
        Class::Burstable => defaults.limits,
    });
    if let Some(given) = &input.settings.container_disk_resources {
        limits.extend(given.limits.clone());
        requests.extend(given.requests.clone());
    }
    if class == Class::Guaranteed {
        requests.extend(limits.clone());
    }
    ResourceRequirements {
        requests: Some(requests),
        limits: Some(limits),
        claims: None,
    }
}
