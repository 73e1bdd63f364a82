//! Where the backup is: the claim and the directory.

use kubevirt_api::backup::{BackupMode, ConditionType as Type, VirtualMachineBackup};
use kubevirt_api::conditions::{self, Condition as _};

/// What stands before the name of the directory in the message of a backup that is complete.
const DIRECTORY: &str = "directory ";

/// The backup to restore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Source {
    /// With what is missing.
    Waits(String),
    /// With why it never can be restored.
    Unusable(String),
    Found {
        claim: String,
        directory: String,
    },
}

/// The place of a backup that an object describes.
pub(super) fn of_backup(name: &str, backup: Option<&VirtualMachineBackup>) -> Source {
    let Some(backup) = backup else {
        return Source::Waits(format!("there is no VirtualMachineBackup {name}"));
    };
    if backup.spec.mode == Some(BackupMode::Pull) {
        return Source::Unusable(format!(
            "VirtualMachineBackup {name} has the mode Pull: the client that has read its disks restores them"
        ));
    }
    if let Some(failed) = holds(backup, &Type::Failed) {
        return Source::Unusable(format!("VirtualMachineBackup {name} failed: {failed}"));
    }
    let Some(message) = holds(backup, &Type::Complete) else {
        return Source::Waits(format!("VirtualMachineBackup {name} is not complete"));
    };
    match (backup.spec.pvc_name.as_deref(), directory(message)) {
        (Some(claim), Some(directory)) => Source::Found {
            claim: claim.to_owned(),
            directory: directory.to_owned(),
        },
        _ => Source::Unusable(format!(
            "the status of VirtualMachineBackup {name} does not name a directory: give \
             spec.source.pvcName and spec.source.directory instead"
        )),
    }
}

/// The message of the condition, if it is true.
fn holds<'a>(backup: &'a VirtualMachineBackup, kind: &Type) -> Option<&'a str> {
    let all = &backup.status.as_ref()?.conditions;
    let found = conditions::find(all, &kind.as_str().to_owned())?;
    (found.status() == conditions::TRUE).then(|| found.message())
}

fn directory(message: &str) -> Option<&str> {
    let (_, rest) = message.split_once(DIRECTORY)?;
    let end = rest.find([' ', ',', ';']).unwrap_or(rest.len());
    // The sentence may end here.
    let name = rest.get(..end)?.trim_end_matches('.');
    (!name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn directory_is_known_once_the_backup_is_complete() {
        let backup = |kind: &str, message: &str| -> VirtualMachineBackup {
            serde_json::from_value(json!({
                "spec": {"source": {"kind": "VirtualMachine", "name": "a"}, "pvcName": "c"},
                "status": {"conditions": [{
                    "type": kind, "status": "True", "reason": "r", "message": message,
                    "lastTransitionTime": "2026-01-02T03:04:05Z",
                }]},
            }))
            .unwrap()
        };
        let found = |directory: &str| Source::Found {
            claim: "c".to_owned(),
            directory: directory.to_owned(),
        };
        for (message, directory) in [
            (
                "claim c, directory b-20260102-030405 (files: 1, bytes: 7)",
                "b-20260102-030405",
            ),
            ("claim c, directory b-1", "b-1"),
            (
                "claim directory-c, directory b.x-1. Check the guest agent.",
                "b.x-1",
            ),
        ] {
            let backup = backup("Complete", message);
            assert_eq!(of_backup("b", Some(&backup)), found(directory), "{message}");
        }
        let unusable = |kind, message| {
            let found = of_backup("b", Some(&backup(kind, message)));
            matches!(found, Source::Unusable(_))
        };
        assert!(unusable("Complete", "claim c"));
        assert!(unusable("Failed", "no space"));
        let mut pull = backup("Progressing", "m");
        pull.spec.mode = Some(BackupMode::Pull);
        let found = of_backup("b", Some(&pull));
        assert!(matches!(found, Source::Unusable(_)), "{found:?}");
        for waits in [None, Some(&backup("Progressing", "directory b"))] {
            assert!(matches!(of_backup("b", waits), Source::Waits(_)));
        }
    }
}
