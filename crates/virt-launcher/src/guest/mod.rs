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

mod dhcp_servers;
mod judge;
mod record;
mod refusal;
mod shutdown;

use std::sync::Arc;
use std::time::Duration;

use launcher_channel::{
    DomainState, FromLauncher, GuestPlan, GuestState, Reply, Request, StopReason,
};
use libvirt::{
    Connection, Domain, DomainUuid, ErrorCode, Event, Lifecycle, PausedReason, StartMode,
};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::dhcp_servers::DhcpServers;
use self::judge::{Phase, Verdict, judge};
pub(crate) use self::record::Memory;
use self::refusal::Refusal;
use self::shutdown::Shutdown;
use crate::backoff::Backoff;
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
    link: Option<Link>,
    reconnect: Backoff,
    reconnect_at: Instant,
    verdict: Option<Verdict>,
    machine: Option<String>,
    panicked: bool,
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
}

impl Guest {
    pub(crate) fn new(parts: Parts) -> Self {
        let Parts {
            identity,
            paths,
            tasks,
            memory,
            told,
        } = parts;
        // Without a plan there is nothing to ask libvirt for.
        let verdict = match memory.phase() {
            None => Some(Verdict::MayStart),
            Some(Phase::Ended(reason)) => Some(Verdict::Ended(reason)),
            Some(_) => None,
        };
        let dhcp = DhcpServers::new(tasks.clone());
        let guest = Self {
            identity,
            paths,
            tasks,
            memory,
            told,
            link: None,
            reconnect: Backoff::new(Duration::from_millis(50), Duration::from_secs(2)),
            reconnect_at: Instant::now(),
            verdict,
            machine: None,
            panicked: false,
            shutdown: None,
            dhcp,
            ending: false,
            released: false,
        };
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
        [reconnect, shutdown]
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
    }

    async fn on_event(&mut self, event: Option<Event>) {
        match event {
            None => self.lose_link(),
            Some(event) => {
                tracing::debug!(?event, "libvirt says");
                if matches!(
                    &event,
                    Event::Lifecycle {
                        change: Lifecycle::Crashed(_),
                        ..
                    }
                ) {
                    self.panicked = true;
                }
                if let Event::IoError { device, reason, .. } = &event {
                    tracing::warn!(device, reason, "the guest's disk failed");
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
        let reply = match self.handle(request).await {
            Ok(()) => Reply::Done(self.state()),
            Err(refusal) => {
                let reply = refusal.into_reply();
                tracing::warn!(request = name, ?reply, "refused");
                reply
            }
        };
        // The handler may be gone, or it does not read: it asks again either way.
        if let Err(err) = answer.try_send(FromLauncher::Reply { id, reply }) {
            tracing::info!(request = name, %err, "nobody takes the answer");
        }
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
                Ok(())
            }
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

    async fn destroy(&mut self) -> Result<(), Refusal> {
        self.know().await?;
        match self.verdict {
            Some(Verdict::Alive(_)) => self.act(async |to, domain| to.destroy(domain).await).await,
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
        if cut_off_before {
            discard_half_made(&connection, &domain).await?;
        }
        self.memory.advance(Phase::Starting)?;
        match connection.start(&domain, StartMode::Paused).await {
            Ok(_) => {
                self.memory.advance(made)?;
                self.look().await
            }
            Err(source @ libvirt::Error::Remote(_)) => self.start_failed(source),
            Err(err) => Err(err.into()),
        }
    }

    fn start_failed(&mut self, source: libvirt::Error) -> Result<(), Refusal> {
        let attempt = self.memory.count_failed_start()?;
        if attempt >= STARTS {
            self.conclude(Verdict::Ended(StopReason::StartFailed))?;
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
            self.memory.advance(Phase::Started)?;
            seen = Some(connection.state(&domain).await?);
        }
        let verdict = match judge(phase, seen) {
            Verdict::Ended(StopReason::Crashed) if self.panicked => {
                Verdict::Ended(StopReason::Panicked)
            }
            verdict => verdict,
        };
        if matches!(verdict, Verdict::Alive(_)) && self.machine.is_none() {
            self.machine = machine_of(&connection.xml(&domain).await?);
        }
        self.conclude(verdict)
    }

    fn conclude(&mut self, verdict: Verdict) -> Result<(), Refusal> {
        match verdict {
            Verdict::MayStart => {}
            Verdict::Alive(_) => {
                self.memory.advance(Phase::Started)?;
                if let Some(record) = self.memory.record() {
                    self.dhcp.start(&record.plan.dhcp);
                }
            }
            Verdict::Ended(reason) => {
                self.memory.advance(Phase::Ended(reason))?;
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
        GuestState {
            domain,
            machine: self.machine.clone(),
            shutting_down: alive && self.shutdown.is_some(),
        }
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

fn request_name(request: &Request) -> &'static str {
    match request {
        Request::Sync(_) => "sync",
        Request::Pause => "pause",
        Request::Unpause => "unpause",
        Request::Shutdown { .. } => "shutdown",
        Request::Destroy => "destroy",
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
