//! CPUs of the host and how it groups them, from the kernel's description; lists of CPUs as the kernel
//! writes them.

use std::{collections::BTreeMap, fs, io, path::Path};

/// The kernel's description of CPUs and NUMA cells.
pub const SYSTEM: &str = "/sys/devices/system";

/// A CPU of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cpu {
    pub id: u32,
    /// The lowest of the CPUs that share its core.
    pub core: u32,
    /// Its NUMA cell.
    pub cell: u32,
}

/// A NUMA cell of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell {
    pub id: u32,
    /// Distance of other cells, by cell.
    pub distances: BTreeMap<u32, u32>,
}

/// The most CPUs that are looked at.
const MAX_CPUS: u32 = 4096;

/// The given CPUs, with core and cell. Without NUMA, all are in cell 0.
pub fn cpus(allowed: &str, system: &Path) -> io::Result<Vec<Cpu>> {
    let cells = cells_of_cpus(system)?;
    let ids = parse_list(allowed)?;
    let cpu = |id: u32| Cpu {
        id,
        core: first_sibling(system, id).unwrap_or(id),
        cell: cells.get(&id).copied().unwrap_or(0),
    };
    Ok(ids.into_iter().map(cpu).collect())
}

/// The host's NUMA cells with their distances; none if the kernel has no NUMA.
pub fn cells(system: &Path) -> io::Result<Vec<Cell>> {
    let ids = cell_ids(system)?;
    let cell = |id: &u32| {
        let path = system.join(format!("node/node{id}/distance"));
        let text = fs::read_to_string(path).unwrap_or_default();
        let values = text
            .split_whitespace()
            .map_while(|value| value.parse().ok());
        Cell {
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
pub fn parse_list(text: &str) -> io::Result<Vec<u32>> {
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

/// Writes ascending CPUs as the kernel does, such as `0-3,8`.
pub fn list(cpus: impl IntoIterator<Item = u32>) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for cpu in cpus {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(cpu) => *last = cpu,
            _ => ranges.push((cpu, cpu)),
        }
    }
    let text = |(first, last): (u32, u32)| {
        if first == last {
            first.to_string()
        } else {
            format!("{first}-{last}")
        }
    };
    let ranges: Vec<String> = ranges.into_iter().map(text).collect();
    ranges.join(",")
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
        let cpu = |id, core, cell| Cpu { id, core, cell };
        assert_eq!(found, [cpu(2, 0, 0), cpu(3, 3, 1)]);
        let cells = cells(root.path()).unwrap();
        assert_eq!(cells[1].distances, [(0, 21), (1, 10)].into());
    }

    #[test]
    fn host_without_numa_has_one_cell() {
        let root = host(&[]);
        let cpu = Cpu {
            id: 5,
            core: 5,
            cell: 0,
        };
        assert_eq!(cpus("5", root.path()).unwrap(), [cpu]);
        assert_eq!(cells(root.path()).unwrap(), []);
    }

    #[test]
    fn lists_are_read_and_written_or_refused() {
        for (text, cpus) in [
            ("0-2,7", &[0, 1, 2, 7][..]),
            ("0,2", &[0, 2]),
            ("4-5", &[4, 5]),
            ("", &[]),
        ] {
            assert_eq!(parse_list(&format!("{text}\n")).unwrap(), cpus);
            assert_eq!(list(cpus.iter().copied()), text);
        }
        for bad in ["a", "3-1", "0-4000000000", "1-"] {
            assert!(parse_list(bad).is_err(), "{bad}");
        }
    }
}
