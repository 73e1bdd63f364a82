//! Migration policies, and what they share with the settings of the cluster.

use kubevirt_api::{
    migration::ExperimentalMigrationOptions, migration_policy::MigrationPolicy, quantity::Amount,
};

use super::{
    Asked, Check, Fault, Kind,
    numbers::{self, Range},
};
use crate::{ClusterConfig, Violation, rules::Rule};

type Question<'a> = Asked<'a, MigrationPolicy>;

const STALLS: &str = "MigrationStallDetection";
const TUNING: &str = "MigrationDowntimeTuning";

impl Kind for MigrationPolicy {
    const RULES: &'static [Rule<Check<Self>>] = &[
        Rule::new(
            "migration-policy.timeout",
            "4",
            "completionTimeoutPerGiB is not negative",
            timeout,
        ),
        Rule::new(
            "migration-policy.bandwidth",
            "4",
            "bandwidthPerMigration is a quantity and not negative",
            bandwidth,
        ),
        Rule::new(
            "migration-policy.downtime-gate",
            "4",
            "maxDowntimeMs needs one of its gates",
            |asked| {
                let old = asked.old.and_then(|old| old.spec.max_downtime_ms);
                downtime("spec", old, asked.new.spec.max_downtime_ms, asked.config)
            },
        ),
        Rule::new(
            "migration-policy.tuning-gate",
            "4",
            "experimental.downtimeTuning needs its gate",
            |asked| {
                tuning(
                    "spec",
                    old_experimental(asked),
                    experimental(asked),
                    asked.config,
                )
            },
        ),
        Rule::new(
            "migration-policy.stall-gate",
            "4",
            "experimental.stallDetector needs its gate",
            |asked| {
                stalls(
                    "spec",
                    old_experimental(asked),
                    experimental(asked),
                    asked.config,
                )
            },
        ),
        Rule::new(
            "migration-policy.one-way",
            "4",
            "stallDetector and downtimeTuning exclude each other",
            |asked| one_way("spec", experimental(asked)),
        ),
        Rule::new(
            "migration-policy.factors",
            "4",
            "factors of the stall detector are in their ranges",
            |asked| factors("spec", experimental(asked)),
        ),
    ];
}

fn experimental<'a>(asked: &Question<'a>) -> Option<&'a ExperimentalMigrationOptions> {
    asked.new.spec.experimental.as_ref()
}

fn old_experimental<'a>(asked: &Question<'a>) -> Option<&'a ExperimentalMigrationOptions> {
    asked.old.and_then(|old| old.spec.experimental.as_ref())
}

fn timeout(asked: &Question<'_>) -> Vec<Fault> {
    let seconds = asked.new.spec.completion_timeout_per_gib.unwrap_or(0);
    if seconds >= 0 {
        return Vec::new();
    }
    let detail = format!("{seconds} is negative; use 0 or more seconds");
    vec![Violation::invalid("spec.completionTimeoutPerGiB", detail).into()]
}

fn bandwidth(asked: &Question<'_>) -> Vec<Fault> {
    let Some(written) = &asked.new.spec.bandwidth_per_migration else {
        return Vec::new();
    };
    let detail = match Amount::parse(written) {
        Ok(amount) if amount.is_negative() => {
            format!("{} is negative; use 0 for no limit", written.0)
        }
        Ok(_) => return Vec::new(),
        Err(error) => error.to_string(),
    };
    vec![Violation::invalid("spec.bandwidthPerMigration", detail).into()]
}

/// `path` is where the settings are.
pub(super) fn downtime(
    path: &str,
    old: Option<u64>,
    new: Option<u64>,
    config: &ClusterConfig,
) -> Vec<Fault> {
    if old == new || config.has_gate(STALLS) || config.has_gate(TUNING) {
        return Vec::new();
    }
    let detail = format!("changing it needs feature gate {STALLS} or {TUNING}; leave it as it is");
    vec![Violation::invalid(format!("{path}.maxDowntimeMs"), detail).into()]
}

pub(super) fn tuning(
    path: &str,
    old: Option<&ExperimentalMigrationOptions>,
    new: Option<&ExperimentalMigrationOptions>,
    config: &ClusterConfig,
) -> Vec<Fault> {
    let part = |options: Option<&ExperimentalMigrationOptions>| {
        options.and_then(|options| options.downtime_tuning.clone())
    };
    let is_same = part(old) == part(new);
    gated(path, "downtimeTuning", is_same, TUNING, config)
}

pub(super) fn stalls(
    path: &str,
    old: Option<&ExperimentalMigrationOptions>,
    new: Option<&ExperimentalMigrationOptions>,
    config: &ClusterConfig,
) -> Vec<Fault> {
    let part = |options: Option<&ExperimentalMigrationOptions>| {
        options.and_then(|options| options.stall_detector.clone())
    };
    let is_same = part(old) == part(new);
    gated(path, "stallDetector", is_same, STALLS, config)
}

fn gated(path: &str, part: &str, is_same: bool, gate: &str, config: &ClusterConfig) -> Vec<Fault> {
    if is_same || config.has_gate(gate) {
        return Vec::new();
    }
    let detail = format!("changing it needs feature gate {gate}; leave it as it is");
    vec![Violation::invalid(format!("{path}.experimental.{part}"), detail).into()]
}

pub(super) fn one_way(path: &str, new: Option<&ExperimentalMigrationOptions>) -> Vec<Fault> {
    let both = new.is_some_and(|options| {
        options.stall_detector.is_some() && options.downtime_tuning.is_some()
    });
    if !both {
        return Vec::new();
    }
    let detail = "stallDetector and downtimeTuning together; choose one";
    vec![Violation::invalid(format!("{path}.experimental"), detail).into()]
}

pub(super) fn factors(path: &str, new: Option<&ExperimentalMigrationOptions>) -> Vec<Fault> {
    let Some(detector) = new.and_then(|options| options.stall_detector.as_ref()) else {
        return Vec::new();
    };
    let factors = [
        ("ewmaAlpha", &detector.ewma_alpha, Range::Share),
        (
            "precopyPossibleFactor",
            &detector.precopy_possible_factor,
            Range::Factor,
        ),
        (
            "patienceWindowDecayFactor",
            &detector.patience_window_decay_factor,
            Range::Decay,
        ),
        (
            "completionTimeoutFactor",
            &detector.completion_timeout_factor,
            Range::Factor,
        ),
    ];
    let faults = factors.into_iter().filter_map(|(name, number, range)| {
        let detail = numbers::fault(number.as_ref()?, range)?;
        let field = format!("{path}.experimental.stallDetector.{name}");
        Some(Violation::invalid(field, detail).into())
    });
    faults.collect()
}
