//! Benchmarks: streams of guests through virt-api, beside plain TCP on the same loopback in the same run.
//!
//! The reference is a copy: a task that copies bytes between two TCP connections, which is what virt-api does without
//! TLS, websockets and rights. A direct connection is measured as well.
//!
//! Run by `cargo xtask bench streams`. A result is a line: name, tab, value, tab, unit. The user's end takes the place of
//! the API server, and the node's end that of virt-handler: both speak TLS and websockets, as those do. The node
//! echoes what comes on the console, and sends [`AMOUNT`] bytes on the other streams.

#![expect(clippy::unwrap_used, reason = "a bench fails so")]

#[expect(dead_code, reason = "the tests use the rest")]
#[path = "../tests/integration/server.rs"]
mod server;

use std::{
    error::Error,
    fs,
    io::Write as _,
    net::SocketAddr,
    time::{Duration, Instant},
};

use axum::{
    Router,
    extract::ws::{Message as Frame, WebSocket, WebSocketUpgrade},
    routing::get,
};
use futures::{SinkExt as _, StreamExt as _};
use kubevirt_api::VirtualMachineInstance;
use serde_json::json;
use server::{Running, Stream};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};
use tokio_tungstenite::tungstenite::Message;

const VMI: &str = "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachineinstances/a";
const NODE: &str = "n1";
const ROUNDS: usize = 2000;
/// What virt-handler sends at once.
const CHUNK: usize = 10 * 1024;
/// Bytes of a transfer.
const AMOUNT: usize = 64 << 20;
const TRANSFERS: usize = 3;
const CONSOLES: usize = 500;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let running = Running::start().await;
    let address = running.serve(&format!("virt-handler.{NODE}"), node()).await;
    running.add_node(NODE, address).await;
    let vmi = json!({
        "metadata": {"name": "a"}, "spec": {"domain": {"devices": {}}},
        "status": {"phase": "Running", "nodeName": NODE},
    });
    running.create::<VirtualMachineInstance>(vmi).await;
    let mut out = std::io::stdout().lock();

    let echo = tcp_echo(&running).await?;
    let copied = tcp_copy(&running, echo).await?;
    let direct = tcp_round_trip(echo).await?;
    let copied = tcp_round_trip(copied).await?;
    let console = console_round_trip(&running).await?;
    let name = "streams.console.round-trip";
    writeln!(out, "{name}\t{console:.1}\tµs")?;
    writeln!(out, "{name}.tcp.direct\t{direct:.1}\tµs")?;
    writeln!(out, "{name}.tcp.copied\t{copied:.1}\tµs")?;
    writeln!(out, "{name}.ratio\t{:.3}\t", console / copied)?;

    let source = tcp_source(&running).await?;
    let copy = tcp_copy(&running, source).await?;
    let direct = median(repeated(async || tcp_transfer(source).await).await?);
    let copied = median(repeated(async || tcp_transfer(copy).await).await?);
    writeln!(out, "streams.tcp.direct.rate\t{direct:.1}\tMB/s")?;
    writeln!(out, "streams.tcp.copied.rate\t{copied:.1}\tMB/s")?;
    for (name, path) in [("port-forward", "portforward/80/tcp"), ("vnc", "vnc")] {
        let rate = median(repeated(async || transfer(&running, path).await).await?);
        writeln!(out, "streams.{name}.rate\t{rate:.1}\tMB/s")?;
        writeln!(out, "streams.{name}.rate.ratio\t{:.3}\t", rate / copied)?;
    }
    let memory = idle_consoles(&running).await?;
    writeln!(out, "streams.console.idle.memory\t{memory:.1}\tKB")?;
    running.api.end().await;
    Ok(())
}

/// The stand-in for virt-handler.
fn node() -> Router {
    let guest = "/v1/namespaces/default/virtualmachineinstances/a";
    let upgraded = |upgrade: WebSocketUpgrade| upgrade.protocols(["plain.kubevirt.io"]);
    let sends = move |upgrade: WebSocketUpgrade| async move { upgraded(upgrade).on_upgrade(send) };
    Router::new()
        .route(
            &format!("{guest}/console"),
            get(move |upgrade| async move { upgraded(upgrade).on_upgrade(echo) }),
        )
        .route(&format!("{guest}/vnc"), get(sends))
        .route(&format!("{guest}/portforward/80/tcp"), get(sends))
}

async fn echo(mut socket: WebSocket) {
    while let Some(Ok(message)) = socket.recv().await {
        if matches!(message, Frame::Binary(_)) && socket.send(message).await.is_err() {
            return;
        }
    }
}

async fn send(mut socket: WebSocket) {
    let chunk = axum::body::Bytes::from(vec![1; CHUNK]);
    for _ in 0..AMOUNT.div_ceil(CHUNK) {
        if socket.send(Frame::Binary(chunk.clone())).await.is_err() {
            return;
        }
    }
}

/// Microseconds until a typed byte is back; the median.
async fn console_round_trip(running: &Running) -> Result<f64, Box<dyn Error>> {
    let mut stream = running.open(&format!("{VMI}/console")).await;
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let sent = Instant::now();
        stream.send(Message::binary(vec![b'x'])).await?;
        while !matches!(
            stream.next().await.ok_or("the console ended")??,
            Message::Binary(_)
        ) {}
        times.push(microseconds(sent.elapsed()));
    }
    Ok(median(times))
}

/// A server that sends each byte back.
async fn tcp_echo(running: &Running) -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let (tasks, stop) = (running.api.tasks.clone(), running.api.stop.clone());
    running.api.tasks.spawn(async move {
        while let Some(Ok((mut stream, _))) = stop.run_until_cancelled(listener.accept()).await {
            tasks.spawn(async move {
                stream.set_nodelay(true).unwrap();
                let mut byte = [0];
                while stream.read_exact(&mut byte).await.is_ok() {
                    stream.write_all(&byte).await.unwrap();
                }
            });
        }
    });
    Ok(address)
}

/// A server that copies between its clients and another server.
async fn tcp_copy(running: &Running, to: SocketAddr) -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let (tasks, stop) = (running.api.tasks.clone(), running.api.stop.clone());
    running.api.tasks.spawn(async move {
        while let Some(Ok((mut client, _))) = stop.run_until_cancelled(listener.accept()).await {
            tasks.spawn(async move {
                let mut server = TcpStream::connect(to).await.unwrap();
                client.set_nodelay(true).unwrap();
                server.set_nodelay(true).unwrap();
                // The end of a client is the end of its copy.
                drop(tokio::io::copy_bidirectional(&mut client, &mut server).await);
            });
        }
    });
    Ok(address)
}

async fn tcp_round_trip(to: SocketAddr) -> Result<f64, Box<dyn Error>> {
    let mut stream = TcpStream::connect(to).await?;
    stream.set_nodelay(true)?;
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let sent = Instant::now();
        stream.write_all(b"x").await?;
        stream.read_exact(&mut [0]).await?;
        times.push(microseconds(sent.elapsed()));
    }
    Ok(median(times))
}

/// Megabytes a second from the node.
async fn transfer(running: &Running, path: &str) -> Result<f64, Box<dyn Error>> {
    let mut stream = running.open(&format!("{VMI}/{path}")).await;
    let began = Instant::now();
    let mut received = 0;
    while received < AMOUNT {
        if let Message::Binary(bytes) = stream.next().await.ok_or("the stream ended")?? {
            received += bytes.len();
        }
    }
    Ok(rate(received, began.elapsed()))
}

/// A server that sends all bytes of a transfer to each client.
async fn tcp_source(running: &Running) -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let (tasks, stop) = (running.api.tasks.clone(), running.api.stop.clone());
    running.api.tasks.spawn(async move {
        while let Some(Ok((mut stream, _))) = stop.run_until_cancelled(listener.accept()).await {
            tasks.spawn(async move {
                let chunk = vec![1; CHUNK];
                for _ in 0..AMOUNT.div_ceil(CHUNK) {
                    stream.write_all(&chunk).await.unwrap();
                }
            });
        }
    });
    Ok(address)
}

async fn tcp_transfer(from: SocketAddr) -> Result<f64, Box<dyn Error>> {
    let mut stream = TcpStream::connect(from).await?;
    let began = Instant::now();
    let (mut received, mut chunk) = (0, vec![0; CHUNK]);
    loop {
        match stream.read(&mut chunk).await? {
            0 => return Ok(rate(received, began.elapsed())),
            count => received += count,
        }
    }
}

async fn repeated(
    once: impl AsyncFn() -> Result<f64, Box<dyn Error>>,
) -> Result<Vec<f64>, Box<dyn Error>> {
    let mut values = Vec::new();
    for _ in 0..TRANSFERS {
        values.push(once().await?);
    }
    Ok(values)
}

/// Kilobytes of this process for each console that is open and silent: both ends of the user's connection, and both of
/// the node's.
async fn idle_consoles(running: &Running) -> Result<f64, Box<dyn Error>> {
    let path = format!("{VMI}/console");
    let before = resident()?;
    let mut open: Vec<Stream> = Vec::with_capacity(CONSOLES);
    for _ in 0..CONSOLES {
        open.push(running.open(&path).await);
    }
    let after = resident()?;
    // Each is a console that works.
    for stream in &mut open {
        stream.send(Message::binary(vec![b'x'])).await?;
        stream.next().await.ok_or("a console ended")??;
    }
    let all = after.saturating_sub(before);
    Ok(f64::from(u32::try_from(all)?) / f64::from(u32::try_from(CONSOLES)?) / 1000.0)
}

/// Bytes that this process has in memory.
fn resident() -> Result<u64, Box<dyn Error>> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let text = line.ok_or("the kernel does not say")?.trim();
    let kibibytes: u64 = text.trim_end_matches(" kB").parse()?;
    Ok(kibibytes * 1024)
}

fn rate(bytes: usize, time: Duration) -> f64 {
    f64::from(u32::try_from(bytes).unwrap_or(u32::MAX)) / time.as_secs_f64() / 1e6
}

fn microseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
