//! The images of a launcher pod and what each is for.
//!
//! A container waits for the images of its volumes as well as for its own, and its status names only its
//! own. Which one failed follows from the message: the embedded node names the volume, kubelets and
//! container runtimes name the image.

use std::fmt;

use model::VolumeSource;

use crate::{Observed, observed::Waiting};

const LAUNCHER: &str = "compute";
/// The pod's volume with the guest's kernel.
const KERNEL: &str = "kernel-boot-volume";

/// An image that a pod needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodImage<'a> {
    pub(crate) reference: &'a str,
    pub(crate) purpose: Purpose,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Ferrovirt's own image.
    Launcher,
    /// A disk of the guest, and the field that names the image.
    Disk { volume: String, field: String },
    /// The kernel that the guest boots, and the field that names the image.
    Kernel { field: String },
    /// Any other container.
    Container,
}

impl PodImage<'_> {
    /// The image inside of a sentence.
    pub(crate) fn lower(&self) -> String {
        let reference = self.reference;
        match &self.purpose {
            Purpose::Launcher => format!("launcher image {reference:?}"),
            Purpose::Disk { volume, .. } => format!("image {reference:?} of volume {volume:?}"),
            Purpose::Kernel { .. } => format!("image {reference:?} with the guest's kernel"),
            Purpose::Container => format!("image {reference:?}"),
        }
    }
}

/// The image at the beginning of a sentence.
impl fmt::Display for PodImage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.lower();
        let mut letters = text.chars();
        let first = letters.next().unwrap_or_default().to_ascii_uppercase();
        write!(f, "{first}{}", letters.as_str())
    }
}

/// The image that the message of a waiting container is about.
pub(crate) fn failed<'a>(
    observed: &'a Observed,
    waiting: &Waiting<'a>,
    message: &'a str,
) -> PodImage<'a> {
    let own = waiting.container.image.as_str();
    let of_guest = of_guest(observed);
    let copied = of_guest
        .iter()
        .find(|(index, image)| is_copier(&waiting.container.name, *index, &image.purpose));
    if let Some((_, image)) = copied {
        return image.clone();
    }
    let launcher = launcher_image(observed);
    if waiting.container.name != LAUNCHER && launcher == Some(own) {
        return image(own, Purpose::Launcher);
    }
    let named = of_guest
        .iter()
        .map(|(_, image)| image)
        .filter(|image| names_volume(message, &image.purpose));
    if let Some(image) = named.clone().next() {
        return image.clone();
    }
    // One name may be the beginning of another.
    let mut candidates: Vec<PodImage<'a>> =
        of_guest.iter().map(|(_, image)| image.clone()).collect();
    candidates.push(image(own, own_purpose(&waiting.container.name)));
    candidates.retain(|image| names(message, image.reference));
    if let Some(image) = candidates
        .into_iter()
        .rev()
        .max_by_key(|image| image.reference.len())
    {
        return image;
    }
    let quoted = message.split('"').skip(1).step_by(2);
    let mut images = quoted.filter(|part| part.contains([':', '/']) && !part.contains(' '));
    if let Some(reference) = images.next() {
        return image(reference, Purpose::Container);
    }
    // The container's own image is there, so it waits for that of a volume.
    let is_present = !waiting.container.image_id.is_empty();
    match &of_guest[..] {
        [(_, only)] if is_present => only.clone(),
        _ => image(own, Purpose::Container),
    }
}

fn image(reference: &str, purpose: Purpose) -> PodImage<'_> {
    PodImage { reference, purpose }
}

fn own_purpose(container: &str) -> Purpose {
    if container == LAUNCHER {
        Purpose::Launcher
    } else {
        Purpose::Container
    }
}

fn launcher_image(observed: &Observed) -> Option<&str> {
    let containers = &observed.pod()?.spec.as_ref()?.containers;
    let launcher = containers.iter().find(|one| one.name == LAUNCHER)?;
    launcher.image.as_deref()
}

/// The images that the guest's spec names, each with the index of its volume.
pub(crate) fn of_guest(observed: &Observed) -> Vec<(usize, PodImage<'_>)> {
    let Some((spec, _, path)) = observed.spec() else {
        return Vec::new();
    };
    let disks = spec.volumes.iter().enumerate().filter_map(|(i, volume)| {
        let VolumeSource::ContainerDisk(disk) = VolumeSource::of(volume) else {
            return None;
        };
        let purpose = Purpose::Disk {
            volume: volume.name.clone(),
            field: format!("{path}.volumes[{i}].containerDisk.image"),
        };
        let reference = disk.image.as_str();
        Some((i, PodImage { reference, purpose }))
    });
    let firmware = spec.domain.firmware.as_ref();
    let kernel = firmware
        .and_then(|firmware| firmware.kernel_boot.as_ref()?.container.as_ref())
        .map(|container| {
            let purpose = Purpose::Kernel {
                field: format!("{path}.domain.firmware.kernelBoot.container.image"),
            };
            let reference = container.image.as_str();
            (usize::MAX, PodImage { reference, purpose })
        });
    disks.chain(kernel).collect()
}

/// Whether the container of that name copies the image's files, on nodes without image volumes.
fn is_copier(container: &str, index: usize, purpose: &Purpose) -> bool {
    let volume = match purpose {
        Purpose::Disk { volume, .. } => volume,
        Purpose::Kernel { .. } => KERNEL,
        Purpose::Launcher | Purpose::Container => return false,
    };
    container == format!("volume{volume}-init") || container == format!("volume-{index}-init")
}

/// Whether a message of the embedded node names the image's volume.
pub(crate) fn names_volume(message: &str, purpose: &Purpose) -> bool {
    match purpose {
        Purpose::Disk { volume, .. } => message.contains(&format!("volume {volume:?}")),
        Purpose::Kernel { .. } => message.contains(&format!("volume {KERNEL:?}")),
        Purpose::Launcher | Purpose::Container => false,
    }
}

/// The name of an image without what runtimes add to it.
pub(crate) fn short(image: &str) -> &str {
    let image = image.strip_prefix("docker.io/").unwrap_or(image);
    image.strip_prefix("library/").unwrap_or(image)
}

/// Whether a message names an image, and not only one whose name contains this name. Runtimes write the
/// full name, with the registry and a tag.
pub(crate) fn names(message: &str, image: &str) -> bool {
    let short = short(image);
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '/' | '@');
    !short.is_empty()
        && message.match_indices(short).any(|(at, _)| {
            let before = message.get(..at).unwrap_or_default();
            let before = before.strip_suffix("library/").unwrap_or(before);
            let before = before.strip_suffix("docker.io/").unwrap_or(before);
            let after = message.get(at + short.len()..).unwrap_or_default();
            // A tag may follow a name without one; a full stop may end the sentence.
            let next = after.trim_start_matches('.').chars().next();
            let is_end = next.is_none_or(|c| !is_part(c));
            let has_tag = short
                .rsplit('/')
                .next()
                .is_some_and(|last| last.contains([':', '@']));
            let is_tag = after.starts_with(':')
                && after
                    .chars()
                    .nth(1)
                    .is_some_and(|c| c.is_ascii_alphanumeric());
            !before.ends_with(is_part) && is_end && !(has_tag && is_tag)
        })
}
