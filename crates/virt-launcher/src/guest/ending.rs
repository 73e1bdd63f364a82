//! Explains why a guest ended, from the exit status that process 1 recorded and from QEMU's log.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::time::Duration;

use launcher_channel::StopReason;
use serde::{Deserialize, Serialize};

use crate::monitor::End;

/// Process 1 records an exit at about the time at which libvirt reports it.
const EXIT_TIMEOUT: Duration = Duration::from_millis(500);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Bytes read from the end of QEMU's log.
const LOG_TAIL: u64 = 4 << 10;
/// Characters of QEMU's last message.
const MAX_MESSAGE: usize = 300;

/// Details of an end beside its reason.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Ending {
    pub(crate) note: Option<String>,
    pub(crate) signal: Option<i32>,
}

/// Where the details are found.
#[derive(Debug)]
pub(super) struct Evidence<'a> {
    /// The exits that process 1 recorded.
    pub(super) ends: &'a Path,
    pub(super) log: &'a Path,
    pub(super) qemu: Option<i32>,
}

/// Explains an end.
pub(super) async fn explain(reason: StopReason, evidence: &Evidence<'_>) -> Ending {
    let noted = |note: &str| Ending {
        note: Some(note.to_owned()),
        signal: None,
    };
    match reason {
        StopReason::Panicked => noted("the guest's kernel panicked"),
        StopReason::Watchdog => noted("the guest's watchdog expired and powered it off"),
        StopReason::Crashed | StopReason::Unknown => {
            let end = qemu_end(evidence).await;
            let message = last_message(evidence.log);
            crash(end.as_ref(), message.ok().flatten())
        }
        StopReason::Shutdown
        | StopReason::Destroyed
        | StopReason::Migrated
        | StopReason::Saved
        | StopReason::FromSnapshot
        | StopReason::StartFailed => Ending::default(),
    }
}

async fn qemu_end(evidence: &Evidence<'_>) -> Option<End> {
    let qemu = evidence.qemu?;
    let deadline = tokio::time::Instant::now() + EXIT_TIMEOUT;
    loop {
        let ends = crate::monitor::read_ends(evidence.ends);
        let found = ends.into_iter().rfind(|end| end.pid == qemu);
        if found.is_some() || tokio::time::Instant::now() >= deadline {
            return found;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

fn crash(end: Option<&End>, message: Option<String>) -> Ending {
    let signal = end.and_then(|end| end.signal);
    let how = match end {
        Some(End {
            signal: Some(signal),
            ..
        }) => format!("QEMU was ended by signal {signal}"),
        Some(End {
            code: Some(code), ..
        }) => format!("QEMU exited with code {code}"),
        _ => "QEMU ended for an unknown reason".to_owned(),
    };
    let note = match message {
        Some(message) => format!("{how}; its last message: {message}"),
        None => how,
    };
    Ending {
        note: Some(note),
        signal,
    }
}

/// QEMU's last message, without libvirt's own lines.
fn last_message(log: &Path) -> io::Result<Option<String>> {
    let mut file = File::open(log)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LOG_TAIL)))?;
    let mut tail = Vec::new();
    file.take(LOG_TAIL).read_to_end(&mut tail)?;
    let tail = String::from_utf8_lossy(&tail);
    let line = tail
        .lines()
        .rev()
        .find_map(|line| line.split_once("qemu-system-x86_64: "));
    let printable = |char: &char| !char.is_control();
    Ok(line
        .map(|(_, text)| text.chars().filter(printable).take(MAX_MESSAGE).collect())
        .filter(|text: &String| !text.starts_with("terminating on signal")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(signal: Option<i32>, code: Option<i32>) -> End {
        End {
            pid: 7,
            signal,
            code,
        }
    }

    #[test]
    fn crash_note_has_exit_status_and_last_message() {
        let check = |end: Option<End>, message: Option<&str>, expected: &str, signal| {
            let ending = crash(end.as_ref(), message.map(ToOwned::to_owned));
            assert_eq!(ending.note.as_deref(), Some(expected));
            assert_eq!(ending.signal, signal);
        };
        check(
            Some(end(Some(9), None)),
            None,
            "QEMU was ended by signal 9",
            Some(9),
        );
        check(
            Some(end(None, Some(1))),
            Some("cannot allocate"),
            "QEMU exited with code 1; its last message: cannot allocate",
            None,
        );
        check(None, None, "QEMU ended for an unknown reason", None);
    }

    #[test]
    fn last_message_is_qemus_own_and_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let check = |text: &str, expected: Option<&str>| {
            std::fs::write(&log, text).unwrap();
            assert_eq!(last_message(&log).unwrap().as_deref(), expected, "{text}");
        };
        check("2026: starting up\n-display none\n", None);
        check(
            "2026 qemu-system-x86_64: first\n2026 qemu-system-x86_64: the \x1blast\n2026: shutting down, reason=crashed\n",
            Some("the last"),
        );
        check(
            "qemu-system-x86_64: terminating on signal 15 from pid 3\n",
            None,
        );
        std::fs::write(&log, format!("qemu-system-x86_64: {}", "y".repeat(1000))).unwrap();
        assert_eq!(last_message(&log).unwrap().unwrap().len(), MAX_MESSAGE);
    }

    #[tokio::test(start_paused = true)]
    async fn unrecorded_exit_is_awaited_only_briefly() {
        let dir = tempfile::tempdir().unwrap();
        let (ends, log) = (dir.path().join("ends"), dir.path().join("log"));
        let evidence = Evidence {
            ends: &ends,
            log: &log,
            qemu: Some(7),
        };
        let ending = explain(StopReason::Crashed, &evidence).await;
        assert_eq!(
            ending.note.as_deref(),
            Some("QEMU ended for an unknown reason")
        );
        crate::monitor::write_ends(
            &ends,
            &[End {
                pid: 7,
                signal: Some(11),
                code: None,
            }],
        )
        .unwrap();
        let ending = explain(StopReason::Unknown, &evidence).await;
        assert_eq!(ending.signal, Some(11));
    }
}
