//! Kinds of the API that this version does not act on. [`model::unsupported`] has the list of fields
//! of a VMI.
//!
//! Objects of these kinds are valid: they are stored and checked, and new ones bring a warning.

use crate::cluster_config::Binding;

/// Binding of guests that name no network. The API's own default is bridge, which takes the network
/// away from the pod and does not migrate.
pub const DEFAULT_BINDING: Binding = Binding::Masquerade;

/// Groups and kinds whose objects are stored and checked only.
const KINDS: &[(&str, &str)] = &[
    (SNAPSHOT, "VirtualMachineSnapshot"),
    (SNAPSHOT, "VirtualMachineSnapshotContent"),
    (SNAPSHOT, "VirtualMachineRestore"),
    ("pool.kubevirt.io", "VirtualMachinePool"),
    ("clone.kubevirt.io", "VirtualMachineClone"),
    ("export.kubevirt.io", "VirtualMachineExport"),
    ("kubevirt.io", "VirtualMachineInstanceMigration"),
    ("migrations.kubevirt.io", "MigrationPolicy"),
    ("backup.kubevirt.io", "VirtualMachineBackup"),
    ("backup.kubevirt.io", "VirtualMachineBackupTracker"),
    ("plugin.kubevirt.io", "Plugin"),
    (TEMPLATE, "VirtualMachineTemplate"),
    (TEMPLATE, "VirtualMachineTemplateRequest"),
];

const SNAPSHOT: &str = "snapshot.kubevirt.io";
const TEMPLATE: &str = "template.kubevirt.io";

/// The warning for the author of an object of such a kind.
pub fn kind(group: &str, kind: &str) -> Option<String> {
    KINDS.contains(&(group, kind)).then(|| {
        format!(
            "accepted, but this version cannot run it yet: {kind} of {group} is kept and checked, \
             and nothing acts on it"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsupported_kinds_are_known_and_named() {
        for (group, name) in KINDS {
            let known = crate::kinds::ROWS
                .iter()
                .any(|row| row.group == *group && row.kind == *name);
            assert!(known, "{name} is not a known kind");
            let warning = kind(group, name).expect("in the table");
            assert!(warning.contains("this version cannot run it yet"));
        }
        assert_eq!(kind("kubevirt.io", "KubeVirt"), None);
    }
}
