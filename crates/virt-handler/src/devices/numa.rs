//! The NUMA cells of devices of the node, for the metadata of the guests that have them.

use std::{collections::BTreeMap, path::Path};

use model::PciAddress;

use super::sysfs;

/// The kernel's description of devices.
pub(crate) const SYS: &str = "/sys";

/// The cells of PCI devices; one that the kernel knows no cell of is left out.
pub(crate) fn numa_cells(
    devices: impl Iterator<Item = PciAddress>,
    sys: &Path,
) -> BTreeMap<PciAddress, u32> {
    let directory = sys.join("bus/pci/devices");
    let cells = devices.filter_map(|address| {
        let cell = sysfs::numa(&directory.join(address.to_string()))?;
        Some((address, cell))
    });
    cells.collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn device_without_a_cell_is_left_out() {
        let sys = tempfile::tempdir().unwrap();
        for (address, cell) in [("0000:81:00.0", "1\n"), ("0000:01:00.0", "-1\n")] {
            let directory = sys.path().join("bus/pci/devices").join(address);
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join("numa_node"), cell).unwrap();
        }
        let address = |text: &str| PciAddress::parse(text).unwrap();
        let all = ["0000:81:00.0", "0000:01:00.0", "0000:02:00.0"].map(address);
        let found = numa_cells(all.into_iter(), sys.path());
        assert_eq!(found, [(all[0], 1)].into());
    }
}
