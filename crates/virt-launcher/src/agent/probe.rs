//! The probes of a VMI that its agent answers: a ping, and a command in the guest.
//!
//! The kubelet runs them in the pod, as the program `virt-probe`. Its exit code is the answer. It uses
//! a connection to libvirtd of its own, so that a busy launcher does not fail a healthy guest.

use std::error::Error;
use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use error_chain::error_chain;
use libvirt::{Domain, DomainState, DomainUuid, ErrorCode, PausedReason};
use serde::Deserialize;
use serde_json::json;
use tokio::net::UnixStream;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use super::commands::{AgentError, MAX_RESPONSE, Transport};
use super::failed_pings;
use super::responses;
use super::task::LibvirtTransport;
use crate::guest::{Phase, Record, RecordStore};
use crate::hypervisor;
use crate::settings::Paths;

/// Time between two looks at a command that runs.
const POLL: Duration = Duration::from_millis(200);
const DEFAULT_TIMEOUT: u64 = 1;

/// What is asked of the guest.
#[derive(Debug, PartialEq, Eq)]
enum Question {
    Ping,
    Command {
        path: String,
        arguments: Vec<String>,
    },
}

#[derive(Debug, PartialEq, Eq)]
struct Settings {
    domain: String,
    timeout: Duration,
    question: Question,
    /// Succeed until the guest has come from another pod.
    awaits_guest: bool,
}

#[derive(Debug, thiserror::Error)]
enum ProbeError {
    #[error(
        "usage: virt-probe [--awaitsGuest] --domainName NAME --timeoutSeconds N (--guestAgentPing | --command PATH -- ARGUMENTS)"
    )]
    Usage,
    #[error("this pod runs no guest named {0}")]
    OtherGuest(String),
    #[error("the guest did not answer in {} s", .0.as_secs())]
    TimedOut(Duration),
    #[error("the command was ended by signal {0}")]
    Signal(i64),
    #[error("the command ended with code {0}")]
    Failed(i64),
    #[error("ask the guest agent")]
    Agent(#[from] AgentError),
}

/// The whole program.
pub(crate) fn run(paths: &Paths, arguments: &[OsString]) -> ExitCode {
    let Some(settings) = Settings::parse(arguments) else {
        let error = error_chain(&ProbeError::Usage);
        tracing::error!(error, "the guest failed the probe");
        return ExitCode::FAILURE;
    };
    let answered = run_probe(paths, &settings);
    if answered.is_err() && settings.question == Question::Ping {
        // Without a launcher there is no one to tell.
        if let Err(error) = failed_pings::report(&paths.failed_pings()) {
            tracing::debug!(%error, "the failed ping was not counted");
        }
    }
    match answered {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let error = error_chain(error.as_ref());
            tracing::error!(error, "the guest failed the probe");
            ExitCode::FAILURE
        }
    }
}

fn run_probe(paths: &Paths, settings: &Settings) -> Result<(), Box<dyn Error>> {
    let store = RecordStore::open(&paths.record())?;
    if succeeds_unasked(settings, store.record()) {
        return Ok(());
    }
    let domain = domain(&store, &settings.domain)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let timeout = settings.timeout;
    let asked = async {
        let stream = UnixStream::connect(paths.libvirt_socket()).await?;
        let (connection, driver, _events) = libvirt::attach(stream);
        let tasks = TaskTracker::new();
        tasks.spawn(driver.run());
        connection.open(hypervisor::URI).await?;
        if settings.question == Question::Ping && is_silent(connection.state(&domain).await) {
            return Ok(());
        }
        let transport = LibvirtTransport { connection, domain };
        ask(&transport, &settings.question).await?;
        Ok(())
    };
    runtime.block_on(async {
        let end = tokio::time::timeout(timeout, asked).await;
        end.unwrap_or_else(|_| Err(ProbeError::TimedOut(timeout).into()))
    })
}

/// Whether the guest has not come here yet, or its probes are paused.
fn succeeds_unasked(settings: &Settings, record: Option<&Record>) -> bool {
    let arrived = record.is_some_and(|record| {
        !matches!(
            record.phase,
            Phase::Planned | Phase::Receiving | Phase::Received
        )
    });
    let is_paused = record.is_some_and(|record| record.plan.agent_probes_paused);
    (settings.awaits_guest && !arrived) || (settings.question == Question::Ping && is_paused)
}

/// The pod's guest, from the launcher's record.
fn domain(store: &RecordStore, name: &str) -> Result<Domain, Box<dyn Error>> {
    let plan = store.record().map(|record| &record.plan);
    let plan = plan.filter(|plan| plan.domain_name == name);
    let uuid = plan.and_then(|plan| DomainUuid::parse(&plan.domain_uuid));
    let uuid = uuid.ok_or_else(|| ProbeError::OtherGuest(name.to_owned()))?;
    Ok(Domain {
        name: name.to_owned(),
        uuid,
        id: None,
    })
}

/// Whether the guest cannot answer and is well: it is paused on purpose, or has not arrived in this pod. A
/// ping of such a guest succeeds, as otherwise the pause would end it.
fn is_silent(state: Result<DomainState, libvirt::Error>) -> bool {
    match state {
        Ok(DomainState::Paused(reason)) => matches!(
            reason,
            PausedReason::User
                | PausedReason::Migration
                | PausedReason::Save
                | PausedReason::Dump
                | PausedReason::FromSnapshot
                | PausedReason::ShuttingDown
                | PausedReason::Snapshot
                | PausedReason::StartingUp
                | PausedReason::Postcopy
        ),
        Ok(_) => false,
        Err(error) => error.code() == Some(ErrorCode::NO_DOMAIN),
    }
}

/// Asks once; a command is waited for.
async fn ask(transport: &impl Transport, question: &Question) -> Result<(), ProbeError> {
    let (path, arguments) = match question {
        Question::Ping => {
            send(transport, r#"{"execute":"guest-ping"}"#).await?;
            return Ok(());
        }
        Question::Command { path, arguments } => (path, arguments),
    };
    let start = json!({"execute": "guest-exec", "arguments": {"path": path, "arg": arguments}});
    let started = send(transport, &start.to_string()).await?;
    let Started { pid } = responses::returned(&started).map_err(AgentError::from)?;
    let look = json!({"execute": "guest-exec-status", "arguments": {"pid": pid}}).to_string();
    let mut next = Instant::now();
    loop {
        let status = send(transport, &look).await?;
        let status: Status = responses::returned(&status).map_err(AgentError::from)?;
        match status {
            Status { exited: false, .. } => {}
            Status {
                signal: Some(signal),
                ..
            } => return Err(ProbeError::Signal(signal)),
            Status { exitcode, .. } => match exitcode.unwrap_or(0) {
                0 => return Ok(()),
                code => return Err(ProbeError::Failed(code)),
            },
        }
        next += POLL;
        tokio::time::sleep_until(next).await;
    }
}

async fn send(transport: &impl Transport, command: &str) -> Result<String, AgentError> {
    let response = transport.send(command).await?;
    if response.len() > MAX_RESPONSE {
        return Err(AgentError::TooLarge(response.len()));
    }
    Ok(response)
}

#[derive(Deserialize)]
struct Started {
    pid: i64,
}

#[derive(Deserialize)]
struct Status {
    exited: bool,
    #[serde(default)]
    exitcode: Option<i64>,
    #[serde(default)]
    signal: Option<i64>,
}

impl Settings {
    fn parse(arguments: &[OsString]) -> Option<Self> {
        let mut rest = arguments
            .iter()
            .map(|one| one.to_string_lossy().into_owned());
        let (mut domain, mut timeout, mut path) = (None, DEFAULT_TIMEOUT, None);
        let (mut pings, mut awaits_guest) = (false, false);
        while let Some(flag) = rest.next() {
            match flag.as_str() {
                "--domainName" => domain = Some(rest.next()?),
                "--timeoutSeconds" => timeout = rest.next()?.parse().ok()?,
                "--command" => path = Some(rest.next()?),
                "--guestAgentPing" => pings = true,
                "--awaitsGuest" => awaits_guest = true,
                "--" => break,
                _ => return None,
            }
        }
        let question = match (path, pings) {
            (None, true) => Question::Ping,
            (Some(path), false) => Question::Command {
                path,
                arguments: rest.collect(),
            },
            _ => return None,
        };
        Some(Self {
            domain: domain?,
            timeout: Duration::from_secs(timeout),
            question,
            awaits_guest,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Answers one after the other; the last one again and again.
    struct Scripted(&'static [&'static str], AtomicUsize);

    impl Transport for Scripted {
        async fn send(&self, _: &str) -> Result<String, libvirt::Error> {
            let at = self.1.fetch_add(1, Ordering::Relaxed);
            Ok(self.0[at.min(self.0.len() - 1)].to_owned())
        }
    }

    async fn answer(responses: &'static [&'static str]) -> Result<(), String> {
        let command = Question::Command {
            path: "/bin/true".to_owned(),
            arguments: Vec::new(),
        };
        let transport = Scripted(responses, AtomicUsize::new(0));
        let asked = tokio::time::timeout(Duration::from_secs(9), ask(&transport, &command));
        let Ok(answer) = asked.await else {
            return Err("no answer".to_owned());
        };
        answer.map_err(|error| error.to_string())
    }

    #[tokio::test(start_paused = true)]
    async fn exit_code_of_the_command_is_the_answer() {
        const STARTED: &str = r#"{"return": {"pid": 7}}"#;
        const RUNS: &str = r#"{"return": {"exited": false}}"#;
        let failed = |text: &str| Err(text.to_owned());
        let done = answer(&[
            STARTED,
            RUNS,
            RUNS,
            r#"{"return": {"exited": true, "exitcode": 0}}"#,
        ]);
        assert_eq!(done.await, Ok(()));
        let done = answer(&[STARTED, r#"{"return": {"exited": true, "exitcode": 3}}"#]);
        assert_eq!(done.await, failed("the command ended with code 3"));
        let done = answer(&[STARTED, r#"{"return": {"exited": true, "signal": 9}}"#]);
        assert_eq!(done.await, failed("the command was ended by signal 9"));
        assert_eq!(answer(&["nonsense"]).await, failed("ask the guest agent"));
        assert_eq!(answer(&[STARTED, RUNS]).await, failed("no answer"));
    }

    #[tokio::test]
    async fn ping_needs_one_answer() {
        let transport = Scripted(&[r#"{"return": {}}"#], AtomicUsize::new(0));
        ask(&transport, &Question::Ping).await.unwrap();
        assert_eq!(transport.1.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn guest_that_is_paused_on_purpose_fails_no_ping() {
        for (state, expected) in [
            (DomainState::Paused(PausedReason::User), true),
            (DomainState::Paused(PausedReason::Migration), true),
            (DomainState::Paused(PausedReason::StartingUp), true),
            (DomainState::Paused(PausedReason::IoError), false),
            (DomainState::Paused(PausedReason::Crashed), false),
            (DomainState::Running(libvirt::RunningReason::Other), false),
            (DomainState::ShuttingDown, false),
        ] {
            assert_eq!(is_silent(Ok(state)), expected, "{state:?}");
        }
        assert!(!is_silent(Err(libvirt::Error::Closed)));
    }

    #[test]
    fn paused_ping_and_awaited_guest_need_no_answer() {
        let record = |phase: &str, paused: bool| -> Record {
            serde_json::from_value(json!({
                "plan": {"vmiUid": "u", "domainName": "n_a", "domainUuid": "", "domainXml": "",
                         "agentProbesPaused": paused, "graceSeconds": 0},
                "phase": phase, "failed_starts": 0,
            }))
            .unwrap()
        };
        let parse = |flags: &str| {
            let line = format!("--domainName n_a {flags}");
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            Settings::parse(&words).unwrap()
        };
        for (flags, record, expected) in [
            ("--guestAgentPing", None, false),
            ("--guestAgentPing", Some(record("started", false)), false),
            ("--guestAgentPing", Some(record("started", true)), true),
            ("--command true", Some(record("started", true)), false),
            ("--awaitsGuest --guestAgentPing", None, true),
            (
                "--awaitsGuest --command true",
                Some(record("received", false)),
                true,
            ),
            (
                "--awaitsGuest --command true",
                Some(record("started", false)),
                false,
            ),
        ] {
            let phase = record.as_ref().map(|record| record.phase);
            let found = succeeds_unasked(&parse(flags), record.as_ref());
            assert_eq!(found, expected, "{flags} {phase:?}");
        }
    }

    #[test]
    fn flags_are_those_of_the_pod() {
        let parse = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            Settings::parse(&words)
        };
        let ping = parse("--domainName n_a --timeoutSeconds 5 --guestAgentPing").unwrap();
        assert_eq!(ping.question, Question::Ping);
        assert_eq!((ping.domain.as_str(), ping.timeout.as_secs()), ("n_a", 5));
        let command =
            parse("--domainName n_a --timeoutSeconds 5 --command cat -- --help /x").unwrap();
        let expected = Question::Command {
            path: "cat".to_owned(),
            arguments: vec!["--help".to_owned(), "/x".to_owned()],
        };
        assert_eq!(command.question, expected);
        for bad in [
            "",
            "--guestAgentPing",
            "--domainName n_a",
            "--domainName n_a --guestAgentPing --command x",
            "--domainName n_a --timeoutSeconds x --guestAgentPing",
            "--what",
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
