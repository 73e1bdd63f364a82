//! Migration policies, and the settings that they share with the cluster configuration.

use cluster_config::ClusterConfig;
use kubevirt_api::{
    migration::ExperimentalMigrationOptions, migration_policy::MigrationPolicy, quantity::Amount,
};
use validation::{Rule, Subject, Violation};

use super::{
    kind::{Check, Kind, Problem, TypedRequest},
    numbers::{self, Range},
};

type Request<'a> = TypedRequest<'a, MigrationPolicy>;

const STALLS: &str = "MigrationStallDetection";
const TUNING: &str = "MigrationDowntimeTuning";

impl Kind for MigrationPolicy {
    const RULES: &'static [Rule<Check<Self>>] = &[
        Rule::new(
            "migration-policy.timeout",
            Subject::MigrationPolicy,
            "completionTimeoutPerGiB is not negative",
            timeout,
        ),
        Rule::new(
            "migration-policy.bandwidth",
            Subject::MigrationPolicy,
            "bandwidthPerMigration is a quantity and not negative",
            bandwidth,
        ),
        Rule::new(
            "migration-policy.downtime-gate",
            Subject::MigrationPolicy,
            "maxDowntimeMs needs one of its feature gates",
            |request| {
                let old = request.old.and_then(|old| old.spec.max_downtime_ms);
                downtime(
                    "spec",
                    old,
                    request.new.spec.max_downtime_ms,
                    request.config,
                )
            },
        ),
        Rule::new(
            "migration-policy.tuning-gate",
            Subject::MigrationPolicy,
            "experimental.downtimeTuning needs its feature gate",
            |request| {
                tuning(
                    "spec",
                    old_experimental(request),
                    experimental(request),
                    request.config,
                )
            },
        ),
        Rule::new(
            "migration-policy.stall-gate",
            Subject::MigrationPolicy,
            "experimental.stallDetector needs its feature gate",
            |request| {
                stalls(
                    "spec",
                    old_experimental(request),
                    experimental(request),
                    request.config,
                )
            },
        ),
        Rule::new(
            "migration-policy.one-way",
            Subject::MigrationPolicy,
            "stallDetector and downtimeTuning are mutually exclusive",
            |request| one_way("spec", experimental(request)),
        ),
        Rule::new(
            "migration-policy.factors",
            Subject::MigrationPolicy,
            "factors of the stall detector are in their ranges",
            |request| factors("spec", experimental(request)),
        ),
    ];
}

fn experimental<'a>(request: &Request<'a>) -> Option<&'a ExperimentalMigrationOptions> {
    request.new.spec.experimental.as_ref()
}

fn old_experimental<'a>(request: &Request<'a>) -> Option<&'a ExperimentalMigrationOptions> {
    request.old.and_then(|old| old.spec.experimental.as_ref())
}

fn timeout(request: &Request<'_>) -> Vec<Problem> {
    let seconds = request.new.spec.completion_timeout_per_gib.unwrap_or(0);
    if seconds >= 0 {
        return Vec::new();
    }
    let detail = format!("{seconds} is negative; use 0 or more seconds");
    vec![Violation::invalid("spec.completionTimeoutPerGiB", detail).into()]
}

fn bandwidth(request: &Request<'_>) -> Vec<Problem> {
    let Some(written) = &request.new.spec.bandwidth_per_migration else {
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

/// `path` is the path of the settings.
pub(super) fn downtime(
    path: &str,
    old: Option<u64>,
    new: Option<u64>,
    config: &ClusterConfig,
) -> Vec<Problem> {
    if old == new || config.has_gate(STALLS) || config.has_gate(TUNING) {
        return Vec::new();
    }
    let detail = format!("changing it needs feature gate {STALLS} or {TUNING}; do not change it");
    vec![Violation::invalid(format!("{path}.maxDowntimeMs"), detail).into()]
}

pub(super) fn tuning(
    path: &str,
    old: Option<&ExperimentalMigrationOptions>,
    new: Option<&ExperimentalMigrationOptions>,
    config: &ClusterConfig,
) -> Vec<Problem> {
    let part = |options: Option<&ExperimentalMigrationOptions>| {
        options.and_then(|options| options.downtime_tuning.clone())
    };
    if part(old) == part(new) {
        return Vec::new();
    }
    requires_gate(path, "downtimeTuning", TUNING, config)
}

pub(super) fn stalls(
    path: &str,
    old: Option<&ExperimentalMigrationOptions>,
    new: Option<&ExperimentalMigrationOptions>,
    config: &ClusterConfig,
) -> Vec<Problem> {
    let part = |options: Option<&ExperimentalMigrationOptions>| {
        options.and_then(|options| options.stall_detector.clone())
    };
    if part(old) == part(new) {
        return Vec::new();
    }
    requires_gate(path, "stallDetector", STALLS, config)
}

fn requires_gate(path: &str, part: &str, gate: &str, config: &ClusterConfig) -> Vec<Problem> {
    if config.has_gate(gate) {
        return Vec::new();
    }
    let detail = format!("changing it needs feature gate {gate}; do not change it");
    vec![Violation::invalid(format!("{path}.experimental.{part}"), detail).into()]
}

pub(super) fn one_way(path: &str, new: Option<&ExperimentalMigrationOptions>) -> Vec<Problem> {
    let both = new.is_some_and(|options| {
        options.stall_detector.is_some() && options.downtime_tuning.is_some()
    });
    if !both {
        return Vec::new();
    }
    let detail = "stallDetector and downtimeTuning are both set; choose one";
    vec![Violation::invalid(format!("{path}.experimental"), detail).into()]
}

pub(super) fn factors(path: &str, new: Option<&ExperimentalMigrationOptions>) -> Vec<Problem> {
    let Some(detector) = new.and_then(|options| options.stall_detector.as_ref()) else {
        return Vec::new();
    };
    let factors = [
        ("ewmaAlpha", &detector.ewma_alpha, Range::UnitExclusive),
        (
            "precopyPossibleFactor",
            &detector.precopy_possible_factor,
            Range::AtLeastOne,
        ),
        (
            "patienceWindowDecayFactor",
            &detector.patience_window_decay_factor,
            Range::UnitInclusive,
        ),
        (
            "completionTimeoutFactor",
            &detector.completion_timeout_factor,
            Range::AtLeastOne,
        ),
    ];
    let problems = factors.into_iter().filter_map(|(name, number, range)| {
        let detail = numbers::problem(number.as_ref()?, range)?;
        let field = format!("{path}.experimental.stallDetector.{name}");
        Some(Violation::invalid(field, detail).into())
    });
    problems.collect()
}
