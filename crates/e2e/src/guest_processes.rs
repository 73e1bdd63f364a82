//! Observes running guests by their QEMU processes alone, on all nodes of this host: counts them per VM
//! and detects two at once.
//!
//! While a guest moves to another pod, it has two processes, and only one of them may run it: that one
//! alone uses CPU time in its virtual CPUs.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    fs,
    time::Duration,
};

use crate::processes::{command_line, processes, start_time};

/// Pause between two samples.
const INTERVAL: Duration = Duration::from_millis(200);
const QEMU: &str = "qemu-system-x86";
/// CPU time between two samples, in ticks of 10 ms, that only a running guest uses.
const BUSY: u64 = 3;

/// A process that ran a guest: PID and start time.
type Life = (i32, String);

/// The observed guests of a namespace.
#[derive(Debug)]
pub struct GuestProcesses {
    namespace: String,
    samples: usize,
    /// Every process that ran a guest of the VM.
    lifetimes: BTreeMap<String, BTreeSet<Life>>,
    /// The processes of the last sample, with the time that their virtual CPUs have used.
    running: BTreeMap<String, BTreeMap<Life, u64>>,
    /// A message for each VM that had two processes at once.
    duplicates: BTreeMap<String, String>,
    /// A message for each VM that was run by two processes at once.
    overlaps: BTreeMap<String, String>,
}

impl GuestProcesses {
    pub fn of(namespace: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            samples: 0,
            lifetimes: BTreeMap::new(),
            running: BTreeMap::new(),
            duplicates: BTreeMap::new(),
            overlaps: BTreeMap::new(),
        }
    }

    /// Samples until a future completes.
    pub async fn during<T>(&mut self, future: impl Future<Output = T>) -> T {
        tokio::select! {
            never = self.watch() => match never {},
            output = future => output,
        }
    }

    async fn watch(&mut self) -> Infallible {
        let mut ticks = tokio::time::interval(INTERVAL);
        loop {
            ticks.tick().await;
            self.sample();
        }
    }

    pub fn sample(&mut self) {
        self.record(guests());
    }

    fn record(&mut self, guests: impl IntoIterator<Item = GuestProcess>) {
        self.samples += 1;
        let before = std::mem::take(&mut self.running);
        for guest in guests {
            let Some((namespace, vm)) = guest.domain.split_once('_') else {
                continue;
            };
            if namespace == self.namespace {
                let life = (guest.pid, guest.started);
                let running = self.running.entry(vm.to_owned()).or_default();
                running.insert(life.clone(), guest.ticks);
                let lifetimes = self.lifetimes.entry(vm.to_owned()).or_default();
                lifetimes.insert(life);
            }
        }
        for (vm, running) in self.running.iter().filter(|(_, running)| running.len() > 1) {
            let message = format!("{vm} ran {} times at once: {running:?}", running.len());
            self.duplicates.entry(vm.clone()).or_insert(message);
        }
        for (vm, running) in &self.running {
            let Some(before) = before.get(vm) else {
                continue;
            };
            let used = |(life, now): (&Life, &u64)| Some(now.saturating_sub(*before.get(life)?));
            let busy = running.iter().filter(|one| used(*one) >= Some(BUSY));
            if busy.count() > 1 {
                let message = format!("{vm} was run twice at once: {before:?}, then {running:?}");
                self.overlaps.entry(vm.clone()).or_insert(message);
            }
        }
    }

    pub fn samples(&self) -> usize {
        self.samples
    }

    /// How many guests of this VM ran so far.
    pub fn lifetimes(&self, vm: &str) -> usize {
        self.lifetimes.get(vm).map_or(0, BTreeSet::len)
    }

    /// Whether the last sample has a guest of this VM.
    pub fn is_running(&self, vm: &str) -> bool {
        self.running.contains_key(vm)
    }

    /// A message for each VM that had two processes at once.
    pub fn duplicates(&self) -> Vec<String> {
        self.duplicates.values().cloned().collect()
    }

    /// A message for each VM that was run by two processes at once. While a guest moves, the process of its
    /// new pod may exist, but not run it before that of the old pod has ended.
    pub fn overlaps(&self) -> Vec<String> {
        self.overlaps.values().cloned().collect()
    }
}

/// A process that runs a guest.
#[derive(Debug)]
struct GuestProcess {
    domain: String,
    pid: i32,
    started: String,
    /// The CPU time of its virtual CPUs.
    ticks: u64,
}

/// All guests on this host. Capability probes have no guest name and are skipped.
fn guests() -> Vec<GuestProcess> {
    let read = |pid: i32| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
        if name.trim() != QEMU {
            return None;
        }
        let line = command_line(pid);
        let given = line
            .iter()
            .skip_while(|argument| *argument != "-name")
            .nth(1)?;
        let domain = given.strip_prefix("guest=")?.split(',').next()?;
        Some(GuestProcess {
            domain: domain.to_owned(),
            pid,
            started: start_time(pid)?,
            ticks: virtual_cpu_ticks(pid),
        })
    };
    processes().into_iter().filter_map(read).collect()
}

/// The CPU time of the threads that run the guest's instructions.
fn virtual_cpu_ticks(pid: i32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"));
    let tasks = tasks.into_iter().flatten().flatten();
    let ticks = tasks.filter_map(|task| {
        let stat = fs::read_to_string(task.path().join("stat")).ok()?;
        let (head, tail) = stat.rsplit_once(')')?;
        let (_, name) = head.split_once('(')?;
        let is_cpu = name.contains("CPU") && (name.ends_with("/TCG") || name.ends_with("/KVM"));
        // The fields after the name: the state is the first of them.
        let mut times = tail.split_whitespace().skip(11);
        let user: u64 = times.next()?.parse().ok()?;
        let system: u64 = times.next()?.parse().ok()?;
        is_cpu.then_some(user + system)
    });
    ticks.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(domain: &str, pid: i32) -> GuestProcess {
        GuestProcess {
            domain: domain.to_owned(),
            pid,
            started: "1".to_owned(),
            ticks: 0,
        }
    }

    #[test]
    fn moving_guest_is_run_by_one_of_its_processes() {
        let busy = |pid, ticks| GuestProcess {
            ticks,
            ..process("test_a", pid)
        };
        let mut all = GuestProcesses::of("test");
        all.record([busy(1, 10)]);
        all.record([busy(1, 30), busy(2, 0)]);
        all.record([busy(1, 50), busy(2, 1)]);
        // Between two samples the guest has moved.
        all.record([busy(2, 20)]);
        assert_eq!(all.overlaps(), [""; 0]);
        assert_eq!(all.duplicates().len(), 1);
        all.record([busy(2, 40), busy(3, 0)]);
        all.record([busy(2, 60), busy(3, 20)]);
        all.record([busy(3, 40)]);
        assert!(all.overlaps()[0].starts_with("a was run twice at once"));
    }

    #[test]
    fn overlapping_guests_of_one_vm_are_detected() {
        let mut all = GuestProcesses::of("test");
        all.record([
            process("test_a", 1),
            process("other_a", 2),
            process("test_b", 3),
        ]);
        all.record([process("test_b", 3)]);
        assert!(!all.is_running("a") && all.is_running("b"));
        all.record([process("test_a", 4), process("test_b", 3)]);
        assert_eq!(
            (all.samples(), all.lifetimes("a"), all.lifetimes("b")),
            (3, 2, 1)
        );
        assert_eq!(all.duplicates(), [""; 0]);
        all.record([process("test_a", 4), process("test_a", 5)]);
        all.record([]);
        assert_eq!(all.duplicates().len(), 1);
        assert!(all.duplicates()[0].starts_with("a ran 2 times at once"));
    }
}
