//! Starting an attempt: the helper creates the container and reports its process.

use std::{
    fs,
    io::{self, Read as _},
    os::unix::fs::{PermissionsExt, chown},
    path::Path,
    process::{Command, Stdio},
};

use error_chain::error_chain;
use rustix::{
    fs::{CWD, FileType, Mode, mknodat},
    process::{Pid, PidfdFlags, pidfd_open},
};

use super::{
    Container, Parent, Phase,
    output::{self, Output},
};
use crate::{
    cgroup, clock,
    create::{HelperResult, container_cgroup},
    layout,
    model::{Sandbox, Stdin},
    status::{Process, State},
};

/// A helper that takes longer is killed: it usually takes some 20 ms.
const HELPER_TIMEOUT_MS: i64 = 60_000;

impl Container {
    /// Starts the current attempt from scratch.
    pub(crate) fn begin(&mut self, sandbox: &Sandbox) {
        self.status.state = State::Starting;
        if let Err(error) = self.try_begin(sandbox) {
            self.failed_to_start(
                sandbox,
                &format!("failed to prepare the container: {}", error_chain(&error)),
            );
        }
    }

    fn try_begin(&mut self, sandbox: &Sandbox) -> io::Result<()> {
        let (name, attempt) = (&self.status.name, self.status.attempt);
        let dir = layout::attempt_dir(name, attempt);
        // Remove leftovers of a dead helper of the same attempt.
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
        let first_user = sandbox.first_user.unwrap_or(0);
        let make_pipe = |path: &Path| -> io::Result<()> {
            mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
            // Programs may open /dev/stdout by its name.
            let on_host = |id: u32| first_user.checked_add(id);
            chown(path, on_host(self.user.uid), on_host(self.user.gid))
        };
        make_pipe(&dir.join("stdout"))?;
        make_pipe(&dir.join("stderr"))?;
        if self.stdin != Stdin::None {
            make_pipe(&layout::stdin_pipe(name, attempt))?;
        }
        output::remove_old_logs(name, attempt);
        let output = Output::open(name, attempt)?;
        self.hold_stdin()?;
        let (name, attempt) = (&self.status.name, self.status.attempt);
        failpoints::after("pod-supervisor/create-attempt");
        let mut helper = Command::new("/proc/self/exe")
            .arg("create")
            .arg(name)
            .arg(attempt.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        failpoints::after("pod-supervisor/spawn-helper");
        let helper_output = helper.stdout.take().expect("the pipe was requested");
        self.output = Some(output);
        let deadline = clock::steady_ms() + HELPER_TIMEOUT_MS;
        self.phase = Phase::Starting {
            helper,
            output: helper_output,
            text: Vec::new(),
            deadline,
        };
        Ok(())
    }

    /// Reads the helper's output, and its result once it has ended.
    pub(crate) fn on_helper(&mut self, sandbox: &Sandbox) {
        let Phase::Starting {
            helper,
            output,
            text,
            ..
        } = &mut self.phase
        else {
            return;
        };
        let mut buffer = [0; 4096];
        match output.read(&mut buffer) {
            Ok(0) => {}
            Ok(count) => {
                text.extend_from_slice(buffer.get(..count).unwrap_or_default());
                return;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return,
            Err(_) => {}
        }
        // It closed the pipe, so it is about to exit; then the supervisor inherits its child.
        let exit = helper.wait();
        let result = serde_json::from_slice::<HelperResult>(text);
        match (result, exit) {
            (Ok(HelperResult::Started { process }), _) => self.started(process),
            (Ok(HelperResult::Failed { message }), _) => self.failed_to_start(sandbox, &message),
            (Err(_), Ok(status)) => {
                self.failed_to_start(
                    sandbox,
                    &format!("the helper ended without a result ({status})"),
                );
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
        // The process is a child that may already have ended but was not reaped: the ID is its own.
        match Pid::from_raw(process.pid).map(|pid| pidfd_open(pid, PidfdFlags::empty())) {
            Some(Ok(pidfd)) => {
                self.phase = Phase::Running {
                    pidfd,
                    process,
                    parent: Parent::Supervisor,
                };
            }
            _ => self.phase = Phase::Ended,
        }
    }
}
