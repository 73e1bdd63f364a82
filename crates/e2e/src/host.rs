//! A single host for tests: its own state directory, port, pod network and process.

use std::{
    fs::File,
    path::{Path, PathBuf},
    sync::{
        Arc, Weak,
        atomic::{AtomicU32, Ordering},
    },
};

use tempfile::TempDir;
use tokio::{process::Command, sync::Mutex};

use crate::{
    Environment, Outcome, eventually, images, kill,
    leftovers::{leftovers, suffix},
    processes::{kill_if_alive, processes_below},
    program, run,
};

/// How many pod networks to try when one is in use.
const NETWORKS: u32 = 8;

/// The host shared by the tests of this process.
static SHARED: Mutex<Weak<Host>> = Mutex::const_new(Weak::new());

/// A host that is up, was up, or will be.
#[derive(Debug)]
pub struct Host {
    base: TempDir,
    /// Locked for the life of this process, so that `scripts/sweep.sh` keeps the directory.
    _owner: File,
    port: u16,
    network: u32,
    has_ipv6: bool,
    /// Additional environment variables of the background process.
    environment: Vec<(String, String)>,
}

impl Host {
    /// A host that is not up yet.
    pub fn new() -> Self {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let base = tempfile::Builder::new()
            .prefix("ferrovirt-e2e-")
            .tempdir()
            .expect("make a temporary directory");
        let owner = File::create(base.path().join("owner")).expect("make the owner's file");
        owner.lock().expect("lock the owner's file");
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        Self {
            base,
            _owner: owner,
            port: free_port(),
            network: std::process::id().wrapping_mul(31).wrapping_add(number),
            has_ipv6: false,
            environment: Vec::new(),
        }
    }

    /// Gives pods IPv6 addresses as well; call it before `bring_up`.
    #[must_use]
    pub const fn with_ipv6(mut self) -> Self {
        self.has_ipv6 = true;
        self
    }

    /// A host that is up.
    pub async fn up() -> Self {
        Self::new().bring_up().await
    }

    /// Sets an environment variable; call it before `bring_up`.
    #[must_use]
    pub fn with_environment(mut self, name: &str, value: &Path) -> Self {
        let value = value.to_string_lossy().into_owned();
        self.environment.push((name.to_owned(), value));
        self
    }

    pub async fn bring_up(self) -> Self {
        let mut host = self;
        host.start_on_free_network(&[]).await.success();
        host
    }

    /// Like [`Host::start`], with another pod network if this one is in use.
    pub async fn start_on_free_network(&mut self, flags: &[&str]) -> Outcome {
        for _ in 0..NETWORKS {
            let outcome = self.start(flags).await;
            if outcome.is_success || !outcome.stderr.contains("overlaps") {
                return outcome;
            }
            self.network = self.network.wrapping_add(1);
        }
        panic!("no pod network is free")
    }

    /// `ferrovirt up --detach`.
    pub async fn start(&self, flags: &[&str]) -> Outcome {
        run(
            Command::new(program("ferrovirt"))
                .args(self.up_arguments(flags))
                .envs(self.environment.iter().map(|(name, value)| (name, value))),
            b"",
        )
        .await
    }

    /// The arguments of [`Host::start`].
    pub fn up_arguments(&self, flags: &[&str]) -> Vec<String> {
        let mut all = vec![
            "up".to_owned(),
            "--detach".to_owned(),
            format!("--images={}", images().display()),
            format!("--state-dir={}", self.state_dir().display()),
            format!("--listen=127.0.0.1:{}", self.port),
            format!("--pod-cidr={}", self.pod_cidrs()),
        ];
        all.extend(flags.iter().map(|flag| (*flag).to_owned()));
        all
    }

    /// Any other command of `ferrovirt`.
    pub async fn ferrovirt(&self, command: &str, flags: &[&str], input: &[u8]) -> Outcome {
        let mut program = Command::new(program("ferrovirt"));
        program
            .arg(command)
            .arg("--state-dir")
            .arg(self.state_dir());
        run(program.args(flags), input).await
    }

    /// The PID of the background process.
    pub fn process(&self) -> i32 {
        let lock = std::fs::read_to_string(self.state_dir().join("lock")).expect("read the lock");
        lock.trim().parse().expect("the lock names a process")
    }

    /// Kills the background process with SIGKILL.
    pub fn kill(&self) {
        kill(self.process());
    }

    /// Ends everything as a reboot does: no process, control group or network interface is left, and
    /// the records are those of an earlier boot.
    pub async fn reboot(&self) {
        self.kill();
        let group = format!("/ferrovirt-{}/", suffix(&self.state_dir()));
        eventually("without processes", || {
            let left = processes_below(&group);
            for pid in &left {
                kill_if_alive(*pid);
            }
            if left.is_empty() { Ok(()) } else { Err(left) }
        })
        .await;
        let bridge = format!("fv-{}", suffix(&self.state_dir()));
        let mut ip = Command::new("ip");
        run(ip.args(["link", "delete", &bridge]), b"")
            .await
            .success();
        let boot =
            std::fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("read the boot id");
        for pod in std::fs::read_dir(self.state_dir().join("node/pods")).expect("list pods") {
            let file = pod.expect("list pods").path().join("status.json");
            if let Ok(text) = std::fs::read_to_string(&file) {
                let earlier = text.replace(boot.trim(), "an earlier boot");
                std::fs::write(&file, earlier).expect("write the record of a pod");
            }
        }
    }

    pub fn base(&self) -> &Path {
        self.base.path()
    }

    pub fn state_dir(&self) -> PathBuf {
        self.base.path().join("state")
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    fn pod_cidr(&self) -> String {
        format!("{}.0/24", self.pod_network())
    }

    /// The value of `--pod-cidr`.
    fn pod_cidrs(&self) -> String {
        let ipv4 = self.pod_cidr();
        if self.has_ipv6 {
            // Unique local addresses, with the number of the other network.
            format!("{ipv4},fd00:e2e:{:x}::/64", self.network % 0x1_0000)
        } else {
            ipv4
        }
    }

    fn pod_network(&self) -> String {
        // Hosts of parallel runs should rarely choose the same network.
        let (second, third) = (224 + self.network / 256 % 16, self.network % 256);
        format!("10.{second}.{third}")
    }

    /// The host's address on the pod network.
    pub fn gateway(&self) -> String {
        format!("{}.1", self.pod_network())
    }

    /// The log of the background process.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.state_dir().join("ferrovirt.log")).unwrap_or_default()
    }
}

impl Environment for Host {
    async fn shared() -> Arc<Self> {
        let mut shared = SHARED.lock().await;
        let host = match shared.upgrade() {
            Some(host) => host,
            None => Arc::new(Self::up().await),
        };
        *shared = Arc::downgrade(&host);
        host
    }

    async fn disposable() -> Arc<Self> {
        Arc::new(Self::up().await)
    }

    fn kubeconfig(&self) -> PathBuf {
        self.state_dir().join("kubeconfig")
    }

    fn kubectl_cache(&self) -> PathBuf {
        // Ports are reused, so hosts do not share a cache.
        self.base.path().join("kubectl")
    }

    fn pod_directories(&self) -> Vec<PathBuf> {
        vec![self.state_dir().join("node/pods")]
    }

    async fn kill_components(&self) {
        self.kill();
        self.start(&[]).await.success();
    }
}

impl Default for Host {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let is_failing = std::thread::panicking();
        if is_failing {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            let from = lines.len().saturating_sub(40);
            println!("end of the host's log:\n{}", lines[from..].join("\n"));
        }
        if !self.state_dir().exists() {
            return;
        }
        let ended = std::process::Command::new(program("ferrovirt"))
            .args(["reset", "--yes", "--state-dir"])
            .arg(self.state_dir())
            .output();
        let found = leftovers(&self.state_dir());
        match ended {
            Ok(output) if output.status.success() && found.is_empty() => {}
            ended if is_failing => println!("taking the host down: {ended:?}, left: {found:?}"),
            ended => panic!("taking the host down: {ended:?}, left: {found:?}"),
        }
    }
}

fn free_port() -> u16 {
    std::net::TcpListener::bind(("127.0.0.1", 0))
        .and_then(|listener| listener.local_addr())
        .expect("find a free port")
        .port()
}
