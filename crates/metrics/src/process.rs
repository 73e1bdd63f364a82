//! The metrics of this process, under the names that all Prometheus clients use.

use std::time::Duration;

use crate::{
    series::Number,
    table::{Description, Kind, Metric, Table},
    text::{LabelSet, sample},
};

/// The process itself.
pub static PROCESS: Table = Table {
    component: "process",
    metrics: &[
        &Sampled {
            name: "process_cpu_seconds_total",
            help: "CPU time of this process, in user and system mode.",
            kind: Kind::Counter,
            read: cpu_seconds,
        },
        &Sampled {
            name: "process_open_fds",
            help: "Open file descriptors.",
            kind: Kind::Gauge,
            read: open_files,
        },
        &Sampled {
            name: "process_panics_confined_total",
            help: "Panics that ended one request, stream or reconcile, and not the process.",
            kind: Kind::Counter,
            read: confined_panics,
        },
        &Sampled {
            name: "process_resident_memory_bytes",
            help: "Resident memory.",
            kind: Kind::Gauge,
            read: resident_memory,
        },
        &Sampled {
            name: "process_start_time_seconds",
            help: "Start of this process, in seconds since the Unix epoch.",
            kind: Kind::Gauge,
            read: start_time,
        },
        &Sampled {
            name: "process_threads",
            help: "Threads of this process.",
            kind: Kind::Gauge,
            read: threads,
        },
    ],
};

/// A metric that is read when it is rendered; without a value it is left out.
#[derive(Debug)]
struct Sampled {
    name: &'static str,
    help: &'static str,
    kind: Kind,
    read: fn() -> Option<Number>,
}

impl Metric for Sampled {
    fn description(&self) -> Description {
        Description {
            name: self.name,
            help: self.help,
            kind: self.kind,
            labels: &[],
        }
    }

    fn write_samples(&self, text: &mut String) {
        if let Some(value) = (self.read)() {
            sample(text, self.name, LabelSet::NONE, value);
        }
    }
}

fn cpu_seconds() -> Option<Number> {
    let (user, system) = (stat_field(14)?, stat_field(15)?);
    Some(ticks(user.checked_add(system)?)?.into())
}

fn open_files() -> Option<Number> {
    // One descriptor reads the directory.
    let count = std::fs::read_dir("/proc/self/fd").ok()?.count();
    Some(count.saturating_sub(1).into())
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "a row of the table may have no value"
)]
fn confined_panics() -> Option<Number> {
    Some(panics::count().into())
}

fn resident_memory() -> Option<Number> {
    let kibibytes = status_line("VmRSS:")?;
    Some(kibibytes.checked_mul(1024)?.into())
}

fn threads() -> Option<Number> {
    status_line("Threads:").map(Number::from)
}

fn start_time() -> Option<Number> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    let boot = stat.lines().find_map(|line| line.strip_prefix("btime "))?;
    let boot = Duration::from_secs(boot.trim().parse().ok()?);
    Some((boot + ticks(stat_field(22)?)?).into())
}

/// A field of `/proc/self/stat`, counted from 1 as in proc(5).
fn stat_field(number: usize) -> Option<u64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The second field, the program's name, may contain spaces and parentheses.
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.split(' ').nth(number.checked_sub(3)?)?.parse().ok()
}

fn status_line(name: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

fn ticks(count: u64) -> Option<Duration> {
    let per_second = rustix::param::clock_ticks_per_second();
    let milliseconds = count.checked_mul(1000)?.checked_div(per_second)?;
    Some(Duration::from_millis(milliseconds))
}
