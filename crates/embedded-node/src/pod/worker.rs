//! The task of one pod: waits for news, looks, plans, acts.

use std::{path::PathBuf, sync::Arc, time::Duration};

use futures::{StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use image_store::Image;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod, PodCondition};
use pod_supervisor::status::{self as disk, ContainerStatus, EndReason, PodStatus, State};
use reasons::Reason;
use reconcile::EventType;
use serde_json::Value;
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    act,
    plan::{Intent, Left, Role, Run, Seen, SeenContainer, Stage, Step, plan},
    status::{self, ContainerView, Healthy, View, Waiting},
    task::{Patience, Task},
};
use crate::{
    Addresses, Failure,
    node::Shared,
    probes::{self, Conclusion, Health, Kind},
    schedule::{self, Obstacle},
    supervisor::Link,
};

/// A start that takes less shows as one write: Running.
const QUIET_START: Duration = Duration::from_millis(250);

/// The reason of a pod that waits for its volumes; never shown.
const WAITING: Reason = Reason::WaitingForVolumes;

/// A supervisor that dies sooner is not started again at once.
const SHORT_LIFE: Duration = Duration::from_secs(1);

/// What the API server says about the pod.
#[derive(Debug, Clone)]
pub(crate) enum Wanted {
    Pod(Arc<Pod>),
    Gone,
}

/// Drives the pod until it is gone from this host, or `stop`: then everything is left as it is.
pub(crate) async fn run(
    shared: Arc<Shared>,
    pod: Arc<Pod>,
    wanted: watch::Receiver<Wanted>,
    stop: CancellationToken,
) {
    Worker::begin(shared, pod, wanted).await.run(stop).await;
}

struct Worker {
    shared: Arc<Shared>,
    uid: String,
    dir: PathBuf,
    pod: Arc<Pod>,
    wanted: watch::Receiver<Wanted>,
    gone: bool,

    bind: Task<()>,
    /// Why it was last not bound, as far as users were told.
    unschedulable: Option<String>,
    sandbox: Task<()>,
    volumes: Task<act::Prepared>,
    /// Renewing the tokens in them; due again when they are to be renewed.
    tokens: Task<Instant>,
    network: Task<Addresses>,
    containers: Vec<Work>,
    stop: Task<()>,
    tear_down: Task<()>,
    forget: Task<()>,
    report: Task<()>,
    left: Left,

    link: Option<Link>,
    linked: Instant,
    supervisor: Option<PodStatus>,
    broken: Option<Failure>,
    /// Over before we saw it, and nothing of it is here.
    settled: bool,
    began: Instant,
    start_time: Timestamp,
    sent: Option<Value>,
    conditions: Vec<PodCondition>,
    under_way: FuturesUnordered<BoxFuture<'static, Outcome>>,
}

struct Work {
    role: Role,
    container: Container,
    image: Task<Image>,
    start: Task<()>,
    digest: Option<String>,
    probes: Vec<Health>,
    /// The run that is being ended because a probe failed.
    killing: Option<u32>,
}

/// One probe of one run of a container.
#[derive(Debug, Clone, Copy)]
struct Probed {
    container: usize,
    probe: usize,
    attempt: u32,
}

enum Outcome {
    Bound(Result<(), Failure>),
    Unschedulable(Result<(), Failure>),
    Sandbox(Result<(Link, PodStatus), Failure>),
    Volumes(Result<act::Prepared, Failure>),
    Renewed(Result<Option<Duration>, Failure>),
    Network(Result<Addresses, Failure>),
    Pulled(usize, Result<Image, Failure>),
    Started(usize, Result<(), Failure>),
    Stopped(Result<(), Failure>),
    TornDown(Result<Left, Failure>),
    Reported(Value, Result<(), Failure>),
    Forgotten(Result<(), Failure>),
    Probed(Probed, Result<(), String>),
    Killed(usize, Result<(), Failure>),
}

impl Worker {
    async fn begin(shared: Arc<Shared>, pod: Arc<Pod>, wanted: watch::Receiver<Wanted>) -> Self {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let dir = shared.pod_dir(&uid);
        let gone = matches!(&*wanted.borrow(), Wanted::Gone);
        let containers = works(&pod);
        let start_time = pod
            .status
            .as_ref()
            .and_then(|status| status.start_time.as_ref())
            .map_or_else(|| shared.settings.clock.now(), |time| time.0);
        let conditions = pod
            .status
            .as_ref()
            .and_then(|status| status.conditions.clone());
        let mut worker = Self {
            bind: Task::new(Patience::LOCAL),
            unschedulable: None,
            sandbox: Task::new(Patience::LOCAL),
            volumes: Task::new(Patience::LOCAL),
            tokens: Task::new(Patience::LOCAL),
            network: Task::new(Patience::LOCAL),
            stop: Task::new(Patience::LOCAL),
            tear_down: Task::new(Patience::LOCAL),
            forget: Task::new(Patience::LOCAL),
            report: Task::new(Patience::LOCAL),
            left: Left::Everything,
            link: None,
            linked: Instant::now(),
            supervisor: None,
            broken: None,
            settled: false,
            began: Instant::now(),
            sent: None,
            conditions: conditions.unwrap_or_default(),
            under_way: FuturesUnordered::new(),
            shared,
            uid,
            dir,
            pod,
            wanted,
            gone,
            containers,
            start_time,
        };
        worker.adopt().await;
        worker.follow_probes();
        worker
    }

    /// Takes over what an earlier node process left, without touching it.
    async fn adopt(&mut self) {
        let phase = self
            .pod
            .status
            .as_ref()
            .and_then(|status| status.phase.as_deref());
        if !self.dir.exists() {
            match phase {
                Some("Succeeded" | "Failed") => self.settled = true,
                Some("Running") => self.lost_by_reboot(),
                _ => {}
            }
            return;
        }
        if let Ok((link, status)) = Link::open(&self.dir).await {
            self.link = Some(link);
            self.supervisor = Some(status);
            self.sandbox = Task::done(());
        } else {
            match disk::read(&self.dir) {
                Ok(status) => self.supervisor = status,
                Err(error) => tracing::warn!(uid = self.uid, %error, "pod status is unreadable"),
            }
        }
        for work in &mut self.containers {
            work.digest = act::image_record(&self.dir, &work.container.name);
        }
        let started = self.containers.iter().any(|work| work.digest.is_some());
        if started && self.supervisor.is_none() {
            self.lost_by_reboot();
        }
        if let Some(record) = act::network_record(&self.dir)
            && let Some(status) = &self.supervisor
            && record.namespace == status.network_namespace
        {
            self.network = Task::done(record.addresses);
        }
    }

    /// The host was restarted: what ran is gone, and whether it may run again is the pod's choice.
    fn lost_by_reboot(&mut self) {
        let policy = self
            .pod
            .spec
            .as_ref()
            .and_then(|spec| spec.restart_policy.as_deref());
        if policy == Some("Never") {
            let message = "the host was restarted while the pod ran";
            self.broken = Some(Failure::new(Reason::NodeRestarted, message));
            return;
        }
        for work in &mut self.containers {
            work.digest = None;
        }
        let left = self.dir.join("containers");
        if left.exists()
            && let Err(error) = std::fs::remove_dir_all(left)
        {
            tracing::warn!(uid = self.uid, %error, "leftovers of a pod cannot be removed");
        }
    }

    async fn run(mut self, stop: CancellationToken) {
        let shared = Arc::clone(&self.shared);
        let mut node_changed = shared.node_changed.subscribe();
        loop {
            let next_look = self.look();
            if self.is_over() {
                return;
            }
            let due = next_look.unwrap_or_else(Instant::now);
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                changed = self.wanted.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    self.on_wanted();
                }
                Some(outcome) = self.under_way.next() => self.on_outcome(outcome),
                status = next_status(&mut self.link) => self.on_status(status),
                _ = node_changed.changed(), if self.bind.failure().is_some() => {
                    self.bind.reset();
                }
                () = tokio::time::sleep_until(due), if next_look.is_some() => {}
            }
        }
    }

    fn is_over(&self) -> bool {
        let forgotten = self.gone || self.forget.value().is_some();
        self.left == Left::Nothing && forgotten && self.under_way.is_empty()
    }

    /// One pass: plan, begin what is due, and say when to look again if nothing happens.
    fn look(&mut self) -> Option<Instant> {
        let later = self.consider_report();
        let overdue = self.consider_deadline();
        let probed = self.consider_probes();
        let renewal = self.consider_tokens();
        let seen = self.observe();
        for step in plan(&seen) {
            self.begin_step(step);
        }
        let tasks = [
            self.bind.retry_at(),
            self.sandbox.retry_at(),
            self.volumes.retry_at(),
            self.network.retry_at(),
            self.stop.retry_at(),
            self.tear_down.retry_at(),
            self.forget.retry_at(),
            self.report.retry_at(),
            later,
            overdue,
            probed,
            renewal,
        ];
        let containers = self.containers.iter();
        let containers = containers.flat_map(|work| [work.image.retry_at(), work.start.retry_at()]);
        let now = Instant::now();
        // A retry that is due and was not taken has a reason that news will end.
        tasks
            .into_iter()
            .chain(containers)
            .flatten()
            .filter(|at| *at > now)
            .min()
    }

    fn observe(&self) -> Seen {
        let now = Instant::now();
        Seen {
            intent: self.intent(),
            bind: self.bind_stage(now),
            sandbox: self.sandbox.stage(now),
            volumes: self.volumes.stage(now),
            network: self.network.stage(now),
            containers: self.seen_containers(now),
            broken: self.broken.is_some() || self.settled,
            stop: self.stop.stage(now),
            tear_down: self.tear_down.stage(now),
            left: self.left,
            reported: self.is_reported(),
            forget: self.forget.stage(now),
        }
    }

    fn intent(&self) -> Intent {
        if self.gone {
            Intent::Vanish
        } else if self.pod.metadata.deletion_timestamp.is_some() {
            Intent::End
        } else {
            Intent::Run
        }
    }

    fn bind_stage(&self, now: Instant) -> Stage {
        if schedule::is_ours_to_bind(&self.pod) {
            self.bind.stage(now)
        } else {
            Stage::Done
        }
    }

    fn seen_containers(&self, now: Instant) -> Vec<SeenContainer> {
        let seen = |work: &Work| SeenContainer {
            role: work.role,
            image: work.image.stage(now),
            start: work.start.stage(now),
            run: status::run(self.container_status(work)),
            started: status::run(self.container_status(work)) == Run::Running
                && probes::has_started(&work.probes),
        };
        self.containers.iter().map(seen).collect()
    }

    fn container_status(&self, work: &Work) -> Option<&ContainerStatus> {
        let all = self.supervisor.as_ref()?.containers.iter();
        all.into_iter().find(|one| one.name == work.container.name)
    }

    fn begin_step(&mut self, step: Step) {
        let (shared, pod) = (Arc::clone(&self.shared), Arc::clone(&self.pod));
        let (uid, dir) = (self.uid.clone(), self.dir.clone());
        let work: BoxFuture<'static, Outcome> = match step {
            Step::Bind => {
                match self.shared.obstacle(&pod) {
                    None => {}
                    Some(Obstacle::Unschedulable(why)) => {
                        self.finish_bind(Err(Failure::new(Reason::FailedScheduling, why)));
                        return;
                    }
                    // Nobody needs to be told: it is a matter of moments.
                    Some(Obstacle::Volumes) => {
                        let failure = Failure::new(WAITING, "the pod's volumes are being made");
                        self.bind.finish(Err(failure));
                        return;
                    }
                }
                self.bind.begin();
                Box::pin(async { Outcome::Bound(act::bind(shared, pod).await) })
            }
            Step::MakeSandbox => {
                self.sandbox.begin();
                Box::pin(async { Outcome::Sandbox(act::make_sandbox(shared, pod, dir).await) })
            }
            Step::PrepareVolumes => {
                self.volumes.begin();
                Box::pin(async { Outcome::Volumes(act::prepare_volumes(shared, pod, dir).await) })
            }
            Step::JoinNetwork => {
                let Some(status) = self.supervisor.clone() else {
                    return;
                };
                let host = pod
                    .spec
                    .as_ref()
                    .is_some_and(|spec| spec.host_network == Some(true));
                self.network.begin();
                Box::pin(async move {
                    Outcome::Network(act::join_network(shared, uid, dir, status, host).await)
                })
            }
            Step::Pull(index) => {
                let Some(work) = self.containers.get_mut(index) else {
                    return;
                };
                work.image.begin();
                let container = work.container.clone();
                Box::pin(
                    async move { Outcome::Pulled(index, act::pull(shared, pod, container).await) },
                )
            }
            Step::Start(index) => {
                let Some(start) = self.start_of(index) else {
                    return;
                };
                Box::pin(async move { Outcome::Started(index, act::start(shared, start).await) })
            }
            Step::Stop => {
                self.stop.begin();
                self.note_killing();
                let grace = self.grace();
                Box::pin(async move { Outcome::Stopped(act::stop(dir, grace).await) })
            }
            Step::TearDown(left) => {
                self.tear_down.begin();
                Box::pin(
                    async move { Outcome::TornDown(act::tear_down(shared, uid, dir, left).await) },
                )
            }
            Step::Forget => {
                self.forget.begin();
                Box::pin(async { Outcome::Forgotten(act::forget(shared, pod).await) })
            }
        };
        // Before anybody hears of it.
        self.under_way.push(Box::pin(async move {
            let outcome = work.await;
            failpoints::after(name(step));
            outcome
        }));
    }

    fn start_of(&mut self, index: usize) -> Option<act::Start> {
        let act::Prepared {
            volumes, documents, ..
        } = self.volumes.value().cloned()?;
        let addresses = self.network.value().cloned()?;
        let (pod, dir) = (Arc::clone(&self.pod), self.dir.clone());
        let work = self.containers.get_mut(index)?;
        let image = work.image.value().cloned()?;
        work.digest = Some(image.digest.as_str().to_owned());
        work.start.begin();
        let (container, is_init) = (work.container.clone(), work.role != Role::Main);
        let tries = work.start.tries();
        Some(act::Start {
            pod,
            container,
            is_init,
            image,
            volumes,
            documents,
            addresses,
            dir,
            tries,
        })
    }

    fn on_wanted(&mut self) {
        let wanted = self.wanted.borrow_and_update().clone();
        match wanted {
            Wanted::Pod(pod) => {
                let began = pod.metadata.deletion_timestamp.is_some()
                    && self.pod.metadata.deletion_timestamp.is_none();
                let shorter = pod.metadata.deletion_grace_period_seconds
                    < self.pod.metadata.deletion_grace_period_seconds;
                self.pod = pod;
                if began || shorter {
                    self.reconsider_end();
                }
            }
            Wanted::Gone => {
                self.gone = true;
                self.reconsider_end();
            }
        }
    }

    /// The end is wanted, or wanted sooner: what waited for another try, or was done by halves,
    /// is due again.
    fn reconsider_end(&mut self) {
        for task in [&mut self.stop, &mut self.tear_down] {
            if task.stage(Instant::now()) != Stage::Busy {
                task.reset();
            }
        }
    }

    fn on_outcome(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Bound(result) => self.finish_bind(result),
            Outcome::Unschedulable(result) => {
                if let Err(failure) = result {
                    tracing::warn!(uid = self.uid, %failure, "status not written");
                    // Said again with the next try.
                    self.unschedulable = None;
                }
            }
            Outcome::Sandbox(result) => match result {
                Ok((link, status)) => {
                    self.sandbox.finish(Ok(()));
                    self.stop.reset();
                    self.linked = Instant::now();
                    self.link = Some(link);
                    self.on_status(Ok(status));
                }
                Err(failure) => {
                    self.warn(&failure);
                    self.sandbox.finish(Err(failure));
                }
            },
            Outcome::Volumes(result) => {
                self.warn_of(result.as_ref().err());
                if let Ok(prepared) = &result
                    && let Some(fresh_for) = prepared.fresh_for
                {
                    self.tokens = Task::done(Instant::now() + fresh_for);
                }
                self.volumes.finish(result);
            }
            Outcome::Renewed(result) => {
                self.warn_of(result.as_ref().err());
                // Without any there is nothing to renew: never again.
                let never = Duration::from_hours(24 * 365);
                let next = |fresh: Option<Duration>| Instant::now() + fresh.unwrap_or(never);
                self.tokens.finish(result.map(next));
            }
            Outcome::Network(result) => {
                self.warn_of(result.as_ref().err());
                self.network.finish(result);
            }
            Outcome::Pulled(index, result) => {
                self.warn_of(result.as_ref().err());
                if let Some(work) = self.containers.get_mut(index) {
                    work.image.finish(result);
                }
            }
            Outcome::Started(index, result) => {
                self.warn_of(result.as_ref().err());
                if let Some(work) = self.containers.get_mut(index) {
                    work.start.finish(result);
                }
            }
            Outcome::Stopped(result) => {
                self.warn_of(result.as_ref().err());
                self.stop.finish(result);
            }
            Outcome::TornDown(result) => {
                self.warn_of(result.as_ref().err());
                if let Ok(left) = &result {
                    self.left = *left;
                }
                self.tear_down.finish(result.map(drop));
                if self.left == Left::Files {
                    self.tear_down.reset();
                }
            }
            Outcome::Reported(status, result) => {
                match &result {
                    Ok(()) => self.sent = Some(status),
                    Err(failure) => tracing::warn!(uid = self.uid, %failure, "status not written"),
                }
                self.report.finish(result);
            }
            Outcome::Forgotten(result) => {
                self.warn_of(result.as_ref().err());
                self.forget.finish(result);
            }
            Outcome::Probed(probed, result) => self.on_probed(probed, &result),
            Outcome::Killed(index, result) => {
                self.warn_of(result.as_ref().err());
                if let (Err(_), Some(work)) = (result, self.containers.get_mut(index)) {
                    // The next failure of the probe tries again.
                    work.killing = None;
                }
            }
        }
    }

    fn finish_bind(&mut self, result: Result<(), Failure>) {
        match &result {
            Ok(()) => {
                let node = &self.shared.settings.node_name;
                let key = reconcile::Key::of(self.pod.as_ref());
                let note = format!("Successfully assigned {key} to {node}");
                self.normal(Reason::Scheduled, note);
                // The watch will say the same, a moment later.
                let mut pod = Pod::clone(&self.pod);
                if let Some(spec) = &mut pod.spec {
                    spec.node_name = Some(node.clone());
                }
                self.pod = Arc::new(pod);
            }
            Err(failure) => {
                self.shared.room.leave(&self.pod);
                if self.unschedulable.as_ref() != Some(&failure.message) {
                    self.unschedulable = Some(failure.message.clone());
                    self.warn(failure);
                    let (shared, pod) = (Arc::clone(&self.shared), Arc::clone(&self.pod));
                    let status = status::unschedulable(
                        &self.pod,
                        &failure.message,
                        self.shared.settings.clock.now(),
                    );
                    self.under_way.push(Box::pin(async {
                        Outcome::Unschedulable(act::report(shared, pod, status).await)
                    }));
                }
            }
        }
        self.bind.finish(result);
    }

    /// News of the supervisor, or the news that it is gone.
    fn on_status(&mut self, status: std::io::Result<PodStatus>) {
        let Ok(status) = status else {
            self.link = None;
            let asked = self.stop.stage(Instant::now()) != Stage::Todo;
            if !asked && self.linked.elapsed() < SHORT_LIFE {
                let message = "the pod's supervisor ended right after its start";
                let failure = Failure::new(Reason::FailedCreatePodSandBox, message);
                self.warn(&failure);
                self.sandbox.finish(Err(failure));
            } else {
                self.sandbox.reset();
            }
            // The last word is on disk: it writes before it speaks.
            match disk::read(&self.dir) {
                Ok(Some(status)) => self.supervisor = Some(status),
                Ok(None) => {}
                Err(error) => tracing::warn!(uid = self.uid, %error, "pod status is unreadable"),
            }
            return;
        };
        let before = self.supervisor.replace(status);
        self.note_changes(before.as_ref());
        self.follow_probes();
        let namespace = self
            .supervisor
            .as_ref()
            .map(|status| status.network_namespace);
        if before.is_some_and(|before| Some(before.network_namespace) != namespace) {
            self.network.reset();
        }
    }

    fn note_changes(&self, before: Option<&PodStatus>) {
        let containers = self.supervisor.iter().flat_map(|status| &status.containers);
        for now in containers {
            let old = before.and_then(|old| old.containers.iter().find(|one| one.name == now.name));
            if old.is_some_and(|old| old.state == now.state) {
                continue;
            }
            match &now.state {
                State::Running { .. } => {
                    self.normal(Reason::Created, format!("Created container: {}", now.name));
                    self.normal(Reason::Started, format!("Started container {}", now.name));
                }
                State::BackOff { delay_ms, .. } if *delay_ms > 0 => {
                    let note = format!("Back-off restarting failed container {}", now.name);
                    self.shared.recorder.publish(
                        self.pod.as_ref(),
                        EventType::Warning,
                        Reason::BackOff,
                        note,
                    );
                }
                State::Starting | State::BackOff { .. } | State::Ended { .. } => {}
            }
            if let Some(end) = now.termination()
                && end.reason == EndReason::StartError
            {
                let message = format!("Error: container {}: {}", now.name, end.message);
                self.warn(&Failure::new(Reason::Failed, message));
            }
        }
    }

    /// A pod that may only run for so long has failed afterwards.
    fn consider_deadline(&mut self) -> Option<Instant> {
        let seconds = self.pod.spec.as_ref()?.active_deadline_seconds?;
        if self.broken.is_some() || self.settled || self.intent() != Intent::Run {
            return None;
        }
        let end = self
            .start_time
            .checked_add(jiff::SignedDuration::from_secs(seconds))
            .ok()?;
        let left = end.duration_since(self.shared.settings.clock.now());
        match Duration::try_from(left) {
            Ok(left) if !left.is_zero() => Some(Instant::now() + left),
            _ => {
                let message = "Pod was active on the node longer than the specified deadline";
                let failure = Failure::new(Reason::DeadlineExceeded, message);
                self.warn(&failure);
                self.broken = Some(failure);
                None
            }
        }
    }

    /// Asks for new tokens before those in the volumes end, and says when that is.
    fn consider_tokens(&mut self) -> Option<Instant> {
        if self.intent() != Intent::Run || self.volumes.value()?.fresh_for.is_none() {
            return None;
        }
        let now = Instant::now();
        let due = match self.tokens.stage(now) {
            Stage::Done => *self.tokens.value()?,
            Stage::Waiting => self.tokens.retry_at()?,
            Stage::Todo => now,
            Stage::Busy => return None,
        };
        if due > now {
            return Some(due);
        }
        self.tokens.begin();
        let (shared, pod) = (Arc::clone(&self.shared), Arc::clone(&self.pod));
        let dir = self.dir.clone();
        self.under_way.push(Box::pin(async {
            Outcome::Renewed(act::refresh_tokens(shared, pod, dir).await)
        }));
        None
    }

    /// Tells the probes which run of their container they are about.
    fn follow_probes(&mut self) {
        let now = self.shared.settings.clock.now().as_millisecond();
        let supervisor = self.supervisor.as_ref();
        for work in &mut self.containers {
            let mut all = supervisor.into_iter().flat_map(|one| &one.containers);
            let found = all.find(|one| one.name == work.container.name);
            let Some((attempt, State::Running { started_ms, .. })) =
                found.map(|one| (one.attempt, &one.state))
            else {
                work.probes.iter_mut().for_each(Health::end);
                continue;
            };
            let ran = Duration::from_millis(u64::try_from(now - started_ms).unwrap_or(0));
            let known = known_health(&self.pod, &work.container.name, attempt);
            for probe in &mut work.probes {
                let known = known.map(|(started, ready)| match probe.kind() {
                    Kind::Startup => started,
                    Kind::Liveness => true,
                    Kind::Readiness => ready,
                });
                probe.begin(attempt, ran, known);
            }
        }
    }

    /// Begins the probes that are due, and says when the next one is.
    fn consider_probes(&mut self) -> Option<Instant> {
        if self.intent() != Intent::Run || self.broken.is_some() {
            return None;
        }
        let address = self.network.value()?.ips.first().copied()?;
        let now = Instant::now();
        let mut next: Option<Instant> = None;
        for (container, work) in self.containers.iter_mut().enumerate() {
            let waiting: Vec<usize> = probes::waiting(&work.probes).collect();
            for probe in waiting {
                let Some(health) = work.probes.get_mut(probe) else {
                    continue;
                };
                let (due, Some(attempt)) = (health.due(), health.attempt()) else {
                    continue;
                };
                if due > now {
                    next = Some(next.map_or(due, |next| next.min(due)));
                    continue;
                }
                health.ask();
                let target = probes::Target {
                    address,
                    container: work.container.clone(),
                    pod_dir: self.dir.clone(),
                    supervisor: self.shared.settings.supervisor.clone(),
                };
                let (action, patience) = (health.probe().clone(), health.timeout());
                let probed = Probed {
                    container,
                    probe,
                    attempt,
                };
                self.under_way.push(Box::pin(async move {
                    let result = probes::run(&target, &action, patience).await;
                    Outcome::Probed(probed, result)
                }));
            }
        }
        next
    }

    fn on_probed(&mut self, probed: Probed, result: &Result<(), String>) {
        let Some(work) = self.containers.get_mut(probed.container) else {
            return;
        };
        let Some(health) = work.probes.get_mut(probed.probe) else {
            return;
        };
        let current = health.attempt() == Some(probed.attempt);
        let kind = health.kind().name();
        let conclusion = health.settle(probed.attempt, result.is_ok());
        let own_grace = health.probe().termination_grace_period_seconds;
        let name = work.container.name.clone();
        let end = conclusion == Conclusion::End && work.killing != Some(probed.attempt);
        if end {
            work.killing = Some(probed.attempt);
        }
        if let (Err(why), true) = (result, current) {
            let message = format!("{kind} probe failed: {why}");
            self.warn(&Failure::new(Reason::Unhealthy, message));
        }
        if !end || self.intent() != Intent::Run {
            return;
        }
        let verb = format!("Container {name} failed {} probe", kind.to_lowercase());
        self.normal(Reason::Killing, format!("{verb}, will be restarted"));
        let spec = self.pod.spec.as_ref();
        let grace = own_grace.or_else(|| spec?.termination_grace_period_seconds);
        let grace = Duration::from_secs(u64::try_from(grace.unwrap_or(30)).unwrap_or(0));
        let dir = self.dir.clone();
        self.under_way.push(Box::pin(async move {
            let killed = act::kill_container(dir, name, probed.attempt, grace).await;
            Outcome::Killed(probed.container, killed)
        }));
    }

    fn note_killing(&self) {
        let running = self
            .containers
            .iter()
            .filter(|work| status::run(self.container_status(work)) == Run::Running);
        for work in running {
            self.normal(
                Reason::Killing,
                format!("Stopping container {}", work.container.name),
            );
        }
    }

    fn grace(&self) -> Duration {
        let seconds = if self.intent() == Intent::End {
            self.pod.metadata.deletion_grace_period_seconds
        } else {
            self.pod
                .spec
                .as_ref()
                .and_then(|spec| spec.termination_grace_period_seconds)
        };
        Duration::from_secs(u64::try_from(seconds.unwrap_or(30)).unwrap_or(0))
    }

    /// Begins a write when the API server does not know how the pod stands. Says when to look
    /// again if it is too early to tell.
    fn consider_report(&mut self) -> Option<Instant> {
        let now = Instant::now();
        if self.gone || self.bind_stage(now) != Stage::Done || self.is_reported() {
            return None;
        }
        if matches!(self.report.stage(now), Stage::Busy | Stage::Waiting) {
            return None;
        }
        let rendered = self.rendered();
        let quiet_until = self.began + QUIET_START;
        if rendered
            .get("phase")
            .is_some_and(|phase| phase == "Pending")
            && self.intent() == Intent::Run
            && self.sent.is_none()
            && self.first_failure().is_none()
            && now < quiet_until
        {
            return Some(quiet_until);
        }
        let kept = rendered
            .get("conditions")
            .cloned()
            .map(serde_json::from_value);
        if let Some(Ok(conditions)) = kept {
            self.conditions = conditions;
        }
        self.report.begin();
        let (shared, pod) = (Arc::clone(&self.shared), Arc::clone(&self.pod));
        self.under_way.push(Box::pin(async {
            let result = act::report(shared, pod, rendered.clone()).await;
            Outcome::Reported(rendered, result)
        }));
        None
    }

    fn is_reported(&self) -> bool {
        if self.settled {
            return true;
        }
        let rendered = self.rendered();
        match &self.sent {
            Some(sent) => *sent == rendered,
            None => self
                .pod
                .status
                .as_ref()
                .is_some_and(|status| says(status, &rendered)),
        }
    }

    fn rendered(&self) -> Value {
        let empty = Addresses::default();
        let ips = &self.network.value().unwrap_or(&empty).ips;
        status::render(&View {
            pod: &self.pod,
            now: self.shared.settings.clock.now(),
            host_ip: self.shared.settings.address,
            ips,
            has_network: self.network.value().is_some(),
            start_time: self.start_time,
            containers: self.containers.iter().map(|work| self.view(work)).collect(),
            broken: self.broken.as_ref(),
            obstacle: self.first_failure(),
            before: &self.conditions,
        })
    }

    fn view<'a>(&'a self, work: &'a Work) -> ContainerView<'a> {
        let own = work
            .image
            .failure()
            .map(|failure| (failure, work.image.tries()));
        // The image of a volume holds a container up just as its own does.
        let image =
            own.or_else(|| self.volume_image())
                .map(|(failure, tries)| match failure.reason {
                    Reason::ErrImagePull if tries > 1 => Waiting {
                        reason: Reason::ImagePullBackOff,
                        message: format!(
                            "Back-off pulling image: ErrImagePull: {}",
                            failure.message
                        )
                        .into(),
                    },
                    reason => Waiting {
                        reason,
                        message: (&*failure.message).into(),
                    },
                });
        let start = work.start.failure().map(|failure| Waiting {
            reason: failure.reason,
            message: (&*failure.message).into(),
        });
        let health = if probes::is_ready(&work.probes) {
            Healthy::Ready
        } else if probes::has_started(&work.probes) {
            Healthy::Started
        } else {
            Healthy::Starting
        };
        ContainerView {
            container: &work.container,
            role: work.role,
            status: self.container_status(work),
            digest: work.digest.as_deref(),
            failure: image.or(start),
            health,
        }
    }

    /// The image of a volume that cannot be had, and how often it was tried.
    fn volume_image(&self) -> Option<(&Failure, u32)> {
        let failure = self.volumes.failure()?;
        let image = [
            Reason::ErrImagePull,
            Reason::ErrImageNeverPull,
            Reason::InvalidImageName,
        ];
        image
            .contains(&failure.reason)
            .then(|| (failure, self.volumes.tries()))
    }

    /// What keeps the whole pod from starting.
    fn first_failure(&self) -> Option<&Failure> {
        self.sandbox
            .failure()
            .or_else(|| self.volumes.failure())
            .or_else(|| self.network.failure())
    }

    fn normal(&self, reason: Reason, note: String) {
        self.shared
            .recorder
            .publish(self.pod.as_ref(), EventType::Normal, reason, note);
    }

    fn warn_of(&self, failure: Option<&Failure>) {
        if let Some(failure) = failure {
            self.warn(failure);
        }
    }

    fn warn(&self, failure: &Failure) {
        let reason = match failure.reason {
            Reason::ErrImagePull
            | Reason::ErrImageNeverPull
            | Reason::InvalidImageName
            | Reason::CreateContainerConfigError
            | Reason::CreateContainerError => Reason::Failed,
            reason => reason,
        };
        tracing::info!(uid = self.uid, reason = %failure.reason, %failure, "pod step failed");
        let note = failure.message.clone();
        self.shared
            .recorder
            .publish(self.pod.as_ref(), EventType::Warning, reason, note);
    }
}

async fn next_status(link: &mut Option<Link>) -> std::io::Result<PodStatus> {
    match link {
        Some(link) => link.next().await,
        None => std::future::pending().await,
    }
}

/// Does the object say already what we would write?
fn says(status: &k8s_openapi::api::core::v1::PodStatus, rendered: &Value) -> bool {
    let typed = |value: Value| -> Option<Value> {
        let status: k8s_openapi::api::core::v1::PodStatus = serde_json::from_value(value).ok()?;
        serde_json::to_value(status).ok()
    };
    let (Ok(there), Some(ours)) = (serde_json::to_value(status), typed(rendered.clone())) else {
        return false;
    };
    let Value::Object(ours) = ours else {
        return false;
    };
    ours.iter()
        .all(|(key, value)| there.get(key) == Some(value))
}

/// What the API server was told last of that run of a container: started, and ready.
fn known_health(pod: &Pod, container: &str, attempt: u32) -> Option<(bool, bool)> {
    let status = pod.status.as_ref()?;
    let mut all = status
        .container_statuses
        .iter()
        .chain(&status.init_container_statuses)
        .flatten();
    let found = all.find(|one| one.name == container)?;
    let running = found.state.as_ref()?.running.is_some();
    let same = running && u32::try_from(found.restart_count) == Ok(attempt);
    same.then_some((found.started == Some(true), found.ready))
}

fn name(step: Step) -> &'static str {
    match step {
        Step::Bind => "embedded-node/pod/bind",
        Step::MakeSandbox => "embedded-node/pod/make-sandbox",
        Step::PrepareVolumes => "embedded-node/pod/prepare-volumes",
        Step::JoinNetwork => "embedded-node/pod/join-network",
        Step::Pull(_) => "embedded-node/pod/pull",
        Step::Start(_) => "embedded-node/pod/start",
        Step::Stop => "embedded-node/pod/stop",
        Step::TearDown(Left::Everything | Left::Files) => {
            "embedded-node/pod/tear-down-all-but-files"
        }
        Step::TearDown(Left::Nothing) => "embedded-node/pod/tear-down",
        Step::Forget => "embedded-node/pod/forget",
    }
}

fn works(pod: &Pod) -> Vec<Work> {
    let work = |role, container: &Container| Work {
        role,
        container: container.clone(),
        image: Task::new(Patience::PULL),
        start: Task::new(Patience::LOCAL),
        digest: None,
        probes: probes::of(container),
        killing: None,
    };
    let Some(spec) = &pod.spec else {
        return Vec::new();
    };
    let init = spec.init_containers.iter().flatten().map(|container| {
        let sidecar = container.restart_policy.as_deref() == Some("Always");
        work(if sidecar { Role::Sidecar } else { Role::Init }, container)
    });
    init.chain(
        spec.containers
            .iter()
            .map(|container| work(Role::Main, container)),
    )
    .collect()
}
