//! `xtask bench api`: our API server beside a kube-apiserver with its etcd.
//!
//! - `ours` builds our server and runs it in a process of its own;
//! - `load` sends requests to either and takes the times;
//! - `overload` is the bench of that name, of our server alone.
//!
//! **Invariants**: both servers run on the same disk, over TLS, and every acknowledged write is on disk;
//! each figure is measured on both directly after each other; clients do the same work for both.

mod load;
mod ours;
mod overload;

use std::{
    fs,
    net::{IpAddr, Ipv4Addr},
};

use anyhow::{Context as _, Result};
use clap::Args;
use kube::{Client, config::Kubeconfig};
use tokio::signal::unix::{SignalKind, signal};

pub(crate) use self::overload::{OverloadOptions, overload};
use self::{load::Counts, ours::Ours};
use super::{
    Output,
    figures::{Figure, as_f64, maximum, median, percentile},
    hold, memory,
    promises::{self, Part},
    report::{self, Report},
    show,
};
use crate::{
    cache,
    kube_apiserver::{Durability, KubeApiServer, client_from},
    kubernetes,
    printer::Printer,
};

#[derive(Debug, Args)]
pub(crate) struct ApiOptions {
    /// Fail when a promise is broken.
    #[arg(long)]
    enforce: bool,
    #[arg(long, short, value_enum)]
    output: Option<Output>,
    /// Few requests to an unoptimised build of our server, to see that the bench works.
    #[arg(long, conflicts_with = "enforce")]
    quick: bool,
}

const FULL: Counts = Counts {
    writes: 500,
    objects: 10_000,
    lists: 5,
    watchers: 1000,
    changes: 10,
};
const QUICK: Counts = Counts {
    writes: 50,
    objects: 320,
    lists: 2,
    watchers: 20,
    changes: 2,
};

/// A server that is measured.
struct Server {
    name: &'static str,
    client: Client,
    /// One of each address of [`WATCHERS_FROM`].
    watchers: Vec<Client>,
    processes: Vec<u32>,
}

/// Our server takes at most 512 connections of one address.
const WATCHERS_FROM: [IpAddr; 3] = [
    IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)),
    IpAddr::V4(Ipv4Addr::new(127, 0, 0, 3)),
    IpAddr::V4(Ipv4Addr::new(127, 0, 0, 4)),
];

/// Measures, shows, and fails if asked to hold the promises.
pub(crate) fn api(printer: &Printer, options: &ApiOptions) -> Result<()> {
    let promises = promises::read(Part::Api)?;
    allow_many_files()?;
    let programs = kubernetes::control_plane(printer)?;
    let program = ours::build(printer, options.quick)?;
    let parent = cache::directory()?.join("bench-api");
    fs::create_dir_all(&parent).with_context(|| format!("make {}", parent.display()))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("start the runtime")?;
    let report = runtime.block_on(Box::pin(async {
        let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
        // Started on this thread, which lives as long as the process: they die with it.
        let mut theirs = KubeApiServer::start(&programs, &parent, Durability::Synced)?;
        let ours = Ours::start(&program, &parent).await?;
        let counts = if options.quick { QUICK } else { FULL };
        let outcome = tokio::select! {
            outcome = Box::pin(measured(printer, &ours, &theirs, &counts)) => outcome,
            _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
            _ = terminate.recv() => Err(anyhow::anyhow!("terminated")),
        };
        let outcome = outcome.with_context(|| theirs.end_of_logs());
        theirs.stop().await?;
        outcome
    }))?;
    show(printer, &report, &promises, options.output)?;
    hold(&report, &promises, options.enforce)
}

/// Each watcher takes a file here and one in the server.
fn allow_many_files() -> Result<()> {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).context("raise the limit of open files")
}

async fn measured(
    printer: &Printer,
    ours: &Ours,
    theirs: &KubeApiServer,
    counts: &Counts,
) -> Result<Report> {
    let servers = [
        Server {
            name: "ours",
            client: ours.client().await?,
            watchers: watchers(ours.kubeconfig()).await?,
            processes: ours.processes(),
        },
        Server {
            name: "theirs",
            client: theirs.client().await?,
            watchers: watchers(theirs.kubeconfig()).await?,
            processes: theirs.processes(),
        },
    ];
    for server in &servers {
        load::prepare(&server.client).await?;
    }
    let mut figures = Vec::new();
    printer.line("memory of idle servers");
    let memory = |server: &Server| memory::resident(&server.processes);
    let idle = [memory(&servers[0])?, memory(&servers[1])?];
    figures.extend(compared("apiserver.memory.idle", idle, "MB"));

    printer.line(format_args!("one writer, {} writes", counts.writes));
    let mut times = Vec::new();
    for server in &servers {
        let taken = load::one_writer(&server.client, counts.writes).await;
        times.push(taken.with_context(|| format!("measure {}", server.name))?);
    }
    for (name, share) in [("p50", 0.5), ("p99", 0.99)] {
        let name = format!("apiserver.one-writer.{name}");
        figures.extend(compared(
            &name,
            both(&times, |of| percentile(of, share))?,
            "ms",
        ));
    }

    printer.line(format_args!("16 writers, {} writes", counts.objects));
    let mut rates = Vec::new();
    for server in &servers {
        rates.push(vec![load::writers(&server.client, counts.objects).await?]);
    }
    figures.extend(compared(
        "apiserver.writers.rate",
        both(&rates, median)?,
        "/s",
    ));

    printer.line(format_args!("list of {} objects", counts.objects));
    let mut times = Vec::new();
    for server in &servers {
        times.push(load::lists(&server.client, counts).await?);
    }
    figures.extend(compared("apiserver.list", both(&times, median)?, "ms"));

    printer.line(format_args!("{} watchers", counts.watchers));
    let mut typical = Vec::new();
    let mut last = Vec::new();
    for server in &servers {
        let seen = load::fan_out(&server.watchers, counts).await?;
        typical.push(
            seen.iter()
                .filter_map(|times| median(times))
                .collect::<Vec<_>>(),
        );
        last.push(
            seen.iter()
                .filter_map(|times| maximum(times))
                .collect::<Vec<_>>(),
        );
    }
    figures.extend(compared(
        "apiserver.watch.typical",
        both(&typical, median)?,
        "ms",
    ));
    figures.extend(compared("apiserver.watch.last", both(&last, median)?, "ms"));
    let loaded = [memory(&servers[0])?, memory(&servers[1])?];
    figures.extend(compared("apiserver.memory.loaded", loaded, "MB"));
    Ok(Report {
        machine: report::machine()?,
        figures,
    })
}

async fn watchers(kubeconfig: &Kubeconfig) -> Result<Vec<Client>> {
    let clients = WATCHERS_FROM.map(|address| client_from(kubeconfig, address));
    futures::future::try_join_all(clients).await
}

/// A statistic of the values of both servers.
fn both(values: &[Vec<f64>], statistic: impl Fn(&[f64]) -> Option<f64>) -> Result<[f64; 2]> {
    let [ours, theirs] = values else {
        anyhow::bail!("{} servers were measured instead of two", values.len());
    };
    let of = |values: &[f64]| statistic(values).context("nothing was measured");
    Ok([of(ours)?, of(theirs)?])
}

/// The figure of our server, that of the other, and ours as a multiple of the other.
fn compared(name: &str, [ours, theirs]: [f64; 2], unit: &'static str) -> [Figure; 3] {
    [
        Figure::new(format!("{name}.ours"), ours, unit),
        Figure::new(format!("{name}.theirs"), theirs, unit),
        Figure::new(format!("{name}.ratio"), ours / theirs, ""),
    ]
}

/// Writes per second.
fn rate(writes: usize, seconds: f64) -> f64 {
    as_f64(u64::try_from(writes).unwrap_or(u64::MAX)) / seconds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratio_is_ours_by_theirs() {
        let figures = compared("list", [3.0, 2.0], "ms");
        let [ours, theirs, ratio] = figures.map(|figure| (figure.name, figure.value));
        assert_eq!(ours, ("list.ours".to_owned(), 3.0));
        assert_eq!(theirs, ("list.theirs".to_owned(), 2.0));
        assert_eq!(ratio, ("list.ratio".to_owned(), 1.5));
    }

    #[test]
    fn every_goal_names_a_measured_ratio() {
        let measured = [
            "memory.idle",
            "one-writer.p50",
            "one-writer.p99",
            "writers.rate",
            "list",
            "watch.typical",
            "watch.last",
        ];
        let promises = promises::read(Part::Api).unwrap();
        let goals: Vec<String> = promises.into_iter().map(|one| one.figure).collect();
        assert_eq!(
            goals,
            measured.map(|name| format!("apiserver.{name}.ratio"))
        );
    }

    #[test]
    fn a_server_without_a_value_is_an_error() {
        assert_eq!(
            format!("{:?}", both(&[vec![1.0], vec![2.0]], median).unwrap()),
            "[1.0, 2.0]"
        );
        both(&[vec![1.0], vec![]], median).unwrap_err();
        both(&[vec![1.0]], median).unwrap_err();
    }
}
