//! Endpoints: defaults and validation.

use std::net::IpAddr;

use apimachinery::Violation;
use serde_json::Value;

use super::super::{
    Strategy,
    fields::{each, fill},
};

pub(crate) const ENDPOINTS: Strategy = Strategy {
    default,
    validate: |_, endpoints| validate(endpoints),
    ..Strategy::PLAIN
};

fn default(endpoints: &mut Value) {
    each(endpoints, "subsets", |subset| {
        each(subset, "ports", |port| fill(port, "protocol", "TCP"));
    });
}

fn validate(endpoints: &Value) -> Vec<Violation> {
    let mut wrong = Vec::new();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    for (at, subset) in list(&endpoints["subsets"]).iter().enumerate() {
        let path = format!("subsets[{at}]");
        if list(&subset["addresses"]).is_empty() && list(&subset["notReadyAddresses"]).is_empty() {
            let why = "must specify `addresses` or `notReadyAddresses`";
            wrong.push(Violation::required(path.clone(), why));
        }
        for part in ["addresses", "notReadyAddresses"] {
            for (index, address) in list(&subset[part]).iter().enumerate() {
                let found = address["ip"].as_str().unwrap_or_default();
                let at = format!("{path}.{part}[{index}].ip");
                wrong.extend(unusable(found).map(|why| Violation::invalid(at, found, why)));
            }
        }
        let ports = list(&subset["ports"]);
        for (index, port) in ports.iter().enumerate() {
            let at = format!("{path}.ports[{index}]");
            if ports.len() > 1 && port["name"].as_str().unwrap_or_default().is_empty() {
                wrong.push(Violation::required(format!("{at}.name"), ""));
            }
            let number = port["port"].as_i64().unwrap_or_default();
            if !(1..=65535).contains(&number) {
                let why = "must be between 1 and 65535, inclusive";
                wrong.push(Violation::invalid(format!("{at}.port"), number, why));
            }
        }
    }
    wrong
}

/// Why an address cannot be an endpoint. Other than in Kubernetes, a loopback address can: components
/// of a single host listen on loopback, and this server calls them by their Endpoints.
pub(super) fn unusable(address: &str) -> Option<String> {
    let Ok(parsed) = address.parse::<IpAddr>() else {
        return Some("must be a valid IP address".to_owned());
    };
    let (is_link_local, is_local_multicast) = match parsed {
        IpAddr::V4(four) => (
            four.is_link_local(),
            four.octets().starts_with(&[224, 0, 0]),
        ),
        IpAddr::V6(six) => {
            let first = six.segments().first().copied().unwrap_or_default();
            (first & 0xffc0 == 0xfe80, first & 0xff0f == 0xff02)
        }
    };
    if parsed.is_unspecified() {
        Some(format!("may not be unspecified ({address})"))
    } else if is_link_local {
        Some("may not be in the link-local range (169.254.0.0/16, fe80::/10)".to_owned())
    } else if is_local_multicast {
        let why = "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)";
        Some(why.to_owned())
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn subsets_need_addresses_that_can_be_reached() {
        for (subset, expected) in [
            (
                json!({"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 80}]}),
                None,
            ),
            (
                json!({"ports": [{"port": 80}]}),
                Some("subsets[0]: Required value: must specify `addresses` or `notReadyAddresses`"),
            ),
            (
                json!({"addresses": [{"ip": "169.254.0.1"}]}),
                Some(
                    "subsets[0].addresses[0].ip: Invalid value: \"169.254.0.1\": may not be in \
                      the link-local range (169.254.0.0/16, fe80::/10)",
                ),
            ),
            (
                json!({"notReadyAddresses": [{"ip": "here"}]}),
                Some(
                    "subsets[0].notReadyAddresses[0].ip: Invalid value: \"here\": must be a valid \
                      IP address",
                ),
            ),
            (
                json!({"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 0}]}),
                Some(
                    "subsets[0].ports[0].port: Invalid value: 0: must be between 1 and 65535, \
                      inclusive",
                ),
            ),
        ] {
            let found = validate(&json!({"subsets": [subset]}));
            let found = found.first().map(ToString::to_string);
            assert_eq!(found.as_deref(), expected);
        }
    }
}
