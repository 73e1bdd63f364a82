//! What an importer's pod reports to the controller of data volumes: lines of progress in its log, and
//! one termination message.
//!
//! **Invariants**: a report fits into a termination message whatever it says; reading never fails
//! loudly, because a container that was killed leaves any text or none.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The termination message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Why the import failed, a name in `crates/reasons`; none after a success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// For people.
    pub message: String,
    /// Whether a retry can help.
    #[serde(default)]
    pub transient: bool,
    /// After a failure: whether the volume has a complete disk all the same, that of before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_intact: bool,
    /// The size of the guest's disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_bytes: Option<u64>,
    /// Whether all files of a backup had the checksums that it names; none if nothing was restored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified: Option<bool>,
    /// The volumes of a backup, and the sizes of their disks.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub volumes: BTreeMap<String, u64>,
}

/// A kubelet keeps 4096 bytes of a termination message; JSON may double some of them.
const MOST_BYTES: usize = 1500;

/// What lines of progress begin with.
const PROGRESS: &str = "progress ";

impl Report {
    pub fn success(disk_bytes: u64) -> Self {
        Self {
            reason: None,
            message: "Import Complete".to_owned(),
            transient: false,
            is_intact: false,
            disk_bytes: Some(disk_bytes),
            verified: None,
            volumes: BTreeMap::new(),
        }
    }

    pub fn restored(disk_bytes: u64, verified: bool) -> Self {
        Self {
            verified: Some(verified),
            ..Self::success(disk_bytes)
        }
    }

    /// What a backup holds. There may be up to 32 volumes, whose names have 63 characters.
    pub fn inspected(volumes: BTreeMap<String, u64>) -> Self {
        Self {
            disk_bytes: None,
            volumes,
            ..Self::success(0)
        }
    }

    /// The version of a source, as a digest.
    pub fn version(digest: String) -> Self {
        Self {
            reason: None,
            message: digest,
            transient: false,
            is_intact: false,
            disk_bytes: None,
            verified: None,
            volumes: BTreeMap::new(),
        }
    }

    /// Shortens the message if necessary.
    pub fn failure(reason: &str, mut message: String, transient: bool) -> Self {
        message.retain(|one| !one.is_control());
        message.truncate(message.floor_char_boundary(MOST_BYTES));
        Self {
            reason: Some(reason.to_owned()),
            message,
            transient,
            is_intact: false,
            disk_bytes: None,
            verified: None,
            volumes: BTreeMap::new(),
        }
    }

    /// The text of the termination message.
    pub fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads a termination message; none if it is not one of an importer.
    pub fn read(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}

/// A line of progress, in thousandths of the whole.
pub fn progress(permille: u64) -> String {
    format!("{PROGRESS}{}.{}%", permille / 10, permille % 10)
}

/// The progress in the last line of a log that has one, such as `42.0%`.
pub fn last_progress(log: &str) -> Option<&str> {
    let mut lines = log.lines().rev();
    let shown = lines.find_map(|line| line.trim().strip_prefix(PROGRESS))?;
    let number = shown.strip_suffix('%')?;
    let valid = number.len() <= 5 && number.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let percent = number.parse::<f64>().ok().filter(|_| valid)?;
    (percent <= 100.0).then_some(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_is_read_as_it_was_written() {
        for report in [
            Report::failure("ImportFailed", "no \"space\"\n".to_owned(), true),
            Report {
                is_intact: true,
                ..Report::failure("BackupNotUsable", "bad".to_owned(), false)
            },
            Report::success(5),
            Report::restored(5, false),
            Report::inspected(BTreeMap::from([("root".to_owned(), u64::MAX)])),
            Report::version("sha256:0".to_owned()),
        ] {
            assert_eq!(Report::read(&report.text()).unwrap(), report);
        }
        assert_eq!(Report::read("Killed"), None);
    }

    #[test]
    fn termination_message_is_short_enough_for_a_kubelet() {
        for text in ["ü\"", "\u{1}", "\\"] {
            let report = Report::failure("DiskImageInvalid", text.repeat(10_000), false);
            let length = report.text().len();
            assert!(length <= 4096, "{length}");
        }
        let volumes = (0..32).map(|at| (format!("{at:063}"), u64::MAX));
        let length = Report::inspected(volumes.collect()).text().len();
        assert!(length <= 4096, "{length}");
    }

    #[test]
    fn last_valid_line_of_progress_counts() {
        let check = |log, expected| assert_eq!(last_progress(log), expected, "{log:?}");
        check("", None);
        check("progress 1.0%\nprogress 42.5%\n", Some("42.5%"));
        check("progress 1.0%\nother\n", Some("1.0%"));
        check("progress 100.0%", Some("100.0%"));
        check("progress 101.0%", None);
        check("progress nan%", None);
        check("progress 1", None);
        assert_eq!(last_progress(&progress(425)), Some("42.5%"));
    }
}
