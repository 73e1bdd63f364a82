//! Starts the containers' start hooks and collects their stop hooks.

use std::{sync::Arc, time::Duration};

use pod_supervisor::status::{ContainerStatus, State};
use reasons::Reason;

use super::{
    super::{act, plan::Intent},
    ContainerTasks, Outcome, Worker, grace_period,
    probes::known_health,
};
use crate::{
    Failure,
    hooks::{self, Reported},
    probes::Target,
};

/// One execution of a start hook.
#[derive(Debug, Clone, Copy)]
pub(super) struct HookRun {
    /// Index of the container.
    container: usize,
    attempt: u32,
}

impl Worker {
    /// Starts the start hooks of containers that have begun to run.
    pub(super) fn sync_start_hooks(&mut self) {
        if self.intent() != Intent::Run {
            return;
        }
        let Some(address) = self.address() else {
            return;
        };
        let mut started = Vec::new();
        for (container, one) in self.containers.iter_mut().enumerate() {
            let found = self.supervisor.container(&one.container.name);
            let Some(attempt) = found.and_then(running_attempt) else {
                continue;
            };
            let reported = match known_health(&self.pod, &one.container.name, attempt) {
                Some(_) => Reported::Running,
                None => Reported::Otherwise,
            };
            if let Some(handler) = one.start_hook.begin(attempt, reported) {
                let target = Target {
                    address,
                    container: one.container.clone(),
                    pod_dir: self.dir.clone(),
                    supervisor: self.shared.settings.supervisor.clone(),
                };
                started.push((HookRun { container, attempt }, target, handler));
            }
        }
        for (run, target, handler) in started {
            self.spawn(
                async move { Outcome::StartHookEnded(run, hooks::run(&target, &handler).await) },
            );
        }
    }

    pub(super) fn on_start_hook(&mut self, run: HookRun, result: &Result<(), String>) {
        let Some(one) = self.containers.get_mut(run.container) else {
            return;
        };
        let Err(error) = result else {
            one.start_hook.succeed(run.attempt);
            self.sync_probes();
            return;
        };
        let name = one.container.name.clone();
        let message = format!("PostStartHook of container {name} failed: {error}");
        self.publish_warning(&Failure::new(Reason::FailedPostStartHook, message));
        if self.intent() != Intent::Run {
            return;
        }
        self.publish_normal(Reason::Killing, "FailedPostStartHook".to_owned());
        let grace = grace_period(self.termination_grace_period());
        self.kill_container(run.container, run.attempt, grace);
    }

    /// Ends that run of the container; the restart policy decides what follows.
    pub(super) fn kill_container(&self, container: usize, attempt: u32, grace: Duration) {
        let Some(target) = self
            .containers
            .get(container)
            .and_then(|one| self.target(one))
        else {
            return;
        };
        let kill = act::KillContainer {
            pod: Arc::clone(&self.pod),
            target,
            attempt,
            grace,
        };
        let shared = Arc::clone(&self.shared);
        self.spawn(
            async move { Outcome::Killed(container, act::kill_container(shared, kill).await) },
        );
    }

    /// The end of the pod's containers within the grace period.
    pub(super) fn stop_request(&self) -> act::StopPod {
        let (mut stop_hooks, mut others) = (Vec::new(), Vec::new());
        for one in &self.containers {
            let runs = self.supervisor.container(&one.container.name);
            if runs.and_then(running_attempt).is_none() {
                continue;
            }
            match (hooks::before_stop(&one.container), self.target(one)) {
                (Some(handler), Some(target)) => stop_hooks.push(act::StopHook {
                    target,
                    handler: handler.clone(),
                }),
                _ => others.push(one.container.name.clone()),
            }
        }
        act::StopPod {
            pod: Arc::clone(&self.pod),
            dir: self.dir.clone(),
            grace: self.grace(),
            hooks: stop_hooks,
            others,
        }
    }

    fn address(&self) -> Option<std::net::IpAddr> {
        self.tasks.network.value()?.ips.first().copied()
    }

    fn target(&self, one: &ContainerTasks) -> Option<Target> {
        Some(Target {
            address: self.address()?,
            container: one.container.clone(),
            pod_dir: self.dir.clone(),
            supervisor: self.shared.settings.supervisor.clone(),
        })
    }
}

/// The current run of a container.
pub(super) fn running_attempt(status: &ContainerStatus) -> Option<u32> {
    matches!(status.state, State::Running { .. }).then_some(status.attempt)
}
