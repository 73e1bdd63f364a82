//! Bringing it all up: requirements, directory, network, API, node, components, in that order.
//!
//! Each step may find what an earlier process left and goes on from there. Whatever fails before
//! the API answers has changed nothing that the next `up` would trip over.

mod allocator;
mod components;
mod detach;
mod images;
mod install;
pub(crate) mod network;
mod node;
mod probe;

use std::{
    io::{Read, Write},
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use embedded_api::{Database, EmbeddedApi, KubeletClient, ServiceAccounts};
use serde::{Deserialize, Serialize};
use serving::{ClientCertificates, Server, TlsSource};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    cli, identities, kubeconfig, metrics,
    printer::Printer,
    requirements,
    state_dir::{Lock, Locked, StateDir},
};

/// For a dying process to give back what it holds.
const PATIENCE: Duration = Duration::from_secs(3);

/// The user of a terminal sees only what needs attention; a log file also has state changes.
const FOREGROUND_FILTER: &str = "warn";
const BACKGROUND_FILTER: &str = "info";

/// What later commands need to know of the last `up`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Remembered {
    pub(crate) listen: std::net::SocketAddr,
    pub(crate) pod_cidr: String,
    pub(crate) node_name: String,
    /// Not known before the host was looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) guests_run_by: Option<Virtualization>,
}

/// How guests run on this host.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "way")]
pub(crate) enum Virtualization {
    Kvm,
    Emulation { reason: String },
}

impl Virtualization {
    fn of(facts: &virt_handler::NodeFacts) -> Self {
        if facts.kvm {
            return Self::Kvm;
        }
        let reason = facts.kvm_reason.clone();
        Self::Emulation { reason }
    }
}

impl std::fmt::Display for Virtualization {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Kvm => f.write_str("KVM"),
            Self::Emulation { reason } => write!(f, "software emulation: {reason}"),
        }
    }
}

pub(crate) fn up(flags: &cli::Up, printer: Printer) -> Result<()> {
    requirements::host()?;
    let state = StateDir::create(&flags.state.state_dir)?;
    requirements::room(state.root())?;
    let Some(lock) = take(&state)? else {
        let holder = match state.lock()? {
            Locked::Theirs(holder) => holder,
            Locked::Ours(_) => None,
        };
        say_up_already(&state, holder, printer);
        return Ok(());
    };
    if flags.detach {
        // Given back for the process that is started now.
        drop(lock);
        return detach::up(&state, printer);
    }
    if flags.detached {
        detach::leave_session()?;
    }
    allocator::keep_small();
    start_logging(flags)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("start the runtime")?;
    let ended = runtime.block_on(Box::pin(run(flags, &state, printer)));
    drop(lock);
    ended
}

/// Logs to standard error, which `--detach` redirects to a file.
fn start_logging(flags: &cli::Up) -> Result<()> {
    let default = if flags.detached {
        BACKGROUND_FILTER
    } else {
        FOREGROUND_FILTER
    };
    let style = logging::Style {
        format: flags.log_format,
        colours: !flags.detached,
        modules: true,
    };
    logging::start(flags.log.as_deref().unwrap_or(default), style)?;
    Ok(())
}

/// The lock, unless a process that answers holds it. One that was just killed gives it back in a
/// moment.
fn take(state: &StateDir) -> Result<Option<Lock>> {
    match state.lock()? {
        Locked::Ours(lock) => Ok(Some(lock)),
        Locked::Theirs(_) if answers(state) => Ok(None),
        Locked::Theirs(_) => Lock::wait(state, PATIENCE),
    }
}

/// Whether a living process is behind the API server's port. The kernel takes connections for a
/// dying one too, so an answer is asked for: TLS refuses what is not TLS.
fn answers(state: &StateDir) -> bool {
    remembered(state).is_some_and(|remembered| is_refused(remembered.listen).unwrap_or(false))
}

fn remembered(state: &StateDir) -> Option<Remembered> {
    serde_json::from_slice(&std::fs::read(state.settings()).ok()?).ok()
}

fn is_refused(listen: std::net::SocketAddr) -> std::io::Result<bool> {
    let mut stream = std::net::TcpStream::connect_timeout(&listen, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
    Ok(stream.read(&mut [0; 16])? > 0)
}

fn say_up_already(state: &StateDir, holder: Option<i32>, printer: Printer) {
    let holder = holder
        .map(|pid| format!(" (process {pid})"))
        .unwrap_or_default();
    printer.line(&format!(
        "Ferrovirt is up already in {}{holder}.",
        state.root().display()
    ));
    let guests = remembered(state).and_then(|remembered| remembered.guests_run_by);
    if let Some(guests) = guests {
        printer.line(&format!("Guests run by {guests}."));
    }
    say_next(state, printer);
}

async fn run(flags: &cli::Up, state: &StateDir, printer: Printer) -> Result<()> {
    let stop = CancellationToken::new();
    let tasks = TaskTracker::new();
    let outcome = start(flags, state, printer, (&tasks, &stop)).await;
    if outcome.is_ok() {
        say_next(state, printer);
        tasks.spawn(allocator::give_back(stop.clone()));
        if flags.detached {
            detach::say_ready(printer);
        } else {
            printer.line("Ctrl+C ends this process; guests go on, `ferrovirt down` stops them.");
        }
        wait_for_end(&stop).await?;
    }
    stop.cancel();
    tasks.close();
    tasks.wait().await;
    outcome
}

/// Starts everything; comes back when it all answers.
async fn start(
    flags: &cli::Up,
    state: &StateDir,
    printer: Printer,
    (tasks, stop): (&TaskTracker, &CancellationToken),
) -> Result<()> {
    let listener = requirements::listen(flags.listen).await?;
    let listen = listener
        .local_addr()
        .context("read the API server's port")?;
    let images = images::open(flags, state).await?;
    let pods = network::open(flags, state).await?;
    let node_address = IpAddr::V4(pods.gateway());
    let names = identities::Names {
        listen: listen.ip(),
        node: &flags.node_name,
        node_address,
    };
    let identities = Arc::new(identities::load_or_make(&state.pki(), names)?);
    remember(flags, state, listen, None)?;

    let settings = embedded_api::Settings {
        database: Database::File(state.database()),
        clock: embedded_api::Clock::Wall,
        front_proxy: Some(identities.front_proxy.clone()),
        kubelet: Some(KubeletClient {
            trust: identities.servers.clone(),
            identity: identities.kubelet_client.clone(),
        }),
    };
    let accounts = ServiceAccounts {
        key: identities::token_key(&state.pki())?,
        root_ca: identities.users.pem().to_owned(),
    };
    let api = EmbeddedApi::open_with(settings, accounts)
        .await
        .with_context(|| format!("open the database {}", state.database().display()))?;
    api.serve_metrics(metrics::tables());
    api.run(tasks, stop.clone());
    let users = ClientCertificates::Optional(identities.users.clone());
    let tls = TlsSource::fixed(&identities.api_server, &users)?;
    tasks.spawn(Server::new(listener, tls, api.router()).run(stop.clone()));
    kubeconfig::write(&state.kubeconfig(), listen, &identities)?;
    printer.line(&format!("API server: https://{listen}"));

    let host = components::Host {
        flags,
        state,
        api: &api,
        identities: &identities,
    };
    install::kinds(&host, printer).await?;
    install::roles(&host).await?;
    let parts = node::Parts {
        images,
        network: pods,
        address: node_address,
    };
    let capabilities = node::bring_up(&host, &parts, printer, (tasks, stop)).await?;
    let guests = Virtualization::of(capabilities.facts());
    printer.line(&format!("Guests run by {guests}."));
    remember(flags, state, listen, Some(guests))?;
    components::start(&host, capabilities, (tasks, stop)).await
}

fn remember(
    flags: &cli::Up,
    state: &StateDir,
    listen: std::net::SocketAddr,
    guests_run_by: Option<Virtualization>,
) -> Result<()> {
    let remembered = Remembered {
        listen,
        pod_cidr: flags.pod_cidr.clone(),
        node_name: flags.node_name.clone(),
        guests_run_by,
    };
    let text = serde_json::to_vec_pretty(&remembered)?;
    let path = state.settings();
    // Whole or not at all: `status` reads it while this process may be killed.
    let part = path.with_extension("part");
    std::fs::write(&part, text)
        .and_then(|()| std::fs::rename(&part, &path))
        .with_context(|| format!("write {}", path.display()))
}

fn say_next(state: &StateDir, printer: Printer) {
    let kubeconfig = state.kubeconfig();
    printer.line(&format!(
        "Ferrovirt is up. Next:\n  export KUBECONFIG={}",
        kubeconfig.display()
    ));
    printer.line("  kubectl apply -f examples/vm-tiny.yaml\n  virtctl console tiny");
}

/// Until a person or the system asks to end, or a part gives up by itself.
async fn wait_for_end(stop: &CancellationToken) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    tokio::select! {
        _ = terminate.recv() => Ok(()),
        asked = tokio::signal::ctrl_c() => asked.context("listen for Ctrl+C"),
        () = stop.cancelled() => bail!("a part ended by itself; the log says which"),
    }
}
