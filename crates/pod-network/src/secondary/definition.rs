//! The configuration in a network attachment definition: parsed, or refused with the setting's name.

use std::net::{IpAddr, Ipv4Addr};

use host_net::{MacvlanMode, PortVlan};
use net_plan::Cidr;
use reasons::Reason;
use serde_json::{Map, Value};

/// The bridge of a network that names none, as the plugin of that type has it.
const USUAL_BRIDGE: &str = "cni0";
const MAX_VLAN: u64 = 4094;
/// Maximum of characters of a setting in a message.
const MAX_SHOWN: usize = 100;
const MTU: std::ops::RangeInclusive<u64> = 68..=65535;

/// A secondary network that this host can carry out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    /// Networks of one name share the leases of their range.
    pub(crate) name: String,
    pub(crate) link: LinkDefinition,
    pub(crate) mtu: Option<u32>,
    pub(crate) addressing: Addressing,
}

/// How the pod's interface is connected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LinkDefinition {
    Bridge(BridgeDefinition),
    Macvlan {
        /// `None`: the link of the host's default route.
        master: Option<String>,
        mode: MacvlanMode,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BridgeDefinition {
    pub(crate) name: String,
    pub(crate) vlan: Option<PortVlan>,
    pub(crate) hairpin: bool,
    /// The pod's interface stays down until the pod sets it up.
    pub(crate) interface_is_down: bool,
}

/// The addresses of the pod's interface.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Addressing {
    #[default]
    None,
    /// The same for every pod.
    Static {
        addresses: Vec<Cidr>,
        routes: Vec<NetworkRoute>,
    },
    /// One of a range.
    Leased {
        range: AddressRange,
        routes: Vec<NetworkRoute>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NetworkRoute {
    pub(crate) destination: Cidr,
    /// `None`: on the link.
    pub(crate) via: Option<IpAddr>,
}

/// The addresses `first` to `last` of a network, without its gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AddressRange {
    pub(crate) subnet: Cidr,
    pub(crate) first: Ipv4Addr,
    pub(crate) last: Ipv4Addr,
    pub(crate) gateway: Ipv4Addr,
}

/// Why this host cannot carry a definition out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DefinitionError {
    #[error("spec.config is not a JSON object: {problem}")]
    Malformed { problem: String },
    #[error(
        "spec.config: type {:?} does not exist on a single host; use bridge or macvlan", shown(.plugin)
    )]
    UnknownPlugin { plugin: String },
    #[error("spec.config: {} is not supported on a single host; leave it out", shown(.setting))]
    UnknownSetting { setting: String },
    #[error("spec.config: {setting} {} is not {wanted}", shown(.value))]
    BadValue {
        setting: String,
        value: String,
        wanted: &'static str,
    },
}

/// The beginning of a text, for messages that become part of statuses.
fn shown(text: &str) -> String {
    text.chars().take(MAX_SHOWN).collect()
}

impl DefinitionError {
    pub fn reason(&self) -> Reason {
        match self {
            Self::Malformed { .. } | Self::BadValue { .. } => Reason::NetworkDefinitionInvalid,
            Self::UnknownPlugin { .. } | Self::UnknownSetting { .. } => {
                Reason::NetworkDefinitionNotSupported
            }
        }
    }
}

impl Definition {
    /// Parses the text of `spec.config`; `name` is that of the object.
    pub fn parse(name: &str, config: &str) -> Result<Self, DefinitionError> {
        let malformed = |problem: String| DefinitionError::Malformed { problem };
        let config: Value =
            serde_json::from_str(config).map_err(|error| malformed(error.to_string()))?;
        let Value::Object(mut config) = config else {
            return Err(malformed("it is of another type".to_owned()));
        };
        if let Some(plugins) = config.remove("plugins") {
            let first = only_plugin(plugins)?;
            config.extend(first);
        }
        let mut settings = Settings {
            path: String::new(),
            left: config,
        };
        let plugin = settings.text("type")?.unwrap_or_default();
        // What they say holds for every network here, or concerns the calls of a plugin.
        for member in ["cniVersion", "cniVersions", "capabilities", "disableCheck"] {
            settings.left.remove(member);
        }
        let definition = Self {
            name: settings.text("name")?.unwrap_or_else(|| name.to_owned()),
            mtu: settings.number("mtu", &MTU)?,
            addressing: addressing(settings.left.remove("ipam"))?,
            link: match &*plugin {
                "bridge" => LinkDefinition::Bridge(bridge(&mut settings)?),
                "macvlan" => macvlan(&mut settings)?,
                _ => return Err(DefinitionError::UnknownPlugin { plugin }),
            },
        };
        if let LinkDefinition::Bridge(bridge) = &definition.link
            && bridge.interface_is_down
            && definition.addressing != Addressing::None
        {
            let setting = "ipam together with disableContainerInterface".to_owned();
            return Err(DefinitionError::UnknownSetting { setting });
        }
        settings.end()?;
        Ok(definition)
    }
}

/// The one plugin of a chain. Behind it a `tuning` without settings may stand, as in many definitions: it
/// only allows a pod to choose its hardware address, which every pod may here.
fn only_plugin(plugins: Value) -> Result<Map<String, Value>, DefinitionError> {
    let bad = |value: String| DefinitionError::BadValue {
        setting: "plugins".to_owned(),
        value,
        wanted: "a list of objects",
    };
    let plugins: Vec<Map<String, Value>> =
        serde_json::from_value(plugins).map_err(|error| bad(error.to_string()))?;
    let mut plugins = plugins.into_iter();
    let first = plugins.next().ok_or_else(|| bad("[]".to_owned()))?;
    for other in plugins {
        let does_nothing = other.get("type") == Some(&"tuning".into())
            && other
                .keys()
                .all(|key| key == "type" || key == "capabilities");
        if !does_nothing {
            let kind = other.get("type").and_then(Value::as_str);
            let setting = format!(
                "plugins: a second one of type {:?}",
                kind.unwrap_or_default()
            );
            return Err(DefinitionError::UnknownSetting { setting });
        }
    }
    Ok(first)
}

fn bridge(settings: &mut Settings) -> Result<BridgeDefinition, DefinitionError> {
    let name = settings.text("bridge")?;
    let keeps_default = settings.flag("preserveDefaultVlan")?.unwrap_or(true);
    let vlan = settings.number("vlan", &(0..=MAX_VLAN))?;
    let id = vlan.and_then(|id| u16::try_from(id).ok());
    Ok(BridgeDefinition {
        name: name.unwrap_or_else(|| USUAL_BRIDGE.to_owned()),
        vlan: id
            .filter(|id| *id > 0)
            .map(|id| PortVlan { id, keeps_default }),
        hairpin: settings.flag("hairpinMode")? == Some(true),
        interface_is_down: settings.flag("disableContainerInterface")? == Some(true),
    })
}

fn macvlan(settings: &mut Settings) -> Result<LinkDefinition, DefinitionError> {
    let mode = settings.text("mode")?.unwrap_or_default();
    Ok(LinkDefinition::Macvlan {
        master: settings.text("master")?,
        mode: match &*mode {
            "" | "bridge" => MacvlanMode::Bridge,
            "private" => MacvlanMode::Private,
            "vepa" => MacvlanMode::Vepa,
            "passthru" => MacvlanMode::Passthru,
            _ => {
                let wanted = "one of bridge, private, vepa and passthru";
                return Err(settings.bad("mode", &mode.into(), wanted));
            }
        },
    })
}

fn addressing(ipam: Option<Value>) -> Result<Addressing, DefinitionError> {
    let left = match ipam {
        None | Some(Value::Null) => return Ok(Addressing::None),
        Some(Value::Object(left)) => left,
        Some(other) => {
            return Err(DefinitionError::BadValue {
                setting: "ipam".to_owned(),
                value: other.to_string(),
                wanted: "an object",
            });
        }
    };
    let mut settings = Settings {
        path: "ipam.".to_owned(),
        left,
    };
    let found = match settings.text("type")?.as_deref() {
        None | Some("") => Addressing::None,
        Some("static") => Addressing::Static {
            addresses: static_addresses(&mut settings)?,
            routes: routes(&mut settings)?,
        },
        Some("host-local") => Addressing::Leased {
            range: range(&mut settings)?,
            routes: routes(&mut settings)?,
        },
        Some(other) => {
            let setting = format!("ipam.type {other:?}");
            return Err(DefinitionError::UnknownSetting { setting });
        }
    };
    settings.end()?;
    Ok(found)
}

fn static_addresses(settings: &mut Settings) -> Result<Vec<Cidr>, DefinitionError> {
    let mut all = Vec::new();
    for mut one in settings.objects("addresses")? {
        let address = one.text("address")?.unwrap_or_default();
        // A pod gets its routes from the list of routes.
        one.text("gateway")?;
        let wanted = "an address with the length of its network, such as 10.77.0.5/24";
        let parsed = address.parse();
        all.push(parsed.map_err(|_| one.bad("address", &address.into(), wanted))?);
        one.end()?;
    }
    Ok(all)
}

fn routes(settings: &mut Settings) -> Result<Vec<NetworkRoute>, DefinitionError> {
    let mut all = Vec::new();
    for mut one in settings.objects("routes")? {
        let destination = one.text("dst")?.unwrap_or_default();
        let wanted = "a network such as 10.0.0.0/8";
        let parsed = destination.parse();
        let destination = parsed.map_err(|_| one.bad("dst", &destination.into(), wanted))?;
        let via = one.parsed("gw", "an address")?;
        one.end()?;
        all.push(NetworkRoute { destination, via });
    }
    Ok(all)
}

/// One range of IPv4 addresses, in either form of the plugin.
fn range(settings: &mut Settings) -> Result<AddressRange, DefinitionError> {
    let Some(ranges) = settings.left.remove("ranges") else {
        return range_in(settings);
    };
    let only = match ranges.as_array().map(Vec::as_slice) {
        Some([Value::Array(set)]) => match set.as_slice() {
            [Value::Object(only)] => Some(only.clone()),
            _ => None,
        },
        _ => None,
    };
    let Some(left) = only else {
        return Err(settings.bad("ranges", &ranges, "a list of one list of one range"));
    };
    let mut only = Settings {
        path: format!("{}ranges[0][0].", settings.path),
        left,
    };
    let range = range_in(&mut only)?;
    only.end()?;
    Ok(range)
}

fn range_in(settings: &mut Settings) -> Result<AddressRange, DefinitionError> {
    let text = settings.text("subnet")?.unwrap_or_default();
    let wanted = "an IPv4 network such as 10.77.0.0/24";
    let bad = |settings: &Settings| settings.bad("subnet", &text.clone().into(), wanted);
    let subnet: Cidr = text.parse().map_err(|_| bad(settings))?;
    let subnet = subnet.network();
    let host = |n| match subnet.nth(n) {
        Some(IpAddr::V4(address)) => Some(address),
        _ => None,
    };
    // No pod gets the network's own address or the broadcast address.
    let count = 1_u32
        .checked_shl(subnet.host_bits().into())
        .unwrap_or(u32::MAX);
    let (Some(first), Some(second), Some(last)) = (host(1), host(2), host(count.saturating_sub(2)))
    else {
        return Err(bad(settings));
    };
    if count < 4 {
        return Err(bad(settings));
    }
    let gateway = settings.parsed("gateway", "an IPv4 address")?;
    let start = settings.parsed("rangeStart", "an IPv4 address")?;
    let end = settings.parsed("rangeEnd", "an IPv4 address")?;
    let is_usual = gateway.is_none() && start.is_none();
    let range = AddressRange {
        subnet,
        first: start.unwrap_or(if is_usual { second } else { first }),
        last: end.unwrap_or(last),
        gateway: gateway.unwrap_or(first),
    };
    let is_inside = |address: Ipv4Addr| subnet.contains(address.into());
    if range.first > range.last || !is_inside(range.first) || !is_inside(range.last) {
        let value = format!("{} to {}", range.first, range.last).into();
        return Err(settings.bad("rangeStart", &value, "a range in the subnet"));
    }
    Ok(range)
}

/// The settings that are left to read.
struct Settings {
    /// Of the object, with a final dot.
    path: String,
    left: Map<String, Value>,
}

impl Settings {
    fn bad(&self, setting: &str, value: &Value, wanted: &'static str) -> DefinitionError {
        DefinitionError::BadValue {
            setting: format!("{}{setting}", self.path),
            value: value.to_string(),
            wanted,
        }
    }

    fn text(&mut self, name: &str) -> Result<Option<String>, DefinitionError> {
        match self.left.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.bad(name, &other, "a text")),
        }
    }

    fn flag(&mut self, name: &str) -> Result<Option<bool>, DefinitionError> {
        match self.left.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(flag)),
            Some(other) => Err(self.bad(name, &other, "true or false")),
        }
    }

    fn number(
        &mut self,
        name: &str,
        range: &std::ops::RangeInclusive<u64>,
    ) -> Result<Option<u32>, DefinitionError> {
        let value = match self.left.remove(name) {
            // Plugins take zero for a missing number.
            None | Some(Value::Null) => return Ok(None),
            Some(value) if value == 0 => return Ok(None),
            Some(value) => value,
        };
        let number = value.as_u64().filter(|number| range.contains(number));
        match number.and_then(|number| u32::try_from(number).ok()) {
            Some(number) => Ok(Some(number)),
            None => Err(self.bad(name, &value, "a number in its range")),
        }
    }

    fn parsed<T: std::str::FromStr>(
        &mut self,
        name: &str,
        wanted: &'static str,
    ) -> Result<Option<T>, DefinitionError> {
        let Some(text) = self.text(name)?.filter(|text| !text.is_empty()) else {
            return Ok(None);
        };
        let parsed = text.parse();
        parsed
            .map(Some)
            .map_err(|_| self.bad(name, &text.into(), wanted))
    }

    fn objects(&mut self, name: &str) -> Result<Vec<Self>, DefinitionError> {
        let Some(list) = self.left.remove(name).filter(|list| !list.is_null()) else {
            return Ok(Vec::new());
        };
        let objects: Vec<Map<String, Value>> = serde_json::from_value(list.clone())
            .map_err(|_| self.bad(name, &list, "a list of objects"))?;
        let settings = |(index, left)| Self {
            path: format!("{}{name}[{index}].", self.path),
            left,
        };
        Ok(objects.into_iter().enumerate().map(settings).collect())
    }

    /// Refuses what is left, unless it asks for nothing.
    fn end(self) -> Result<(), DefinitionError> {
        let asks = |value: &Value| match value {
            Value::Null | Value::Bool(false) => false,
            Value::Bool(true) => true,
            Value::Number(number) => number.as_f64() != Some(0.0),
            Value::String(text) => !text.is_empty(),
            Value::Array(items) => !items.is_empty(),
            Value::Object(members) => !members.is_empty(),
        };
        match self.left.iter().find(|(_, value)| asks(value)) {
            None => Ok(()),
            Some((name, _)) => Err(DefinitionError::UnknownSetting {
                setting: format!("{}{name}", self.path),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
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
}
