//! The loop: one thread, one poll, every event handled to its end before the next.

use std::{
    fs::{self, File},
    io::{self, Read as _, Write as _},
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::{
            fs::PermissionsExt,
            net::{UnixListener, UnixStream},
        },
    },
    path::Path,
};

use error_chain::error_chain;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{FlockOperation, Mode, flock},
    net::sockopt::socket_peercred,
    process::set_child_subreaper,
};

use crate::{
    cgroup, clock,
    container::{Container, Parent, Phase, kill_now, report},
    error::SupervisorError,
    exit::{self, Exit},
    layout,
    log::Stream,
    model::{ContainerSpec, Sandbox},
    protocol::{Greeting, MAX_LINE, Reply, Request},
    sandbox, signals,
    status::{self, PodStatus, Process, State},
};

/// More connections than any honest node holds.
const MAX_CLIENTS: usize = 16;
/// A subscriber that reads nothing while this much piles up is dropped.
const MAX_UNSENT: usize = 4 << 20;

#[derive(Debug)]
struct Supervisor {
    sandbox: Sandbox,
    me: Process,
    boot_id: String,
    network_namespace: u64,
    containers: Vec<Container>,
    listener: UnixListener,
    signals: OwnedFd,
    clients: Vec<Client>,
    stopping: Option<Stopping>,
    /// Children reaped before their helper had told us whose they are.
    unclaimed: Vec<(i32, Exit)>,
    changed: bool,
    _lock: File,
}

#[derive(Debug, Clone, Copy)]
struct Stopping {
    kill_at: i64,
    killed: bool,
}

#[derive(Debug)]
struct Client {
    stream: UnixStream,
    input: Vec<u8>,
    output: Vec<u8>,
    subscribed: bool,
    gone: bool,
}

/// What a ready descriptor belongs to.
#[derive(Debug, Clone, Copy)]
enum Source {
    Signals,
    Listener,
    Client(usize),
    Helper(usize),
    Stranger(usize),
    Output(usize, Stream),
}

/// Body of `pod-supervisor run <pod directory>`; returns when the pod is over.
///
/// Says one [`Greeting`] line on standard output as soon as the control socket answers.
pub fn run(pod_dir: &Path) -> Result<(), SupervisorError> {
    match Supervisor::begin(pod_dir) {
        Ok(mut supervisor) => {
            greet(&Greeting::Ready {
                network_namespace: supervisor.network_namespace,
            });
            supervisor.run()
        }
        Err(error) => {
            greet(&Greeting::Failed {
                message: error_chain(&error),
            });
            Err(error)
        }
    }
}

fn greet(greeting: &Greeting) {
    let mut line = serde_json::to_vec(greeting).expect("a greeting is always JSON");
    line.push(b'\n');
    let mut out = io::stdout();
    if let Err(error) = out.write_all(&line).and_then(|()| out.flush()) {
        report(&format!("greet the node: {}", error_chain(&error)));
    }
    // The node waits for the end of the line or of the pipe; either way it is done with it.
    if let Ok(null) = File::options().write(true).open("/dev/null")
        && let Err(error) = rustix::stdio::dup2_stdout(&null)
    {
        report(&format!("let go of standard output: {error}"));
    }
}

impl Supervisor {
    fn begin(pod_dir: &Path) -> Result<Self, SupervisorError> {
        let in_dir = |source: io::Error| SupervisorError::Directory {
            dir: pod_dir.to_owned(),
            source,
        };
        std::env::set_current_dir(pod_dir).map_err(in_dir)?;
        rustix::process::umask(Mode::WGRP | Mode::WOTH);
        let lock = File::create(layout::LOCK_FILE).map_err(in_dir)?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(SupervisorError::AlreadyOwned {
                dir: pod_dir.to_owned(),
            });
        }
        // A session of its own: no terminal, no signal meant for the node. Where we lead a group
        // it is so already.
        if let Err(errno) = rustix::process::setsid()
            && errno != rustix::io::Errno::PERM
        {
            return Err(SupervisorError::Wait {
                source: errno.into(),
            });
        }
        set_child_subreaper(Some(rustix::process::getpid())).map_err(|errno| {
            SupervisorError::Wait {
                source: errno.into(),
            }
        })?;
        let signals = signals::descriptor().map_err(|source| SupervisorError::Wait { source })?;

        let file = pod_dir.join(layout::SANDBOX_FILE);
        let bytes = fs::read(layout::SANDBOX_FILE).map_err(in_dir)?;
        let sandbox: Sandbox = serde_json::from_slice(&bytes)
            .map_err(|source| SupervisorError::Malformed { file, source })?;
        let left = status::read(Path::new(".")).map_err(in_dir)?;

        let own_group = format!("{}/supervisor", sandbox.cgroup);
        cgroup::enter(&own_group).map_err(|source| SupervisorError::Cgroup {
            path: own_group,
            source,
        })?;
        failpoints::after("pod-supervisor/enter-cgroup");
        let living = left
            .iter()
            .flat_map(|left| &left.containers)
            .find_map(|one| match one.state {
                State::Running { process, .. } if process.is_alive() => Some(process.pid),
                _ => None,
            });
        if let Some(pid) = living {
            sandbox::join(pid)?;
        } else {
            sandbox::make(&sandbox)?;
            failpoints::after("pod-supervisor/make-sandbox");
        }

        let me = Process::of(i32::try_from(std::process::id()).unwrap_or_default()).ok_or_else(
            || SupervisorError::Wait {
                source: io::Error::other("no /proc"),
            },
        )?;
        let mut supervisor = Self {
            me,
            boot_id: status::boot_id().map_err(in_dir)?,
            network_namespace: sandbox::network_namespace()?,
            containers: Vec::new(),
            listener: listen().map_err(|source| SupervisorError::Listen { source })?,
            signals,
            clients: Vec::new(),
            stopping: None,
            unclaimed: Vec::new(),
            changed: true,
            sandbox,
            _lock: lock,
        };
        for status in left.map(|left| left.containers).unwrap_or_default() {
            match read_spec(&status.name) {
                Ok(spec) => {
                    let mut container = Container::new(&spec);
                    container.adopt(&supervisor.sandbox, status);
                    supervisor.containers.push(container);
                }
                Err(error) => report(&format!("adopt {}: {}", status.name, error_chain(&error))),
            }
        }
        supervisor.publish()?;
        Ok(supervisor)
    }

    fn run(&mut self) -> Result<(), SupervisorError> {
        while !self.is_over() {
            for source in self.wait()? {
                self.handle(source);
            }
            self.on_deadlines();
            if self.changed {
                self.publish()?;
            }
            self.clients.retain(|client| !client.gone);
        }
        drop(fs::remove_file(layout::CONTROL_SOCKET));
        failpoints::after("pod-supervisor/hang-up");
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.stopping.is_some() && self.containers.iter().all(Container::has_ended)
    }

    /// Blocks until something is ready or due.
    fn wait(&self) -> Result<Vec<Source>, SupervisorError> {
        let mut sources = vec![Source::Signals, Source::Listener];
        let mut fds = vec![
            PollFd::new(&self.signals, PollFlags::IN),
            PollFd::new(&self.listener, PollFlags::IN),
        ];
        for (index, client) in self.clients.iter().enumerate() {
            let mut interest = PollFlags::IN;
            if !client.output.is_empty() {
                interest |= PollFlags::OUT;
            }
            sources.push(Source::Client(index));
            fds.push(PollFd::new(&client.stream, interest));
        }
        for (index, container) in self.containers.iter().enumerate() {
            match &container.phase {
                Phase::Starting { answer, .. } => {
                    sources.push(Source::Helper(index));
                    fds.push(PollFd::new(answer, PollFlags::IN));
                }
                Phase::Running { pidfd, parent, .. } => {
                    if *parent == Parent::Somebody {
                        sources.push(Source::Stranger(index));
                        fds.push(PollFd::new(pidfd, PollFlags::IN));
                    }
                    for (stream, file) in container.outputs() {
                        sources.push(Source::Output(index, stream));
                        fds.push(PollFd::from_borrowed_fd(file.as_fd(), PollFlags::IN));
                    }
                }
                Phase::BackOff { .. } | Phase::Ended => {}
            }
        }
        let timeout = self.next_deadline().map(|due| {
            let ms = (due - clock::steady_ms()).max(0);
            Timespec {
                tv_sec: ms / 1000,
                tv_nsec: ms % 1000 * 1_000_000,
            }
        });
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(Vec::new()),
            Err(errno) => {
                return Err(SupervisorError::Wait {
                    source: errno.into(),
                });
            }
        }
        // Hang-up alone is no news of an output: a program may close what it never writes to.
        Ok(sources
            .into_iter()
            .zip(&fds)
            .filter(|(source, fd)| match source {
                Source::Output(..) => fd.revents().contains(PollFlags::IN),
                _ => !fd.revents().is_empty(),
            })
            .map(|(source, _)| source)
            .collect())
    }

    fn next_deadline(&self) -> Option<i64> {
        let kill = self
            .stopping
            .filter(|stop| !stop.killed)
            .map(|stop| stop.kill_at);
        self.containers
            .iter()
            .filter_map(Container::deadline)
            .chain(kill)
            .min()
    }

    fn handle(&mut self, source: Source) {
        match source {
            Source::Signals => self.on_signals(),
            Source::Listener => self.on_connection(),
            Source::Client(index) => self.on_client(index),
            Source::Helper(index) => self.on_helper(index),
            Source::Stranger(index) => {
                if let Some(container) = self.containers.get_mut(index) {
                    container.on_stranger_end(&self.sandbox);
                    self.changed = true;
                }
            }
            Source::Output(index, stream) => {
                if let Some(container) = self.containers.get_mut(index) {
                    container.on_output(stream);
                }
            }
        }
    }

    fn on_signals(&mut self) {
        while let Some(signal) = signals::next(&self.signals) {
            if signal != libc::SIGCHLD {
                let grace_ms = i64::from(self.sandbox.grace_seconds) * 1000;
                self.stop(grace_ms);
            }
        }
        while let Some((pid, exit)) = exit::reap_one() {
            self.on_reaped(pid, exit);
        }
    }

    fn on_reaped(&mut self, pid: i32, exit: Exit) {
        if let Some(container) = self.containers.iter_mut().find(|one| one.is_parent_of(pid)) {
            container.on_exit(&self.sandbox, exit);
            self.changed = true;
        } else if self.is_starting_any() {
            // Strays need only be reaped, unless a helper is yet to name one of them.
            self.unclaimed.push((pid, exit));
        }
    }

    fn is_starting_any(&self) -> bool {
        self.containers
            .iter()
            .any(|one| matches!(one.phase, Phase::Starting { .. }))
    }

    fn on_helper(&mut self, index: usize) {
        let Some(container) = self.containers.get_mut(index) else {
            return;
        };
        container.on_helper(&self.sandbox);
        if matches!(container.phase, Phase::Starting { .. }) {
            return;
        }
        self.changed = true;
        if let State::Running { process, .. } = &container.status.state
            && let Some(at) = self
                .unclaimed
                .iter()
                .position(|(pid, _)| *pid == process.pid)
        {
            let (_, exit) = self.unclaimed.swap_remove(at);
            container.on_exit(&self.sandbox, exit);
        }
        container.settle_if_lost(&self.sandbox);
        if let Some(stop) = self.stopping {
            container.no_more_restarts();
            if !container.has_ended() {
                let signal = if stop.killed {
                    libc::SIGKILL
                } else {
                    libc::SIGTERM
                };
                if let Err(error) = container.signal(signal) {
                    report(&format!(
                        "stop {}: {}",
                        container.status.name,
                        error_chain(&error)
                    ));
                }
            }
        }
        if !self.is_starting_any() {
            self.unclaimed.clear();
        }
    }

    fn on_deadlines(&mut self) {
        let now = clock::steady_ms();
        for container in &mut self.containers {
            if container.deadline().is_some_and(|due| due <= now) {
                container.on_deadline(&self.sandbox);
                self.changed = true;
            }
        }
        if let Some(stop) = &mut self.stopping
            && !stop.killed
            && stop.kill_at <= now
        {
            stop.killed = true;
            self.signal_all(libc::SIGKILL);
        }
    }

    /// Ask nicely, then not; a second call can only shorten the grace.
    fn stop(&mut self, grace_ms: i64) {
        let kill_at = clock::steady_ms().saturating_add(grace_ms);
        self.changed = true;
        if let Some(stop) = &mut self.stopping {
            stop.kill_at = stop.kill_at.min(kill_at);
            return;
        }
        self.stopping = Some(Stopping {
            kill_at,
            killed: false,
        });
        for container in &mut self.containers {
            container.no_more_restarts();
        }
        self.signal_all(libc::SIGTERM);
        failpoints::after("pod-supervisor/stop");
    }

    fn signal_all(&self, signal: i32) {
        for container in &self.containers {
            match &container.phase {
                Phase::Running { .. } => {
                    if let Err(error) = container.signal(signal) {
                        report(&format!(
                            "stop {}: {}",
                            container.status.name,
                            error_chain(&error)
                        ));
                    }
                }
                Phase::Starting { helper, .. } if signal == libc::SIGKILL => {
                    kill_now(i32::try_from(helper.id()).unwrap_or_default());
                }
                Phase::Starting { .. } | Phase::BackOff { .. } | Phase::Ended => {}
            }
        }
    }

    fn status(&self) -> PodStatus {
        PodStatus {
            supervisor: self.me,
            boot_id: self.boot_id.clone(),
            network_namespace: self.network_namespace,
            stopping: self.stopping.is_some(),
            containers: self
                .containers
                .iter()
                .map(|one| one.status.clone())
                .collect(),
        }
    }

    /// Keeps the status and tells subscribers.
    fn publish(&mut self) -> Result<(), SupervisorError> {
        self.changed = false;
        let status = self.status();
        match status::write(Path::new("."), &status) {
            Ok(()) => failpoints::after("pod-supervisor/publish"),
            // A full disk must not end a running pod; the next change tries again.
            Err(error) if !self.containers.is_empty() => {
                report(&format!("keep the status: {}", error_chain(&error)));
            }
            Err(source) => return Err(SupervisorError::Status { source }),
        }
        let reply = Reply::Status(status);
        for client in self.clients.iter_mut().filter(|client| client.subscribed) {
            client.send(&reply);
        }
        Ok(())
    }

    fn on_connection(&mut self) {
        let Ok((stream, _)) = self.listener.accept() else {
            return;
        };
        let root = socket_peercred(&stream).is_ok_and(|peer| peer.uid.is_root());
        if !root || self.clients.len() >= MAX_CLIENTS || stream.set_nonblocking(true).is_err() {
            return;
        }
        self.clients.push(Client {
            stream,
            input: Vec::new(),
            output: Vec::new(),
            subscribed: false,
            gone: false,
        });
    }

    fn on_client(&mut self, index: usize) {
        let Some(client) = self.clients.get_mut(index) else {
            return;
        };
        client.flush();
        client.receive();
        while let Some(line) = self.clients.get_mut(index).and_then(Client::next_line) {
            let (reply, subscribe) = match serde_json::from_slice::<Request>(&line) {
                Ok(request) => (self.answer(&request), matches!(request, Request::Subscribe)),
                Err(error) => (
                    Reply::Refused {
                        message: error_chain(&error),
                    },
                    false,
                ),
            };
            if let Some(client) = self.clients.get_mut(index) {
                client.subscribed |= subscribe;
                client.send(&reply);
            }
        }
    }

    fn answer(&mut self, request: &Request) -> Reply {
        match request {
            Request::Status | Request::Subscribe => Reply::Status(self.status()),
            Request::Shutdown { grace_ms } => {
                self.stop(i64::try_from(*grace_ms).unwrap_or(i64::MAX));
                Reply::Done
            }
            Request::Signal { container, signal } => {
                let found = self
                    .containers
                    .iter()
                    .find(|one| one.status.name == *container);
                match found.map(|one| one.signal(*signal)) {
                    Some(Ok(())) => Reply::Done,
                    Some(Err(error)) => Reply::Refused {
                        message: error_chain(&error),
                    },
                    None => Reply::Refused {
                        message: format!("no container {container:?}"),
                    },
                }
            }
            Request::Start { container } => match self.start(container) {
                Ok(()) => Reply::Done,
                Err(error) => Reply::Refused {
                    message: error_chain(&error),
                },
            },
        }
    }

    fn start(&mut self, spec: &ContainerSpec) -> io::Result<()> {
        if self.stopping.is_some() {
            return Err(io::Error::other("the pod is stopping"));
        }
        if self
            .containers
            .iter()
            .any(|one| one.status.name == spec.name)
        {
            return Ok(());
        }
        if spec.name.is_empty() || spec.name.starts_with('.') || spec.name.contains('/') {
            return Err(io::Error::other(
                "a container's name is one plain path component",
            ));
        }
        fs::create_dir_all(layout::container_dir(&spec.name))?;
        let file = layout::spec_file(&spec.name);
        fs::write(&file, serde_json::to_vec(spec)?)?;
        // It may hold values from secrets.
        fs::set_permissions(&file, PermissionsExt::from_mode(0o600))?;
        failpoints::after("pod-supervisor/write-spec");
        let mut container = Container::new(spec);
        container.begin(&self.sandbox);
        self.containers.push(container);
        self.changed = true;
        Ok(())
    }
}

impl Client {
    fn receive(&mut self) {
        let mut buffer = [0; 16 * 1024];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => self.gone = true,
                Ok(count) => {
                    self.input
                        .extend_from_slice(buffer.get(..count).unwrap_or_default());
                    if self.input.len() <= MAX_LINE {
                        continue;
                    }
                    self.gone = true;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => self.gone = true,
            }
            return;
        }
    }

    fn next_line(&mut self) -> Option<Vec<u8>> {
        let end = self.input.iter().position(|byte| *byte == b'\n')?;
        let line = self.input.drain(..=end).collect();
        if self.input.is_empty() {
            // A container's specification is large and comes once.
            self.input = Vec::new();
        }
        Some(line)
    }

    fn send(&mut self, reply: &Reply) {
        let line = serde_json::to_vec(reply).expect("a reply is always JSON");
        self.output.extend_from_slice(&line);
        self.output.push(b'\n');
        self.flush();
        if self.output.len() > MAX_UNSENT {
            self.gone = true;
        }
    }

    fn flush(&mut self) {
        while !self.output.is_empty() {
            match self.stream.write(&self.output) {
                Ok(count) => drop(self.output.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.gone |= error.kind() != io::ErrorKind::WouldBlock;
                    return;
                }
            }
        }
    }
}

fn listen() -> io::Result<UnixListener> {
    match fs::remove_file(layout::CONTROL_SOCKET) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // Bound by a relative name, as the absolute one may be longer than a socket address holds.
    let listener = UnixListener::bind(layout::CONTROL_SOCKET)?;
    fs::set_permissions(layout::CONTROL_SOCKET, PermissionsExt::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn read_spec(container: &str) -> io::Result<ContainerSpec> {
    Ok(serde_json::from_slice(&fs::read(layout::spec_file(
        container,
    ))?)?)
}
