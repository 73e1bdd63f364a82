//! The kernel's figures of the node, and of QEMU. Containers see the same files as the node.

use std::fs;
use std::path::Path;

use rustix::param::clock_ticks_per_second;
use rustix::time::{ClockId, clock_gettime};

/// Zero stands for what could not be read.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Figures {
    pub(super) cpus: u64,
    /// Of the node; without waiting and interrupts.
    pub(super) cpu_seconds: f64,
    pub(super) memory: Memory,
    pub(super) paged_in_kib: u64,
    pub(super) paged_out_kib: u64,
    /// Since 1970.
    pub(super) time: u64,
    /// Of QEMU.
    pub(super) guest_cpu_seconds: f64,
}

/// In KiB.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Memory {
    pub(super) total: u64,
    pub(super) free: u64,
    /// Free, or free for the taking.
    pub(super) available: u64,
    pub(super) swap_total: u64,
    pub(super) swap_free: u64,
}

impl Figures {
    /// `qemu` is the file with its process ID.
    pub(super) fn read(qemu: &Path) -> Self {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let ticks = clock_ticks_per_second().max(1);
        let pid = fs::read_to_string(qemu).unwrap_or_default();
        let of_guest = pid
            .trim()
            .parse::<u32>()
            .ok()
            .map(|pid| text(&format!("/proc/{pid}/stat")));
        let (cpus, cpu_ticks) = cpus(&text("/proc/stat"));
        let paging = text("/proc/vmstat");
        Self {
            cpus,
            cpu_seconds: seconds(cpu_ticks, ticks),
            memory: memory(&text("/proc/meminfo")),
            paged_in_kib: value(&paging, "pgpgin"),
            paged_out_kib: value(&paging, "pgpgout"),
            time: u64::try_from(clock_gettime(ClockId::Realtime).tv_sec).unwrap_or(0),
            guest_cpu_seconds: seconds(of_guest.as_deref().map_or(0, process_ticks), ticks),
        }
    }
}

/// The number of CPUs, and the ticks that all have spent in user and system mode.
fn cpus(stat: &str) -> (u64, u64) {
    let lines = stat.lines().filter_map(|line| line.strip_prefix("cpu"));
    let mut count = 0;
    let mut ticks = 0;
    for line in lines {
        if let Some(all) = line.strip_prefix(' ') {
            ticks = numbers(all).take(3).fold(0, u64::saturating_add);
        } else {
            count += 1;
        }
    }
    (count, ticks)
}

fn memory(meminfo: &str) -> Memory {
    Memory {
        total: value(meminfo, "MemTotal:"),
        free: value(meminfo, "MemFree:"),
        available: value(meminfo, "MemAvailable:"),
        swap_total: value(meminfo, "SwapTotal:"),
        swap_free: value(meminfo, "SwapFree:"),
    }
}

/// The ticks that a process has spent, from its `stat`.
fn process_ticks(stat: &str) -> u64 {
    // The name may contain anything; the fields are counted behind it.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let times = fields.split_whitespace().skip(11).take(2);
    let times = times.map(|field| field.parse().unwrap_or(0));
    times.fold(0, u64::saturating_add)
}

fn value(text: &str, name: &str) -> u64 {
    let mut lines = text.lines().filter_map(|line| {
        let (found, rest) = line.split_once(' ')?;
        (found == name).then(|| numbers(rest).next())?
    });
    lines.next().unwrap_or(0)
}

fn numbers(text: &str) -> impl Iterator<Item = u64> {
    text.split_whitespace()
        .map_while(|field| field.parse().ok())
}

/// Exact to a thousandth of a second.
fn seconds(ticks: u64, per_second: u64) -> f64 {
    let milliseconds = ticks.saturating_mul(1000) / per_second;
    std::time::Duration::from_millis(milliseconds).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_the_kernel_are_read() {
        let stat = "cpu  100 20 30 4000 5 6 7 0 0 0\ncpu0 50 10 15 2000 0 0 0 0 0 0\n\
                    cpu1 50 10 15 2000 0 0 0 0 0 0\nintr 9\n";
        assert_eq!(cpus(stat), (2, 150));
        let meminfo = "MemTotal:       8000 kB\nMemFree:        1000 kB\nMemAvailable:   3000 kB\n\
                       SwapTotal:       500 kB\nSwapFree:        400 kB\n";
        let expected = Memory {
            total: 8000,
            free: 1000,
            available: 3000,
            swap_total: 500,
            swap_free: 400,
        };
        assert_eq!(memory(meminfo), expected);
        assert_eq!(value("pgpgin 11\npgpgout 22\n", "pgpgout"), 22);
        let process = "9 (qemu) x) S 1 9 9 0 -1 4194624 100 0 0 0 250 50 7 8 20 0 5";
        assert_eq!(process_ticks(process), 300);
        assert!((seconds(150, 100) - 1.5).abs() < f64::EPSILON);
    }

    #[test]
    fn what_is_missing_counts_as_zero() {
        for text in [
            "",
            "nonsense",
            "9 (qemu) S 1 9 9 0 -1 4194624 100 0 0 0 x y",
            "cpu\ncpu x",
        ] {
            assert_eq!(memory(text), Memory::default(), "{text}");
            assert_eq!(process_ticks(text), 0, "{text}");
            assert_eq!(cpus(text).1, 0, "{text}");
            assert_eq!(value(text, "pgpgin"), 0, "{text}");
        }
    }

    #[test]
    fn figures_of_this_computer_are_plausible() {
        let dir = tempfile::tempdir().unwrap();
        let pid = dir.path().join("pid");
        fs::write(&pid, format!("{}\n", std::process::id())).unwrap();
        let found = Figures::read(&pid);
        assert!(found.cpus > 0 && found.cpu_seconds > 0.0, "{found:?}");
        assert!(found.memory.total > found.memory.free, "{found:?}");
        assert!(found.time > 1_700_000_000, "{found:?}");
    }
}
