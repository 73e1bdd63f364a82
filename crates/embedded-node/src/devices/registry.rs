//! Who has which device: pure but for the pods' records.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::Path,
};

/// In a pod's directory: what its containers were given.
pub(crate) const RECORD_FILE: &str = "devices.json";

/// Container to resource to devices.
pub(super) type Record = BTreeMap<String, BTreeMap<String, Vec<String>>>;

/// How much of a resource the Node shows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Amounts {
    pub(crate) capacity: usize,
    /// What is healthy; what pods hold counts, as everywhere in Kubernetes.
    pub(crate) allocatable: usize,
}

/// A device is healthy or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Health {
    Healthy,
    Unhealthy,
}

/// All devices, and those that were given away.
#[derive(Debug, Default)]
pub(super) struct Book {
    resources: BTreeMap<String, BTreeMap<String, Health>>,
    pods: BTreeMap<String, Record>,
}

/// A container and what it wants of one resource.
#[derive(Debug, Clone, Copy)]
pub(super) struct Claim<'a> {
    pub(super) pod: &'a str,
    pub(super) container: &'a str,
    pub(super) resource: &'a str,
    pub(super) count: usize,
}

impl Book {
    /// With what the pods' records say.
    pub(super) fn of_pods<'a>(dirs: impl Iterator<Item = (&'a str, &'a Path)>) -> io::Result<Self> {
        let mut pods = BTreeMap::new();
        for (uid, dir) in dirs {
            match fs::read(dir.join(RECORD_FILE)) {
                Ok(bytes) => drop(pods.insert(uid.to_owned(), serde_json::from_slice(&bytes)?)),
                Err(err) if err.kind() == io::ErrorKind::NotFound => {}
                Err(err) => return Err(err),
            }
        }
        Ok(Self {
            resources: BTreeMap::new(),
            pods,
        })
    }

    pub(super) fn list(&mut self, resource: &str, devices: impl Iterator<Item = (String, Health)>) {
        self.resources
            .insert(resource.to_owned(), devices.collect());
    }

    /// Nobody speaks for the resource any more.
    pub(super) fn forsake(&mut self, resource: &str) {
        for health in self.resources.get_mut(resource).into_iter().flatten() {
            *health.1 = Health::Unhealthy;
        }
    }

    pub(super) fn amounts(&self) -> BTreeMap<String, Amounts> {
        let amounts = |devices: &BTreeMap<String, Health>| Amounts {
            capacity: devices.len(),
            allocatable: healthy(devices).count(),
        };
        self.resources
            .iter()
            .map(|(name, devices)| (name.clone(), amounts(devices)))
            .collect()
    }

    /// Healthy devices that nobody has.
    pub(super) fn free(&self, resource: &str) -> usize {
        let taken = self.taken(resource);
        self.resources.get(resource).map_or(0, |devices| {
            healthy(devices).filter(|id| !taken.contains(id)).count()
        })
    }

    fn taken(&self, resource: &str) -> BTreeSet<&str> {
        self.pods
            .values()
            .flat_map(BTreeMap::values)
            .filter_map(|given| given.get(resource))
            .flatten()
            .map(String::as_str)
            .collect()
    }

    /// Gives devices to a container, the same ones again if it has them already. `None` when
    /// there are not enough.
    pub(super) fn take(&mut self, claim: &Claim<'_>) -> Option<Vec<String>> {
        let had = self
            .pods
            .get(claim.pod)
            .and_then(|record| record.get(claim.container)?.get(claim.resource));
        if let Some(had) = had.filter(|had| had.len() == claim.count) {
            return Some(had.clone());
        }
        let taken = self.taken(claim.resource);
        let devices = self.resources.get(claim.resource)?;
        let ids: Vec<String> = healthy(devices)
            .filter(|id| !taken.contains(id))
            .take(claim.count)
            .map(ToOwned::to_owned)
            .collect();
        if ids.len() < claim.count {
            return None;
        }
        self.pods
            .entry(claim.pod.to_owned())
            .or_default()
            .entry(claim.container.to_owned())
            .or_default()
            .insert(claim.resource.to_owned(), ids.clone());
        Some(ids)
    }

    pub(super) fn record(&self, pod: &str) -> Option<&Record> {
        self.pods.get(pod)
    }

    /// Whether the pod had anything.
    pub(super) fn release(&mut self, pod: &str) -> bool {
        self.pods.remove(pod).is_some()
    }
}

fn healthy(devices: &BTreeMap<String, Health>) -> impl Iterator<Item = &str> {
    devices
        .iter()
        .filter(|(_, health)| **health == Health::Healthy)
        .map(|(id, _)| id.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn book(healthy: usize, unhealthy: usize) -> Book {
        let mut book = Book::default();
        let devices = (0..healthy + unhealthy).map(|number| {
            let health = if number < healthy {
                Health::Healthy
            } else {
                Health::Unhealthy
            };
            (format!("d{number}"), health)
        });
        book.list("r", devices);
        book
    }

    fn claim(pod: &str, count: usize) -> Claim<'_> {
        Claim {
            pod,
            container: "c",
            resource: "r",
            count,
        }
    }

    #[test]
    fn nothing_is_given_twice_and_nothing_that_is_broken() {
        let mut book = book(2, 1);
        let amounts = Amounts {
            capacity: 3,
            allocatable: 2,
        };
        assert_eq!(book.amounts()["r"], amounts);
        assert_eq!(book.take(&claim("a", 1)).unwrap(), ["d0"]);
        assert_eq!(book.take(&claim("b", 1)).unwrap(), ["d1"]);
        assert_eq!(book.take(&claim("c", 1)), None);
        assert!(book.release("a"));
        assert!(!book.release("a"));
        assert_eq!(book.take(&claim("c", 1)).unwrap(), ["d0"]);
        // Held ones count as allocatable: the scheduler counts pods.
        assert_eq!(book.amounts()["r"], amounts);
        assert_eq!(book.free("r"), 0);
    }

    #[test]
    fn a_container_that_starts_again_keeps_its_devices_even_when_they_broke() {
        let mut book = book(1, 0);
        let had = book.take(&claim("a", 1)).unwrap();
        book.forsake("r");
        assert_eq!(book.free("r"), 0);
        assert_eq!(book.take(&claim("a", 1)).unwrap(), had);
        assert_eq!(book.take(&claim("b", 1)), None);
    }

    #[test]
    fn what_pods_hold_is_known_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let record = r#"{"c": {"r": ["d0"]}}"#;
        fs::write(dir.path().join(RECORD_FILE), record).unwrap();
        let mut book = Book::of_pods([("a", dir.path())].into_iter()).unwrap();
        book.list("r", [("d0".to_owned(), Health::Healthy)].into_iter());
        assert_eq!(book.take(&claim("b", 1)), None);
        assert_eq!(book.take(&claim("a", 1)).unwrap(), ["d0"]);
        fs::write(dir.path().join(RECORD_FILE), "{").unwrap();
        assert!(Book::of_pods([("a", dir.path())].into_iter()).is_err());
    }
}
