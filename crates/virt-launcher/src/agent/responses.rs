//! Parses an agent's responses, bounded and without control characters. Pure.

use std::fmt;

use launcher_channel::{
    AgentCommand, AgentDisk, AgentFileSystem, AgentInterface, AgentOs, AgentUser,
};
use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::Value;

/// Items of any list.
const MAX_ITEMS: usize = 64;
/// Commands: agents support some forty.
const MAX_COMMANDS: usize = 256;
/// Characters of any text.
const MAX_TEXT: usize = 256;

/// A response that cannot be parsed. The message omits the details: they would quote the guest.
#[derive(Debug)]
pub(super) struct Malformed;

impl fmt::Display for Malformed {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("malformed response of the guest agent")
    }
}

impl std::error::Error for Malformed {}

impl From<serde_json::Error> for Malformed {
    fn from(_: serde_json::Error) -> Self {
        Self
    }
}

/// The value of `{"return": ...}`.
pub(super) fn returned<T: DeserializeOwned>(text: &str) -> Result<T, Malformed> {
    #[derive(Deserialize)]
    struct Response<T> {
        #[serde(rename = "return")]
        value: T,
    }
    let response: Response<T> = serde_json::from_str(text)?;
    Ok(response.value)
}

/// A text of the guest, truncated and without characters that a terminal interprets.
#[derive(Debug, Default)]
struct Text(String);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Self(sanitize(&String::deserialize(from)?)))
    }
}

fn sanitize(text: &str) -> String {
    let plain = |char: &char| !char.is_control() && !is_invisible(*char);
    text.chars().filter(plain).take(MAX_TEXT).collect()
}

/// Marks that reverse the direction of text or have no width.
fn is_invisible(char: char) -> bool {
    matches!(char, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// The elements of a list that can be parsed, up to a bound.
fn parse_items<T: DeserializeOwned>(list: Vec<Value>, most: usize) -> impl Iterator<Item = T> {
    list.into_iter()
        .take(most)
        .filter_map(|value| serde_json::from_value(value).ok())
}

fn text(text: Option<Text>) -> Option<String> {
    text.map(|text| text.0).filter(|text| !text.is_empty())
}

pub(super) fn info(response: &str) -> Result<(Option<String>, Vec<AgentCommand>), Malformed> {
    #[derive(Deserialize)]
    struct Info {
        version: Option<Text>,
        #[serde(default)]
        supported_commands: Vec<Value>,
    }
    #[derive(Deserialize)]
    struct Command {
        name: Text,
        #[serde(default)]
        enabled: bool,
    }
    let info: Info = returned(response)?;
    let commands =
        parse_items::<Command>(info.supported_commands, MAX_COMMANDS).map(|command| AgentCommand {
            name: command.name.0,
            enabled: command.enabled,
        });
    Ok((text(info.version), commands.collect()))
}

pub(super) fn os(response: &str) -> Result<AgentOs, Malformed> {
    #[derive(Deserialize)]
    #[serde(rename_all = "kebab-case")]
    struct Os {
        name: Option<Text>,
        kernel_release: Option<Text>,
        version: Option<Text>,
        pretty_name: Option<Text>,
        version_id: Option<Text>,
        kernel_version: Option<Text>,
        machine: Option<Text>,
        id: Option<Text>,
    }
    let os: Os = returned(response)?;
    Ok(AgentOs {
        name: text(os.name),
        kernel_release: text(os.kernel_release),
        version: text(os.version),
        pretty_name: text(os.pretty_name),
        version_id: text(os.version_id),
        kernel_version: text(os.kernel_version),
        machine: text(os.machine),
        id: text(os.id),
    })
}

pub(super) fn host_name(response: &str) -> Result<Option<String>, Malformed> {
    #[derive(Deserialize)]
    #[serde(rename_all = "kebab-case")]
    struct Name {
        host_name: Option<Text>,
    }
    Ok(text(returned::<Name>(response)?.host_name))
}

pub(super) fn timezone(response: &str) -> Result<Option<String>, Malformed> {
    #[derive(Deserialize)]
    struct Zone {
        zone: Option<Text>,
        offset: Option<i64>,
    }
    let zone: Zone = returned(response)?;
    let offset = zone.offset.map(|offset| offset.to_string());
    let parts: Vec<String> = text(zone.zone).into_iter().chain(offset).collect();
    Ok((!parts.is_empty()).then(|| parts.join(", ")))
}

pub(super) fn users(response: &str) -> Result<Vec<AgentUser>, Malformed> {
    #[derive(Deserialize)]
    #[serde(rename_all = "kebab-case")]
    struct User {
        #[serde(rename = "user")]
        name: Text,
        domain: Option<Text>,
        login_time: Option<f64>,
    }
    let users = parse_items::<User>(returned(response)?, MAX_ITEMS).map(|user| AgentUser {
        name: user.name.0,
        domain: text(user.domain),
        login_time: user.login_time.filter(|time| time.is_finite()),
    });
    Ok(users.collect())
}

pub(super) fn file_systems(response: &str) -> Result<Vec<AgentFileSystem>, Malformed> {
    #[derive(Deserialize)]
    #[serde(rename_all = "kebab-case")]
    struct FileSystem {
        name: Text,
        mountpoint: Text,
        #[serde(rename = "type")]
        kind: Text,
        #[serde(default)]
        used_bytes: i64,
        #[serde(default)]
        total_bytes: i64,
        #[serde(default)]
        disk: Vec<Value>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "kebab-case")]
    struct Disk {
        serial: Option<Text>,
        bus_type: Text,
    }
    let disk = |disk: Disk| AgentDisk {
        serial: text(disk.serial),
        bus: disk.bus_type.0,
    };
    let all = parse_items::<FileSystem>(returned(response)?, MAX_ITEMS).map(|file_system| {
        AgentFileSystem {
            device: file_system.name.0,
            mount_point: file_system.mountpoint.0,
            kind: file_system.kind.0,
            used_bytes: file_system.used_bytes,
            total_bytes: file_system.total_bytes,
            disks: parse_items(file_system.disk, MAX_ITEMS).map(disk).collect(),
        }
    });
    Ok(all.collect())
}

/// All interfaces but the loopback.
pub(super) fn interfaces(response: &str) -> Result<Vec<AgentInterface>, Malformed> {
    #[derive(Deserialize)]
    #[serde(rename_all = "kebab-case")]
    struct Interface {
        name: Text,
        hardware_address: Option<Text>,
        #[serde(default)]
        ip_addresses: Vec<Value>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "kebab-case")]
    struct Address {
        ip_address: std::net::IpAddr,
    }
    let all = parse_items::<Interface>(returned(response)?, MAX_ITEMS)
        .filter(|interface| interface.name.0 != "lo")
        .map(|interface| AgentInterface {
            name: interface.name.0,
            mac: text(interface.hardware_address).map(|mac| mac.to_lowercase()),
            addresses: parse_items::<Address>(interface.ip_addresses, MAX_ITEMS)
                .map(|address| address.ip_address.to_string())
                .collect(),
        });
    Ok(all.collect())
}

pub(super) fn freeze(response: &str) -> Result<Option<String>, Malformed> {
    let state: Text = returned(response)?;
    Ok(Some(state.0).filter(|state| state == "frozen"))
}

/// The response of a command that returns nothing of interest.
pub(super) fn done(response: &str) -> Result<(), Malformed> {
    returned::<Value>(response).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_responses_are_parsed() {
        let (version, commands) = info(
            r#"{"return": {"version": "8.2.0", "supported_commands": [
                {"enabled": true, "name": "guest-ping", "success-response": true},
                {"enabled": false, "name": "guest-exec", "success-response": true}]}}"#,
        )
        .unwrap();
        assert_eq!(version.as_deref(), Some("8.2.0"));
        assert_eq!(commands.len(), 2);
        assert!(!commands[1].enabled);
        let os = os(
            r#"{"return": {"id": "debian", "pretty-name": "Debian GNU/Linux 13",
            "kernel-release": "6.12.0", "version-id": "13", "variant": "x"}}"#,
        )
        .unwrap();
        assert_eq!(os.pretty_name.as_deref(), Some("Debian GNU/Linux 13"));
        assert_eq!(os.name, None);
        let zone = timezone(r#"{"return": {"zone": "CET", "offset": 3600}}"#).unwrap();
        assert_eq!(zone.as_deref(), Some("CET, 3600"));
        let users = users(r#"{"return": [{"login-time": 1.5e9, "user": "root"}]}"#).unwrap();
        assert_eq!(
            (users[0].name.as_str(), users[0].login_time),
            ("root", Some(1.5e9))
        );
        let all = file_systems(
            r#"{"return": [{"name": "vda1", "mountpoint": "/", "type": "ext4",
                "used-bytes": 1, "total-bytes": 2,
                "disk": [{"serial": "s", "bus-type": "virtio", "target": 0}]}]}"#,
        )
        .unwrap();
        assert_eq!(
            (all[0].total_bytes, all[0].disks[0].bus.as_str()),
            (2, "virtio")
        );
        let interfaces = interfaces(
            r#"{"return": [{"name": "lo", "ip-addresses": []},
                {"name": "eth0", "hardware-address": "02:AB:00:00:00:01", "ip-addresses": [
                {"ip-address": "10.0.2.2", "ip-address-type": "ipv4", "prefix": 24},
                {"ip-address": "no address"}]}]}"#,
        )
        .unwrap();
        assert_eq!(interfaces.len(), 1);
        assert_eq!(interfaces[0].mac.as_deref(), Some("02:ab:00:00:00:01"));
        assert_eq!(interfaces[0].addresses, ["10.0.2.2"]);
        assert_eq!(
            freeze(r#"{"return": "frozen"}"#).unwrap().as_deref(),
            Some("frozen")
        );
        assert_eq!(freeze(r#"{"return": "thawed"}"#).unwrap(), None);
        assert_eq!(
            host_name(r#"{"return": {"host-name": "a"}}"#)
                .unwrap()
                .as_deref(),
            Some("a")
        );
    }

    /// The class of CVE-2025-14525.
    #[test]
    fn lists_and_texts_of_a_hostile_guest_are_truncated() {
        let user = format!(r#"{{"user": "{}"}}"#, "x".repeat(10_000));
        let many = format!(r#"{{"return": [{}]}}"#, vec![user; 1000].join(","));
        let users = users(&many).unwrap();
        assert_eq!(users.len(), MAX_ITEMS);
        assert_eq!(users[0].name.len(), MAX_TEXT);
        let interface = format!(
            r#"{{"return": [{{"name": "e", "ip-addresses": [{}]}}]}}"#,
            vec![r#"{"ip-address": "10.0.0.1"}"#; 1000].join(",")
        );
        assert_eq!(
            interfaces(&interface).unwrap()[0].addresses.len(),
            MAX_ITEMS
        );
    }

    #[test]
    fn control_characters_are_removed() {
        let name = host_name("{\"return\": {\"host-name\": \"a\\u001b[2J\\u202eb\\n\"}}").unwrap();
        assert_eq!(name.as_deref(), Some("a[2Jb"));
    }

    #[test]
    fn malformed_responses_are_errors() {
        let deep = "[".repeat(100_000);
        for bad in [
            "",
            "{}",
            "null",
            "\u{0}",
            r#"{"return": 5}"#,
            r#"{"return": {"host-name": 5}}"#,
            r#"{"error": {"class": "CommandNotFound"}}"#,
            deep.as_str(),
        ] {
            assert!(users(bad).is_err(), "{bad:.20}");
            assert!(file_systems(bad).is_err());
            assert!(interfaces(bad).is_err());
            assert!(info(bad).is_err() || bad.contains("host-name"));
            assert!(freeze(bad).is_err());
            assert!(host_name(bad).is_err() || bad == r#"{"return": {}}"#);
        }
        // Elements that can be parsed are kept.
        let mixed = r#"{"return": [5, {"user": "root"}, {"user": 7}, null]}"#;
        assert_eq!(users(mixed).unwrap().len(), 1);
    }
}
