//! Carrying out what the plan says.

use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

use cluster_view::Configuration;
use error_chain::error_chain;
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::Time};
use kube::{Api, Client};
use kubevirt_api::{
    VirtualMachineInstance, vmi_status::VirtualMachineInstancePhase as Phase,
    vmi_status::VirtualMachineInstanceStatus,
};
use launcher_channel::{DomainState, Request, StopReason};
use parking_lot::Mutex;
use reasons::Reason;
use reconcile::{
    Clock, EventType, Fragment, Key, ReconcileError, Reconciler, Recorder, Requeue, Retry, Store,
    Triggers, WriteError,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    ending::{Memory, cause},
    observe::{self, Pair},
    plan::{self, Observed, Step},
    status::{self, Known, Seen},
};
use crate::{
    capabilities::Capabilities,
    launcher::{CallError, Link, Session},
    metrics,
    node::ObsoleteModels,
    pods_dir::{PodUid, PodsDir},
    prepare::{self, PrepareError},
};

/// So that the last look comes after the time is over.
const MARGIN: Duration = Duration::from_millis(100);
/// The name under which this component writes.
const MANAGER: &str = "virt-handler";

/// The signal by which the kernel ends processes when memory has run out.
const SIGKILL: i32 = 9;

/// What the reconciler of guests is made of.
#[derive(Debug)]
pub(crate) struct GuestsParts {
    pub(crate) client: ClientHandle,
    pub(crate) vmis: Store<VirtualMachineInstance>,
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

/// A client, with the `Debug` it lacks.
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
    parts: GuestsParts,
    entries: Mutex<HashMap<Key, Entry>>,
}

/// One guest's session and what this process did over it.
#[derive(Debug, Clone)]
struct Entry {
    pod: PodUid,
    session: Arc<Session>,
    synced_over: Option<u64>,
    known: Option<Known>,
    /// The grace that a shutdown was last asked with, and over which connection.
    shutdown: Option<u64>,
}

/// Why a pass failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GuestError {
    #[error("read the VMI")]
    Read(#[source] Box<kube::Error>),
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error(transparent)]
    Call(#[from] CallError),
    #[error(transparent)]
    Prepare(#[from] PrepareError),
}

impl ReconcileError for GuestError {
    fn reason(&self) -> Reason {
        match self {
            Self::Read(_) => Reason::ServerUnavailable,
            Self::Write(err) => err.reason(),
            Self::Call(_) => Reason::LauncherUnavailable,
            Self::Prepare(err) => err.reason(),
        }
    }

    fn retry(&self) -> Retry {
        match self {
            Self::Write(err) => err.retry(),
            // A launcher that comes back triggers a pass of its own.
            Self::Call(CallError::NotConnected) => Retry::Never,
            Self::Read(_) | Self::Call(_) | Self::Prepare(_) => Retry::BackOff,
        }
    }
}

impl Guests {
    pub(crate) fn new(parts: GuestsParts) -> Self {
        Self {
            parts,
            entries: Mutex::new(HashMap::new()),
        }
    }

    /// The session of a running guest, for users' verbs and streams.
    pub(crate) fn session(&self, key: &Key) -> Option<(PodUid, Arc<Session>)> {
        let entries = self.entries.lock();
        entries
            .get(key)
            .map(|entry| (entry.pod.clone(), Arc::clone(&entry.session)))
    }

    pub(crate) fn pods_dir(&self) -> &PodsDir {
        &self.parts.pods_dir
    }

    pub(crate) fn vmi(&self, key: &Key) -> Option<Arc<VirtualMachineInstance>> {
        self.parts.vmis.get(key)
    }

    /// Says on a guest's instance what somebody asked of it in vain.
    pub(crate) fn warn(&self, key: &Key, reason: Reason, message: String) {
        if let Some(vmi) = self.vmi(key) {
            let recorder = &self.parts.recorder;
            recorder.publish(vmi.as_ref(), EventType::Warning, reason, message);
        }
    }

    /// The entry for the pod; a new pod replaces what an old one left.
    fn entry(&self, key: &Key, pod: &PodUid) -> Entry {
        let mut entries = self.entries.lock();
        if let Some(entry) = entries.get(key).filter(|entry| entry.pod == *pod) {
            return entry.clone();
        }
        let (triggers, woken) = (self.parts.triggers.clone(), key.clone());
        let (session, task) = Session::new(self.parts.pods_dir.clone(), pod.clone(), move || {
            triggers.add(woken.clone(), "launcher");
        });
        let stop = self.parts.stop.clone();
        self.parts.tasks.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = task => {}
            }
        });
        let entry = Entry {
            pod: pod.clone(),
            session: Arc::new(session),
            synced_over: None,
            known: None,
            shutdown: None,
        };
        entries.insert(key.clone(), entry.clone());
        entry
    }

    fn remember(&self, key: &Key, pod: &PodUid, change: impl FnOnce(&mut Entry)) {
        if let Some(entry) = self
            .entries
            .lock()
            .get_mut(key)
            .filter(|entry| entry.pod == *pod)
        {
            change(entry);
        }
    }

    async fn act(&self, key: &Key, pair: &Pair, step: Step) -> Result<(), GuestError> {
        let entry = self.entry(key, &pair.pod_uid);
        let link = entry.session.link();
        match step {
            Step::Start => self.start(key, pair, &entry, &link).await,
            Step::Shutdown { grace } => self.shut_down(key, pair, &entry, grace.as_secs()).await,
            Step::Report => {
                let now = Time(self.parts.clock.now());
                let vmi = self.latest(key, pair);
                let config = self.parts.cluster.now();
                let obsolete = ObsoleteModels::of(&config.written);
                let seen = Seen {
                    state: link.state.as_ref(),
                    known: entry.known.as_ref(),
                    memory: memory(&link),
                    unready: observe::unready(&pair.pod),
                    host_model_is_obsolete: self
                        .parts
                        .capabilities
                        .host_model_is_obsolete(obsolete),
                };
                let status = status::desired(&vmi, &seen, &now);
                let was = plan::phase(&vmi);
                if self.write(key, &vmi, &status).await? {
                    self.announce(&vmi, &was, &status, &seen);
                }
                Ok(())
            }
            Step::Destroy => {
                entry.session.call(Request::Destroy).await?;
                Ok(())
            }
            Step::GiveUp => {
                let now = Time(self.parts.clock.now());
                let vmi = self.latest(key, pair);
                let message = format!(
                    "the pod's launcher has not answered for {} s",
                    plan::SILENCE.as_secs()
                );
                let refusal = (Reason::LauncherUnresponsive.as_str(), message.as_str());
                let status = status::start_refused(&vmi, refusal, true, &now);
                if self.write(key, &vmi, &status).await? {
                    let recorder = &self.parts.recorder;
                    recorder.publish(vmi.as_ref(), EventType::Warning, Reason::Stopped, message);
                }
                Ok(())
            }
            Step::Release => match entry.session.call(Request::Release).await {
                // It is gone already, which is what was wanted.
                Ok(_) | Err(CallError::NotConnected) => Ok(()),
                Err(err) => Err(err.into()),
            },
        }
    }

    async fn start(
        &self,
        key: &Key,
        pair: &Pair,
        entry: &Entry,
        link: &Link,
    ) -> Result<(), GuestError> {
        let Some(peer) = link.peer.clone() else {
            return Ok(());
        };
        let prepared = prepare::prepare(prepare::Request {
            vmi: &pair.vmi,
            pod: &pair.pod,
            pod_uid: &pair.pod_uid,
            pods_dir: &self.parts.pods_dir,
            capabilities: &self.parts.capabilities,
            peer,
        })
        .await;
        let started = match prepared {
            Ok(prepared) => {
                let known = prepared.known;
                let answer = entry
                    .session
                    .call(Request::Sync(Box::new(prepared.plan)))
                    .await;
                answer.map(|_| known).map_err(GuestError::from)
            }
            Err(err) => Err(err.into()),
        };
        match started {
            Ok(known) => {
                let connection = link.connection;
                self.remember(key, &pair.pod_uid, |entry| {
                    entry.synced_over = Some(connection);
                    entry.known = Some(known);
                });
                Ok(())
            }
            Err(err) => self.refused(key, pair, err).await,
        }
    }

    /// Notes on the VMI why its guest cannot be started; final errors end it.
    async fn refused(&self, key: &Key, pair: &Pair, err: GuestError) -> Result<(), GuestError> {
        let (reason, last) = match &err {
            GuestError::Prepare(err) => {
                let reason = err.reason();
                (reason.as_str().to_owned(), reason.is_permanent())
            }
            GuestError::Call(CallError::Refused { reason, retry, .. }) => {
                // A launcher of another version may give a reason that this one does not know.
                let known = reason.parse::<Reason>();
                let is_permanent = known.map_or(true, Reason::is_permanent);
                (reason.clone(), !retry && is_permanent)
            }
            _ => return Err(err),
        };
        let message = error_chain(&err);
        let now = Time(self.parts.clock.now());
        let vmi = self.latest(key, pair);
        let status = status::start_refused(&vmi, (&reason, &message), last, &now);
        if self.write(key, &vmi, &status).await? {
            let recorder = &self.parts.recorder;
            recorder.publish(
                vmi.as_ref(),
                EventType::Warning,
                Reason::SyncFailed,
                message,
            );
        }
        if last { Ok(()) } else { Err(err) }
    }

    async fn shut_down(
        &self,
        key: &Key,
        pair: &Pair,
        entry: &Entry,
        grace_seconds: u64,
    ) -> Result<(), GuestError> {
        let state = entry.session.link().state.unwrap_or_default();
        let asked =
            state.shutting_down && entry.shutdown.is_some_and(|asked| asked <= grace_seconds);
        if asked {
            return Ok(());
        }
        entry
            .session
            .call(Request::Shutdown { grace_seconds })
            .await?;
        if entry.shutdown.is_none() {
            let note = format!("the guest has {grace_seconds} s to power off");
            let recorder = &self.parts.recorder;
            recorder.publish(
                pair.vmi.as_ref(),
                EventType::Normal,
                Reason::ShuttingDown,
                note,
            );
        }
        self.remember(key, &pair.pod_uid, |entry| {
            entry.shutdown = Some(grace_seconds);
        });
        Ok(())
    }

    /// The newest version seen: a pass may have written one itself.
    fn latest(&self, key: &Key, pair: &Pair) -> Arc<VirtualMachineInstance> {
        let stored = self.parts.vmis.get(key);
        stored
            .filter(|vmi| vmi.metadata.uid == pair.vmi.metadata.uid)
            .unwrap_or_else(|| Arc::clone(&pair.vmi))
    }

    async fn write(
        &self,
        key: &Key,
        vmi: &VirtualMachineInstance,
        status: &VirtualMachineInstanceStatus,
    ) -> Result<bool, GuestError> {
        let Some(body) = status::fragment(vmi, status) else {
            return Ok(false);
        };
        let api = Api::namespaced(self.parts.client.0.clone(), &key.namespace);
        let fragment = Fragment {
            manager: MANAGER,
            key,
            subresource: None,
            body,
        };
        let written = reconcile::apply::<VirtualMachineInstance>(&api, &fragment).await;
        let written = written.inspect_err(|error| {
            metrics::REJECTED_STATUS_WRITES.increment([error.reason().as_str()]);
        })?;
        failpoints::after("virt-handler/guest/write-status");
        self.parts.vmis.wrote(vmi, written);
        Ok(true)
    }

    fn announce(
        &self,
        vmi: &VirtualMachineInstance,
        was: &Phase,
        status: &VirtualMachineInstanceStatus,
        seen: &Seen<'_>,
    ) {
        let recorder = &self.parts.recorder;
        match &status.phase {
            Some(now) if now == was => {}
            Some(Phase::Running) => {
                let note = "VirtualMachineInstance started.";
                recorder.publish(vmi, EventType::Normal, Reason::Started, note);
            }
            Some(Phase::Succeeded) => {
                let note = "The VirtualMachineInstance was shut down.";
                recorder.publish(vmi, EventType::Normal, Reason::Stopped, note);
            }
            Some(Phase::Failed) => {
                let cause = cause(&Phase::Failed, seen.state, seen.memory);
                let why = cause.map_or_else(String::new, |(_, sentence)| sentence);
                let note = format!("The VirtualMachineInstance crashed: {why}.");
                recorder.publish(vmi, EventType::Warning, Reason::Stopped, note);
            }
            _ => {}
        }
    }
}

fn name(step: Step) -> Option<&'static str> {
    Some(match step {
        Step::Start => "virt-handler/guest/start",
        Step::Shutdown { .. } => "virt-handler/guest/shutdown",
        Step::Destroy => "virt-handler/guest/destroy",
        Step::Release => "virt-handler/guest/release",
        // What they write has a place of its own.
        Step::Report | Step::GiveUp => return None,
    })
}

/// Whether a QEMU that was killed was killed for want of memory.
fn memory(link: &Link) -> Memory {
    let killed = link.state.as_ref().is_some_and(|state| {
        let crashed = DomainState::Stopped(StopReason::Crashed);
        state.domain == Some(crashed) && state.qemu_signal == Some(SIGKILL)
    });
    match &link.peer {
        Some(peer) if killed && peer.was_out_of_memory() => Memory::Exhausted,
        _ => Memory::Enough,
    }
}

impl Reconciler for Guests {
    const NAME: &'static str = "guests";
    type Error = GuestError;

    async fn reconcile(&self, key: &Key) -> Result<Requeue, GuestError> {
        let GuestsParts {
            client,
            vmis,
            pods,
            clock,
            ..
        } = &self.parts;
        observe::count_phases(vmis);
        let pair = observe::pair(&client.0, vmis, pods, key).await;
        let Some(pair) = pair.map_err(|err| GuestError::Read(Box::new(err)))? else {
            // Dropping the session ends its task.
            self.entries.lock().remove(key);
            return Ok(Requeue::OnChange);
        };
        let entry = self.entry(key, &pair.pod_uid);
        let link = entry.session.link();
        let observed = Observed {
            vmi: &pair.vmi,
            pod_ended: observe::ended(&pair.pod),
            link: &link,
            silent: link.silent_since.map(|since| since.elapsed()),
            synced_over: entry.synced_over,
            now: clock.now(),
        };
        let waits = plan::awaits_launcher(&observed);
        for step in plan::plan(&observed) {
            Box::pin(self.act(key, &pair, step)).await?;
            if let Some(name) = name(step) {
                failpoints::after(name);
            }
        }
        // Silence makes no noise: it has to be looked for.
        Ok(match observed.silent {
            Some(silent) if waits && silent < plan::SILENCE => {
                Requeue::After(plan::SILENCE.saturating_sub(silent) + MARGIN)
            }
            _ => Requeue::OnChange,
        })
    }
}
