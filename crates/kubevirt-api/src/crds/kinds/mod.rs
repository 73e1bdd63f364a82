//! The rows: every kind that has a definition, one file a group.

mod kubevirt;

use super::definition::Definition;

pub(super) fn all() -> Vec<Definition> {
    [kubevirt::rows()].into_iter().flatten().collect()
}
