//! The reconciler of guests: observes, plans and executes the steps.

use std::{fmt, net::SocketAddr, sync::Arc, time::Duration};

use cluster_view::Configuration;
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::Time};
use kube::Client;
use kubevirt_api::VirtualMachineInstance;
use launcher_channel::{DomainState, GuestState, Request, StopReason};
use reasons::Reason;
use reconcile::{Clock, EventType, Key, Reconciler, Recorder, Requeue, Store, Triggers};
use serving::HttpsClient;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    error::GuestError,
    interfaces::{self, Attached},
    migratable::{Reach, StateSharing},
    nics,
    observe::{self, Pair, Part, Sources},
    outcome::MemoryState,
    plan::{self, Observed, Step},
    resize,
    sessions::{Entry, Sessions},
    status::{self, StartRefusal, StatusInput},
};
use crate::{
    capabilities::Capabilities,
    launcher::{CallError, Link, Session},
    migration::{Migrations, awaits_take_over},
    node::ObsoleteModels,
    pods_dir::{PodUid, PodsDir},
};

/// Added to a requeue, so that the reconcile runs after the time-out has expired.
const REQUEUE_MARGIN: Duration = Duration::from_millis(100);

/// The signal by which the kernel's OOM killer ends a process.
const SIGKILL: i32 = 9;

/// The dependencies of [`Guests`].
#[derive(Debug)]
pub(crate) struct GuestsParts {
    pub(crate) client: ClientHandle,
    /// The name of this node.
    pub(crate) node: String,
    /// Where virt-handlers of other nodes reach this one.
    pub(crate) address: SocketAddr,
    pub(crate) peers: Option<HttpsClient>,
    pub(crate) vmis: Store<VirtualMachineInstance>,
    /// VMIs that migrate to this node.
    pub(crate) arrivals: Store<VirtualMachineInstance>,
    pub(crate) pods: Store<Pod>,
    pub(crate) pods_dir: PodsDir,
    pub(crate) capabilities: Capabilities,
    pub(crate) cluster: Configuration,
    pub(crate) recorder: Recorder,
    pub(crate) clock: Clock,
    pub(crate) triggers: Triggers,
    pub(crate) tasks: TaskTracker,
    pub(crate) stop: CancellationToken,
}

/// A client that implements `Debug`.
#[derive(Clone)]
pub(crate) struct ClientHandle(pub(crate) Client);

impl fmt::Debug for ClientHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Client")
    }
}

/// The guests of this node.
#[derive(Debug)]
pub(crate) struct Guests {
    pub(crate) parts: GuestsParts,
    pub(super) sessions: Sessions,
    pub(crate) migrations: Migrations,
}

impl Guests {
    pub(crate) fn new(parts: GuestsParts) -> Self {
        Self {
            parts,
            sessions: Sessions::default(),
            migrations: Migrations::default(),
        }
    }

    /// The session of a running guest, for users' verbs and streams.
    pub(crate) fn session(&self, key: &Key) -> Option<(PodUid, Arc<Session>)> {
        let entry = self.sessions.get(key)?;
        Some((entry.pod, entry.session))
    }

    pub(crate) fn pods_dir(&self) -> &PodsDir {
        &self.parts.pods_dir
    }

    pub(crate) fn vmi(&self, key: &Key) -> Option<Arc<VirtualMachineInstance>> {
        self.parts.vmis.get(key)
    }

    pub(crate) fn pod(&self, uid: &PodUid) -> Option<Arc<Pod>> {
        let pods = self.parts.pods.list().into_iter();
        pods.into_iter()
            .find(|pod| pod.metadata.uid.as_deref() == Some(uid.as_str()))
    }

    /// Publishes a warning event on the VMI.
    pub(crate) fn warn(&self, key: &Key, reason: Reason, message: String) {
        if let Some(vmi) = self.vmi(key) {
            let recorder = &self.parts.recorder;
            recorder.publish(vmi.as_ref(), EventType::Warning, reason, message);
        }
    }

    /// Where the guests of this node can move.
    fn reach(&self) -> Reach {
        match self.parts.peers {
            Some(_) => Reach::OtherNodes,
            None => Reach::OwnNode,
        }
    }

    /// The VMI of a migration to this node.
    pub(crate) fn arrival(&self, key: &Key) -> Option<Arc<VirtualMachineInstance>> {
        self.parts.arrivals.get(key)
    }

    pub(super) fn entry(&self, key: &Key, pair: &Pair) -> Entry {
        let pod = &pair.pod_uid;
        self.sessions.get_or_open(key, (pod, pair.part), || {
            let (triggers, woken) = (self.parts.triggers.clone(), key.clone());
            let (session, task) =
                Session::new(self.parts.pods_dir.clone(), pod.clone(), move || {
                    triggers.add(woken.clone(), "launcher");
                });
            let stop = self.parts.stop.clone();
            self.parts.tasks.spawn(async move {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = task => {}
                }
            });
            session
        })
    }

    async fn execute(&self, key: &Key, pair: &Pair, step: Step) -> Result<(), GuestError> {
        let entry = self.entry(key, pair);
        match step {
            Step::TakeOver => take_over(&entry).await,
            Step::Start => self.start(key, pair, &entry).await,
            Step::Shutdown { grace } => self.shut_down(key, pair, &entry, grace.as_secs()).await,
            Step::Plug => {
                Box::pin(self.plug(key, pair, &entry)).await;
                Ok(())
            }
            Step::PlugInterfaces => {
                Box::pin(self.plug_interfaces(key, pair, &entry)).await;
                Ok(())
            }
            Step::Resize => {
                Box::pin(self.resize(key, pair, &entry)).await;
                Ok(())
            }
            Step::Report => self.report(key, pair, &entry).await,
            Step::SetLinks => {
                let links = interfaces::wanted_links(&pair.vmi);
                entry.session.call(Request::Links(links)).await?;
                Ok(())
            }
            Step::Destroy => {
                entry.session.call(Request::Destroy).await?;
                Ok(())
            }
            Step::FailUnresponsive => self.fail_unresponsive(key, pair).await,
            Step::Release => match entry.session.call(Request::Release).await {
                // A launcher that is not connected has already ended.
                Ok(_) | Err(CallError::NotConnected) => Ok(()),
                Err(error) => Err(error.into()),
            },
        }
    }

    async fn report(&self, key: &Key, pair: &Pair, entry: &Entry) -> Result<(), GuestError> {
        let link = entry.session.link();
        let now = Time(self.parts.clock.now());
        let vmi = self.latest(key, pair);
        let config = self.parts.cluster.now();
        let obsolete = ObsoleteModels::of(&config.written);
        let attached = Attached::of(&pair.pod);
        let input = StatusInput {
            attached: Some(&attached),
            state: link.state.as_ref(),
            prepared: entry.prepared.as_ref(),
            plugged: Some(&entry.plugged),
            memory: memory_state(&link),
            resize_failure: entry.resizing.failure.as_deref(),
            nics: Some(&entry.nics),
            unready: observe::unready(&pair.pod),
            host_model_is_obsolete: self.parts.capabilities.host_model_is_obsolete(obsolete),
            reach: self.reach(),
            kept_state: StateSharing::of(&pair.pod),
            bindings: model::registered_bindings(&config.written),
        };
        let status = status::desired(&vmi, &input, &now);
        self.publish_failed_pings(key, pair, link.state.as_ref());
        if self.write(key, &vmi, &status).await? {
            self.publish_phase_change(&vmi, &status, &input);
            self.publish_volume_changes(&vmi, &status.volume_status);
        }
        Ok(())
    }

    /// Publishes an event if pings of the guest agent have failed since the last report. A launcher that
    /// restarts counts from zero; the first report to this process has nothing to compare with.
    pub(super) fn publish_failed_pings(&self, key: &Key, pair: &Pair, state: Option<&GuestState>) {
        let Some(failed) = state.map(|state| state.failed_pings) else {
            return;
        };
        let mut before = None;
        self.sessions.update(key, &pair.pod_uid, |entry| {
            before = entry.failed_pings.replace(failed);
        });
        if before.is_some_and(|before| failed > before) {
            let reason = Reason::GuestAgentPingFailed;
            let message = format!("GuestAgentPing probe failed for VMI {}", key.name);
            let recorder = &self.parts.recorder;
            let advised = reason.advise(&message);
            recorder.publish(pair.vmi.as_ref(), EventType::Warning, reason, advised);
        }
    }

    async fn shut_down(
        &self,
        key: &Key,
        pair: &Pair,
        entry: &Entry,
        grace_seconds: u64,
    ) -> Result<(), GuestError> {
        let state = entry.session.link().state.unwrap_or_default();
        let requested = state.shutting_down
            && entry
                .shutdown_grace
                .is_some_and(|grace| grace <= grace_seconds);
        if requested {
            return Ok(());
        }
        entry
            .session
            .call(Request::Shutdown { grace_seconds })
            .await?;
        if entry.shutdown_grace.is_none() {
            let recorder = &self.parts.recorder;
            recorder.publish(
                pair.vmi.as_ref(),
                EventType::Normal,
                Reason::ShuttingDown,
                format!("Signaled Graceful Shutdown: the guest has {grace_seconds} s to power off"),
            );
        }
        self.sessions.update(key, &pair.pod_uid, |entry| {
            entry.shutdown_grace = Some(grace_seconds);
        });
        Ok(())
    }

    async fn fail_unresponsive(&self, key: &Key, pair: &Pair) -> Result<(), GuestError> {
        let now = Time(self.parts.clock.now());
        let vmi = self.latest(key, pair);
        let message = format!(
            "the pod's launcher has been unreachable for {} s",
            plan::LAUNCHER_TIMEOUT.as_secs()
        );
        let refusal = StartRefusal {
            reason: Reason::LauncherUnresponsive.as_str().to_owned(),
            message: message.clone(),
            transient: false,
        };
        let status = status::start_refused(&vmi, &refusal, &now);
        if self.write(key, &vmi, &status).await? {
            let recorder = &self.parts.recorder;
            recorder.publish(vmi.as_ref(), EventType::Warning, Reason::Stopped, message);
        }
        Ok(())
    }
}

/// Has the launcher resume the guest of the migration that it reports.
async fn take_over(entry: &Entry) -> Result<(), GuestError> {
    let state = entry.session.link().state;
    let Some(report) = state.and_then(|state| state.migration) else {
        return Ok(());
    };
    tracing::info!(
        migration = report.id,
        "taking over a guest that was given up"
    );
    let id = report.id;
    entry.session.call(Request::TakeOver { id }).await?;
    Ok(())
}

/// The failpoint after a step.
fn failpoint(step: Step) -> Option<&'static str> {
    Some(match step {
        Step::Start => "virt-handler/guest/start",
        Step::Shutdown { .. } => "virt-handler/guest/shutdown",
        Step::Destroy => "virt-handler/guest/destroy",
        Step::Release => "virt-handler/guest/release",
        Step::TakeOver => "virt-handler/migration/take-over",
        // Their effect is the status write or the launcher's, which have their own failpoints.
        Step::Plug
        | Step::PlugInterfaces
        | Step::Resize
        | Step::Report
        | Step::SetLinks
        | Step::FailUnresponsive => return None,
    })
}

fn has_other_size(pair: &Pair, link: &Link) -> bool {
    let state = link.state.as_ref();
    state.is_some_and(|state| resize::request(&pair.vmi, &pair.pod, state).is_some())
}

/// `None` while it is not known which interfaces the guest has.
fn interface_change(pair: &Pair, link: &Link) -> Option<nics::Change> {
    let state = link.state.as_ref()?;
    state.interfaces()?;
    Some(nics::change(&pair.vmi, state, &Attached::of(&pair.pod)))
}

/// Whether QEMU was killed by the kernel's OOM killer.
fn memory_state(link: &Link) -> MemoryState {
    let killed = link.state.as_ref().is_some_and(|state| {
        let crashed = DomainState::Stopped(StopReason::Crashed);
        state.domain == Some(crashed) && state.qemu_signal == Some(SIGKILL)
    });
    match &link.peer {
        Some(peer) if killed && peer.was_out_of_memory() => MemoryState::Exhausted,
        _ => MemoryState::Sufficient,
    }
}

impl Reconciler for Guests {
    const NAME: &'static str = "guests";
    type Error = GuestError;

    async fn reconcile(&self, key: &Key) -> Result<Requeue, GuestError> {
        let GuestsParts {
            client, vmis, pods, ..
        } = &self.parts;
        observe::count_phases(vmis);
        let sources = Sources {
            client: &client.0,
            node: &self.parts.node,
            vmis: [vmis, &self.parts.arrivals],
            pods,
        };
        let pairs = observe::pairs(&sources, key).await;
        let pairs = pairs.map_err(|error| GuestError::Read(Box::new(error)))?;
        let pods: Vec<_> = pairs.iter().map(|pair| &pair.pod_uid).collect();
        self.sessions.keep(key, &pods);
        if pairs.iter().all(|pair| pair.part == Part::Arrives) {
            self.migrations.remove(key);
        }
        let (mut requeue, mut failure) = (Requeue::OnChange, None);
        for pair in &pairs {
            let reconciled = match pair.part {
                Part::Runs => self.reconcile_guest(key, pair).await,
                Part::Arrives => {
                    let entry = self.entry(key, pair);
                    self.follow_migration(key, pair, &entry).await
                }
            };
            match reconciled {
                Ok(wanted) => requeue = sooner(requeue, wanted),
                // The other pod of a guest that moves within the node is not held up by it.
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        failure.map_or(Ok(requeue), Err)
    }

    fn uid_of(&self, key: &Key) -> Option<String> {
        self.vmi(key)?.metadata.uid.clone()
    }
}

/// The earlier one.
fn sooner(one: Requeue, other: Requeue) -> Requeue {
    match (one, other) {
        (Requeue::After(one), Requeue::After(other)) => Requeue::After(one.min(other)),
        (Requeue::OnChange, other) => other,
        (one, Requeue::OnChange) => one,
    }
}

impl Guests {
    /// The steps of the pod to which the guest belongs.
    async fn reconcile_guest(&self, key: &Key, pair: &Pair) -> Result<Requeue, GuestError> {
        let entry = self.entry(key, pair);
        let link = entry.session.link();
        let report = link.state.as_ref();
        let report = report.and_then(|state| state.migration.as_deref());
        let has_other_size = has_other_size(pair, &link);
        if !has_other_size {
            // An earlier failure says nothing about a later change.
            let forget = |entry: &mut Entry| entry.resizing = resize::Resizing::default();
            self.sessions.update(key, &pair.pod_uid, forget);
        }
        let change = interface_change(pair, &link);
        let has_other_interfaces = change.as_ref().is_some_and(|change| !change.is_empty());
        if let Some(change) = change {
            let note = |entry: &mut Entry| entry.nics.note(change);
            self.sessions.update(key, &pair.pod_uid, note);
        }
        let observed = Observed {
            vmi: &pair.vmi,
            pod_ended: observe::ended(&pair.pod),
            link: &link,
            disconnected_for: link.disconnected_since.map(|since| since.elapsed()),
            synced: entry.synced,
            awaits_take_over: awaits_take_over(&pair.vmi, report),
            has_other_size,
            has_other_interfaces,
            now: self.parts.clock.now(),
        };
        let awaits_launcher = plan::awaits_launcher(&observed);
        let steps = plan::plan(&observed);
        let takes_volumes = steps.contains(&Step::Plug);
        let takes_interfaces = steps.contains(&Step::PlugInterfaces);
        let is_resized = steps.contains(&Step::Resize);
        for step in steps {
            Box::pin(self.execute(key, pair, step)).await?;
            if let Some(name) = failpoint(step) {
                failpoints::after(name);
            }
        }
        let migrating = Box::pin(self.follow_migration(key, pair, &entry)).await?;
        let migrating = if is_resized {
            let left = self.until_next_resize(key) + REQUEUE_MARGIN;
            sooner(migrating, Requeue::After(left))
        } else {
            migrating
        };
        // No event announces that a launcher stays away.
        Ok(match observed.disconnected_for {
            Some(time) if awaits_launcher && time < plan::LAUNCHER_TIMEOUT => {
                Requeue::After(plan::LAUNCHER_TIMEOUT.saturating_sub(time) + REQUEUE_MARGIN)
            }
            _ => {
                // No event announces that an attachment pod listens, or that a guest keeps a disk.
                let entry = self.sessions.get(key);
                let of_volumes = entry.as_ref().filter(|_| takes_volumes);
                let of_volumes = of_volumes.and_then(|entry| entry.plugged.retry_in);
                let of_interfaces = entry.as_ref().filter(|_| takes_interfaces);
                let of_interfaces = of_interfaces.and_then(|entry| entry.nics.retry_in);
                let retry = of_volumes.into_iter().chain(of_interfaces).min();
                match (migrating, retry) {
                    (Requeue::OnChange, Some(time)) => Requeue::After(time),
                    (migrating, _) => migrating,
                }
            }
        })
    }
}
