//! The CPUs that a pod may use, and how the host groups them, from the kernel's description.

use std::{collections::BTreeMap, fs, io, path::Path};

use domain_xml::{HostCell, HostCpu};

/// The kernel's description of CPUs and NUMA cells.
pub(crate) const SYSTEM: &str = "/sys/devices/system";

/// The most CPUs that are looked at.
const MAX_CPUS: u32 = 4096;

/// The given CPUs, with core and cell. Without NUMA, all are in cell 0.
pub(crate) fn cpus(allowed: &str, system: &Path) -> io::Result<Vec<HostCpu>> {
    let cells = cells_of_cpus(system)?;
    let ids = parse_list(allowed)?;
    let cpu = |id: u32| HostCpu {
        id,
        core: first_sibling(system, id).unwrap_or(id),
        cell: cells.get(&id).copied().unwrap_or(0),
    };
    Ok(ids.into_iter().map(cpu).collect())
}

/// The host's NUMA cells with their distances; none if the kernel has no NUMA.
pub(crate) fn cells(system: &Path) -> io::Result<Vec<HostCell>> {
    let ids = cell_ids(system)?;
    let cell = |id: &u32| {
        let path = system.join(format!("node/node{id}/distance"));
        let text = fs::read_to_string(path).unwrap_or_default();
        let values = text
            .split_whitespace()
            .map_while(|value| value.parse().ok());
        HostCell {
            id: *id,
            distances: ids.iter().copied().zip(values).collect(),
        }
    };
    Ok(ids.iter().map(cell).collect())
}

fn cells_of_cpus(system: &Path) -> io::Result<BTreeMap<u32, u32>> {
    let mut all = BTreeMap::new();
    for cell in cell_ids(system)? {
        let path = system.join(format!("node/node{cell}/cpulist"));
        let cpus = parse_list(&fs::read_to_string(path)?)?;
        all.extend(cpus.into_iter().map(|cpu| (cpu, cell)));
    }
    Ok(all)
}

/// In ascending order, which is also that of the distances.
fn cell_ids(system: &Path) -> io::Result<Vec<u32>> {
    match fs::read_to_string(system.join("node/online")) {
        Ok(text) => parse_list(&text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn first_sibling(system: &Path, cpu: u32) -> Option<u32> {
    let path = system.join(format!("cpu/cpu{cpu}/topology/thread_siblings_list"));
    let list = parse_list(&fs::read_to_string(path).ok()?).ok()?;
    list.first().copied()
}

/// Reads a list such as `0-3,8`.
fn parse_list(text: &str) -> io::Result<Vec<u32>> {
    let bad = || {
        let message = format!("{text:?} is not a list of CPUs");
        io::Error::new(io::ErrorKind::InvalidData, message)
    };
    let mut all = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first: u32 = first.parse().map_err(|_| bad())?;
        let last: u32 = last.parse().map_err(|_| bad())?;
        if first > last || last >= MAX_CPUS {
            return Err(bad());
        }
        all.extend(first..=last);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn cpus_have_the_core_and_cell_that_the_kernel_reports() {
        let root = host(&[
            ("node/online", "0-1\n"),
            ("node/node0/cpulist", "0,2\n"),
            ("node/node0/distance", "10 21\n"),
            ("node/node1/cpulist", "1,3\n"),
            ("node/node1/distance", "21 10\n"),
            ("cpu/cpu2/topology/thread_siblings_list", "0,2\n"),
            ("cpu/cpu3/topology/thread_siblings_list", "3\n"),
        ]);
        let found = cpus("2-3\n", root.path()).unwrap();
        let cpu = |id, core, cell| HostCpu { id, core, cell };
        assert_eq!(found, [cpu(2, 0, 0), cpu(3, 3, 1)]);
        let cells = cells(root.path()).unwrap();
        assert_eq!(cells[1].distances, [(0, 21), (1, 10)].into());
    }

    #[test]
    fn host_without_numa_has_one_cell() {
        let root = host(&[]);
        let cpu = HostCpu {
            id: 5,
            core: 5,
            cell: 0,
        };
        assert_eq!(cpus("5", root.path()).unwrap(), [cpu]);
        assert_eq!(cells(root.path()).unwrap(), []);
    }

    #[test]
    fn lists_are_read_or_refused() {
        assert_eq!(parse_list("0-2,7\n").unwrap(), [0, 1, 2, 7]);
        assert_eq!(parse_list("\n").unwrap(), [0_u32; 0]);
        for bad in ["a", "3-1", "0-4000000000", "1-"] {
            assert!(parse_list(bad).is_err(), "{bad}");
        }
    }
}
