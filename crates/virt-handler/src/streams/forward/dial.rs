//! Connecting to a port of a guest, inside its pod's network namespace or from the node.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use host_net::{NetError, NetworkNamespace, in_namespace};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use tokio::net::{TcpSocket, TcpStream, UdpSocket};

/// Time limit of a connection. A firewall in the guest may drop every packet.
const TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Tcp,
    Udp,
}

impl Protocol {
    pub(super) fn parse(text: &str) -> Option<Self> {
        match text {
            "tcp" => Some(Self::Tcp),
            "udp" => Some(Self::Udp),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

/// A port of a guest.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) protocol: Protocol,
    /// One address or more, in order of preference.
    pub(super) addresses: Vec<IpAddr>,
    pub(super) port: u16,
    /// `None`: the node's own namespace.
    pub(super) namespace: Option<NetworkNamespace>,
}

#[derive(Debug)]
pub(super) enum Connection {
    Tcp(TcpStream),
    Udp(UdpSocket),
}

/// Why a port was not reached.
#[derive(Debug, thiserror::Error)]
pub(super) enum DialError {
    #[error("enter the guest's network")]
    Namespace(#[from] NetError),
    #[error("dial {protocol} {address}: {source}")]
    Refused {
        protocol: &'static str,
        address: SocketAddr,
        source: io::Error,
    },
    #[error("the guest has no address yet")]
    NoAddress,
}

impl Target {
    /// Connects to the first address that accepts; the error is that of the first.
    pub(super) async fn dial(&self) -> Result<Connection, DialError> {
        let mut first = None;
        for address in &self.addresses {
            let address = SocketAddr::new(*address, self.port);
            match self.dial_one(address).await {
                Ok(connection) => return Ok(connection),
                Err(error) => {
                    first.get_or_insert(error);
                }
            }
        }
        Err(first.unwrap_or(DialError::NoAddress))
    }

    async fn dial_one(&self, address: SocketAddr) -> Result<Connection, DialError> {
        let refused = |source| DialError::Refused {
            protocol: self.protocol.name(),
            address,
            source,
        };
        match self.protocol {
            Protocol::Tcp => {
                let socket = self.tcp_socket(address).await?;
                let connecting = tokio::time::timeout(TIMEOUT, socket.connect(address)).await;
                let connected = connecting.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
                let stream = connected.map_err(refused)?;
                // Interactive sessions send single bytes.
                stream.set_nodelay(true).map_err(refused)?;
                Ok(Connection::Tcp(stream))
            }
            Protocol::Udp => {
                let socket = self.udp_socket(address).await?;
                socket.connect(address).await.map_err(refused)?;
                Ok(Connection::Udp(socket))
            }
        }
    }

    /// A socket belongs to the namespace it was made in, so only that needs a thread there.
    async fn tcp_socket(&self, address: SocketAddr) -> Result<TcpSocket, NetError> {
        let family = if address.is_ipv4() {
            AddressFamily::INET
        } else {
            AddressFamily::INET6
        };
        let make = move || {
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            let socket = socket_with(family, SocketType::STREAM, flags, None);
            socket.map_err(|errno| NetError::Socket(errno.into()))
        };
        let socket = match self.namespace.clone() {
            Some(namespace) => in_namespace(namespace, move |_| make()).await?,
            None => make()?,
        };
        Ok(TcpSocket::from_std_stream(socket.into()))
    }

    async fn udp_socket(&self, address: SocketAddr) -> Result<UdpSocket, NetError> {
        let any: IpAddr = if address.is_ipv4() {
            Ipv4Addr::UNSPECIFIED.into()
        } else {
            Ipv6Addr::UNSPECIFIED.into()
        };
        let make = move || {
            let socket = std::net::UdpSocket::bind((any, 0)).map_err(NetError::Socket)?;
            socket.set_nonblocking(true).map_err(NetError::Socket)?;
            Ok(socket)
        };
        let socket = match self.namespace.clone() {
            Some(namespace) => in_namespace(namespace, move |_| make()).await?,
            None => make()?,
        };
        UdpSocket::from_std(socket).map_err(NetError::Socket)
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::*;

    fn target(protocol: Protocol, port: u16) -> Target {
        Target {
            protocol,
            addresses: vec![Ipv4Addr::LOCALHOST.into()],
            port,
            namespace: None,
        }
    }

    #[tokio::test]
    async fn open_port_is_connected() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let target = target(Protocol::Tcp, port);
        let (dialled, accepted) = tokio::join!(target.dial(), listener.accept());
        let Connection::Tcp(mut near) = dialled.unwrap() else {
            panic!("not TCP");
        };
        let (mut far, _) = accepted.unwrap();
        near.write_all(b"hello").await.unwrap();
        let mut read = [0; 5];
        far.read_exact(&mut read).await.unwrap();
        assert_eq!(&read, b"hello");
    }

    #[tokio::test]
    async fn closed_port_is_an_error_that_names_it() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let error = target(Protocol::Tcp, port).dial().await.unwrap_err();
        let message = error.to_string();
        let wanted = format!("dial tcp 127.0.0.1:{port}: Connection refused");
        assert!(message.starts_with(&wanted), "{message}");
        let nowhere = Target {
            addresses: vec![],
            ..target(Protocol::Tcp, port)
        };
        let error = nowhere.dial().await.unwrap_err();
        assert!(matches!(error, DialError::NoAddress), "{error}");
    }

    #[tokio::test]
    async fn datagrams_go_both_ways() {
        let far = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let port = far.local_addr().unwrap().port();
        let dialled = target(Protocol::Udp, port).dial().await.unwrap();
        let Connection::Udp(near) = dialled else {
            panic!("not UDP");
        };
        near.send(b"ping").await.unwrap();
        let mut read = [0; 16];
        let (count, from) = far.recv_from(&mut read).await.unwrap();
        assert_eq!(&read[..count], b"ping");
        far.send_to(b"pong", from).await.unwrap();
        let count = near.recv(&mut read).await.unwrap();
        assert_eq!(&read[..count], b"pong");
    }
}
