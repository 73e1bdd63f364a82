//! The server's socket, with a limit on the rate of replies.

use std::{
    io,
    net::{Ipv4Addr, SocketAddrV4},
    time::Duration,
};

use error_chain::error_chain;
use launcher_channel::DhcpServer;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use tokio::{net::UdpSocket, time::Instant};
use tokio_util::sync::CancellationToken;

use super::reply::reply_to;
use crate::rate::Rate;

const SERVER_PORT: u16 = 67;
const CLIENT_PORT: u16 = 68;
/// What fits into a frame; longer packets are truncated and then malformed.
const MAX_PACKET: usize = 1500;
/// A client sends a few requests a minute; more than this is a flood and gets no reply.
const REPLIES_PER_SECOND: u32 = 20;
/// Pause after a socket error.
const ERROR_PAUSE: Duration = Duration::from_secs(1);

/// Why a guest has no DHCP server.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DhcpError {
    #[error("{mac:?} is not the MAC address of a guest")]
    BadClientMac { mac: String },
    #[error("listen for DHCP on {interface}")]
    Listen {
        interface: String,
        #[source]
        source: io::Error,
    },
}

/// Serves the guest until stopped.
pub(crate) async fn serve(server: DhcpServer, stop: CancellationToken) -> Result<(), DhcpError> {
    let client = parse_mac(&server.client_mac).ok_or_else(|| DhcpError::BadClientMac {
        mac: server.client_mac.clone(),
    })?;
    let socket = listen(&server.interface).map_err(|source| DhcpError::Listen {
        interface: server.interface.clone(),
        source,
    })?;
    tracing::info!(interface = server.interface, address = %server.address, "serving DHCP");
    let mut responder = Responder {
        socket: &socket,
        server: &server,
        client,
        rate: Rate::new(REPLIES_PER_SECOND),
    };
    let mut buffer = vec![0; MAX_PACKET];
    loop {
        let received = tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            received = socket.recv_from(&mut buffer) => received,
        };
        let done = match received {
            Ok((length, _)) => {
                let packet = buffer.get(..length).unwrap_or_default();
                responder.respond(packet).await
            }
            Err(error) => Err(error),
        };
        if let Err(error) = done {
            let (interface, error) = (&server.interface, error_chain(&error));
            tracing::warn!(interface, error, "DHCP socket error");
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                () = tokio::time::sleep(ERROR_PAUSE) => {}
            }
        }
    }
}

/// Replies to one client.
struct Responder<'a> {
    socket: &'a UdpSocket,
    server: &'a DhcpServer,
    client: [u8; 6],
    rate: Rate,
}

impl Responder<'_> {
    async fn respond(&mut self, packet: &[u8]) -> io::Result<()> {
        let Some(reply) = reply_to(packet, self.server, self.client) else {
            return Ok(());
        };
        if !self.rate.allows(Instant::now()) {
            return Ok(());
        }
        let destination = SocketAddrV4::new(reply.to, CLIENT_PORT);
        self.socket.send_to(&reply.bytes, destination).await?;
        Ok(())
    }
}

/// Port 67 on this interface only. It needs no capability because virt-handler has made the port
/// unprivileged in the pod.
fn listen(interface: &str) -> io::Result<UdpSocket> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None)?;
    // An earlier server, or one for another interface, must not block this one.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_socket_broadcast(&socket, true)?;
    rustix::net::bind(
        &socket,
        &SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, SERVER_PORT),
    )?;
    let socket = UdpSocket::from_std(std::net::UdpSocket::from(socket))?;
    socket.bind_device(Some(interface.as_bytes()))?;
    Ok(socket)
}

fn parse_mac(text: &str) -> Option<[u8; 6]> {
    let mut bytes = [0; 6];
    let mut parts = text.split(':');
    for byte in &mut bytes {
        *byte = u8::from_str_radix(parts.next().filter(|part| part.len() == 2)?, 16).ok()?;
    }
    parts.next().is_none().then_some(bytes)
}

#[cfg(test)]
mod tests {
    use std::{os::unix::fs::PermissionsExt as _, process::Command};

    use host_net::{Net, NetworkNamespace, Veth, in_namespace};
    use launcher_channel::DhcpBoot;
    use net_plan::{Bridge, MacAddress, Sysctl};

    use super::*;

    const MAC: MacAddress = MacAddress([0x12, 0x81, 0xb8, 0x38, 0x4f, 0x52]);

    fn server() -> DhcpServer {
        DhcpServer {
            interface: "k6t-eth0".to_owned(),
            client_mac: MAC.to_string(),
            server: Ipv4Addr::new(10, 0, 2, 1),
            address: Ipv4Addr::new(10, 0, 2, 2),
            prefix_length: 24,
            router: Some(Ipv4Addr::new(10, 0, 2, 1)),
            dns: vec![Ipv4Addr::new(10, 96, 0, 10)],
            search: vec![
                "default.svc.cluster.local".to_owned(),
                "cluster.local".to_owned(),
            ],
            routes: Vec::new(),
            mtu: 1450,
            host_name: "b1".to_owned(),
            boot: DhcpBoot::default(),
            ntp: Vec::new(),
            private: Vec::new(),
        }
    }

    #[tokio::test]
    async fn invalid_settings_are_refused() {
        let stop = CancellationToken::new();
        for mac in [
            "",
            "12:81:b8:38:4f",
            "12:81:b8:38:4f:52:00",
            "zz:81:b8:38:4f:52",
        ] {
            let server = DhcpServer {
                client_mac: mac.to_owned(),
                ..server()
            };
            let error = serve(server, stop.clone()).await.unwrap_err();
            assert!(matches!(error, DhcpError::BadClientMac { .. }), "{error}");
        }
        let server = DhcpServer {
            interface: "launcher-none".to_owned(),
            ..server()
        };
        let error = serve(server, stop).await.unwrap_err();
        assert!(matches!(error, DhcpError::Listen { .. }), "{error}");
    }

    /// Connects a guest's namespace to a pod's bridge.
    async fn pod_and_guest() -> (NetworkNamespace, NetworkNamespace) {
        let pod = NetworkNamespace::create().await.unwrap();
        let guest = NetworkNamespace::create().await.unwrap();
        let outside = in_namespace(pod.clone(), |net| {
            let name = "k6t-eth0".to_owned();
            let addresses = vec!["10.0.2.1/24".parse().unwrap()];
            net.ensure_bridge(&Bridge {
                name,
                mac: MacAddress::BRIDGE,
                mtu: 1450,
                addresses,
            })?;
            Net::here()
        });
        let mut outside = outside.await.unwrap();
        let inside = guest.clone();
        in_namespace(guest.clone(), move |net| {
            let veth = Veth {
                name: "v0",
                bridge: "k6t-eth0",
                mac: None,
                mtu: 1450,
                peer: "eth0",
                peer_mac: MAC,
                peer_mtu: 1450,
                hairpin: true,
                alias: None,
            };
            outside.ensure_veth(net, &inside, &veth).map(drop)
        })
        .await
        .unwrap();
        (pod, guest)
    }

    #[tokio::test]
    async fn udhcpc_gets_its_address() {
        let (pod, guest) = pod_and_guest().await;
        let stop = CancellationToken::new();
        let stop_server = stop.clone();
        let served = in_namespace(pod, move |net| {
            let name = "net/ipv4/ip_unprivileged_port_start".to_owned();
            net.ensure_sysctl(&Sysctl {
                name,
                value: "0".to_owned(),
            })?;
            // As in a pod, this thread has no capabilities from here on.
            rustix::thread::set_thread_uid(rustix::process::Uid::from_raw(107)).unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            Ok(runtime.unwrap().block_on(serve(server(), stop_server)))
        });
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("script");
        let output = dir.path().join("output");
        std::fs::write(&script, format!("#!/bin/sh\nenv >> {}\n", output.display())).unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        let requested = in_namespace(guest, move |net| {
            net.set_up("lo")?;
            let client = Command::new("busybox")
                .args([
                    "udhcpc", "-i", "eth0", "-f", "-q", "-n", "-t", "10", "-T", "1", "-s",
                ])
                .arg(&script)
                .args([
                    "-O", "search", "-O", "mtu", "-O", "hostname", "-O", "domain",
                ])
                .output()
                .unwrap();
            assert!(
                client.status.success(),
                "{}",
                String::from_utf8_lossy(&client.stderr)
            );
            stop.cancel();
            Ok(())
        });
        let (served, requested) = tokio::join!(served, requested);
        served.unwrap().unwrap();
        requested.unwrap();
        let output = std::fs::read_to_string(output).unwrap();
        for line in [
            "ip=10.0.2.2",
            "subnet=255.255.255.0",
            "mask=24",
            "router=10.0.2.1",
            "dns=10.96.0.10",
            "lease=86313600",
            "mtu=1450",
            "hostname=b1",
            "domain=default.svc.cluster.local",
            "search=default.svc.cluster.local cluster.local",
            "serverid=10.0.2.1",
        ] {
            assert!(
                output.lines().any(|found| found == line),
                "{line} is not in\n{output}"
            );
        }
    }
}
