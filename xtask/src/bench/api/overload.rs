//! `xtask bench overload`: one user asks for far too much while another works.
//!
//! The first user holds 200 watches of large objects without reading them, changes these objects all the time,
//! floods the server with events, and holds 1,000 connections that say nothing, from an address of its own. The
//! second writes and lists small objects, one request after the other. Measured are the times of the second
//! user's requests and the most memory that the server took.
//!
//! **Invariant**: the load does not end before the last measured request.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use http::{Method, Request, header};
use kube::{Client, client::Body};
use serde_json::{Value, json};
use tokio::{
    io::AsyncReadExt as _,
    net::TcpSocket,
    signal::unix::{SignalKind, signal},
    task::JoinSet,
};

use super::{
    super::figures::{Figure, as_f64, maximum, median, milliseconds, percentile},
    Output, allow_many_files,
    ours::{self, Ours},
    report::{self, Report},
    show,
};
use crate::{cache, printer::Printer};

/// Limits that `--enforce` holds: milliseconds, and MB.
const LONGEST_P99: f64 = 1000.0;
const MOST_MEMORY: f64 = 512.0;
/// Of the connections that say nothing.
const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const BLOBS: &str = "/apis/example.com/v1/namespaces/default/blobs";
/// The limit on a request is 3 MiB.
const BLOB_BYTES: usize = 2_900_000;
const WRITERS: usize = 2;
const FLOODS: usize = 4;
/// Before a connection that was closed, or a client that was refused, tries again.
const PAUSE: Duration = Duration::from_millis(50);

#[derive(Debug, Args)]
pub(crate) struct OverloadOptions {
    /// Fail when the other user waits, or the server takes too much memory.
    #[arg(long)]
    enforce: bool,
    #[arg(long, short, value_enum)]
    output: Option<Output>,
    /// A small load on an unoptimised build of our server, to see that the bench works.
    #[arg(long, conflicts_with = "enforce")]
    quick: bool,
}

#[derive(Debug, Clone, Copy)]
struct Counts {
    watches: usize,
    connections: usize,
    /// Requests of the user who works.
    requests: usize,
}

const FULL: Counts = Counts {
    watches: 200,
    connections: 1000,
    requests: 400,
};
const QUICK: Counts = Counts {
    watches: 20,
    connections: 100,
    requests: 40,
};

/// What the load has achieved.
#[derive(Debug, Default)]
struct Done {
    changes: AtomicUsize,
    events: AtomicUsize,
    refused: AtomicUsize,
    closed: AtomicUsize,
}

pub(crate) fn overload(printer: &Printer, options: &OverloadOptions) -> Result<()> {
    allow_many_files()?;
    let program = ours::build(printer, options.quick)?;
    let parent = cache::directory()?.join("bench-api");
    fs::create_dir_all(&parent).with_context(|| format!("make {}", parent.display()))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("start the runtime")?;
    let counts = if options.quick { QUICK } else { FULL };
    let figures = runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
        // Started on this thread, which lives as long as the process.
        let ours = Ours::start(&program, &parent).await?;
        tokio::select! {
            figures = Box::pin(measured(printer, &ours, counts)) => figures,
            _ = tokio::signal::ctrl_c() => bail!("interrupted"),
            _ = terminate.recv() => bail!("terminated"),
        }
    })?;
    let report = Report {
        machine: report::machine()?,
        figures,
    };
    show(printer, &report, &[], options.output)?;
    for (name, limit) in [
        ("overload.p99", LONGEST_P99),
        ("overload.memory", MOST_MEMORY),
    ] {
        let value = report.figures.iter().find(|one| one.name == name);
        let value = value
            .with_context(|| format!("{name} was not measured"))?
            .value;
        ensure!(
            !options.enforce || value < limit,
            "{name} is {value:.0}, not below {limit:.0}"
        );
    }
    Ok(())
}

async fn measured(printer: &Printer, ours: &Ours, counts: Counts) -> Result<Vec<Figure>> {
    let since = prepare(&ours.client().await?).await?;
    let done = Arc::new(Done::default());
    let mut load = JoinSet::new();
    printer.line(format_args!(
        "{} connections that say nothing",
        counts.connections
    ));
    let server = SocketAddr::from((Ipv4Addr::LOCALHOST, ours.port()));
    for _ in 0..counts.connections {
        load.spawn(silent(server, Arc::clone(&done)));
    }
    printer.line(format_args!("{} watches that nobody reads", counts.watches));
    let mut watches = Vec::new();
    for _ in 0..counts.watches {
        // A connection each.
        let client = ours.client_of("flood").await?;
        let uri = format!("{BLOBS}?watch=1&resourceVersion={since}");
        let watch = Request::get(uri).body(Body::empty())?;
        let watch = client.send(watch).await.context("watch")?;
        ensure!(
            watch.status().is_success(),
            "a watch got {}",
            watch.status()
        );
        watches.push((client, watch));
    }
    for number in 0..WRITERS {
        let client = ours.client_of("flood").await?;
        load.spawn(changes(client, number, Arc::clone(&done)));
    }
    for number in 0..FLOODS {
        let client = ours.client_of("flood").await?;
        load.spawn(events(client, number, Arc::clone(&done)));
    }
    printer.line(format_args!("{} requests of another user", counts.requests));
    let calm = ours.client_of("calm").await?;
    let mut times = Vec::new();
    for number in 0..counts.requests {
        times.push(one_request(&calm, number).await?);
        if let Some(ended) = load.try_join_next() {
            ended.context("a part of the load")??;
            bail!("the load has ended");
        }
    }
    drop((load, watches));
    let of = |value: Option<f64>| value.context("nothing was measured");
    let count =
        |of: &AtomicUsize| as_f64(u64::try_from(of.load(Ordering::Relaxed)).unwrap_or_default());
    Ok(vec![
        Figure::new("overload.p50", of(median(&times))?, "ms"),
        Figure::new("overload.p99", of(percentile(&times, 0.99))?, "ms"),
        Figure::new("overload.longest", of(maximum(&times))?, "ms"),
        Figure::new("overload.memory", most_memory(ours)?, "MB"),
        Figure::new("overload.large-writes", count(&done.changes), ""),
        Figure::new("overload.events", count(&done.events), ""),
        Figure::new("overload.refused-requests", count(&done.refused), ""),
        Figure::new("overload.closed-connections", count(&done.closed), ""),
    ])
}

/// The rights of both users, and the kind of the large objects. Returns where watches begin.
async fn prepare(admin: &Client) -> Result<String> {
    let subject =
        |name| json!({"kind": "User", "name": name, "apiGroup": "rbac.authorization.k8s.io"});
    let binding = json!({
        "metadata": {"name": "overload"}, "subjects": [subject("flood"), subject("calm")],
        "roleRef": {"kind": "ClusterRole", "name": "cluster-admin", "apiGroup": "rbac.authorization.k8s.io"},
    });
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    must(admin, Method::POST, bindings, &binding).await?;
    let free = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let kind = json!({
        "metadata": {"name": "blobs.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "blobs", "singular": "blob", "kind": "Blob"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": free}}],
        },
    });
    let kinds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    must(admin, Method::POST, kinds, &kind).await?;
    let served = async {
        for number in 0..WRITERS {
            let blob = json!({"apiVersion": "example.com/v1", "kind": "Blob",
                              "metadata": {"name": format!("large-{number}")}});
            while send(admin, Method::POST, BLOBS, &blob).await?.is_err() {
                tokio::time::sleep(PAUSE).await;
            }
        }
        anyhow::Ok(())
    };
    let served = tokio::time::timeout(Duration::from_secs(30), served).await;
    served.context("the kind of the large objects is not served")??;
    let list = must(admin, Method::GET, BLOBS, &Value::Null).await?;
    let since = list["metadata"]["resourceVersion"].as_str();
    Ok(since.context("a list has a version")?.to_owned())
}

/// A connection that is opened again when the server closes it.
async fn silent(server: SocketAddr, done: Arc<Done>) -> Result<()> {
    loop {
        let socket = TcpSocket::new_v4()?;
        socket.bind((ELSEWHERE, 0).into())?;
        if let Ok(mut stream) = socket.connect(server).await {
            let _ended = stream.read(&mut [0]).await;
        }
        done.closed.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(PAUSE).await;
    }
}

/// Changes a large object all the time.
async fn changes(client: Client, number: usize, done: Arc<Done>) -> Result<()> {
    let uri = format!("{BLOBS}/large-{number}");
    for round in 0_u64.. {
        let change =
            json!({"data": round.to_string().repeat(BLOB_BYTES / round.to_string().len())});
        match send(&client, Method::PATCH, &uri, &change).await? {
            Ok(_) => done.changes.fetch_add(1, Ordering::Relaxed),
            Err(429) => pause(&done).await,
            Err(code) => bail!("a large change got {code}"),
        };
    }
    Ok(())
}

async fn events(client: Client, number: usize, done: Arc<Done>) -> Result<()> {
    for round in 0_u64.. {
        let event = json!({
            "metadata": {"name": format!("e{number}-{round}"), "namespace": "default"},
            "involvedObject": {"namespace": "default"}, "reason": "Flood", "message": "x".repeat(500),
        });
        match send(
            &client,
            Method::POST,
            "/api/v1/namespaces/default/events",
            &event,
        )
        .await?
        {
            Ok(_) => done.events.fetch_add(1, Ordering::Relaxed),
            // It does not wait as it is told.
            Err(429) => done.refused.fetch_add(1, Ordering::Relaxed),
            Err(code) => bail!("an event got {code}"),
        };
    }
    Ok(())
}

async fn pause(done: &Done) -> usize {
    tokio::time::sleep(PAUSE).await;
    done.refused.fetch_add(1, Ordering::Relaxed)
}

/// The time of a small write or list, in milliseconds.
async fn one_request(client: &Client, number: usize) -> Result<f64> {
    let maps = "/api/v1/namespaces/default/configmaps";
    let map = json!({"metadata": {"name": format!("calm-{number}")}, "data": {"key": "value"}});
    let (method, body) = match number % 2 {
        0 => (Method::POST, map),
        _ => (Method::GET, Value::Null),
    };
    let sent = Instant::now();
    must(client, method, maps, &body).await?;
    Ok(milliseconds(sent.elapsed()))
}

async fn must(client: &Client, method: Method, uri: &str, body: &Value) -> Result<Value> {
    let shown = format!("{method} {uri}");
    match send(client, method, uri, body).await? {
        Ok(text) => {
            serde_json::from_str(&text).with_context(|| format!("read the answer to {shown}"))
        }
        Err(code) => bail!("{shown} got {code}"),
    }
}

/// The body of the response, or its code if the server refuses.
async fn send(
    client: &Client,
    method: Method,
    uri: &str,
    body: &Value,
) -> Result<Result<String, u16>> {
    let language = match method {
        Method::PATCH => "application/merge-patch+json",
        _ => "application/json",
    };
    let body = match body {
        Value::Null => Vec::new(),
        body => body.to_string().into_bytes(),
    };
    let request = Request::builder()
        .method(method)
        .uri(uri)
        .header(header::CONTENT_TYPE, language)
        .body(body)?;
    match client.request_text(request).await {
        Ok(text) => Ok(Ok(text)),
        Err(kube::Error::Api(status)) => Ok(Err(status.code)),
        Err(error) => Err(error).with_context(|| format!("send a request to {uri}")),
    }
}

/// The largest resident set of the server so far, in MB.
fn most_memory(ours: &Ours) -> Result<f64> {
    let process = ours
        .processes()
        .first()
        .copied()
        .context("the server has ended")?;
    let path = format!("/proc/{process}/status");
    let text = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    let kib: u64 = kib.with_context(|| format!("find VmHWM in {path}"))?;
    Ok(as_f64(kib) * 1024.0 / 1e6)
}
