//! A pod that may send any frame takes no other pod's address, and does not become its router.

use std::time::Instant;

use rustix::net::{AddressFamily, SendFlags, SocketType, ipproto, sendto, socket, sockopt};

use super::*;

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
async fn pod_sends_from_its_own_address_alone() {
    let host = Host::new().await;
    let network = host.network("pnet-l", "10.9.0.0/24").await;
    let (a, b, c) = (
        host.pod("a").await,
        host.pod("b").await,
        host.pod("c").await,
    );
    for (uid, pod) in [("a", &a), ("b", &b), ("c", &c)] {
        network.add(uid, &pod.path, "eth0").await.unwrap();
    }
    let to: (Ipv4Addr, u16) = ([10, 9, 0, 3].into(), 8080);
    let listener = listen(&b.namespace, to.1).await;
    let reaches = async |from: &Pod| connect_through(&from.namespace, to, &listener).await;
    assert_eq!(reaches(&c).await.as_deref(), Some("10.9.0.4"));

    // Another's address, by packets and by ARP.
    ip_in(&c, "address delete 10.9.0.4/24 dev eth0").await;
    ip_in(&c, "address add 10.9.0.2/24 dev eth0").await;
    ip_in(&c, "neighbour flush dev eth0").await;
    assert_eq!(reaches(&c).await, None);
    ip_in(
        &c,
        "neighbour replace 10.9.0.3 dev eth0 lladdr 0a:58:0a:09:00:03 nud permanent",
    )
    .await;
    assert_eq!(reaches(&c).await, None);
    assert_eq!(reaches(&a).await.as_deref(), Some("10.9.0.2"));

    // Its own again, from another's MAC address, and from one that no guest of it has.
    ip_in(&c, "address delete 10.9.0.2/24 dev eth0").await;
    ip_in(&c, "address add 10.9.0.4/24 dev eth0").await;
    ip_in(&c, "link set eth0 address 0a:58:0a:09:00:02").await;
    assert_eq!(reaches(&c).await, None);
    assert_eq!(reaches(&a).await.as_deref(), Some("10.9.0.2"));
    ip_in(&c, "link set eth0 address 02:00:00:00:00:09").await;
    ip_in(&b, "neighbour flush dev eth0").await;
    assert_eq!(reaches(&c).await, None);
}

#[tokio::test]
async fn guest_has_its_hardware_address_for_itself() {
    let host = Host::new().await;
    let network = host.network("pnet-g", "10.9.0.0/24").await;
    let (guest, peer, other) = (
        host.pod("guest").await,
        host.pod("peer").await,
        host.pod("other").await,
    );
    let mac = MacAddress([2, 0, 0, 0, 0, 9]);
    network
        .choose_mac("guest", mac, Some("ns/vm"))
        .await
        .unwrap();
    for (uid, pod) in [("guest", &guest), ("peer", &peer), ("other", &other)] {
        network.add(uid, &pod.path, "eth0").await.unwrap();
    }
    let listener = listen(&guest.namespace, 8080).await;
    let reaches = async |from: &Pod| {
        let to: (Ipv4Addr, u16) = ([10, 9, 0, 2].into(), 8080);
        connect_through(&from.namespace, to, &listener).await
    };
    // As the guest does, which has an address of its own.
    ip_in(&guest, "link set eth0 address 02:00:00:00:00:09").await;
    assert_eq!(reaches(&peer).await.as_deref(), Some("10.9.0.3"));

    // The bridge would send the guest's packets to the pod that has sent from its address last.
    ip_in(&other, "link set eth0 address 02:00:00:00:00:09").await;
    assert_eq!(reaches(&other).await, None);
    assert_eq!(reaches(&peer).await.as_deref(), Some("10.9.0.3"));
    let taken = network.choose_mac("other", mac, Some("ns/other")).await;
    assert_eq!(taken.unwrap_err().reason(), "NetworkNotJoined");
    // The filters of an earlier process are replaced.
    network.ensure().await.unwrap();
    assert_eq!(reaches(&other).await, None);

    // Once the guest has ended, another one may have it.
    network.delete("guest").await.unwrap();
    network
        .choose_mac("other", mac, Some("ns/other"))
        .await
        .unwrap();
    network.add("other", &other.path, "eth0").await.unwrap();
    ip_in(&other, "link set eth0 address 02:00:00:00:00:09").await;
    let listener = listen(&peer.namespace, 8081).await;
    let to = ([10, 9, 0, 3].into(), 8081);
    let source = connect_through(&other.namespace, to, &listener).await;
    assert_eq!(source.as_deref(), Some("10.9.0.4"));
}

#[tokio::test]
async fn pod_is_no_router_of_others() {
    let host = Host::new().await;
    let network = host.network("pnet-m", "10.9.0.0/24").await;
    let (a, b) = (host.pod("a").await, host.pod("b").await);
    network.add("a", &a.path, "eth0").await.unwrap();
    network.add("b", &b.path, "eth0").await.unwrap();
    assert!(connects_by_link(&a, &b).await);
    announce_router(&a).await;
    // What was sent before has arrived.
    assert!(connects_by_link(&a, &b).await);
    assert!(!has_router(&b).await);

    // Without the filter it would be one; it is set again.
    in_namespace(host.namespace.clone(), |net| {
        net.delete_table(Family::Netdev, "pnet-m_links")
    })
    .await
    .unwrap();
    announce_router(&a).await;
    let end = Instant::now() + Duration::from_secs(10);
    while !has_router(&b).await {
        assert!(Instant::now() < end, "the test announces no router");
        assert!(connects_by_link(&a, &b).await);
    }
    network.guard().await.unwrap();
    ip_in(&b, "-6 route flush default").await;
    announce_router(&a).await;
    assert!(connects_by_link(&a, &b).await);
    assert!(!has_router(&b).await);
    network.teardown().await.unwrap();
    let chains = in_namespace(host.namespace.clone(), |net| {
        net.base_chains(Family::Netdev)
    })
    .await;
    assert!(chains.unwrap().is_empty());
}

/// Sends a router advertisement to all nodes of the pod's link.
async fn announce_router(from: &Pod) {
    let (_, interface) = address_of_link(from).await;
    let all = SocketAddrV6::new(Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1), 0, 0, interface);
    in_namespace(from.namespace.clone(), move |_| {
        let protocol = Some(ipproto::ICMPV6);
        let raw = socket(AddressFamily::INET6, SocketType::RAW, protocol).unwrap();
        sockopt::set_ipv6_multicast_hops(&raw, 255).unwrap();
        // Type, code, check sum, hop limit, flags, lifetime of half an hour, and two times.
        let message = [134, 0, 0, 0, 64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0];
        sendto(&raw, &message, SendFlags::empty(), &all).unwrap();
        Ok(())
    })
    .await
    .unwrap();
}

async fn has_router(pod: &Pod) -> bool {
    in_namespace(pod.namespace.clone(), |_| {
        let routes = std::fs::read_to_string("/proc/thread-self/net/ipv6_route");
        let routes = routes.map_err(NetError::Socket)?;
        let is_default = |line: &&str| {
            let mut words = line.split(' ');
            let (destination, length) = (words.next(), words.next());
            destination == Some(&"0".repeat(32))
                && length == Some("00")
                && words.nth(2) != Some(&"0".repeat(32))
        };
        Ok(routes.lines().any(|line| is_default(&line)))
    })
    .await
    .unwrap()
}
