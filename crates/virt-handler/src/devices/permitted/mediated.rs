//! Mediated devices: parts of a device that its driver made, such as virtual GPUs. Each has an IOMMU group of
//! its own.

use std::io;

use model::{DeviceAddress, MediatedUuid};

use super::{
    super::sysfs,
    DeviceFiles,
    discovery::{Found, Unit},
    selection::{Permitted, Selection, with_underscores},
};

pub(super) fn search(
    files: &DeviceFiles,
    permitted: &[Permitted],
    found: &mut Found,
) -> io::Result<()> {
    let directory = files.sys.join("bus/mdev/devices");
    for name in sysfs::names(&directory)? {
        let path = directory.join(&name);
        // Some drivers name a type only by its directory.
        let kind = path.join("mdev_type");
        let kind = sysfs::value(&kind.join("name")).or_else(|| sysfs::link(&kind));
        let (Some(uuid), Some(kind), Some(group)) =
            (MediatedUuid::parse(&name), kind, sysfs::iommu_group(&path))
        else {
            continue;
        };
        let kind = with_underscores(&kind);
        let mut all = permitted.iter();
        let permitted = all.find(
            |one| matches!(&one.devices, Selection::Mediated(kinds) if kinds.contains(&kind)),
        );
        let node = format!("vfio/{group}");
        if let Some(permitted) = permitted
            && files.dev.join(&node).exists()
        {
            let unit = Unit {
                id: uuid.to_string(),
                addresses: vec![DeviceAddress::Mediated(uuid)],
                nodes: vec!["vfio/vfio".to_owned(), node],
                // The entry is a link; the device that it is a part of is above its target.
                numa: sysfs::numa(&path.join("..")),
            };
            found.add(&permitted.resource, unit);
        }
    }
    Ok(())
}
