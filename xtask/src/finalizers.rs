//! Every finalizer that our code adds, with the code that removes it.
//!
//! An object with a finalizer that nothing removes can never be deleted, and neither can its
//! namespace. So a constant of `kubevirt_api::finalizers` may be used only by the rows below, and the
//! text of each row must be in its file.

/// A finalizer, and where it is added and removed.
struct Row {
    finalizer: &'static str,
    added: Option<Place>,
    removed: Place,
}

/// A text in a file.
type Place = (&'static str, &'static str);

/// Constants of `kubevirt_api::finalizers` that controllers use.
#[rustfmt::skip]
const CONSTANTS: &[Row] = &[
    Row { finalizer: "VMI", added: Some(("crates/defaults/src/vmi.rs", "push(finalizers::VMI")), removed: ("crates/virt-controller/src/vmi/act.rs", "fn remove_finalizer") },
    Row { finalizer: "VMI_OLD", added: None, removed: ("crates/virt-controller/src/vmi/plan.rs", "finalizer == finalizers::VMI_OLD") },
    Row { finalizer: "VM_CONTROLLER", added: Some(("crates/virt-controller/src/vm/act.rs", "push(finalizers::VM_CONTROLLER")), removed: ("crates/virt-controller/src/vm/act.rs", "fn finalizers_without") },
    Row { finalizer: "MIGRATION", added: Some(("crates/virt-controller/src/migration/act.rs", "push(finalizers::MIGRATION")), removed: ("crates/virt-controller/src/migration/act.rs", "fn remove_finalizer") },
    Row { finalizer: "SNAPSHOT", added: Some(("crates/virt-controller/src/snapshot/act.rs", "push(finalizers::SNAPSHOT.to_owned())")), removed: ("crates/virt-controller/src/snapshot/act.rs", "Step::RemoveFinalizer => {") },
    Row { finalizer: "SNAPSHOT_CONTENT", added: Some(("crates/virt-controller/src/snapshot/act.rs", "[finalizers::SNAPSHOT_CONTENT]")), removed: ("crates/virt-controller/src/snapshot/contents.rs", "one == finalizers::SNAPSHOT_CONTENT") },
    Row { finalizer: "SNAPSHOT_SOURCE", added: Some(("crates/virt-controller/src/snapshot/act.rs", "push(finalizers::SNAPSHOT_SOURCE.to_owned())")), removed: ("crates/virt-controller/src/snapshot/act.rs", "*one != finalizers::SNAPSHOT_SOURCE") },
    Row { finalizer: "RESTORE", added: Some(("crates/virt-controller/src/restore/act.rs", "push(finalizers::RESTORE.to_owned())")), removed: ("crates/virt-controller/src/restore/act.rs", "one != finalizers::RESTORE") },
    Row { finalizer: "BACKUP", added: Some(("crates/virt-controller/src/backup/act.rs", "push(finalizers::BACKUP.to_owned())")), removed: ("crates/virt-controller/src/backup/act.rs", "one != finalizers::BACKUP") },
    Row { finalizer: "BACKUP_RESTORE", added: Some(("crates/virt-controller/src/backup_restore/act.rs", "push(finalizers::BACKUP_RESTORE.to_owned())")), removed: ("crates/virt-controller/src/backup_restore/act.rs", "one != finalizers::BACKUP_RESTORE") },
    Row { finalizer: "POOL", added: Some(("crates/virt-controller/src/pool/act.rs", "push(finalizers::POOL.to_owned())")), removed: ("crates/virt-controller/src/pool/act.rs", "*one != finalizers::POOL") },
    Row { finalizer: "TEMPLATE_REQUEST", added: Some(("crates/virt-controller/src/template_request/act.rs", "push(finalizers::TEMPLATE_REQUEST.to_owned())")), removed: ("crates/virt-controller/src/template_request/act.rs", "one != finalizers::TEMPLATE_REQUEST") },
];

/// Finalizers of Kubernetes that the embedded API server and node add.
#[rustfmt::skip]
const OF_KUBERNETES: &[Row] = &[
    Row { finalizer: "kubernetes", added: Some(("crates/embedded-api/src/kinds/namespaces.rs", "fn add_finalizer")), removed: ("crates/embedded-api/src/upkeep/namespace.rs", "finalizer != OURS") },
    Row { finalizer: "customresourcecleanup", added: Some(("crates/embedded-api/src/kinds/definitions.rs", "finalizers: &[custom::CLEANUP]")), removed: ("crates/embedded-api/src/upkeep/garbage/contents.rs", "drop_finalizer(api, &call, custom::CLEANUP)") },
    Row { finalizer: "foregroundDeletion", added: Some(("crates/embedded-api/src/verbs/delete.rs", "Some(FOREGROUND)")), removed: ("crates/embedded-api/src/upkeep/garbage/owners.rs", "drop_finalizer(api, call, FOREGROUND)") },
    Row { finalizer: "orphan", added: Some(("crates/embedded-api/src/verbs/delete.rs", "Some(ORPHAN)")), removed: ("crates/embedded-api/src/upkeep/garbage/owners.rs", "drop_finalizer(api, call, ORPHAN)") },
    Row { finalizer: "kubernetes.io/pvc-protection", added: Some(("crates/embedded-node/src/storage/act/claims.rs", "with_finalizer(claim")), removed: ("crates/embedded-node/src/storage/act/claims.rs", "without_finalizer(claim") },
    Row { finalizer: "kubernetes.io/pv-protection", added: Some(("crates/embedded-node/src/storage/act/volumes.rs", "with_finalizer(finalizers, VOLUME_PROTECTION)")), removed: ("crates/embedded-node/src/storage/act/volumes.rs", "without_finalizer(finalizers, VOLUME_PROTECTION)") },
    Row { finalizer: "snapshot.storage.kubernetes.io/volumesnapshot-bound-protection", added: Some(("crates/embedded-node/src/storage/snapshots/act.rs", "with_finalizer(metadata.finalizers.as_ref(), SNAPSHOT_PROTECTION)")), removed: ("crates/embedded-node/src/storage/snapshots/act.rs", "without_finalizer(metadata.finalizers.as_ref(), SNAPSHOT_PROTECTION)") },
    Row { finalizer: "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection", added: Some(("crates/embedded-node/src/storage/snapshots/act.rs", "\"finalizers\": [CONTENT_PROTECTION]")), removed: ("crates/embedded-node/src/storage/snapshots/act.rs", "without_finalizer(metadata.finalizers.as_ref(), CONTENT_PROTECTION)") },
];

const MODULE: &str = "finalizers::";

/// What is wrong in the sources, each a path and a text.
pub(crate) fn faults(sources: &[(&str, &str)]) -> Vec<String> {
    let mut faults = Vec::new();
    for row in CONSTANTS.iter().chain(OF_KUBERNETES) {
        for (path, text) in row.added.iter().chain([&row.removed]) {
            let source = sources.iter().find(|(found, _)| found == path);
            if source.is_none_or(|(_, source)| !source.contains(text)) {
                faults.push(format!(
                    "xtask/src/finalizers.rs: finalizer {}: {path} has no {text:?}; correct the row",
                    row.finalizer
                ));
            }
        }
    }
    let products = sources.iter().filter(|(path, _)| {
        path.starts_with("crates/") && path.contains("/src/") && !path.contains("/kubevirt-api/")
    });
    for (path, text) in products {
        for name in constants(text) {
            if !CONSTANTS.iter().any(|row| row.finalizer == name) {
                faults.push(format!(
                    "{path}: finalizers::{name} has no row in xtask/src/finalizers.rs; name the \
                     code that removes it"
                ));
            }
        }
    }
    faults
}

/// Names of the constants that a source uses.
fn constants(text: &str) -> impl Iterator<Item = &str> {
    let uses = text.split(MODULE).skip(1);
    uses.filter_map(|rest| {
        let is_name = |c: char| c.is_ascii_uppercase() || c == '_';
        let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
        rest.get(..end).filter(|name| !name.is_empty())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_finalizer_that_we_add_has_code_that_removes_it() {
        let root = crate::workspace::root();
        let rows = CONSTANTS.iter().chain(OF_KUBERNETES);
        let places = rows.flat_map(|row| row.added.iter().chain([&row.removed]));
        let read = |path: &'static str| {
            let text = std::fs::read_to_string(root.join(path)).expect(path);
            (path, text)
        };
        let sources: Vec<_> = places.map(|(path, _)| read(path)).collect();
        let sources: Vec<_> = sources
            .iter()
            .map(|(path, text)| (*path, &**text))
            .collect();
        assert_eq!(faults(&sources), Vec::<String>::new());
        // A finalizer that a new controller adds needs a row.
        let unlisted = ("crates/a/src/b.rs", "push(finalizers::UNLISTED)");
        let with_unlisted: Vec<_> = sources.iter().copied().chain([unlisted]).collect();
        assert_eq!(faults(&with_unlisted).len(), 1);
        // A removal that is gone is found.
        let without: Vec<_> = sources
            .iter()
            .copied()
            .filter(|(path, _)| !path.ends_with("vmi/plan.rs"))
            .collect();
        assert_eq!(faults(&without).len(), 1);
    }
}
