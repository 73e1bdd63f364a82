//! Which guests run, seen by their processes alone, on whichever node of this machine: never two of one
//! machine at once, and how many one after the other.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    fs,
    time::Duration,
};

use crate::processes::{born, command_line, processes};

/// Between two looks.
const INTERVAL: Duration = Duration::from_millis(200);
const QEMU: &str = "qemu-system-x86";

/// All guests of a namespace that were seen.
#[derive(Debug)]
pub struct Sightings {
    namespace: String,
    looks: usize,
    /// By the name of the machine: all processes that ever ran its guest, by number and birth.
    lives: BTreeMap<String, BTreeSet<(i32, String)>>,
    /// What was seen at the last look.
    living: BTreeMap<String, BTreeSet<(i32, String)>>,
    /// Machines of which two guests ran at once, and which.
    twins: BTreeMap<String, String>,
}

impl Sightings {
    /// Nothing has been seen yet.
    pub fn of(namespace: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            looks: 0,
            lives: BTreeMap::new(),
            living: BTreeMap::new(),
            twins: BTreeMap::new(),
        }
    }

    /// Looks again and again for as long as something takes.
    pub async fn during<T>(&mut self, what: impl Future<Output = T>) -> T {
        tokio::select! {
            never = self.watch() => match never {},
            done = what => done,
        }
    }

    async fn watch(&mut self) -> Infallible {
        let mut ticks = tokio::time::interval(INTERVAL);
        loop {
            ticks.tick().await;
            self.look();
        }
    }

    pub fn look(&mut self) {
        self.take(guests());
    }

    fn take(&mut self, guests: impl IntoIterator<Item = Seen>) {
        self.looks += 1;
        self.living.clear();
        for guest in guests {
            let Some((namespace, machine)) = guest.domain.split_once('_') else {
                continue;
            };
            if namespace == self.namespace {
                let life = (guest.pid, guest.birth);
                let living = self.living.entry(machine.to_owned()).or_default();
                living.insert(life.clone());
                let lives = self.lives.entry(machine.to_owned()).or_default();
                lives.insert(life);
            }
        }
        for (machine, living) in self.living.iter().filter(|(_, living)| living.len() > 1) {
            let told = format!("{machine} ran {} times at once: {living:?}", living.len());
            self.twins.entry(machine.clone()).or_insert(told);
        }
    }

    pub fn looks(&self) -> usize {
        self.looks
    }

    /// How many guests of this machine were seen, one after the other or not.
    pub fn lives(&self, machine: &str) -> usize {
        self.lives.get(machine).map_or(0, BTreeSet::len)
    }

    /// Whether a guest of this machine ran at the last look.
    pub fn is_living(&self, machine: &str) -> bool {
        self.living.contains_key(machine)
    }

    /// A sentence for each machine of which two guests ran at once.
    pub fn twins(&self) -> Vec<String> {
        self.twins.values().cloned().collect()
    }
}

/// A process that runs a guest.
#[derive(Debug)]
struct Seen {
    domain: String,
    pid: i32,
    birth: String,
}

/// All of this machine. A probe has no name and is none.
fn guests() -> Vec<Seen> {
    let seen = |pid: i32| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
        if name.trim() != QEMU {
            return None;
        }
        let line = command_line(pid);
        let given = line.iter().skip_while(|word| *word != "-name").nth(1)?;
        let domain = given.strip_prefix("guest=")?.split(',').next()?;
        Some(Seen {
            domain: domain.to_owned(),
            pid,
            birth: born(pid)?,
        })
    };
    processes().into_iter().filter_map(seen).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(domain: &str, pid: i32) -> Seen {
        Seen {
            domain: domain.to_owned(),
            pid,
            birth: "1".to_owned(),
        }
    }

    #[test]
    fn guests_of_one_machine_are_told_apart_in_time() {
        let mut all = Sightings::of("story");
        all.take([seen("story_a", 1), seen("other_a", 2), seen("story_b", 3)]);
        all.take([seen("story_b", 3)]);
        assert!(!all.is_living("a") && all.is_living("b"));
        all.take([seen("story_a", 4), seen("story_b", 3)]);
        assert_eq!((all.looks(), all.lives("a"), all.lives("b")), (3, 2, 1));
        assert_eq!(all.twins(), [""; 0]);
        all.take([seen("story_a", 4), seen("story_a", 5)]);
        all.take([]);
        assert_eq!(all.twins().len(), 1);
        assert!(all.twins()[0].starts_with("a ran 2 times at once"));
    }
}
