//! Addresses as values: hardware addresses, and addresses with a prefix.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

/// An Ethernet address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MacAddress(pub [u8; 6]);

impl MacAddress {
    /// The fixed address of every masquerade bridge; a guest must not use it.
    pub const BRIDGE: Self = Self([2, 0, 0, 0, 0, 0]);

    /// Whether one station can own this address: it is neither a group nor zero.
    pub fn is_unicast(self) -> bool {
        self.0[0] & 1 == 0 && self.0 != [0; 6]
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, byte) in self.0.iter().enumerate() {
            let separator = if position == 0 { "" } else { ":" };
            write!(f, "{separator}{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is not six hexadecimal bytes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a MAC address such as 02:00:00:ab:cd:ef")]
pub struct BadMacAddress(pub String);

impl FromStr for MacAddress {
    type Err = BadMacAddress;

    /// Bytes separated by `:` or `-`, as the API accepts them.
    fn from_str(text: &str) -> Result<Self, BadMacAddress> {
        let bad = || BadMacAddress(text.chars().take(32).collect());
        let separator = if text.contains('-') { '-' } else { ':' };
        let mut bytes = [0; 6];
        let mut parts = text.split(separator);
        for byte in &mut bytes {
            let part = parts
                .next()
                .filter(|part| part.len() == 2)
                .ok_or_else(bad)?;
            if !part.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                return Err(bad());
            }
            *byte = u8::from_str_radix(part, 16).map_err(|_| bad())?;
        }
        if parts.next().is_some() {
            return Err(bad());
        }
        Ok(Self(bytes))
    }
}

/// An address and the length of its network's prefix: `10.0.2.1/24`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cidr {
    pub address: IpAddr,
    pub prefix_length: u8,
}

impl Cidr {
    pub fn v4(address: Ipv4Addr, prefix_length: u8) -> Self {
        Self {
            address: address.into(),
            prefix_length,
        }
    }

    pub fn v6(address: Ipv6Addr, prefix_length: u8) -> Self {
        Self {
            address: address.into(),
            prefix_length,
        }
    }

    /// The bits of the prefix, at the high end of an address' bits.
    fn mask(&self) -> u128 {
        let host_bits = u32::from(self.width().saturating_sub(self.prefix_length));
        u128::MAX.checked_shl(host_bits).unwrap_or(0)
    }

    fn width(&self) -> u8 {
        if self.address.is_ipv4() { 32 } else { 128 }
    }

    fn bits(address: IpAddr) -> u128 {
        match address {
            IpAddr::V4(address) => u128::from(address.to_bits()),
            IpAddr::V6(address) => address.to_bits(),
        }
    }

    fn with_bits(&self, bits: u128) -> IpAddr {
        match self.address {
            // The mask keeps what an IPv4 address has; a carry past it cannot be an address.
            IpAddr::V4(_) => {
                Ipv4Addr::from_bits(u32::try_from(bits & 0xffff_ffff).unwrap_or(u32::MAX)).into()
            }
            IpAddr::V6(_) => Ipv6Addr::from_bits(bits).into(),
        }
    }

    /// The network this address is in, host bits zero.
    #[must_use]
    pub fn network(&self) -> Self {
        let address = self.with_bits(Self::bits(self.address) & self.mask());
        Self {
            address,
            prefix_length: self.prefix_length,
        }
    }

    /// The `n`th address of the network (0 is the network itself), if it is still inside.
    pub fn nth(&self, n: u32) -> Option<IpAddr> {
        let base = self.network();
        let bits = Self::bits(base.address).checked_add(u128::from(n))?;
        let address = self.with_bits(bits);
        (Self::bits(address) == bits && self.contains(address)).then_some(address)
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        address.is_ipv4() == self.address.is_ipv4()
            && Self::bits(address) & self.mask() == Self::bits(self.address) & self.mask()
    }

    /// The bytes of an address that the prefix covers wholly.
    pub fn whole_bytes(&self) -> Vec<u8> {
        let bytes = match self.network().address {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        };
        let count = usize::from(self.prefix_length / 8);
        bytes.into_iter().take(count).collect()
    }

    /// Whether the two networks share an address.
    pub fn overlaps(&self, other: &Self) -> bool {
        let (wide, narrow) = if self.prefix_length <= other.prefix_length {
            (self, other)
        } else {
            (other, self)
        };
        wide.contains(narrow.address)
    }

    /// How many bits the network leaves to its hosts.
    pub fn host_bits(&self) -> u8 {
        self.width().saturating_sub(self.prefix_length)
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix_length)
    }
}

/// The text is not an address with a prefix length.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a network such as 10.0.2.0/24")]
pub struct BadCidr(pub String);

impl FromStr for Cidr {
    type Err = BadCidr;

    fn from_str(text: &str) -> Result<Self, BadCidr> {
        let bad = || BadCidr(text.chars().take(64).collect());
        let (address, prefix) = text.split_once('/').ok_or_else(bad)?;
        let address = address.parse().map_err(|_| bad())?;
        if prefix.is_empty() || !prefix.bytes().all(|digit| digit.is_ascii_digit()) {
            return Err(bad());
        }
        let cidr = Self {
            address,
            prefix_length: prefix.parse().map_err(|_| bad())?,
        };
        if cidr.prefix_length > cidr.width() {
            return Err(bad());
        }
        Ok(cidr)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cidr(text: &str) -> Cidr {
        text.parse().unwrap()
    }

    #[test]
    fn mac_addresses_are_parsed_strictly() {
        for good in ["02:00:00:ab:cd:ef", "02-00-00-AB-CD-EF"] {
            assert_eq!(
                good.parse::<MacAddress>().unwrap().to_string(),
                "02:00:00:ab:cd:ef"
            );
        }
        for bad in [
            "",
            "02:00:00:ab:cd",
            "02:00:00:ab:cd:ef:01",
            "2:0:0:1:2:3",
            "02:00:00:+b:cd:ef",
        ] {
            assert!(bad.parse::<MacAddress>().is_err(), "{bad}");
        }
    }

    #[test]
    fn networks_are_parsed_strictly() {
        for good in [
            "10.0.2.0/24",
            "0.0.0.0/0",
            "fd10:0:2::/120",
            "::/0",
            "1.2.3.4/32",
        ] {
            assert_eq!(cidr(good).to_string(), good);
        }
        for bad in [
            "10.0.2.0",
            "10.0.2.0/33",
            "10.0.2.0/-1",
            "10.0.2.0/+8",
            "::/129",
            "a/8",
            "1.2.3.4/",
        ] {
            assert!(bad.parse::<Cidr>().is_err(), "{bad}");
        }
    }

    #[test]
    fn hosts_are_counted_from_the_network() {
        let cases = [
            ("10.0.2.77/24", 1, Some("10.0.2.1")),
            ("10.0.2.77/24", 255, Some("10.0.2.255")),
            ("10.0.2.77/24", 256, None),
            ("10.0.2.77/32", 0, Some("10.0.2.77")),
            ("10.0.2.77/32", 1, None),
            ("255.255.255.255/32", 1, None),
            ("255.255.255.252/30", 3, Some("255.255.255.255")),
            ("0.0.0.0/0", 7, Some("0.0.0.7")),
            ("fd10:0:2::/120", 2, Some("fd10:0:2::2")),
            ("fd10:0:2::/120", 256, None),
        ];
        for (network, n, expected) in cases {
            let expected = expected.map(|text| text.parse::<IpAddr>().unwrap());
            assert_eq!(cidr(network).nth(n), expected, "{network} {n}");
        }
    }

    #[test]
    fn overlap_is_symmetric_and_knows_families() {
        let cases = [
            ("10.244.0.0/24", "10.244.0.0/16", true),
            ("10.244.0.0/24", "10.244.1.0/24", false),
            ("10.244.0.9/32", "10.244.0.0/24", true),
            ("0.0.0.0/0", "1.2.3.4/32", true),
            ("::/0", "1.2.3.4/32", false),
            ("fd00::/8", "fd10::1/128", true),
        ];
        for (a, b, expected) in cases {
            assert_eq!(cidr(a).overlaps(&cidr(b)), expected, "{a} {b}");
            assert_eq!(cidr(b).overlaps(&cidr(a)), expected, "{b} {a}");
        }
    }
}
