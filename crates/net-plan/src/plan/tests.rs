use kubevirt_api::VirtualMachineInstance;

use super::*;
use crate::{PodRoute, tap_candidates};

/// Plans guests with fields of the list of unsupported ones, too.
fn plan(vmi: &VirtualMachineInstance, observed: &Observed) -> Result<Plan, PlanError> {
    plan_guest(&Guest::of(vmi), observed)
}

/// A VMI with one masquerade interface on the pod network, changed by each case.
fn vmi(change: impl FnOnce(&mut serde_json::Value)) -> VirtualMachineInstance {
    let mut json = serde_json::json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": { "name": "b1", "namespace": "default" },
        "spec": {
            "domain": { "devices": { "interfaces": [{ "name": "default", "masquerade": {} }] } },
            "networks": [{ "name": "default", "pod": {} }],
        },
    });
    change(&mut json);
    serde_json::from_value(json).unwrap()
}

fn interface(json: &mut serde_json::Value) -> &mut serde_json::Value {
    &mut json["spec"]["domain"]["devices"]["interfaces"][0]
}

fn observed() -> Observed {
    Observed {
        primary: "eth0".to_owned(),
        interfaces: vec![PodInterface {
            name: "eth0".to_owned(),
            mac: "12:81:b8:38:4f:52".parse().unwrap(),
            mtu: 1500,
            ipv4: Some(("10.244.0.39".parse().unwrap(), 24)),
            ipv6: None,
            routes: vec![PodRoute {
                destination: "0.0.0.0/0".parse().unwrap(),
                via: Some("10.244.0.1".parse().unwrap()),
            }],
            receives_own_only: false,
        }],
        taps: [].into(),
        plugins: [].into(),
        resolv_conf: "nameserver 10.96.0.10\nsearch default.svc.cluster.local cluster.local\n"
            .to_owned(),
    }
}

fn dual() -> Observed {
    let mut observed = observed();
    observed.interfaces[0].ipv6 = Some(("fd00:10:244::27".parse().unwrap(), 64));
    observed
}

/// The plan as text: rules in the format of `nft`, the rest in debug format.
fn text(plan: &Plan) -> String {
    use std::fmt::Write as _;
    let mut text = String::new();
    for bridge in &plan.plumbing.bridges {
        let addresses: Vec<_> = bridge.addresses.iter().map(ToString::to_string).collect();
        let addresses = addresses.join(" ");
        let (name, mac, mtu) = (&bridge.name, bridge.mac, bridge.mtu);
        writeln!(
            text,
            "bridge {name} mac {mac} mtu {mtu} addresses {addresses}"
        )
        .unwrap();
    }
    for given in &plan.plumbing.given {
        writeln!(text, "{given:#?}").unwrap();
    }
    for tap in &plan.plumbing.taps {
        let Tap {
            name,
            bridge,
            mtu,
            owner,
            queues,
        } = tap;
        writeln!(
            text,
            "tap {name} on {bridge} mtu {mtu} owner {owner} queues {queues}"
        )
        .unwrap();
    }
    for shared in &plan.plumbing.shared_addresses {
        writeln!(text, "{shared:?}").unwrap();
    }
    for Sysctl { name, value } in &plan.plumbing.sysctls {
        writeln!(text, "sysctl {name} = {value}").unwrap();
    }
    for table in &plan.plumbing.tables {
        write!(text, "{table}").unwrap();
    }
    for server in &plan.dhcp {
        writeln!(text, "{}", serde_json::to_string_pretty(server).unwrap()).unwrap();
    }
    for server in &plan.ipv6 {
        writeln!(text, "{}", serde_json::to_string_pretty(server).unwrap()).unwrap();
    }
    for guest in &plan.interfaces {
        writeln!(text, "{guest:#?}").unwrap();
    }
    writeln!(
        text,
        "{}",
        serde_json::to_string_pretty(&plan.status).unwrap()
    )
    .unwrap();
    text
}

#[test]
fn plain_masquerade_interface() {
    let plan = plan(&vmi(|_| ()), &observed()).unwrap();
    insta::assert_snapshot!(text(&plan));
}

#[test]
fn both_families_with_ports_and_ranges() {
    let vmi = vmi(|json| {
        interface(json)["ports"] = serde_json::json!([
            { "port": 80 }, { "port": 53, "protocol": "UDP" },
        ]);
        interface(json)["portRanges"] = serde_json::json!([
            { "protocol": "TCP", "start": 8000, "end": 8010 },
        ]);
    });
    assert!(Supported::of(&vmi).is_ok());
    insta::assert_snapshot!(text(&plan(&vmi, &dual()).unwrap()));
}

#[test]
fn every_user_setting() {
    let vmi = vmi(|json| {
        *interface(json) = serde_json::json!({
            "name": "default", "masquerade": {}, "macAddress": "02-AA-00-00-00-01",
            "bootOrder": 1, "acpiIndex": 7, "pciAddress": "0000:81:01.0", "state": "down",
        });
        json["spec"]["networks"][0]["pod"] = serde_json::json!({
            "vmNetworkCIDR": "192.168.7.0/29", "vmIPv6NetworkCIDR": "fd77::/64",
        });
        json["spec"]["domain"]["cpu"] = serde_json::json!({ "cores": 2, "sockets": 2 });
        json["spec"]["domain"]["devices"]["networkInterfaceMultiqueue"] = true.into();
        json["spec"]["hostname"] = "web.example.org".into();
        json["spec"]["subdomain"] = "shop".into();
    });
    insta::assert_snapshot!(text(&plan(&vmi, &dual()).unwrap()));
}

fn by_passt(json: &mut serde_json::Value) {
    *interface(json) = serde_json::json!({ "name": "default", "passtBinding": {} });
}

#[test]
fn passt_serves_the_listed_ports_and_nothing_is_plumbed() {
    let vmi_with = |ports: serde_json::Value| {
        vmi(|json| {
            by_passt(json);
            interface(json)["ports"] = ports;
        })
    };
    let all = plan(&vmi_with(serde_json::json!([])), &observed()).unwrap();
    assert_eq!(all.passt[0].ports, None);
    let listed = serde_json::json!([{ "port": 80 }, { "port": 53, "protocol": "UDP" }]);
    let plan = plan(&vmi_with(listed), &observed()).unwrap();
    let server = &plan.passt[0];
    let ports = server.ports.clone().unwrap();
    let numbers = |ports: &[launcher_channel::PortRange]| {
        let numbers = ports.iter().map(|port| (port.first, port.last));
        numbers.collect::<Vec<_>>()
    };
    assert_eq!(numbers(&ports.tcp), [(80, 80)]);
    assert_eq!(numbers(&ports.udp), [(53, 53)]);
    assert_eq!((&*server.pod_interface, server.mtu), ("eth0", 1500));
    assert_eq!(
        server.socket,
        "/var/run/kubevirt-private/passt-default.sock"
    );
    assert!(plan.plumbing.taps.is_empty() && plan.plumbing.bridges.is_empty());
    assert!(plan.dhcp.is_empty());
    let sysctls = plan.plumbing.sysctls.iter();
    let sysctls: Vec<_> = sysctls.map(|one| (&*one.name, &*one.value)).collect();
    let ports = ("net/ipv4/ip_unprivileged_port_start", "0");
    let echo = ("net/ipv4/ping_group_range", "107 107");
    assert_eq!(sysctls, [ports, echo]);
    assert_eq!(plan.interfaces[0].tap, None);
    assert_eq!(plan.status[0].ip_address.as_deref(), Some("10.244.0.39"));
}

#[test]
fn passt_needs_an_address_and_takes_no_dhcp_options() {
    let mut bare = observed();
    (bare.interfaces[0].ipv4, bare.interfaces[0].ipv6) = (None, None);
    let error = plan(&vmi(by_passt), &bare).unwrap_err();
    assert!(!error.reason().is_permanent(), "{error}");
    let with_options = vmi(|json| {
        by_passt(json);
        interface(json)["dhcpOptions"] = serde_json::json!({ "bootFileName": "x" });
    });
    let error = plan(&with_options, &observed()).unwrap_err();
    assert!(error.reason().is_permanent());
    assert_eq!(
        error.to_string(),
        "spec.domain.devices.interfaces[0].dhcpOptions: passt has no such options; leave it out, or use \
         masquerade"
    );
}

/// Advertisements name a router by its link-local address alone.
#[test]
fn bridged_guest_has_the_router_of_its_pod_if_an_advertisement_can_name_it() {
    for (via, expected) in [("fe80::9", Some("fe80::9")), ("fd00:10:244::1", None)] {
        let mut observed = dual();
        observed.interfaces[0].routes.push(PodRoute {
            destination: "::/0".parse().unwrap(),
            via: Some(via.parse().unwrap()),
        });
        let plan = plan(&vmi(bridged), &observed).unwrap();
        let server = &plan.ipv6[0];
        assert_eq!(server.address.to_string(), "fd00:10:244::27");
        let router = server.router.as_ref();
        let router = router.map(|router| (router.address.to_string(), router.mac.clone()));
        assert_eq!(router, expected.map(|address| (address.to_owned(), None)));
        let macs = [&server.mac, &server.client_mac].map(|mac| mac.parse().unwrap());
        let own = [plan.plumbing.bridges[0].mac, plan.plumbing.given[0].mac];
        assert!(!own.contains(&macs[0]) && macs[0] != macs[1]);
    }
}

fn by_plugin(json: &mut serde_json::Value, name: &str) {
    *interface(json) = serde_json::json!({ "name": "default", "binding": { "name": name } });
}

/// A pod with a binding of each kind.
fn with_plugins() -> Observed {
    let plugins = serde_json::json!({
        "taps": { "attachment": "tap" },
        "managed": { "attachment": "managedTap" },
        "sidecar": { "attachment": "sidecar" },
    });
    Observed {
        plugins: serde_json::from_value(plugins).unwrap(),
        ..dual()
    }
}

#[test]
fn managed_tap_is_a_bridge_that_tells_the_guest_nothing() {
    let managed = vmi(|json| by_plugin(json, "managed"));
    let plan_of = |vmi| plan(&vmi, &with_plugins()).unwrap();
    let (managed, bridge) = (plan_of(managed), plan_of(vmi(bridged)));
    assert!(managed.dhcp.is_empty() && managed.ipv6.is_empty());
    assert!(managed.plumbing.bridges[0].addresses.is_empty());
    assert_eq!(managed.plumbing.given, bridge.plumbing.given);
    assert_eq!(managed.interfaces, bridge.interfaces);
    assert_eq!(managed.status, bridge.status);
    let taps = managed.plumbing.taps.iter();
    let taps: Vec<&str> = taps.map(|tap| tap.name.as_str()).collect();
    assert_eq!(taps, ["tap0"]);
    let sysctls = managed.plumbing.sysctls.iter();
    let sysctls: Vec<&str> = sysctls.map(|sysctl| sysctl.name.as_str()).collect();
    assert_eq!(sysctls, ["net/ipv4/conf/all/arp_ignore"]);
}

#[test]
fn tap_of_the_network_plugin_is_used_as_it_is() {
    let vmi = vmi(|json| by_plugin(json, "taps"));
    assert_eq!(tap_candidates(&Guest::of(&vmi), "eth0"), ["tap0", "eth0"]);
    for (taps, expected) in [
        (&["eth0"][..], Some("eth0")),
        (&["eth0", "tap0"], Some("tap0")),
        (&[], None),
    ] {
        let mut observed = with_plugins();
        observed.taps = taps.iter().map(|tap| (*tap).to_owned()).collect();
        let planned = plan(&vmi, &observed);
        let Some(expected) = expected else {
            let error = planned.unwrap_err();
            assert_eq!(error.reason(), "NetworkBindingWithoutTap");
            continue;
        };
        let plan = planned.unwrap();
        assert_eq!(plan.plumbing, Plumbing::default());
        assert_eq!(plan.interfaces[0].tap.as_deref(), Some(expected));
        assert_eq!(plan.interfaces[0].mac.to_string(), "12:81:b8:38:4f:52");
        assert_eq!(plan.status[0].pod_interface_name.as_deref(), Some("eth0"));
    }
}

#[test]
fn interface_of_a_sidecar_has_a_status_and_nothing_to_plumb() {
    let of = |interfaces: Vec<PodInterface>, mac: Option<&str>| {
        let vmi = vmi(|json| {
            by_plugin(json, "sidecar");
            interface(json)["macAddress"] = mac.into();
        });
        let observed = Observed {
            interfaces,
            ..with_plugins()
        };
        plan(&vmi, &observed).unwrap()
    };
    let there = of(dual().interfaces, Some("02:00:00:00:00:0b"));
    assert_eq!(there.plumbing, Plumbing::default());
    assert!(there.interfaces.is_empty() && there.dhcp.is_empty());
    let status = &there.status[0];
    assert_eq!(status.mac.as_deref(), Some("02:00:00:00:00:0b"));
    assert_eq!(status.ip_addresses, ["10.244.0.39", "fd00:10:244::27"]);
    assert_eq!(status.link_state.as_deref(), Some("up"));
    // The binding may have none in the pod.
    let absent = of(vec![], None);
    let status = &absent.status[0];
    assert_eq!((&status.mac, &status.ip_address), (&None, &None));
    assert_eq!(status.pod_interface_name.as_deref(), Some("eth0"));
}

#[test]
fn address_of_a_bridge_is_refused_where_there_is_one() {
    let of_bridge = "52:81:b8:38:4f:52";
    for (binding, mac, is_refused) in [
        ("managed", of_bridge, true),
        ("taps", of_bridge, false),
        ("sidecar", of_bridge, false),
        ("sidecar", "de:ad", true),
        ("sidecar", "01:00:00:00:00:01", true),
    ] {
        let vmi = vmi(|json| {
            by_plugin(json, binding);
            interface(json)["macAddress"] = mac.into();
        });
        let observed = Observed {
            taps: ["tap0".to_owned()].into(),
            ..with_plugins()
        };
        let planned = plan(&vmi, &observed);
        if is_refused {
            assert_eq!(planned.unwrap_err().reason(), "BadMacAddress");
        } else {
            assert_eq!(planned.unwrap().status[0].mac.as_deref(), Some(mac));
        }
    }
}

fn bridged(json: &mut serde_json::Value) {
    *interface(json) = serde_json::json!({ "name": "default", "bridge": {} });
}

#[test]
fn plain_bridge_interface() {
    let mut observed = dual();
    observed.interfaces[0].routes.push(PodRoute {
        destination: "10.244.0.0/16".parse().unwrap(),
        via: None,
    });
    insta::assert_snapshot!(text(&plan(&vmi(bridged), &observed).unwrap()));
}

#[test]
fn bridge_plan_from_link_alias_is_the_same() {
    let mut only4 = observed();
    only4.interfaces[0].ipv6 = None;
    let mut bare = observed();
    (bare.interfaces[0].ipv4, bare.interfaces[0].ipv6) = (None, None);
    bare.interfaces[0].routes.clear();
    for observed in [dual(), only4, bare] {
        let first = plan(&vmi(bridged), &observed).unwrap();
        let mut again = observed.clone();
        let PodInterface { name, mtu, .. } = &observed.interfaces[0];
        let line = &first.plumbing.given[0].alias;
        again.interfaces[0] = PodInterface::from_alias(name, *mtu, line).unwrap();
        assert_eq!(plan(&vmi(bridged), &again).unwrap(), first);
    }
}

#[test]
fn pod_without_addresses_gives_its_guest_a_bridge_without_dhcp() {
    let mut bare = observed();
    (bare.interfaces[0].ipv4, bare.interfaces[0].ipv6) = (None, None);
    let plan = plan(&vmi(bridged), &bare).unwrap();
    assert!(plan.dhcp.is_empty());
    assert!(plan.plumbing.sysctls.is_empty());
    assert!(plan.plumbing.bridges[0].addresses.is_empty());
    assert_eq!(plan.plumbing.given[0].stand_in.addresses, []);
    assert_eq!(plan.status[0].ip_address, None);
}

#[test]
fn dhcp_server_address_ends_with_the_index() {
    let vmi = vmi(|json| {
        bridged(json);
        let last = interface(json).clone();
        let gone = serde_json::json!({ "name": "x", "bridge": {}, "state": "absent" });
        json["spec"]["domain"]["devices"]["interfaces"] = serde_json::json!([gone, last]);
    });
    let plan = plan(&vmi, &observed()).unwrap();
    assert_eq!(plan.dhcp[0].server.to_string(), "169.254.75.11");
}

#[test]
fn vmi_without_interfaces_has_an_empty_plan() {
    let none = vmi(|json| *interface(json) = serde_json::json!({ "name": "x", "state": "absent" }));
    assert_eq!(plan(&none, &observed()).unwrap(), Plan::default());
}

#[test]
fn only_virtio_models_have_queues() {
    let cases = [
        (None, Some(true), 3, Some(3)),
        (Some("virtio"), Some(true), 3, Some(3)),
        (Some("e1000e"), Some(true), 3, None),
        (None, Some(false), 3, None),
        (None, None, 3, None),
        (None, Some(true), 400, Some(256)),
    ];
    for (model, multiqueue, sockets, expected) in cases {
        let vmi = vmi(|json| {
            interface(json)["model"] = model.unwrap_or("").into();
            let devices = &mut json["spec"]["domain"]["devices"];
            if let Some(multiqueue) = multiqueue {
                devices["networkInterfaceMultiqueue"] = multiqueue.into();
            }
            json["spec"]["domain"]["cpu"] = serde_json::json!({ "sockets": sockets });
        });
        let plan = plan(&vmi, &observed()).unwrap();
        assert_eq!(
            plan.interfaces[0].queues, expected,
            "{model:?} {multiqueue:?}"
        );
        assert_eq!(plan.plumbing.taps[0].queues, expected.unwrap_or(1));
    }
}

#[test]
fn only_address_families_of_the_pod_are_plumbed() {
    let mut only6 = dual();
    only6.interfaces[0].ipv4 = None;
    let plan = plan(&vmi(|_| ()), &only6).unwrap();
    assert_eq!(plan.plumbing.tables.len(), 1);
    assert_eq!(plan.plumbing.tables[0].family, crate::nft::Family::Ip6);
    assert_eq!(
        plan.plumbing.bridges[0].addresses,
        ["fd10:0:2::1/120", "fe80::1/64"].map(|text| text.parse().unwrap())
    );
    assert!(plan.dhcp.is_empty());
    assert_eq!(plan.ipv6[0].address.to_string(), "fd10:0:2::2");
    assert_eq!(
        plan.status[0].ip_address.as_deref(),
        Some("fd00:10:244::27")
    );
}

#[test]
fn virtual_function_has_a_status_and_nothing_to_plumb() {
    let vmi = vmi(|json| {
        *interface(json) =
            serde_json::json!({ "name": "fast", "sriov": {}, "macAddress": "02:00:00:00:00:05" });
        json["spec"]["networks"] =
            serde_json::json!([{ "name": "fast", "multus": { "networkName": "n" } }]);
    });
    // The pod has no interface of that name.
    let plan = plan(&vmi, &observed()).unwrap();
    assert_eq!(plan.plumbing, Plumbing::default());
    assert_eq!((plan.interfaces.len(), plan.dhcp.len()), (0, 0));
    let status = &plan.status[0];
    assert_eq!(status.name.as_deref(), Some("fast"));
    assert_eq!(status.mac.as_deref(), Some("02:00:00:00:00:05"));
    let in_pod = model::pod_interface_name("fast");
    assert_eq!(status.pod_interface_name, Some(in_pod));
}

#[test]
fn errors_have_stable_reasons() {
    type Change = fn(&mut serde_json::Value);
    let cases: [(&str, Change); 22] = [
        ("DomainNotRenderable", |json| {
            *interface(json) = serde_json::json!({ "name": "default", "sriov": {} });
        }),
        ("NetworkBindingNotOfPod", |json| {
            by_plugin(json, "unknown");
        }),
        ("DomainNotRenderable", |json| {
            *interface(json) = serde_json::json!({ "name": "default" });
        }),
        ("NoSuchNetwork", |json| {
            json["spec"]["networks"][0]["name"] = "other".into();
        }),
        ("DomainNotRenderable", |json| {
            json["spec"]["networks"][0] =
                serde_json::json!({ "name": "default", "resourceClaim": {} });
        }),
        ("DomainNotRenderable", |json| {
            let network = serde_json::json!({ "networkName": "n", "default": true });
            json["spec"]["networks"][0] =
                serde_json::json!({ "name": "default", "multus": network });
        }),
        ("NetworkNotAttached", |json| {
            json["spec"]["networks"][0] =
                serde_json::json!({ "name": "default", "multus": { "networkName": "n" } });
        }),
        ("SecondInterface", |json| {
            let first = interface(json).clone();
            json["spec"]["domain"]["devices"]["interfaces"] = serde_json::json!([first, first]);
        }),
        ("SecondInterface", |json| {
            let first = interface(json).clone();
            bridged(json);
            let second = interface(json).clone();
            json["spec"]["domain"]["devices"]["interfaces"] = serde_json::json!([first, second]);
        }),
        ("BadNetworkCidr", |json| cidr(json, "10.0.2.0")),
        ("BadNetworkCidr", |json| cidr(json, "10.0.2.0/31")),
        ("BadNetworkCidr", |json| cidr(json, "10.0.2.0/32")),
        ("BadNetworkCidr", |json| cidr(json, "fd77::/64")),
        ("BadMacAddress", |json| {
            interface(json)["macAddress"] = "02:00:00:00:00:00".into();
        }),
        ("BadMacAddress", |json| {
            interface(json)["macAddress"] = "01:00:00:00:00:01".into();
        }),
        ("BadMacAddress", |json| {
            interface(json)["macAddress"] = "de:ad".into();
        }),
        ("BadMacAddress", |json| {
            bridged(json);
            interface(json)["macAddress"] = "52:81:b8:38:4f:52".into();
        }),
        ("BadMacAddress", |json| {
            bridged(json);
            interface(json)["macAddress"] = "02:00:00:00:00:00".into();
        }),
        ("BadPort", |json| {
            interface(json)["ports"] = serde_json::json!([{ "port": 0 }]);
        }),
        ("BadPort", |json| {
            interface(json)["ports"] = serde_json::json!([{ "port": 65536 }]);
        }),
        ("BadPort", |json| {
            interface(json)["ports"] = serde_json::json!([{ "port": 1, "protocol": "SCTP" }]);
        }),
        ("BadPort", |json| {
            interface(json)["portRanges"] =
                serde_json::json!([{ "protocol": "TCP", "start": 9, "end": 8 }]);
        }),
    ];
    for (reason, change) in cases {
        let vmi = vmi(change);
        let error = plan(&vmi, &observed()).unwrap_err();
        assert_eq!(
            error.reason().as_str(),
            reason,
            "{error}: {:?}",
            vmi.spec.networks
        );
    }
    let mut bare = observed();
    bare.interfaces[0].ipv4 = None;
    let error = plan(&vmi(|_| ()), &bare).unwrap_err();
    assert_eq!(error.reason(), "PodHasNoAddress");
}

#[test]
fn ipv6_network_leaves_two_bits_to_hosts_and_is_of_no_link() {
    let of = |text: &str| {
        let vmi = vmi(|json| {
            json["spec"]["networks"][0]["pod"]["vmIPv6NetworkCIDR"] = text.into();
        });
        let planned = plan(&vmi, &dual());
        planned.map(|plan| plan.ipv6[0].address.to_string())
    };
    assert_eq!(of("fd77::/126").unwrap(), "fd77::2");
    for bad in [
        "fd77::",
        "fd77::/127",
        "10.0.2.0/24",
        "fe80::/64",
        "ff02::/64",
    ] {
        assert_eq!(of(bad).unwrap_err().reason(), "BadNetworkCidr", "{bad}");
    }
}

fn cidr(json: &mut serde_json::Value, text: &str) {
    json["spec"]["networks"][0]["pod"]["vmNetworkCIDR"] = text.into();
}

#[test]
fn dhcp_options_are_those_of_the_server() {
    let vmi = vmi(|json| {
        interface(json)["dhcpOptions"] = serde_json::json!({ "bootFileName": "x" });
    });
    let plan = plan(&vmi, &observed()).unwrap();
    let file = |server: &DhcpServer| server.boot.file.clone();
    let files: Vec<_> = plan.dhcp.iter().map(file).collect();
    assert_eq!(files, [Some("x".to_owned())]);
}

#[test]
fn leading_zeros_of_a_network_are_ignored() {
    for (text, gateway) in [
        ("10.10.010.0/24", "10.10.10.1/24"),
        ("010.000.02.0/24", "10.0.2.1/24"),
    ] {
        let plan = plan(&vmi(|json| cidr(json, text)), &observed()).unwrap();
        let addresses = &plan.plumbing.bridges[0].addresses;
        assert_eq!(addresses, &[gateway.parse().unwrap()], "{text}");
    }
    for text in ["10.0.2/24", "10..2.0/24", "x.0.2.0/24", "10.0.2.0"] {
        let error = plan(&vmi(|json| cidr(json, text)), &observed()).unwrap_err();
        assert_eq!(error.reason(), "BadNetworkCidr", "{text}");
    }
}

#[test]
fn smallest_network_has_gateway_and_guest() {
    let plan = plan(&vmi(|json| cidr(json, "192.168.7.4/30")), &observed()).unwrap();
    assert_eq!(
        plan.plumbing.bridges[0].addresses,
        ["192.168.7.5/30".parse().unwrap()]
    );
    assert_eq!(plan.dhcp[0].address.to_string(), "192.168.7.6");
}

#[test]
fn host_names_fit_a_label() {
    let long = "a".repeat(80);
    let dashed = format!("{}-x", "a".repeat(62));
    let cases = [
        ("b1", "b1"),
        ("web.example", "web"),
        (&long, &long[..63]),
        (&dashed, &dashed[..62]),
    ];
    for (name, expected) in cases {
        let vmi = vmi(|json| json["metadata"]["name"] = name.into());
        assert_eq!(plan(&vmi, &observed()).unwrap().dhcp[0].host_name, expected);
    }
    let mut crowded = observed();
    crowded.interfaces[0].routes = vec![crowded.interfaces[0].routes[0]; 20];
    let error = plan(&vmi(bridged), &crowded).unwrap_err();
    assert_eq!(error.reason(), "TooManyRoutes");
}

/// The guest has the pod network and two secondary networks; the first in the list is secondary.
fn on_three_networks() -> VirtualMachineInstance {
    vmi(|json| {
        json["spec"]["domain"]["devices"]["interfaces"] = serde_json::json!([
            { "name": "blue", "bridge": {}, "macAddress": "02:00:00:00:00:0b" },
            { "name": "default", "masquerade": {} },
            { "name": "red", "bridge": {} },
            { "name": "gone", "bridge": {}, "state": "absent" },
        ]);
        json["spec"]["networks"] = serde_json::json!([
            { "name": "default", "pod": {} },
            { "name": "blue", "multus": { "networkName": "blue-net" } },
            { "name": "red", "multus": { "networkName": "other/red-net" } },
            { "name": "gone", "multus": { "networkName": "gone-net" } },
        ]);
    })
}

fn secondary(network: &str, mac: &str) -> PodInterface {
    PodInterface {
        name: model::pod_interface_name(network),
        mac: mac.parse().unwrap(),
        mtu: 9000,
        ipv4: None,
        ipv6: None,
        routes: vec![],
        receives_own_only: false,
    }
}

#[test]
fn secondary_networks_are_plumbed_beside_the_pod_network() {
    let mut observed = observed();
    let blue = secondary("blue", "52:00:00:00:00:01");
    let mut red = secondary("red", "52:00:00:00:00:02");
    red.ipv4 = Some(("10.77.0.5".parse().unwrap(), 16));
    observed.interfaces.extend([red, blue]);
    let plan = plan(&on_three_networks(), &observed).unwrap();
    insta::assert_snapshot!(text(&plan));
    let names: Vec<_> = plan.interfaces.iter().map(|one| &*one.name).collect();
    assert_eq!(names, ["blue", "default", "red"], "the order of the VMI");
    let status: Vec<_> = plan
        .status
        .iter()
        .filter_map(|one| one.name.as_deref())
        .collect();
    assert_eq!(status, ["default", "blue", "red"], "the primary one first");
    let vmi = on_three_networks();
    let names = pod_interfaces(&Guest::of(&vmi), "eth0");
    let of = model::pod_interface_name;
    assert_eq!(names, [of("blue"), "eth0".to_owned(), of("red")]);
}

/// A macvlan receives only frames to its own address, so it has that of the guest.
#[test]
fn link_that_filters_by_its_address_has_that_of_the_guest() {
    let mut observed = observed();
    for network in ["blue", "red"] {
        let mut one = secondary(network, "52:00:00:00:00:02");
        one.receives_own_only = true;
        observed.interfaces.push(one);
    }
    let plan = plan(&on_three_networks(), &observed).unwrap();
    let given: Vec<_> = plan
        .plumbing
        .given
        .iter()
        .map(|one| one.mac.to_string())
        .collect();
    assert_eq!(given, ["02:00:00:00:00:0b", "52:00:00:00:00:02"]);
    let shared = &plan.plumbing.shared_addresses;
    let taps: Vec<_> = shared.iter().map(|one| (&*one.port, &*one.tap)).collect();
    assert_eq!(
        taps,
        [
            ("16477688c0e-nic", "tap16477688c0e"),
            ("b1f51a511f1-nic", "tapb1f51a511f1")
        ]
    );
    let macs: Vec<_> = shared.iter().map(|one| one.mac).collect();
    let guest: Vec<_> = plan.interfaces.iter().map(|one| one.mac).collect();
    assert_eq!(macs, [guest[0], guest[2]]);
    let bound: Vec<&str> = plan.bound_interfaces().collect();
    assert_eq!(bound, ["blue", "red"]);
}

#[test]
fn default_network_of_multus_takes_the_place_of_the_pod_network() {
    let vmi = vmi(|json| {
        bridged(json);
        let network = serde_json::json!({ "networkName": "n", "default": true });
        json["spec"]["networks"][0] = serde_json::json!({ "name": "default", "multus": network });
    });
    let plan = plan(&vmi, &observed()).unwrap();
    assert_eq!(plan.interfaces[0].tap.as_deref(), Some("tap0"));
    assert_eq!(plan.status[0].pod_interface_name.as_deref(), Some("eth0"));
    assert_eq!(plan.dhcp.len(), 1);
}

/// Its DHCP server answers to that address only.
#[test]
fn guest_keeps_its_hardware_address_in_another_pod() {
    let with_status = |mac: &str| {
        vmi(|json| {
            json["status"] = serde_json::json!({ "interfaces": [
                { "name": "other", "mac": "02:00:00:00:00:0c" },
                { "name": "default", "mac": mac },
            ] });
        })
    };
    let own = observed().interfaces[0].mac.to_string();
    for (mac, expected) in [
        ("02:00:00:00:00:0b", "02:00:00:00:00:0b"),
        ("", &*own),
        ("ff:ff:ff:ff:ff:ff", &*own),
    ] {
        let plan = plan(&with_status(mac), &observed()).unwrap();
        assert_eq!(plan.interfaces[0].mac.to_string(), expected);
        assert_eq!(plan.dhcp[0].client_mac, expected);
        assert_eq!(plan.status[0].mac.as_deref(), Some(expected));
    }
}

/// Some plugins have another interface than `eth0` on the default network, and report it.
#[test]
fn primary_interface_has_the_name_that_the_plugin_reports() {
    let mut observed = observed();
    observed.primary = "ovn-udn1".to_owned();
    let error = plan(&vmi(|_| ()), &observed).unwrap_err();
    assert_eq!(error.reason(), "NetworkNotAttached");
    observed.interfaces[0].name = "ovn-udn1".to_owned();
    let plan = plan(&vmi(|_| ()), &observed).unwrap();
    assert_eq!(plan.plumbing.bridges[0].name, "k6t-ovn-udn1");
    assert_eq!(plan.interfaces[0].tap.as_deref(), Some("tap0"));
    assert_eq!(
        plan.status[0].pod_interface_name.as_deref(),
        Some("ovn-udn1")
    );
}
