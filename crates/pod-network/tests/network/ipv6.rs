//! Pods with an address of each family.

use std::net::TcpListener;

use super::*;

impl Host {
    /// A network with addresses of both families.
    async fn dual(&self, name: &str) -> PodNetwork {
        let settings = Settings {
            pod_cidr_ipv6: Some("fd00:9::/64".parse().unwrap()),
            ..self.settings(name, "10.9.0.0/24")
        };
        self.network_with(settings).await
    }

    async fn ipv6_setting(&self, name: &str) -> String {
        let path = format!("/proc/sys/net/ipv6/conf/{name}");
        let value = in_namespace(self.namespace.clone(), move |_| {
            std::fs::read_to_string(path).map_err(NetError::Socket)
        });
        value.await.unwrap().trim().to_owned()
    }
}

/// A program that listens to both families.
async fn listen_to_both(at: &NetworkNamespace) -> Arc<TcpListener> {
    let any = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 8080);
    let listener = in_namespace(at.clone(), move |_| {
        TcpListener::bind(any).map_err(NetError::Socket)
    });
    Arc::new(listener.await.unwrap())
}

/// The source address that the listener observes, or `None` if there is no connection.
async fn reach(from: &NetworkNamespace, to: &str, listener: &Arc<TcpListener>) -> Option<String> {
    let (to, listener): (Ipv6Addr, _) = (to.parse().unwrap(), Arc::clone(listener));
    in_namespace(from.clone(), move |_| {
        let to = (to, 8080).into();
        if TcpStream::connect_timeout(&to, Duration::from_secs(5)).is_err() {
            return Ok(None);
        }
        let (_, source) = listener.accept().map_err(NetError::Socket)?;
        Ok(Some(source.ip().to_string()))
    })
    .await
    .unwrap()
}

/// Runs `ip` in the pod's namespace.
async fn ip_in(pod: &Pod, arguments: &'static str) {
    in_namespace(pod.namespace.clone(), move |_| {
        ip(&arguments.split(' ').collect::<Vec<_>>());
        Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn pods_of_both_families_reach_each_other_and_the_outside() {
    let host = Host::new().await;
    in_namespace(host.namespace.clone(), |net| {
        let uplink = net.links()?.into_iter().find(|link| link.name == "uplink");
        net.ensure_address(&uplink.unwrap(), "fd77::2/64".parse().unwrap())
    })
    .await
    .unwrap();
    assert_eq!(host.ipv6_setting("uplink/accept_ra").await, "1");
    let network = host.dual("pnet-6").await;
    // The host still follows its routers, and none on the network of the pods.
    assert_eq!(host.ipv6_setting("all/forwarding").await, "1");
    assert_eq!(host.ipv6_setting("uplink/accept_ra").await, "2");
    assert_eq!(host.ipv6_setting("pnet-6/accept_ra").await, "0");
    let (a, b) = (host.pod("a").await, host.pod("b").await);
    let in_a = network.add("a", &a.path, "eth0").await.unwrap();
    let again = network.add("a", &a.path, "eth0").await.unwrap();
    assert_eq!(in_a, again);
    network.add("b", &b.path, "eth0").await.unwrap();
    let addresses: Vec<_> = in_a.ips.iter().map(|ip| &*ip.address).collect();
    assert_eq!(addresses, ["10.9.0.2/24", "fd00:9::2/64"]);
    let routes: Vec<_> = in_a.routes.iter().map(|route| &*route.dst).collect();
    assert_eq!(routes, ["0.0.0.0/0", "::/0"]);

    let in_b = listen_to_both(&b.namespace).await;
    let found = reach(&a.namespace, "fd00:9::3", &in_b).await;
    assert_eq!(found.as_deref(), Some("fd00:9::2"));
    let found = reach(&host.namespace, "fd00:9::3", &in_b).await;
    assert_eq!(found.as_deref(), Some("fd00:9::1"));
    let on_host = listen_to_both(&host.namespace).await;
    let found = reach(&a.namespace, "fd00:9::1", &on_host).await;
    assert_eq!(found.as_deref(), Some("fd00:9::2"));

    // Another host on the uplink sees the address of this one.
    let other = host.other_on_uplink().await;
    let outside = listen_to_both(&other).await;
    let found = reach(&a.namespace, "fd77::3", &outside).await;
    assert_eq!(found.as_deref(), Some("fd77::2"));

    // With a policy of any pod, there is no IPv6 between pods nor to the outside.
    let closed = Restriction {
        pod: [10, 9, 0, 99].into(),
        ingress: Connections::Free,
        egress: Connections::Free,
    };
    network.restrict(vec![closed]).await.unwrap();
    assert_eq!(reach(&a.namespace, "fd00:9::3", &in_b).await, None);
    assert_eq!(reach(&a.namespace, "fd77::3", &outside).await, None);
    network.restrict(Vec::new()).await.unwrap();
    assert!(reach(&a.namespace, "fd77::3", &outside).await.is_some());

    // Without the range nothing of it is left.
    drop(network);
    let network = host.network("pnet-6", "10.9.0.0/24").await;
    let left = network.host_addresses().await.unwrap();
    assert!(left.contains(&"fd77::2".parse().unwrap()));
    assert!(!left.contains(&"fd00:9::1".parse().unwrap()), "{left:?}");
    let chains = in_namespace(host.namespace.clone(), |net| net.base_chains(Family::Ip6));
    assert!(chains.await.unwrap().is_empty());
}

#[tokio::test]
async fn pod_sends_from_its_own_ipv6_addresses_alone() {
    let host = Host::new().await;
    let network = host.dual("pnet-7").await;
    let (a, b, c) = (
        host.pod("a").await,
        host.pod("b").await,
        host.pod("c").await,
    );
    for (uid, pod) in [("a", &a), ("b", &b), ("c", &c)] {
        network.add(uid, &pod.path, "eth0").await.unwrap();
    }
    let in_b = listen_to_both(&b.namespace).await;
    assert!(reach(&c.namespace, "fd00:9::3", &in_b).await.is_some());

    // Addresses of another pod, and unused ones, in both directions.
    let in_c = listen_to_both(&c.namespace).await;
    for (address, change) in [
        ("fd00:9::77", "address add fd00:9::77/64 dev eth0 nodad"),
        ("2001:db8::1", "address add 2001:db8::1/64 dev eth0 nodad"),
        ("fd00:9::2", "address add fd00:9::2/64 dev eth0 nodad"),
    ] {
        ip_in(&c, "address flush dev eth0 scope global").await;
        ip_in(&c, change).await;
        ip_in(&c, "route replace fd00:9::/64 dev eth0").await;
        assert_eq!(
            reach(&c.namespace, "fd00:9::3", &in_b).await,
            None,
            "{address}"
        );
    }
    assert!(reach(&a.namespace, "fd00:9::3", &in_b).await.is_some());
    ip_in(&c, "address add fd00:9::77/64 dev eth0 nodad").await;
    assert_eq!(reach(&a.namespace, "fd00:9::77", &in_c).await, None);

    // Its own again.
    ip_in(&c, "address flush dev eth0 scope global").await;
    ip_in(&c, "address add fd00:9::4/64 dev eth0 nodad").await;
    let found = reach(&c.namespace, "fd00:9::3", &in_b).await;
    assert_eq!(found.as_deref(), Some("fd00:9::4"));
}

#[tokio::test]
async fn pod_takes_no_link_local_address_of_the_host_or_of_another_pod() {
    let host = Host::new().await;
    let network = host.dual("pnet-8").await;
    let (a, b, c) = (
        host.pod("a").await,
        host.pod("b").await,
        host.pod("c").await,
    );
    for (uid, pod) in [("a", &a), ("b", &b), ("c", &c)] {
        network.add(uid, &pod.path, "eth0").await.unwrap();
    }
    assert!(connects_by_link(&c, &b).await);
    // The pod keeps its own address for what it sends by itself.
    for change in [
        "address add fe80::1/64 dev eth0 nodad",
        "address add fe80::858:aff:fe09:2/64 dev eth0 nodad",
    ] {
        ip_in(&c, change).await;
    }
    for address in ["fe80::1", "fe80::858:aff:fe09:2"] {
        assert!(!connects_from(&c, &b, address).await, "{address}");
    }
    // One that no pod has by itself, as a guest with an address of its own may have.
    ip_in(&c, "address add fe80::77/64 dev eth0 nodad").await;
    assert!(connects_from(&c, &b, "fe80::77").await);
    // Others still find the router and the pod where they are.
    let on_host = listen_to_both(&host.namespace).await;
    ip_in(&a, "-6 neighbour flush dev eth0").await;
    assert!(reach(&a.namespace, "fd00:9::1", &on_host).await.is_some());
    assert!(connects_by_link(&b, &a).await);
}

/// Whether a pod opens a connection from one of its addresses to the link-local address of another.
async fn connects_from(from: &Pod, to: &Pod, source: &str) -> bool {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket, sockopt};

    let ((address, _), (_, interface)) = (address_of_link(to).await, address_of_link(from).await);
    let any = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0);
    let listener = in_namespace(to.namespace.clone(), move |_| {
        TcpListener::bind(any).map_err(NetError::Socket)
    });
    let listener = listener.await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let to = SocketAddrV6::new(address, port, 0, interface);
    let source = SocketAddrV6::new(source.parse().unwrap(), 0, 0, interface);
    in_namespace(from.namespace.clone(), move |_| {
        let near = socket(AddressFamily::INET6, SocketType::STREAM, None).unwrap();
        let patience = Some(Duration::from_secs(5));
        sockopt::set_socket_timeout(&near, sockopt::Timeout::Send, patience).unwrap();
        bind(&near, &source).unwrap();
        Ok(connect(&near, &to).is_ok())
    })
    .await
    .unwrap()
}
