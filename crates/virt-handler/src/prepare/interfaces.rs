//! The interfaces that a guest gets and loses while it runs: their ends in the pod, and the device of each.

use std::{borrow::Cow, collections::BTreeSet, sync::Arc};

use domain_xml::{Facts, Input};
use host_net::NetworkNamespace;
use k8s_openapi::api::core::v1::Pod;
use kubevirt_api::{
    VirtualMachineInstance, network::InterfaceState,
    vmi_status::VirtualMachineInstanceNetworkInterface,
};
use launcher_channel::{DhcpServer, HotInterface, Ipv6Server};
use model::{BindingPlugin, Supported};

use super::{PrepareError, interface_facts, plumb};
use crate::{guest::Attached, launcher::Peer};

/// The interfaces of a guest after some were connected to the pod's network.
#[derive(Debug)]
pub(crate) struct Connected {
    pub(crate) hot: Vec<HotInterface>,
    pub(crate) dhcp: Vec<DhcpServer>,
    pub(crate) ipv6: Vec<Ipv6Server>,
    pub(crate) facts: Facts,
    pub(crate) status: Vec<VirtualMachineInstanceNetworkInterface>,
    pub(crate) bound_interfaces: Vec<String>,
}

/// The VMI without the interfaces of these names. They stay in the list as unplugged ones: the others keep their
/// positions, from which addresses follow.
pub(crate) fn without<'a>(
    vmi: &'a VirtualMachineInstance,
    left_out: &BTreeSet<String>,
) -> Cow<'a, VirtualMachineInstance> {
    if left_out.is_empty() {
        return Cow::Borrowed(vmi);
    }
    let mut rest = vmi.clone();
    for interface in &mut rest.spec.domain.devices.interfaces {
        if left_out.contains(&interface.name) {
            interface.state = Some(InterfaceState::Absent);
        }
    }
    Cow::Owned(rest)
}

/// Connects the guest's interfaces to the pod's, all but the ones in `left_out`, and renders those in `wanted`.
pub(crate) async fn connect(
    vmi: &VirtualMachineInstance,
    pod: &Pod,
    peer: &Arc<Peer>,
    facts: &Facts,
    (wanted, left_out): (&BTreeSet<String>, &BTreeSet<String>),
) -> Result<Connected, PrepareError> {
    let vmi = without(vmi, left_out);
    let guest = Supported::of(&vmi)?;
    let attached = Attached::of(pod);
    let plugins = BindingPlugin::of_pod(pod.metadata.annotations.as_ref());
    let network = plumb(&guest, attached.primary(), plugins, peer).await?;
    failpoints::after("virt-handler/interfaces/connect");
    let facts = Facts {
        interfaces: network.interfaces.iter().map(interface_facts).collect(),
        ..facts.clone()
    };
    let input = Input {
        guest: &guest,
        facts: &facts,
    };
    let hot = wanted.iter().map(|name| {
        Ok(HotInterface {
            name: name.clone(),
            xml: domain_xml::hot_interface(&input, name)?,
        })
    });
    let hot = hot.collect::<Result<_, PrepareError>>()?;
    let bound_interfaces = network.bound_interfaces().map(ToOwned::to_owned).collect();
    Ok(Connected {
        hot,
        dhcp: network.dhcp,
        ipv6: network.ipv6,
        facts,
        status: network.status,
        bound_interfaces,
    })
}

/// Removes the links in the pod of an interface that the guest has lost. They may be gone.
pub(crate) async fn disconnect(
    vmi: &VirtualMachineInstance,
    name: &str,
    peer: &Peer,
) -> Result<(), PrepareError> {
    let vmi = vmi.metadata.name.as_deref().unwrap_or_default();
    let namespace = NetworkNamespace::of(peer.network_namespace()?, vmi);
    let links = net_plan::unplumbing(name);
    host_net::in_namespace(namespace, move |net| host_net::unplumb(net, &links)).await?;
    failpoints::after("virt-handler/interfaces/disconnect");
    Ok(())
}

#[cfg(test)]
mod tests {
    use model::Guest;
    use serde_json::json;

    use super::*;

    #[test]
    fn interfaces_keep_their_positions_when_one_is_left_out() {
        let vmi: VirtualMachineInstance = serde_json::from_value(json!({"spec": {"domain":
            {"devices": {"interfaces": [{"name": "a", "bridge": {}}, {"name": "b", "bridge": {}}]}}}}))
        .unwrap();
        let positions = |left_out: &[&str]| {
            let left_out = left_out.iter().map(ToString::to_string).collect();
            let rest = without(&vmi, &left_out);
            let guest = Guest::of(&rest);
            let plugged = guest.plugged_interfaces();
            let all = plugged.map(|one| (one.name().to_owned(), one.index));
            all.collect::<Vec<_>>()
        };
        let owned = |name: &str, index| (name.to_owned(), index);
        assert_eq!(positions(&[]), [owned("a", 0), owned("b", 1)]);
        assert_eq!(positions(&["a"]), [owned("b", 1)]);
        assert_eq!(positions(&["other"]), [owned("a", 0), owned("b", 1)]);
    }
}
