//! Probes of containers: is it up, does it live, may it be sent work?
//!
//! - [`Health`] counts what one probe says and draws the conclusion: pure.
//! - [`run`] carries a probe out.

mod run;

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Probe};
use tokio::time::Instant;

pub(crate) use run::{Target, run};

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

/// What a result means for the container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Conclusion {
    Nothing,
    /// It failed too often: the container is to be ended.
    End,
}

/// One probe of one container.
#[derive(Debug, Clone)]
pub(crate) struct Health {
    kind: Kind,
    probe: Probe,
    /// Which run of the container is looked at; none while there is none.
    attempt: Option<u32>,
    good: bool,
    /// The latest results, as long as they were the same.
    last: bool,
    in_a_row: i32,
    due: Instant,
    busy: bool,
}

/// The probes that a container has.
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

/// Has the container passed its start? One without such a probe has when it runs.
pub(crate) fn has_started(all: &[Health]) -> bool {
    let mut startup = all.iter().filter(|one| one.kind == Kind::Startup);
    startup.all(|one| one.attempt.is_some() && one.good)
}

pub(crate) fn is_ready(all: &[Health]) -> bool {
    let mut readiness = all.iter().filter(|one| one.kind == Kind::Readiness);
    has_started(all) && readiness.all(|one| one.attempt.is_some() && one.good)
}

/// The probes that may run now or later, given the others: nothing else is asked before the start
/// is over, and the start is asked for once.
pub(crate) fn waiting(all: &[Health]) -> impl Iterator<Item = usize> {
    let started = has_started(all);
    all.iter().enumerate().filter_map(move |(index, one)| {
        let turn = (one.kind == Kind::Startup) != started;
        (turn && one.attempt.is_some() && !one.busy).then_some(index)
    })
}

impl Health {
    fn new(kind: Kind, probe: Probe, now: Instant) -> Self {
        Self {
            kind,
            probe,
            attempt: None,
            good: false,
            last: false,
            in_a_row: 0,
            due: now,
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

    pub(crate) fn due(&self) -> Instant {
        self.due
    }

    pub(crate) fn timeout(&self) -> Duration {
        seconds(self.probe.timeout_seconds.unwrap_or(1).max(1))
    }

    /// That run of the container began some time ago; `known` is what was concluded of it before.
    pub(crate) fn begin(&mut self, attempt: u32, ran: Duration, known: Option<bool>) {
        if self.attempt == Some(attempt) {
            return;
        }
        let delay = seconds(self.probe.initial_delay_seconds.unwrap_or(0));
        self.attempt = Some(attempt);
        self.good = known.unwrap_or(self.kind == Kind::Liveness);
        self.last = self.good;
        self.in_a_row = 0;
        self.busy = false;
        self.due = Instant::now() + delay.saturating_sub(ran);
    }

    pub(crate) fn end(&mut self) {
        self.attempt = None;
        self.busy = false;
    }

    pub(crate) fn ask(&mut self) {
        self.busy = true;
    }

    /// A probe of that run came back.
    pub(crate) fn settle(&mut self, attempt: u32, passed: bool) -> Conclusion {
        if self.attempt != Some(attempt) {
            return Conclusion::Nothing;
        }
        self.busy = false;
        self.due = Instant::now() + seconds(self.probe.period_seconds.unwrap_or(10).max(1));
        if self.last == passed {
            self.in_a_row = self.in_a_row.saturating_add(1);
        } else {
            (self.last, self.in_a_row) = (passed, 1);
        }
        let needed = if passed {
            self.probe.success_threshold.unwrap_or(1)
        } else {
            self.probe.failure_threshold.unwrap_or(3)
        };
        if self.in_a_row < needed {
            return Conclusion::Nothing;
        }
        self.good = passed;
        if passed || self.kind == Kind::Readiness {
            return Conclusion::Nothing;
        }
        // The next run of the container starts to count anew.
        self.in_a_row = 0;
        Conclusion::End
    }
}

fn seconds(number: i32) -> Duration {
    Duration::from_secs(u64::try_from(number).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn health(container: &Value) -> Vec<Health> {
        let mut all = of(&serde_json::from_value(container.clone()).unwrap());
        for one in &mut all {
            one.begin(0, Duration::ZERO, None);
        }
        all
    }

    #[tokio::test(start_paused = true)]
    async fn readiness_needs_and_loses_by_its_thresholds() {
        let mut all = health(&json!({"name": "c", "readinessProbe":
            {"successThreshold": 2, "failureThreshold": 3, "periodSeconds": 5}}));
        let mut steps = Vec::new();
        for passed in [true, true, false, false, true, false, false, false] {
            assert_eq!(all[0].settle(0, passed), Conclusion::Nothing);
            steps.push(is_ready(&all));
        }
        let expected = [false, true, true, true, true, true, true, false];
        assert_eq!(steps, expected);
        assert_eq!(all[0].due() - Instant::now(), Duration::from_secs(5));
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_else_is_asked_before_the_start_is_over() {
        let mut all = health(&json!({
            "name": "c",
            "startupProbe": {"failureThreshold": 2},
            "livenessProbe": {"failureThreshold": 1},
            "readinessProbe": {},
        }));
        assert_eq!(waiting(&all).collect::<Vec<_>>(), [0]);
        all[0].ask();
        assert_eq!(waiting(&all).count(), 0);
        all[0].settle(0, false);
        assert!(!has_started(&all));
        all[0].settle(0, true);
        assert!(has_started(&all) && !is_ready(&all));
        assert_eq!(waiting(&all).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(all[1].settle(0, false), Conclusion::End);
        all[2].settle(0, true);
        assert!(is_ready(&all));
    }

    #[tokio::test(start_paused = true)]
    async fn container_that_never_starts_is_ended() {
        let mut all = health(&json!({"name": "c", "startupProbe": {"failureThreshold": 2}}));
        assert_eq!(all[0].settle(0, false), Conclusion::Nothing);
        assert_eq!(all[0].settle(0, false), Conclusion::End);
    }

    #[tokio::test(start_paused = true)]
    async fn each_run_is_judged_by_itself() {
        let mut all = health(&json!({"name": "c", "readinessProbe": {"initialDelaySeconds": 9}}));
        assert_eq!(all[0].due() - Instant::now(), Duration::from_secs(9));
        all[0].settle(0, true);
        all[0].begin(1, Duration::from_secs(2), None);
        assert!(!is_ready(&all));
        assert_eq!(all[0].due() - Instant::now(), Duration::from_secs(7));
        // Late news of the run before.
        all[0].settle(0, true);
        assert!(!is_ready(&all));
        all[0].end();
        assert_eq!(waiting(&all).count(), 0);
        // Known from before this process began.
        all[0].begin(1, Duration::from_mins(1), Some(true));
        assert!(is_ready(&all));
        assert!(is_ready(&health(&json!({"name": "c"}))));
    }
}
