//! A guest behind a macvlan of its pod.

use host_net::{
    Macvlan, MacvlanMode, Net, NetworkNamespace, Veth, in_namespace, observe_interface, plumb,
};
use net_plan::{GivenInterface, MacAddress, Plumbing, SharedAddress, StandIn};

use super::{MAC, bridge, cidr, connect, host_and_pod, join, new};

const MASTER: &str = "eth0";

/// A namespace with an uplink, in place of a host. It lasts as long as the other one.
async fn node(outside: &NetworkNamespace) -> NetworkNamespace {
    let node = new().await;
    let uplink = in_namespace(outside.clone(), |_| Net::here());
    let mut uplink = uplink.await.unwrap();
    let inside = node.clone();
    in_namespace(node.clone(), move |net| {
        let veth = Veth {
            name: "up0",
            bridge: "br0",
            mac: None,
            mtu: 1400,
            peer: MASTER,
            peer_mac: MacAddress([2, 0, 0, 0, 0, 7]),
            peer_mtu: 1400,
            hairpin: false,
            alias: None,
        };
        uplink.ensure_veth(net, &inside, &veth).map(drop)
    })
    .await
    .unwrap();
    node
}

/// Two runs find the same link.
async fn add(node: &NetworkNamespace, pod: &NetworkNamespace, name: &'static str, mac: MacAddress) {
    let host = in_namespace(node.clone(), |_| Net::here());
    let mut host = host.await.unwrap();
    let inside = pod.clone();
    in_namespace(pod.clone(), move |net| {
        let macvlan = Macvlan {
            name,
            master: MASTER,
            mode: MacvlanMode::Bridge,
            mac,
            mtu: None,
        };
        for _ in 0..2 {
            host.ensure_macvlan(net, &inside, &macvlan)?;
        }
        Ok(())
    })
    .await
    .unwrap();
}

/// A macvlan receives only frames to its own address, which is that of the guest, too.
#[tokio::test]
async fn guest_behind_a_macvlan_has_its_address_and_is_reached() {
    let [outside, _] = host_and_pod().await;
    let node = node(&outside).await;
    let [pod, guest, other] = [new().await, new().await, new().await];
    add(&node, &pod, "pod1", MAC).await;
    let observed = in_namespace(pod.clone(), |net| observe_interface(net, "pod1"));
    let observed = observed.await.unwrap();
    assert!(observed.receives_own_only);
    assert_eq!(observed.mac, MAC);
    let plan = Plumbing {
        bridges: vec![bridge("k6t-1", MacAddress([2, 0, 0, 0, 0, 3]), &[])],
        given: vec![GivenInterface {
            name: "pod1".to_owned(),
            renamed: "1-nic".to_owned(),
            bridge: "k6t-1".to_owned(),
            mac: MAC,
            alias: format!("ferrovirt pod 1 {MAC} - -"),
            stand_in: StandIn {
                mac: MAC,
                mtu: observed.mtu,
                addresses: vec![],
            },
        }],
        ..Plumbing::default()
    };
    let first = plan.clone();
    in_namespace(pod.clone(), move |net| plumb(net, &first).map(drop))
        .await
        .unwrap();
    join(&pod, &guest, "k6t-1", &["10.55.0.2/24"], &[]).await;
    let whole = Plumbing {
        shared_addresses: vec![SharedAddress {
            mac: MAC,
            port: "1-nic".to_owned(),
            tap: "v0".to_owned(),
        }],
        ..plan
    };
    // A second run finds everything done.
    for _ in 0..2 {
        let whole = whole.clone();
        in_namespace(pod.clone(), move |net| plumb(net, &whole).map(drop))
            .await
            .unwrap();
    }
    let again = in_namespace(pod.clone(), |net| observe_interface(net, "pod1")).await;
    assert!(again.unwrap().receives_own_only, "also after the handover");
    // Another macvlan on the same link, as another pod has it.
    add(&node, &other, "pod2", MacAddress([2, 0, 0, 0, 0, 4])).await;
    in_namespace(other.clone(), |net| {
        net.set_up("lo")?;
        let link = net.existing_link("pod2")?;
        net.ensure_address(&link, cidr("10.55.0.3/24"))
    })
    .await
    .unwrap();
    let source = connect(&other, "10.55.0.2:80", &guest, "0.0.0.0:80").await;
    assert_eq!(source.to_string(), "10.55.0.3");
    let source = connect(&guest, "10.55.0.3:81", &other, "0.0.0.0:81").await;
    assert_eq!(source.to_string(), "10.55.0.2");
}
