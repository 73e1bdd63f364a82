//! `ferrovirt up`: requirements, directory, network, API, node, components, in that order.
//!
//! Each step continues from the state that an earlier process left. A failure before the API server responds
//! leaves nothing that breaks the next `up`.

mod allocator;
mod certificates;
mod components;
mod console;
mod detach;
mod exports;
mod images;
mod install;
pub(crate) mod network;
mod node;
mod probe;
mod uploads;

use std::{
    io::{IsTerminal as _, Read, Write},
    net::IpAddr,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use embedded_api::{Copies, Database, EmbeddedApi, KubeletClient, ServiceAccounts};
use serde::{Deserialize, Serialize};
use serving::{ClientCertificates, Limits, Server};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::certificates::Certificates;
use crate::{
    cli, history, identities, kubeconfig, metrics,
    printer::Printer,
    requirements,
    service::notify,
    state_dir::{Lock, Locked, StateDir},
};

/// Time limit for a terminating process to release the lock, and for a response of a running one.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(3);

/// Each pod has an address of its own, so that one or two cannot take all connections.
const POD_LIMITS: Limits = Limits {
    per_address: 64,
    ..Limits::STANDARD
};

/// Automatic copies of the database: those of two days.
const KEPT_COPIES: usize = 8;

/// The user of a terminal sees only what needs attention; a log file also has state changes.
const FOREGROUND_FILTER: &str = "warn";
const BACKGROUND_FILTER: &str = "info";

/// Settings of the last `up` that later commands need.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Remembered {
    pub(crate) listen: std::net::SocketAddr,
    pub(crate) pod_cidr: String,
    pub(crate) node_name: String,
    /// Unknown until the host was probed.
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
    requirements::writable(&flags.state.state_dir)?;
    let state = StateDir::create(&flags.state.state_dir)?;
    requirements::free_space(&state)?;
    let Some(lock) = lock(&state)? else {
        let holder = match state.lock()? {
            Locked::Theirs(holder) => holder,
            Locked::Ours(_) => None,
        };
        if notify::is_service() {
            bail!(
                "Ferrovirt already runs in {} without the service: end that process (guests keep running)",
                state.root().display(),
            );
        }
        print_already_up(&state, holder, printer);
        return Ok(());
    };
    if flags.detach {
        // Released for the background process.
        drop(lock);
        return detach::up(&state, printer);
    }
    if flags.detached {
        detach::leave_session()?;
    }
    allocator::configure();
    start_logging(flags)?;
    rank_below_guests();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("start the runtime")?;
    let ended = runtime.block_on(Box::pin(run(flags, &state, printer)));
    drop(lock);
    ended
}

/// When the host runs out of memory, the kernel ends this process last.
fn rank_below_guests() {
    match pod_supervisor::oom::adjust(pod_supervisor::oom::SERVER) {
        Ok(true) => {}
        Ok(false) => tracing::info!("the kernel does not permit a lower OOM score"),
        Err(error) => tracing::warn!(%error, "the OOM score of this process cannot be set"),
    }
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
        colours: std::io::stderr().is_terminal(),
        modules: true,
    };
    logging::start(flags.log.as_deref().unwrap_or(default), style)?;
    Ok(())
}

/// The lock, unless a running process has it. A process that was just killed releases it within moments.
fn lock(state: &StateDir) -> Result<Option<Lock>> {
    match state.lock()? {
        Locked::Ours(lock) => Ok(Some(lock)),
        Locked::Theirs(_) if is_serving(state) => Ok(None),
        Locked::Theirs(_) => Lock::wait(state, RELEASE_TIMEOUT),
    }
}

/// Whether a running process serves the API server's port. The kernel also accepts connections for a terminating
/// process, so a response is required: a TLS server rejects plain text.
fn is_serving(state: &StateDir) -> bool {
    remembered(state)
        .is_some_and(|remembered| rejects_plain_text(remembered.listen).unwrap_or(false))
}

fn remembered(state: &StateDir) -> Option<Remembered> {
    serde_json::from_slice(&std::fs::read(state.settings()).ok()?).ok()
}

fn rejects_plain_text(listen: std::net::SocketAddr) -> std::io::Result<bool> {
    let mut stream = std::net::TcpStream::connect_timeout(&listen, RELEASE_TIMEOUT)?;
    stream.set_read_timeout(Some(RELEASE_TIMEOUT))?;
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
    Ok(stream.read(&mut [0; 16])? > 0)
}

fn print_already_up(state: &StateDir, holder: Option<i32>, printer: Printer) {
    let holder = holder
        .map(|pid| format!(" (process {pid})"))
        .unwrap_or_default();
    printer.line(&format!(
        "Ferrovirt is already up in {}{holder}.",
        state.root().display()
    ));
    let guests = remembered(state).and_then(|remembered| remembered.guests_run_by);
    if let Some(guests) = guests {
        printer.line(&format!("Guests run by {guests}."));
    }
    print_next_steps(state, printer);
}

async fn run(flags: &cli::Up, state: &StateDir, printer: Printer) -> Result<()> {
    let stop = CancellationToken::new();
    let tasks = TaskTracker::new();
    let outcome = start(flags, state, printer, (&tasks, &stop)).await;
    if outcome.is_ok() {
        print_next_steps(state, printer);
        tasks.spawn(allocator::trim_periodically(stop.clone()));
        if flags.detached {
            tasks.spawn(detach::keep_log_small(state.log(), stop.clone()));
            detach::report_ready(printer);
        } else if notify::is_service() {
            notify::ready("up").context("report to systemd that everything is up")?;
        } else {
            printer.line(
                "Ctrl+C ends this process; guests keep running, `ferrovirt down` stops them.",
            );
        }
        wait_for_end(&stop).await?;
        notify::stopping().context("report to systemd that this process ends")?;
    }
    stop.cancel();
    tasks.close();
    tasks.wait().await;
    outcome
}

/// Starts everything; returns when all components respond.
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
    let for_console = console::listen(flags.console).await?;
    let images = images::open(flags, state).await?;
    let pods = network::open(flags, state).await?;
    let node_address = IpAddr::V4(pods.gateway());
    let for_pods = network::listen_for_pods(&pods, listen).await?;
    let services = network::service_settings(&pods, listen, for_pods.as_ref())?;
    let host_addresses = pods
        .host_addresses()
        .await
        .context("list the addresses of this host")?;
    let names = identities::Names {
        listen: listen.ip(),
        host: if listen.ip().is_unspecified() {
            host_addresses
        } else {
            Vec::new()
        },
        further: server_names(&flags.names)?,
        node: flags.node_name.clone(),
        node_address,
        service: IpAddr::V4(services.first()),
    };
    let certificates = Certificates::load_or_create(state.pki(), names)?;
    remember(flags, state, listen, None)?;

    let settings = embedded_api::Settings {
        database: Database::File(state.database()),
        clock: embedded_api::Clock::Wall,
        front_proxy: Some(certificates.first().front_proxy.clone()),
        kubelet: Some(KubeletClient {
            trust: certificates.first().servers.clone(),
            identity: certificates.first().kubelet_client.clone(),
        }),
        services,
    };
    check_database(state)?;
    let accounts = ServiceAccounts {
        key: identities::token_key(&state.pki())?,
        root_ca: certificates.first().users.pem().to_owned(),
    };
    let api = EmbeddedApi::open_with(settings, accounts)
        .await
        .with_context(|| format!("open the database {}", state.database().display()))?;
    api.serve_metrics(metrics::tables());
    api.run(tasks, stop.clone());
    let copies = Copies {
        dir: state.copies(),
        keep: KEPT_COPIES,
    };
    api.keep_copies(copies, tasks, stop.clone());
    let tls = certificates.server(
        |own| &own.api_server,
        |own| ClientCertificates::Optional(own.users.clone()),
    )?;
    certificates.keep_api(api.clone());
    let usual = (listener, Limits::STANDARD);
    let for_pods = for_pods.map(|listener| (listener, POD_LIMITS));
    let proxies = uploads::proxy(&api, &certificates, tasks)?
        .router()
        .merge(exports::proxy(&api, tasks).router());
    for (listener, limits) in std::iter::once(usual).chain(for_pods) {
        let router = proxies.clone().fallback_service(api.router());
        let server = Server::new(listener, tls.clone(), router).with_limits(limits);
        tasks.spawn(server.run(stop.clone()));
    }
    let file = state.kubeconfig();
    kubeconfig::write(&file, listen, certificates.first())?;
    certificates.on_renewal(move |next| kubeconfig::write(&file, listen, next));
    printer.line(&format!("API server: https://{listen}"));
    if let Some(url) = console::serve(for_console, (listen, &certificates), (tasks, stop))? {
        printer.line(&format!("Web console: {url}"));
    }

    let host = components::Host {
        flags,
        state,
        api: &api,
        certificates: &certificates,
        listen,
    };
    install::kinds(&host, printer).await?;
    install::roles(&host).await?;
    uploads::publish(&host).await?;
    let parts = node::Parts {
        images,
        network: pods,
        address: node_address,
    };
    let capabilities = node::start(&host, &parts, printer, (tasks, stop)).await?;
    let guests = Virtualization::of(capabilities.facts());
    printer.line(&format!("Guests run by {guests}."));
    remember(flags, state, listen, Some(guests))?;
    components::start(&host, capabilities, (tasks, stop)).await?;
    tasks.spawn(certificates.keep(parts.network, stop.clone()));
    Ok(())
}

fn server_names(names: &[String]) -> Result<Vec<identities::ServerName>> {
    let parsed = names.iter().map(|name| identities::ServerName::parse(name));
    parsed.collect()
}

/// Stops before the database or a guest is changed if the database is damaged, or not that of this host's guests.
fn check_database(state: &StateDir) -> Result<()> {
    let database = state.database();
    let contents = embedded_api::inspect(&database)
        .with_context(|| format!("check the database {}", database.display()))?;
    history::check_start(contents.as_ref(), &history::on_host(state)?, state)?;
    Ok(())
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
    // Replaced atomically: `status` may read it while this process is killed.
    durable_file::replace(&path, &text, durable_file::PRIVATE)
        .with_context(|| format!("write {}", path.display()))
}

fn print_next_steps(state: &StateDir, printer: Printer) {
    let kubeconfig = state.kubeconfig();
    printer.line(&format!(
        "Ferrovirt is up. Next:\n  export KUBECONFIG={}",
        kubeconfig.display()
    ));
    printer.line("  kubectl apply -f examples/vm-tiny.yaml\n  virtctl console tiny");
}

/// Waits for a signal to terminate, or for the end of a component.
async fn wait_for_end(stop: &CancellationToken) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    tokio::select! {
        _ = terminate.recv() => Ok(()),
        signal = tokio::signal::ctrl_c() => signal.context("listen for Ctrl+C"),
        () = stop.cancelled() => bail!("a component ended by itself; see the log"),
    }
}
