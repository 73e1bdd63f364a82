//! Real links, rules and packets, in namespaces that each test creates. Requires root, as the crate
//! does.

#![expect(clippy::unwrap_used, reason = "a failed call fails the test")]

mod macvlan;

use std::{
    io::{Read as _, Write as _},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    process::Command,
    time::Duration,
};

use host_net::{
    LinkKind, Net, NetError, NetworkNamespace, Veth, in_namespace, observe_interface, plumb,
    unplumb,
};
use net_plan::{
    Bridge, Cidr, GivenInterface, MacAddress, Plumbing, StandIn, Sysctl, Tap,
    nft::{
        Action, Chain, Family, Hook, HookKind, HookPoint, Match, NeighbourMessage, Rule, Table,
        Transport,
    },
};

const MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 9]);

fn cidr(text: &str) -> Cidr {
    text.parse().unwrap()
}

fn bridge(name: &str, mac: MacAddress, addresses: &[&str]) -> Bridge {
    let addresses = addresses.iter().map(|text| cidr(text)).collect();
    Bridge {
        name: name.to_owned(),
        mac,
        mtu: 1400,
        addresses,
    }
}

fn base(name: &str, point: HookPoint, priority: i32, rules: Vec<Rule>) -> Chain {
    let hook = Some(Hook {
        kind: HookKind::Nat,
        point,
        priority,
    });
    Chain {
        name: name.to_owned(),
        hook,
        rules,
    }
}

fn rule(matches: &[Match], action: Action) -> Rule {
    Rule {
        matches: matches.to_vec(),
        action,
    }
}

fn jump(to: &str, when: Match) -> Rule {
    rule(&[when], Action::Jump(to.to_owned()))
}

/// The table of a masquerade pod with all ports open.
fn nat(guest: &str, gateway: &str, loopback: &str) -> Table {
    let (guest, gateway): (IpAddr, IpAddr) = (guest.parse().unwrap(), gateway.parse().unwrap());
    let to_guest = Action::DestinationNat(guest);
    let bits = if guest.is_ipv4() { 32 } else { 128 };
    let host = Cidr {
        address: guest,
        prefix_length: bits,
    };
    let loopback = Cidr {
        address: loopback.parse().unwrap(),
        prefix_length: bits,
    };
    let plain = |name: &str, rules| Chain {
        name: name.to_owned(),
        hook: None,
        rules,
    };
    Table {
        family: Family::of(guest),
        name: "nat".to_owned(),
        chains: vec![
            base(
                "prerouting",
                HookPoint::Prerouting,
                -100,
                vec![jump(
                    "KUBEVIRT_PREINBOUND",
                    Match::InputInterface("eth0".to_owned()),
                )],
            ),
            base("input", HookPoint::Input, 100, vec![]),
            base(
                "output",
                HookPoint::Output,
                -100,
                vec![rule(&[Match::Destination(loopback)], to_guest.clone())],
            ),
            base(
                "postrouting",
                HookPoint::Postrouting,
                100,
                vec![
                    rule(&[Match::Source(host)], Action::Masquerade),
                    jump(
                        "KUBEVIRT_POSTINBOUND",
                        Match::OutputInterface("k6t-eth0".to_owned()),
                    ),
                ],
            ),
            plain("KUBEVIRT_PREINBOUND", vec![rule(&[], to_guest)]),
            plain(
                "KUBEVIRT_POSTINBOUND",
                vec![rule(&[Match::Source(loopback)], Action::SourceNat(gateway))],
            ),
        ],
    }
}

fn masquerade() -> Plumbing {
    let on = |name: &str| Sysctl {
        name: name.to_owned(),
        value: "1".to_owned(),
    };
    Plumbing {
        bridges: vec![bridge(
            "k6t-eth0",
            MacAddress::BRIDGE,
            &["10.0.2.1/24", "fd10:0:2::1/120"],
        )],
        taps: vec![Tap {
            name: "tap0".to_owned(),
            bridge: "k6t-eth0".to_owned(),
            mtu: 1400,
            owner: 107,
            queues: 1,
        }],
        sysctls: vec![
            on("net/ipv4/ip_forward"),
            on("net/ipv4/conf/k6t-eth0/route_localnet"),
            on("net/ipv6/conf/all/forwarding"),
        ],
        tables: vec![
            nat("10.0.2.2", "10.0.2.1", "127.0.0.1"),
            nat("fd10:0:2::2", "fd10:0:2::1", "::1"),
        ],
        ..Plumbing::default()
    }
}

/// Handover of the pod's interface to the guest.
fn handover() -> Plumbing {
    let mac = MacAddress([0x42, 0, 0, 0, 0, 9]);
    Plumbing {
        bridges: vec![bridge("k6t-eth0", mac, &["169.254.75.10/32"])],
        given: vec![GivenInterface {
            name: "eth0".to_owned(),
            renamed: "eth0-nic".to_owned(),
            bridge: "k6t-eth0".to_owned(),
            mac,
            alias: format!("ferrovirt pod 1 {MAC} 10.244.0.9/24 fd00::9/64 0.0.0.0/0>10.244.0.1"),
            stand_in: StandIn {
                mac: MAC,
                mtu: 1400,
                addresses: vec![cidr("10.244.0.9/24"), cidr("fd00::9/64")],
            },
        }],
        taps: masquerade().taps,
        sysctls: vec![Sysctl {
            name: "net/ipv4/conf/all/arp_ignore".to_owned(),
            value: "1".to_owned(),
        }],
        ..Plumbing::default()
    }
}

/// Output of a program run in the namespace of the calling thread.
fn output(program: &str, arguments: &[&str]) -> String {
    let done = Command::new(program).args(arguments).output().unwrap();
    assert!(
        done.status.success(),
        "{program}: {}",
        String::from_utf8_lossy(&done.stderr)
    );
    String::from_utf8(done.stdout).unwrap()
}

fn ruleset() -> String {
    output("nft", &["--stateless", "list", "ruleset"])
}

/// Connects `there` to a bridge in `here` by a veth pair.
async fn join(
    here: &NetworkNamespace,
    there: &NetworkNamespace,
    bridge_name: &'static str,
    addresses: &'static [&'static str],
    gateways: &'static [&'static str],
) {
    let host = in_namespace(here.clone(), |_| Net::here()).await.unwrap();
    let inside = there.clone();
    in_namespace(there.clone(), move |pod| {
        let mut host = host;
        let veth = Veth {
            name: "v0",
            bridge: bridge_name,
            mac: None,
            mtu: 1400,
            peer: "eth0",
            peer_mac: MAC,
            peer_mtu: 1400,
            hairpin: true,
            alias: None,
        };
        let end = host.ensure_veth(pod, &inside, &veth)?.peer;
        pod.set_up("lo")?;
        for address in addresses {
            pod.ensure_address(&end, cidr(address))?;
        }
        for gateway in gateways {
            let all = if gateway.contains(':') {
                "::/0"
            } else {
                "0.0.0.0/0"
            };
            pod.ensure_route(&end, cidr(all), Some(gateway.parse().unwrap()))?;
        }
        Ok(())
    })
    .await
    .unwrap();
}

/// A host namespace and a pod connected to it.
async fn host_and_pod() -> [NetworkNamespace; 2] {
    let [outside, pod] = [new().await, new().await];
    in_namespace(outside.clone(), |net| {
        net.set_up("lo")?;
        let addresses = ["10.244.0.1/24", "fd00::1/64"];
        net.ensure_bridge(&bridge("br0", MacAddress([2, 0, 0, 0, 0, 1]), &addresses))
            .map(drop)
    })
    .await
    .unwrap();
    join(
        &outside,
        &pod,
        "br0",
        &["10.244.0.9/24", "fd00::9/64"],
        &["10.244.0.1", "fd00::1"],
    )
    .await;
    [outside, pod]
}

/// A host, a pod, and a guest in its own namespace behind the pod's bridge.
async fn host_pod_and_guest() -> [NetworkNamespace; 3] {
    let ([outside, pod], guest) = (host_and_pod().await, new().await);
    in_namespace(pod.clone(), |net| plumb(net, &masquerade()).map(drop))
        .await
        .unwrap();
    join(
        &pod,
        &guest,
        "k6t-eth0",
        &["10.0.2.2/24", "fd10:0:2::2/120"],
        &["10.0.2.1", "fd10:0:2::1"],
    )
    .await;
    [outside, pod, guest]
}

async fn new() -> NetworkNamespace {
    NetworkNamespace::create().await.unwrap()
}

/// Connects from one namespace to a listener in another; returns the source address that the
/// listener observed.
async fn connect(
    from: &NetworkNamespace,
    to: &'static str,
    at: &NetworkNamespace,
    listen: &'static str,
) -> IpAddr {
    let listener = in_namespace(at.clone(), move |_| {
        TcpListener::bind(listen).map_err(NetError::Socket)
    })
    .await
    .unwrap();
    in_namespace(from.clone(), move |_| {
        let to: SocketAddr = to.parse().unwrap();
        let limit = Duration::from_mins(1);
        // The kernel gives up on a neighbour after three seconds, which a busy computer may need.
        let mut attempts = (0..20).map(|_| TcpStream::connect_timeout(&to, limit));
        let near = attempts.find(|near| {
            !matches!(near, Err(error) if error.kind() == std::io::ErrorKind::HostUnreachable)
        });
        let mut near = near
            .unwrap_or(Err(std::io::ErrorKind::HostUnreachable.into()))
            .map_err(NetError::Socket)?;
        let (mut far, source) = listener.accept().map_err(NetError::Socket)?;
        far.set_read_timeout(Some(limit)).unwrap();
        near.write_all(b"hello").map_err(NetError::Socket)?;
        let mut received = [0; 5];
        far.read_exact(&mut received).map_err(NetError::Socket)?;
        assert_eq!(&received, b"hello");
        Ok(source.ip())
    })
    .await
    .unwrap()
}

#[tokio::test]
async fn connections_reach_the_guest_and_leave_it_as_the_pod() {
    let [outside, pod, guest] = host_pod_and_guest().await;
    let cases = [
        (
            &outside,
            "10.244.0.9:80",
            &guest,
            "10.0.2.2:80",
            "10.244.0.1",
        ),
        (
            &outside,
            "[fd00::9]:80",
            &guest,
            "[fd10:0:2::2]:80",
            "fd00::1",
        ),
        (
            &guest,
            "10.244.0.1:81",
            &outside,
            "10.244.0.1:81",
            "10.244.0.9",
        ),
        (&guest, "[fd00::1]:81", &outside, "[fd00::1]:81", "fd00::9"),
        (&pod, "127.0.0.1:82", &guest, "10.0.2.2:82", "10.0.2.1"),
    ];
    for (from, to, at, listen, source) in cases {
        assert_eq!(
            connect(from, to, at, listen).await,
            source.parse::<IpAddr>().unwrap(),
            "{to}"
        );
    }
    // Address translation covers ICMP, too.
    in_namespace(outside, |_| {
        output("busybox", &["ping", "-c", "1", "-W", "5", "10.244.0.9"]);
        Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn handed_over_interface_gives_guest_the_pod_addresses() {
    let ([outside, pod], guest) = (host_and_pod().await, new().await);
    in_namespace(pod.clone(), |net| plumb(net, &handover()).map(drop))
        .await
        .unwrap();
    // The guest also has the pod's hardware address.
    let addresses = &["10.244.0.9/24", "fd00::9/64"];
    join(&pod, &guest, "k6t-eth0", addresses, &["10.244.0.1"]).await;
    let cases = [
        (&outside, "10.244.0.9:80", &guest, "10.244.0.9:80"),
        (&outside, "[fd00::9]:80", &guest, "[fd00::9]:80"),
        (&guest, "10.244.0.1:81", &outside, "10.244.0.1:81"),
        (&guest, "[fd00::1]:81", &outside, "[fd00::1]:81"),
    ];
    for (from, to, at, listen) in cases {
        let source = connect(from, to, at, listen).await;
        let own = if to.contains("9]") || to.contains(".9:") {
            ["10.244.0.1", "fd00::1"]
        } else {
            ["10.244.0.9", "fd00::9"]
        };
        assert!(own.contains(&&*source.to_string()), "{to}: {source}");
    }
    in_namespace(outside, |_| {
        let neighbours = output("ip", &["neighbour", "show", "10.244.0.9"]);
        assert!(neighbours.contains(&MAC.to_string()), "{neighbours}");
        Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn handover_is_undone_and_survives_crash_at_every_failpoint() {
    let names = failpoints::NAMES.lines();
    let names: Vec<_> = names
        .filter(|name| name.starts_with("host-net/unplumb/"))
        .collect();
    assert_eq!(names.len(), 3);
    for failpoint in names {
        let [_outside, pod] = host_and_pod().await;
        let observe = |net: &mut Net| observe_interface(net, "eth0");
        let before = in_namespace(pod.clone(), observe).await.unwrap();
        let undo = || net_plan::Unplumbing {
            name: "eth0".to_owned(),
            renamed: "eth0-nic".to_owned(),
            bridge: "k6t-eth0".to_owned(),
            taps: vec!["tap0".to_owned(), "ra-eth0".to_owned()],
        };
        in_namespace(pod.clone(), |net| plumb(net, &handover()).map(drop))
            .await
            .unwrap();
        let trap = failpoints::Trap::new();
        trap.set(failpoint, || std::panic::resume_unwind(Box::new("a crash")));
        let inside = trap.clone();
        let crashed = in_namespace(pod.clone(), move |net| {
            inside.enter();
            unplumb(net, &undo())
        })
        .await;
        assert!(
            matches!(crashed, Err(NetError::ThreadPanicked)),
            "{failpoint}: {crashed:?}"
        );
        for _ in 0..2 {
            in_namespace(pod.clone(), move |net| unplumb(net, &undo()))
                .await
                .unwrap();
            let links = in_namespace(pod.clone(), |net| {
                let own = net.existing_link("eth0")?;
                assert_ne!(own.kind, LinkKind::Bridge);
                let mut left = Vec::new();
                for name in ["eth0-nic", "k6t-eth0", "tap0"] {
                    left.extend(net.link(name)?.map(|link| link.name));
                }
                Ok(left)
            });
            assert_eq!(links.await.unwrap(), [""; 0], "{failpoint}");
        }
        // The guest may get it again.
        in_namespace(pod.clone(), |net| plumb(net, &handover()).map(drop))
            .await
            .unwrap();
        let observed = in_namespace(pod.clone(), observe).await.unwrap();
        assert_eq!(
            (observed.mac, observed.ipv4, observed.ipv6),
            (before.mac, before.ipv4, before.ipv6),
            "{failpoint}"
        );
    }
}

/// All failpoints of the handover.
fn handover_failpoints() -> impl Iterator<Item = &'static str> {
    let names = failpoints::NAMES.lines();
    names.filter(|name| name.starts_with("host-net/handover/"))
}

#[tokio::test]
async fn interface_handover_survives_crash_at_every_failpoint() {
    let mut crashes = 0;
    for failpoint in handover_failpoints() {
        let [_outside, pod] = host_and_pod().await;
        let observe = |net: &mut Net| observe_interface(net, "eth0");
        let before = in_namespace(pod.clone(), observe).await.unwrap();
        let trap = failpoints::Trap::new();
        trap.set(failpoint, || std::panic::resume_unwind(Box::new("a crash")));
        let inside = trap.clone();
        let crashed = in_namespace(pod.clone(), move |net| {
            inside.enter();
            plumb(net, &handover()).map(drop)
        })
        .await;
        assert!(
            matches!(crashed, Err(NetError::ThreadPanicked)),
            "{failpoint}: {crashed:?}"
        );
        crashes += 1;
        for _ in 0..2 {
            let observed = in_namespace(pod.clone(), observe).await.unwrap();
            assert_eq!(
                (observed.mac, observed.mtu),
                (before.mac, before.mtu),
                "{failpoint}"
            );
            assert_eq!(
                (observed.ipv4, observed.ipv6),
                (before.ipv4, before.ipv6),
                "{failpoint}"
            );
            assert_eq!(observed.routes.len(), 1, "{failpoint}: {observed:?}");
            in_namespace(pod.clone(), move |net| {
                plumb(net, &handover())?;
                let brief = output("ip", &["-brief", "link"]);
                let names: Vec<_> = brief
                    .lines()
                    .filter_map(|line| line.split(['@', ' ']).next())
                    .collect();
                for name in ["eth0", "eth0-nic", "k6t-eth0", "tap0"] {
                    assert!(names.contains(&name), "{failpoint}: {brief}");
                }
                let port = output("ip", &["-d", "link", "show", "eth0-nic"]);
                for part in [
                    "42:00:00:00:00:09",
                    "learning off",
                    "master k6t-eth0",
                    ",UP,",
                ] {
                    assert!(port.contains(part), "{failpoint}: {part}: {port}");
                }
                assert_eq!(output("ip", &["-4", "address", "show", "eth0-nic"]), "");
                let stand_in = output("ip", &["address", "show", "eth0"]);
                for part in [
                    &MAC.to_string(),
                    "10.244.0.9/24",
                    "fd00::9/64",
                    "state DOWN",
                ] {
                    assert!(stand_in.contains(part), "{failpoint}: {part}: {stand_in}");
                }
                Ok(())
            })
            .await
            .unwrap();
        }
    }
    assert_eq!(crashes, handover_failpoints().count());
    assert!(crashes > 5, "{crashes}");
}

#[tokio::test]
async fn port_without_saved_state_is_an_error() {
    let [_outside, pod] = host_and_pod().await;
    in_namespace(pod, |net| {
        plumb(net, &handover())?;
        output("ip", &["link", "set", "eth0-nic", "alias", "foreign"]);
        let error = observe_interface(net, "eth0").unwrap_err();
        assert_eq!(
            (error.reason().as_str(), error.is_transient()),
            ("ForeignLink", false)
        );
        output("ip", &["link", "delete", "eth0-nic"]);
        let error = plumb(net, &handover()).unwrap_err();
        assert_eq!(
            (error.reason().as_str(), error.is_transient()),
            ("ForeignLink", false)
        );
        Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn plumbing_is_idempotent() {
    let [_outside, pod, _guest] = host_pod_and_guest().await;
    in_namespace(pod, |net| {
        let plan = masquerade();
        let wanted: String = plan.tables.iter().map(ToString::to_string).collect();
        let first = (output("ip", &["-d", "link", "show", "tap0"]), ruleset());
        assert_eq!(first.1, wanted);
        for part in [
            "user 107 group 107",
            "vnet_hdr on",
            "persist on",
            "mtu 1400",
            "k6t-eth0",
        ] {
            assert!(first.0.contains(part), "{part}: {}", first.0);
        }
        let applied = plumb(net, &plan)?;
        assert_eq!((applied.links.len(), applied.rules), (2, 12));
        assert_eq!(ruleset(), wanted);
        let eth0 = observe_interface(net, "eth0")?;
        assert_eq!((eth0.mac, eth0.mtu), (MAC, 1400));
        assert_eq!(eth0.ipv4, Some(("10.244.0.9".parse().unwrap(), 24)));
        assert_eq!(eth0.ipv6, Some(("fd00::9".parse().unwrap(), 64)));
        let default = eth0
            .routes
            .iter()
            .find(|route| route.destination.prefix_length == 0);
        assert_eq!(default.unwrap().via, Some("10.244.0.1".parse().unwrap()));
        Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn ensure_chains_keeps_chains_of_other_programs() {
    let namespace = new().await;
    in_namespace(namespace, |net| {
        output("nft", &["add", "table", "ip", "nat"]);
        output("nft", &["add", "chain", "ip", "nat", "ISTIO"]);
        let table = nat("10.0.2.2", "10.0.2.1", "127.0.0.1");
        net.ensure_chains(&table)?;
        assert!(ruleset().contains("ISTIO"));
        net.replace_table(&table)?;
        assert_eq!(ruleset(), table.to_string());
        net.delete_table(Family::Ip, "nat")?;
        net.delete_table(Family::Ip, "nat")?;
        assert_eq!(ruleset(), "");
        Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn nft_lists_every_kind_of_rule_as_planned() {
    let namespace = new().await;
    in_namespace(namespace, |net| {
        let tcp = |first, last| Match::DestinationPorts {
            protocol: Transport::Tcp,
            first,
            last,
        };
        let udp = Match::DestinationPorts {
            protocol: Transport::Udp,
            first: 53,
            last: 53,
        };
        let mut filter = base(
            "forward",
            HookPoint::Forward,
            0,
            vec![
                rule(&[tcp(80, 80)], Action::Accept),
                rule(&[tcp(8000, 8010)], Action::Drop),
                rule(&[udp, Match::Source(cidr("10.1.2.3/32"))], Action::Return),
                rule(
                    &[
                        Match::Source(cidr("10.244.0.7/24")),
                        Match::NotDestination(cidr("10.128.0.0/9")),
                        Match::Destination(cidr("10.0.0.0/13")),
                    ],
                    Action::Accept,
                ),
                rule(
                    &[Match::InputInterface("fifteen-letters".to_owned())],
                    Action::Accept,
                ),
                rule(&[Match::DestinationIsLocal, tcp(80, 80)], Action::Reject),
                rule(
                    &[Match::OneClientOf {
                        many: 3,
                        seed: 0x00ab_cdef,
                    }],
                    Action::Accept,
                ),
            ],
        );
        filter.hook = Some(Hook {
            kind: HookKind::Filter,
            point: HookPoint::Forward,
            priority: 0,
        });
        let table = Table {
            family: Family::Ip,
            name: "host-net".to_owned(),
            chains: vec![filter],
        };
        net.replace_table(&table)?;
        assert_eq!(ruleset(), table.to_string());
        let chains = net.base_chains(Family::Ip)?;
        assert_eq!(chains.len(), 1);
        assert_eq!((chains[0].hook, chains[0].drops_by_default), (2, false));
        let mut six = table.clone();
        six.family = Family::Ip6;
        let of_neighbours = [
            NeighbourMessage::RouterAdvertisement,
            NeighbourMessage::Solicitation,
            NeighbourMessage::Redirect,
        ];
        let of_neighbours = of_neighbours.map(|one| rule(&[Match::Neighbour(one)], Action::Drop));
        six.chains[0].rules = vec![
            rule(
                &[
                    Match::Source(cidr("fd00::/8")),
                    Match::NotDestination(cidr("fd10::1/128")),
                ],
                Action::Accept,
            ),
            rule(&[Match::NotSource(cidr("fd10::1/128"))], Action::Accept),
            rule(
                &[
                    Match::Neighbour(NeighbourMessage::Advertisement),
                    Match::NotNeighbourTarget(cidr("fd10::1/128")),
                    Match::NotNeighbourTarget(cidr("fe80::/64")),
                    Match::NeighbourTarget(cidr("fd10::/16")),
                ],
                Action::Drop,
            ),
        ];
        six.chains[0].rules.extend(of_neighbours);
        net.delete_table(Family::Ip, "host-net")?;
        net.replace_table(&six)?;
        assert_eq!(ruleset(), six.to_string());
        Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn refused_rule_is_named_and_changes_nothing() {
    let namespace = new().await;
    in_namespace(namespace, |net| {
        let good = nat("10.0.2.2", "10.0.2.1", "127.0.0.1");
        net.replace_table(&good)?;
        let mut bad = good.clone();
        bad.chains[5]
            .rules
            .push(rule(&[], Action::Jump("nowhere".to_owned())));
        let error = net.replace_table(&bad).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("rule `counter jump nowhere` of chain KUBEVIRT_POSTINBOUND"),
            "{text}"
        );
        assert!(text.contains("No such file"), "{text}");
        assert_eq!(ruleset(), good.to_string());
        Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn table_with_thousands_of_rules_is_one_transaction() {
    let namespace = new().await;
    in_namespace(namespace, |net| {
        let rules = (1..=5000).map(|port| {
            let ports = Match::DestinationPorts {
                protocol: Transport::Tcp,
                first: port,
                last: port,
            };
            rule(
                &[ports],
                Action::DestinationNat("10.0.2.2".parse().unwrap()),
            )
        });
        let chain = base("prerouting", HookPoint::Prerouting, -100, rules.collect());
        let table = Table {
            family: Family::Ip,
            name: "big".to_owned(),
            chains: vec![chain],
        };
        net.replace_table(&table)?;
        assert_eq!(ruleset(), table.to_string());
        net.replace_table(&table)?;
        let mut bad = table.clone();
        for rule in &mut bad.chains[0].rules {
            rule.action = Action::Jump("nowhere".to_owned());
        }
        let error = net.replace_table(&bad).unwrap_err();
        assert!(error.to_string().contains("tcp dport 1 "), "{error}");
        Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn foreign_and_invalid_names_are_refused_with_a_reason() {
    let namespace = new().await;
    in_namespace(namespace, |net| {
        let one = bridge("k6t-eth0", MAC, &[]);
        net.ensure_bridge(&one)?;
        let tap = Tap {
            name: "k6t-eth0".to_owned(),
            bridge: "k6t-eth0".to_owned(),
            mtu: 1400,
            owner: 107,
            queues: 2,
        };
        let error = net.ensure_tap(&tap).unwrap_err();
        assert_eq!(
            (error.reason().as_str(), error.is_transient()),
            ("ForeignLink", false)
        );
        assert!(
            error
                .to_string()
                .starts_with("k6t-eth0 is a bridge, not a tap"),
            "{error}"
        );
        let tap = Tap {
            name: "tap0".to_owned(),
            ..tap
        };
        net.ensure_tap(&tap)?;
        net.ensure_tap(&tap)?;
        assert!(output("ip", &["-d", "link", "show", "tap0"]).contains("multi_queue"));
        let error = net.ensure_bridge(&bridge("tap0", MAC, &[])).unwrap_err();
        assert!(
            error.to_string().starts_with("tap0 is a tap, not a bridge"),
            "{error}"
        );
        for bad in ["", "sixteen-letters-", "a/b", "a b", ".."] {
            assert_eq!(
                net.link(bad).unwrap_err().reason(),
                "BadLinkName",
                "{bad:?}"
            );
        }
        let (name, value) = ("net/../kernel/hostname".to_owned(), "x".to_owned());
        assert_eq!(
            net.ensure_sysctl(&Sysctl { name, value })
                .unwrap_err()
                .reason(),
            "BadLinkName"
        );
        let absent = Tap {
            bridge: "none".to_owned(),
            ..tap
        };
        assert_eq!(
            net.ensure_tap(&absent).unwrap_err().reason().as_str(),
            "NoSuchLink"
        );
        // A configured bridge without our alias belongs to another program.
        net.ensure_own_bridge(&bridge("own0", MAC, &["10.7.0.1/24"]), "ours")?;
        net.ensure_own_bridge(&bridge("own0", MAC, &["10.7.0.1/24"]), "ours")?;
        let error = net.ensure_own_bridge(&one, "ours").unwrap_err();
        assert!(
            error.to_string().starts_with("k6t-eth0 is a bridge in use"),
            "{error}"
        );
        assert_eq!(net.existing_link("own0")?.kind, LinkKind::Bridge);
        Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn missing_capability_is_named_in_the_error() {
    let namespace = new().await;
    let error = in_namespace(namespace, |net| {
        // Affects this thread only, which ends with the closure.
        rustix::thread::set_thread_uid(rustix::process::Uid::from_raw(65534)).unwrap();
        net.ensure_bridge(&bridge("br0", MAC, &[]))
    })
    .await
    .unwrap_err();
    assert_eq!(
        (error.reason().as_str(), error.is_transient()),
        ("NetworkNotPermitted", false)
    );
    assert!(error.to_string().contains("CAP_NET_ADMIN"), "{error}");
    let missing = NetworkNamespace::open("/nonexistent/netns").unwrap_err();
    assert_eq!(
        (missing.reason().as_str(), missing.is_transient()),
        ("NoSuchNamespace", true)
    );
}

#[tokio::test]
async fn pinned_namespace_outlives_its_handle() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ns");
    let namespace = new().await;
    namespace.pin(&path).unwrap();
    namespace.pin(&path).unwrap();
    drop(namespace);
    let again = NetworkNamespace::open(&path).unwrap();
    in_namespace(again, |net| net.set_up("lo")).await.unwrap();
    NetworkNamespace::unpin(&path).unwrap();
    NetworkNamespace::unpin(&path).unwrap();
    assert!(!path.exists());
}
