//! The metrics of migrations.

use std::time::Duration;

use jiff::Timestamp;
use kubevirt_api::migration_request::VirtualMachineInstanceMigrationPhase as Phase;
use reconcile::{Key, Store};

use super::view::Migration;
use crate::metrics::{
    MIGRATION_END, MIGRATION_FAILED, MIGRATION_PHASE_SECONDS, MIGRATION_START, MIGRATION_SUCCEEDED,
    MIGRATIONS_PENDING, MIGRATIONS_RUNNING, MIGRATIONS_SCHEDULING, MIGRATIONS_UNSET,
};

/// The metrics, for as long as this process leads.
#[derive(Debug, Default)]
pub(super) struct Figures;

/// Another process reports them from now on.
impl Drop for Figures {
    fn drop(&mut self) {
        MIGRATION_SUCCEEDED.remove(|_| true);
        MIGRATION_FAILED.remove(|_| true);
        MIGRATION_START.remove(|_| true);
        MIGRATION_END.remove(|_| true);
        for gauge in [
            &MIGRATIONS_UNSET,
            &MIGRATIONS_PENDING,
            &MIGRATIONS_SCHEDULING,
            &MIGRATIONS_RUNNING,
        ] {
            gauge.clear();
        }
    }
}

/// Shows the migration of that key, if there still is one, and how many are in which phase.
pub(super) fn observe(key: &Key, all: &Store<Migration>) {
    remove(key);
    if let Some(migration) = all.get(key) {
        show(key, &migration);
    }
    let phases: Vec<Phase> = all.list().iter().map(|one| one.phase()).collect();
    let count = |belongs: fn(&Phase) -> bool| phases.iter().filter(|one| belongs(one)).count();
    MIGRATIONS_UNSET.set([], count(|phase| *phase == Phase::Unset));
    MIGRATIONS_PENDING.set([], count(|phase| *phase == Phase::Pending));
    MIGRATIONS_SCHEDULING.set([], count(|phase| *phase == Phase::Scheduling));
    MIGRATIONS_RUNNING.set([], count(is_under_way));
}

/// A migration that was created at that time has entered a phase.
pub(super) fn enter(phase: &Phase, created: Option<Timestamp>, now: Timestamp) {
    let Some(created) = created else { return };
    let elapsed = now.duration_since(created);
    // A clock that was set back gives no duration.
    let elapsed = Duration::try_from(elapsed).unwrap_or_default();
    MIGRATION_PHASE_SECONDS.observe([phase.as_str()], elapsed);
}

fn remove(key: &Key) {
    let of_final = |[_, name, namespace]: [&str; 3]| name == key.name && namespace == key.namespace;
    MIGRATION_SUCCEEDED.remove(of_final);
    MIGRATION_FAILED.remove(of_final);
    MIGRATION_START
        .remove(|[_, namespace, _, name]| name == key.name && namespace == key.namespace);
    MIGRATION_END
        .remove(|[_, namespace, _, name, _]| name == key.name && namespace == key.namespace);
}

fn show(key: &Key, migration: &Migration) {
    let guest = migration.guest();
    let (namespace, name, vmi) = (key.namespace.as_str(), key.name.as_str(), &*guest.name);
    match migration.phase() {
        Phase::Succeeded => MIGRATION_SUCCEEDED.set([vmi, name, namespace], 1_u64),
        Phase::Failed => MIGRATION_FAILED.set([vmi, name, namespace], 1_u64),
        _ => {}
    }
    let Some(state) = &migration.status.migration_state else {
        return;
    };
    let source = state.source_node.as_deref().unwrap_or_default();
    if let Some(start) = &state.start_timestamp {
        MIGRATION_START.set([source, namespace, vmi, name], start.0.as_second());
    }
    if let Some(end) = &state.end_timestamp {
        let (status, node) = match (state.completed, state.failed) {
            (Some(true), Some(true)) => ("failed", Some(source)),
            (Some(true), _) => ("succeeded", state.target_node.as_deref()),
            _ => ("", Some(source)),
        };
        let node = node.unwrap_or_default();
        MIGRATION_END.set([node, namespace, vmi, name, status], end.0.as_second());
    }
}

/// Whether a migration in that phase counts as one that runs.
fn is_under_way(phase: &Phase) -> bool {
    matches!(
        phase,
        Phase::Scheduled
            | Phase::PreparingTarget
            | Phase::TargetReady
            | Phase::Running
            | Phase::WaitingForSync
            | Phase::Synchronizing
    )
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn migration(name: &str, status: &Value) -> Migration {
        serde_json::from_value(json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration",
            "metadata": {"name": name, "namespace": "figures"},
            "spec": {"vmiName": "guest"}, "status": status,
        }))
        .unwrap()
    }

    /// The lines of this test's migrations; other tests of this process have others.
    fn lines() -> Vec<String> {
        let text = ::metrics::render(&[&crate::METRICS]);
        let lines = text.lines().filter(|line| line.contains("\"figures\""));
        lines.map(str::to_owned).collect()
    }

    #[test]
    fn ended_migrations_have_a_result_and_their_times() {
        let times = |failed: bool| {
            json!({"startTimestamp": "2026-11-21T12:00:00Z", "endTimestamp": "2026-11-21T12:00:30Z",
                "completed": true, "failed": failed, "sourceNode": "n1", "targetNode": "n2"})
        };
        let moved = json!({"phase": "Succeeded", "migrationState": times(false)});
        let stayed = json!({"phase": "Failed", "migrationState": times(true)});
        let (a, b) = (Key::new("figures", "a"), Key::new("figures", "b"));
        show(&a, &migration("a", &moved));
        show(&b, &migration("b", &stayed));
        let of = |name: &str, node: &str| {
            format!(
                "node=\"{node}\",namespace=\"figures\",name=\"guest\",migration_name=\"{name}\""
            )
        };
        let expected = [
            "kubevirt_vmi_migration_succeeded{vmi=\"guest\",vmim=\"a\",namespace=\"figures\"} 1"
                .to_owned(),
            "kubevirt_vmi_migration_failed{vmi=\"guest\",vmim=\"b\",namespace=\"figures\"} 1"
                .to_owned(),
            format!(
                "kubevirt_vmi_migration_start_time_seconds{{{}}} 1795262400",
                of("a", "n1")
            ),
            format!(
                "kubevirt_vmi_migration_start_time_seconds{{{}}} 1795262400",
                of("b", "n1")
            ),
            format!(
                "kubevirt_vmi_migration_end_time_seconds{{{},status=\"failed\"}} 1795262430",
                of("b", "n1")
            ),
            format!(
                "kubevirt_vmi_migration_end_time_seconds{{{},status=\"succeeded\"}} 1795262430",
                of("a", "n2")
            ),
        ];
        assert_eq!(lines(), expected);
        remove(&a);
        remove(&b);
        assert_eq!(lines(), Vec::<String>::new());
    }

    #[test]
    fn phases_after_scheduling_count_as_running() {
        for (phase, expected) in [
            (Phase::Unset, false),
            (Phase::Pending, false),
            (Phase::Scheduling, false),
            (Phase::Scheduled, true),
            (Phase::TargetReady, true),
            (Phase::Running, true),
            (Phase::Succeeded, false),
            (Phase::Failed, false),
        ] {
            assert_eq!(is_under_way(&phase), expected, "{phase:?}");
        }
    }
}
