//! The forwarding database of a bridge.

use net_plan::{MacAddress, SharedAddress};
use rustix::io::Errno;

use crate::{
    Net, NetError,
    link::AF_BRIDGE,
    netlink::{ACK, CREATE, Message, REPLACE},
};

const NEW_NEIGHBOUR: u16 = 28;
const DEL_NEIGHBOUR: u16 = 29;
const NDA_LLADDR: u16 = 2;
/// The entry is the bridge's, not one of the link itself.
const NTF_MASTER: u8 = 4;
/// Reachable, and neither learned nor outdated.
const STATIC: u16 = 0x02 | 0x40;
const PERMANENT: u16 = 0x80;

/// `struct ndmsg` of an entry at a bridge port.
fn head(port: u32, state: u16) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[0] = AF_BRIDGE;
    bytes[4..8].copy_from_slice(&port.to_ne_bytes());
    bytes[8..10].copy_from_slice(&state.to_ne_bytes());
    bytes[10] = NTF_MASTER;
    bytes
}

impl Net {
    /// Sends frames to the address out of the tap, although a port of the same bridge has it. Idempotent.
    pub(crate) fn ensure_shared_address(&mut self, shared: &SharedAddress) -> Result<(), NetError> {
        let (port, tap) = (
            self.existing_link(&shared.port)?,
            self.existing_link(&shared.tap)?,
        );
        self.forget_own_address(port.index, shared)?;
        let mut message =
            Message::new(NEW_NEIGHBOUR, ACK | CREATE | REPLACE).with(&head(tap.index, STATIC));
        message.attribute(NDA_LLADDR, &shared.mac.0);
        self.change(&message, || forwarding(shared.mac, &shared.tap))
    }

    /// The kernel made this entry when the port joined the bridge; another run may have removed it.
    fn forget_own_address(&mut self, port: u32, shared: &SharedAddress) -> Result<(), NetError> {
        let mut message = Message::new(DEL_NEIGHBOUR, ACK).with(&head(port, PERMANENT));
        message.attribute(NDA_LLADDR, &shared.mac.0);
        match self.route.request(&message) {
            Ok(_) => Ok(()),
            Err(error) if error.is(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.during(forwarding(shared.mac, &shared.tap))),
        }
    }
}

fn forwarding(mac: MacAddress, tap: &str) -> String {
    format!("forward {mac} to {tap}")
}
