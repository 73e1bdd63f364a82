//! The network of one namespace, ready to be asked and changed.

use std::io;

use rustix::{io::Errno, net::netlink};

use crate::{NetError, netlink::Socket};

/// Bound to the namespace that its thread was in when it was made, wherever it is used later;
/// only taps and sysctls need the thread itself to be there. Calls block, for moments.
#[derive(Debug)]
pub struct Net {
    pub(crate) route: Socket,
    pub(crate) netfilter: Option<Socket>,
}

impl Net {
    /// The network of the calling thread.
    pub fn here() -> Result<Self, NetError> {
        // Links and routes are protocol zero, the default.
        let route = Socket::open(None).map_err(NetError::Socket)?;
        Ok(Self {
            route,
            netfilter: None,
        })
    }

    /// Packet rules are asked for by few: their socket is opened when needed. Needs the thread to
    /// be in the namespace still.
    pub(crate) fn netfilter(&mut self) -> Result<&mut Socket, NetError> {
        let socket = match self.netfilter.take() {
            Some(socket) => socket,
            None => Socket::open(Some(netlink::NETFILTER)).map_err(no_netfilter)?,
        };
        Ok(self.netfilter.insert(socket))
    }
}

fn no_netfilter(err: io::Error) -> NetError {
    if err.raw_os_error() == Some(Errno::PROTONOSUPPORT.raw_os_error()) {
        let (doing, feature) = ("open nf_tables".to_owned(), "nf_tables".to_owned());
        return NetError::NotSupported { doing, feature };
    }
    NetError::Socket(err)
}
