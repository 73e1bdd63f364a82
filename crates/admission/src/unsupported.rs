//! Kinds that this version does not act on. [`model::unsupported`] lists the unsupported fields of a
//! VMI.
//!
//! Objects of these kinds are stored and validated; a new one gets a warning.

/// A kind whose objects are stored and validated, but not reconciled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnsupportedKind {
    pub group: &'static str,
    pub kind: &'static str,
}

/// All unsupported kinds.
pub const KINDS: &[UnsupportedKind] = &[kind_row("plugin.kubevirt.io", "Plugin")];

const fn kind_row(group: &'static str, kind: &'static str) -> UnsupportedKind {
    UnsupportedKind { group, kind }
}

/// Warning for the author of an object of an unsupported kind.
pub fn kind(group: &str, kind: &str) -> Option<String> {
    let is_unsupported = KINDS
        .iter()
        .any(|row| row.group == group && row.kind == kind);
    is_unsupported.then(|| {
        format!(
            "accepted, but this version cannot run it yet: {kind} of {group} is kept and checked, \
             and nothing acts on it"
        )
    })
}
