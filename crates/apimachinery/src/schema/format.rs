//! The string formats that are checked; an unknown one says nothing.

use std::net::{Ipv4Addr, Ipv6Addr};

use base64::Engine as _;

pub(super) fn holds(format: &str, text: &str) -> bool {
    match format {
        "date-time" | "datetime" => text.parse::<jiff::Timestamp>().is_ok(),
        "date" => text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok(),
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => is_cidr(text),
        "mac" => is_mac(text),
        "uuid" | "uuid3" | "uuid4" | "uuid5" => is_uuid(text),
        "byte" => base64::engine::general_purpose::STANDARD
            .decode(text)
            .is_ok(),
        "hostname" => crate::names::dns_subdomain(&text.to_lowercase()).is_empty(),
        "email" => text
            .split_once('@')
            .is_some_and(|(user, host)| !user.is_empty() && !host.is_empty()),
        _ => true,
    }
}

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else {
        return false;
    };
    let bits = bits.parse::<u8>().ok();
    let fits = |max: u8| bits.is_some_and(|bits| bits <= max);
    (address.parse::<Ipv4Addr>().is_ok() && fits(32))
        || (address.parse::<Ipv6Addr>().is_ok() && fits(128))
}

fn is_mac(text: &str) -> bool {
    let separator = if text.contains('-') { '-' } else { ':' };
    let pair = |part: &str| part.len() == 2 && part.bytes().all(|b| b.is_ascii_hexdigit());
    let parts: Vec<&str> = text.split(separator).collect();
    matches!(parts.len(), 6 | 8 | 20) && parts.into_iter().all(pair)
}

fn is_uuid(text: &str) -> bool {
    let hex = text.replace('-', "");
    hex.len() == 32 && matches!(text.len(), 32 | 36) && hex.bytes().all(|b| b.is_ascii_hexdigit())
}
