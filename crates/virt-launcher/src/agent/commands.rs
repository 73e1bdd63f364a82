//! The agent's commands, and the sequences of them that polls and calls consist of.

use error_chain::error_chain;
use launcher_channel::{Agent, AgentCommand, AgentQuestion, AgentReport};

use super::responses::{self, Malformed};

/// Bytes of a response: enough for a thousand users.
pub(super) const MAX_RESPONSE: usize = 256 << 10;

/// Freezing takes as long as the guest writes out dirty data.
pub(super) const FREEZE: &str = "guest-fsfreeze-freeze";
const THAW: &str = "guest-fsfreeze-thaw";

/// The commands that an agent must support.
const REQUIRED: [&str; 10] = [
    "guest-ping",
    "guest-get-time",
    "guest-info",
    "guest-shutdown",
    "guest-network-get-interfaces",
    "guest-get-fsinfo",
    "guest-get-host-name",
    "guest-get-users",
    "guest-get-timezone",
    "guest-get-osinfo",
];

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum AgentError {
    #[error(transparent)]
    Libvirt(#[from] libvirt::Error),
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error("the guest agent's response of {0} bytes is too large")]
    TooLarge(usize),
}

/// Sends commands to an agent and returns its responses.
pub(super) trait Transport {
    fn send(&self, command: &str) -> impl Future<Output = Result<String, libvirt::Error>>;
}

async fn call<T>(
    transport: &impl Transport,
    command: &str,
    read: impl FnOnce(&str) -> Result<T, Malformed>,
) -> Result<T, AgentError> {
    let response = transport
        .send(&format!(r#"{{"execute":"{command}"}}"#))
        .await?;
    if response.len() > MAX_RESPONSE {
        return Err(AgentError::TooLarge(response.len()));
    }
    Ok(read(&response)?)
}

/// Sends a command that the agent may not support; a failure counts as the default value.
async fn call_or_default<T: Default>(
    transport: &impl Transport,
    command: &str,
    read: impl FnOnce(&str) -> Result<T, Malformed>,
) -> T {
    match call(transport, command, read).await {
        Ok(value) => value,
        Err(error) => {
            let error = error_chain(&error);
            tracing::debug!(command, error, "guest agent command failed");
            T::default()
        }
    }
}

/// One poll. While file systems are frozen an agent disables most of its commands: the report from
/// before the freeze stays valid.
pub(super) async fn poll(
    transport: &impl Transport,
    before: Option<Agent>,
) -> Result<Agent, AgentError> {
    let freeze = call_or_default(transport, "guest-fsfreeze-status", responses::freeze).await;
    if freeze.is_some() {
        return Ok(Agent {
            freeze,
            ..before.unwrap_or_default()
        });
    }
    let (_, commands) = call(transport, "guest-info", responses::info).await?;
    Ok(Agent {
        missing: missing(&commands),
        os: call_or_default(transport, "guest-get-osinfo", |text| {
            responses::os(text).map(Some)
        })
        .await,
        interfaces: call_or_default(
            transport,
            "guest-network-get-interfaces",
            responses::interfaces,
        )
        .await,
        freeze,
        credentials: None,
    })
}

fn missing(commands: &[AgentCommand]) -> Vec<String> {
    let supports = |name: &str| {
        commands
            .iter()
            .any(|command| command.enabled && command.name == name)
    };
    let missing = REQUIRED.iter().filter(|name| !supports(name));
    missing.map(|name| (*name).to_owned()).collect()
}

/// Carries out a call of the handler.
pub(super) async fn execute(
    transport: &impl Transport,
    query: AgentQuestion,
) -> Result<AgentReport, AgentError> {
    let mut report = AgentReport::default();
    match query {
        AgentQuestion::Users => {
            report.users = call(transport, "guest-get-users", responses::users).await?;
        }
        AgentQuestion::FileSystems => {
            report.file_systems =
                call(transport, "guest-get-fsinfo", responses::file_systems).await?;
        }
        AgentQuestion::Everything => {
            (report.version, report.commands) =
                call(transport, "guest-info", responses::info).await?;
            report.host_name =
                call_or_default(transport, "guest-get-host-name", responses::host_name).await;
            report.os = call_or_default(transport, "guest-get-osinfo", |text| {
                responses::os(text).map(Some)
            })
            .await;
            report.timezone =
                call_or_default(transport, "guest-get-timezone", responses::timezone).await;
            report.users = call_or_default(transport, "guest-get-users", responses::users).await;
            report.file_systems =
                call_or_default(transport, "guest-get-fsinfo", responses::file_systems).await;
            report.freeze =
                call_or_default(transport, "guest-fsfreeze-status", responses::freeze).await;
        }
        AgentQuestion::Freeze { .. } => {
            freeze(transport).await?;
            report.freeze = Some("frozen".to_owned());
        }
        AgentQuestion::Thaw => {
            call(transport, THAW, responses::done).await?;
            failpoints::after("virt-launcher/agent/thaw");
        }
    }
    Ok(report)
}

/// Freezes the guest's file systems, all or none.
async fn freeze(transport: &impl Transport) -> Result<(), AgentError> {
    // An agent refuses a second freeze.
    if call_or_default(transport, "guest-fsfreeze-status", responses::freeze)
        .await
        .is_some()
    {
        return Ok(());
    }
    let frozen = call(transport, FREEZE, responses::done).await;
    if frozen.is_ok() {
        failpoints::after("virt-launcher/agent/freeze");
    }
    if frozen.is_err() {
        // Some may be frozen, and a slow guest may still freeze all of them.
        call_or_default(transport, THAW, responses::done).await;
    }
    frozen
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    /// An agent with a fixed response to each command.
    struct Script(HashMap<&'static str, String>);

    impl Transport for Script {
        async fn send(&self, command: &str) -> Result<String, libvirt::Error> {
            let command: serde_json::Value = serde_json::from_str(command).unwrap();
            let response = self.0.get(command["execute"].as_str().unwrap());
            response.cloned().ok_or(libvirt::Error::Closed)
        }
    }

    fn info(commands: &[&str]) -> String {
        let list: Vec<String> = commands
            .iter()
            .map(|name| format!(r#"{{"name": "{name}", "enabled": true}}"#))
            .collect();
        let list = list.join(",");
        format!(r#"{{"return": {{"version": "1", "supported_commands": [{list}]}}}}"#)
    }

    #[tokio::test]
    async fn missing_commands_are_reported() {
        let full = Script(HashMap::from([
            ("guest-info", info(&REQUIRED)),
            (
                "guest-fsfreeze-status",
                r#"{"return": "thawed"}"#.to_owned(),
            ),
        ]));
        let report = poll(&full, None).await.unwrap();
        assert_eq!(report, Agent::default());
        let old = Script(HashMap::from([("guest-info", info(&REQUIRED[..8]))]));
        let report = poll(&old, None).await.unwrap();
        assert_eq!(report.missing, REQUIRED[8..]);
    }

    #[tokio::test]
    async fn report_is_kept_while_frozen() {
        let frozen = Script(HashMap::from([
            ("guest-info", info(&["guest-fsfreeze-thaw"])),
            (
                "guest-fsfreeze-status",
                r#"{"return": "frozen"}"#.to_owned(),
            ),
        ]));
        let before = Agent {
            missing: vec!["guest-get-time".to_owned()],
            ..Agent::default()
        };
        let report = poll(&frozen, Some(before.clone())).await.unwrap();
        assert_eq!(report.freeze.as_deref(), Some("frozen"));
        assert_eq!(report.missing, before.missing);
    }

    /// The class of CVE-2026-13322.
    #[tokio::test]
    async fn oversized_and_malformed_responses_are_dropped() {
        let large = format!(r#"{{"return": "{}"}}"#, "x".repeat(MAX_RESPONSE));
        let mut responses = HashMap::from([
            ("guest-info", info(&REQUIRED)),
            ("guest-get-osinfo", large.clone()),
            ("guest-network-get-interfaces", "\u{1}{{{".to_owned()),
        ]);
        let report = poll(&Script(responses.clone()), None).await.unwrap();
        assert_eq!(report, Agent::default());
        responses.insert("guest-get-users", large);
        let failed = execute(&Script(responses), AgentQuestion::Users).await;
        assert!(matches!(failed, Err(AgentError::TooLarge(_))));
    }

    #[tokio::test]
    async fn report_has_what_the_agent_supports() {
        let script = Script(HashMap::from([
            ("guest-info", info(&["guest-ping"])),
            (
                "guest-get-users",
                r#"{"return": [{"user": "root"}]}"#.to_owned(),
            ),
        ]));
        let report = execute(&script, AgentQuestion::Everything).await.unwrap();
        assert_eq!(report.version.as_deref(), Some("1"));
        assert_eq!(report.users.len(), 1);
        assert_eq!(report.host_name, None);
    }

    #[tokio::test]
    async fn failed_freeze_is_followed_by_a_thaw() {
        /// Records the commands, and cannot freeze.
        struct CannotFreeze(std::cell::RefCell<Vec<String>>);

        impl Transport for CannotFreeze {
            async fn send(&self, command: &str) -> Result<String, libvirt::Error> {
                let value: serde_json::Value = serde_json::from_str(command).unwrap();
                let name = value["execute"].as_str().unwrap().to_owned();
                self.0.borrow_mut().push(name.clone());
                match &*name {
                    FREEZE => Err(libvirt::Error::Closed),
                    "guest-fsfreeze-status" => Ok(r#"{"return": "thawed"}"#.to_owned()),
                    _ => Ok(r#"{"return": 0}"#.to_owned()),
                }
            }
        }

        let query = AgentQuestion::Freeze {
            thaw_after_seconds: None,
        };
        let agent = CannotFreeze(std::cell::RefCell::default());
        execute(&agent, query).await.unwrap_err();
        assert_eq!(*agent.0.borrow(), ["guest-fsfreeze-status", FREEZE, THAW]);

        // A frozen guest is not frozen again.
        let frozen = r#"{"return": "frozen"}"#.to_owned();
        let script = Script(HashMap::from([("guest-fsfreeze-status", frozen)]));
        let found = execute(&script, query).await.unwrap();
        assert_eq!(found.freeze.as_deref(), Some("frozen"));
        let thawed = Script(HashMap::from([(THAW, r#"{"return": 3}"#.to_owned())]));
        let found = execute(&thawed, AgentQuestion::Thaw).await.unwrap();
        assert_eq!(found.freeze, None);
    }
}
