//! Starts the containers' probes on time and applies their results.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use pod_supervisor::status::State;
use reasons::Reason;
use tokio::time::Instant;

use super::{super::plan::Intent, Outcome, Worker, grace_period};
use crate::{
    Failure,
    probes::{self, Action, Health, KnownHealth, ProbeResult},
};

/// One execution of one probe.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProbeRun {
    /// Index of the container.
    container: usize,
    /// Index of the probe within the container.
    probe: usize,
    /// The probed run of the container.
    attempt: u32,
}

impl Worker {
    /// Assigns the probes to the current run of their container.
    pub(super) fn sync_probes(&mut self) {
        let now = self.shared.settings.clock.now().as_millisecond();
        for one in &mut self.containers {
            let found = self.supervisor.container(&one.container.name);
            let Some((attempt, State::Running { started_ms, .. })) =
                found.map(|found| (found.attempt, &found.state))
            else {
                one.probes.iter_mut().for_each(Health::end);
                continue;
            };
            if one.start_hook.is_pending(attempt) {
                one.probes.iter_mut().for_each(Health::end);
                continue;
            }
            let age = Duration::from_millis(u64::try_from(now - started_ms).unwrap_or(0));
            let known = known_health(&self.pod, &one.container.name, attempt);
            for probe in &mut one.probes {
                probe.begin(attempt, age, known);
            }
        }
    }

    /// Starts the pending probes. Returns when the next one is pending.
    pub(super) fn start_probes(&mut self) -> Option<Instant> {
        if self.intent() != Intent::Run || self.lifecycle.failure().is_some() {
            return None;
        }
        let address = self.tasks.network.value()?.ips.first().copied()?;
        let now = Instant::now();
        let mut next: Option<Instant> = None;
        for (container, probe) in self.waiting_probes() {
            let Some(one) = self.containers.get_mut(container) else {
                continue;
            };
            let Some(health) = one.probes.get_mut(probe) else {
                continue;
            };
            let (start_at, Some(attempt)) = (health.next_start(), health.attempt()) else {
                continue;
            };
            if start_at > now {
                next = Some(next.map_or(start_at, |next| next.min(start_at)));
                continue;
            }
            health.start();
            let target = probes::Target {
                address,
                container: one.container.clone(),
                pod_dir: self.dir.clone(),
                supervisor: self.shared.settings.supervisor.clone(),
            };
            let (action, timeout) = (health.probe().clone(), health.timeout());
            let run = ProbeRun {
                container,
                probe,
                attempt,
            };
            self.spawn(async move {
                Outcome::Probed(run, probes::run(&target, &action, timeout).await)
            });
        }
        next
    }

    /// Indexes of containers and their probes that may run now or later.
    fn waiting_probes(&self) -> Vec<(usize, usize)> {
        let all = self.containers.iter().enumerate();
        all.flat_map(|(container, one)| {
            probes::waiting(&one.probes).map(move |probe| (container, probe))
        })
        .collect()
    }

    pub(super) fn on_probed(&mut self, run: ProbeRun, result: &Result<(), String>) {
        let Some(one) = self.containers.get_mut(run.container) else {
            return;
        };
        let Some(health) = one.probes.get_mut(run.probe) else {
            return;
        };
        let current = health.attempt() == Some(run.attempt);
        let kind = health.kind().name();
        let probe_result = match result {
            Ok(()) => ProbeResult::Success,
            Err(_) => ProbeResult::Failure,
        };
        let action = health.record(run.attempt, probe_result);
        let own_grace = health.probe().termination_grace_period_seconds;
        let name = one.container.name.clone();
        let kill = action == Action::Kill && one.killing != Some(run.attempt);
        if kill {
            one.killing = Some(run.attempt);
        }
        if let (Err(error), true) = (result, current) {
            let message = format!("{kind} probe failed: {error}");
            self.publish_warning(&Failure::new(Reason::Unhealthy, message));
        }
        if !kill || self.intent() != Intent::Run {
            return;
        }
        let kind = kind.to_lowercase();
        let note = format!("Container {name} failed {kind} probe, will be restarted");
        self.publish_normal(Reason::Killing, note);
        let grace = grace_period(own_grace.or_else(|| self.termination_grace_period()));
        self.kill_container(run.container, run.attempt, grace);
    }
}

/// The health of that run of a container in the pod's status on the API server.
pub(super) fn known_health(pod: &Pod, container: &str, attempt: u32) -> Option<KnownHealth> {
    let status = pod.status.as_ref()?;
    let mut all = status
        .container_statuses
        .iter()
        .chain(&status.init_container_statuses)
        .flatten();
    let found = all.find(|one| one.name == container)?;
    let running = found.state.as_ref()?.running.is_some();
    let same = running && u32::try_from(found.restart_count) == Ok(attempt);
    same.then_some(KnownHealth {
        started: found.started == Some(true),
        ready: found.ready,
    })
}
