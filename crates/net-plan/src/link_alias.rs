//! The observed state of a pod's interface as one line of text, which the kernel keeps as the alias of
//! the link.

use std::net::IpAddr;

use crate::{Cidr, PodInterface, PodRoute};

/// Marks the line as ours, with the version of its format.
const MARK: &str = "ferrovirt pod 1";
/// The longest alias that the kernel accepts, without its final zero.
const MAX_ALIAS: usize = 255;
const NONE: &str = "-";

impl PodInterface {
    /// Hardware address, addresses, IPv4 routes and the default route of IPv6 in one line; `None` if it is too long. The MTU and
    /// the kind are read from the link itself.
    pub(crate) fn to_alias(&self) -> Option<String> {
        let or_none = |text: Option<String>| text.unwrap_or_else(|| NONE.to_owned());
        let ipv4 = self.ipv4.map(|(one, length)| format!("{one}/{length}"));
        let ipv6 = self.ipv6.map(|(one, length)| format!("{one}/{length}"));
        let mut fields = vec![
            MARK.to_owned(),
            self.mac.to_string(),
            or_none(ipv4),
            or_none(ipv6),
        ];
        let is_used = |route: &&PodRoute| {
            let destination = route.destination;
            destination.address.is_ipv4() || destination.prefix_length == 0
        };
        fields.extend(self.routes.iter().filter(is_used).map(PodRoute::render));
        let line = fields.join(" ");
        (line.len() <= MAX_ALIAS).then_some(line)
    }

    /// The interface of this name, from the alias of its link; `None` if the alias is not ours.
    pub fn from_alias(name: &str, mtu: u32, line: &str) -> Option<Self> {
        let mut fields = line.strip_prefix(MARK)?.strip_prefix(' ')?.split(' ');
        let mac = fields.next()?.parse().ok()?;
        let mut address = || match fields.next()? {
            NONE => Some(None),
            field => field.parse::<Cidr>().ok().map(Some),
        };
        let ipv4 = match address()? {
            None => None,
            Some(cidr) => match cidr.address {
                IpAddr::V4(address) => Some((address, cidr.prefix_length)),
                IpAddr::V6(_) => return None,
            },
        };
        let ipv6 = match address()? {
            None => None,
            Some(cidr) => match cidr.address {
                IpAddr::V6(address) => Some((address, cidr.prefix_length)),
                IpAddr::V4(_) => return None,
            },
        };
        Some(Self {
            name: name.to_owned(),
            mac,
            mtu,
            ipv4,
            ipv6,
            routes: fields.map(PodRoute::from_field).collect::<Option<_>>()?,
            receives_own_only: false,
        })
    }
}

impl PodRoute {
    fn render(&self) -> String {
        match self.via {
            Some(via) => format!("{}>{via}", self.destination),
            None => self.destination.to_string(),
        }
    }

    fn from_field(text: &str) -> Option<Self> {
        let (destination, via) = match text.split_once('>') {
            Some((destination, via)) => (destination, Some(via.parse().ok()?)),
            None => (text, None),
        };
        let destination = destination.parse().ok()?;
        Some(Self { destination, via })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Has an address of each family whose digit is listed.
    fn interface(families: &str, routes: &[(&str, Option<&str>)]) -> PodInterface {
        let route = |(destination, via): &(&str, Option<&str>)| PodRoute {
            destination: destination.parse().unwrap(),
            via: via.map(|via| via.parse().unwrap()),
        };
        PodInterface {
            name: "eth0".to_owned(),
            mac: "12:81:b8:38:4f:52".parse().unwrap(),
            mtu: 1450,
            ipv4: families
                .contains('4')
                .then(|| ("10.244.0.39".parse().unwrap(), 24)),
            ipv6: families
                .contains('6')
                .then(|| ("fd00:10:244::27".parse().unwrap(), 64)),
            routes: routes.iter().map(route).collect(),
            receives_own_only: false,
        }
    }

    #[test]
    fn alias_is_read_back() {
        let routes = [
            ("0.0.0.0/0", Some("10.244.0.1")),
            ("10.244.0.0/24", None),
            ("172.16.0.0/12", Some("10.244.0.7")),
        ];
        for observed in [
            interface("46", &routes),
            interface("4", &routes[..1]),
            interface("6", &[]),
            interface("", &[]),
        ] {
            let line = observed.to_alias().unwrap();
            let read = PodInterface::from_alias("eth0", 1450, &line);
            assert_eq!(read, Some(observed), "{line}");
        }
        let six = interface(
            "46",
            &[("fd00:10:244::/64", None), ("::/0", Some("fe80::1"))],
        );
        let line = six.to_alias().unwrap();
        assert_eq!(
            line,
            "ferrovirt pod 1 12:81:b8:38:4f:52 10.244.0.39/24 fd00:10:244::27/64 ::/0>fe80::1"
        );
    }

    #[test]
    fn foreign_alias_is_ignored() {
        for line in [
            "",
            "ferrovirt pod 1",
            "ferrovirt pod 1 12:81:b8:38:4f:52",
            "ferrovirt pod 1 12:81:b8:38:4f:52 -",
            "ferrovirt pod 1 12:81:b8:38:4f:52 fd00::1/64 -",
            "ferrovirt pod 1 12:81:b8:38:4f:52 - 10.0.0.1/8",
            "ferrovirt pod 1 12:81:b8:38:4f:52 - - ",
            "ferrovirt pod 1 12:81:b8:38:4f:52 - - 0.0.0.0/0>",
            "ferrovirt pod 2 12:81:b8:38:4f:52 - -",
            "veth of another program",
        ] {
            assert_eq!(PodInterface::from_alias("eth0", 1500, line), None, "{line}");
        }
    }

    #[test]
    fn alias_longer_than_the_kernel_accepts_is_refused() {
        let many = [("203.0.113.128/25", Some("203.0.113.129")); 9];
        assert_eq!(interface("46", &many).to_alias(), None);
        let mut longest = interface("4", &[("255.255.255.255/32", Some("255.255.255.255")); 4]);
        longest.ipv4 = Some(("255.255.255.255".parse().unwrap(), 32));
        longest.ipv6 = Some((std::net::Ipv6Addr::from_bits(u128::MAX), 128));
        assert!(longest.to_alias().is_some());
    }
}
