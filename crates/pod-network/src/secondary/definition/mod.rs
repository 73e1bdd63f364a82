//! The configuration in a network attachment definition: parsed, or refused with the setting's name.
//!
//! `addressing` reads the addresses of pods; `settings` is what both read from.

mod addressing;
mod settings;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv4Addr};

use host_net::{MacvlanMode, PortVlan};
use net_plan::Cidr;
use reasons::Reason;
use serde_json::{Map, Value};

use self::{addressing::addressing, settings::Settings};

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
