//! Init containers that copy container disks, for clusters whose nodes mount no images.
//!
//! The first puts a program of ours where the others find it; each of the others runs that program
//! in a user's image, which need hold nothing but a disk, and copies the file to the same path below
//! a directory of the pod's. That directory is what the guest's container sees at the place where it
//! would see the image.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, ResourceRequirements, VolumeMount};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubevirt_api::volumes::ContainerDiskSource;

use crate::volumes::{copied_disk, kernel_boot, mount};
use crate::{Input, PodError, guest, security};

pub(crate) const PROGRAM_VOLUME: &str = "virt-bin-share-dir";
pub(crate) const DISKS_VOLUME: &str = "container-disks";
/// Where kernel and initial RAM disk are copied to, beside the disks.
pub(crate) const KERNEL_BOOT_DIRECTORY: &str = "kernel-boot";

const PROGRAM: &str = "/usr/bin/container-disk";
const PROGRAM_DIRECTORY: &str = "/container-disk-binary";
const DISKS_DIRECTORY: &str = "/var/run/kubevirt/container-disks";

/// Of a container.
const MOST_OF_A_NAME: usize = 63;

/// Whether there is anything to copy.
pub(crate) fn has_images(input: &Input<'_>) -> bool {
    kernel_boot(input.vmi).is_some() || container_disks(input).next().is_some()
}

pub(crate) fn render(input: &Input<'_>) -> Result<Vec<Container>, PodError> {
    if !has_images(input) {
        return Ok(Vec::new());
    }
    let is_guaranteed = guest::has_dedicated_cpus(input.vmi) || guest::is_guaranteed(input.vmi)?;
    let class = if is_guaranteed {
        Class::Guaranteed
    } else {
        Class::Burstable
    };
    let mut copiers = Vec::new();
    copiers.extend(container_disks(input).map(|(name, index, disk)| {
        let mut args = vec!["--to".to_owned(), target(&copied_disk(index))];
        let path = disk.path.as_ref().filter(|path| !path.is_empty());
        args.extend(path.into_iter().map(|path| as_is(path)));
        let policy = disk.image_pull_policy.as_ref();
        copier(&name_of(name, index), &disk.image, policy, args)
    }));
    if let Some(container) = kernel_boot(input.vmi) {
        let mut args = vec!["--to".to_owned(), target(KERNEL_BOOT_DIRECTORY)];
        let files = [&container.kernel_path, &container.initrd_path];
        args.extend(files.into_iter().flatten().map(|file| as_is(file)));
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
    let volumes = guest::volumes(input.vmi, input.settings);
    volumes.filter_map(|(index, volume)| {
        let disk = volume.container_disk.as_ref()?;
        Some((volume.name.as_str(), index, disk))
    })
}

/// An argument in which a node finds no variables to put values for.
fn as_is(path: &str) -> String {
    path.replace('$', "$$")
}

/// As the original has it, where that is a name.
fn name_of(volume: &str, index: usize) -> String {
    let name = format!("volume{volume}-init");
    if name.len() <= MOST_OF_A_NAME {
        name
    } else {
        // The name of a volume begins with no dash.
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
        security_context: Some(security::of_container()),
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
        security_context: Some(security::of_container()),
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

/// What a container asks for unless the administrator says otherwise.
struct Usual {
    requests: &'static [(&'static str, &'static str)],
    limits: &'static [(&'static str, &'static str)],
    /// Where requests are limits.
    guaranteed: &'static [(&'static str, &'static str)],
}

const INSTALLER: Usual = Usual {
    requests: &[("cpu", "10m"), ("memory", "1M")],
    limits: &[("cpu", "100m"), ("memory", "40M")],
    guaranteed: &[("cpu", "10m"), ("memory", "40M")],
};
/// Copying is work, so the limit leaves room for it; the request is small, as the guest's own is
/// what the pod is placed by.
const COPIER: Usual = Usual {
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

fn resources(input: &Input<'_>, usual: &Usual, class: Class) -> ResourceRequirements {
    let list = |all: &[(&str, &str)]| -> BTreeMap<String, Quantity> {
        let pairs = all.iter();
        pairs
            .map(|(name, value)| ((*name).to_owned(), Quantity((*value).to_owned())))
            .collect()
    };
    let mut requests = list(usual.requests);
    let mut limits = list(match class {
        Class::Guaranteed => usual.guaranteed,
        Class::Burstable => usual.limits,
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
