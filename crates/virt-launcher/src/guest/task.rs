//! The task's state and its event loop.

use std::collections::BTreeMap;
use std::time::Duration;

use backoff::Backoff;
use error_chain::error_chain;
use launcher_channel::{Agent, FromLauncher, GuestSize, GuestState, InterfaceLink, Request};
use libvirt::Event;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::agent_link::AgentLink;
use super::backups::Backups;
use super::content::ContentTurn;
use super::dhcp_servers::DhcpServers;
use super::disks::Disks;
use super::dumps::Dumps;
use super::faults::Faults;
use super::file_servers::FileServers;
use super::io_retry::IoRetry;
use super::link::ConnectFailures;
use super::metrics_server::MetricsServer;
use super::migration::{self, Memory, Migrations};
use super::passt_servers::PasstServers;
use super::record::RecordStore;
use super::shutdown::Shutdown;
use super::status::{Phase, Status};
use crate::agent::{FailedPings, ThawTimer};
use crate::hypervisor::Link;
use crate::settings::{self, Paths};

/// A request and the channel for its reply.
#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) id: u64,
    pub(crate) request: Request,
    pub(crate) reply_to: mpsc::Sender<FromLauncher>,
}

/// Publishes the guest's state to the handler; `None` until libvirt was queried for the first
/// time.
pub(crate) type StateSender = watch::Sender<Option<GuestState>>;

/// The guest and everything known about it.
#[derive(Debug)]
pub(crate) struct Guest {
    pub(super) identity: settings::Guest,
    pub(super) paths: Paths,
    pub(super) tasks: TaskTracker,
    pub(super) store: RecordStore,
    pub(super) states: StateSender,
    pub(super) console_to_log: watch::Sender<bool>,
    pub(super) link: Option<Link>,
    pub(super) reconnect: Backoff,
    pub(super) reconnect_at: Instant,
    pub(super) connect_failures: ConnectFailures,
    pub(super) status: Option<Status>,
    pub(super) machine: Option<String>,
    pub(super) faults: Faults,
    pub(super) io_retry: IoRetry,
    pub(super) agent: AgentLink,
    /// The agent's last report over an earlier connection to libvirtd.
    pub(super) last_agent: Option<Agent>,
    pub(super) failed_pings: FailedPings,
    /// When frozen file systems are thawed.
    pub(super) thaw: ThawTimer,
    pub(super) shutdown: Option<Shutdown>,
    pub(super) dhcp: DhcpServers,
    /// The hot-plugged disks, as of the last query.
    pub(super) disks: Disks,
    /// The links of the interfaces, as of the last query.
    pub(super) links: BTreeMap<String, InterfaceLink>,
    /// Why interfaces could not be attached or removed, by name.
    pub(super) interface_failures: BTreeMap<String, String>,
    /// Processors and memory, as of the last query.
    pub(super) size: Option<GuestSize>,
    pub(super) dumps: Dumps,
    pub(super) backups: Backups,
    pub(super) files: FileServers,
    pub(super) passt: PasstServers,
    pub(super) metrics: MetricsServer,
    pub(super) content_turn: ContentTurn,
    /// Since when a hook sidecar has no socket.
    pub(super) hooks_awaited_since: Option<Instant>,
    pub(super) migrations: Migrations,
    /// The pod is terminating.
    pub(super) terminating: bool,
    pub(super) released: bool,
}

/// What a [`Guest`] is built from.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) identity: settings::Guest,
    pub(crate) paths: Paths,
    pub(crate) tasks: TaskTracker,
    pub(crate) store: RecordStore,
    pub(crate) states: StateSender,
    /// Whether the serial console is copied to the log.
    pub(crate) console_to_log: watch::Sender<bool>,
}

impl Guest {
    pub(crate) fn new(parts: Parts) -> Self {
        let Parts {
            identity,
            paths,
            tasks,
            store,
            states,
            console_to_log,
        } = parts;
        // Without a plan there is no domain to query.
        let status = match store.phase() {
            None => Some(Status::Startable),
            Some(Phase::Ended(reason)) => Some(Status::Ended(reason)),
            Some(_) => None,
        };
        let dhcp = DhcpServers::new(tasks.clone());
        let files = FileServers::new(tasks.clone());
        let passt = PasstServers::new(tasks.clone());
        let metrics = MetricsServer::new(tasks.clone());
        let thaw = ThawTimer::open(paths.thaw());
        let failed_pings = FailedPings::listen(&paths.failed_pings());
        // The phase may have been recorded before the guest was given up.
        let step = store.migration_step();
        let status = status.map(|status| migration::seen(status, step, Memory::Follows));
        let dumps = Dumps::new(store.dump().cloned());
        let has_started = !matches!(store.phase(), None | Some(Phase::Ended(_)));
        let backups = Backups::new(store.backup().cloned(), has_started);
        let migrations = Migrations::new(store.migration(), store.phase());
        let guest = Self {
            identity,
            paths,
            tasks,
            store,
            states,
            console_to_log,
            link: None,
            reconnect: Backoff::new(Duration::from_millis(50), Duration::from_secs(2)),
            reconnect_at: Instant::now(),
            connect_failures: ConnectFailures::default(),
            status,
            machine: None,
            faults: Faults::default(),
            io_retry: IoRetry::new(),
            agent: AgentLink::Unknown,
            last_agent: None,
            failed_pings,
            thaw,
            shutdown: None,
            dhcp,
            disks: Disks::default(),
            links: BTreeMap::new(),
            interface_failures: BTreeMap::new(),
            size: None,
            dumps,
            backups,
            files,
            passt,
            metrics,
            content_turn: ContentTurn::default(),
            hooks_awaited_since: None,
            migrations,
            terminating: false,
            released: false,
        };
        guest.publish_console_setting();
        guest.publish();
        guest
    }

    /// Runs until the handler releases the launcher, or the pod is terminating and no guest lives.
    pub(crate) async fn run(
        mut self,
        mut commands: mpsc::Receiver<Command>,
        stop: CancellationToken,
    ) {
        while !self.is_over() {
            let timer = self.next_timer();
            tokio::select! {
                biased;
                () = stop.cancelled(), if !self.terminating => self.terminate(),
                event = next_event(&mut self.link) => self.on_event(event).await,
                () = self.agent.changed() => self.publish(),
                () = self.failed_pings.rises() => self.publish(),
                () = self.files.next_end() => {}
                end = self.dumps.next_end() => self.on_dump_end(end),
                note = self.backups.next_note() => self.on_backup(note),
                event = self.migrations.next() => self.on_migration(event).await,
                Some(command) = commands.recv() => self.on_command(command).await,
                () = tokio::time::sleep_until(timer) => self.on_timer().await,
            }
        }
        self.dhcp.stop();
        self.files.stop();
        self.passt.stop();
        self.metrics.stop();
        self.end_hooks().await;
    }

    fn is_over(&self) -> bool {
        let alive = matches!(self.status, None | Some(Status::Alive(_)));
        self.released || (self.terminating && !alive)
    }

    /// The pod is terminating: the guest gets the grace period of its plan.
    fn terminate(&mut self) {
        tracing::info!("the pod is terminating");
        self.terminating = true;
        let grace = self
            .store
            .record()
            .map_or(0, |record| record.plan.grace_seconds);
        if !self.is_over() {
            self.begin_shutdown(grace);
        }
    }

    fn next_timer(&self) -> Instant {
        let reconnect = self.link.is_none().then_some(self.reconnect_at);
        let shutdown = self.shutdown.as_ref().map(Shutdown::next);
        let far = Instant::now() + Duration::from_hours(1);
        let retry = self.link.is_some().then(|| self.io_retry.next()).flatten();
        [reconnect, shutdown, retry, self.files.next()]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(far)
    }

    async fn on_timer(&mut self) {
        if self.link.is_none() && Instant::now() >= self.reconnect_at {
            self.connect().await;
        }
        self.tick_shutdown().await;
        self.tick_io_retry().await;
        if self.is_alive() {
            self.files.settle(Instant::now());
            self.publish();
        } else {
            self.files.forget_ends();
        }
    }

    /// Resumes a guest that was paused by an I/O error: its storage may work again.
    async fn tick_io_retry(&mut self) {
        if self.link.is_none() || !self.io_retry.take_due(Instant::now()) {
            return;
        }
        tracing::info!("I/O error: resuming the guest");
        let resumed = self.call(async |to, domain| to.resume(domain).await).await;
        if let Err(error) = resumed {
            tracing::warn!(error = error_chain(&error), "failed to resume the guest");
        }
        Box::pin(self.refresh_links()).await;
    }

    async fn on_event(&mut self, event: Option<Event>) {
        match event {
            None => self.lose_link(),
            Some(event) => {
                tracing::debug!(?event, "libvirt event");
                self.faults.record(&event);
                if let Event::Agent { state, .. } = event {
                    self.on_agent_state(state);
                    // The queries below may fail, and no other event would follow.
                    self.publish();
                }
                let is_removal = matches!(event, Event::DeviceRemoved { .. });
                if is_removal && let Err(error) = self.refresh_disks().await {
                    tracing::warn!(error = error_chain(&error), "failed to query the disks");
                }
                if is_removal && let Err(error) = self.refresh_interfaces().await {
                    let error = error_chain(&error);
                    tracing::warn!(error, "failed to query the interfaces");
                }
                if let Err(error) = self.observe().await {
                    tracing::warn!(error = error_chain(&error), "failed to query the guest");
                }
            }
        }
    }

    pub(super) fn is_alive(&self) -> bool {
        matches!(self.status, Some(Status::Alive(_)))
    }
}

/// The next event, `None` when the connection has ended; never ready without a connection.
async fn next_event(link: &mut Option<Link>) -> Option<Event> {
    match link {
        Some(link) => link.events.next().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use launcher_channel::{DomainState, GuestPlan};
    use libvirt::{AgentState, Domain, DomainUuid};
    use tokio::net::UnixStream;

    use super::*;
    use crate::guest::record::{MigrationRecord, MigrationStep};

    const UUID: &str = "69a61d3f-50cc-4611-b6e2-e53205a02bad";

    pub(in crate::guest) fn plan() -> GuestPlan {
        GuestPlan {
            vmi_uid: "u".to_owned(),
            domain_name: "n_a".to_owned(),
            domain_uuid: UUID.to_owned(),
            domain_xml: String::new(),
            prepare: Vec::new(),
            dhcp: Vec::new(),
            ipv6: Vec::new(),
            start_paused: false,
            console_to_log: false,
            agent_probes_paused: false,
            credentials: Vec::new(),
            filesystems: Vec::new(),
            passt: Vec::new(),
            separate_cpus: Vec::new(),
            metrics: None,
            hooks: None,
            refreshed_links: Vec::new(),
            claim_disks: Vec::new(),
            restore: None,
            grace_seconds: 0,
        }
    }

    pub(in crate::guest) fn parts(paths: &Paths, store: RecordStore, states: StateSender) -> Parts {
        Parts {
            identity: settings::Guest {
                uid: "u".to_owned(),
                name: "a".to_owned(),
                namespace: "n".to_owned(),
            },
            paths: paths.clone(),
            tasks: TaskTracker::new(),
            store,
            states,
            console_to_log: watch::Sender::new(false),
        }
    }

    /// A running guest whose libvirtd accepts calls and answers none.
    pub(in crate::guest) fn guest(paths: &Paths, states: StateSender) -> (Guest, UnixStream) {
        let mut store = RecordStore::open(&paths.record()).unwrap();
        store.set_plan(plan()).unwrap();
        store.advance(Phase::Started).unwrap();
        let mut guest = Guest::new(parts(paths, store, states));
        let tasks = guest.tasks.clone();
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (connection, driver, events) = libvirt::attach(ours);
        tasks.spawn(driver.run());
        guest.link = Some(Link { connection, events });
        guest.status = Some(Status::Alive(DomainState::Running));
        (guest, theirs)
    }

    #[tokio::test(start_paused = true)]
    async fn guest_waits_for_a_sidecar_and_gives_up_in_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let paths = Paths::under(dir.path());
        let mut store = RecordStore::open(&paths.record()).unwrap();
        let mut hooked = plan();
        hooked.hooks = Some(launcher_channel::Hooks {
            sidecars: vec![launcher_channel::HookSidecar {
                name: "hook-sidecar-0".to_owned(),
                directory: "/nonexistent".to_owned(),
            }],
            vmi: "{}".to_owned(),
        });
        store.set_plan(hooked).unwrap();
        let (sender, states) = watch::channel(None);
        let mut guest = Guest::new(parts(&paths, store, sender));
        let start = Instant::now();
        let mut tries = 0;
        while guest.store.phase() == Some(Phase::Planned) {
            let refusal = guest.ask_hooks().await.unwrap_err();
            let reply = refusal.into_reply();
            let launcher_channel::Reply::Refused {
                reason, message, ..
            } = reply
            else {
                panic!("not a refusal")
            };
            assert_eq!(reason, "HookSidecarNotReady");
            assert!(message.contains("hook-sidecar-0"), "{message}");
            tries += 1;
        }
        assert!(tries > 3 && start.elapsed() > Duration::from_mins(5));
        let state = states.borrow().clone().unwrap();
        let ended = DomainState::Stopped(launcher_channel::StopReason::StartFailed);
        assert_eq!(state.domain, Some(ended));
        assert!(state.note.unwrap().contains("hook-sidecar-0"));
    }

    /// The old pod has given it up, and the new launcher was restarted before it could run it.
    #[tokio::test]
    async fn guest_that_did_not_arrive_has_ended_once_its_vmi_is_here() {
        let dir = tempfile::tempdir().unwrap();
        let paths = Paths::under(dir.path());
        let mut store = RecordStore::open(&paths.record()).unwrap();
        store.set_plan(plan()).unwrap();
        let record = MigrationRecord {
            id: "m".to_owned(),
            step: MigrationStep::Incoming,
            stays_paused: false,
        };
        store.set_migration(Some(record)).unwrap();
        store.advance(Phase::Receiving).unwrap();
        let (sender, states) = watch::channel(None);
        let mut guest = Guest::new(parts(&paths, store, sender));
        guest.sync(plan()).await.unwrap();
        let state = states.borrow().clone().unwrap();
        let lost = DomainState::Stopped(launcher_channel::StopReason::Crashed);
        assert_eq!(state.domain, Some(lost));
        assert!(state.note.unwrap().contains("lost"));
    }

    /// Issue: the state kept an agent that was gone, if libvirtd did not answer the next query.
    #[tokio::test(start_paused = true)]
    async fn agent_is_published_as_gone_although_libvirtd_does_not_answer() {
        let dir = tempfile::tempdir().unwrap();
        let (sender, states) = watch::channel(None);
        let (mut guest, _libvirtd) = guest(&Paths::under(dir.path()), sender);
        let domain = Domain {
            name: "n_a".to_owned(),
            uuid: DomainUuid::parse(UUID).unwrap(),
            id: None,
        };
        for (state, expected) in [
            (AgentState::Connected, true),
            (AgentState::Disconnected, false),
        ] {
            let domain = domain.clone();
            guest.on_event(Some(Event::Agent { domain, state })).await;
            let published = states.borrow().clone().unwrap();
            assert_eq!(published.agent.is_some(), expected, "{state:?}");
        }
    }
}
