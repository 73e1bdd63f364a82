//! The network of one namespace: its netlink sockets.

use std::io;

use rustix::{io::Errno, net::netlink};

use crate::{NetError, netlink::Socket};

/// Bound to the namespace that its thread was in when the socket was opened, whichever thread uses it
/// later; only taps and sysctls require the calling thread to be in the namespace. Calls block
/// briefly.
#[derive(Debug)]
pub struct Net {
    pub(crate) route: Socket,
    pub(crate) netfilter: Option<Socket>,
}

impl Net {
    /// The network of the calling thread.
    pub fn here() -> Result<Self, NetError> {
        // Protocol zero, the default, is NETLINK_ROUTE.
        let route = Socket::open(None).map_err(NetError::Socket)?;
        Ok(Self {
            route,
            netfilter: None,
        })
    }

    /// Opens the netfilter socket on first use. The thread must still be in the namespace.
    pub(crate) fn netfilter(&mut self) -> Result<&mut Socket, NetError> {
        let socket = match self.netfilter.take() {
            Some(socket) => socket,
            None => Socket::open(Some(netlink::NETFILTER)).map_err(netfilter_error)?,
        };
        Ok(self.netfilter.insert(socket))
    }
}

fn netfilter_error(error: io::Error) -> NetError {
    if error.raw_os_error() == Some(Errno::PROTONOSUPPORT.raw_os_error()) {
        return NetError::NotSupported {
            operation: "open nf_tables".to_owned(),
            feature: "nf_tables".to_owned(),
        };
    }
    NetError::Socket(error)
}
