//! The network on hosts simulated by namespaces that each test creates. Requires root, as the crate
//! does.

#![expect(clippy::unwrap_used, reason = "a failed call fails the test")]

mod ipv6;
mod links;
mod secondary;

use std::{
    collections::HashSet,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, TcpListener, TcpStream, UdpSocket},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use host_net::{NetError, NetworkNamespace, in_namespace};
use net_plan::{Bridge, Cidr, MacAddress, nft::Family};
use pod_network::{
    Allowed, Choice, Connections, Forward, Front, PodNetwork, Ports, Protocol, Restriction,
    Settings, Transport,
};

/// A host with an uplink address, and a folder for pinned pod namespaces and state.
struct Host {
    namespace: NetworkNamespace,
    folder: tempfile::TempDir,
}

impl Host {
    async fn new() -> Self {
        let namespace = NetworkNamespace::create().await.unwrap();
        in_namespace(namespace.clone(), |net| {
            net.set_up("lo")?;
            net.ensure_bridge(&bridge("uplink", "192.0.2.2/24"))
                .map(drop)
        })
        .await
        .unwrap();
        Self {
            namespace,
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn settings(&self, name: &str, range: &str) -> Settings {
        Settings {
            bridge: name.to_owned(),
            pod_cidr: range.parse().unwrap(),
            pod_cidr_ipv6: None,
            mtu: 1450,
            state_dir: self.folder.path().join(name),
            table: name.to_owned(),
        }
    }

    async fn network(&self, name: &str, range: &str) -> PodNetwork {
        self.network_with(self.settings(name, range)).await
    }

    async fn network_with(&self, settings: Settings) -> PodNetwork {
        let network = PodNetwork::open_in(self.namespace.clone(), settings)
            .await
            .unwrap();
        network.ensure().await.unwrap();
        network
    }

    async fn pod(&self, name: &str) -> Pod {
        let path = self.folder.path().join(name);
        let namespace = NetworkNamespace::create().await.unwrap();
        namespace.pin(&path).unwrap();
        Pod { namespace, path }
    }

    async fn links(&self) -> Vec<String> {
        in_namespace(self.namespace.clone(), |net| {
            Ok(net.links()?.into_iter().map(|link| link.name).collect())
        })
        .await
        .unwrap()
    }

    /// Another host on the uplink.
    async fn other_on_uplink(&self) -> NetworkNamespace {
        let other = NetworkNamespace::create().await.unwrap();
        let uplink = in_namespace(self.namespace.clone(), |_| host_net::Net::here());
        let mut uplink = uplink.await.unwrap();
        let inside = other.clone();
        in_namespace(other.clone(), move |net| {
            let veth = host_net::Veth {
                name: "up0",
                bridge: "uplink",
                mac: None,
                mtu: 1450,
                peer: "eth0",
                peer_mac: MacAddress([2, 0, 0, 0, 0, 8]),
                peer_mtu: 1450,
                hairpin: true,
                alias: None,
            };
            let end = uplink.ensure_veth(net, &inside, &veth)?.peer;
            net.ensure_address(&end, "192.0.2.3/24".parse().unwrap())?;
            net.ensure_address(&end, "fd77::3/64".parse().unwrap())
        })
        .await
        .unwrap();
        other
    }
}

struct Pod {
    namespace: NetworkNamespace,
    path: PathBuf,
}

impl Drop for Pod {
    fn drop(&mut self) {
        NetworkNamespace::unpin(&self.path).unwrap();
    }
}

fn bridge(name: &str, address: &str) -> Bridge {
    Bridge {
        name: name.to_owned(),
        mac: MacAddress([2, 0, 0, 0, 0, 7]),
        mtu: 1450,
        addresses: vec![address.parse().unwrap()],
    }
}

fn address(of: &pod_network::CniResult) -> String {
    let cidr: Cidr = of.ips[0].address.parse().unwrap();
    cidr.address.to_string()
}

/// Connects; returns the source address that the listener observed.
async fn connect(from: &NetworkNamespace, to: &str, at: &NetworkNamespace) -> String {
    let to: SocketAddr = to.parse().unwrap();
    let any = SocketAddr::new([0, 0, 0, 0].into(), to.port());
    let listener = in_namespace(at.clone(), move |_| {
        TcpListener::bind(any).map_err(NetError::Socket)
    });
    let listener = listener.await.unwrap();
    in_namespace(from.clone(), move |_| {
        let _near =
            TcpStream::connect_timeout(&to, Duration::from_mins(1)).map_err(NetError::Socket)?;
        let (_, source) = listener.accept().map_err(NetError::Socket)?;
        Ok(source.ip().to_string())
    })
    .await
    .unwrap()
}

#[tokio::test]
async fn addresses_of_the_host_are_those_of_its_interfaces() {
    let host = Host::new().await;
    let network = host.network("pods", "10.77.0.0/24").await;
    let mut found = network.host_addresses().await.unwrap();
    found.sort();
    let expected: [std::net::IpAddr; 2] = [[10, 77, 0, 1].into(), [192, 0, 2, 2].into()];
    assert_eq!(found, expected);
}

#[tokio::test]
async fn pods_reach_each_other_and_are_masqueraded_outside() {
    let host = Host::new().await;
    let network = host.network("pnet-a", "10.9.0.0/24").await;
    let (a, b) = (host.pod("a").await, host.pod("b").await);
    let in_a = network.add("uid-a", &a.path, "eth0").await.unwrap();
    let in_b = network.add("uid-b", &b.path, "eth0").await.unwrap();
    let (ip_a, ip_b) = (address(&in_a), address(&in_b));
    assert_eq!(
        connect(&a.namespace, &format!("{ip_b}:80"), &b.namespace).await,
        ip_a
    );
    assert_eq!(
        connect(&host.namespace, &format!("{ip_b}:81"), &b.namespace).await,
        "10.9.0.1"
    );
    assert_eq!(
        connect(&a.namespace, "10.9.0.1:82", &host.namespace).await,
        ip_a
    );

    let other = host.other_on_uplink().await;
    assert_eq!(
        connect(&a.namespace, "192.0.2.3:83", &other).await,
        "192.0.2.2"
    );
}

#[tokio::test]
async fn services_are_reachable_from_pods_and_host() {
    let host = Host::new().await;
    let network = host.network("pnet-h", "10.9.0.0/24").await;
    let (a, b) = (host.pod("a").await, host.pod("b").await);
    network.add("uid-a", &a.path, "eth0").await.unwrap();
    let in_b = network.add("uid-b", &b.path, "eth0").await.unwrap();
    let target = format!("{}:8080", address(&in_b)).parse().unwrap();
    let service = network.services().first;
    let forward = |targets| Forward {
        front: Front::Service(service),
        port: 80,
        protocol: Protocol::Tcp,
        targets,
        choice: Choice::Random,
    };
    network.forward(vec![forward(vec![target])]).await.unwrap();
    let target = listen(&b.namespace, 8080).await;
    // Another pod, the pod itself, and the host.
    for from in [&a.namespace, &b.namespace, &host.namespace] {
        let source = connect_through(from, (service, 80), &target).await;
        assert_eq!(source, Some("10.9.0.1".to_owned()));
    }
    network.forward(vec![forward(vec![])]).await.unwrap();
    let source = connect_through(&a.namespace, (service, 80), &target).await;
    assert_eq!(source, None);
    network.teardown().await.unwrap();
    let chains = in_namespace(host.namespace.clone(), |net| net.base_chains(Family::Ip)).await;
    assert!(chains.unwrap().is_empty());
}

#[expect(clippy::too_many_lines, reason = "one host for a table of cases")]
#[tokio::test]
async fn pods_have_only_the_connections_that_policies_allow() {
    let host = Host::new().await;
    let network = host.network("pnet-p", "10.9.0.0/24").await;
    let (a, b) = (host.pod("a").await, host.pod("b").await);
    let in_a = network.add("uid-a", &a.path, "eth0").await.unwrap();
    let in_b = network.add("uid-b", &b.path, "eth0").await.unwrap();
    let [from_a, to_b]: [Ipv4Addr; 2] = [&in_a, &in_b].map(|pod| address(pod).parse().unwrap());
    let service = network.services().first;
    let target = format!("{to_b}:8080").parse().unwrap();
    let forward = Forward {
        front: Front::Service(service),
        port: 80,
        protocol: Protocol::Tcp,
        targets: vec![target],
        choice: Choice::Random,
    };
    network.forward(vec![forward]).await.unwrap();
    let listener = listen(&b.namespace, 8080).await;
    let only = |peer: Ipv4Addr, port: u16| {
        Connections::Only(vec![Allowed {
            peer: Some(Cidr::v4(peer, 32)),
            ports: Some(Ports {
                protocol: Transport::Tcp,
                first: port,
                last: port,
            }),
        }])
    };
    let restriction = |pod, ingress, egress| Restriction {
        pod,
        ingress,
        egress,
    };
    let nothing = || Connections::Only(Vec::new());
    for (restrictions, is_open) in [
        (vec![], true),
        (vec![restriction(to_b, nothing(), Connections::Free)], false),
        (vec![restriction(to_b, only(from_a, 8080), nothing())], true),
        (
            vec![restriction(to_b, only(from_a, 80), Connections::Free)],
            false,
        ),
        (
            vec![restriction(
                to_b,
                only([10, 9, 0, 99].into(), 8080),
                Connections::Free,
            )],
            false,
        ),
        (
            vec![restriction(from_a, Connections::Free, nothing())],
            false,
        ),
        (
            vec![
                restriction(from_a, nothing(), only(to_b, 8080)),
                restriction(to_b, only(from_a, 8080), nothing()),
            ],
            true,
        ),
        (vec![], true),
    ] {
        network.restrict(restrictions.clone()).await.unwrap();
        // Over the bridge, and by a service.
        for to in [(to_b, 8080), (service, 80)] {
            let source = connect_through(&a.namespace, to, &listener).await;
            assert_eq!(source.is_some(), is_open, "{to:?} {restrictions:?}");
        }
    }
    // By the link, and by addresses of many pods.
    let closed = vec![restriction(to_b, nothing(), Connections::Free)];
    for (restrictions, is_open) in [(vec![], true), (closed, false)] {
        network.restrict(restrictions).await.unwrap();
        assert_eq!(connects_by_link(&a, &b).await, is_open);
        assert_eq!(reaches_many(&a, &b, [10, 9, 0, 255].into()).await, is_open);
        assert_eq!(network.is_restricted().await.unwrap(), !is_open);
    }
    // A pod reaches itself, and its host reaches it, whatever the policies.
    network
        .restrict(vec![restriction(to_b, nothing(), nothing())])
        .await
        .unwrap();
    for from in [&b.namespace, &host.namespace] {
        let source = connect_through(from, (service, 80), &listener).await;
        assert!(source.is_some());
    }
    // As many rules as a namespace may have.
    let many = (1..=8192).map(|port| {
        let Connections::Only(mut allowed) = only(from_a, port) else {
            panic!("a port is allowed")
        };
        allowed.remove(0)
    });
    let many = Connections::Only(many.collect());
    network
        .restrict(vec![restriction(to_b, many, Connections::Free)])
        .await
        .unwrap();
    assert!(
        connect_through(&a.namespace, (to_b, 8080), &listener)
            .await
            .is_some()
    );
    network.teardown().await.unwrap();
    for family in [Family::Ip, Family::Ip6] {
        let chains = in_namespace(host.namespace.clone(), move |net| net.base_chains(family)).await;
        assert!(chains.unwrap().is_empty());
    }
}

/// The link-local address of a pod's interface, and the number of the interface.
async fn address_of_link(pod: &Pod) -> (Ipv6Addr, u32) {
    const TENTATIVE: u32 = 0x40;
    loop {
        let all = in_namespace(pod.namespace.clone(), |_| {
            std::fs::read_to_string("/proc/thread-self/net/if_inet6").map_err(NetError::Socket)
        });
        let all = all.await.unwrap();
        let line = all.lines().find(|line| line.ends_with("eth0")).unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |word: usize| u32::from_str_radix(words[word], 16).unwrap();
        let address = Ipv6Addr::from_bits(u128::from_str_radix(words[0], 16).unwrap());
        // It is not usable until the detection of duplicates has ended.
        if number(4) & TENTATIVE == 0 {
            return (address, number(1));
        }
        tokio::task::yield_now().await;
    }
}

/// Whether one pod opens a connection to another by its link-local address.
async fn connects_by_link(from: &Pod, to: &Pod) -> bool {
    let ((address, _), (_, interface)) = (address_of_link(to).await, address_of_link(from).await);
    let any = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0);
    let listener = in_namespace(to.namespace.clone(), move |_| {
        TcpListener::bind(any).map_err(NetError::Socket)
    });
    let listener = listener.await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let to = SocketAddrV6::new(address, port, 0, interface);
    in_namespace(from.namespace.clone(), move |_| {
        Ok(TcpStream::connect_timeout(&to.into(), Duration::from_secs(5)).is_ok())
    })
    .await
    .unwrap()
}

/// Whether a packet to an address of many pods arrives.
async fn reaches_many(from: &Pod, to: &Pod, address: Ipv4Addr) -> bool {
    let socket = in_namespace(to.namespace.clone(), |_| {
        let socket = UdpSocket::bind("0.0.0.0:0").map_err(NetError::Socket)?;
        let patience = Some(Duration::from_secs(3));
        socket
            .set_read_timeout(patience)
            .map_err(NetError::Socket)?;
        Ok(socket)
    });
    let socket = socket.await.unwrap();
    let port = socket.local_addr().unwrap().port();
    in_namespace(from.namespace.clone(), move |_| {
        let sender = UdpSocket::bind("0.0.0.0:0").map_err(NetError::Socket)?;
        sender.set_broadcast(true).map_err(NetError::Socket)?;
        sender
            .send_to(b"x", (address, port))
            .map_err(NetError::Socket)?;
        Ok(socket.recv(&mut [0]).is_ok())
    })
    .await
    .unwrap()
}

#[tokio::test]
async fn host_ports_are_reachable_from_every_side() {
    let host = Host::new().await;
    let network = host.network("pnet-i", "10.9.0.0/24").await;
    let (a, b) = (host.pod("a").await, host.pod("b").await);
    network.add("uid-a", &a.path, "eth0").await.unwrap();
    let in_b = network.add("uid-b", &b.path, "eth0").await.unwrap();
    let target = format!("{}:8080", address(&in_b)).parse().unwrap();
    let forward = |front, port| Forward {
        front,
        port,
        protocol: Protocol::Tcp,
        targets: vec![target],
        choice: Choice::ByClient,
    };
    let one = Ipv4Addr::new(192, 0, 2, 2);
    let forwards = vec![
        forward(Front::HostAddress(one), 81),
        forward(Front::Host, 80),
    ];
    network.forward(forwards).await.unwrap();
    let loopback = Ipv4Addr::LOCALHOST;
    let target = listen(&b.namespace, 8080).await;
    for (from, to, expected) in [
        (&host.namespace, (one, 80), Some("192.0.2.2")),
        (&host.namespace, (one, 81), Some("192.0.2.2")),
        (&host.namespace, (loopback, 80), Some("10.9.0.1")),
        (&host.namespace, (loopback, 81), None),
        (&a.namespace, (one, 80), Some("10.9.0.1")),
        (&b.namespace, (one, 81), Some("10.9.0.1")),
        (&a.namespace, (network.gateway(), 81), None),
    ] {
        let source = connect_through(from, to, &target).await;
        assert_eq!(source.as_deref(), expected, "{to:?}");
    }
}

#[tokio::test]
async fn reused_address_is_reached_at_once() {
    let host = Host::new().await;
    // One pod address: every pod gets the address of the one before.
    let network = host.network("pnet-j", "10.9.0.0/30").await;
    for uid in ["first", "second"] {
        let pod = host.pod(uid).await;
        let added = network.add(uid, &pod.path, "eth0").await.unwrap();
        let to = (address(&added).parse().unwrap(), 80);
        let target = listen(&pod.namespace, 80).await;
        let source = connect_through(&host.namespace, to, &target).await;
        assert_eq!(source.as_deref(), Some("10.9.0.1"), "{uid}");
        network.delete(uid).await.unwrap();
    }
}

/// A program in that namespace. It stays for the whole test, because its port is not free at once after its end: a
/// process that another test starts at that moment has its socket until it becomes another program.
async fn listen(at: &NetworkNamespace, port: u16) -> Arc<TcpListener> {
    let any = SocketAddr::new([0, 0, 0, 0].into(), port);
    let listener = in_namespace(at.clone(), move |_| {
        TcpListener::bind(any).map_err(NetError::Socket)
    });
    Arc::new(listener.await.unwrap())
}

/// Connects to a service whose target is that listener; returns the source address that the target
/// observed, or `None` if the connection failed.
async fn connect_through(
    from: &NetworkNamespace,
    to: (Ipv4Addr, u16),
    listener: &Arc<TcpListener>,
) -> Option<String> {
    let listener = Arc::clone(listener);
    in_namespace(from.clone(), move |_| {
        // The kernel repeats a lost request for the hardware address after a second.
        let near = TcpStream::connect_timeout(&to.into(), Duration::from_secs(5));
        if near.is_err() {
            return Ok(None);
        }
        let (_, source) = listener.accept().map_err(NetError::Socket)?;
        Ok(Some(source.ip().to_string()))
    })
    .await
    .unwrap()
}

#[tokio::test]
async fn add_is_idempotent_across_restarts() {
    let host = Host::new().await;
    let network = host.network("pnet-b", "10.9.0.0/24").await;
    let pod = host.pod("a").await;
    let first = network.add("uid-a", &pod.path, "eth0").await.unwrap();
    assert_eq!(
        network.add("uid-a", &pod.path, "eth0").await.unwrap(),
        first
    );
    drop(network);
    let network = host.network("pnet-b", "10.9.0.0/24").await;
    assert_eq!(
        network.add("uid-a", &pod.path, "eth0").await.unwrap(),
        first
    );
    let json = serde_json::to_value(&first).unwrap();
    assert_eq!(json["cniVersion"], "1.0.0");
    assert_eq!(json["ips"][0]["address"], "10.9.0.2/24");
    assert_eq!(json["ips"][0]["interface"], 2);
    assert_eq!(json["ips"][0]["gateway"], "10.9.0.1");
    assert_eq!(
        json["routes"][0],
        serde_json::json!({ "dst": "0.0.0.0/0", "gw": "10.9.0.1" })
    );
    assert_eq!(json["interfaces"][0]["name"], "pnet-b");
    assert_eq!(json["interfaces"][2]["name"], "eth0");
    assert_eq!(json["interfaces"][2]["sandbox"], pod.path.to_str().unwrap());

    // A new namespace of the pod gets the same address and MAC.
    drop(pod);
    let pod = host.pod("a").await;
    let moved = network.add("uid-a", &pod.path, "eth0").await.unwrap();
    assert_eq!(
        (&moved.ips, &moved.interfaces[2]),
        (&first.ips, &first.interfaces[2])
    );
}

#[tokio::test]
async fn leftovers_of_pods_are_reclaimed_and_teardown_leaves_nothing() {
    let host = Host::new().await;
    let network = host.network("pnet-c", "10.9.0.0/29").await;
    let before = host.links().await.len();
    let pods = [
        host.pod("a").await,
        host.pod("b").await,
        host.pod("c").await,
    ];
    for (uid, pod) in ["a", "b", "c"].into_iter().zip(&pods) {
        network.add(uid, &pod.path, "eth0").await.unwrap();
    }
    let [a, b, _c] = pods;
    // One namespace was deleted, with its end of the pair.
    drop(a);
    network.delete("a").await.unwrap();
    network.delete("a").await.unwrap();
    network
        .retain(&HashSet::from(["c".to_owned()]))
        .await
        .unwrap();
    assert_eq!(host.links().await.len(), before + 1);
    // A pair without a lease.
    std::fs::remove_file(host.folder.path().join("pnet-c/c.json")).unwrap();
    drop(network);
    let network = host.network("pnet-c", "10.9.0.0/29").await;
    network.retain(&HashSet::new()).await.unwrap();
    assert_eq!(host.links().await.len(), before);
    network.add("b", &b.path, "eth0").await.unwrap();
    network.teardown().await.unwrap();
    network.teardown().await.unwrap();
    assert_eq!(host.links().await, ["lo", "uplink"]);
    assert!(!host.folder.path().join("pnet-c").exists());
    let chains = in_namespace(host.namespace.clone(), |net| net.base_chains(Family::Ip)).await;
    assert!(chains.unwrap().is_empty());
}

#[tokio::test]
async fn interrupted_set_up_is_completed() {
    let host = Host::new().await;
    // A new bridge without its alias; a pair that is down and not a bridge port yet.
    in_namespace(host.namespace.clone(), |_| {
        ip(&["link", "add", "pnet-g", "type", "bridge"]);
        Ok(())
    })
    .await
    .unwrap();
    let network = host.network("pnet-g", "10.9.0.0/24").await;
    let pod = host.pod("a").await;
    let first = network.add("a", &pod.path, "eth0").await.unwrap();
    let veth = first.interfaces[1].name.clone();
    in_namespace(host.namespace.clone(), move |_| {
        ip(&["link", "set", &veth, "nomaster", "down"]);
        ip(&["link", "set", "pnet-g", "down"]);
        Ok(())
    })
    .await
    .unwrap();
    in_namespace(pod.namespace.clone(), |_| {
        ip(&["address", "flush", "dev", "eth0"]);
        ip(&["link", "set", "eth0", "down"]);
        Ok(())
    })
    .await
    .unwrap();
    network.ensure().await.unwrap();
    assert_eq!(network.add("a", &pod.path, "eth0").await.unwrap(), first);
    connect(&pod.namespace, "10.9.0.1:80", &host.namespace).await;
}

/// Runs `ip` in the namespace of the calling thread.
fn ip(arguments: &[&str]) {
    let done = std::process::Command::new("ip")
        .args(arguments)
        .output()
        .unwrap();
    assert!(
        done.status.success(),
        "{arguments:?}: {}",
        String::from_utf8_lossy(&done.stderr)
    );
}

#[tokio::test]
async fn two_networks_coexist() {
    let host = Host::new().await;
    let one = host.network("pnet-d1", "10.9.1.0/24").await;
    let two = host.network("pnet-d2", "10.9.2.0/24").await;
    let (a, b) = (host.pod("a").await, host.pod("b").await);
    one.add("a", &a.path, "eth0").await.unwrap();
    let in_b = two.add("b", &b.path, "eth0").await.unwrap();
    connect(
        &a.namespace,
        &format!("{}:80", address(&in_b)),
        &b.namespace,
    )
    .await;
    one.teardown().await.unwrap();
    assert_eq!(two.add("b", &b.path, "eth0").await.unwrap(), in_b);
}

#[tokio::test]
async fn invalid_settings_get_a_clear_error() {
    let host = Host::new().await;
    let overlap = host.settings("pnet-e", "192.0.2.0/25");
    let network = PodNetwork::open_in(host.namespace.clone(), overlap)
        .await
        .unwrap();
    let error = network.ensure().await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "pod range 192.0.2.0/25 overlaps 192.0.2.0/24, which this host reaches over uplink: \
         choose another",
    );
    let taken = host.settings("uplink", "10.9.0.0/24");
    let network = PodNetwork::open_in(host.namespace.clone(), taken)
        .await
        .unwrap();
    let error = network.ensure().await.unwrap_err();
    assert_eq!(error.reason(), "ForeignLink", "{error}");
    let network = host.network("pnet-e3", "10.9.0.0/24").await;
    let error = network
        .add("a", Path::new("/nonexistent"), "eth0")
        .await
        .unwrap_err();
    assert_eq!(error.reason(), "NoSuchNamespace", "{error}");
    let pod = host.pod("a").await;
    let error = network.add("../a", &pod.path, "eth0").await.unwrap_err();
    assert_eq!(error.reason(), "BadPodUid");
    let error = network
        .add("a", &pod.path, "an-interface-name")
        .await
        .unwrap_err();
    assert_eq!(error.reason(), "BadLinkName", "{error}");
    let long = Settings {
        bridge: "a-bridge-too-far".to_owned(),
        ..host.settings("x", "10.8.0.0/24")
    };
    let network = PodNetwork::open_in(host.namespace.clone(), long)
        .await
        .unwrap();
    assert_eq!(network.ensure().await.unwrap_err().reason(), "BadLinkName");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_attached_in_sequence_and_concurrently_have_distinct_addresses() {
    let host = Host::new().await;
    let network = host.network("pnet-f", "10.9.0.0/24").await;
    let mut pods = Vec::new();
    for number in 0..20 {
        pods.push(host.pod(&number.to_string()).await);
    }
    let mut addresses = HashSet::new();
    for (number, pod) in pods.iter().take(10).enumerate() {
        let added = network
            .add(&format!("one-{number}"), &pod.path, "eth0")
            .await
            .unwrap();
        addresses.insert(address(&added));
    }
    let mut tasks = tokio::task::JoinSet::new();
    for (number, pod) in pods.iter().skip(10).enumerate() {
        let (network, path) = (network.clone(), pod.path.clone());
        tasks.spawn(async move {
            address(
                &network
                    .add(&format!("at-once-{number}"), &path, "eth0")
                    .await
                    .unwrap(),
            )
        });
    }
    addresses.extend(tasks.join_all().await);
    assert_eq!(addresses.len(), 20);
    network.teardown().await.unwrap();
}
