//! The string formats that are checked; an unknown format accepts everything.

use std::net::{Ipv4Addr, Ipv6Addr};

use base64::Engine as _;

pub(super) fn holds(format: &str, text: &str) -> bool {
    match format {
        "date-time" | "datetime" => {
            text.get(10..11) == Some("T") && text.parse::<jiff::Timestamp>().is_ok()
        }
        "duration" => nanoseconds(text).is_some(),
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

/// A duration as `1h30m`, or spelled out as `5 minutes`.
pub(super) fn nanoseconds(text: &str) -> Option<i64> {
    const UNITS: [(&[&str], i64); 8] = [
        (&["ns", "nano"], 1),
        (&["us", "µs", "μs", "micro"], 1_000),
        (&["ms", "milli"], 1_000_000),
        (&["s", "sec", "secs", "second", "seconds"], 1_000_000_000),
        (&["m", "min", "mins", "minute", "minutes"], 60_000_000_000),
        (&["h", "hr", "hrs", "hour", "hours"], 3_600_000_000_000),
        (&["d", "day", "days"], 86_400_000_000_000),
        (&["w", "wk", "week", "weeks"], 604_800_000_000_000),
    ];
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    let mut total = 0_i64;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (amount, tail) = rest.split_at(end);
        let tail = tail.trim_start();
        let end = tail
            .find(|c: char| c.is_ascii_digit() || c == '.' || c.is_whitespace())
            .unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(end);
        let (_, factor) = UNITS.iter().find(|(names, _)| names.contains(&unit))?;
        let (whole, part) = amount.split_once('.').unwrap_or((amount, ""));
        let mut value = whole.parse::<i64>().ok()?.checked_mul(*factor)?;
        let mut place = *factor;
        for digit in part.bytes() {
            place /= 10;
            value = value.checked_add(i64::from(digit.checked_sub(b'0')?) * place)?;
        }
        total = total.checked_add(value)?;
        rest = tail.trim_start();
    }
    (total != 0 || text.contains('0')).then_some(sign * total)
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
