//! Which pod holds which device. Pure, except for reading the pods' records.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::Path,
};

/// In a pod's directory: the devices of its containers.
pub(crate) const RECORD_FILE: &str = "devices.json";

/// Container to resource to devices.
pub(super) type Record = BTreeMap<String, BTreeMap<String, Vec<String>>>;

/// Capacity and allocatable amount of a resource on the Node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Amounts {
    pub(crate) capacity: usize,
    /// Healthy devices, including those that pods hold, as everywhere in Kubernetes.
    pub(crate) allocatable: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Health {
    Healthy,
    Unhealthy,
}

/// All devices and their allocations.
#[derive(Debug, Default)]
pub(super) struct Registry {
    resources: BTreeMap<String, BTreeMap<String, Health>>,
    pods: BTreeMap<String, Record>,
}

/// A container's request for one resource.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request<'a> {
    pub(super) pod: &'a str,
    pub(super) container: &'a str,
    pub(super) resource: &'a str,
    pub(super) count: usize,
}

impl Registry {
    /// Loads the allocations from the pods' records.
    pub(super) fn of_pods<'a>(dirs: impl Iterator<Item = (&'a str, &'a Path)>) -> io::Result<Self> {
        let mut pods = BTreeMap::new();
        for (uid, dir) in dirs {
            match fs::read(dir.join(RECORD_FILE)) {
                Ok(bytes) => drop(pods.insert(uid.to_owned(), serde_json::from_slice(&bytes)?)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
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

    /// The resource has no plugin any more.
    pub(super) fn mark_unhealthy(&mut self, resource: &str) {
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

    /// The number of healthy devices that are not allocated.
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
            .filter_map(|allocated| allocated.get(resource))
            .flatten()
            .map(String::as_str)
            .collect()
    }

    /// Allocates devices to a container; repeated requests return the same ones. `None` when too
    /// few are free.
    pub(super) fn allocate(&mut self, request: &Request<'_>) -> Option<Vec<String>> {
        let held = self
            .pods
            .get(request.pod)
            .and_then(|record| record.get(request.container)?.get(request.resource));
        if let Some(held) = held.filter(|held| held.len() == request.count) {
            return Some(held.clone());
        }
        let taken = self.taken(request.resource);
        let devices = self.resources.get(request.resource)?;
        let ids: Vec<String> = healthy(devices)
            .filter(|id| !taken.contains(id))
            .take(request.count)
            .map(ToOwned::to_owned)
            .collect();
        if ids.len() < request.count {
            return None;
        }
        self.pods
            .entry(request.pod.to_owned())
            .or_default()
            .entry(request.container.to_owned())
            .or_default()
            .insert(request.resource.to_owned(), ids.clone());
        Some(ids)
    }

    pub(super) fn record(&self, pod: &str) -> Option<&Record> {
        self.pods.get(pod)
    }

    /// Returns whether the pod held devices.
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

    fn registry(healthy: usize, unhealthy: usize) -> Registry {
        let mut registry = Registry::default();
        let devices = (0..healthy + unhealthy).map(|number| {
            let health = if number < healthy {
                Health::Healthy
            } else {
                Health::Unhealthy
            };
            (format!("d{number}"), health)
        });
        registry.list("r", devices);
        registry
    }

    fn request(pod: &str, count: usize) -> Request<'_> {
        Request {
            pod,
            container: "c",
            resource: "r",
            count,
        }
    }

    #[test]
    fn devices_are_allocated_once_and_only_if_healthy() {
        let mut registry = registry(2, 1);
        let amounts = Amounts {
            capacity: 3,
            allocatable: 2,
        };
        assert_eq!(registry.amounts()["r"], amounts);
        assert_eq!(registry.allocate(&request("a", 1)).unwrap(), ["d0"]);
        assert_eq!(registry.allocate(&request("b", 1)).unwrap(), ["d1"]);
        assert_eq!(registry.allocate(&request("c", 1)), None);
        assert!(registry.release("a"));
        assert!(!registry.release("a"));
        assert_eq!(registry.allocate(&request("c", 1)).unwrap(), ["d0"]);
        // Held ones count as allocatable: the scheduler counts pods.
        assert_eq!(registry.amounts()["r"], amounts);
        assert_eq!(registry.free("r"), 0);
    }

    #[test]
    fn restarted_container_keeps_unhealthy_devices() {
        let mut registry = registry(1, 0);
        let held = registry.allocate(&request("a", 1)).unwrap();
        registry.mark_unhealthy("r");
        assert_eq!(registry.free("r"), 0);
        assert_eq!(registry.allocate(&request("a", 1)).unwrap(), held);
        assert_eq!(registry.allocate(&request("b", 1)), None);
    }

    #[test]
    fn allocations_survive_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let record = r#"{"c": {"r": ["d0"]}}"#;
        fs::write(dir.path().join(RECORD_FILE), record).unwrap();
        let mut registry = Registry::of_pods([("a", dir.path())].into_iter()).unwrap();
        registry.list("r", [("d0".to_owned(), Health::Healthy)].into_iter());
        assert_eq!(registry.allocate(&request("b", 1)), None);
        assert_eq!(registry.allocate(&request("a", 1)).unwrap(), ["d0"]);
        fs::write(dir.path().join(RECORD_FILE), "{").unwrap();
        assert!(Registry::of_pods([("a", dir.path())].into_iter()).is_err());
    }
}
