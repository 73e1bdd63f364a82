//! A local UDP port: one stream for each sender, until it is silent for a while.

use std::{collections::HashMap, net::SocketAddr, time::Duration};

use anyhow::{Context, Result};
use futures::{SinkExt, StreamExt, stream::FuturesUnordered};
use tokio::{net::UdpSocket, sync::mpsc};
use tokio_tungstenite::tungstenite::Message;

use super::{copy, run::Guest};
use crate::{ports::ForwardedPort, printer::Printer};

/// The largest datagram.
const DATAGRAM: usize = 64 << 10;
/// Datagrams that wait for a stream; more are dropped, as a network does.
const WAITING: usize = 64;
/// Streams at a time; datagrams of further senders are dropped.
const SENDERS: usize = 128;
/// A stream without datagrams in either direction ends.
const IDLE: Duration = Duration::from_mins(1);

/// Serves datagrams until the socket fails.
pub(super) async fn serve(
    guest: Guest<'_>,
    printer: Printer,
    port: ForwardedPort,
    socket: UdpSocket,
) -> Result<()> {
    let mut senders: HashMap<SocketAddr, mpsc::Sender<Vec<u8>>> = HashMap::new();
    let mut streams = FuturesUnordered::new();
    let mut chunk = vec![0; DATAGRAM];
    loop {
        tokio::select! {
            received = socket.recv_from(&mut chunk) => {
                let (count, from) = received.context("receive a datagram")?;
                let datagram = chunk.get(..count).unwrap_or_default().to_vec();
                if !senders.contains_key(&from) {
                    if senders.len() >= SENDERS {
                        continue;
                    }
                    let (sender, datagrams) = mpsc::channel(WAITING);
                    senders.insert(from, sender);
                    streams.push(stream(guest, port, Local { socket: &socket, from, datagrams }));
                }
                if let Some(sender) = senders.get(&from) {
                    // A full queue drops the datagram.
                    drop(sender.try_send(datagram));
                }
            }
            Some((from, ended)) = streams.next() => {
                senders.remove(&from);
                if let Err(error) = ended {
                    printer.note(&format!("port {} (udp): {error:#}", port.target));
                }
            }
        }
    }
}

/// One local sender.
struct Local<'a> {
    socket: &'a UdpSocket,
    from: SocketAddr,
    datagrams: mpsc::Receiver<Vec<u8>>,
}

async fn stream(
    guest: Guest<'_>,
    port: ForwardedPort,
    local: Local<'_>,
) -> (SocketAddr, Result<()>) {
    let from = local.from;
    (from, run(guest, port, local).await)
}

async fn run(guest: Guest<'_>, port: ForwardedPort, mut local: Local<'_>) -> Result<()> {
    let (mut to_guest, mut from_guest) = guest.open(port).await?.split();
    loop {
        tokio::select! {
            datagram = local.datagrams.recv() => {
                let Some(datagram) = datagram else { return Ok(()) };
                let sent = to_guest.send(Message::binary(datagram)).await;
                sent.context("write to the guest")?;
            }
            datagram = copy::next(&mut from_guest) => {
                let Some(datagram) = datagram? else { return Ok(()) };
                let sent = local.socket.send_to(&datagram, local.from).await;
                sent.context("answer locally")?;
            }
            () = tokio::time::sleep(IDLE) => {
                // The guest's side may be closed already.
                drop(to_guest.close().await);
                return Ok(());
            }
        }
    }
}
