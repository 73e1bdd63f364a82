//! Reading sysfs: small files, links and directories, all with limits.

use std::{fs, io, io::Read as _, path::Path};

/// The most entries of a directory.
const MAX_ENTRIES: usize = 4096;
/// The longest value of a file.
const MAX_VALUE: u64 = 256;

/// Names in a directory, in order; none if it is missing. Too many are an error: one that is left out could be
/// the device that forbids to offer another.
pub(super) fn names(directory: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut names = Vec::new();
    for entry in entries {
        if names.len() == MAX_ENTRIES {
            let problem = format!(
                "{} has more than {MAX_ENTRIES} entries",
                directory.display()
            );
            return Err(io::Error::other(problem));
        }
        names.extend(entry?.file_name().into_string());
    }
    names.sort();
    Ok(names)
}

/// The value of a file without blanks around it; `None` if it cannot be read: a device may vanish at any time.
pub(super) fn value(file: &Path) -> Option<String> {
    let mut text = String::new();
    let opened = fs::File::open(file).ok()?;
    opened.take(MAX_VALUE).read_to_string(&mut text).ok()?;
    Some(text.trim().to_owned())
}

/// The last part of a link's target.
pub(super) fn link(file: &Path) -> Option<String> {
    let target = fs::read_link(file).ok()?;
    Some(target.file_name()?.to_str()?.to_owned())
}

/// A number of hexadecimal digits, such as `0x10de`.
pub(super) fn hex(file: &Path) -> Option<u32> {
    let value = value(file)?;
    let digits = value.strip_prefix("0x").unwrap_or(&value);
    u32::from_str_radix(digits, 16).ok()
}

/// The IOMMU group of a device.
pub(super) fn iommu_group(device: &Path) -> Option<u32> {
    link(&device.join("iommu_group"))?.parse().ok()
}

/// The NUMA cell of a device; the kernel writes -1 where it knows none.
pub(super) fn numa(device: &Path) -> Option<u32> {
    value(&device.join("numa_node"))?.parse().ok()
}
