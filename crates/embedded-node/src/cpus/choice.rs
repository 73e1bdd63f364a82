//! Which free CPUs a container gets. Pure.

use std::collections::{BTreeMap, BTreeSet};

use host_cpus::Cpu;

/// CPUs of one NUMA cell, if one has enough: the one that then has the fewest left. `None` if too few are free.
pub(super) fn choose(free: &[Cpu], count: usize) -> Option<BTreeSet<u32>> {
    if free.len() < count {
        return None;
    }
    let mut cells: BTreeMap<u32, Vec<Cpu>> = BTreeMap::new();
    for cpu in free {
        cells.entry(cpu.cell).or_default().push(*cpu);
    }
    let fitting = cells.into_values().filter(|cell| cell.len() >= count);
    let cell = fitting.min_by_key(Vec::len);
    Some(of_cores(cell.as_deref().unwrap_or(free), count))
}

/// Whole cores first, so that few containers share one; then the rest of cores that are used already.
fn of_cores(free: &[Cpu], count: usize) -> BTreeSet<u32> {
    let mut cores: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for cpu in free {
        cores.entry(cpu.core).or_default().push(cpu.id);
    }
    let mut cores: Vec<Vec<u32>> = cores.into_values().collect();
    // Stable: among cores of a size, the lowest first.
    cores.sort_by_key(|core| std::cmp::Reverse(core.len()));
    let mut chosen = BTreeSet::new();
    let mut rest = Vec::new();
    for core in cores {
        if chosen.len() + core.len() <= count {
            chosen.extend(core);
        } else {
            rest.push(core);
        }
    }
    let missing = count - chosen.len();
    chosen.extend(rest.into_iter().rev().flatten().take(missing));
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_and_whole_cores_come_first() {
        // Two cells of two cores with two threads: 0 to 3 in cell 0, 4 to 7 in cell 1.
        let cpus = |ids: &[u32]| -> Vec<Cpu> {
            let cpu = |id: &u32| Cpu {
                id: *id,
                core: id / 2 * 2,
                cell: id / 4,
            };
            ids.iter().map(cpu).collect()
        };
        let all = [0, 1, 2, 3, 4, 5, 6, 7];
        for (free, count, expected) in [
            (&all[..], 1, Some(&[2][..])),
            (&all, 2, Some(&[0, 1])),
            (&all, 3, Some(&[0, 1, 2])),
            (&all, 4, Some(&[0, 1, 2, 3])),
            // No cell has enough.
            (&all, 5, Some(&[0, 1, 2, 3, 6])),
            // The cell with fewer free CPUs.
            (&[0, 1, 2, 3, 4, 5], 2, Some(&[4, 5])),
            // A core that is used already, rather than half of a whole one.
            (&[1, 2, 3], 1, Some(&[1])),
            (&[1, 2, 3], 2, Some(&[2, 3])),
            (&[1, 3], 2, Some(&[1, 3])),
            (&[1, 3], 3, None),
            (&[], 1, None),
        ] {
            let expected = expected.map(|ids| ids.iter().copied().collect());
            assert_eq!(choose(&cpus(free), count), expected, "{count} of {free:?}");
        }
    }
}
