//! Runs real containers as root: a busybox image, real namespaces and cgroups, and supervisors that
//! are killed.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests may panic as tests do"
)]

use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::unix::{fs::PermissionsExt as _, process::ExitStatusExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use pod_supervisor::{
    cgroup,
    client::Client,
    layout,
    model::{
        Access, ContainerSpec, Device, Escalation, Isolation, Mount, NetworkMode, Resources,
        RestartPolicy, Rlimit, Sandbox, Seccomp, Security, User,
    },
    protocol::{Greeting, Reply, Request},
    status::{ContainerStatus, EndReason, PodStatus, Process, State},
};
use rustix::process::{Pid, Signal, kill_process};

const TIMEOUT: Duration = Duration::from_mins(1);

mod devices;
mod executable;
mod joining;
mod system_calls;
mod users;

/// A pod directory with an image, and its supervisor, which is a child of the test.
struct Pod {
    dir: tempfile::TempDir,
    sandbox: Sandbox,
    host: Host,
    program: PathBuf,
    supervisor: Option<Child>,
}

/// The control groups that the supervisor sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Host {
    Real,
    /// Only version 2.
    Unified,
}

impl Pod {
    fn new(name: &str) -> Self {
        Self::on(Host::Real, name)
    }

    fn on(host: Host, name: &str) -> Self {
        Self::build(host, name, program(), None)
    }

    fn build(host: Host, name: &str, program: PathBuf, first_user: Option<u32>) -> Self {
        let dir = tempfile::Builder::new()
            .prefix("pod-supervisor-")
            .tempdir()
            .unwrap();
        let uid = format!("{name}-{}", std::process::id());
        let sandbox = Sandbox {
            hostname: name.to_owned(),
            cgroup: format!("/pod-supervisor-test-{uid}/pod{uid}"),
            uid,
            network: NetworkMode::Pod,
            sysctls: [(
                "net.ipv4.ip_unprivileged_port_start".to_owned(),
                "0".to_owned(),
            )]
            .into(),
            first_user,
            grace_seconds: 1,
        };
        let json = serde_json::to_vec(&sandbox).unwrap();
        fs::write(dir.path().join(layout::SANDBOX_FILE), json).unwrap();
        busybox_root(&dir.path().join("image"));
        let mut pod = Self {
            dir,
            sandbox,
            host,
            program,
            supervisor: None,
        };
        pod.supervise();
        pod
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Starts a supervisor and waits for its greeting.
    fn supervise(&mut self) {
        let mut command = match self.host {
            Host::Real => Command::new(&self.program),
            Host::Unified => devices::with_unified_cgroups(&self.program),
        };
        let mut child = command
            .arg("run")
            .arg(self.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let greeting: Greeting = serde_json::from_str(&line).unwrap();
        assert!(matches!(greeting, Greeting::Ready { .. }), "{greeting:?}");
        self.supervisor = Some(child);
    }

    fn kill_supervisor(&mut self) {
        let mut child = self.supervisor.take().unwrap();
        child.kill().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(9));
    }

    fn client(&self) -> Client {
        Client::connect(self.path()).unwrap()
    }

    fn container(&self, script: &str) -> ContainerSpec {
        ContainerSpec {
            name: "main".into(),
            args: ["/bin/sh", "-c", script].map(str::to_owned).into(),
            env: vec!["PATH=/bin".into(), "HOME=/".into()],
            cwd: "/".into(),
            user: User {
                uid: 107,
                gid: 107,
                groups: vec![4000],
            },
            image_root: self.path().join("image"),
            root_access: Access::ReadWrite,
            mounts: vec![],
            devices: vec![],
            security: Security {
                capabilities: vec![],
                escalation: Escalation::Denied,
                seccomp: Seccomp::RuntimeDefault,
                isolation: Isolation::Confined,
            },
            resources: Resources::default(),
            rlimits: vec![],
            oom_score: 700,
            termination_message: pod_supervisor::model::MessageSource::File,
            stdin: pod_supervisor::model::Stdin::None,
            terminal: pod_supervisor::model::Terminal::None,
            termination_message_path: "/dev/termination-log".into(),
            restart: RestartPolicy::Never,
        }
    }

    fn start(&self, container: ContainerSpec) {
        let request = Request::Start {
            container: Box::new(container),
        };
        assert_eq!(self.client().call(&request).unwrap(), Reply::Done);
    }

    fn wait_for(&self, what: &str, done: impl Fn(&ContainerStatus) -> bool) -> ContainerStatus {
        let mut client = self.client();
        let deadline = Instant::now() + TIMEOUT;
        let mut reply = client.call(&Request::Subscribe).unwrap();
        loop {
            let Reply::Status(status) = reply else {
                panic!("unexpected {reply:?}")
            };
            if let Some(one) = status.containers.first().filter(|one| done(one)) {
                return one.clone();
            }
            assert!(Instant::now() < deadline, "no {what}: {status:?}");
            reply = client.next_reply().unwrap();
        }
    }

    fn wait_for_end(&self) -> ContainerStatus {
        self.wait_for("end", |one| matches!(one.state, State::Ended { .. }))
    }

    fn wait_for_running(&self) -> i32 {
        let one = self.wait_for("start", |one| matches!(one.state, State::Running { .. }));
        let State::Running { process, .. } = one.state else {
            unreachable!()
        };
        process.pid
    }

    /// Waits for `count` log lines and returns the text of all lines.
    fn log(&self, attempt: u32, count: usize) -> Vec<String> {
        let file = self.path().join(layout::log_file("main", attempt));
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let text = fs::read_to_string(&file).unwrap_or_default();
            if text.lines().count() >= count {
                return text.lines().map(|line| line[31..].to_owned()).collect();
            }
            assert!(Instant::now() < deadline, "log has only {text:?}");
            std::thread::yield_now();
        }
    }

    fn run_to_end(&self, container: ContainerSpec) -> (ContainerStatus, Vec<String>) {
        self.start(container);
        let end = self.wait_for_end();
        (end, self.log(0, 0))
    }
}

impl Drop for Pod {
    /// Removes everything, even after a failed test.
    fn drop(&mut self) {
        if let Ok(client) = Client::connect(self.path()) {
            client.shut_down(Duration::ZERO).unwrap();
        }
        if let Some(mut child) = self.supervisor.take() {
            child.wait().unwrap();
        }
        cgroup::kill(&self.sandbox.cgroup).unwrap();
        let deadline = Instant::now() + TIMEOUT;
        while cgroup::remove(&self.sandbox.cgroup).is_err() {
            assert!(Instant::now() < deadline, "cgroup is still in use");
            std::thread::yield_now();
        }
        if self.host == Host::Unified {
            devices::forget_controllers();
        }
        let parent = format!("/pod-supervisor-test-{}", self.sandbox.uid);
        cgroup::remove_empty(&parent).unwrap();
        assert!(!cgroup::exists(&parent).unwrap());
    }
}

/// The last build of the program: run `cargo build --workspace --bins` before the tests. A build from
/// here would replace the program while other tests run it.
fn program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let program = test.ancestors().nth(2).unwrap().join("pod-supervisor");
    assert!(
        program.exists(),
        "run `cargo build --workspace --bins` first"
    );
    program
}

fn busybox_root(root: &Path) {
    for dir in ["bin", "proc", "sys", "dev", "tmp", "etc"] {
        fs::create_dir_all(root.join(dir)).unwrap();
    }
    fs::set_permissions(root.join("tmp"), fs::Permissions::from_mode(0o1777)).unwrap();
    fs::copy("/bin/busybox", root.join("bin/busybox")).unwrap();
    for name in [
        "sh", "cat", "echo", "id", "sleep", "ls", "hostname", "mount", "ip", "touch", "dd",
    ] {
        std::os::unix::fs::symlink("busybox", root.join("bin").join(name)).unwrap();
    }
}

fn termination(status: &ContainerStatus) -> &pod_supervisor::status::Termination {
    status.termination().unwrap()
}

#[test]
fn output_exit_code_and_termination_message_are_kept() {
    let pod = Pod::new("ends");
    let script = "echo out; echo err >&2; echo -n last > /dev/termination-log; exit 3";
    let (status, log) = pod.run_to_end(pod.container(script));
    let end = termination(&status);
    assert_eq!((end.exit_code, end.reason), (3, EndReason::Error));
    assert_eq!(end.message, "last");
    assert!(end.finished_ms >= end.started_ms);
    let mut log = log;
    log.sort();
    assert_eq!(log, ["stderr F err", "stdout F out"]);
    assert!(!pod.path().join(layout::attempt_dir("main", 0)).exists());
}

#[test]
fn container_has_the_oom_score_of_its_pod() {
    let pod = Pod::new("score");
    let (_, log) = pod.run_to_end(pod.container("cat /proc/self/oom_score_adj"));
    assert_eq!(log, ["stdout F 700"]);
}

#[test]
fn termination_message_is_truncated() {
    let pod = Pod::new("talks");
    let script = "dd if=/dev/zero of=/dev/termination-log bs=1000 count=5; exit 1";
    let (status, _) = pod.run_to_end(pod.container(script));
    assert_eq!(termination(&status).message.len(), 4096);
}

#[test]
fn container_is_confined() {
    let pod = Pod::new("confined");
    let mut container = pod.container(
        "id -u; id -G; hostname; ip -o link | cat; cat /proc/self/status; ls -l /dev/null2; \
         mount -t tmpfs none /tmp 2>&1; touch /vol/x 2>&1; cat /vol/there; ls /proc | cat; \
         cat /proc/sys/net/ipv4/ip_unprivileged_port_start; ulimit -n; : < /dev/null2 && : < /dev/net/tun",
    );
    let volume = pod.path().join("volume");
    fs::create_dir(&volume).unwrap();
    fs::write(volume.join("there"), "content\n").unwrap();
    container.mounts = vec![Mount {
        source: volume,
        destination: "/vol".into(),
        access: Access::ReadOnly,
    }];
    let device = |host: &str, path: &str| Device {
        host_path: host.into(),
        path: path.into(),
        mode: 0o666,
        uid: 0,
        gid: 107,
    };
    // /dev/net/tun needs a directory that /dev does not have.
    container.devices = vec![
        device("/dev/null", "/dev/null2"),
        device("/dev/zero", "/dev/net/tun"),
    ];
    container.rlimits = vec![Rlimit {
        kind: "RLIMIT_NOFILE".into(),
        soft: 77,
        hard: 77,
    }];
    container.resources = Resources {
        cpu_shares: Some(100),
        cpu_quota: Some(50_000),
        cpus: Some("0".into()),
        memory_bytes: Some(64 << 20),
        pids: Some(20),
    };
    let (status, log) = pod.run_to_end(container);
    assert_eq!(termination(&status).exit_code, 0, "{log:#?}");
    let log = log.join("\n");
    for expected in [
        "F 107\n",
        "F 107 4000\n",
        "F confined\n",
        "F 1: lo: <LOOPBACK,UP",
        "CapEff:\t0000000000000000",
        "CapBnd:\t0000000000000000",
        "NoNewPrivs:\t1",
        "Seccomp:\t2",
        "Cpus_allowed_list:\t0\n",
        "/dev/null2\n",
        "Read-only file system",
        "F content\n",
        "F 1\n",
        "F 0\n",
        "F 77",
    ] {
        assert!(log.contains(expected), "no {expected:?} in {log}");
    }
}

#[test]
fn oom_kill_is_distinguished_from_a_signal() {
    let pod = Pod::new("killed");
    let mut container = pod.container("dd if=/dev/zero of=/dev/null bs=200M count=1");
    container.resources.memory_bytes = Some(20 << 20);
    container.args = [
        "/bin/dd",
        "if=/dev/zero",
        "of=/dev/null",
        "bs=200M",
        "count=1",
    ]
    .map(str::to_owned)
    .into();
    let (status, _) = pod.run_to_end(container);
    let end = termination(&status);
    assert_eq!((end.exit_code, end.reason), (137, EndReason::OOMKilled));

    let other = Pod::new("signalled");
    other.start(other.container("sleep 1000 & wait"));
    other.wait_for_running();
    let request = Request::Signal {
        container: "main".into(),
        signal: 9,
    };
    assert_eq!(other.client().call(&request).unwrap(), Reply::Done);
    let status = other.wait_for_end();
    let end = termination(&status);
    assert_eq!(
        (end.exit_code, end.signal, end.reason),
        (137, Some(9), EndReason::Error)
    );
}

#[test]
fn failing_container_is_restarted_at_once_and_then_with_a_delay() {
    let pod = Pod::new("restarts");
    let mut container = pod.container("echo again; exit 1");
    container.restart = RestartPolicy::OnFailure;
    pod.start(container);
    let status = pod.wait_for("back-off", |one| {
        one.attempt == 1
            && matches!(
                one.state,
                State::BackOff {
                    delay_ms: 10_000,
                    ..
                }
            )
    });
    assert_eq!(status.last.unwrap().exit_code, 1);
    assert_eq!(pod.log(0, 1), ["stdout F again"]);
    assert_eq!(pod.log(1, 1), ["stdout F again"]);
}

#[test]
fn failed_start_is_explained() {
    let pod = Pod::new("wrong");
    let mut container = pod.container("");
    container.args = vec!["/bin/missing".into()];
    let (status, _) = pod.run_to_end(container);
    let end = termination(&status);
    assert_eq!((end.exit_code, end.reason), (128, EndReason::StartError));
    assert!(end.message.contains("/bin/missing"), "{}", end.message);

    let other = Pod::new("no-image");
    let mut container = other.container("");
    container.image_root = "/nowhere".into();
    let (status, _) = other.run_to_end(container);
    let message = &termination(&status).message;
    assert_eq!(
        message,
        "image directory /nowhere is missing: pull the image again"
    );
}

#[test]
fn container_survives_supervisor_kill_and_is_adopted() {
    let mut pod = Pod::new("adopted");
    pod.start(pod.container(
        "trap 'echo bye; exit 5' TERM; echo one; while ! ls /tmp/go 2> /dev/null; do sleep 0.01; \
         done; echo two; sleep 1000 & wait",
    ));
    let before = pod.wait_for_running();
    pod.log(0, 1);
    let namespace = pod.client().status().unwrap().network_namespace;
    pod.kill_supervisor();
    // The container writes while no supervisor reads.
    let go = PathBuf::from(format!("/proc/{before}/root/tmp/go"));
    fs::write(go, "").unwrap();
    pod.supervise();
    assert_eq!(pod.wait_for_running(), before);
    let status: PodStatus = pod.client().status().unwrap();
    assert_eq!(status.network_namespace, namespace);
    assert_eq!(status.containers[0].attempt, 0);
    assert_eq!(
        pod.log(0, 3),
        ["stdout F one", "stdout F /tmp/go", "stdout F two"]
    );
    let request = Request::Signal {
        container: "main".into(),
        signal: 15,
    };
    assert_eq!(pod.client().call(&request).unwrap(), Reply::Done);
    let status = pod.wait_for_end();
    let end = termination(&status);
    // Only since Linux 6.15 is the exit code available to a process that is not the parent.
    assert!(
        matches!(
            (end.exit_code, end.reason),
            (5, EndReason::Error) | (255, _)
        ),
        "{end:?}"
    );
    assert_eq!(pod.log(0, 4)[3], "stdout F bye");
}

#[test]
fn container_that_ended_without_a_supervisor_is_reported_as_ended() {
    let mut pod = Pod::new("lost");
    pod.start(pod.container("sleep 1000"));
    let pid = pod.wait_for_running();
    pod.kill_supervisor();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    let deadline = Instant::now() + TIMEOUT;
    while Process::of(pid).is_some_and(Process::is_alive) {
        assert!(Instant::now() < deadline);
        std::thread::yield_now();
    }
    pod.supervise();
    let status = pod.wait_for_end();
    assert_eq!(termination(&status).reason, EndReason::Unknown);
}

#[test]
fn second_supervisor_is_refused() {
    let pod = Pod::new("twice");
    let output = Command::new(program())
        .arg("run")
        .arg(pod.path())
        .output()
        .unwrap();
    assert!(!output.status.success());
    let greeting = String::from_utf8(output.stdout).unwrap();
    assert!(
        greeting.contains("another supervisor owns it"),
        "{greeting}"
    );
}

#[test]
fn shutdown_sends_sigterm_and_leaves_no_process() {
    let mut pod = Pod::new("stops");
    pod.start(pod.container("trap 'echo terminated; exit 0' TERM; echo ready; sleep 1000 & wait"));
    pod.log(0, 1);
    pod.client().shut_down(TIMEOUT).unwrap();
    assert!(pod.supervisor.take().unwrap().wait().unwrap().success());
    assert_eq!(pod.log(0, 2), ["stdout F ready", "stdout F terminated"]);
    assert_eq!(
        cgroup::pids(&pod.sandbox.cgroup).unwrap(),
        Vec::<i32>::new()
    );
}

#[test]
fn shutdown_kills_container_that_ignores_sigterm() {
    let pod = Pod::new("stubborn");
    pod.start(pod.container("trap '' TERM; echo ready; while true; do sleep 1000; done"));
    pod.log(0, 1);
    pod.client().shut_down(Duration::from_millis(50)).unwrap();
    let status = pod_supervisor::status::read(pod.path()).unwrap().unwrap();
    assert_eq!(termination(&status.containers[0]).signal, Some(9));
}

/// The state of a process, such as `S` of one that sleeps.
fn process_state(pid: u32) -> char {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, rest) = stat.rsplit_once(") ").unwrap();
    rest.chars().next().unwrap()
}

#[test]
fn supervisor_sleeps_while_a_container_without_standard_streams_runs() {
    let pod = Pod::new("quiet");
    let script = "echo first; exec >/dev/null 2>&1; touch /tmp/quiet; \
                  while ! ls /tmp/go; do sleep 0.01; done; exit 3";
    pod.start(pod.container(script));
    let process = pod.wait_for_running();
    assert_eq!(pod.log(0, 1), ["stdout F first"]);
    let deadline = Instant::now() + TIMEOUT;
    let quiet = PathBuf::from(format!("/proc/{process}/root/tmp/quiet"));
    while !quiet.exists() {
        assert!(Instant::now() < deadline, "the streams are still open");
        std::thread::yield_now();
    }
    let supervisor = pod.supervisor.as_ref().unwrap().id();
    let mut asleep = 0;
    while asleep < 100 {
        assert!(Instant::now() < deadline, "the supervisor is always busy");
        std::thread::yield_now();
        asleep = match process_state(supervisor) {
            'S' => asleep + 1,
            _ => 0,
        };
    }
    fs::write(format!("/proc/{process}/root/tmp/go"), "").unwrap();
    assert_eq!(termination(&pod.wait_for_end()).exit_code, 3);
    assert_eq!(pod.log(0, 0), ["stdout F first"]);
}

/// The process that keeps the terminal of a container with this first process.
fn keeper_of(process: i32) -> PathBuf {
    let wanted = format!("\0terminal\0{process}\0");
    let all = fs::read_dir("/proc").unwrap();
    let mut found = all.map(|entry| entry.unwrap().path()).filter(|path| {
        let command = fs::read_to_string(path.join("cmdline"));
        command.is_ok_and(|command| command.contains(&wanted))
    });
    found.next().unwrap()
}

#[test]
fn terminal_outlives_the_supervisor() {
    let mut pod = Pod::new("terminal");
    let script =
        "echo first; while ! ls /tmp/go 2>/dev/null; do sleep 0.01; done; echo last; exit 4";
    let mut container = pod.container(script);
    container.terminal = pod_supervisor::model::Terminal::Own;
    pod.start(container);
    let process = pod.wait_for_running();
    assert_eq!(pod.log(0, 1), ["stdout F first"]);
    // The mounts of the helper that made the container are gone.
    let mounts = |of: &Path| fs::read_link(of.join("ns/mnt")).unwrap();
    let keeper = keeper_of(process);
    assert_eq!(mounts(&keeper), mounts("/proc/self".as_ref()));
    pod.kill_supervisor();
    pod.supervise();
    assert_eq!(pod.wait_for_running(), process);
    fs::write(format!("/proc/{process}/root/tmp/go"), "").unwrap();
    let status = pod.wait_for_end();
    // Only since Linux 6.15 is the exit code available to a process that is not the parent.
    let code = termination(&status).exit_code;
    assert!(matches!(code, 4 | 255), "{code}");
    let log = pod.log(0, 0);
    assert_eq!(log, ["stdout F first", "stdout F /tmp/go", "stdout F last"]);
}

#[test]
fn program_of_an_ordinary_user_opens_its_terminal_by_name() {
    let pod = Pod::new("by-name");
    let mut container =
        pod.container("echo out > /dev/stdout; echo console > /dev/console; echo tty > /dev/tty");
    container.terminal = pod_supervisor::model::Terminal::Own;
    let (status, log) = pod.run_to_end(container);
    assert_eq!(termination(&status).exit_code, 0);
    assert_eq!(log, ["stdout F out", "stdout F console", "stdout F tty"]);
}

#[test]
fn last_output_of_a_terminal_is_in_the_log() {
    let pod = Pod::new("prints");
    let mut container =
        pod.container("dd if=/dev/zero bs=1000 count=50 2>/dev/null; echo; echo -n end");
    container.terminal = pod_supervisor::model::Terminal::Own;
    let (status, log) = pod.run_to_end(container);
    assert_eq!(termination(&status).exit_code, 0);
    assert_eq!(log.last().map(String::as_str), Some("stdout F end"));
}
