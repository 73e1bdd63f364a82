//! One container through all its attempts: start, run, end, back off, start again.
//!
//! The supervisor's loop calls in here when a descriptor or a deadline is due; nothing here waits.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _},
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::fs::{OpenOptionsExt as _, PermissionsExt, chown},
    },
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
};

use error_chain::error_chain;
use rustix::{
    fs::{CWD, FileType, Mode, mknodat},
    process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal},
};

use crate::{
    cgroup, clock,
    create::{Answer, container_cgroup, find_started},
    exit::{self, Exit},
    layout,
    log::{LogFile, Splitter, Stream},
    model::{ContainerSpec, RestartPolicy, Sandbox, User},
    restart::{Next, after_end},
    status::{ContainerStatus, EndReason, Process, State, Termination},
};

/// A helper that takes longer is killed: making a container takes some 20 ms.
const HELPER_PATIENCE_MS: i64 = 60_000;
const MAX_TERMINATION_MESSAGE: u64 = 4096;
/// What ended a container whose end nobody saw.
const UNKNOWN_EXIT: Exit = Exit {
    code: 255,
    signal: None,
};
/// Exit code of a container that could not be made.
const START_ERROR: i32 = 128;

#[derive(Debug)]
pub(crate) struct Container {
    pub(crate) status: ContainerStatus,
    pub(crate) phase: Phase,
    policy: RestartPolicy,
    user: User,
    output: Option<Output>,
}

#[derive(Debug)]
pub(crate) enum Phase {
    Starting {
        helper: Child,
        answer: ChildStdout,
        text: Vec<u8>,
        deadline: i64,
    },
    Running {
        pidfd: OwnedFd,
        process: Process,
        parent: Parent,
    },
    BackOff {
        due: i64,
    },
    Ended,
}

/// Who gets to know the exit status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Parent {
    Us,
    Somebody,
}

#[derive(Debug)]
struct Output {
    log: LogFile,
    stdout: Pipe,
    stderr: Pipe,
}

#[derive(Debug)]
struct Pipe {
    file: File,
    splitter: Splitter,
}

impl Container {
    pub(crate) fn new(spec: &ContainerSpec) -> Self {
        Self {
            status: ContainerStatus {
                name: spec.name.clone(),
                attempt: 0,
                strikes: 0,
                state: State::Starting,
                last: None,
                log_error: None,
            },
            phase: Phase::Ended,
            policy: spec.restart,
            user: spec.user.clone(),
            output: None,
        }
    }

    /// Takes over what an earlier supervisor left. `None` says that it has to be started.
    pub(crate) fn adopt(&mut self, sandbox: &Sandbox, left: ContainerStatus) {
        self.status = left;
        let dir = layout::attempt_dir(&self.status.name, self.status.attempt);
        match self.status.state.clone() {
            State::Ended { .. } => {}
            State::BackOff { until_ms, .. } => {
                let wait = (until_ms - clock::now_ms()).clamp(0, 300_000);
                self.phase = Phase::BackOff {
                    due: clock::steady_ms() + wait,
                };
            }
            State::Running {
                process,
                started_ms,
            } => {
                self.adopt_process(sandbox, process, started_ms);
            }
            State::Starting => {
                if let Some(process) = find_started(&dir) {
                    self.adopt_process(sandbox, process, clock::now_ms());
                } else {
                    self.begin(sandbox);
                }
            }
        }
    }

    fn adopt_process(&mut self, sandbox: &Sandbox, process: Process, started_ms: i64) {
        let pidfd = Pid::from_raw(process.pid)
            .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok())
            .filter(|_| process.is_alive());
        self.status.state = State::Running {
            process,
            started_ms,
        };
        let Some(pidfd) = pidfd else {
            self.ended(sandbox, UNKNOWN_EXIT, EndReason::Unknown);
            return;
        };
        match open_output(&self.status.name, self.status.attempt) {
            Ok(output) => self.output = Some(output),
            Err(error) => self.note_log_error(&error),
        }
        self.phase = Phase::Running {
            pidfd,
            process,
            parent: Parent::Somebody,
        };
    }

    /// Starts the current attempt, from scratch.
    pub(crate) fn begin(&mut self, sandbox: &Sandbox) {
        self.status.state = State::Starting;
        if let Err(error) = self.try_begin(sandbox) {
            self.failed_to_start(
                sandbox,
                &format!("prepare the container: {}", error_chain(&error)),
            );
        }
    }

    fn try_begin(&mut self, sandbox: &Sandbox) -> io::Result<()> {
        let (name, attempt) = (&self.status.name, self.status.attempt);
        let dir = layout::attempt_dir(name, attempt);
        // What a dead helper of this very attempt left.
        let group = container_cgroup(sandbox, name, attempt);
        if cgroup::exists(&group)? {
            cgroup::kill(&group)?;
        }
        if dir.exists() {
            fs::remove_dir_all(&dir)?;
        }
        fs::create_dir_all(&dir)?;
        let message = layout::termination_file(name);
        fs::write(&message, "")?;
        fs::set_permissions(&message, PermissionsExt::from_mode(0o666))?;
        for pipe in ["stdout", "stderr"] {
            let path = dir.join(pipe);
            mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
            // Programs open /dev/stdout again by name.
            chown(&path, Some(self.user.uid), Some(self.user.gid))?;
        }
        forget_old_logs(name, attempt);
        let output = open_output(name, attempt)?;
        failpoints::after("pod-supervisor/make-attempt");
        let mut helper = Command::new("/proc/self/exe")
            .arg("create")
            .arg(name)
            .arg(attempt.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        failpoints::after("pod-supervisor/spawn-helper");
        let answer = helper.stdout.take().expect("the pipe was asked for");
        self.output = Some(output);
        let deadline = clock::steady_ms() + HELPER_PATIENCE_MS;
        self.phase = Phase::Starting {
            helper,
            answer,
            text: Vec::new(),
            deadline,
        };
        Ok(())
    }

    /// The helper said something, or is done.
    pub(crate) fn on_helper(&mut self, sandbox: &Sandbox) {
        let Phase::Starting {
            helper,
            answer,
            text,
            ..
        } = &mut self.phase
        else {
            return;
        };
        let mut buffer = [0; 4096];
        match answer.read(&mut buffer) {
            Ok(0) => {}
            Ok(count) => {
                text.extend_from_slice(buffer.get(..count).unwrap_or_default());
                return;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return,
            Err(_) => {}
        }
        // It closed its end, so it is about to end; afterwards its child is ours.
        let exit = helper.wait();
        let said = serde_json::from_slice::<Answer>(text);
        match (said, exit) {
            (Ok(Answer::Started { process }), _) => self.started(process),
            (Ok(Answer::Failed { message }), _) => self.failed_to_start(sandbox, &message),
            (Err(_), Ok(status)) => {
                self.failed_to_start(sandbox, &format!("the helper was lost ({status})"));
            }
            (Err(_), Err(error)) => self.failed_to_start(sandbox, &error_chain(&error)),
        }
    }

    fn started(&mut self, process: Process) {
        failpoints::after("pod-supervisor/create-container");
        let started_ms = clock::now_ms();
        self.status.state = State::Running {
            process,
            started_ms,
        };
        // It is our child, or was and waits to be reaped: the number cannot be another's.
        match Pid::from_raw(process.pid).map(|pid| pidfd_open(pid, PidfdFlags::empty())) {
            Some(Ok(pidfd)) => {
                self.phase = Phase::Running {
                    pidfd,
                    process,
                    parent: Parent::Us,
                };
            }
            _ => self.phase = Phase::Ended,
        }
    }

    /// A process that was gone before we could hold it, and that nobody told us the end of.
    pub(crate) fn settle_if_lost(&mut self, sandbox: &Sandbox) {
        let running = matches!(self.status.state, State::Running { .. });
        if running && matches!(self.phase, Phase::Ended) {
            self.ended(sandbox, UNKNOWN_EXIT, EndReason::Unknown);
        }
    }

    /// True when the process of this container has the number `pid` and is our child.
    pub(crate) fn is_parent_of(&self, pid: i32) -> bool {
        matches!(&self.phase, Phase::Running { process, parent: Parent::Us, .. }
            if process.pid == pid)
    }

    /// An adopted process has ended, says its pidfd.
    pub(crate) fn on_stranger_end(&mut self, sandbox: &Sandbox) {
        let Phase::Running {
            pidfd,
            process,
            parent: Parent::Somebody,
        } = &self.phase
        else {
            return;
        };
        match exit::of_stranger(process.pid, pidfd.as_fd()) {
            Some(exit) => self.on_exit(sandbox, exit),
            None => self.ended(sandbox, UNKNOWN_EXIT, EndReason::Unknown),
        }
    }

    pub(crate) fn on_exit(&mut self, sandbox: &Sandbox, exit: Exit) {
        let group = container_cgroup(sandbox, &self.status.name, self.status.attempt);
        let reason = if exit.signal == Some(libc::SIGKILL) && cgroup::oom_kills(&group) > 0 {
            EndReason::OOMKilled
        } else if exit.code == 0 {
            EndReason::Completed
        } else {
            EndReason::Error
        };
        self.ended(sandbox, exit, reason);
    }

    fn ended(&mut self, sandbox: &Sandbox, exit: Exit, reason: EndReason) {
        self.finish_output();
        let started_ms = match &self.status.state {
            State::Running { started_ms, .. } => *started_ms,
            _ => clock::now_ms(),
        };
        let message = match reason {
            EndReason::Unknown => "it ended while its supervisor was dead".to_owned(),
            _ => read_message(&layout::termination_file(&self.status.name)),
        };
        self.settle(
            sandbox,
            Termination {
                exit_code: exit.code,
                signal: exit.signal,
                reason,
                started_ms,
                finished_ms: clock::now_ms(),
                message,
            },
        );
    }

    fn failed_to_start(&mut self, sandbox: &Sandbox, message: &str) {
        self.finish_output();
        let now = clock::now_ms();
        self.settle(
            sandbox,
            Termination {
                exit_code: START_ERROR,
                signal: None,
                reason: EndReason::StartError,
                started_ms: now,
                finished_ms: now,
                message: message.to_owned(),
            },
        );
    }

    /// Cleans up after the attempt and decides what follows.
    fn settle(&mut self, sandbox: &Sandbox, termination: Termination) {
        let (name, attempt) = (&self.status.name, self.status.attempt);
        let group = container_cgroup(sandbox, name, attempt);
        let cleaned = cgroup::kill(&group)
            .and_then(|()| cgroup::remove(&group))
            .and_then(|()| fs::remove_dir_all(layout::attempt_dir(name, attempt)));
        if let Err(error) = cleaned {
            // Not fatal: the node removes the whole tree when the pod goes.
            report(&format!(
                "clean up after {name} attempt {attempt}: {}",
                error_chain(&error)
            ));
        }
        failpoints::after("pod-supervisor/clean-up-container");
        let ran = termination.finished_ms - termination.started_ms;
        match after_end(self.policy, termination.exit_code, ran, self.status.strikes) {
            Next::Stay => {
                self.status.state = State::Ended { termination };
                self.phase = Phase::Ended;
            }
            Next::Restart { delay_ms, strikes } => {
                self.status.strikes = strikes;
                let until_ms = clock::now_ms() + delay_ms;
                self.status.state = State::BackOff {
                    until_ms,
                    delay_ms,
                    termination,
                };
                self.phase = Phase::BackOff {
                    due: clock::steady_ms() + delay_ms,
                };
            }
        }
    }

    /// When something has to happen even if nothing is heard.
    pub(crate) fn deadline(&self) -> Option<i64> {
        match &self.phase {
            Phase::Starting { deadline, .. } => Some(*deadline),
            Phase::BackOff { due } => Some(*due),
            Phase::Running { .. } | Phase::Ended => None,
        }
    }

    pub(crate) fn on_deadline(&mut self, sandbox: &Sandbox) {
        match &mut self.phase {
            Phase::Starting { helper, .. } => {
                if let Err(error) = helper.kill() {
                    report(&format!("kill a stuck helper: {}", error_chain(&error)));
                }
            }
            Phase::BackOff { .. } => {
                let before = self.status.termination().cloned();
                self.status.last = before;
                self.status.attempt += 1;
                self.begin(sandbox);
            }
            Phase::Running { .. } | Phase::Ended => {}
        }
    }

    pub(crate) fn signal(&self, signal: i32) -> io::Result<()> {
        let Phase::Running { pidfd, .. } = &self.phase else {
            return Err(io::Error::other("the container is not running"));
        };
        let signal = Signal::from_named_raw(signal)
            .ok_or_else(|| io::Error::other("there is no such signal"))?;
        Ok(pidfd_send_signal(pidfd, signal)?)
    }

    /// From now on an end is the end.
    pub(crate) fn no_more_restarts(&mut self) {
        self.policy = RestartPolicy::Never;
        if let State::BackOff { termination, .. } = &self.status.state {
            self.status.state = State::Ended {
                termination: termination.clone(),
            };
            self.phase = Phase::Ended;
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.phase, Phase::Ended)
    }

    /// Descriptors of the output that are still open.
    pub(crate) fn outputs(&self) -> impl Iterator<Item = (Stream, &File)> {
        self.output.iter().flat_map(|output| {
            [
                (Stream::Stdout, &output.stdout.file),
                (Stream::Stderr, &output.stderr.file),
            ]
        })
    }

    pub(crate) fn on_output(&mut self, stream: Stream) {
        let Some(output) = &mut self.output else {
            return;
        };
        let pipe = match stream {
            Stream::Stdout => &mut output.stdout,
            Stream::Stderr => &mut output.stderr,
        };
        let mut lines = Vec::new();
        pipe.read_some(&mut lines);
        if let Err(error) = output.log.append(&lines) {
            self.note_log_error(&error);
        }
    }

    /// Reads what is left in the pipes; there is no writer any more.
    fn finish_output(&mut self) {
        let Some(mut output) = self.output.take() else {
            return;
        };
        for pipe in [&mut output.stdout, &mut output.stderr] {
            let mut lines = Vec::new();
            while pipe.read_some(&mut lines) {}
            pipe.splitter.finish(&mut lines);
            if let Err(error) = output.log.append(&lines) {
                self.note_log_error(&error);
            }
        }
    }

    fn note_log_error(&mut self, error: &io::Error) {
        self.status
            .log_error
            .get_or_insert_with(|| error_chain(error));
    }
}

impl Pipe {
    fn open(path: &Path, stream: Stream) -> io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open(path)?;
        Ok(Self {
            file,
            splitter: Splitter::new(stream),
        })
    }

    /// True when there may be more.
    fn read_some(&mut self, lines: &mut Vec<u8>) -> bool {
        let mut buffer = [0; 16 * 1024];
        match self.file.read(&mut buffer) {
            Ok(count) if count > 0 => {
                self.splitter
                    .take(buffer.get(..count).unwrap_or_default(), lines);
                true
            }
            Err(error) => error.kind() == io::ErrorKind::Interrupted,
            Ok(_) => false,
        }
    }
}

fn open_output(name: &str, attempt: u32) -> io::Result<Output> {
    let dir = layout::attempt_dir(name, attempt);
    Ok(Output {
        log: LogFile::open(
            &layout::log_file(name, attempt),
            &layout::rotated_log_file(name, attempt),
        )?,
        stdout: Pipe::open(&dir.join("stdout"), Stream::Stdout)?,
        stderr: Pipe::open(&dir.join("stderr"), Stream::Stderr)?,
    })
}

/// Keeps the logs of this attempt and the one before.
fn forget_old_logs(name: &str, attempt: u32) {
    if let Some(old) = attempt.checked_sub(2) {
        for file in [
            layout::log_file(name, old),
            layout::rotated_log_file(name, old),
        ] {
            match fs::remove_file(file) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    report(&format!("remove an old log: {}", error_chain(&error)));
                }
                _ => {}
            }
        }
    }
}

fn read_message(file: &Path) -> String {
    let mut bytes = Vec::new();
    match File::open(file)
        .and_then(|file| file.take(MAX_TERMINATION_MESSAGE).read_to_end(&mut bytes))
    {
        Ok(_) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) => format!(
            "the termination message cannot be read: {}",
            error_chain(&error)
        ),
    }
}

/// To the supervisor's own log.
#[expect(
    clippy::print_stderr,
    reason = "standard error is the supervisor's log file"
)]
pub(crate) fn report(message: &str) {
    eprintln!("{message}");
}

/// Ends a process for which there is no pidfd.
pub(crate) fn kill_now(pid: i32) {
    if let Some(pid) = Pid::from_raw(pid)
        && let Err(error) = kill_process(pid, Signal::KILL)
    {
        report(&format!(
            "kill {}: {}",
            pid.as_raw_nonzero(),
            error_chain(&error)
        ));
    }
}
