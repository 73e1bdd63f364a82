//! The loop of a server, with limits on frames and replies.

use std::{io, time::Duration};

use launcher_channel::Ipv6Server;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    advertisement,
    answer::{advertise, answer},
    frame::MAX_FRAME,
    settings::{BadMac, Settings},
    tap::Tap,
};
use crate::rate::Rate;

/// A client sends a few requests a minute; more than this is a flood and gets no reply.
const REPLIES_PER_SECOND: u32 = 20;
/// Frames that are read in a second, most of which have no answer; the kernel drops the rest.
const FRAMES_PER_SECOND: u32 = 500;
/// Pause in a flood.
const FLOOD_PAUSE: Duration = Duration::from_millis(200);

/// Why a guest has no server.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Ipv6Error {
    #[error("read the settings")]
    BadSettings(#[from] BadMac),
    #[error("open tap device {tap}")]
    Open {
        tap: String,
        #[source]
        source: io::Error,
    },
    #[error("receive or send on tap device {tap}")]
    Transfer {
        tap: String,
        #[source]
        source: io::Error,
    },
}

/// Serves the guest until stopped.
pub(crate) async fn serve(server: Ipv6Server, stop: CancellationToken) -> Result<(), Ipv6Error> {
    let settings = Settings::of(&server)?;
    let tap = Tap::open(&server.tap, settings.client).map_err(|source| Ipv6Error::Open {
        tap: server.tap.clone(),
        source,
    })?;
    tracing::info!(tap = server.tap, address = %server.address, "serving DHCPv6");
    let served = tokio::select! {
        biased;
        () = stop.cancelled() => return Ok(()),
        served = answer_all(&tap, &settings) => served,
    };
    let Err(source) = served;
    Err(Ipv6Error::Transfer {
        tap: server.tap.clone(),
        source,
    })
}

async fn answer_all(tap: &Tap, settings: &Settings) -> Result<std::convert::Infallible, io::Error> {
    let mut ticks = tokio::time::interval(advertisement::EVERY);
    let mut frames = Rate::new(FRAMES_PER_SECOND);
    let mut replies = Rate::new(REPLIES_PER_SECOND);
    // One more byte shows that a frame is too long.
    let mut buffer = vec![0; MAX_FRAME + 1];
    loop {
        tokio::select! {
            _ = ticks.tick() => tap.send(&advertise(settings)).await?,
            length = tap.receive(&mut buffer) => {
                let frame = buffer.get(..length?).unwrap_or_default();
                let reply = answer(frame, settings);
                if let Some(reply) = reply.filter(|_| replies.allows(Instant::now())) {
                    tap.send(&reply).await?;
                }
                if !frames.allows(Instant::now()) {
                    tokio::time::sleep(FLOOD_PAUSE).await;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        net::{Ipv6Addr, SocketAddr, SocketAddrV6, TcpListener, TcpStream, UdpSocket},
        time::Instant,
    };

    use host_net::{Net, NetError, NetworkNamespace, Veth, in_namespace};
    use launcher_channel::Ipv6Router;
    use net_plan::{
        Bridge, Cidr, MacAddress, Plumbing, Sysctl, Tap,
        nft::{Action, Chain, Family, Hook, HookKind, HookPoint, Match, Rule, Table},
    };

    use rustix::thread::{CapabilitySet, CapabilitySets};

    use super::*;

    const MAC: MacAddress = MacAddress([0x12, 0x81, 0xb8, 0x38, 0x4f, 0x52]);
    const PATIENCE: Duration = Duration::from_secs(30);

    fn server() -> Ipv6Server {
        Ipv6Server {
            tap: "ra-eth0".to_owned(),
            client_mac: MAC.to_string(),
            mac: "92:81:b8:38:4f:52".to_owned(),
            router: Some(Ipv6Router {
                address: "fe80::1".parse().unwrap(),
                mac: Some(MacAddress::BRIDGE.to_string()),
            }),
            address: "fd10:0:2::2".parse().unwrap(),
            prefix_length: 120,
            dns: Vec::new(),
            search: Vec::new(),
            mtu: 1450,
        }
    }

    fn bridge(name: &str, mac: MacAddress, addresses: &[&str]) -> Bridge {
        Bridge {
            name: name.to_owned(),
            mac,
            mtu: 1450,
            addresses: addresses.iter().map(|one| one.parse().unwrap()).collect(),
        }
    }

    /// The pod's part of the network, as a plan has it.
    fn plumbing() -> Plumbing {
        let guest: Cidr = "fd10:0:2::2/128".parse().unwrap();
        let leaving = Rule {
            matches: vec![Match::Source(guest)],
            action: Action::Masquerade,
        };
        let hook = Hook {
            kind: HookKind::Nat,
            point: HookPoint::Postrouting,
            priority: 100,
        };
        Plumbing {
            bridges: vec![bridge(
                "k6t-eth0",
                MacAddress::BRIDGE,
                &["fd10:0:2::1/120", "fe80::1/64"],
            )],
            taps: vec![Tap {
                name: "ra-eth0".to_owned(),
                bridge: "k6t-eth0".to_owned(),
                mtu: 1450,
                // The device belongs to root, unlike in a pod.
                owner: 0,
                queues: 1,
            }],
            sysctls: vec![sysctl("net/ipv6/conf/all/forwarding", "1")],
            tables: vec![Table {
                family: Family::Ip6,
                name: "nat".to_owned(),
                chains: vec![Chain {
                    name: "postrouting".to_owned(),
                    hook: Some(hook),
                    rules: vec![leaving],
                }],
            }],
            ..Plumbing::default()
        }
    }

    fn sysctl(name: &str, value: &str) -> Sysctl {
        Sysctl {
            name: name.to_owned(),
            value: value.to_owned(),
        }
    }

    /// Gives a namespace an interface on a bridge of another.
    async fn join(of: &NetworkNamespace, to: (&NetworkNamespace, &'static str), mac: MacAddress) {
        let (at, bridge) = to;
        let mut host = in_namespace(at.clone(), |_| Net::here()).await.unwrap();
        let inside = of.clone();
        in_namespace(of.clone(), move |net| {
            // Addresses are usable at once.
            net.ensure_sysctl(&sysctl("net/ipv6/conf/default/accept_dad", "0"))?;
            let veth = Veth {
                name: "v0",
                bridge,
                mac: None,
                mtu: 1450,
                peer: "eth0",
                peer_mac: mac,
                peer_mtu: 1450,
                hairpin: true,
                alias: None,
            };
            net.set_up("lo")?;
            host.ensure_veth(net, &inside, &veth).map(drop)
        })
        .await
        .unwrap();
    }

    /// The namespaces of the outside, the pod and the guest.
    async fn outside_pod_and_guest() -> [NetworkNamespace; 3] {
        let outside = NetworkNamespace::create().await.unwrap();
        let pod = NetworkNamespace::create().await.unwrap();
        let guest = NetworkNamespace::create().await.unwrap();
        in_namespace(outside.clone(), |net| {
            let mac = MacAddress([2, 0, 0, 0, 0, 7]);
            // The pod's router has the same link-local address as the guest's.
            let addresses = ["fd00::1/64", "fd77::1/64", "fe80::1/64"];
            net.ensure_bridge(&bridge("outside", mac, &addresses))
        })
        .await
        .unwrap();
        join(&pod, (&outside, "outside"), MacAddress([2, 0, 0, 0, 0, 9])).await;
        in_namespace(pod.clone(), |net| {
            let link = eth0(net)?;
            net.ensure_address(&link, "fd00::9/64".parse().unwrap())?;
            let all = Cidr::v6(Ipv6Addr::UNSPECIFIED, 0);
            net.ensure_route(&link, all, Some("fe80::1".parse().unwrap()))?;
            host_net::plumb(net, &plumbing())
        })
        .await
        .unwrap();
        join(&guest, (&pod, "k6t-eth0"), MAC).await;
        [outside, pod, guest]
    }

    fn eth0(net: &mut Net) -> Result<host_net::Link, NetError> {
        let mut links = net.links()?.into_iter();
        Ok(links.find(|link| link.name == "eth0").expect("eth0"))
    }

    /// Sends a solicitation that accepts a lease at once, until there is a reply; returns the address in it.
    fn leased(interface: u32) -> Ipv6Addr {
        let socket = UdpSocket::bind("[::]:546").unwrap();
        let patience = Some(Duration::from_secs(1));
        socket.set_read_timeout(patience).unwrap();
        let servers = "ff02::1:2".parse().unwrap();
        let servers = SocketAddrV6::new(servers, 547, 0, interface);
        let mut message = vec![1, 7, 8, 9, 0, 1, 0, 4, 0, 3, 0, 1, 0, 14, 0, 0];
        message.extend([0, 3, 0, 12, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
        let end = Instant::now() + PATIENCE;
        let mut buffer = [0; 1500];
        let length = loop {
            socket.send_to(&message, servers).unwrap();
            match socket.recv_from(&mut buffer) {
                Ok((length, _)) => break length,
                Err(error) => assert!(Instant::now() < end, "no reply: {error}"),
            }
        };
        let reply = &buffer[..length];
        assert_eq!(reply[..4], [7, 7, 8, 9]);
        let address = [0, 5, 0, 24];
        let at = reply.windows(4).position(|four| four == address).unwrap();
        Ipv6Addr::from(*reply[at + 4..].first_chunk::<16>().unwrap())
    }

    /// Waits for the default route that an advertisement brings.
    fn wait_for_route(net: &mut Net) -> Result<(), NetError> {
        let end = Instant::now() + PATIENCE;
        let router = Some("fe80::1".parse().unwrap());
        loop {
            let mut routes = net.routes()?.into_iter();
            if routes.any(|one| one.destination.prefix_length == 0 && one.via == router) {
                return Ok(());
            }
            assert!(Instant::now() < end, "no default route");
            std::thread::yield_now();
        }
    }

    #[tokio::test]
    async fn guest_gets_address_and_route_and_reaches_the_outside() {
        let [outside, pod, guest] = outside_pod_and_guest().await;
        let stop = CancellationToken::new();
        let stop_server = stop.clone();
        let served = in_namespace(pod, move |_| {
            // As in a pod, this thread has no capabilities from here on.
            let none = CapabilitySets {
                effective: CapabilitySet::empty(),
                permitted: CapabilitySet::empty(),
                inheritable: CapabilitySet::empty(),
            };
            rustix::thread::set_capabilities(None, none).unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            Ok(runtime.unwrap().block_on(serve(server(), stop_server)))
        });
        let any = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 80);
        let listener = in_namespace(outside, move |_| {
            TcpListener::bind(any).map_err(NetError::Socket)
        });
        let listener = listener.await.unwrap();
        let requested = in_namespace(guest, move |net| {
            let link = eth0(net)?;
            let address = leased(link.index);
            assert_eq!(address.to_string(), "fd10:0:2::2");
            net.ensure_address(&link, Cidr::v6(address, 128))?;
            wait_for_route(net)?;
            let to = "[fd77::1]:80".parse().unwrap();
            let _near = TcpStream::connect_timeout(&to, PATIENCE).map_err(NetError::Socket)?;
            let (_, source) = listener.accept().map_err(NetError::Socket)?;
            stop.cancel();
            Ok(source.ip().to_string())
        });
        let (served, requested) = tokio::join!(served, requested);
        served.unwrap().unwrap();
        // Translated to the pod's address.
        assert_eq!(requested.unwrap(), "fd00::9");
    }

    #[tokio::test]
    async fn invalid_settings_are_refused() {
        let stop = CancellationToken::new();
        let bad = Ipv6Server {
            client_mac: "12:81".to_owned(),
            ..server()
        };
        let error = serve(bad, stop.clone()).await.unwrap_err();
        assert!(matches!(error, Ipv6Error::BadSettings(_)), "{error}");
        for tap in ["", "a-tap-with-a-long-name"] {
            let bad = Ipv6Server {
                tap: tap.to_owned(),
                ..server()
            };
            let error = serve(bad, stop.clone()).await.unwrap_err();
            assert!(matches!(error, Ipv6Error::Open { .. }), "{error}");
        }
    }
}
