//! Whose turn it is among the migrations that wait: pure.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kubevirt_api::cluster_config::MigrationConfiguration;
use kubevirt_api::migration_request::MigrationPriority;

const PER_CLUSTER: u32 = 5;
const OUTBOUND_PER_NODE: u32 = 2;
/// The wait after the first failure of a migration that a component repeats; it doubles with each.
const FIRST_BACK_OFF: Duration = Duration::from_secs(20);
/// Doublings after which the wait stays, at about 90 minutes.
const MAX_DOUBLINGS: u32 = 8;

/// The most migrations at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limits {
    pub(super) per_cluster: u32,
    pub(super) outbound_per_node: u32,
}

impl Limits {
    pub(super) fn of(written: Option<&MigrationConfiguration>) -> Self {
        let cluster = written.and_then(|all| all.parallel_migrations_per_cluster);
        let node = written.and_then(|all| all.parallel_outbound_migrations_per_node);
        Self {
            per_cluster: cluster.unwrap_or(PER_CLUSTER),
            outbound_per_node: node.unwrap_or(OUTBOUND_PER_NODE),
        }
    }
}

/// Whether the limits permit another migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    Now,
    /// Look again after that time.
    In(Duration),
}

/// A migration that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Waiting {
    pub(super) uid: String,
    /// The node that the guest leaves.
    pub(super) node: String,
    pub(super) priority: u32,
    pub(super) created: Option<Timestamp>,
}

/// Whether that migration may begin while guests leave these nodes: the others that wait and go before
/// it keep their places.
pub(super) fn may_begin(
    uid: &str,
    mut waiting: Vec<Waiting>,
    active: &[String],
    limits: Limits,
) -> bool {
    waiting.sort_by_key(|one| (Reverse(one.priority), one.created, one.uid.clone()));
    let mut total = u32::try_from(active.len()).unwrap_or(u32::MAX);
    let mut per_node: HashMap<&str, u32> = HashMap::new();
    for node in active {
        *per_node.entry(node.as_str()).or_default() += 1;
    }
    for one in &waiting {
        let of_node = per_node.entry(one.node.as_str()).or_default();
        if total >= limits.per_cluster {
            return false;
        }
        if *of_node < limits.outbound_per_node {
            if one.uid == uid {
                return true;
            }
            *of_node += 1;
            total += 1;
        }
    }
    false
}

/// The number that a priority stands for.
pub(super) fn priority(written: Option<&MigrationPriority>) -> u32 {
    match written {
        Some(MigrationPriority::SystemCritical) => 100,
        Some(MigrationPriority::UserTriggered) => 50,
        Some(MigrationPriority::SystemMaintenance) => 20,
        _ => 0,
    }
}

/// When a migration of this priority asks for its turn again.
pub(super) fn next_look(priority: u32) -> Duration {
    Duration::from_secs(match priority {
        100.. => 1,
        50..100 => 3,
        _ => 5,
    })
}

/// How long a migration waits that a component repeats, after that many failures in a row.
pub(super) fn back_off(failures: u32, last: Option<Timestamp>, now: Timestamp) -> Option<Duration> {
    let doublings = failures.checked_sub(1)?.min(MAX_DOUBLINGS);
    let delay = FIRST_BACK_OFF * 2_u32.pow(doublings);
    let passed = now.duration_since(last?).max(SignedDuration::ZERO);
    let left = delay.checked_sub(passed.unsigned_abs())?;
    (!left.is_zero()).then_some(left)
}
