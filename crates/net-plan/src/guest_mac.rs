//! The hardware address of a guest's interface.

use model::{Guest, Interface};

use crate::{MacAddress, PlanError, PodInterface, bridge};

/// Whether the interface is on a bridge whose address derives from that of the pod's interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnBridge {
    Yes,
    No,
}

/// The address in the spec, that of the running guest, which may have come from another pod, or the pod's.
pub(crate) fn of(
    guest: &Guest<'_>,
    interface: &Interface<'_>,
    pod: &PodInterface,
    on_bridge: OnBridge,
) -> Result<MacAddress, PlanError> {
    let Some(mac) = given(interface)? else {
        return Ok(known(guest, interface).unwrap_or(pod.mac));
    };
    if mac == MacAddress::BRIDGE || on_bridge == OnBridge::Yes && mac == bridge::mac(pod) {
        return Err(bad(interface, "is the address of the bridge in the pod"));
    }
    Ok(mac)
}

/// The address in the spec.
pub(crate) fn given(interface: &Interface<'_>) -> Result<Option<MacAddress>, PlanError> {
    let given = interface.spec.mac_address.as_deref();
    let Some(text) = given.filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let mac: MacAddress = text
        .parse()
        .map_err(|_| bad(interface, "is not six hexadecimal bytes"))?;
    if !mac.is_unicast() {
        return Err(bad(interface, "is not a unicast address"));
    }
    Ok(Some(mac))
}

/// That of the running guest.
pub(crate) fn known(guest: &Guest<'_>, interface: &Interface<'_>) -> Option<MacAddress> {
    let status = guest.vmi.status.as_ref()?;
    let mut known = status.interfaces.iter();
    let known = known.find(|one| one.name.as_deref() == Some(interface.name()))?;
    let mac: MacAddress = known.mac.as_deref()?.parse().ok()?;
    mac.is_unicast().then_some(mac)
}

fn bad(interface: &Interface<'_>, problem: &'static str) -> PlanError {
    PlanError::BadMacAddress {
        interface: interface.name().to_owned(),
        value: interface.spec.mac_address.clone().unwrap_or_default(),
        problem,
    }
}
