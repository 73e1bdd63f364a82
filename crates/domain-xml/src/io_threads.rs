//! Threads that serve the guest's disks, instead of the emulator's own thread.
//!
//! Numbers and order are those of `KubeVirt`: every disk without a thread of its own counts, but only
//! disks on the bus virtio use one.

use kubevirt_api::domain::IoThreadsPolicy;
use kubevirt_api::quantity::Amount;
use model::{Bus, Guest, InvalidQuantity, ResourceList};

use crate::element::Element;

/// The threads, and those of each disk in the order of the VMI.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct IoThreads {
    pub(crate) count: u32,
    pub(crate) disks: Vec<Option<Assigned>>,
}

/// Threads are numbered from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Assigned {
    One(u32),
    /// All up to this one.
    Pool(u32),
}

/// A disk, as far as it matters for its thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Candidate {
    is_virtio: bool,
    is_dedicated: bool,
}

pub(crate) fn of(guest: &Guest<'_>) -> Result<IoThreads, InvalidQuantity> {
    let disks: Vec<Candidate> = guest
        .disks
        .iter()
        .map(|disk| Candidate {
            is_virtio: disk.bus == Bus::Virtio,
            is_dedicated: disk.spec.dedicated_io_thread == Some(true),
        })
        .collect();
    let domain = &guest.vmi.spec.domain;
    let policy = domain.io_threads_policy.as_ref();
    if policy == Some(&IoThreadsPolicy::SupplementalPool) {
        let threads = domain.io_threads.as_ref();
        let count = threads.and_then(|threads| threads.supplemental_pool_thread_count);
        return Ok(pool(count.unwrap_or(0), &disks));
    }
    if policy.is_none() && !disks.iter().any(|disk| disk.is_dedicated) {
        return Ok(IoThreads::default());
    }
    let limit = match policy {
        Some(IoThreadsPolicy::Auto) if !guest.isolates_emulator() => automatic_limit(guest)?,
        _ => 1,
    };
    Ok(assign(&disks, limit))
}

/// Two threads for each CPU that the user requests.
fn automatic_limit(guest: &Guest<'_>) -> Result<u32, InvalidQuantity> {
    let request = guest.resource(ResourceList::Requests, "cpu")?;
    let limit = guest.resource(ResourceList::Limits, "cpu")?;
    let cpus = request.or(limit).map_or(1, Amount::units);
    Ok(u32::try_from(cpus.saturating_mul(2)).unwrap_or(u32::MAX))
}

fn pool(count: u32, disks: &[Candidate]) -> IoThreads {
    let disks = disks.iter();
    IoThreads {
        count,
        disks: disks
            .map(|disk| (disk.is_virtio && count > 0).then_some(Assigned::Pool(count)))
            .collect(),
    }
}

fn assign(disks: &[Candidate], limit: u32) -> IoThreads {
    let count = |is_dedicated| {
        let all = disks.iter();
        let count = all.filter(|disk| disk.is_dedicated == is_dedicated).count();
        u32::try_from(count).unwrap_or(u32::MAX)
    };
    let (dedicated, mut shared) = (count(true), count(false));
    if dedicated.saturating_add(shared) > limit {
        shared = limit.saturating_sub(dedicated).max(1);
    }
    let (mut next_dedicated, mut next_shared) = (shared, 0);
    let disks = disks.iter().map(|disk| {
        if !disk.is_virtio {
            return None;
        }
        let id = if disk.is_dedicated {
            next_dedicated += 1;
            next_dedicated
        } else {
            next_shared = next_shared % shared + 1;
            next_shared
        };
        Some(Assigned::One(id))
    });
    IoThreads {
        disks: disks.collect(),
        count: shared.saturating_add(dedicated),
    }
}

impl IoThreads {
    pub(crate) fn render(&self) -> Option<Element> {
        (self.count > 0).then(|| Element::new("iothreads").text(self.count))
    }
}

impl Assigned {
    /// Adds itself to the driver of a disk.
    pub(crate) fn add_to(self, driver: Element) -> Element {
        match self {
            Self::One(id) => driver.attr("iothread", id),
            Self::Pool(count) => {
                let each = (1..=count).map(|id| Element::new("iothread").attr("id", id));
                driver.child(Element::new("iothreads").children(each))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use kubevirt_api::VirtualMachineInstance;
    use serde_json::{Value, json};

    use super::*;

    /// Disks as letters: `v` on virtio, `d` with a thread of its own, `s` on another bus. The result
    /// is the number of threads and the thread of each disk.
    fn check(disks: &str, domain: &Value, expected: &str) {
        let disks: Vec<Value> = disks
            .chars()
            .enumerate()
            .map(|(i, kind)| {
                json!({
                    "name": format!("d{i}"),
                    "disk": {"bus": if kind == 's' { "sata" } else { "virtio" }},
                    "dedicatedIOThread": kind == 'd',
                })
            })
            .collect();
        let mut object = json!({"spec": {"domain": domain}});
        object["spec"]["domain"]["devices"] = json!({"disks": disks});
        let vmi: VirtualMachineInstance = serde_json::from_value(object).expect("a VMI");
        let threads = of(&Guest::of(&vmi)).expect("quantities");
        let disks: Vec<String> = threads
            .disks
            .iter()
            .map(|disk| match disk {
                None => "-".to_owned(),
                Some(Assigned::One(id)) => id.to_string(),
                Some(Assigned::Pool(count)) => format!("1..{count}"),
            })
            .collect();
        let found = format!("{}: {}", threads.count, disks.join(" "));
        assert_eq!(found, expected, "{domain}");
    }

    #[test]
    fn policy_decides_how_many_threads_serve_which_disks() {
        let policy = |name: &str| json!({"ioThreadsPolicy": name});
        let auto = |resources: Value| json!({"ioThreadsPolicy": "auto", "resources": resources});
        check("vv", &json!({}), "0: ");
        check("vsv", &policy("shared"), "1: 1 - 1");
        check("vdv", &json!({}), "2: 1 2 1");
        check("dd", &policy("shared"), "3: 2 3");
        check("d", &json!({}), "1: 1");
        check("vvv", &policy("auto"), "2: 1 2 1");
        check("vvv", &auto(json!({"requests": {"cpu": "2"}})), "3: 1 2 3");
        check(
            "vvvvv",
            &auto(json!({"limits": {"cpu": "1500m"}})),
            "4: 1 2 3 4 1",
        );
        check(
            "vdvv",
            &auto(json!({"requests": {"cpu": "1"}})),
            "2: 1 2 1 1",
        );
        let isolated = json!({
            "ioThreadsPolicy": "auto",
            "cpu": {"dedicatedCpuPlacement": true, "isolateEmulatorThread": true},
            "resources": {"requests": {"cpu": "4"}},
        });
        check("vvv", &isolated, "1: 1 1 1");
        let pool = json!({
            "ioThreadsPolicy": "supplementalPool",
            "ioThreads": {"supplementalPoolThreadCount": 3},
        });
        check("vsv", &pool, "3: 1..3 - 1..3");
    }
}
