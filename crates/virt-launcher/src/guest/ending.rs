//! Why a guest ended, in words: from what process 1 saw of QEMU's end and from QEMU's own log.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::time::Duration;

use launcher_channel::StopReason;
use serde::{Deserialize, Serialize};

use crate::monitor::End;

/// Process 1 writes down an end at about the time at which libvirt tells of it.
const PATIENCE: Duration = Duration::from_millis(500);
const GLANCE: Duration = Duration::from_millis(20);
/// What is read of QEMU's log, and what of its last words is told.
const LOG_TAIL: u64 = 4 << 10;
const LAST_WORDS: usize = 300;

/// What is told of an end beside its reason.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Ending {
    pub(crate) note: Option<String>,
    pub(crate) signal: Option<i32>,
}

/// Where to look.
#[derive(Debug)]
pub(super) struct Traces<'a> {
    /// The list that process 1 keeps.
    pub(super) ends: &'a Path,
    pub(super) log: &'a Path,
    pub(super) qemu: Option<i32>,
}

/// Explains an end.
pub(super) async fn explain(reason: StopReason, traces: &Traces<'_>) -> Ending {
    let said = |note: &str| Ending {
        note: Some(note.to_owned()),
        signal: None,
    };
    match reason {
        StopReason::Panicked => said("the guest's kernel panicked"),
        StopReason::Watchdog => said("the guest's watchdog expired and switched it off"),
        StopReason::Crashed | StopReason::Unknown => {
            let end = end_of(traces).await;
            let words = last_words(traces.log);
            crash(end.as_ref(), words.ok().flatten())
        }
        StopReason::Shutdown
        | StopReason::Destroyed
        | StopReason::Migrated
        | StopReason::Saved
        | StopReason::FromSnapshot
        | StopReason::StartFailed => Ending::default(),
    }
}

async fn end_of(traces: &Traces<'_>) -> Option<End> {
    let qemu = traces.qemu?;
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let ends = crate::monitor::read_ends(traces.ends);
        let found = ends.into_iter().rfind(|end| end.pid == qemu);
        if found.is_some() || tokio::time::Instant::now() >= deadline {
            return found;
        }
        tokio::time::sleep(GLANCE).await;
    }
}

fn crash(end: Option<&End>, words: Option<String>) -> Ending {
    let signal = end.and_then(|end| end.signal);
    let how = match end {
        Some(End {
            signal: Some(signal),
            ..
        }) => format!("QEMU was ended by signal {signal}"),
        Some(End {
            code: Some(code), ..
        }) => format!("QEMU ended by itself with code {code}"),
        _ => "QEMU is gone, and nobody saw how".to_owned(),
    };
    let note = match words {
        Some(words) => format!("{how}; it said last: {words}"),
        None => how,
    };
    Ending {
        note: Some(note),
        signal,
    }
}

/// QEMU's last complaint, without libvirt's own lines.
fn last_words(log: &Path) -> io::Result<Option<String>> {
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
        .map(|(_, words)| words.chars().filter(printable).take(LAST_WORDS).collect())
        .filter(|words: &String| !words.starts_with("terminating on signal")))
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
    fn a_crash_is_told_with_all_that_is_known() {
        let check = |end: Option<End>, words: Option<&str>, expected: &str, signal| {
            let told = crash(end.as_ref(), words.map(ToOwned::to_owned));
            assert_eq!(told.note.as_deref(), Some(expected));
            assert_eq!(told.signal, signal);
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
            "QEMU ended by itself with code 1; it said last: cannot allocate",
            None,
        );
        check(None, None, "QEMU is gone, and nobody saw how", None);
    }

    #[test]
    fn the_last_words_are_qemus_own_and_few() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let check = |text: &str, expected: Option<&str>| {
            std::fs::write(&log, text).unwrap();
            assert_eq!(last_words(&log).unwrap().as_deref(), expected, "{text}");
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
        assert_eq!(last_words(&log).unwrap().unwrap().len(), LAST_WORDS);
    }

    #[tokio::test(start_paused = true)]
    async fn an_end_that_process_1_did_not_write_down_is_not_waited_for_long() {
        let dir = tempfile::tempdir().unwrap();
        let (ends, log) = (dir.path().join("ends"), dir.path().join("log"));
        let traces = Traces {
            ends: &ends,
            log: &log,
            qemu: Some(7),
        };
        let told = explain(StopReason::Crashed, &traces).await;
        assert_eq!(
            told.note.as_deref(),
            Some("QEMU is gone, and nobody saw how")
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
        let told = explain(StopReason::Unknown, &traces).await;
        assert_eq!(told.signal, Some(11));
    }
}
