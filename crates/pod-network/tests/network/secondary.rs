//! Secondary networks: bridges that are made or found, addresses, and what is left behind.

use host_net::{LinkKind, Net, NetError, in_namespace};
use net_plan::{Bridge, MacAddress};
use pod_network::{Attachment, CniResult, Definition, PodNetwork, PodNetworkError};
use reasons::Reason;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{Host, Pod, address, connect, connect_through, listen};

fn attachment(uid: &str, config: &Value) -> Attachment {
    Attachment {
        pod_uid: uid.to_owned(),
        owner: format!("ns/VM/{uid}"),
        interface: "pod1".to_owned(),
        mac: None,
        definition: Definition::parse("ns/lan", &config.to_string()).unwrap(),
    }
}

async fn attach(
    network: &PodNetwork,
    pod: &Pod,
    uid: &str,
    config: &Value,
) -> Result<CniResult, PodNetworkError> {
    network.attach(&pod.path, attachment(uid, config)).await
}

fn lan() -> Value {
    json!({"type": "bridge", "bridge": "lan0", "mtu": 1400,
        "ipam": {"type": "host-local", "subnet": "10.88.0.0/24"}})
}

#[tokio::test]
async fn pods_on_a_network_reach_each_other_and_leave_nothing_behind() {
    let host = Host::new().await;
    let network = host.network("pnet-s", "10.9.0.0/24").await;
    let (a, b) = (host.pod("a").await, host.pod("b").await);
    let before = host.links().await;
    let in_a = attach(&network, &a, "uid-a", &lan()).await.unwrap();
    let again = attach(&network, &a, "uid-a", &lan()).await.unwrap();
    assert_eq!(in_a, again, "the same again");
    let in_b = attach(&network, &b, "uid-b", &lan()).await.unwrap();
    let (ip_a, ip_b) = (address(&in_a), address(&in_b));
    assert_eq!((&*ip_a, &*ip_b), ("10.88.0.2", "10.88.0.3"));
    let source = connect(&a.namespace, &format!("{ip_b}:80"), &b.namespace).await;
    assert_eq!(source, ip_a);
    let observed = in_namespace(a.namespace.clone(), |net| net.existing_link("pod1"));
    let observed = observed.await.unwrap();
    assert_eq!(observed.mtu, 1400);
    assert_eq!(observed.mac.unwrap().to_string(), in_a.interfaces[0].mac);

    network.delete("uid-a").await.unwrap();
    let links = host.links().await;
    assert_eq!(
        links.len(),
        before.len() + 2,
        "bridge and the other pod: {links:?}"
    );
    network.retain(&["uid-b".to_owned()].into()).await.unwrap();
    assert_eq!(
        host.links().await,
        links,
        "a pod that runs keeps its interface"
    );
    network.retain(&[].into()).await.unwrap();
    assert_eq!(host.links().await.len(), before.len() + 1);
    network.teardown().await.unwrap();
    let links = host.links().await;
    assert!(!links.contains(&"lan0".to_owned()), "{links:?}");
}

#[tokio::test]
async fn interface_is_taken_from_a_running_pod_and_made_again() {
    let host = Host::new().await;
    let network = host.network("pnet-d", "10.9.0.0/24").await;
    let (a, b) = (host.pod("a").await, host.pod("b").await);
    let has_interface = async |pod: &Pod| {
        let link = in_namespace(pod.namespace.clone(), |net| net.link("pod1"));
        link.await.unwrap().is_some()
    };
    let in_a = attach(&network, &a, "uid-a", &lan()).await.unwrap();
    attach(&network, &b, "uid-b", &lan()).await.unwrap();
    let links = host.links().await;
    for _ in 0..2 {
        network.detach("uid-a", &a.path, "pod1").await.unwrap();
        assert!(!has_interface(&a).await);
        assert!(has_interface(&b).await, "that of another pod stays");
        assert_eq!(host.links().await.len(), links.len() - 1);
    }
    let again = attach(&network, &a, "uid-a", &lan()).await.unwrap();
    assert_eq!(again, in_a, "its addresses stay with their owner");
    network.detach("uid-a", &a.path, "pod2").await.unwrap();
    assert!(has_interface(&a).await);
    network.teardown().await.unwrap();
}

#[tokio::test]
async fn bridge_that_another_network_uses_stays() {
    let host = Host::new().await;
    let (first, second) = (
        host.network("pnet-y", "10.9.0.0/24").await,
        host.network("pnet-z", "10.10.0.0/24").await,
    );
    let (a, b) = (host.pod("a").await, host.pod("b").await);
    let config = json!({"type": "bridge", "bridge": "lan0"});
    attach(&first, &a, "uid-a", &config).await.unwrap();
    attach(&second, &b, "uid-b", &config).await.unwrap();
    first.teardown().await.unwrap();
    let ports = in_namespace(host.namespace.clone(), |net| {
        let bridge = net.existing_link("lan0")?;
        net.ports(&bridge)
    });
    assert_eq!(ports.await.unwrap().len(), 1, "that of the other network");
    second.teardown().await.unwrap();
}

#[tokio::test]
async fn bridge_of_another_program_is_used_and_stays() {
    let host = Host::new().await;
    let network = host.network("pnet-t", "10.9.0.0/24").await;
    let pod = host.pod("a").await;
    let config = json!({"type": "bridge", "bridge": "uplink", "mtu": 1400, "ipam": {"type": "static",
        "addresses": [{"address": "192.0.2.9/24"}],
        "routes": [{"dst": "203.0.113.0/24", "gw": "192.0.2.2"}]}});
    let attached = attach(&network, &pod, "uid-a", &config).await.unwrap();
    assert_eq!(attached.routes[0].dst, "203.0.113.0/24");
    let source = connect(&pod.namespace, "192.0.2.2:80", &host.namespace).await;
    assert_eq!(source, "192.0.2.9");
    let port = in_namespace(host.namespace.clone(), |net| {
        let link = net.existing_link("uplink")?;
        Ok(net.ports(&link)?.remove(0))
    });
    let port = port.await.unwrap();
    // A bridge takes the lowest address and MTU of its ports, unless its own were set.
    assert_eq!(port.mac.unwrap().0[0], 0xfe);
    assert_eq!(port.mtu, 1450, "not the 1400 of the pod's end");
    network.teardown().await.unwrap();
    let uplink = in_namespace(host.namespace.clone(), |net| {
        let link = net.existing_link("uplink")?;
        Ok((net.addresses(&link)?.len(), net.ports(&link)?.len(), link))
    });
    let (addresses, ports, link) = uplink.await.unwrap();
    assert_eq!((addresses, ports, link.mtu), (1, 0, 1450));
    assert!(link.alias.is_empty());
}

#[tokio::test]
async fn macvlan_is_made_on_a_link_of_the_host() {
    let host = Host::new().await;
    let network = host.network("pnet-u", "10.9.0.0/24").await;
    let pod = host.pod("a").await;
    let on = |master: &str| json!({"type": "macvlan", "master": master, "mode": "private"});
    let missing = attach(&network, &pod, "uid-a", &on("none0"))
        .await
        .unwrap_err();
    assert_eq!(missing.reason(), Reason::NoSuchLink);
    assert!(missing.to_string().contains("none0"), "{missing}");
    let without = json!({"type": "macvlan"});
    let without = attach(&network, &pod, "uid-a", &without).await.unwrap_err();
    assert!(
        matches!(without, PodNetworkError::NoDefaultLink),
        "{without}"
    );
    attach(&network, &pod, "uid-a", &on("uplink"))
        .await
        .unwrap();
    let made = in_namespace(pod.namespace.clone(), |net| net.existing_link("pod1"));
    let made = made.await.unwrap();
    assert_eq!((made.kind, made.up), (LinkKind::Macvlan, true));
    network.teardown().await.unwrap();
}

/// VLANs need a kernel whose bridges separate them; another kernel is named as the cause.
#[tokio::test]
async fn vlans_of_a_bridge_are_separate_or_the_kernel_is_named() {
    let host = Host::new().await;
    let network = host.network("pnet-v", "10.9.0.0/24").await;
    let in_vlan = |vlan: u16, address: &str| {
        json!({"type": "bridge", "bridge": "lan0", "vlan": vlan, "preserveDefaultVlan": false,
            "ipam": {"type": "static", "addresses": [{"address": address}]}})
    };
    let (a, b, c) = (
        host.pod("a").await,
        host.pod("b").await,
        host.pod("c").await,
    );
    match attach(&network, &a, "uid-a", &in_vlan(120, "10.88.0.2/24")).await {
        Ok(_) => {}
        Err(PodNetworkError::Net(NetError::NotSupported { feature, .. })) => {
            assert_eq!(feature, "bridge VLAN filtering");
            network.teardown().await.unwrap();
            return;
        }
        Err(error) => panic!("{error}"),
    }
    for (pod, uid, config) in [
        (&a, "uid-a", in_vlan(120, "10.88.0.2/24")),
        (&b, "uid-b", in_vlan(120, "10.88.0.3/24")),
        (&c, "uid-c", in_vlan(130, "10.88.0.4/24")),
    ] {
        attach(&network, pod, uid, &config).await.unwrap();
    }
    let source = connect(&a.namespace, "10.88.0.3:80", &b.namespace).await;
    assert_eq!(source, "10.88.0.2");
    let to = std::net::Ipv4Addr::new(10, 88, 0, 3);
    let listener = listen(&b.namespace, 81).await;
    let source = connect_through(&c.namespace, (to, 81), &listener).await;
    assert_eq!(source, None, "another VLAN");
    network.teardown().await.unwrap();
}

#[tokio::test]
async fn link_that_is_no_bridge_is_refused() {
    let host = Host::new().await;
    let network = host.network("pnet-w", "10.9.0.0/24").await;
    let pod = host.pod("a").await;
    let config = json!({"type": "bridge", "bridge": "lo"});
    let error = attach(&network, &pod, "uid-a", &config).await.unwrap_err();
    assert_eq!(error.reason(), Reason::ForeignLink);
}

/// A process that ended between the creation of a bridge and its alias.
#[tokio::test]
async fn bridge_whose_creation_was_cut_off_is_completed_or_removed() {
    let host = Host::new().await;
    let network = host.network("pnet-o", "10.9.0.0/24").await;
    let begin = async || {
        let digest: [u8; 32] = Sha256::digest("pnet-o bridge lan0").into();
        let [one, two, three, four, five, ..] = digest;
        let bridge = Bridge {
            name: "lan0".to_owned(),
            mac: MacAddress([0x0a, one, two, three, four, five]),
            mtu: 1500,
            addresses: vec![],
        };
        let begun = in_namespace(host.namespace.clone(), move |net| {
            net.ensure_bridge(&bridge)
        });
        assert!(begun.await.unwrap().alias.is_empty());
    };
    begin().await;
    let pod = host.pod("a").await;
    let config = json!({"type": "bridge", "bridge": "lan0", "mtu": 1400});
    attach(&network, &pod, "uid-a", &config).await.unwrap();
    let whole = in_namespace(host.namespace.clone(), |net| net.existing_link("lan0"));
    let whole = whole.await.unwrap();
    assert_eq!(
        (&*whole.alias, whole.mtu),
        ("pnet-o secondary network", 1400)
    );
    network.teardown().await.unwrap();
    begin().await;
    network.teardown().await.unwrap();
    let links = host.links().await;
    assert!(!links.contains(&"lan0".to_owned()), "{links:?}");
}

/// A guest could otherwise become the host's router, or send packets into it with any source address.
#[tokio::test]
async fn host_takes_no_part_in_a_new_bridge_and_follows_no_router_on_the_pod_network() {
    let host = Host::new().await;
    let network = host.network("pnet-p", "10.9.0.0/24").await;
    let pod = host.pod("a").await;
    let config = json!({"type": "bridge", "bridge": "lan0"});
    attach(&network, &pod, "uid-a", &config).await.unwrap();
    let settings = in_namespace(host.namespace.clone(), |_| {
        let names = [
            "ipv4/conf/lan0/rp_filter",
            "ipv6/conf/lan0/disable_ipv6",
            "ipv6/conf/pnet-p/accept_ra",
        ];
        let read = |name| std::fs::read_to_string(format!("/proc/sys/net/{name}")).ok();
        Ok(names.map(|name| read(name).map(|value| value.trim().to_owned())))
    });
    let [filter, disabled, routers] = settings.await.unwrap();
    assert_eq!(filter.as_deref(), Some("1"));
    // A kernel without IPv6 lacks the others.
    assert!(disabled.is_none_or(|value| value == "1"));
    assert!(routers.is_none_or(|value| value == "0"));
    network.teardown().await.unwrap();
}

#[tokio::test]
async fn links_that_must_not_change_are_refused() {
    let host = Host::new().await;
    let network = host.network("pnet-q", "10.9.0.0/24").await;
    let pod = host.pod("a").await;
    let refused = async |config: Value, named: &str| {
        let error = attach(&network, &pod, "uid-a", &config).await.unwrap_err();
        assert!(error.to_string().contains(named), "{error}");
    };
    let own = "pnet-q is the bridge of the pod network";
    refused(json!({"type": "bridge", "bridge": "pnet-q"}), own).await;
    refused(json!({"type": "macvlan", "master": "pnet-q"}), own).await;
    refused(json!({"type": "bridge", "bridge": "all"}), "\"all\"").await;
    refused(json!({"type": "bridge", "bridge": "lan%d"}), "\"lan%d\"").await;
    let vlan = json!({"type": "bridge", "bridge": "uplink", "vlan": 120});
    refused(vlan, "ip link set uplink type bridge vlan_filtering 1").await;
    let in_pod = Attachment {
        interface: "net%d".to_owned(),
        ..attachment("uid-a", &json!({"type": "macvlan", "master": "uplink"}))
    };
    let error = network.attach(&pod.path, in_pod).await.unwrap_err();
    assert_eq!(error.reason(), Reason::BadLinkName);
    let links = in_namespace(pod.namespace.clone(), Net::links);
    assert!(links.await.unwrap().iter().all(|link| link.name == "lo"));
    network.teardown().await.unwrap();
}

#[tokio::test]
async fn hardware_address_of_another_pod_is_refused_until_that_pod_has_ended() {
    let host = Host::new().await;
    let network = host.network("pnet-x", "10.9.0.0/24").await;
    let (a, b) = (host.pod("a").await, host.pod("b").await);
    let config = json!({"type": "bridge", "bridge": "lan0"});
    let with_mac = |uid: &str| Attachment {
        mac: Some("02:00:00:00:00:0b".parse().unwrap()),
        ..attachment(uid, &config)
    };
    network.attach(&a.path, with_mac("uid-a")).await.unwrap();
    network.attach(&a.path, with_mac("uid-a")).await.unwrap();
    let error = network
        .attach(&b.path, with_mac("uid-b"))
        .await
        .unwrap_err();
    assert!(error.to_string().contains("02:00:00:00:00:0b"), "{error}");
    assert!(error.is_transient());
    // A guest that moves has two pods for a while.
    let target = Attachment {
        owner: with_mac("uid-a").owner,
        ..with_mac("uid-c")
    };
    let c = host.pod("c").await;
    network.attach(&c.path, target).await.unwrap();
    network.delete("uid-c").await.unwrap();
    network.delete("uid-a").await.unwrap();
    network.attach(&b.path, with_mac("uid-b")).await.unwrap();
    network.teardown().await.unwrap();
}
