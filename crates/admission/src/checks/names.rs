//! Names as Kubernetes wants them: what is wrong with one, if anything.

const MAX_LABEL: usize = 63;
const MAX_SUBDOMAIN: usize = 253;
/// Of a name in a complaint: more would hide what is wrong.
const SHOWN: usize = 40;

/// A name that must be a DNS label.
pub(crate) fn dns_label_fault(name: &str) -> Option<String> {
    let fits = is_dns_label(name);
    (!fits).then(|| {
        format!(
            "{} is no DNS label; use at most {MAX_LABEL} lower-case letters, digits and dashes, \
             with a letter or digit at both ends",
            shown(name)
        )
    })
}

/// A name that must be a DNS subdomain.
pub(crate) fn dns_subdomain_fault(name: &str) -> Option<String> {
    let fits = name.len() <= MAX_SUBDOMAIN && name.split('.').all(is_dns_part);
    (!fits).then(|| {
        format!(
            "{} is no DNS subdomain; use at most {MAX_SUBDOMAIN} lower-case letters, digits, \
             dashes and dots, with a letter or digit at both ends of each part",
            shown(name)
        )
    })
}

/// A key that must fit a label: `name` or `example.com/name`.
pub(crate) fn label_key_fault(key: &str) -> Option<String> {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    let fits = prefix.is_none_or(|prefix| dns_subdomain_fault(prefix).is_none())
        && !name.is_empty()
        && is_label_text(name);
    (!fits).then(|| {
        format!(
            "{} is no label key; write one such as example.com/name",
            shown(key)
        )
    })
}

/// A value that must fit a label.
pub(crate) fn label_value_fault(value: &str) -> Option<String> {
    (!is_label_text(value)).then(|| {
        format!(
            "{} is no label value; use at most {MAX_LABEL} letters, digits and - _ .",
            shown(value)
        )
    })
}

/// A name between quotes, shortened when long.
pub(crate) fn shown(name: &str) -> String {
    match name.char_indices().nth(SHOWN) {
        Some((end, _)) => {
            let start = name.get(..end).unwrap_or_default();
            format!("{start:?}... ({} characters)", name.chars().count())
        }
        None => format!("{name:?}"),
    }
}

fn is_dns_label(name: &str) -> bool {
    name.len() <= MAX_LABEL && is_dns_part(name)
}

/// Of a subdomain: of any length.
fn is_dns_part(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && !name.starts_with('-')
        && !name.ends_with('-')
}

fn is_label_text(text: &str) -> bool {
    let ends_well = |c: Option<char>| c.is_none_or(|c| c.is_ascii_alphanumeric());
    text.len() <= MAX_LABEL
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
        && ends_well(text.chars().next())
        && ends_well(text.chars().next_back())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_judged() {
        let long = "a".repeat(300);
        for (name, label, subdomain, key, value) in [
            ("a", true, true, true, true),
            ("a-1", true, true, true, true),
            ("a.b", false, true, true, true),
            ("a..b", false, false, true, true),
            ("A_b", false, false, true, true),
            ("-a", false, false, false, false),
            ("", false, false, false, true),
            ("b.c/d", false, false, true, false),
            (&long, false, false, false, false),
        ] {
            assert_eq!(dns_label_fault(name).is_none(), label, "{name}");
            assert_eq!(dns_subdomain_fault(name).is_none(), subdomain, "{name}");
            assert_eq!(label_key_fault(name).is_none(), key, "{name}");
            assert_eq!(label_value_fault(name).is_none(), value, "{name}");
        }
    }

    #[test]
    fn long_names_are_not_repeated_whole() {
        let fault = dns_label_fault(&"é".repeat(300)).expect("a fault");
        assert!(fault.len() < 250, "{fault}");
        assert!(fault.contains("300 characters"), "{fault}");
    }
}
