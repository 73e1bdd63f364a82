//! The rows: every kind that has a definition, one file a group.

mod backup;
mod backup_restore;
mod cdi;
mod clone;
mod export;
mod instancetype;
mod kubevirt;
mod migrations;
mod plugin;
mod pool;
mod snapshot;
mod template;

use super::definition::Definition;

pub(super) fn all() -> Vec<Definition> {
    [
        kubevirt::rows(),
        backup::rows(),
        backup_restore::rows(),
        clone::rows(),
        export::rows(),
        instancetype::rows(),
        migrations::rows(),
        plugin::rows(),
        pool::rows(),
        snapshot::rows(),
        template::rows(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The kinds of the importer, which other programs may define, too.
pub(super) fn importer() -> Vec<Definition> {
    cdi::rows()
}
