//! Measures the cost of ten thousand VMIs in the controllers.
//!
//! The controllers run in a separate process, so that nothing else is in its memory, and talk HTTP
//! to the simulated API server in this process, where simulated nodes react at once. So the figures
//! are those of the controllers and the transport, not of an API server.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use jiff::SignedDuration;
use launcher_pod::Acceleration;
use reconcile::{Clock, Election, Leadership};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use virt_controller::{AccelerationPolicy, Configuration, CopyRights, Settings, Uploads};

use crate::cluster::{self, Author, Cluster, Connection, Kind, WatchFault};
use crate::connection::Fault;
use crate::control_plane::ControlPlane;
use crate::guests::Guests;
use crate::nodes::{Behaviour, Node, Power};
use crate::processes::NAMESPACE;
use crate::random::Random;
use crate::record::Record;
use crate::user;
use crate::watch::Watch;

const NODES: usize = 4;
/// The longest wait for anything.
const DEADLINE: Duration = Duration::from_mins(20);
/// Ticks of the kernel's clock in a second.
const TICKS: f64 = 100.0;

/// What to measure.
#[derive(Debug, Clone)]
pub struct Bench {
    /// Number of VMIs.
    pub count: usize,
    /// How long to measure while nothing changes.
    pub idle: Duration,
}

/// Name, value and unit of each figure.
pub type Figures = Vec<(&'static str, f64, &'static str)>;

/// A connection without faults.
#[derive(Debug)]
struct Reliable(Record);

impl Connection for Reliable {
    async fn enter(&self) {}

    fn fault(&self, _: &Method, _: &str) -> Fault {
        Fault::default()
    }

    fn watch(&self) -> WatchFault {
        WatchFault {
            lasts: Duration::from_hours(1),
            lag: Duration::ZERO,
        }
    }

    fn note(&self, method: &Method, path: &str, status: StatusCode) {
        self.0.note(method, path, status);
    }
}

/// Measures with the controllers run by `program controllers --server URL`.
pub async fn measure(bench: &Bench, program: &Path) -> Result<Figures> {
    let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
    let guard = stop.clone().drop_guard();
    let cluster = Cluster::new(Clock::system());
    let record = Record::new();
    let server = serve(&cluster, &record, &tasks, &stop).await?;
    let power = Watch::new(Power::On);
    start_nodes(&cluster, &power, &tasks, &stop);

    let mut child = start_controllers(program, &server)?;
    let pid = child.id().context("the controllers have ended")?;
    until("the controllers to lead", &mut child, || {
        !cluster.list(Kind::Lease).is_empty()
    })
    .await?;
    sleep(Duration::from_secs(3)).await;
    let (empty, asked) = (Memory::of(pid)?, record.requests());

    let begin = Instant::now();
    for n in 0..bench.count {
        let vmi = json!({"metadata": {"name": format!("vmi-{n:05}")}, "spec": user::guest()});
        cluster
            .create(Kind::Vmi, NAMESPACE, vmi, Author::main("user"))
            .map_err(|status| anyhow::anyhow!("{}", status.message()))?;
    }
    let count = |kind| move |cluster: &Cluster| cluster.count(kind);
    let pods = count(Kind::Pod);
    until("all pods", &mut child, || pods(&cluster) >= bench.count).await?;
    let with_pods = begin.elapsed();
    until("all VMIs to run", &mut child, || {
        cluster
            .list(Kind::Vmi)
            .iter()
            .all(|vmi| vmi["status"]["phase"] == "Running")
    })
    .await?;
    let running = begin.elapsed();
    let requests = record.requests() - asked;
    sleep(Duration::from_secs(10)).await;
    let full = Memory::of(pid)?;

    let (asked, writes, ticks) = (record.requests(), record.writes(), cpu_seconds(pid)?);
    sleep(bench.idle).await;
    let (idle, idle_writes) = (record.requests() - asked, record.writes() - writes);
    let idle_cpu = cpu_seconds(pid)? - ticks;
    child.kill().await.context("end the controllers")?;
    drop(guard);
    tasks.close();
    tasks.wait().await;

    let vmis = number(bench.count);
    let minutes = bench.idle.as_secs_f64() / 60.0;
    Ok(vec![
        ("controller.vmis", vmis, ""),
        (
            "controller.memory.per-vmi",
            (full.rss - empty.rss) / vmis,
            "KB",
        ),
        ("controller.memory.empty", empty.rss / 1000.0, "MB"),
        ("controller.memory.full", full.rss / 1000.0, "MB"),
        ("controller.time.all-pods", with_pods.as_secs_f64(), "s"),
        ("controller.time.all-running", running.as_secs_f64(), "s"),
        (
            "controller.requests.per-vmi",
            number_of(requests) / vmis,
            "",
        ),
        (
            "controller.idle.requests-per-minute",
            number_of(idle) / minutes,
            "",
        ),
        (
            "controller.idle.writes-per-minute",
            number_of(idle_writes) / minutes,
            "",
        ),
        (
            "controller.idle.cpu-per-minute",
            idle_cpu * 1000.0 / minutes,
            "ms",
        ),
    ])
}

/// Runs the controllers against that server until they are killed.
pub async fn serve_controllers(server: &str) -> Result<()> {
    let config = kube::Config::new(server.parse().context("address of the server")?);
    let settings = Settings {
        client: kube::Client::try_from(config).context("make a client")?,
        launcher: launcher_pod::Settings::defaults("launcher:1", Acceleration::Kvm),
        acceleration: AccelerationPolicy::ByNodes,
        uploads: Uploads::Refused,
        copies: CopyRights::OfNamespace,
        exports: None,
        clock: Clock::system(),
        cluster: Configuration::new(NAMESPACE),
        concurrency: 8,
        leadership: Leadership::Elected(Election {
            namespace: NAMESPACE.to_owned(),
            name: "virt-controller".to_owned(),
            identity: "bench".to_owned(),
        }),
    };
    virt_controller::run(settings, CancellationToken::new()).await;
    Ok(())
}

fn start_controllers(program: &Path, server: &str) -> Result<Child> {
    Command::new(program)
        .args(["controllers", "--server", server])
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("start {}", program.display()))
}

fn start_nodes(
    cluster: &Cluster,
    power: &Watch<Power>,
    tasks: &TaskTracker,
    stop: &CancellationToken,
) {
    let (guests, record, mut random) = (Guests::default(), Record::new(), Random::new(1));
    let mut nodes = std::collections::BTreeMap::new();
    for n in 0..NODES {
        let name = format!("node{n}");
        nodes.insert(name.clone(), power.watcher());
        let node = Node {
            name,
            cluster: cluster.clone(),
            guests: guests.clone(),
            record: record.clone(),
            random: random.fork(),
            behaviour: Behaviour {
                step: Duration::ZERO,
                has_faults: Arc::new(AtomicBool::new(false)),
                is_alone: false,
            },
            power: power.watcher(),
            skew: SignedDuration::ZERO,
        };
        tasks.spawn(node.run(stop.clone()));
    }
    let control_plane = ControlPlane {
        cluster: cluster.clone(),
        random: random.fork(),
        step: Duration::ZERO,
        nodes,
    };
    tasks.spawn(control_plane.run(stop.clone()));
}

/// Serves HTTP; returns the address.
async fn serve(
    cluster: &Cluster,
    record: &Record,
    tasks: &TaskTracker,
    stop: &CancellationToken,
) -> Result<String> {
    let listener = TcpListener::bind(("127.0.0.1", 0))
        .await
        .context("listen")?;
    let address = listener.local_addr()?;
    let (cluster, connection) = (cluster.clone(), Arc::new(Reliable(record.clone())));
    let (inner, stop) = (tasks.clone(), stop.clone());
    tasks.spawn(async move {
        loop {
            let accepted = stop.run_until_cancelled(listener.accept()).await;
            let Some(Ok((stream, _))) = accepted else {
                return;
            };
            let (cluster, connection) = (cluster.clone(), Arc::clone(&connection));
            let service = service_fn(move |request: Request<Incoming>| {
                let (cluster, connection) = (cluster.clone(), Arc::clone(&connection));
                async move { cluster::serve(&cluster, &connection, request).await }
            });
            let serving = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            let stop = stop.clone();
            inner.spawn(async move {
                // A client that disconnects ends its connection only.
                let _served = stop.run_until_cancelled(serving).await;
            });
        }
    });
    Ok(format!("http://{address}"))
}

async fn until(what: &str, child: &mut Child, holds: impl Fn() -> bool) -> Result<()> {
    let begin = Instant::now();
    while !holds() {
        if let Some(status) = child.try_wait()? {
            bail!("the controllers ended with {status}");
        }
        if begin.elapsed() > DEADLINE {
            bail!("waited too long for {what}");
        }
        sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// Memory in KB of 1000 bytes.
struct Memory {
    rss: f64,
}

impl Memory {
    fn of(pid: u32) -> Result<Self> {
        let path = format!("/proc/{pid}/smaps_rollup");
        let text = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
        let line = text.lines().find(|line| line.starts_with("Rss:"));
        let kibibytes = line.and_then(|line| line.split_whitespace().nth(1));
        let kibibytes: f64 = kibibytes.context("no Rss")?.parse()?;
        Ok(Self {
            rss: kibibytes * 1.024,
        })
    }
}

fn cpu_seconds(pid: u32) -> Result<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, after) = text
        .rsplit_once(')')
        .context("read the times of a process")?;
    let ticks = after.split_whitespace().skip(11).take(2);
    let mut sum = 0.0;
    for tick in ticks {
        sum += tick.parse::<f64>()?;
    }
    Ok(sum / TICKS)
}

fn number(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::MAX, f64::from)
}

fn number_of(count: u64) -> f64 {
    u32::try_from(count).map_or(f64::MAX, f64::from)
}
