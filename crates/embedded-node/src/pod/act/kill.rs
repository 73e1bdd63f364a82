//! Ends containers: stop hook, SIGTERM, and SIGKILL after the grace period.

use std::{io, path::Path, sync::Arc, time::Duration};

use futures::future::join_all;
use k8s_openapi::api::core::v1::{LifecycleHandler, Pod};
use pod_supervisor::{
    protocol::Request,
    status::{PodStatus, State},
};
use reasons::Reason;
use reconcile::EventType;
use rustix::process::Signal;
use tokio::time::{Instant, timeout};

use super::KILL_FAILED;
use crate::{
    Failure, hooks,
    node::Shared,
    probes::Target,
    supervisor::{self, Link},
};

/// What a container gets between SIGTERM and SIGKILL even if its stop hook took all of the grace period.
const MIN_GRACE: Duration = Duration::from_secs(2);

/// A hook to run before a container ends.
#[derive(Debug, Clone)]
pub(crate) struct StopHook {
    pub(crate) target: Target,
    pub(crate) handler: LifecycleHandler,
}

/// One run of a container to end.
#[derive(Debug)]
pub(crate) struct KillContainer {
    pub(crate) pod: Arc<Pod>,
    pub(crate) target: Target,
    pub(crate) attempt: u32,
    pub(crate) grace: Duration,
}

/// Ends one run of a container. Its supervisor then applies the restart policy.
pub(crate) async fn kill_container(
    shared: Arc<Shared>,
    kill: KillContainer,
) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::of(KILL_FAILED, "end the container", &error);
    let target = &kill.target;
    let name = target.container.name.as_str();
    let running = Running {
        dir: &target.pod_dir,
        container: name,
        attempt: Some(kill.attempt),
    };
    if !running.is_now().await.map_err(failed)? {
        return Ok(());
    }
    let began = Instant::now();
    if let Some(handler) = hooks::before_stop(&target.container) {
        let hook = StopHook {
            target: target.clone(),
            handler: handler.clone(),
        };
        run_hook(&shared, &kill.pod, &hook, kill.grace).await;
    }
    running.end(left(kill.grace, began)).await.map_err(failed)
}

/// The end of all containers of a pod.
#[derive(Debug)]
pub(crate) struct StopPod {
    pub(crate) pod: Arc<Pod>,
    pub(crate) dir: std::path::PathBuf,
    pub(crate) grace: Duration,
    /// The stop hooks of its running containers.
    pub(crate) hooks: Vec<StopHook>,
    /// Its running containers without a stop hook.
    pub(crate) others: Vec<String>,
}

/// Ends the containers of the pod and then its supervisor. The supervisor knows the end of the grace
/// period, so that it is kept if this process ends.
pub(crate) async fn stop(shared: Arc<Shared>, stop: StopPod) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::of(KILL_FAILED, "shut the supervisor down", &error);
    let hooks = if stop.grace.is_zero() {
        &[][..]
    } else {
        stop.hooks.as_slice()
    };
    let most = if hooks.is_empty() {
        stop.grace
    } else {
        stop.grace.saturating_add(MIN_GRACE)
    };
    let request = Request::Shutdown {
        grace_ms: u64::try_from(most.as_millis()).unwrap_or(u64::MAX),
        held: hooks
            .iter()
            .map(|hook| hook.target.container.name.clone())
            .collect(),
    };
    supervisor::request(&stop.dir, &request)
        .await
        .map_err(failed)?;
    if hooks.is_empty() {
        return Ok(());
    }
    let running = |container| Running {
        dir: &stop.dir,
        container,
        attempt: None,
    };
    let with_hooks = join_all(hooks.iter().map(|hook| async {
        let began = Instant::now();
        run_hook(&shared, &stop.pod, hook, stop.grace).await;
        let running = running(hook.target.container.name.as_str());
        running.end(left(stop.grace, began)).await
    }));
    let without = join_all(
        stop.others
            .iter()
            .map(|name| async { running(name.as_str()).kill_after(stop.grace).await }),
    );
    let (one, other) = tokio::join!(with_hooks, without);
    // A supervisor that has exited has no containers left.
    for error in one.into_iter().chain(other).filter_map(Result::err) {
        tracing::debug!(%error, "container could not be signalled while its pod stops");
    }
    Ok(())
}

/// The rest of the grace period.
fn left(grace: Duration, began: Instant) -> Duration {
    let rest = grace.saturating_sub(began.elapsed());
    // Without a grace period there is no minimum either.
    if grace.is_zero() {
        rest
    } else {
        rest.max(MIN_GRACE.min(grace))
    }
}

/// Runs the hook for at most the grace period; its failure does not keep the container.
async fn run_hook(shared: &Shared, pod: &Pod, hook: &StopHook, grace: Duration) {
    if grace.is_zero() {
        return;
    }
    let result = timeout(grace, hooks::run(&hook.target, &hook.handler)).await;
    let error = match result {
        Ok(Ok(())) => return,
        Ok(Err(error)) => error,
        Err(_) => format!(
            "it did not end within the grace period of {} s",
            grace.as_secs()
        ),
    };
    let name = &hook.target.container.name;
    let note = format!("PreStopHook of container {name} failed: {error}");
    shared
        .recorder
        .publish(pod, EventType::Warning, Reason::FailedPreStopHook, note);
}

/// A running container.
#[derive(Debug, Clone, Copy)]
struct Running<'a> {
    dir: &'a Path,
    container: &'a str,
    /// Only that run of it.
    attempt: Option<u32>,
}

impl Running<'_> {
    async fn is_now(&self) -> io::Result<bool> {
        let (_, status) = Link::open(self.dir).await?;
        Ok(self.is_in(&status))
    }

    fn is_in(&self, status: &PodStatus) -> bool {
        status.containers.iter().any(|one| {
            let runs = matches!(one.state, State::Running { .. });
            let same = self.attempt.is_none_or(|attempt| attempt == one.attempt);
            one.name == self.container && same && runs
        })
    }

    async fn end(&self, grace: Duration) -> io::Result<()> {
        if self.is_now().await? {
            self.signal(Signal::TERM).await?;
            self.kill_after(grace).await?;
        }
        Ok(())
    }

    /// Sends SIGKILL unless the container ends by then.
    async fn kill_after(&self, grace: Duration) -> io::Result<()> {
        let (mut link, status) = Link::open(self.dir).await?;
        if !self.is_in(&status) {
            return Ok(());
        }
        let ended = async {
            while let Ok(status) = link.next().await {
                if !self.is_in(&status) {
                    return;
                }
            }
        };
        if timeout(grace, ended).await.is_err() {
            self.signal(Signal::KILL).await?;
        }
        Ok(())
    }

    async fn signal(&self, signal: Signal) -> io::Result<()> {
        let request = Request::Signal {
            container: self.container.to_owned(),
            signal: signal.as_raw(),
        };
        supervisor::request(self.dir, &request).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn hook_takes_its_time_from_the_grace_period() {
        let seconds = Duration::from_secs;
        for (grace, hook, expected) in [(30, 5, 25), (30, 29, 2), (30, 40, 2), (1, 1, 1), (0, 0, 0)]
        {
            let began = Instant::now();
            tokio::time::advance(seconds(hook)).await;
            assert_eq!(
                left(seconds(grace), began),
                seconds(expected),
                "{grace} {hook}"
            );
        }
    }
}
