//! The metrics of copies, for each guest that leaves its pod.

use launcher_channel::MigrationProgress;
use metrics::Objects;
use reconcile::Key;

use crate::metrics::{
    MIGRATION_DIRTY_RATE, MIGRATION_PROCESSED, MIGRATION_RATE, MIGRATION_REMAINING, MIGRATION_TOTAL,
};

type Row = (&'static Objects<3>, fn(&MigrationProgress) -> Option<u64>);

static ROWS: [Row; 5] = [
    (&MIGRATION_TOTAL, |progress| progress.total_bytes),
    (&MIGRATION_PROCESSED, |progress| progress.processed_bytes),
    (&MIGRATION_REMAINING, |progress| progress.remaining_bytes),
    (&MIGRATION_DIRTY_RATE, |progress| progress.dirty_rate),
    (&MIGRATION_RATE, |progress| progress.rate),
];

/// Shows how far the copy of a guest is. What its launcher does not report keeps its value.
pub(super) fn publish(guest: &Key, node: &str, progress: &MigrationProgress) {
    for (metric, figure) in &ROWS {
        if let Some(figure) = figure(progress) {
            metric.set([&guest.namespace, &guest.name, node], figure);
        }
    }
}

/// The guest is not copied any more.
pub(super) fn forget(guest: &Key) {
    for (metric, _) in &ROWS {
        metric.remove(|[namespace, name, _]| {
            (namespace, name) == (guest.namespace.as_str(), guest.name.as_str())
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guest_has_figures_while_it_is_copied() {
        let guest = Key::new("figures", "a");
        let progress = MigrationProgress {
            total_bytes: Some(96),
            remaining_bytes: Some(40),
            rate: Some(7),
            ..MigrationProgress::default()
        };
        let shown = || {
            let text = ::metrics::render(&[&crate::METRICS]);
            let lines = text.lines().filter(|line| line.contains("\"figures\""));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        publish(&guest, "n1", &progress);
        let labels = "{namespace=\"figures\",name=\"a\",node=\"n1\"}";
        let expected = [
            format!("kubevirt_vmi_migration_data_bytes_total{labels} 96"),
            format!("kubevirt_vmi_migration_data_remaining_bytes{labels} 40"),
            format!("kubevirt_vmi_migration_memory_transfer_rate_bytes{labels} 7"),
        ];
        assert_eq!(shown(), expected);
        forget(&Key::new("figures", "b"));
        assert_eq!(shown(), expected);
        forget(&guest);
        assert_eq!(shown(), Vec::<String>::new());
    }
}
