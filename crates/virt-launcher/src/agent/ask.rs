//! The questions, put together.

use error_chain::error_chain;
use launcher_channel::{Agent, AgentCommand, AgentQuestion, AgentReport};

use super::answers::{self, Garbage};

/// Bytes of an answer: a thousand users fit in.
pub(super) const LARGEST: usize = 256 << 10;

/// The command that takes as long as the guest has to write.
pub(super) const FREEZE: &str = "guest-fsfreeze-freeze";
const THAW: &str = "guest-fsfreeze-thaw";

/// What an agent must know to be of use.
const NEEDED: [&str; 10] = [
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

/// Why a question has no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum AskError {
    #[error(transparent)]
    Libvirt(#[from] libvirt::Error),
    #[error(transparent)]
    Garbage(#[from] Garbage),
    #[error("the agent's answer of {0} bytes is thrown away")]
    TooLarge(usize),
}

/// Somebody who passes commands to an agent.
pub(super) trait Speaker {
    fn say(&self, command: &str) -> impl Future<Output = Result<String, libvirt::Error>>;
}

async fn ask<T>(
    speaker: &impl Speaker,
    command: &str,
    read: impl FnOnce(&str) -> Result<T, Garbage>,
) -> Result<T, AskError> {
    let answer = speaker
        .say(&format!(r#"{{"execute":"{command}"}}"#))
        .await?;
    if answer.len() > LARGEST {
        return Err(AskError::TooLarge(answer.len()));
    }
    Ok(read(&answer)?)
}

/// One that the agent may not know or not want to answer.
async fn try_ask<T: Default>(
    speaker: &impl Speaker,
    command: &str,
    read: impl FnOnce(&str) -> Result<T, Garbage>,
) -> T {
    match ask(speaker, command, read).await {
        Ok(value) => value,
        Err(err) => {
            let err = error_chain(&err);
            tracing::debug!(command, err, "the agent gives no answer");
            T::default()
        }
    }
}

/// What is asked whenever a look is due. An agent whose file systems are held still has put most of
/// its commands away: what it said before stands.
pub(super) async fn look(speaker: &impl Speaker, before: Option<Agent>) -> Result<Agent, AskError> {
    let freeze = try_ask(speaker, "guest-fsfreeze-status", answers::freeze).await;
    if freeze.is_some() {
        return Ok(Agent {
            freeze,
            ..before.unwrap_or_default()
        });
    }
    let (_, commands) = ask(speaker, "guest-info", answers::info).await?;
    Ok(Agent {
        missing: missing(&commands),
        os: try_ask(speaker, "guest-get-osinfo", |text| {
            answers::os(text).map(Some)
        })
        .await,
        interfaces: try_ask(speaker, "guest-network-get-interfaces", answers::interfaces).await,
        freeze,
    })
}

fn missing(commands: &[AgentCommand]) -> Vec<String> {
    let knows = |name: &str| {
        commands
            .iter()
            .any(|command| command.enabled && command.name == name)
    };
    let missing = NEEDED.iter().filter(|name| !knows(name));
    missing.map(|name| (*name).to_owned()).collect()
}

/// What somebody asked for.
pub(super) async fn report(
    speaker: &impl Speaker,
    question: AgentQuestion,
) -> Result<AgentReport, AskError> {
    let mut report = AgentReport::default();
    match question {
        AgentQuestion::Users => {
            report.users = ask(speaker, "guest-get-users", answers::users).await?;
        }
        AgentQuestion::FileSystems => {
            report.file_systems = ask(speaker, "guest-get-fsinfo", answers::file_systems).await?;
        }
        AgentQuestion::Everything => {
            (report.version, report.commands) = ask(speaker, "guest-info", answers::info).await?;
            report.host_name = try_ask(speaker, "guest-get-host-name", answers::host_name).await;
            report.os = try_ask(speaker, "guest-get-osinfo", |text| {
                answers::os(text).map(Some)
            })
            .await;
            report.timezone = try_ask(speaker, "guest-get-timezone", answers::timezone).await;
            report.users = try_ask(speaker, "guest-get-users", answers::users).await;
            report.file_systems = try_ask(speaker, "guest-get-fsinfo", answers::file_systems).await;
            report.freeze = try_ask(speaker, "guest-fsfreeze-status", answers::freeze).await;
        }
        AgentQuestion::Freeze { .. } => {
            freeze(speaker).await?;
            report.freeze = Some("frozen".to_owned());
        }
        AgentQuestion::Thaw => {
            ask(speaker, THAW, answers::done).await?;
            failpoints::after("virt-launcher/agent/thaw");
        }
    }
    Ok(report)
}

/// Holds the guest's file systems still, all or none.
async fn freeze(speaker: &impl Speaker) -> Result<(), AskError> {
    // An agent that holds them still refuses to do it again.
    if try_ask(speaker, "guest-fsfreeze-status", answers::freeze)
        .await
        .is_some()
    {
        return Ok(());
    }
    let frozen = ask(speaker, FREEZE, answers::done).await;
    if frozen.is_ok() {
        failpoints::after("virt-launcher/agent/freeze");
    }
    if frozen.is_err() {
        // Some may be held already, or all once the guest finds the time.
        try_ask(speaker, THAW, answers::done).await;
    }
    frozen
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    /// An agent by script: the answer to each command.
    struct Script(HashMap<&'static str, String>);

    impl Speaker for Script {
        async fn say(&self, command: &str) -> Result<String, libvirt::Error> {
            let command: serde_json::Value = serde_json::from_str(command).unwrap();
            let answer = self.0.get(command["execute"].as_str().unwrap());
            answer.cloned().ok_or(libvirt::Error::Closed)
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
    async fn an_agent_that_lacks_commands_is_told_apart() {
        let full = Script(HashMap::from([
            ("guest-info", info(&NEEDED)),
            (
                "guest-fsfreeze-status",
                r#"{"return": "thawed"}"#.to_owned(),
            ),
        ]));
        let seen = look(&full, None).await.unwrap();
        assert_eq!(seen, Agent::default());
        let old = Script(HashMap::from([("guest-info", info(&NEEDED[..8]))]));
        let seen = look(&old, None).await.unwrap();
        assert_eq!(seen.missing, NEEDED[8..]);
    }

    #[tokio::test]
    async fn a_guest_that_is_held_still_keeps_what_it_said() {
        let held = Script(HashMap::from([
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
        let seen = look(&held, Some(before.clone())).await.unwrap();
        assert_eq!(seen.freeze.as_deref(), Some("frozen"));
        assert_eq!(seen.missing, before.missing);
    }

    #[tokio::test]
    async fn megabytes_and_garbage_are_thrown_away() {
        let large = format!(r#"{{"return": "{}"}}"#, "x".repeat(LARGEST));
        let mut answers = HashMap::from([
            ("guest-info", info(&NEEDED)),
            ("guest-get-osinfo", large.clone()),
            ("guest-network-get-interfaces", "\u{1}{{{".to_owned()),
        ]);
        let seen = look(&Script(answers.clone()), None).await.unwrap();
        assert_eq!(seen, Agent::default());
        answers.insert("guest-get-users", large);
        let refused = report(&Script(answers), AgentQuestion::Users).await;
        assert!(matches!(refused, Err(AskError::TooLarge(_))));
    }

    #[tokio::test]
    async fn a_report_has_what_the_agent_knows() {
        let script = Script(HashMap::from([
            ("guest-info", info(&["guest-ping"])),
            (
                "guest-get-users",
                r#"{"return": [{"user": "root"}]}"#.to_owned(),
            ),
        ]));
        let report = report(&script, AgentQuestion::Everything).await.unwrap();
        assert_eq!(report.version.as_deref(), Some("1"));
        assert_eq!(report.users.len(), 1);
        assert_eq!(report.host_name, None);
    }

    #[tokio::test]
    async fn a_guest_is_held_still_whole_or_not_at_all() {
        /// Notes what it is told, and cannot freeze.
        struct Weak(std::cell::RefCell<Vec<String>>);

        impl Speaker for Weak {
            async fn say(&self, command: &str) -> Result<String, libvirt::Error> {
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

        let question = AgentQuestion::Freeze {
            thaw_after_seconds: None,
        };
        let weak = Weak(std::cell::RefCell::default());
        report(&weak, question).await.unwrap_err();
        assert_eq!(*weak.0.borrow(), ["guest-fsfreeze-status", FREEZE, THAW]);

        // One that holds still already is not asked again.
        let held = r#"{"return": "frozen"}"#.to_owned();
        let script = Script(HashMap::from([("guest-fsfreeze-status", held)]));
        let found = report(&script, question).await.unwrap();
        assert_eq!(found.freeze.as_deref(), Some("frozen"));
        let thawed = Script(HashMap::from([(THAW, r#"{"return": 3}"#.to_owned())]));
        let found = report(&thawed, AgentQuestion::Thaw).await.unwrap();
        assert_eq!(found.freeze, None);
    }
}
