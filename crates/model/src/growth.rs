//! How a running guest differs from the size in its spec, and from that of its start.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubevirt_api::VirtualMachineInstance;
use kubevirt_api::quantity::Amount;

use crate::{Topology, lacks_memory, lacks_processors};

/// On a VMI whose memory was to grow: its guest may have a device for more memory, which stays when the memory is
/// given back.
pub const MEMORY_CHANGED: &str = "ferrovirt.io/memory-changed";

/// How a running guest differs from the size in its spec, and from that of its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent of each other")]
pub struct Growth {
    pub lacks_processors: bool,
    /// It has more than its spec: processors are not taken from a running guest.
    pub has_surplus_processors: bool,
    pub lacks_memory: bool,
    /// It has a device for memory that it was not started with, or may have one.
    pub has_memory_device: bool,
}

impl Growth {
    pub fn of(vmi: &VirtualMachineInstance) -> Self {
        let (spec, status) = (&vmi.spec, vmi.status.as_ref());
        let memory = status.and_then(|status| status.memory.as_ref());
        let is_plugged = memory.is_some_and(|memory| {
            let amount = |quantity: &Option<Quantity>| Amount::parse(quantity.as_ref()?).ok();
            let (start, now) = (
                amount(&memory.guest_at_boot),
                amount(&memory.guest_requested),
            );
            start.is_some() && now.is_some() && start != now
        });
        let annotations = vmi.metadata.annotations.as_ref();
        let is_marked = annotations.is_some_and(|all| all.contains_key(MEMORY_CHANGED));
        let differs = lacks_processors(spec, status);
        let sockets = status.and_then(|status| status.current_cpu_topology.as_ref()?.sockets);
        let own = Topology::of(spec.domain.cpu.as_ref()).sockets;
        let has_surplus_processors = differs && sockets.is_some_and(|sockets| sockets > own);
        Self {
            lacks_processors: differs && !has_surplus_processors,
            has_surplus_processors,
            lacks_memory: lacks_memory(spec, status),
            has_memory_device: is_plugged || is_marked,
        }
    }

    /// Why a saved state of the guest would not fit the one that is to go on from it: that is started with the size
    /// in the VM, all of it at once.
    pub fn obstacle_to_saving(self) -> Option<&'static str> {
        // A change of memory that is taken back may have reached the guest before.
        if self.lacks_memory || self.has_memory_device {
            Some(
                "the memory of the guest was changed while it ran; restart it, then it can be suspended",
            )
        } else if self.has_surplus_processors {
            Some("the guest has more processors than its VM; restart it, then it can be suspended")
        } else if self.lacks_processors {
            Some(
                "a change of its processors has not taken effect yet; wait, or take it back, then it can be \
                 suspended",
            )
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn guest_of_another_size_than_its_vm_is_not_saved() {
        for (sockets, current, memory, requested, is_marked, expected) in [
            (1, 1, "1Gi", "1Gi", false, None),
            (2, 1, "1Gi", "1Gi", false, Some("take it back")),
            (2, 2, "1Gi", "1Gi", false, None),
            (1, 2, "1Gi", "1Gi", false, Some("more processors")),
            // To take it back would not help.
            (1, 1, "2Gi", "1Gi", true, Some("memory")),
            (1, 1, "1Gi", "1Gi", true, Some("memory")),
            (2, 1, "1Gi", "1Gi", true, Some("memory")),
            (1, 1, "2Gi", "2Gi", false, Some("memory")),
            (1, 1, "2Gi", "1Gi", false, Some("memory")),
        ] {
            let mark = if is_marked {
                json!({MEMORY_CHANGED: "true"})
            } else {
                json!({})
            };
            let vmi: VirtualMachineInstance = serde_json::from_value(json!({
                "metadata": {"annotations": mark},
                "spec": {"domain": {
                    "cpu": {"sockets": sockets, "maxSockets": 4}, "devices": {},
                    "memory": {"guest": memory, "maxGuest": "4Gi"},
                }},
                "status": {
                    "currentCPUTopology": {"sockets": current},
                    "memory": {"guestAtBoot": "1Gi", "guestRequested": requested},
                },
            }))
            .expect("is a VMI");
            let found = Growth::of(&vmi).obstacle_to_saving();
            let context = format!("{vmi:?}: {found:?}");
            assert_eq!(found.is_some(), expected.is_some(), "{context}");
            assert!(
                found
                    .unwrap_or_default()
                    .contains(expected.unwrap_or_default()),
                "{context}"
            );
        }
    }
}
