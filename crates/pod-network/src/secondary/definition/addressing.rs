//! The addresses and routes of pods on a secondary network: those of the plugins `static` and `host-local`.

use std::net::{IpAddr, Ipv4Addr};

use net_plan::Cidr;
use serde_json::Value;

use super::{AddressRange, Addressing, DefinitionError, NetworkRoute, settings::Settings};

pub(super) fn addressing(ipam: Option<Value>) -> Result<Addressing, DefinitionError> {
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
