//! What was seen of a pod's interface, as a line of text that the kernel keeps with the interface.

use std::net::IpAddr;

use crate::{Cidr, PodInterface, PodRoute};

/// Marks the line as ours, and its form.
const MARK: &str = "ferrovirt pod 1";
/// The longest alias of a link that the kernel takes, without its final zero.
const LONGEST: usize = 255;
const NONE: &str = "-";

impl PodInterface {
    /// Hardware address, addresses and IPv4 routes in one line; `None` if it is too long. The
    /// interface keeps its MTU itself.
    pub(crate) fn remark(&self) -> Option<String> {
        let or_none = |text: Option<String>| text.unwrap_or_else(|| NONE.to_owned());
        let ipv4 = self.ipv4.map(|(one, length)| format!("{one}/{length}"));
        let ipv6 = self.ipv6.map(|(one, length)| format!("{one}/{length}"));
        let mut words = vec![
            MARK.to_owned(),
            self.mac.to_string(),
            or_none(ipv4),
            or_none(ipv6),
        ];
        let of_ipv4 = |route: &&PodRoute| route.destination.address.is_ipv4();
        words.extend(self.routes.iter().filter(of_ipv4).map(PodRoute::word));
        let line = words.join(" ");
        (line.len() <= LONGEST).then_some(line)
    }

    /// What such a line says of the interface of this name; `None` if it is no such line.
    pub fn from_remark(name: &str, mtu: u32, line: &str) -> Option<Self> {
        let mut words = line.strip_prefix(MARK)?.strip_prefix(' ')?.split(' ');
        let mac = words.next()?.parse().ok()?;
        let mut address = || match words.next()? {
            NONE => Some(None),
            word => word.parse::<Cidr>().ok().map(Some),
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
            routes: words.map(PodRoute::from_word).collect::<Option<_>>()?,
        })
    }
}

impl PodRoute {
    fn word(&self) -> String {
        match self.via {
            Some(via) => format!("{}>{via}", self.destination),
            None => self.destination.to_string(),
        }
    }

    fn from_word(word: &str) -> Option<Self> {
        let (destination, via) = match word.split_once('>') {
            Some((destination, via)) => (destination, Some(via.parse().ok()?)),
            None => (word, None),
        };
        let destination = destination.parse().ok()?;
        Some(Self { destination, via })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of the families whose digits are named.
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
        }
    }

    #[test]
    fn what_was_written_down_is_read_again() {
        let routes = [
            ("0.0.0.0/0", Some("10.244.0.1")),
            ("10.244.0.0/24", None),
            ("172.16.0.0/12", Some("10.244.0.7")),
        ];
        for seen in [
            interface("46", &routes),
            interface("4", &routes[..1]),
            interface("6", &[]),
            interface("", &[]),
        ] {
            let line = seen.remark().unwrap();
            let again = PodInterface::from_remark("eth0", 1450, &line);
            assert_eq!(again, Some(seen), "{line}");
        }
        let six = interface("46", &[("::/0", Some("fd00:10:244::1"))]);
        let line = six.remark().unwrap();
        assert_eq!(
            line,
            "ferrovirt pod 1 12:81:b8:38:4f:52 10.244.0.39/24 fd00:10:244::27/64"
        );
    }

    #[test]
    fn a_line_that_is_not_ours_says_nothing() {
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
            "veth of somebody else",
        ] {
            assert_eq!(
                PodInterface::from_remark("eth0", 1500, line),
                None,
                "{line}"
            );
        }
    }

    #[test]
    fn what_the_kernel_would_not_keep_is_not_written_down() {
        let many = [("203.0.113.128/25", Some("203.0.113.129")); 9];
        assert_eq!(interface("46", &many).remark(), None);
        let mut longest = interface("4", &[("255.255.255.255/32", Some("255.255.255.255")); 4]);
        longest.ipv4 = Some(("255.255.255.255".parse().unwrap(), 32));
        longest.ipv6 = Some((std::net::Ipv6Addr::from_bits(u128::MAX), 128));
        assert!(longest.remark().is_some());
    }
}
