//! Network bindings that the administrator registered: which tap a guest's interface gets, and from whom.

use kubevirt_api::vmi_status::VirtualMachineInstanceNetworkInterface;
use model::{Attachment, Binding, BindingPlugin, Guest, Interface, Network, Unsupported};

use crate::interface::{link_state, tap_name};
use crate::{Observed, PlanError, PodInterface, guest_mac};

/// Names of the links that may be the taps of interfaces whose binding has the cluster's network plugin make them;
/// `primary` is the pod's interface on the default network.
pub fn tap_candidates(guest: &Guest<'_>, primary: &str) -> Vec<String> {
    let interfaces = guest.plugged_interfaces();
    let bound = interfaces.filter(|interface| matches!(interface.binding, Binding::Plugin(_)));
    bound
        .flat_map(|interface| candidates(interface, &interface.pod_interface(primary)))
        .collect()
}

/// A tap beside the pod's interface takes precedence over an interface that is one itself.
fn candidates(interface: &Interface<'_>, pod_interface: &str) -> [String; 2] {
    let beside = tap_name(interface, pod_interface);
    [beside, pod_interface.to_owned()]
}

/// The binding of an interface as it was registered for the pod; `None` for an interface with another binding.
pub(crate) fn of(
    interface: &Interface<'_>,
    observed: &Observed,
) -> Result<Option<BindingPlugin>, PlanError> {
    let Binding::Plugin(used) = interface.binding else {
        return Ok(None);
    };
    let plugin = observed.plugins.get(&used.name).copied();
    let not_registered = || PlanError::BindingNotOfPod {
        field: interface.field("binding.name"),
        binding: used.name.clone(),
    };
    plugin.map(Some).ok_or_else(not_registered)
}

/// The tap of an interface that is connected by one.
pub(crate) fn tap(
    plugin: Option<BindingPlugin>,
    interface: &Interface<'_>,
    pod: &PodInterface,
    observed: &Observed,
) -> Result<String, PlanError> {
    let own = tap_name(interface, &pod.name);
    if plugin.is_none_or(|plugin| plugin.attachment != Attachment::Tap) {
        return Ok(own);
    }
    let mut candidates = candidates(interface, &pod.name).into_iter();
    let found = candidates.find(|name| observed.taps.contains(name));
    found.ok_or_else(|| PlanError::NoTap {
        interface: interface.name().to_owned(),
        tap: own,
        pod_interface: pod.name.clone(),
    })
}

/// The status of an interface that the binding's sidecar adds to the domain. Whether the pod has an interface for it
/// is up to the binding, and its hardware address is known only if the VMI has it.
pub(crate) fn sidecar_status(
    guest: &Guest<'_>,
    interface: &Interface<'_>,
    network: Network<'_>,
    observed: &Observed,
) -> Result<VirtualMachineInstanceNetworkInterface, PlanError> {
    if network == Network::Missing {
        return Err(Unsupported::network(interface.name(), network).into());
    }
    let in_pod = interface.pod_interface(&observed.primary);
    let pod = observed.interfaces.iter().find(|one| one.name == in_pod);
    let addresses = pod.map(PodInterface::addresses).unwrap_or_default();
    let addresses = addresses.into_iter().map(|one| one.address.to_string());
    let addresses: Vec<String> = addresses.collect();
    let known = || guest_mac::known(guest, interface);
    let mac = guest_mac::given(interface)?.or_else(known);
    Ok(VirtualMachineInstanceNetworkInterface {
        name: Some(interface.name().to_owned()),
        mac: mac.map(|mac| mac.to_string()),
        ip_address: addresses.first().cloned(),
        ip_addresses: addresses,
        pod_interface_name: Some(in_pod),
        info_source: Some("domain".to_owned()),
        link_state: Some(link_state(interface).to_owned()),
        ..VirtualMachineInstanceNetworkInterface::default()
    })
}
