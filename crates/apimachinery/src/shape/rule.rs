//! The merge rule of a field of a built-in kind.

/// How one field of a built-in kind merges.
#[derive(Debug)]
pub struct Rule {
    /// The shape of the value, or of the items of a list.
    pub(super) shape: &'static str,
    pub(super) merge: Merge,
}

#[derive(Debug)]
pub(super) enum Merge {
    /// Objects by field, lists atomically.
    Plain,
    /// Atomic in apply; a strategic merge patch still merges objects.
    Whole,
    /// A list keyed by `patch` in patches and by `keys` in apply (none: atomic in apply).
    Keyed {
        patch: &'static str,
        keys: &'static [&'static str],
    },
    /// A list of distinct scalars.
    Set,
}
