//! What an agent says, made small and harmless. Pure.

use std::fmt;

use launcher_channel::{
    AgentCommand, AgentDisk, AgentFileSystem, AgentInterface, AgentOs, AgentUser,
};
use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::Value;

/// Of any list.
const MOST: usize = 64;
/// Commands: agents know some forty.
const MOST_COMMANDS: usize = 256;
/// Characters of any text.
const LONGEST: usize = 256;

/// An answer that is none. It does not say what is wrong: that would be the guest's words.
#[derive(Debug)]
pub(super) struct Garbage;

impl fmt::Display for Garbage {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("the agent's answer is not understood")
    }
}

impl std::error::Error for Garbage {}

impl From<serde_json::Error> for Garbage {
    fn from(_: serde_json::Error) -> Self {
        Self
    }
}

/// The value of `{"return": ...}`.
pub(super) fn returned<T: DeserializeOwned>(text: &str) -> Result<T, Garbage> {
    #[derive(Deserialize)]
    struct Answer<T> {
        #[serde(rename = "return")]
        value: T,
    }
    let answer: Answer<T> = serde_json::from_str(text)?;
    Ok(answer.value)
}

/// A text of the guest: cut, and without characters that a terminal would act on.
#[derive(Debug, Default)]
struct Text(String);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Self(harmless(&String::deserialize(from)?)))
    }
}

fn harmless(text: &str) -> String {
    let plain = |char: &char| !char.is_control() && !is_invisible(*char);
    text.chars().filter(plain).take(LONGEST).collect()
}

/// Marks that turn the direction of text around, or that nobody sees.
fn is_invisible(char: char) -> bool {
    matches!(char, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// The elements of a list that are understood, up to a bound.
fn some<T: DeserializeOwned>(list: Vec<Value>, most: usize) -> impl Iterator<Item = T> {
    list.into_iter()
        .take(most)
        .filter_map(|value| serde_json::from_value(value).ok())
}

fn text(text: Option<Text>) -> Option<String> {
    text.map(|text| text.0).filter(|text| !text.is_empty())
}

pub(super) fn info(answer: &str) -> Result<(Option<String>, Vec<AgentCommand>), Garbage> {
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
    let info: Info = returned(answer)?;
    let commands =
        some::<Command>(info.supported_commands, MOST_COMMANDS).map(|command| AgentCommand {
            name: command.name.0,
            enabled: command.enabled,
        });
    Ok((text(info.version), commands.collect()))
}

pub(super) fn os(answer: &str) -> Result<AgentOs, Garbage> {
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
    let os: Os = returned(answer)?;
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

pub(super) fn host_name(answer: &str) -> Result<Option<String>, Garbage> {
    #[derive(Deserialize)]
    #[serde(rename_all = "kebab-case")]
    struct Name {
        host_name: Option<Text>,
    }
    Ok(text(returned::<Name>(answer)?.host_name))
}

pub(super) fn timezone(answer: &str) -> Result<Option<String>, Garbage> {
    #[derive(Deserialize)]
    struct Zone {
        zone: Option<Text>,
        offset: Option<i64>,
    }
    let zone: Zone = returned(answer)?;
    let offset = zone.offset.map(|offset| offset.to_string());
    let parts: Vec<String> = text(zone.zone).into_iter().chain(offset).collect();
    Ok((!parts.is_empty()).then(|| parts.join(", ")))
}

pub(super) fn users(answer: &str) -> Result<Vec<AgentUser>, Garbage> {
    #[derive(Deserialize)]
    #[serde(rename_all = "kebab-case")]
    struct User {
        #[serde(rename = "user")]
        name: Text,
        domain: Option<Text>,
        login_time: Option<f64>,
    }
    let users = some::<User>(returned(answer)?, MOST).map(|user| AgentUser {
        name: user.name.0,
        domain: text(user.domain),
        login_time: user.login_time.filter(|time| time.is_finite()),
    });
    Ok(users.collect())
}

pub(super) fn file_systems(answer: &str) -> Result<Vec<AgentFileSystem>, Garbage> {
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
    let all = some::<FileSystem>(returned(answer)?, MOST).map(|file_system| AgentFileSystem {
        device: file_system.name.0,
        mount_point: file_system.mountpoint.0,
        kind: file_system.kind.0,
        used_bytes: file_system.used_bytes,
        total_bytes: file_system.total_bytes,
        disks: some(file_system.disk, MOST).map(disk).collect(),
    });
    Ok(all.collect())
}

/// All but the loopback.
pub(super) fn interfaces(answer: &str) -> Result<Vec<AgentInterface>, Garbage> {
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
    let all = some::<Interface>(returned(answer)?, MOST)
        .filter(|interface| interface.name.0 != "lo")
        .map(|interface| AgentInterface {
            name: interface.name.0,
            mac: text(interface.hardware_address).map(|mac| mac.to_lowercase()),
            addresses: some::<Address>(interface.ip_addresses, MOST)
                .map(|address| address.ip_address.to_string())
                .collect(),
        });
    Ok(all.collect())
}

pub(super) fn freeze(answer: &str) -> Result<Option<String>, Garbage> {
    let state: Text = returned(answer)?;
    Ok(Some(state.0).filter(|state| state == "frozen"))
}

/// Of a command whose answer says nothing but that it was carried out.
pub(super) fn done(answer: &str) -> Result<(), Garbage> {
    returned::<Value>(answer).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_usual_agent_is_understood() {
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

    #[test]
    fn lists_and_texts_of_a_hostile_guest_are_cut() {
        let user = format!(r#"{{"user": "{}"}}"#, "x".repeat(10_000));
        let many = format!(r#"{{"return": [{}]}}"#, vec![user; 1000].join(","));
        let users = users(&many).unwrap();
        assert_eq!(users.len(), MOST);
        assert_eq!(users[0].name.len(), LONGEST);
        let interface = format!(
            r#"{{"return": [{{"name": "e", "ip-addresses": [{}]}}]}}"#,
            vec![r#"{"ip-address": "10.0.0.1"}"#; 1000].join(",")
        );
        assert_eq!(interfaces(&interface).unwrap()[0].addresses.len(), MOST);
    }

    #[test]
    fn texts_do_nothing_to_a_terminal() {
        let name = host_name("{\"return\": {\"host-name\": \"a\\u001b[2J\\u202eb\\n\"}}").unwrap();
        assert_eq!(name.as_deref(), Some("a[2Jb"));
    }

    #[test]
    fn garbage_is_an_error_and_no_panic() {
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
        // What is understood of a list counts.
        let mixed = r#"{"return": [5, {"user": "root"}, {"user": 7}, null]}"#;
        assert_eq!(users(mixed).unwrap().len(), 1);
    }
}
