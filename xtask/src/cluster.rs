//! `xtask cluster`: an unmodified Kubernetes of several nodes on this machine.
//!
//! Every program is the real one, built from pinned sources (`kubernetes`). The control plane and
//! each node have a network namespace of their own, joined by a bridge; a node has its own mounts and
//! processes as well (`xtask/cluster/node-init.sh`). Everything lives in one directory of the cache.
//!
//! **Invariants**: `up` starts what is missing and leaves running parts alone, so it may be killed
//! anywhere and called again; `down` removes everything `up` may have made, finished or not.

mod certificates;
mod control_plane;
mod daemon;
mod deadline;
mod images;
mod network;
mod node;
mod objects;
mod place;
mod storage;

use std::{fs, path::PathBuf, process::ExitCode, thread, time::Instant};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Subcommand;

use self::place::{MOST_NODES, NodeNumber, Place};
use crate::{kubernetes::Program, printer::Printer};

/// What runs in a cluster, beside Multus.
const PROGRAMS: [Program; 15] = [
    Program::Etcd,
    Program::ApiServer,
    Program::ControllerManager,
    Program::Scheduler,
    Program::Kubelet,
    Program::Proxy,
    Program::Containerd,
    Program::ContainerdShim,
    Program::ContainerdClient,
    Program::Runc,
    Program::CniBridge,
    Program::CniLoopback,
    Program::CniHostLocal,
    Program::CniPortmap,
    Program::CoreDns,
];

#[derive(Debug, Subcommand)]
pub(crate) enum Task {
    /// Bring the cluster up, or start its missing parts.
    Up {
        /// How many nodes; more can be added later, none taken away.
        #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=i64::from(MOST_NODES)))]
        nodes: u8,
        /// Leave out Multus, so that pods have the pod network alone.
        #[arg(long)]
        without_multus: bool,
    },
    /// End everything and forget it.
    Down,
    /// Which parts run, and how large they are.
    Status,
    /// Print the path of the administrator's kubeconfig.
    Kubeconfig,
    /// Run a command on a node (`n1`, `n2`, …), or beside the control plane (`control`).
    Exec {
        node: String,
        #[arg(trailing_var_arg = true, required = true)]
        command: Vec<String>,
    },
    /// Serve claims for volumes; `up` starts it.
    #[command(hide = true)]
    Provision,
    /// Put an image into every node's store: `virt-launcher`, `guest-tiny`, or a layout's path.
    Load { image: String },
}

pub(crate) fn run(printer: &Printer, task: &Task) -> Result<ExitCode> {
    match task {
        Task::Up {
            nodes,
            without_multus: false,
        } => up(printer, *nodes, &[Program::Multus])?,
        Task::Up { nodes, .. } => up(printer, *nodes, &[])?,
        Task::Down => down(printer)?,
        Task::Status => return status(printer),
        Task::Kubeconfig => {
            let place = Place::existing()?;
            printer.result(place.kubeconfig("admin").display())?;
        }
        Task::Exec { node, command } => return exec(node, command),
        Task::Provision => {
            let place = Place::existing()?;
            runtime()?.block_on(storage::run(&place))?;
        }
        Task::Load { image } => load(printer, image)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// A client of the administrator of the cluster that is up.
pub(crate) async fn client() -> Result<kube::Client> {
    objects::client(&Place::existing()?).await
}

/// Of the administrator.
pub(crate) fn kubeconfig() -> Result<PathBuf> {
    Ok(Place::existing()?.kubeconfig("admin"))
}

fn up(printer: &Printer, count: u8, optional: &[Program]) -> Result<()> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "namespaces and mounts take root: run this as root"
    );
    let programs = PROGRAMS
        .iter()
        .chain(optional)
        .map(|program| Ok((*program, program.ready(printer)?)))
        .collect::<Result<Vec<_>>>()?;
    let place = Place::lock()?;
    let begin = Instant::now();
    let step = |text: &str| {
        printer.line(format_args!(
            "{:5.1} s  {text}",
            begin.elapsed().as_secs_f64()
        ));
    };
    control_plane::link_programs(&place, &programs)?;
    certificates::make(&place)?;
    let own = images::own(&place)?;
    network::control_plane(&place)?;
    let mut nodes = place.nodes();
    for node in NodeNumber::first(count) {
        if !nodes.contains(&node) {
            nodes.push(node);
        }
    }
    for node in &nodes {
        network::node(&place, *node, &nodes)?;
    }
    let start = |parts: &[&'static str]| -> Result<()> {
        let started = control_plane::start(&place, parts)?;
        if !started.is_empty() {
            step(&format!("started {}", started.join(", ")));
        }
        Ok(())
    };
    start(&control_plane::SERVERS)?;
    for node in &nodes {
        if node::start(&place, *node)? {
            step(&format!("started node {}", node.name()));
        }
    }
    let runtime = runtime()?;
    let client = runtime.block_on(async {
        let client = objects::client(&place).await?;
        objects::wait_for_api(&client).await?;
        step("the API server answers");
        start(&control_plane::CONTROLLERS)?;
        objects::install(&client).await?;
        anyhow::Ok(client)
    })?;
    each(&nodes, |node| {
        own.iter()
            .try_for_each(|image| images::load(&place, node, image))
    })?;
    step("the nodes have the cluster's own images");
    runtime.block_on(objects::wait_for_nodes(&client, &nodes))?;
    step("the nodes are ready");
    runtime.block_on(objects::wait_for_dns(&client))?;
    step("names are answered");
    printer.line(format_args!(
        "export KUBECONFIG={}",
        place.kubeconfig("admin").display()
    ));
    Ok(())
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("start the runtime")
}

fn down(printer: &Printer) -> Result<()> {
    let place = Place::lock()?;
    let all: Vec<NodeNumber> = NodeNumber::first(MOST_NODES).collect();
    each(&all, |node| node::stop(&place, node))?;
    for part in control_plane::all().rev() {
        daemon::stop(&place, part)?;
    }
    daemon::sweep(&place.network("control"))?;
    for node in &all {
        network::remove(&place.network(&node.name()))?;
    }
    network::remove(&place.network("control"))?;
    storage::detach(place.root())?;
    fs::remove_dir_all(place.root())
        .with_context(|| format!("remove {}", place.root().display()))?;
    printer.line("The cluster is gone.");
    Ok(())
}

fn status(printer: &Printer) -> Result<ExitCode> {
    let place = Place::existing()?;
    let mut all_run = true;
    let mut print = |name: &str| -> Result<()> {
        let found = daemon::find(&place, name);
        all_run &= found.is_some();
        let text = found.map_or("does not run".to_owned(), |daemon| {
            format!("runs (process {})", daemon.pid())
        });
        printer.result(format_args!("{name:<24} {text}"))?;
        Ok(())
    };
    for part in control_plane::all() {
        print(part)?;
    }
    for node in place.nodes() {
        print(&node.name())?;
    }
    Ok(if all_run {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn exec(node: &str, command: &[String]) -> Result<ExitCode> {
    let place = Place::existing()?;
    let mut run = match (node, NodeNumber::parse(node)) {
        (_, Some(number)) => node::inside(&place, number)?,
        ("control", None) => control_plane::beside(&place),
        _ => bail!("there is no {node}; use control, or one of n1, n2, …"),
    };
    let status = run
        .args(command)
        .status()
        .with_context(|| format!("run a command on {node}"))?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}

/// Puts an image into the store of every node.
pub(crate) fn load(printer: &Printer, image: &str) -> Result<()> {
    let place = Place::existing()?;
    let image = images::find(image)?;
    let nodes = place.nodes();
    each(&nodes, |node| images::load(&place, node, &image))?;
    printer.line(format_args!("{} is on every node", image.name));
    Ok(())
}

/// Does the same for all nodes at once.
fn each(nodes: &[NodeNumber], work: impl Fn(NodeNumber) -> Result<()> + Sync) -> Result<()> {
    thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = nodes
            .iter()
            .map(|node| scope.spawn(move || work(*node)))
            .collect();
        for thread in threads {
            match thread.join() {
                Ok(outcome) => outcome?,
                Err(_) => bail!("a thread of ours panicked"),
            }
        }
        Ok(())
    })
}
