//! The cards of this node that can be divided, in sysfs.

use std::{fs::OpenOptions, io, io::Write as _, path::Path};

use model::MediatedUuid;
use rustix::io::Errno;

use super::{
    super::{
        permitted::{DeviceFiles, with_underscores},
        sysfs,
    },
    plan::{Card, Step, Type},
};

/// Whether a step changed anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    Done,
    /// A guest has the device.
    InUse,
}

/// All cards, in the order of their names.
pub(super) fn read(files: &DeviceFiles) -> io::Result<Vec<Card>> {
    let directory = files.sys.join("class/mdev_bus");
    let names = sysfs::names(&directory)?.into_iter();
    let cards = names.map(|name| {
        let types = types(&directory.join(&name).join("mdev_supported_types"))?;
        Ok(Card { name, types })
    });
    cards.collect()
}

fn types(directory: &Path) -> io::Result<Vec<Type>> {
    let ids = sysfs::names(directory)?.into_iter();
    let types = ids.map(|id| {
        let path = directory.join(&id);
        let name = sysfs::value(&path.join("name")).map(|name| with_underscores(&name));
        let available = sysfs::value(&path.join("available_instances"));
        let devices = sysfs::names(&path.join("devices"))?;
        Ok(Type {
            id,
            name,
            // A card that was just removed has none.
            available: available.and_then(|text| text.parse().ok()).unwrap_or(0),
            devices: devices
                .iter()
                .filter_map(|name| MediatedUuid::parse(name))
                .collect(),
        })
    });
    types.collect()
}

/// Carries out a step. A device that was made or removed in the meantime is an error: the next pass reads again.
pub(super) fn apply(files: &DeviceFiles, step: &Step) -> io::Result<Effect> {
    match step {
        Step::Create { card, kind, uuid } => {
            let card = files.sys.join("class/mdev_bus").join(card);
            let create = card.join("mdev_supported_types").join(kind).join("create");
            write(&create, &uuid.to_string())?;
        }
        Step::Remove { uuid } => {
            let device = files.sys.join("bus/mdev/devices").join(uuid.to_string());
            if is_in_use(files, &device)? {
                return Ok(Effect::InUse);
            }
            write(&device.join("remove"), "1")?;
        }
    }
    Ok(Effect::Done)
}

/// The kernel takes each write for itself, wherever in the file it is.
fn write(file: &Path, text: &str) -> io::Result<()> {
    let mut opened = OpenOptions::new().append(true).open(file)?;
    opened.write_all(text.as_bytes())
}

/// Whether a process has the device's IOMMU group, which one process can open.
fn is_in_use(files: &DeviceFiles, device: &Path) -> io::Result<bool> {
    let Some(group) = sysfs::iommu_group(device) else {
        return Ok(false);
    };
    let node = files.dev.join(format!("vfio/{group}"));
    match OpenOptions::new().read(true).write(true).open(node) {
        Ok(_) => Ok(false),
        Err(error) if error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}
