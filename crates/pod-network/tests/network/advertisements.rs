//! Routers that pods announce (CVE-2020-10749).

use host_net::in_namespace;
use net_plan::Sysctl;
use rustix::net::{
    AddressFamily, SendFlags, SocketAddrV6, SocketType, ipproto, sendto, socket,
    sockopt::{set_ipv6_multicast_hops, set_ipv6_multicast_if},
};

use super::*;

/// A router advertisement with a default route and the prefix `2001:db8::/64` for addresses.
fn advertisement() -> Vec<u8> {
    let mut message = vec![134, 0, 0, 0, 64, 0];
    message.extend(1800_u16.to_be_bytes());
    message.extend([0; 8]);
    // The option with the prefix, which is on the link and may be used for addresses.
    message.extend([3, 4, 64, 0xc0]);
    message.extend([0xff; 8]);
    message.extend([0; 4]);
    message.extend([0x20, 0x01, 0x0d, 0xb8]);
    message.extend([0; 12]);
    message
}

/// Sends it to everybody on the link of the pod's interface.
async fn advertise(pod: &Pod) {
    in_namespace(pod.namespace.clone(), |net| {
        let index = net.existing_link("eth0")?.index;
        let failed = |errno: rustix::io::Errno| NetError::Socket(errno.into());
        let family = AddressFamily::INET6;
        let socket = socket(family, SocketType::RAW, Some(ipproto::ICMPV6)).map_err(failed)?;
        // Receivers ignore an advertisement that a router has forwarded.
        set_ipv6_multicast_hops(&socket, 255).map_err(failed)?;
        set_ipv6_multicast_if(&socket, index).map_err(failed)?;
        let everybody = SocketAddrV6::new("ff02::1".parse().unwrap(), 0, 0, index);
        let deadline = std::time::Instant::now() + Duration::from_mins(1);
        loop {
            // Until the interface has its own address.
            match sendto(&socket, &advertisement(), SendFlags::empty(), &everybody) {
                Ok(_) => return Ok(()),
                Err(errno) if std::time::Instant::now() > deadline => return Err(failed(errno)),
                Err(_) => std::thread::yield_now(),
            }
        }
    })
    .await
    .unwrap();
}

/// What `ip -6` prints of addresses and routes from the advertisement.
async fn learned(namespace: &NetworkNamespace) -> String {
    in_namespace(namespace.clone(), |_| {
        let of = |what: &[&str]| {
            let done = std::process::Command::new("ip").args(what).output();
            String::from_utf8(done.unwrap().stdout).unwrap()
        };
        let all = of(&["-6", "address"]) + &of(&["-6", "route"]);
        let lines = all.lines();
        let learned = lines.filter(|line| line.contains("2001:db8") || line.contains("default"));
        Ok(learned.collect::<Vec<_>>().join("\n"))
    })
    .await
    .unwrap()
}

/// Writes the kernel's defaults for the interfaces of a namespace, some of which hosts set otherwise.
async fn accept_advertisements(namespace: &NetworkNamespace) {
    in_namespace(namespace.clone(), |net| {
        for (name, value) in [
            ("accept_ra", "1"),
            ("disable_ipv6", "0"),
            ("accept_dad", "0"),
        ] {
            for which in ["all", "default"] {
                net.ensure_sysctl(&Sysctl {
                    name: format!("net/ipv6/conf/{which}/{name}"),
                    value: value.to_owned(),
                })?;
            }
        }
        Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn router_that_a_pod_announces_is_ignored_by_host_and_pods() {
    let host = Host::new().await;
    accept_advertisements(&host.namespace).await;
    let network = host.network("pnet-k", "10.9.0.0/24").await;
    let (a, b) = (host.pod("a").await, host.pod("b").await);
    accept_advertisements(&a.namespace).await;
    accept_advertisements(&b.namespace).await;
    network.add("uid-a", &a.path, "eth0").await.unwrap();
    let in_b = network.add("uid-b", &b.path, "eth0").await.unwrap();
    advertise(&a).await;
    // Later packets from the same pod arrive after it.
    connect(&a.namespace, "10.9.0.1:84", &host.namespace).await;
    connect(
        &a.namespace,
        &format!("{}:84", address(&in_b)),
        &b.namespace,
    )
    .await;
    assert_eq!(learned(&host.namespace).await, "");
    assert_eq!(learned(&b.namespace).await, "");
}

#[tokio::test]
async fn interfaces_of_the_host_have_no_ipv6() {
    let host = Host::new().await;
    accept_advertisements(&host.namespace).await;
    let network = host.network("pnet-l", "10.9.0.0/24").await;
    let pod = host.pod("a").await;
    let added = network.add("uid-a", &pod.path, "eth0").await.unwrap();
    for interface in &added.interfaces[..2] {
        let name = interface.name.clone();
        let values = in_namespace(host.namespace.clone(), move |_| {
            Ok(["accept_ra", "disable_ipv6"].map(|setting| {
                let file = format!("/proc/sys/net/ipv6/conf/{name}/{setting}");
                std::fs::read_to_string(file).unwrap().trim().to_owned()
            }))
        });
        assert_eq!(values.await.unwrap(), ["0", "1"], "{}", interface.name);
    }
}
