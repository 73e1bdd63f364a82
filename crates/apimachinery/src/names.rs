//! Name validation rules with kube-apiserver's messages.
//!
//! Every check returns a list of messages, empty for a valid name. [`is_label`] and [`is_subdomain`] are for names that
//! become parts of paths.

const DNS_LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const DNS_SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const DNS_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const QUALIFIED: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// Namespaces and most kinds whose name becomes a host name: at most 63 characters, no dots.
pub fn dns_label(name: &str) -> Vec<String> {
    limited(name, 63, DNS_LABEL, is_dns_label)
}

/// Most kinds: at most 253 characters, dots allowed.
pub fn dns_subdomain(name: &str) -> Vec<String> {
    limited(name, 253, DNS_SUBDOMAIN, is_dns_subdomain)
}

/// Whether a namespace can have this name.
pub fn is_label(name: &str) -> bool {
    dns_label(name).is_empty()
}

/// Whether objects of most kinds can have this name.
pub fn is_subdomain(name: &str) -> bool {
    dns_subdomain(name).is_empty()
}

/// Services: like a label, but starts with a letter.
pub fn dns_1035(name: &str) -> Vec<String> {
    limited(name, 63, DNS_1035, |name| {
        is_dns_label(name) && name.starts_with(|c: char| c.is_ascii_lowercase())
    })
}

/// Kinds without a name rule (RBAC): any valid path segment.
pub fn path_segment(name: &str) -> Vec<String> {
    match name {
        "." | ".." => vec![format!("may not be '{name}'")],
        _ => ["/", "%"]
            .iter()
            .filter(|part| name.contains(*part))
            .map(|part| format!("may not contain '{part}'"))
            .collect(),
    }
}

/// Label keys, annotation keys, finalizers: `[prefix/]name`.
pub fn qualified(key: &str) -> Vec<String> {
    let mut out = Vec::new();
    let (prefix, name) = match key.split_once('/') {
        None => (None, key),
        Some((prefix, name)) if !name.contains('/') => (Some(prefix), name),
        Some(_) => {
            return vec![format!(
                "a valid label key {QUALIFIED} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    match prefix {
        None => {}
        Some("") => out.push("prefix part must be non-empty".to_owned()),
        Some(prefix) => {
            out.extend(
                dns_subdomain(prefix)
                    .into_iter()
                    .map(|why| format!("prefix part {why}")),
            );
        }
    }
    if name.is_empty() {
        out.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        out.push("name part must be no more than 63 bytes".to_owned());
    }
    if !is_qualified_part(name) {
        out.push(format!("name part {QUALIFIED}"));
    }
    out
}

pub fn label_value(value: &str) -> Vec<String> {
    limited(value, 63, LABEL_VALUE, |value| {
        value.is_empty() || is_qualified_part(value)
    })
}

/// Characters of generated names: no vowels, and none that can be mistaken for another.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
const GENERATED: usize = 5;
const MAX_BASE: usize = 63 - GENERATED;

/// `generateName` plus a suffix from random bytes. The base is truncated so that the result has at
/// most 63 characters.
pub fn generate(base: &str, random: [u8; GENERATED]) -> String {
    let mut end = base.len().min(MAX_BASE);
    while !base.is_char_boundary(end) {
        end -= 1;
    }
    let suffix = random
        .iter()
        .filter_map(|byte| ALPHABET.get(usize::from(*byte) % ALPHABET.len()))
        .map(|byte| char::from(*byte));
    base.get(..end)
        .unwrap_or_default()
        .chars()
        .chain(suffix)
        .collect()
}

fn limited(name: &str, max: usize, message: &str, is_valid: impl Fn(&str) -> bool) -> Vec<String> {
    let mut out = Vec::new();
    if name.len() > max {
        // Only the message for label values speaks of bytes.
        let unit = if message == LABEL_VALUE {
            "bytes"
        } else {
            "characters"
        };
        out.push(format!("must be no more than {max} {unit}"));
    }
    if !is_valid(name) {
        out.push(message.to_owned());
    }
    out
}

fn is_dns_label(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    framed(name, plain, |b| plain(b) || b == b'-')
}

fn is_dns_subdomain(name: &str) -> bool {
    name.split('.').all(is_dns_label)
}

fn is_qualified_part(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric();
    framed(name, plain, |b| plain(b) || matches!(b, b'-' | b'_' | b'.'))
}

/// Not empty, `edge` at both ends and `inner` everywhere else.
fn framed(name: &str, edge: impl Fn(u8) -> bool, inner: impl Fn(u8) -> bool) -> bool {
    let bytes = name.as_bytes();
    bytes.first().is_some_and(|b| edge(*b))
        && bytes.last().is_some_and(|b| edge(*b))
        && bytes.iter().all(|b| inner(*b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_names_pass_and_invalid_ones_do_not() {
        for valid in ["a", "a-b", "0", "a.b-c.d"] {
            assert_eq!(dns_subdomain(valid), Vec::<String>::new(), "{valid}");
        }
        for invalid in ["", "A", "-a", "a-", "a..b", "a_b", "ä"] {
            assert_eq!(dns_subdomain(invalid).len(), 1, "{invalid}");
        }
        assert!(!dns_label("a.b").is_empty());
        for path in ["", ".", "..", "a/b", "a?b", "a#b", "a%2fb"] {
            assert!(!is_label(path) && !is_subdomain(path), "{path}");
        }
        assert!(is_label("a-1") && is_subdomain("a.1"));
        assert!(!dns_1035("0a").is_empty());
        assert_eq!(
            dns_label(&"a".repeat(64)),
            ["must be no more than 63 characters"]
        );
        assert!(qualified("kubevirt.io/nodeName").is_empty());
        assert!(qualified("My_Name.x").is_empty());
        assert_eq!(qualified("/x"), ["prefix part must be non-empty"]);
        assert_eq!(qualified("a/b/c").len(), 1);
        assert!(label_value("").is_empty());
        assert!(!label_value("a b").is_empty());
    }

    #[test]
    fn generated_names_are_bounded_and_keep_their_base() {
        assert_eq!(generate("vm-", [0, 1, 2, 26, 27]), "vm-bcd9b");
        assert_eq!(generate(&"x".repeat(80), [0; 5]).len(), 63);
    }
}
