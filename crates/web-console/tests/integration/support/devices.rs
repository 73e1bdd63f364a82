//! Devices of a guest: a serial port that echoes, a VNC server with one picture, and counters; and tokens of uploads.

use std::sync::atomic::{AtomicU64, Ordering};

use axum::{
    Json, Router,
    extract::ws::{Message, WebSocket, WebSocketUpgrade},
    response::Response,
    routing::{get, post},
};
use serde_json::{Value, json};

const PROTOCOL: &str = "plain.kubevirt.io";
const BELOW: &str =
    "/apis/subresources.kubevirt.io/v1/namespaces/{n}/virtualmachineinstances/{name}";
const TOKENS: &str =
    "/apis/upload.cdi.kubevirt.io/v1beta1/namespaces/{namespace}/uploadtokenrequests";
/// The token of every upload.
pub(super) const UPLOAD_TOKEN: &str = "token-of-an-upload";
/// The size of the picture.
const SIZE: (u16, u16) = (64, 48);
/// Red, green and blue of its upper half, which is sent as points, and of its lower half, sent as tiles.
const UPPER: [u8; 4] = [200, 40, 10, 0];
const LOWER: [u8; 4] = [10, 40, 200, 0];

pub(super) fn router() -> Router {
    Router::new()
        .route(&format!("{BELOW}/console"), get(console))
        .route(&format!("{BELOW}/vnc"), get(vnc))
        .route(&format!("{BELOW}/usage"), get(usage))
        .route(
            TOKENS,
            post(async || Json(json!({"status": {"token": UPLOAD_TOKEN}}))),
        )
}

/// Counters of a guest that has used half a CPU since its start.
async fn usage() -> Json<Value> {
    static READINGS: AtomicU64 = AtomicU64::new(1);
    let reading = READINGS.fetch_add(1, Ordering::Relaxed);
    Json(json!({
        "clockMilliseconds": reading * 1000, "cpuMilliseconds": reading * 500, "memoryBytes": 300 << 20,
        "diskReadBytes": reading * 2048, "diskWrittenBytes": 0,
        "networkReceivedBytes": reading * 3072, "networkSentBytes": 0,
    }))
}

async fn console(upgrade: WebSocketUpgrade) -> Response {
    upgrade
        .protocols([PROTOCOL])
        .on_upgrade(async |mut socket| {
            let greeting = "Debian GNU/Linux 12\r\n\x1b[1;32mguest\x1b[0m login: ";
            let mut ended = socket.send(Message::binary(greeting.as_bytes())).await;
            while ended.is_ok() {
                let Some(Ok(Message::Binary(bytes))) = socket.recv().await else {
                    return;
                };
                let echo = [&b"<"[..], &bytes[..], &b">"[..]].concat();
                ended = socket.send(Message::binary(echo)).await;
            }
        })
}

async fn vnc(upgrade: WebSocketUpgrade) -> Response {
    upgrade.protocols([PROTOCOL]).on_upgrade(async |socket| {
        let mut viewer = Viewer {
            socket,
            bytes: Vec::new(),
        };
        // The browser closes the connection when the test leaves the view.
        let _ended = viewer.run().await;
    })
}

struct Viewer {
    socket: WebSocket,
    bytes: Vec<u8>,
}

impl Viewer {
    /// RFC 6143, as much of it as a viewer needs. A pressed key fills the picture with green.
    async fn run(&mut self) -> Option<()> {
        self.send(b"RFB 003.008\n").await?;
        assert_eq!(self.take(12).await?, b"RFB 003.008\n");
        self.send(&[2, 16, 1]).await?;
        assert_eq!(self.take(1).await?, [1]);
        self.send(&[0, 0, 0, 0]).await?;
        self.take(1).await?;
        let (width, height) = SIZE;
        let mut start = [width.to_be_bytes(), height.to_be_bytes()].concat();
        start.extend([0; 16]);
        start.extend([0, 0, 0, 4]);
        start.extend(b"test");
        self.send(&start).await?;
        let mut is_new = true;
        loop {
            match self.take(1).await?[0] {
                0 => drop(self.take(19).await?),
                2 => {
                    let head = self.take(3).await?;
                    let count = usize::from(u16::from_be_bytes([head[1], head[2]]));
                    self.take(count * 4).await?;
                }
                3 => {
                    self.take(9).await?;
                    if is_new {
                        self.send(&picture()).await?;
                    }
                    is_new = false;
                }
                4 => {
                    let key = self.take(7).await?;
                    if key[0] == 1 && key[6] == b'g' {
                        self.send(&filled([0, 255, 0, 0])).await?;
                    }
                }
                5 => drop(self.take(5).await?),
                other => panic!("message {other}"),
            }
        }
    }

    async fn send(&mut self, bytes: &[u8]) -> Option<()> {
        let bytes = bytes.to_vec();
        self.socket.send(Message::binary(bytes)).await.ok()
    }

    async fn take(&mut self, count: usize) -> Option<Vec<u8>> {
        while self.bytes.len() < count {
            match self.socket.recv().await? {
                Ok(Message::Binary(bytes)) => self.bytes.extend(&bytes),
                _ => return None,
            }
        }
        let rest = self.bytes.split_off(count);
        Some(std::mem::replace(&mut self.bytes, rest))
    }
}

fn rectangle(y: u16, height: u16, encoding: i32) -> Vec<u8> {
    let parts = [0, y, SIZE.0, height];
    let mut head: Vec<u8> = parts.into_iter().flat_map(u16::to_be_bytes).collect();
    head.extend(encoding.to_be_bytes());
    head
}

/// An update of two rectangles: points, and tiles of which each has a part of its own.
fn picture() -> Vec<u8> {
    let half = SIZE.1 / 2;
    let points = usize::from(SIZE.0) * usize::from(half);
    let mut all = vec![0, 0, 0, 2];
    all.extend(rectangle(0, half, 0));
    all.extend(UPPER.repeat(points));
    all.extend(rectangle(half, half, 5));
    // Two rows of four tiles: background, foreground, one part at (1, 2) of 3 by 4 points.
    for _tile in 0..8 {
        all.push(2 | 4 | 8);
        all.extend(LOWER);
        all.extend([255, 255, 255, 0]);
        all.extend([1, 0x12, 0x23]);
    }
    all
}

fn filled(colour: [u8; 4]) -> Vec<u8> {
    let mut all = vec![0, 0, 0, 1];
    all.extend(rectangle(0, SIZE.1, 0));
    all.extend(colour.repeat(usize::from(SIZE.0) * usize::from(SIZE.1)));
    all
}
