//! Lists of domain names in options of DHCP, for both versions of IP.

/// Domains as lists of labels, without compression: as many complete ones as fit into that many bytes.
pub(crate) fn domain_list(domains: &[String], capacity: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for domain in domains.iter().filter_map(|domain| labels(domain)) {
        if bytes.len() + domain.len() > capacity {
            break;
        }
        bytes.extend(domain);
    }
    bytes
}

/// `None` for an invalid domain name.
fn labels(domain: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    for label in domain.trim_end_matches('.').split('.') {
        let length = u8::try_from(label.len())
            .ok()
            .filter(|length| (1..64).contains(length))?;
        bytes.push(length);
        bytes.extend(label.bytes());
    }
    bytes.push(0);
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_is_truncated_between_domains() {
        let search = |domains: &[String]| domain_list(domains, 255);
        let domain = |text: &str| text.to_owned();
        assert_eq!(search(&[domain("a.bc.")]), b"\x01a\x02bc\0");
        assert_eq!(
            search(&[domain("a..b"), domain(""), domain("c")]),
            b"\x01c\0"
        );
        assert_eq!(search(&[domain(&"x".repeat(64))]), b"");
        let long = domain(&format!("{0}.{0}", "x".repeat(60)));
        assert_eq!(search(&[long.clone(), long.clone(), long]).len(), 246);
    }
}
