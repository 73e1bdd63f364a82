//! Waiting for events and dispatching them.

use std::os::fd::AsFd as _;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{Supervisor, stop::signal_container};
use crate::{
    clock,
    container::{Container, Parent, Phase},
    error::SupervisorError,
    exit::{self, Exit},
    log::Stream,
    signals,
    status::State,
};

/// What a ready descriptor belongs to.
#[derive(Debug, Clone, Copy)]
pub(super) enum Source {
    Signals,
    Listener,
    Client(usize),
    Helper(usize),
    Adopted(usize),
    Output(usize, Stream),
    /// No writer is left, and no output.
    OutputClosed(usize, Stream),
}

impl Supervisor {
    /// Blocks until a descriptor is ready or a deadline has passed.
    pub(super) fn wait(&self) -> Result<Vec<Source>, SupervisorError> {
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
                Phase::Starting { output, .. } => {
                    sources.push(Source::Helper(index));
                    fds.push(PollFd::new(output, PollFlags::IN));
                }
                Phase::Running { pidfd, parent, .. } => {
                    if *parent == Parent::Other {
                        sources.push(Source::Adopted(index));
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
        let timeout = self.next_deadline().map(|deadline| {
            let ms = (deadline - clock::steady_ms()).max(0);
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
        Ok(sources
            .into_iter()
            .zip(&fds)
            .filter(|(_, fd)| !fd.revents().is_empty())
            .map(|(source, fd)| match source {
                // A program may close its standard streams while it runs, which the kernel would report for ever.
                Source::Output(index, stream) if !fd.revents().contains(PollFlags::IN) => {
                    Source::OutputClosed(index, stream)
                }
                source => source,
            })
            .collect())
    }

    fn next_deadline(&self) -> Option<i64> {
        let kill = self
            .stopping
            .as_ref()
            .filter(|stop| !stop.killed)
            .map(|stop| stop.kill_at);
        self.containers
            .iter()
            .filter_map(Container::deadline)
            .chain(kill)
            .min()
    }

    pub(super) fn handle(&mut self, source: Source) {
        match source {
            Source::Signals => self.on_signals(),
            Source::Listener => self.on_connection(),
            Source::Client(index) => self.on_client(index),
            Source::Helper(index) => self.on_helper(index),
            Source::Adopted(index) => {
                if let Some(container) = self.containers.get_mut(index) {
                    container.on_adopted_end(&self.sandbox);
                    self.changed = true;
                }
            }
            Source::Output(index, stream) => {
                if let Some(container) = self.containers.get_mut(index) {
                    container.on_output(stream);
                }
            }
            Source::OutputClosed(index, stream) => {
                if let Some(container) = self.containers.get_mut(index) {
                    container.on_output_closed(stream);
                }
            }
        }
    }

    fn on_signals(&mut self) {
        while let Some(signal) = signals::next(&self.signals) {
            if signal != libc::SIGCHLD {
                let grace_ms = i64::from(self.sandbox.grace_seconds) * 1000;
                self.stop(grace_ms, &[]);
            }
        }
        while let Some((pid, exit)) = exit::reap_one() {
            self.on_reaped(pid, exit);
        }
    }

    fn on_reaped(&mut self, pid: i32, exit: Exit) {
        if let Some(container) = self.containers.iter_mut().find(|one| one.owns_child(pid)) {
            container.on_exit(&self.sandbox, exit);
            self.changed = true;
        } else if self.is_starting_any() {
            // Orphans only need reaping, unless a pending helper may still report one of them.
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
        container.end_if_lost(&self.sandbox);
        if let Some(stop) = &self.stopping {
            container.forbid_restarts();
            if !container.has_ended() {
                let signal = if stop.killed {
                    libc::SIGKILL
                } else {
                    libc::SIGTERM
                };
                signal_container(container, signal);
            }
        }
        if !self.is_starting_any() {
            self.unclaimed.clear();
        }
    }

    pub(super) fn on_deadlines(&mut self) {
        let now = clock::steady_ms();
        for container in &mut self.containers {
            if container.deadline().is_some_and(|deadline| deadline <= now) {
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
}
