//! The passt binding: a process in the pod connects the guest by sockets of its own. The guest gets the
//! pod's addresses, which the pod keeps; nothing is configured in the pod's network.

use launcher_channel::{ForwardedPorts, PasstServer, PortRange};
use model::paths;

use crate::nft::Transport;
use crate::{PlanError, PodInterface, masquerade};

pub(crate) fn server(
    interface: &model::Interface<'_>,
    pod: &PodInterface,
) -> Result<PasstServer, PlanError> {
    if interface.spec.dhcp_options.is_some() {
        return Err(PlanError::NotWithPasst {
            field: interface.field("dhcpOptions"),
        });
    }
    let interface = interface.spec;
    if pod.addresses().is_empty() {
        return Err(PlanError::PodHasNoAddress {
            interface: pod.name.clone(),
        });
    }
    let ports = masquerade::ports(interface)?;
    let of = |protocol| {
        let some = ports.iter().filter(|ports| ports.protocol == protocol);
        let range = |ports: &masquerade::Ports| PortRange {
            first: ports.first,
            last: ports.last,
        };
        some.map(range).collect()
    };
    Ok(PasstServer {
        name: interface.name.clone(),
        socket: paths::passt_socket(&interface.name),
        pod_interface: pod.name.clone(),
        mtu: u16::try_from(pod.mtu).unwrap_or(u16::MAX),
        ports: (!ports.is_empty()).then(|| ForwardedPorts {
            tcp: of(Transport::Tcp),
            udp: of(Transport::Udp),
        }),
    })
}
