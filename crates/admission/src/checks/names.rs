//! Names as Kubernetes requires them: DNS labels, DNS subdomains, label keys and values.

const MAX_LABEL: usize = 63;
const MAX_SUBDOMAIN: usize = 253;
/// Maximum of characters of a name in a message.
const MAX_SHOWN: usize = 40;

/// Why a name is not a DNS label, if so.
pub(crate) fn dns_label_problem(name: &str) -> Option<String> {
    let is_valid = is_dns_label(name);
    (!is_valid).then(|| {
        format!(
            "{} is not a DNS label; use at most {MAX_LABEL} lower-case letters, digits and dashes, \
             with a letter or digit at both ends",
            shown(name)
        )
    })
}

/// Why a name is not a DNS subdomain, if so.
pub(crate) fn dns_subdomain_problem(name: &str) -> Option<String> {
    let is_valid = name.len() <= MAX_SUBDOMAIN && name.split('.').all(is_dns_part);
    (!is_valid).then(|| {
        format!(
            "{} is not a DNS subdomain; use at most {MAX_SUBDOMAIN} lower-case letters, digits, \
             dashes and dots, with a letter or digit at both ends of each part",
            shown(name)
        )
    })
}

/// Why a string is not a label key (`name` or `example.com/name`), if so.
pub(crate) fn label_key_problem(key: &str) -> Option<String> {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    let is_valid = prefix.is_none_or(|prefix| dns_subdomain_problem(prefix).is_none())
        && !name.is_empty()
        && is_label_text(name);
    (!is_valid).then(|| {
        format!(
            "{} is not a label key; use the form example.com/name",
            shown(key)
        )
    })
}

/// Why a string is not a label value, if so.
pub(crate) fn label_value_problem(value: &str) -> Option<String> {
    (!is_label_text(value)).then(|| {
        format!(
            "{} is not a label value; use at most {MAX_LABEL} letters, digits and - _ .",
            shown(value)
        )
    })
}

/// A name in quotes, truncated if long.
fn shown(name: &str) -> String {
    match name.char_indices().nth(MAX_SHOWN) {
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

/// One part of a DNS subdomain, of any length.
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
    fn names_are_classified() {
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
            assert_eq!(dns_label_problem(name).is_none(), label, "{name}");
            assert_eq!(dns_subdomain_problem(name).is_none(), subdomain, "{name}");
            assert_eq!(label_key_problem(name).is_none(), key, "{name}");
            assert_eq!(label_value_problem(name).is_none(), value, "{name}");
        }
    }

    #[test]
    fn long_name_is_truncated_in_the_message() {
        let problem = dns_label_problem(&"é".repeat(300)).expect("a problem");
        assert!(problem.len() < 250, "{problem}");
        assert!(problem.contains("300 characters"), "{problem}");
    }
}
