//! Interfaces of a VMI that come and go while its guest runs.

use kubevirt_api::VirtualMachineInstance;
use model::{Guest, LinkState, Network};

/// An interface on a secondary network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Nic {
    /// Of the interface and its network.
    pub(crate) name: String,
    /// The definition that the network names.
    pub(crate) definition: String,
    pub(crate) mac: Option<String>,
    /// The guest is to lose it.
    pub(crate) is_absent: bool,
    /// virt-handler reports that the guest has it.
    pub(crate) is_in_guest: bool,
    /// The status shows it: guest or pod have it.
    pub(crate) is_shown: bool,
}

pub(crate) fn nics(vmi: &VirtualMachineInstance) -> Vec<Nic> {
    let guest = Guest::of(vmi);
    let shown = |name: &str| {
        let mut all = vmi.status.iter().flat_map(|status| &status.interfaces);
        all.find(|one| one.name.as_deref() == Some(name))
    };
    let all = guest.interfaces.iter().filter(|one| one.is_pluggable());
    all.filter_map(|interface| {
        let Some(Network::Multus(multus)) = interface.network else {
            return None;
        };
        let shown = shown(interface.name());
        let sources = shown.and_then(|one| one.info_source.as_deref());
        let mac = interface.spec.mac_address.clone();
        Some(Nic {
            name: interface.name().to_owned(),
            definition: multus.network_name.clone(),
            mac: mac.filter(|mac| !mac.is_empty()),
            is_absent: interface.link == LinkState::Absent,
            is_in_guest: sources.is_some_and(|all| all.split(", ").any(|one| one == "domain")),
            is_shown: shown.is_some(),
        })
    })
    .collect()
}
