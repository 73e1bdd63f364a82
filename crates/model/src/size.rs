//! Processors and memory of a running guest: those that it is to have, and those that it has.

use std::fmt;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubevirt_api::VirtualMachineInstance;
use kubevirt_api::quantity::Amount;
use kubevirt_api::vmi::VirtualMachineInstanceSpec as Spec;
use kubevirt_api::vmi_status::VirtualMachineInstanceStatus as Status;

use crate::Topology;

/// Processors and bytes of memory. As text, the size that a pod was made for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GuestSize {
    pub vcpus: u64,
    pub memory: u64,
}

impl GuestSize {
    /// The size in the spec.
    pub fn wanted(vmi: &VirtualMachineInstance) -> Self {
        let domain = &vmi.spec.domain;
        let memory = domain.memory.as_ref();
        Self {
            vcpus: Topology::of(domain.cpu.as_ref()).vcpus(),
            memory: bytes(memory.and_then(|memory| memory.guest.as_ref())).unwrap_or(0),
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        let (vcpus, memory) = text.strip_prefix("vcpus=")?.split_once(",memory=")?;
        Some(Self {
            vcpus: vcpus.parse().ok()?,
            memory: memory.parse().ok()?,
        })
    }

    /// Whether a pod of this size has room for a guest of the other one.
    pub fn covers(self, other: Self) -> bool {
        self.vcpus >= other.vcpus && self.memory >= other.memory
    }
}

impl fmt::Display for GuestSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "vcpus={},memory={}", self.vcpus, self.memory)
    }
}

/// Whether a running guest lacks processors of its spec, or has others.
pub fn lacks_processors(spec: &Spec, status: Option<&Status>) -> bool {
    let current = status.and_then(|status| status.current_cpu_topology.as_ref());
    let Some(current) = current else {
        return false;
    };
    let part = |count: Option<u32>| u64::from(count.unwrap_or(1).max(1));
    let now = part(current.sockets)
        .saturating_mul(part(current.cores))
        .saturating_mul(part(current.threads));
    let topology = Topology::of(spec.domain.cpu.as_ref());
    topology.max_sockets.is_some() && topology.vcpus() != now
}

/// Whether the memory that was last requested from a running guest is not that of its spec.
pub fn lacks_memory(spec: &Spec, status: Option<&Status>) -> bool {
    let Some(memory) = &spec.domain.memory else {
        return false;
    };
    let status = status.and_then(|status| status.memory.as_ref());
    let requested = status.and_then(|status| status.guest_requested.as_ref());
    let (wanted, requested) = (bytes(memory.guest.as_ref()), bytes(requested));
    memory.max_guest.is_some() && requested.is_some() && wanted.is_some() && wanted != requested
}

/// Bytes of memory that the guest was started with, if its memory may change.
pub fn memory_at_start(vmi: &VirtualMachineInstance) -> Option<u64> {
    let memory = vmi.spec.domain.memory.as_ref()?;
    memory.max_guest.as_ref()?;
    let status = vmi.status.as_ref()?.memory.as_ref()?;
    bytes(status.guest_at_boot.as_ref())
}

fn bytes(quantity: Option<&Quantity>) -> Option<u64> {
    Some(Amount::parse(quantity?).ok()?.units())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn vmi(sockets: u32, memory: &str, status: &Value) -> VirtualMachineInstance {
        serde_json::from_value(json!({
            "metadata": {},
            "spec": {"domain": {
                "cpu": {"sockets": sockets, "cores": 2, "maxSockets": 8},
                "memory": {"guest": memory, "maxGuest": "8Gi"}, "devices": {},
            }},
            "status": status,
        }))
        .expect("is a VMI")
    }

    fn lacks(vmi: &VirtualMachineInstance) -> (bool, bool) {
        let status = vmi.status.as_ref();
        let spec = &vmi.spec;
        (lacks_processors(spec, status), lacks_memory(spec, status))
    }

    #[test]
    fn guest_lacks_what_its_status_does_not_show() {
        let status = json!({
            "currentCPUTopology": {"sockets": 2, "cores": 2, "threads": 1},
            "memory": {"guestAtBoot": "1Gi", "guestCurrent": "1Gi", "guestRequested": "2Gi"},
        });
        for (sockets, memory, expected) in [
            (2, "2Gi", (false, false)),
            (2, "2048Mi", (false, false)),
            (3, "2Gi", (true, false)),
            (2, "1Gi", (false, true)),
            (1, "4Gi", (true, true)),
        ] {
            let vmi = vmi(sockets, memory, &status);
            assert_eq!(lacks(&vmi), expected, "{sockets} {memory}");
            assert_eq!(memory_at_start(&vmi), Some(1 << 30));
        }
        // Without a report, nothing is known to be missing.
        for status in [json!(null), json!({}), json!({"memory": {}})] {
            let vmi = vmi(3, "4Gi", &status);
            assert_eq!(lacks(&vmi), (false, false), "{status}");
            assert_eq!(memory_at_start(&vmi), None);
        }
    }

    #[test]
    fn guest_that_cannot_grow_lacks_nothing() {
        let mut vmi = vmi(
            3,
            "2Gi",
            &json!({
                "currentCPUTopology": {"sockets": 2, "cores": 2},
                "memory": {"guestAtBoot": "1Gi", "guestRequested": "1Gi"},
            }),
        );
        let domain = &mut vmi.spec.domain;
        domain.cpu.as_mut().expect("is set").max_sockets = None;
        domain.memory.as_mut().expect("is set").max_guest = None;
        assert_eq!(lacks(&vmi), (false, false));
    }

    #[test]
    fn size_of_a_pod_is_read_as_written() {
        let size = GuestSize::wanted(&vmi(3, "2Gi", &json!(null)));
        assert_eq!(size.to_string(), "vcpus=6,memory=2147483648");
        assert_eq!(GuestSize::parse(&size.to_string()), Some(size));
        for bad in [
            "",
            "vcpus=1",
            "vcpus=,memory=1",
            "vcpus=-1,memory=1",
            "memory=1,vcpus=1",
        ] {
            assert_eq!(GuestSize::parse(bad), None, "{bad}");
        }
        let of = |vcpus, memory| GuestSize { vcpus, memory };
        assert!(of(2, 2).covers(of(2, 1)));
        assert!(!of(2, 2).covers(of(3, 1)));
        assert!(!of(2, 2).covers(of(1, 3)));
    }
}
