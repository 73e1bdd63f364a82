//! Observes running guests by their QEMU processes alone, on all nodes of this host: counts them per VM
//! and detects two running at once.

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

/// The observed guests of a namespace.
#[derive(Debug)]
pub struct GuestProcesses {
    namespace: String,
    samples: usize,
    /// Every process that ran a guest of the VM: PID and start time.
    lifetimes: BTreeMap<String, BTreeSet<(i32, String)>>,
    /// The processes of the last sample.
    running: BTreeMap<String, BTreeSet<(i32, String)>>,
    /// A message for each VM that ran two guests at once.
    duplicates: BTreeMap<String, String>,
}

impl GuestProcesses {
    pub fn of(namespace: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            samples: 0,
            lifetimes: BTreeMap::new(),
            running: BTreeMap::new(),
            duplicates: BTreeMap::new(),
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
        self.running.clear();
        for guest in guests {
            let Some((namespace, vm)) = guest.domain.split_once('_') else {
                continue;
            };
            if namespace == self.namespace {
                let life = (guest.pid, guest.started);
                let running = self.running.entry(vm.to_owned()).or_default();
                running.insert(life.clone());
                let lifetimes = self.lifetimes.entry(vm.to_owned()).or_default();
                lifetimes.insert(life);
            }
        }
        for (vm, running) in self.running.iter().filter(|(_, running)| running.len() > 1) {
            let message = format!("{vm} ran {} times at once: {running:?}", running.len());
            self.duplicates.entry(vm.clone()).or_insert(message);
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

    /// A message for each VM that ran two guests at once.
    pub fn duplicates(&self) -> Vec<String> {
        self.duplicates.values().cloned().collect()
    }
}

/// A process that runs a guest.
#[derive(Debug)]
struct GuestProcess {
    domain: String,
    pid: i32,
    started: String,
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
        })
    };
    processes().into_iter().filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(domain: &str, pid: i32) -> GuestProcess {
        GuestProcess {
            domain: domain.to_owned(),
            pid,
            started: "1".to_owned(),
        }
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
