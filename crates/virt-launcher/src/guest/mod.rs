//! The one task that owns the guest.
//!
//! Requests of the handler, events of libvirt, the clock and the wish to end all come together
//! here, one at a time. Events are only a reason to look: what is true is what libvirt answers
//! when it is asked, and after each new connection it is asked. libvirtd may die at any time; the
//! guest does not notice, and a request that was cut off is made again on the next connection.
//!
//! **Invariant**: the domain is defined before it is started, so that libvirt still knows after
//! the end why it ended. A guest is made paused and let go in a second step, and each step is noted
//! in a file before it is taken: whatever is cut off, it is known whether the guest ever ran.

mod agents;
mod dhcp_servers;
mod ending;
mod io_retry;
mod judge;
mod record;
mod refusal;
mod shutdown;
mod signs;

use std::sync::Arc;
use std::time::Duration;

use backoff::Backoff;
use error_chain::error_chain;
use launcher_channel::{
    Agent, DomainState, FromLauncher, GuestPlan, GuestState, Reply, Request, StopReason,
};
use libvirt::{Connection, Domain, DomainUuid, ErrorCode, Event, PausedReason, StartMode};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::agents::AgentLink;
use self::dhcp_servers::DhcpServers;
use self::ending::{Ending, Traces};
use self::io_retry::{IoRetry, Storage};
use self::judge::{Phase, Verdict, judge};
pub(crate) use self::record::Memory;
use self::refusal::Refusal;
use self::shutdown::Shutdown;
use self::signs::Signs;
use crate::agent::{Question, Thaw};
use crate::hypervisor::Link;
use crate::prepare;
use crate::settings::{self, Paths};

/// A request waits that long for a libvirtd that is being started again.
const LINK_PATIENCE: Duration = Duration::from_secs(20);
/// A QEMU that hangs must not keep the launcher from adopting it.
const SETTLE_LIMIT: Duration = Duration::from_secs(5);
/// Starts that QEMU may refuse before the guest counts as impossible to start.
const STARTS: u32 = 3;

/// A request and where its answer goes.
#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) id: u64,
    pub(crate) request: Request,
    pub(crate) answer: mpsc::Sender<FromLauncher>,
}

/// What the handler is told unasked; `None` until libvirt was asked for the first time.
pub(crate) type Told = watch::Sender<Option<GuestState>>;

/// The guest and all that is known of it.
#[derive(Debug)]
pub(crate) struct Guest {
    identity: settings::Guest,
    paths: Paths,
    tasks: TaskTracker,
    memory: Memory,
    told: Told,
    console_to_log: watch::Sender<bool>,
    link: Option<Link>,
    reconnect: Backoff,
    reconnect_at: Instant,
    verdict: Option<Verdict>,
    machine: Option<String>,
    signs: Signs,
    io_retry: IoRetry,
    agent: AgentLink,
    /// Over an earlier connection to libvirtd.
    agent_said: Option<Agent>,
    /// When its file systems are let go, if they are held still.
    thaw: Thaw,
    shutdown: Option<Shutdown>,
    dhcp: DhcpServers,
    ending: bool,
    released: bool,
}

/// Between which parts the launcher is put together.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) identity: settings::Guest,
    pub(crate) paths: Paths,
    pub(crate) tasks: TaskTracker,
    pub(crate) memory: Memory,
    pub(crate) told: Told,
    /// Whether the console is to be passed on.
    pub(crate) console_to_log: watch::Sender<bool>,
}

impl Guest {
    pub(crate) fn new(parts: Parts) -> Self {
        let Parts {
            identity,
            paths,
            tasks,
            memory,
            told,
            console_to_log,
        } = parts;
        // Without a plan there is nothing to ask libvirt for.
        let verdict = match memory.phase() {
            None => Some(Verdict::MayStart),
            Some(Phase::Ended(reason)) => Some(Verdict::Ended(reason)),
            Some(_) => None,
        };
        let dhcp = DhcpServers::new(tasks.clone());
        let thaw = Thaw::open(paths.thaw());
        let guest = Self {
            identity,
            paths,
            tasks,
            memory,
            told,
            console_to_log,
            link: None,
            reconnect: Backoff::new(Duration::from_millis(50), Duration::from_secs(2)),
            reconnect_at: Instant::now(),
            verdict,
            machine: None,
            signs: Signs::default(),
            io_retry: IoRetry::new(),
            agent: AgentLink::Unknown,
            agent_said: None,
            thaw,
            shutdown: None,
            dhcp,
            ending: false,
            released: false,
        };
        guest.pass_console_on();
        guest.tell();
        guest
    }

    /// Runs until the handler lets the launcher go, or the pod is being ended and no guest lives.
    pub(crate) async fn run(
        mut self,
        mut commands: mpsc::Receiver<Command>,
        stop: CancellationToken,
    ) {
        while !self.is_over() {
            let timer = self.next_timer();
            tokio::select! {
                biased;
                () = stop.cancelled(), if !self.ending => self.end(),
                event = next_event(&mut self.link) => self.on_event(event).await,
                () = self.agent.news() => self.tell(),
                Some(command) = commands.recv() => self.on_command(command).await,
                () = tokio::time::sleep_until(timer) => self.on_timer().await,
            }
        }
        self.dhcp.stop();
    }

    fn is_over(&self) -> bool {
        let alive = matches!(self.verdict, None | Some(Verdict::Alive(_)));
        self.released || (self.ending && !alive)
    }

    /// The pod is being ended: the guest gets the grace its plan promised.
    fn end(&mut self) {
        tracing::info!("the pod is being ended");
        self.ending = true;
        let grace = self
            .memory
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
        [reconnect, shutdown, retry]
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
    }

    /// The storage of a guest that stands still may work again.
    async fn tick_io_retry(&mut self) {
        if self.link.is_none() || !self.io_retry.take_due(Instant::now()) {
            return;
        }
        tracing::info!("the guest's storage failed: it is let go on");
        if let Err(err) = self.act(async |to, domain| to.resume(domain).await).await {
            tracing::warn!(err = error_chain(&err), "the guest does not go on");
        }
    }

    async fn on_event(&mut self, event: Option<Event>) {
        match event {
            None => self.lose_link(),
            Some(event) => {
                tracing::debug!(?event, "libvirt says");
                self.signs.note(&event);
                if let Event::Agent { connected, .. } = event {
                    self.note_agent(connected);
                }
                if let Err(err) = self.look().await {
                    tracing::warn!(%err, "cannot look at the guest");
                }
            }
        }
    }

    async fn on_command(&mut self, command: Command) {
        let Command {
            id,
            request,
            answer,
        } = command;
        let name = request_name(&request);
        let request = match request {
            Request::AskAgent(question) => {
                let question = Question {
                    id,
                    asked: question,
                    answer: answer.clone(),
                };
                match self.agent.ask(question) {
                    // The agent's own task answers.
                    Ok(()) => return,
                    Err(refusal) => return send(&answer, id, refusal.into_reply()),
                }
            }
            request => request,
        };
        let reply = match self.handle(request).await {
            Ok(()) => Reply::Done(self.state()),
            Err(refusal) => {
                let reply = refusal.into_reply();
                tracing::warn!(request = name, ?reply, "refused");
                reply
            }
        };
        send(&answer, id, reply);
    }

    async fn handle(&mut self, request: Request) -> Result<(), Refusal> {
        match request {
            Request::Sync(plan) => self.sync(*plan).await,
            Request::Pause => self.pause().await,
            Request::Unpause => self.unpause().await,
            Request::Shutdown { grace_seconds } => {
                self.know().await?;
                self.begin_shutdown(grace_seconds);
                self.tick_shutdown().await;
                Ok(())
            }
            Request::Destroy => self.destroy().await,
            Request::Release => {
                self.know().await?;
                if matches!(self.verdict, Some(Verdict::Alive(_))) {
                    return Err(Refusal::StillRunning);
                }
                self.released = true;
                failpoints::after("virt-launcher/guest/release");
                Ok(())
            }
            Request::SoftReboot => self.press(async |to, domain| to.reboot(domain).await).await,
            Request::Reset => self.press(async |to, domain| to.reset(domain).await).await,
            // Its answer is not of this kind.
            Request::AskAgent(_) => Err(Refusal::NoAgent),
            Request::State => self.know().await,
        }
    }

    async fn pause(&mut self) -> Result<(), Refusal> {
        self.know().await?;
        match self.verdict {
            Some(Verdict::Alive(DomainState::PausedByUser)) => Ok(()),
            Some(Verdict::Alive(_)) => self.act(async |to, domain| to.suspend(domain).await).await,
            _ => Err(Refusal::NotRunning),
        }
    }

    async fn unpause(&mut self) -> Result<(), Refusal> {
        self.know().await?;
        match self.verdict {
            Some(Verdict::Alive(DomainState::Running)) => Ok(()),
            Some(Verdict::Alive(_)) => self.act(async |to, domain| to.resume(domain).await).await,
            _ => Err(Refusal::NotRunning),
        }
    }

    async fn press(
        &mut self,
        act: impl AsyncFn(&Connection, &Domain) -> Result<(), libvirt::Error>,
    ) -> Result<(), Refusal> {
        self.know().await?;
        match self.verdict {
            Some(Verdict::Alive(_)) => self.act(act).await,
            _ => Err(Refusal::NotRunning),
        }
    }

    async fn destroy(&mut self) -> Result<(), Refusal> {
        self.know().await?;
        match self.verdict {
            Some(Verdict::Alive(_)) => {
                self.act(async |to, domain| {
                    to.destroy(domain).await?;
                    failpoints::after("virt-launcher/guest/destroy");
                    Ok(())
                })
                .await
            }
            _ => Ok(()),
        }
    }
}

/// Making the guest run.
impl Guest {
    async fn sync(&mut self, plan: GuestPlan) -> Result<(), Refusal> {
        if plan.vmi_uid != self.identity.uid {
            let ours = self.identity.uid.clone();
            return Err(Refusal::WrongGuest {
                asked: plan.vmi_uid,
                ours,
            });
        }
        if DomainUuid::parse(&plan.domain_uuid).is_none() {
            return Err(Refusal::BadUuid(plan.domain_uuid));
        }
        self.memory.plan(plan)?;
        self.pass_console_on();
        let deadline = Instant::now() + LINK_PATIENCE;
        loop {
            self.linked(deadline).await?;
            self.look().await?;
            match self.verdict {
                Some(Verdict::Alive(_) | Verdict::Ended(_)) => return Ok(()),
                _ if self.ending => return Err(Refusal::Ending),
                _ => {}
            }
            match self.start().await {
                Err(err) if cut_off(&err) && Instant::now() < deadline => self.lose_link(),
                ended => return ended,
            }
        }
    }

    async fn start(&mut self) -> Result<(), Refusal> {
        let (Some(record), Some(connection)) = (self.memory.record(), self.connection()) else {
            return Err(libvirt::Error::Closed.into());
        };
        let plan = &record.plan;
        let made = if plan.start_paused {
            Phase::Started
        } else {
            Phase::Resuming
        };
        let cut_off_before = record.phase == Phase::Starting;
        let (steps, servers) = (plan.prepare.clone(), plan.dhcp.clone());
        // Shared instead of copied: an XML may be large, and memory that was touched stays ours.
        let xml: Arc<str> = plan.domain_xml.as_str().into();
        let prepared = self
            .tasks
            .spawn_blocking(move || prepare::all(&steps))
            .await;
        prepared
            .map_err(std::io::Error::other)?
            .map_err(Refusal::Prepare)?;
        self.dhcp.start(&servers);
        let domain = connection.define(&xml).await.map_err(Refusal::Define)?;
        failpoints::after("virt-launcher/guest/define");
        if cut_off_before {
            discard_half_made(&connection, &domain).await?;
            failpoints::after("virt-launcher/guest/discard");
        }
        self.memory.advance(Phase::Starting)?;
        match connection.start(&domain, StartMode::Paused).await {
            Ok(_) => {
                failpoints::after("virt-launcher/guest/start-paused");
                self.memory.advance(made)?;
                self.look().await
            }
            Err(source @ libvirt::Error::Remote(_)) => self.start_failed(source).await,
            Err(err) => Err(err.into()),
        }
    }

    async fn start_failed(&mut self, source: libvirt::Error) -> Result<(), Refusal> {
        let attempt = self.memory.count_failed_start()?;
        if attempt >= STARTS {
            self.conclude(Verdict::Ended(StopReason::StartFailed))
                .await?;
        }
        Err(Refusal::Start {
            attempt,
            of: STARTS,
            source,
        })
    }
}

/// Knowing the guest's state.
impl Guest {
    /// Asks libvirt for the guest and draws the conclusion.
    async fn look(&mut self) -> Result<(), Refusal> {
        let (Some(phase), Some(connection)) = (self.memory.phase(), self.connection()) else {
            return Ok(());
        };
        let Some(domain) = self.domain() else {
            return Ok(());
        };
        let mut seen = match connection.state(&domain).await {
            Ok(state) => Some(state),
            Err(err) if err.code() == Some(ErrorCode::NO_DOMAIN) => None,
            Err(err) => return Err(err.into()),
        };
        if phase == Phase::Resuming
            && seen == Some(libvirt::DomainState::Paused(PausedReason::User))
        {
            connection.resume(&domain).await?;
            failpoints::after("virt-launcher/guest/let-go");
            self.memory.advance(Phase::Started)?;
            seen = Some(connection.state(&domain).await?);
        }
        let verdict = self.signs.refine(judge(phase, seen));
        if self.signs.wonders(verdict) {
            match connection.disk_errors(&domain).await {
                Ok(messages) => self.signs.hear(&messages),
                Err(err) => tracing::info!(%err, "libvirt does not say why the storage fails"),
            }
        }
        let unknown = self.machine.is_none() || self.agent.is_unknown();
        if matches!(verdict, Verdict::Alive(_)) && unknown {
            let xml = connection.xml(&domain).await?;
            self.machine = machine_of(&xml);
            self.note_agent(agents::is_connected(&xml));
        }
        self.conclude(verdict).await
    }

    async fn conclude(&mut self, verdict: Verdict) -> Result<(), Refusal> {
        match verdict {
            Verdict::MayStart => {}
            Verdict::Alive(state) => {
                self.memory.advance(Phase::Started)?;
                self.note_qemu()?;
                let storage = if state == DomainState::PausedByIoError {
                    Storage::Fails
                } else {
                    Storage::Works
                };
                self.io_retry.observe(storage, Instant::now());
                if let Some(record) = self.memory.record() {
                    self.dhcp.start(&record.plan.dhcp);
                }
            }
            Verdict::Ended(reason) => {
                if !matches!(self.memory.phase(), Some(Phase::Ended(_))) {
                    let ending = self.explain(reason).await;
                    self.memory.end(reason, ending)?;
                }
                self.io_retry = IoRetry::new();
                self.agent = AgentLink::Unknown;
                self.shutdown = None;
                self.dhcp.stop();
            }
        }
        self.verdict = Some(verdict);
        self.tell();
        Ok(())
    }

    fn state(&self) -> GuestState {
        let domain = match self.verdict {
            Some(Verdict::Alive(state)) => Some(state),
            Some(Verdict::Ended(reason)) => Some(DomainState::Stopped(reason)),
            Some(Verdict::MayStart) | None => None,
        };
        let alive = matches!(self.verdict, Some(Verdict::Alive(_)));
        let ending = match self.memory.record() {
            Some(record) if !alive => record.ending.clone(),
            _ => Ending::default(),
        };
        let why = domain.and_then(|state| self.signs.why(state));
        GuestState {
            note: ending.note.or(why),
            agent: self.agent.seen(),
            qemu_signal: ending.signal,
            domain,
            machine: self.machine.clone(),
            shutting_down: alive && self.shutdown.is_some(),
        }
    }

    fn pass_console_on(&self) {
        let wanted = |record: &record::Record| record.plan.console_to_log;
        let wanted = self.memory.record().is_some_and(wanted);
        self.console_to_log.send_replace(wanted);
    }

    fn note_qemu(&mut self) -> Result<(), Refusal> {
        let Some(record) = self.memory.record().filter(|record| record.qemu.is_none()) else {
            return Ok(());
        };
        let path = self.paths.domain_pid(&record.plan.domain_name);
        let pid = std::fs::read_to_string(path).unwrap_or_default();
        if let Ok(pid) = pid.trim().parse() {
            self.memory.qemu(pid)?;
        }
        Ok(())
    }

    async fn explain(&self, reason: StopReason) -> Ending {
        let Some(record) = self.memory.record() else {
            return Ending::default();
        };
        let traces = Traces {
            ends: &self.paths.ends(),
            log: &self.paths.domain_log(&record.plan.domain_name),
            qemu: record.qemu,
        };
        ending::explain(reason, &traces).await
    }

    fn tell(&self) {
        let state = self.verdict.map(|_| self.state());
        self.told.send_if_modified(|told| {
            let news = *told != state;
            if news {
                tracing::info!(?state, "the guest's state");
                *told = state;
            }
            news
        });
    }

    /// Waits until the state is known for sure: after a restart of this launcher, or of libvirtd.
    async fn know(&mut self) -> Result<(), Refusal> {
        if self.verdict.is_none() || (self.link.is_none() && self.is_alive()) {
            self.linked(Instant::now() + LINK_PATIENCE).await?;
        }
        Ok(())
    }

    fn is_alive(&self) -> bool {
        matches!(self.verdict, Some(Verdict::Alive(_)))
    }

    /// The domain by the plan's name and UUID; libvirt goes by the UUID.
    fn domain(&self) -> Option<Domain> {
        let plan = &self.memory.record()?.plan;
        let uuid = DomainUuid::parse(&plan.domain_uuid)?;
        Some(Domain {
            name: plan.domain_name.clone(),
            uuid,
            id: None,
        })
    }
}

/// The connection to libvirtd.
impl Guest {
    fn connection(&self) -> Option<Connection> {
        self.link.as_ref().map(|link| link.connection.clone())
    }

    fn lose_link(&mut self) {
        if self.link.take().is_some() {
            self.agent_said = self.agent.seen().map(|agent| *agent);
            self.agent = AgentLink::Unknown;
            self.reconnect.reset();
            self.reconnect_at = Instant::now();
        }
    }

    /// One attempt; on success the guest was looked at.
    async fn connect(&mut self) {
        match Link::open(&self.paths.libvirt_socket(), &self.tasks).await {
            Ok(link) => {
                tracing::info!("connected to libvirtd");
                self.link = Some(link);
                self.reconnect.reset();
                self.settle().await;
                if let Err(err) = self.look().await {
                    tracing::warn!(%err, "cannot look at the guest");
                    self.link = None;
                }
            }
            Err(err) => tracing::debug!(%err, "libvirtd does not answer yet"),
        }
        if self.link.is_none() {
            self.reconnect_at = Instant::now() + self.reconnect.pause();
        }
    }

    /// A libvirtd that has just started tells what its files say of the guest until it has tried
    /// to reach QEMU, and if that fails there is no event. So the first answer is waited for that
    /// only comes after the attempt; what it says does not matter.
    async fn settle(&self) {
        let adopting = matches!(
            self.memory.phase(),
            Some(Phase::Starting | Phase::Resuming | Phase::Started)
        );
        let (true, Some(connection), Some(domain)) = (adopting, self.connection(), self.domain())
        else {
            return;
        };
        if let Err(err) = connection
            .with_limit(SETTLE_LIMIT)
            .memory_stats(&domain)
            .await
        {
            tracing::debug!(%err, "the guest does not answer");
        }
    }

    /// Waits for a connection until `deadline`.
    async fn linked(&mut self, deadline: Instant) -> Result<Connection, Refusal> {
        loop {
            if let Some(connection) = self.connection().filter(Connection::is_open) {
                return Ok(connection);
            }
            self.lose_link();
            tokio::time::sleep_until(self.reconnect_at.min(deadline)).await;
            self.connect().await;
            if self.link.is_none() && Instant::now() >= deadline {
                return Err(libvirt::Error::Closed.into());
            }
        }
    }

    /// Does something to the running domain, again if libvirtd dies under it, and looks.
    async fn act(
        &mut self,
        act: impl AsyncFn(&Connection, &Domain) -> Result<(), libvirt::Error>,
    ) -> Result<(), Refusal> {
        let deadline = Instant::now() + LINK_PATIENCE;
        loop {
            let connection = self.linked(deadline).await?;
            let domain = self.domain().ok_or(Refusal::NotRunning)?;
            match act(&connection, &domain).await {
                Ok(()) => return self.look().await,
                Err(err) if err.is_closed() && Instant::now() < deadline => self.lose_link(),
                Err(err) => {
                    self.look().await?;
                    // The guest ended in between: that answers every wish but to have it run.
                    return if self.is_alive() {
                        Err(err.into())
                    } else {
                        Err(Refusal::NotRunning)
                    };
                }
            }
        }
    }
}

/// Ends the QEMU of a start that was cut off. Its guest was never let go, so nothing is lost.
async fn discard_half_made(connection: &Connection, domain: &Domain) -> Result<(), libvirt::Error> {
    match connection.destroy(domain).await {
        Err(err @ libvirt::Error::Remote(_)) => {
            tracing::debug!(%err, "nothing is left of the start that was cut off");
            Ok(())
        }
        ended => ended,
    }
}

/// The next event, `None` when the connection has ended; never ready without a connection.
async fn next_event(link: &mut Option<Link>) -> Option<Event> {
    match link {
        Some(link) => link.events.next().await,
        None => std::future::pending().await,
    }
}

fn cut_off(err: &Refusal) -> bool {
    match err {
        Refusal::Libvirt(err) | Refusal::Define(err) => err.is_closed(),
        _ => false,
    }
}

/// The handler may be gone, or it does not read: it asks again either way.
fn send(to: &mpsc::Sender<FromLauncher>, id: u64, reply: Reply) {
    if let Err(err) = to.try_send(FromLauncher::Reply { id, reply }) {
        tracing::info!(%err, "nobody takes the answer");
    }
}

fn request_name(request: &Request) -> &'static str {
    match request {
        Request::Sync(_) => "sync",
        Request::Pause => "pause",
        Request::Unpause => "unpause",
        Request::Shutdown { .. } => "shutdown",
        Request::Destroy => "destroy",
        Request::SoftReboot => "soft reboot",
        Request::Reset => "reset",
        Request::AskAgent(_) => "ask the agent",
        Request::Release => "release",
        Request::State => "state",
    }
}

/// The machine type in a domain's XML, as libvirt writes it: `machine='pc-q35-10.0'`.
fn machine_of(xml: &str) -> Option<String> {
    let (_, after) = xml.split_once("<type ")?;
    let (tag, _) = after.split_once('>')?;
    let (_, value) = tag.split_once("machine='")?;
    value
        .split_once('\'')
        .map(|(machine, _)| machine.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_type_is_read_from_libvirts_xml() {
        let xml = "<domain type='kvm'>\n<os>\n<type arch='x86_64' machine='pc-q35-10.0'>hvm</type>";
        assert_eq!(machine_of(xml).as_deref(), Some("pc-q35-10.0"));
        assert_eq!(machine_of("<domain><type>hvm</type>"), None);
    }
}
