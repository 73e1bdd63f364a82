use serde_json::json;

use super::*;

fn parse(config: &Value) -> Result<Definition, DefinitionError> {
    Definition::parse("lan", &config.to_string())
}

fn plain_bridge(name: &str) -> BridgeDefinition {
    BridgeDefinition {
        name: name.to_owned(),
        vlan: None,
        hairpin: false,
        interface_is_down: false,
    }
}

fn link(config: &Value) -> LinkDefinition {
    parse(config).unwrap().link
}

#[test]
fn bridges_with_their_settings() {
    let vlan = |id, keeps_default| Some(PortVlan { id, keeps_default });
    for (config, expected) in [
        (json!({"type": "bridge"}), plain_bridge("cni0")),
        (
            json!({"cniVersion": "0.3.1", "name": "n", "type": "bridge", "bridge": "br1",
                "isGateway": false, "ipam": {}, "vlanTrunk": [], "promiscMode": false}),
            plain_bridge("br1"),
        ),
        (
            json!({"type": "bridge", "bridge": "br1", "vlan": 120}),
            BridgeDefinition {
                vlan: vlan(120, true),
                ..plain_bridge("br1")
            },
        ),
        (
            json!({"type": "bridge", "bridge": "br1", "vlan": 1, "preserveDefaultVlan": false}),
            BridgeDefinition {
                vlan: vlan(1, false),
                ..plain_bridge("br1")
            },
        ),
        (
            json!({"type": "bridge", "vlan": 0, "hairpinMode": true,
                "disableContainerInterface": true}),
            BridgeDefinition {
                hairpin: true,
                interface_is_down: true,
                ..plain_bridge("cni0")
            },
        ),
        (
            json!({"name": "n", "plugins": [
                {"type": "bridge", "bridge": "br1"},
                {"type": "tuning", "capabilities": {"mac": true}},
            ]}),
            plain_bridge("br1"),
        ),
    ] {
        assert_eq!(link(&config), LinkDefinition::Bridge(expected), "{config}");
    }
    let named = parse(&json!({"type": "bridge", "mtu": 9000})).unwrap();
    assert_eq!((&*named.name, named.mtu), ("lan", Some(9000)));
}

#[test]
fn macvlans_with_their_settings() {
    for (config, master, mode) in [
        (json!({"type": "macvlan"}), None, MacvlanMode::Bridge),
        (
            json!({"type": "macvlan", "master": "eth1", "mode": "passthru"}),
            Some("eth1"),
            MacvlanMode::Passthru,
        ),
        (
            json!({"type": "macvlan", "mode": "vepa", "linkInContainer": false}),
            None,
            MacvlanMode::Vepa,
        ),
    ] {
        let master = master.map(ToOwned::to_owned);
        assert_eq!(link(&config), LinkDefinition::Macvlan { master, mode });
    }
}

#[test]
fn addresses_of_a_network() {
    let addressing = |ipam: Value| {
        let config = json!({"type": "bridge", "ipam": ipam});
        parse(&config).unwrap().addressing
    };
    for none in [json!(null), json!({}), json!({"type": ""})] {
        assert_eq!(addressing(none), Addressing::None);
    }
    let route = |destination: &str, via: Option<&str>| NetworkRoute {
        destination: destination.parse().unwrap(),
        via: via.map(|via| via.parse().unwrap()),
    };
    assert_eq!(
        addressing(json!({"type": "static",
            "addresses": [{"address": "10.77.0.5/24", "gateway": "10.77.0.1"}],
            "routes": [{"dst": "0.0.0.0/0", "gw": "10.77.0.1"}, {"dst": "10.0.0.0/8"}]})),
        Addressing::Static {
            addresses: vec!["10.77.0.5/24".parse().unwrap()],
            routes: vec![
                route("0.0.0.0/0", Some("10.77.0.1")),
                route("10.0.0.0/8", None)
            ],
        }
    );
    let range = |first: &str, last: &str, gateway: &str| AddressRange {
        subnet: "10.77.0.0/24".parse().unwrap(),
        first: first.parse().unwrap(),
        last: last.parse().unwrap(),
        gateway: gateway.parse().unwrap(),
    };
    for (ipam, expected) in [
        (
            json!({"type": "host-local", "subnet": "10.77.0.0/24"}),
            range("10.77.0.2", "10.77.0.254", "10.77.0.1"),
        ),
        (
            json!({"type": "host-local", "subnet": "10.77.0.0/24", "gateway": "10.77.0.254"}),
            range("10.77.0.1", "10.77.0.254", "10.77.0.254"),
        ),
        (
            json!({"type": "host-local", "ranges": [[{"subnet": "10.77.0.0/24",
                "rangeStart": "10.77.0.20", "rangeEnd": "10.77.0.29"}]]}),
            range("10.77.0.20", "10.77.0.29", "10.77.0.1"),
        ),
    ] {
        let Addressing::Leased { range, routes } = addressing(ipam.clone()) else {
            panic!("{ipam}")
        };
        assert_eq!((range, routes), (expected, vec![]), "{ipam}");
    }
}

fn with(mut object: Value, more: Value) -> Value {
    let (Value::Object(members), Value::Object(more)) = (&mut object, more) else {
        panic!("no objects");
    };
    members.extend(more);
    object
}

fn bridge(more: Value) -> Value {
    with(json!({"type": "bridge"}), more)
}

fn leased(more: Value) -> Value {
    let ipam = json!({"type": "host-local", "subnet": "10.77.0.0/24"});
    bridge(json!({"ipam": with(ipam, more)}))
}

fn check_refused(config: &Value, named: &str, reason: Reason) {
    let error = parse(config).unwrap_err();
    assert!(error.to_string().contains(named), "{error}");
    assert_eq!(error.reason(), reason, "{error}");
}

#[test]
fn what_this_host_does_not_do_is_refused_by_name() {
    for (config, named) in [
        (json!({"type": "ovs"}), "\"ovs\""),
        (json!({}), "type \"\""),
        (bridge(json!({"isGateway": true})), "isGateway"),
        (bridge(json!({"macspoofchk": true})), "macspoofchk"),
        (bridge(json!({"vlanTrunk": [{"id": 1}]})), "vlanTrunk"),
        (
            bridge(json!({"ipam": {"type": "dhcp"}})),
            "ipam.type \"dhcp\"",
        ),
        (
            bridge(json!({"disableContainerInterface": true,
                "ipam": {"type": "host-local", "subnet": "10.77.0.0/24"}})),
            "ipam together with disableContainerInterface",
        ),
        (leased(json!({"dataDir": "/x"})), "ipam.dataDir"),
        (
            json!({"plugins": [{"type": "bridge"}, {"type": "firewall"}]}),
            "\"firewall\"",
        ),
    ] {
        check_refused(&config, named, Reason::NetworkDefinitionNotSupported);
    }
}

#[test]
fn invalid_values_are_refused_with_their_setting() {
    for (config, named) in [
        (bridge(json!({"vlan": 4095})), "vlan 4095"),
        (bridge(json!({"mtu": "x"})), "mtu \"x\""),
        (bridge(json!({"bridge": 1})), "bridge 1"),
        (bridge(json!({"ipam": "x"})), "ipam \"x\""),
        (leased(json!({"subnet": "fd00::/64"})), "ipam.subnet"),
        (leased(json!({"subnet": "10.0.0.0/31"})), "ipam.subnet"),
        (
            leased(json!({"rangeStart": "10.78.0.1"})),
            "ipam.rangeStart",
        ),
        (leased(json!({"ranges": [[], []]})), "ipam.ranges"),
        (
            leased(json!({"routes": [{"dst": "x"}]})),
            "ipam.routes[0].dst",
        ),
        (json!({"type": "macvlan", "mode": "x"}), "mode \"x\""),
        (json!({"plugins": []}), "plugins"),
    ] {
        check_refused(&config, named, Reason::NetworkDefinitionInvalid);
    }
    for text in ["", "x", "[]"] {
        let error = Definition::parse("lan", text).unwrap_err();
        assert_eq!(error.reason(), Reason::NetworkDefinitionInvalid, "{error}");
    }
}

#[test]
fn messages_about_long_settings_are_short() {
    for long in [
        bridge(json!({"bridge": ["x".repeat(9999)]})),
        bridge(json!({"x".repeat(9999): 1})),
        json!({"type": "x".repeat(9999)}),
    ] {
        let error = parse(&long).unwrap_err().to_string();
        assert!(error.len() < 300, "{error}");
    }
}

proptest::proptest! {
    /// Any text gives a network or an error with a reason.
    #[test]
    fn parsing_never_fails_otherwise(
        name in "type|bridge|vlan|ipam|mtu|plugins|routes|subnet|x",
        value in ".{0,40}",
        number in proptest::num::u64::ANY,
    ) {
        let texts = [
            value.clone(),
            json!({"type": "bridge", &*name: value}).to_string(),
            json!({"type": "macvlan", &*name: number}).to_string(),
            json!({"type": "bridge", "ipam": {"type": "host-local", &*name: value}}).to_string(),
            json!({"plugins": [{"type": "bridge", &*name: [number]}]}).to_string(),
        ];
        for text in texts {
            if let Err(error) = Definition::parse("lan", &text) {
                proptest::prop_assert!(!error.to_string().is_empty());
            }
        }
    }
}
