//! What the conditions of a backup or a restore say.

use serde_json::Value;

use crate::objects::text;

/// What stands before the name of the directory in the message of a backup that is complete.
const DIRECTORY: &str = "directory ";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum State {
    /// With what it waits for, or does.
    Pending(String),
    Progressing(String),
    /// A client can read the disks.
    Offered(String),
    /// With the message, which may say what is not as it was asked for.
    Complete(String),
    Failed(String),
}

impl State {
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Pending(_) => "Pending",
            Self::Progressing(_) => "Progressing",
            Self::Offered(_) => "Offered",
            Self::Complete(_) => "Complete",
            Self::Failed(_) => "Failed",
        }
    }

    pub(super) fn message(&self) -> &str {
        match self {
            Self::Pending(message)
            | Self::Progressing(message)
            | Self::Offered(message)
            | Self::Complete(message)
            | Self::Failed(message) => message,
        }
    }
}

/// The state of an object, both of whose kinds have the same conditions.
pub(super) fn state(object: &Value) -> State {
    let all = object.pointer("/status/conditions");
    let all = all.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let find = |kind: &str| {
        let mut found = all.iter();
        found.find(|one| text(one, "/type") == Some(kind) && text(one, "/status") == Some("True"))
    };
    let message = |one: &Value| text(one, "/message").unwrap_or_default().to_owned();
    if let Some(one) = find("Failed") {
        return State::Failed(message(one));
    }
    if let Some(one) = find("Complete") {
        return State::Complete(message(one));
    }
    let Some(one) = find("Progressing") else {
        return State::Pending(String::new());
    };
    match text(one, "/reason") {
        Some("Initializing" | "BackupRestoreWaits") => State::Pending(message(one)),
        Some("ExportReady") => State::Offered(message(one)),
        _ => State::Progressing(message(one)),
    }
}

/// Of the disks of a restore: how many bytes are done, and of how many. `None` while that is not known.
pub(super) fn done(object: &Value) -> Option<(u64, u64)> {
    let volumes = object.pointer("/status/volumes")?.as_array()?;
    let total = volumes.iter().try_fold(0_u64, |sum, one| {
        sum.checked_add(one["diskBytes"].as_u64()?)
    })?;
    let percent = text(object, "/status/progress")?.strip_suffix('%')?;
    let (whole, tenth) = percent.split_once('.').unwrap_or((percent, "0"));
    let tenths = whole.parse::<u64>().ok()?.checked_mul(10)?;
    let tenths = tenths.checked_add(tenth.parse().ok()?)?;
    let done = u128::from(total) * u128::from(tenths) / 1000;
    Some((u64::try_from(done).ok()?.min(total), total))
}

/// The directory of a backup that is complete.
pub(super) fn directory(state: &State) -> Option<&str> {
    let State::Complete(message) = state else {
        return None;
    };
    let (_, rest) = message.split_once(DIRECTORY)?;
    let end = rest.find([' ', ',', ';']).unwrap_or(rest.len());
    let name = rest.get(..end)?.trim_end_matches('.');
    (!name.is_empty()).then_some(name)
}

/// The names of the volumes in a backup.
pub(super) fn included(backup: &Value) -> Vec<String> {
    let all = backup.pointer("/status/includedVolumes");
    let all = all.and_then(Value::as_array).into_iter().flatten();
    all.filter_map(|one| text(one, "/volumeName").map(str::to_owned))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn with(conditions: &Value) -> Value {
        json!({"status": {"conditions": conditions}})
    }

    fn condition(kind: &str, status: &str, reason: &str) -> Value {
        json!({"type": kind, "status": status, "reason": reason, "message": "m"})
    }

    #[test]
    fn end_counts_more_than_progress() {
        let check = |conditions: Value, expected: State| {
            assert_eq!(state(&with(&conditions)), expected, "{conditions}");
        };
        let m = || "m".to_owned();
        check(json!([]), State::Pending(String::new()));
        let waits = condition("Progressing", "True", "Initializing");
        check(json!([waits]), State::Pending(m()));
        let waits = condition("Progressing", "True", "BackupRestoreWaits");
        check(json!([waits]), State::Pending(m()));
        let runs = condition("Progressing", "True", "Initiated");
        check(json!([runs]), State::Progressing(m()));
        let offered = condition("Progressing", "True", "ExportReady");
        check(json!([offered]), State::Offered(m()));
        let done = condition("Complete", "True", "Completed");
        let over = condition("Progressing", "False", "Completed");
        check(json!([over, done]), State::Complete(m()));
        let not_yet = condition("Complete", "False", "Initiated");
        check(json!([not_yet, runs]), State::Progressing(m()));
        let failed = condition("Failed", "True", "Failed");
        check(json!([failed, done]), State::Failed(m()));
        assert_eq!(state(&json!({})), State::Pending(String::new()));
    }

    #[test]
    fn progress_is_in_bytes_of_all_disks() {
        let restore = |progress: &str| {
            json!({"status": {"progress": progress, "volumes": [
                {"name": "a", "diskBytes": 600}, {"name": "b", "diskBytes": 400}]}})
        };
        assert_eq!(done(&restore("42.5%")), Some((425, 1000)));
        assert_eq!(done(&restore("100.0%")), Some((1000, 1000)));
        assert_eq!(done(&restore("7%")), Some((70, 1000)));
        assert_eq!(done(&restore("999999999999999999999%")), None);
        assert_eq!(done(&restore("soon")), None);
        assert_eq!(done(&json!({"status": {"progress": "1.0%"}})), None);
        let huge = json!({"status": {"progress": "50.0%", "volumes": [{"diskBytes": i64::MAX}]}});
        let half = u64::try_from(i64::MAX).unwrap();
        assert_eq!(done(&huge), Some((half / 2, half)));
    }

    #[test]
    fn directory_is_in_the_message() {
        let named = |message: &str| {
            let state = State::Complete(message.to_owned());
            directory(&state).map(str::to_owned)
        };
        let message =
            "claim c, directory a-20261129-031500 (files: 2, bytes: 7); all blocks are copied";
        assert_eq!(named(message).as_deref(), Some("a-20261129-031500"));
        assert_eq!(named("claim c, directory a.").as_deref(), Some("a"));
        assert_eq!(named("it is complete"), None);
        assert_eq!(directory(&State::Failed("directory a".to_owned())), None);
    }
}
