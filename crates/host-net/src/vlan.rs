//! VLANs of bridge ports.

use rustix::io::Errno;

use crate::{
    Link, Net, NetError,
    link::{
        AF_BRIDGE, DEL_LINK, GET_LINK, IFLA_INFO_DATA, IFLA_INFO_KIND, IFLA_LINKINFO, NEW_LINK,
        SET_LINK, info,
    },
    netlink::{ACK, Failure, Message, attributes},
};

const IFLA_AF_SPEC: u16 = 26;
const IFLA_BR_VLAN_FILTERING: u16 = 7;
const IFLA_BRIDGE_VLAN_INFO: u16 = 2;
const PVID: u16 = 1 << 1;
const UNTAGGED: u16 = 1 << 2;
/// The VLAN of every new port.
const DEFAULT: u16 = 1;

/// The VLAN of a port whose other end knows nothing of VLANs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortVlan {
    pub id: u16,
    /// The port also sends frames of VLAN 1, without a tag.
    pub keeps_default: bool,
}

impl Net {
    /// Whether the bridge keeps VLANs apart.
    pub fn separates_vlans(&mut self, bridge: &Link) -> Result<bool, NetError> {
        let message = Message::new(GET_LINK, ACK).with(&info(0, bridge.index, 0, 0));
        let replies = self.route.request(&message);
        let replies =
            replies.map_err(|error| error.during(format!("look up link {}", bridge.name)))?;
        let link = replies.iter().find(|reply| reply.kind == NEW_LINK);
        let attribute = |bytes: Option<&[u8]>, wanted: u16| {
            let found = attributes(bytes?).find(|(kind, _)| *kind == wanted);
            found.map(|(_, value)| value.to_vec())
        };
        let kind = attribute(link.and_then(|link| link.payload.get(16..)), IFLA_LINKINFO);
        let data = attribute(kind.as_deref(), IFLA_INFO_DATA);
        let filtering = attribute(data.as_deref(), IFLA_BR_VLAN_FILTERING);
        Ok(filtering.is_some_and(|value| value == [1]))
    }

    /// Has the bridge keep VLANs apart. Idempotent.
    pub fn separate_vlans(&mut self, bridge: &Link) -> Result<(), NetError> {
        // Only this request changes what is particular to the kind of a link.
        let mut filtering = Message::new(NEW_LINK, ACK).with(&info(0, bridge.index, 0, 0));
        filtering.nest(IFLA_LINKINFO, |info| {
            info.text(IFLA_INFO_KIND, "bridge");
            info.nest(IFLA_INFO_DATA, |data| {
                data.attribute(IFLA_BR_VLAN_FILTERING, &[1]);
            });
        });
        let filtered = self.route.request(&filtering).map(drop);
        let operation = || format!("separate VLANs on bridge {}", bridge.name);
        filtered.map_err(|error| failed(error, operation()))
    }

    /// Puts the port of a bridge that keeps VLANs apart into one. Idempotent.
    pub fn ensure_port_vlan(&mut self, port: &Link, vlan: PortVlan) -> Result<(), NetError> {
        self.change_vlan(SET_LINK, port, (vlan.id, PVID | UNTAGGED))?;
        if vlan.keeps_default || vlan.id == DEFAULT {
            return Ok(());
        }
        self.change_vlan(DEL_LINK, port, (DEFAULT, 0))
    }

    fn change_vlan(&mut self, kind: u16, port: &Link, vlan: (u16, u16)) -> Result<(), NetError> {
        let message = vlan_message(kind, port.index, vlan);
        match self.route.request(&message) {
            Ok(_) => Ok(()),
            // It is gone already.
            Err(error) if kind == DEL_LINK && error.is(Errno::NOENT) => Ok(()),
            Err(error) => {
                let (id, _) = vlan;
                Err(failed(
                    error,
                    format!("set VLAN {id} of port {}", port.name),
                ))
            }
        }
    }
}

/// The kernel may have bridges without VLANs.
fn failed(error: Failure, operation: String) -> NetError {
    if error.is(Errno::OPNOTSUPP) {
        return NetError::NotSupported {
            operation,
            feature: "bridge VLAN filtering".to_owned(),
        };
    }
    error.during(operation)
}

fn vlan_message(kind: u16, port: u32, (id, flags): (u16, u16)) -> Message {
    let mut message = Message::new(kind, ACK).with(&info(AF_BRIDGE, port, 0, 0));
    // `struct bridge_vlan_info`.
    let mut vlan = [0; 4];
    vlan[..2].copy_from_slice(&flags.to_ne_bytes());
    vlan[2..].copy_from_slice(&id.to_ne_bytes());
    message.nest(IFLA_AF_SPEC, |spec| {
        spec.attribute(IFLA_BRIDGE_VLAN_INFO, &vlan);
    });
    message
}
