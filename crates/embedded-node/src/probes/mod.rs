//! Startup, liveness and readiness probes of containers.
//!
//! - [`Health`] counts the results of one probe and decides on the consequence: pure.
//! - [`run`] executes a probe.

mod run;

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Probe};
use tokio::time::Instant;

pub(crate) use run::{Target, command, get, run};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Startup,
    Liveness,
    Readiness,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Startup => "Startup",
            Self::Liveness => "Liveness",
            Self::Readiness => "Readiness",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProbeResult {
    Success,
    Failure,
}

/// The consequence of a result for the container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Nothing,
    /// The probe reached its failure threshold: kill the container.
    Kill,
}

/// The state of one probe of one container.
#[derive(Debug, Clone)]
pub(crate) struct Health {
    kind: Kind,
    probe: Probe,
    /// The probed run of the container; `None` while it does not run.
    attempt: Option<u32>,
    passing: bool,
    last_result: bool,
    /// How often the last result was repeated.
    in_a_row: i32,
    next_start: Instant,
    busy: bool,
}

/// What a previous node process concluded about a run of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KnownHealth {
    pub(crate) started: bool,
    pub(crate) ready: bool,
}

/// The probes of a container.
pub(crate) fn of(container: &Container) -> Vec<Health> {
    let now = Instant::now();
    let all = [
        (Kind::Startup, &container.startup_probe),
        (Kind::Liveness, &container.liveness_probe),
        (Kind::Readiness, &container.readiness_probe),
    ];
    all.into_iter()
        .filter_map(|(kind, probe)| Some(Health::new(kind, probe.clone()?, now)))
        .collect()
}

/// Whether the startup probe has passed. Without one, a running container has started.
pub(crate) fn has_started(all: &[Health]) -> bool {
    let mut startup = all.iter().filter(|one| one.kind == Kind::Startup);
    startup.all(|one| one.attempt.is_some() && one.passing)
}

pub(crate) fn is_ready(all: &[Health]) -> bool {
    let mut readiness = all.iter().filter(|one| one.kind == Kind::Readiness);
    has_started(all) && readiness.all(|one| one.attempt.is_some() && one.passing)
}

/// Indexes of the probes that may run now or later. The startup probe runs alone until it passes,
/// and not again afterwards.
pub(crate) fn waiting(all: &[Health]) -> impl Iterator<Item = usize> {
    let started = has_started(all);
    all.iter().enumerate().filter_map(move |(index, one)| {
        let may_run = (one.kind == Kind::Startup) != started;
        (may_run && one.attempt.is_some() && !one.busy).then_some(index)
    })
}

impl Health {
    fn new(kind: Kind, probe: Probe, now: Instant) -> Self {
        Self {
            kind,
            probe,
            attempt: None,
            passing: false,
            last_result: false,
            in_a_row: 0,
            next_start: now,
            busy: false,
        }
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    pub(crate) fn probe(&self) -> &Probe {
        &self.probe
    }

    pub(crate) fn attempt(&self) -> Option<u32> {
        self.attempt
    }

    pub(crate) fn next_start(&self) -> Instant {
        self.next_start
    }

    pub(crate) fn timeout(&self) -> Duration {
        seconds(self.probe.timeout_seconds.unwrap_or(1).max(1))
    }

    /// Starts to probe a run of the container that began `age` ago.
    pub(crate) fn begin(&mut self, attempt: u32, age: Duration, known: Option<KnownHealth>) {
        if self.attempt == Some(attempt) {
            return;
        }
        let delay = seconds(self.probe.initial_delay_seconds.unwrap_or(0));
        self.attempt = Some(attempt);
        self.passing = match (self.kind, known) {
            (Kind::Liveness, _) => true,
            (Kind::Startup, known) => known.is_some_and(|known| known.started),
            (Kind::Readiness, known) => known.is_some_and(|known| known.ready),
        };
        self.last_result = self.passing;
        self.in_a_row = 0;
        self.busy = false;
        self.next_start = Instant::now() + delay.saturating_sub(age);
    }

    pub(crate) fn end(&mut self) {
        self.attempt = None;
        self.busy = false;
    }

    pub(crate) fn start(&mut self) {
        self.busy = true;
    }

    /// Records a result for that run of the container.
    pub(crate) fn record(&mut self, attempt: u32, result: ProbeResult) -> Action {
        let passed = result == ProbeResult::Success;
        if self.attempt != Some(attempt) {
            return Action::Nothing;
        }
        self.busy = false;
        self.next_start = Instant::now() + seconds(self.probe.period_seconds.unwrap_or(10).max(1));
        if self.last_result == passed {
            self.in_a_row = self.in_a_row.saturating_add(1);
        } else {
            (self.last_result, self.in_a_row) = (passed, 1);
        }
        let needed = if passed {
            self.probe.success_threshold.unwrap_or(1)
        } else {
            self.probe.failure_threshold.unwrap_or(3)
        };
        if self.in_a_row < needed {
            return Action::Nothing;
        }
        self.passing = passed;
        if passed || self.kind == Kind::Readiness {
            return Action::Nothing;
        }
        // The next run starts to count from zero.
        self.in_a_row = 0;
        Action::Kill
    }
}

fn seconds(number: i32) -> Duration {
    Duration::from_secs(u64::try_from(number).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{
        ProbeResult::{Failure, Success},
        *,
    };

    fn health(container: &Value) -> Vec<Health> {
        let mut all = of(&serde_json::from_value(container.clone()).unwrap());
        for one in &mut all {
            one.begin(0, Duration::ZERO, None);
        }
        all
    }

    #[tokio::test(start_paused = true)]
    async fn readiness_changes_at_its_thresholds() {
        let mut all = health(&json!({"name": "c", "readinessProbe":
            {"successThreshold": 2, "failureThreshold": 3, "periodSeconds": 5}}));
        let mut steps = Vec::new();
        for result in [
            Success, Success, Failure, Failure, Success, Failure, Failure, Failure,
        ] {
            assert_eq!(all[0].record(0, result), Action::Nothing);
            steps.push(is_ready(&all));
        }
        let expected = [false, true, true, true, true, true, true, false];
        assert_eq!(steps, expected);
        assert_eq!(all[0].next_start() - Instant::now(), Duration::from_secs(5));
    }

    #[tokio::test(start_paused = true)]
    async fn only_startup_probe_runs_until_it_passes() {
        let mut all = health(&json!({
            "name": "c",
            "startupProbe": {"failureThreshold": 2},
            "livenessProbe": {"failureThreshold": 1},
            "readinessProbe": {},
        }));
        assert_eq!(waiting(&all).collect::<Vec<_>>(), [0]);
        all[0].start();
        assert_eq!(waiting(&all).count(), 0);
        all[0].record(0, Failure);
        assert!(!has_started(&all));
        all[0].record(0, Success);
        assert!(has_started(&all) && !is_ready(&all));
        assert_eq!(waiting(&all).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(all[1].record(0, Failure), Action::Kill);
        all[2].record(0, Success);
        assert!(is_ready(&all));
    }

    #[tokio::test(start_paused = true)]
    async fn failed_startup_probe_kills_the_container() {
        let mut all = health(&json!({"name": "c", "startupProbe": {"failureThreshold": 2}}));
        assert_eq!(all[0].record(0, Failure), Action::Nothing);
        assert_eq!(all[0].record(0, Failure), Action::Kill);
    }

    #[tokio::test(start_paused = true)]
    async fn each_run_is_probed_separately() {
        let mut all = health(&json!({"name": "c", "readinessProbe": {"initialDelaySeconds": 9}}));
        assert_eq!(all[0].next_start() - Instant::now(), Duration::from_secs(9));
        all[0].record(0, Success);
        all[0].begin(1, Duration::from_secs(2), None);
        assert!(!is_ready(&all));
        assert_eq!(all[0].next_start() - Instant::now(), Duration::from_secs(7));
        // A late result of the previous run.
        all[0].record(0, Success);
        assert!(!is_ready(&all));
        all[0].end();
        assert_eq!(waiting(&all).count(), 0);
        // Known from a previous process.
        let known = KnownHealth {
            started: true,
            ready: true,
        };
        all[0].begin(1, Duration::from_mins(1), Some(known));
        assert!(is_ready(&all));
        assert!(is_ready(&health(&json!({"name": "c"}))));
    }
}
