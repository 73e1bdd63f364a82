//! Replaces what differs from run to run: identities, times, addresses and generated names.

use std::net::{IpAddr, SocketAddr};

/// Names that the server, or `virtctl`, ends with random characters behind the last hyphen.
const GENERATED: [&str; 4] = [
    "virt-launcher-",
    "kubevirt-migrate-vm-",
    "hp-volume-",
    "debian-ssh-key-",
];
/// Units of durations; a longer one comes before its own start.
const UNITS: [&str; 6] = ["ms", "µs", "s", "m", "h", "d"];

/// The text with the given texts replaced, and with masks for what is recognised by its form.
pub(super) fn masked(text: &str, replaced: &[(String, String)]) -> String {
    let mut text = text.replace("\r\n", "\n").replace('\r', "");
    for (from, to) in replaced {
        text = text.replace(from, to);
    }
    let lines = text.lines().map(line);
    lines.collect::<Vec<_>>().join("\n")
}

/// Widths of columns follow the longest value, so two spaces stand for any number of them.
fn line(line: &str) -> String {
    let body = line.trim_start_matches(' ');
    let mut shown = " ".repeat(line.len() - body.len());
    let mut token = String::new();
    let mut spaces = 0;
    for character in body.trim_end().chars() {
        if is_part(character) {
            if token.is_empty() {
                shown.push_str(gap(spaces));
                spaces = 0;
            }
            token.push(character);
            continue;
        }
        shown.push_str(&mask(&token));
        token.clear();
        if character == ' ' {
            spaces += 1;
        } else {
            shown.push_str(gap(spaces));
            spaces = 0;
            shown.push(character);
        }
    }
    shown + &mask(&token)
}

fn gap(spaces: usize) -> &'static str {
    match spaces {
        0 => "",
        1 => " ",
        _ => "  ",
    }
}

fn is_part(character: char) -> bool {
    character.is_alphanumeric() || "-_.:+[]".contains(character)
}

/// The mask of a token; punctuation behind it stays.
fn mask(token: &str) -> String {
    let core = token.trim_end_matches(['.', ':', '-']);
    let (_, end) = token.split_at(core.len());
    let mask = if is_uid(core) {
        "UID".to_owned()
    } else if is_time(core) {
        "TIME".to_owned()
    } else if let Ok(address) = core.parse::<SocketAddr>() {
        if address.ip().is_loopback() {
            format!("{}:PORT", address.ip())
        } else {
            "ADDRESS:PORT".to_owned()
        }
    } else if core
        .parse::<IpAddr>()
        .is_ok_and(|address| !address.is_loopback() && !address.is_unspecified())
    {
        "ADDRESS".to_owned()
    } else if is_duration(core) {
        "AGE".to_owned()
    } else if let Some((name, random)) = core.rsplit_once('-')
        && random.len() > 4
        && GENERATED.iter().any(|prefix| core.starts_with(prefix))
    {
        format!("{name}-RANDOM")
    } else {
        core.to_owned()
    };
    mask + end
}

/// Whether the text has that form: `x` stands for a hexadecimal digit, `d` for a decimal one.
fn has_form(text: &str, form: &str) -> bool {
    let fits = |(found, expected): (char, char)| match expected {
        'x' => found.is_ascii_hexdigit(),
        'd' => found.is_ascii_digit(),
        other => found == other,
    };
    text.len() == form.len() && text.chars().zip(form.chars()).all(fits)
}

fn is_uid(text: &str) -> bool {
    has_form(text, "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx")
}

fn is_time(text: &str) -> bool {
    text.get(..19)
        .is_some_and(|start| has_form(start, "dddd-dd-ddTdd:dd:dd"))
}

/// Such as `12s`, `1.5s` or `3m20s`.
fn is_duration(text: &str) -> bool {
    let mut rest = text;
    while !rest.is_empty() {
        let unit = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        let has_number = unit.len() < rest.len();
        let Some(behind) = UNITS.iter().find_map(|name| unit.strip_prefix(name)) else {
            return false;
        };
        if !has_number {
            return false;
        }
        rest = behind;
    }
    !text.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_from_run_to_run_is_masked() {
        for (text, expected) in [
            ("uid: 0f2b7c1e-1111-4222-8333-0123456789ab", "uid: UID"),
            (
                "\"creationTimestamp\": \"2026-11-27T21:46:51Z\",",
                "\"creationTimestamp\": \"TIME\",",
            ),
            (
                "Forwarding from 127.0.0.1:40123 -> 22",
                "Forwarding from 127.0.0.1:PORT -> 22",
            ),
            (
                "https://10.230.4.1:8443/upload",
                "https://ADDRESS:PORT/upload",
            ),
            (
                "inet 10.0.2.2/24, fd00:e2e:1::5.",
                "inet ADDRESS/24, ADDRESS.",
            ),
            ("listens on 127.0.0.1", "listens on 127.0.0.1"),
            ("web     Running   3m20s", "web  Running  AGE"),
            ("  - name: a  # 12ms", "  - name: a  # AGE"),
            (
                "pod virt-launcher-web-x2b4c: waits",
                "pod virt-launcher-web-RANDOM: waits",
            ),
            ("96Mi of 1s5 and v1.9.0", "96Mi of 1s5 and v1.9.0"),
            ("a\r\nb ", "a\nb"),
        ] {
            assert_eq!(masked(text, &[]), expected, "{text}");
        }
    }

    #[test]
    fn texts_of_the_run_are_replaced_first() {
        let replaced = [("/tmp/x1".to_owned(), "DIRECTORY".to_owned())];
        assert_eq!(
            masked("Saved in /tmp/x1/a.png", &replaced),
            "Saved in DIRECTORY/a.png"
        );
    }
}
