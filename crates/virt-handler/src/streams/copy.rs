//! Copying between a websocket and a device or port of the guest.
//!
//! Each side is read only as fast as the other takes the data. A stream always ends with a close frame
//! that gives the reason, so that no client waits for a guest that has gone.

use std::{io, sync::Arc, time::Duration};

use axum::{
    body::Bytes,
    extract::ws::{CloseFrame, Message, WebSocket, close_code},
};
use futures::{
    SinkExt, StreamExt,
    stream::{SplitSink, SplitStream},
};
use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf},
    net::UdpSocket,
    time::Instant,
};
use tokio_util::sync::CancellationToken;

/// Size limit of a frame of bytes towards the user.
const CHUNK: usize = 10 * 1024;
/// The largest datagram.
const DATAGRAM: usize = 64 * 1024;
/// Interval of pings. Proxies close connections that are idle for a minute.
const PING_INTERVAL: Duration = Duration::from_secs(20);
/// A user who answers no ping for that long has gone.
const PONG_LIMIT: Duration = Duration::from_mins(1);
/// Time for the user's side to read the rest and to close.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);
/// Time for the guest to take the end of the stream.
const FINISH_LIMIT: Duration = Duration::from_secs(1);
/// The protocol's limit on the reason in a close frame, in bytes.
const MAX_REASON: usize = 123;

/// Data from the guest.
pub(super) trait Receive: Send {
    /// A buffer of this size holds every frame.
    const FRAME: usize;

    /// Reads into the chunk; `None` at the end. Nothing is lost if the future is dropped.
    fn receive(
        &mut self,
        chunk: &mut [u8],
    ) -> impl Future<Output = io::Result<Option<usize>>> + Send;
}

/// Data to the guest.
pub(super) trait Transmit: Send {
    fn transmit(&mut self, frame: &[u8]) -> impl Future<Output = io::Result<()>> + Send;

    /// Tells the guest that no more follows.
    fn finish(&mut self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
}

/// A stream of bytes.
#[derive(Debug)]
pub(super) struct Stream<T>(T);

impl<T: AsyncRead + AsyncWrite> Stream<T> {
    pub(super) fn split(stream: T) -> (Stream<ReadHalf<T>>, Stream<WriteHalf<T>>) {
        let (read, write) = tokio::io::split(stream);
        (Stream(read), Stream(write))
    }
}

impl<T: AsyncRead + Send> Receive for Stream<ReadHalf<T>> {
    const FRAME: usize = CHUNK;

    async fn receive(&mut self, chunk: &mut [u8]) -> io::Result<Option<usize>> {
        let count = self.0.read(chunk).await?;
        Ok((count > 0).then_some(count))
    }
}

impl<T: AsyncWrite + Send> Transmit for Stream<WriteHalf<T>> {
    async fn transmit(&mut self, frame: &[u8]) -> io::Result<()> {
        self.0.write_all(frame).await?;
        // Streams with TLS keep what the guest does not take at once.
        self.0.flush().await
    }

    async fn finish(&mut self) {
        match tokio::time::timeout(FINISH_LIMIT, self.0.shutdown()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "the guest has closed its side already"),
            Err(_elapsed) => tracing::debug!("the guest does not take the end of the stream"),
        }
    }
}

/// A connected UDP socket; an empty datagram is not an end.
#[derive(Debug)]
pub(super) struct Datagrams(Arc<UdpSocket>);

impl Datagrams {
    pub(super) fn split(socket: UdpSocket) -> (Self, Self) {
        let socket = Arc::new(socket);
        (Self(Arc::clone(&socket)), Self(socket))
    }
}

impl Receive for Datagrams {
    const FRAME: usize = DATAGRAM;

    async fn receive(&mut self, chunk: &mut [u8]) -> io::Result<Option<usize>> {
        self.0.recv(chunk).await.map(Some)
    }
}

impl Transmit for Datagrams {
    async fn transmit(&mut self, frame: &[u8]) -> io::Result<()> {
        self.0.send(frame).await.map(drop)
    }
}

/// Why a stream ends.
#[derive(Debug)]
enum End {
    /// The guest has closed its side.
    Guest,
    GuestFailed(io::Error),
    User,
    /// Another stream to the device was opened.
    Replaced,
}

impl End {
    fn close_frame(&self) -> Option<CloseFrame> {
        let (code, reason) = match self {
            Self::User => return None,
            Self::Guest => (close_code::NORMAL, String::new()),
            // Clients of `KubeVirt` take a normal end for one that the user wanted, and search the message of
            // any other for EOF.
            Self::Replaced => (
                close_code::AWAY,
                "EOF: another session to this device was opened".to_owned(),
            ),
            Self::GuestFailed(error) => (close_code::ERROR, error.to_string()),
        };
        Some(close_frame(code, &reason))
    }
}

fn close_frame(code: u16, reason: &str) -> CloseFrame {
    let end = reason.floor_char_boundary(MAX_REASON);
    let reason = reason.get(..end).unwrap_or_default();
    CloseFrame {
        code,
        reason: reason.into(),
    }
}

/// Copies in both directions until either end closes or `closed` is cancelled. Text frames are
/// ignored. A panic ends this stream only.
pub(super) async fn join<R: Receive, W: Transmit>(
    socket: WebSocket,
    guest: (R, W),
    closed: &CancellationToken,
) {
    panics::confined(copy_both(socket, guest, closed))
        .await
        .ok();
}

async fn copy_both<R: Receive, W: Transmit>(
    socket: WebSocket,
    (mut from_guest, mut to_guest): (R, W),
    closed: &CancellationToken,
) {
    let (mut to_user, mut from_user) = socket.split();
    let alive = KeepAlive::default();
    let end = tokio::select! {
        end = outward(&mut from_guest, &mut to_user, &alive) => end,
        end = inward(&mut from_user, &mut to_guest, &alive) => end,
        () = closed.cancelled() => End::Replaced,
    };
    to_guest.finish().await;
    drop((from_guest, to_guest));
    if let Some(frame) = end.close_frame() {
        close(to_user, from_user, frame).await;
    }
}

async fn outward<R: Receive>(
    from: &mut R,
    to: &mut SplitSink<WebSocket, Message>,
    alive: &KeepAlive,
) -> End {
    let mut chunk = vec![0; R::FRAME];
    let mut pings = tokio::time::interval_at(Instant::now() + PING_INTERVAL, PING_INTERVAL);
    loop {
        let message = tokio::select! {
            received = from.receive(&mut chunk) => match received {
                Ok(Some(count)) => {
                    let bytes = chunk.get(..count).unwrap_or_default();
                    Message::Binary(Bytes::copy_from_slice(bytes))
                }
                Ok(None) => return End::Guest,
                Err(error) => return End::GuestFailed(error),
            },
            now = pings.tick() => {
                if alive.is_lost(now) {
                    return End::User;
                }
                Message::Ping(Bytes::new())
            }
        };
        let is_data = matches!(message, Message::Binary(_));
        if to.send(message).await.is_err() {
            return End::User;
        }
        if is_data {
            // The user reads; a pong waits behind the data.
            alive.heard();
        }
    }
}

async fn inward<W: Transmit>(
    from: &mut SplitStream<WebSocket>,
    to: &mut W,
    alive: &KeepAlive,
) -> End {
    while let Some(Ok(message)) = from.next().await {
        alive.heard();
        match message {
            Message::Binary(bytes) => {
                if let Err(error) = to.transmit(&bytes).await {
                    return End::GuestFailed(error);
                }
            }
            Message::Close(_) => return End::User,
            Message::Text(_) | Message::Ping(_) | Message::Pong(_) => {}
        }
    }
    End::User
}

/// Sends the close frame and reads until the user closes, too: a connection that is dropped with unread
/// data is reset, and the user could lose the last bytes.
async fn close(
    mut to_user: SplitSink<WebSocket, Message>,
    mut from_user: SplitStream<WebSocket>,
    frame: CloseFrame,
) {
    let closing = async {
        if to_user.send(Message::Close(Some(frame))).await.is_ok() {
            while let Some(Ok(_)) = from_user.next().await {}
        }
    };
    if tokio::time::timeout(CLOSE_LIMIT, closing).await.is_err() {
        tracing::debug!("the user did not close the stream in time");
    }
}

/// Since when the user owes an answer to a ping.
#[derive(Debug, Default)]
struct KeepAlive {
    asked: Mutex<Option<Instant>>,
}

impl KeepAlive {
    fn heard(&self) {
        *self.asked.lock() = None;
    }

    /// Called at each ping.
    fn is_lost(&self, now: Instant) -> bool {
        let mut asked = self.asked.lock();
        now.duration_since(*asked.get_or_insert(now)) >= PONG_LIMIT
    }
}

#[cfg(test)]
mod tests {
    use axum::{Router, extract::WebSocketUpgrade, routing::get};
    use tokio::io::DuplexStream;
    use tokio::net::{TcpListener, TcpStream};
    use tokio_tungstenite::{
        WebSocketStream, client_async,
        tungstenite::{self, protocol::frame::coding::CloseCode},
    };
    use tokio_util::task::TaskTracker;

    use super::*;

    type Client = WebSocketStream<TcpStream>;

    /// A client of a stream to this device.
    async fn client<R: Receive + 'static, W: Transmit + 'static>(
        device: (R, W),
        closed: &CancellationToken,
    ) -> Client {
        let device = Arc::new(Mutex::new(Some(device)));
        let closed = closed.clone();
        let route = get(move |upgrade: WebSocketUpgrade| async move {
            let device = device.lock().take().unwrap();
            upgrade.on_upgrade(async move |socket| join(socket, device, &closed).await)
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().route("/", route);
        TaskTracker::new().spawn(async move { axum::serve(listener, router).await });
        let stream = TcpStream::connect(address).await.unwrap();
        let (client, _) = client_async(format!("ws://{address}/"), stream)
            .await
            .unwrap();
        client
    }

    async fn device() -> (Client, DuplexStream, CancellationToken) {
        let (near, far) = tokio::io::duplex(64 * 1024);
        let closed = CancellationToken::new();
        (client(Stream::split(near), &closed).await, far, closed)
    }

    /// All bytes up to the close frame, and that frame.
    async fn read_all(client: &mut Client) -> (Vec<u8>, CloseCode, String) {
        let mut bytes = vec![];
        loop {
            match client.next().await.unwrap().unwrap() {
                tungstenite::Message::Binary(part) => bytes.extend_from_slice(&part),
                tungstenite::Message::Close(frame) => {
                    let frame = frame.unwrap();
                    return (bytes, frame.code, frame.reason.to_string());
                }
                _ => {}
            }
        }
    }

    #[tokio::test]
    async fn everything_a_guest_sent_arrives_before_the_close() {
        let (mut client, mut guest, _closed) = device().await;
        let sent: Vec<u8> = (0..=u8::MAX).cycle().take(1 << 20).collect();
        client
            .send(tungstenite::Message::binary(b"ping".to_vec()))
            .await
            .unwrap();
        let mut read = [0; 4];
        guest.read_exact(&mut read).await.unwrap();
        assert_eq!(&read, b"ping");
        // Unread data from the user must not cost the last bytes.
        client
            .send(tungstenite::Message::binary(vec![0; 1000]))
            .await
            .unwrap();
        let write = async {
            guest.write_all(&sent).await.unwrap();
            drop(guest);
        };
        let ((), (bytes, code, reason)) = tokio::join!(write, read_all(&mut client));
        assert!(bytes == sent, "{} of {}", bytes.len(), sent.len());
        assert_eq!((code, &*reason), (CloseCode::Normal, ""));
    }

    #[tokio::test]
    async fn replaced_session_gets_the_reason() {
        let (mut client, _guest, closed) = device().await;
        closed.cancel();
        let (_, code, reason) = read_all(&mut client).await;
        assert_eq!(code, CloseCode::Away);
        assert!(reason.starts_with("EOF: another session"), "{reason}");
    }

    #[tokio::test]
    async fn guest_sees_the_end_when_the_user_leaves() {
        let (mut client, mut guest, _closed) = device().await;
        client.close(None).await.unwrap();
        let mut rest = vec![];
        guest.read_to_end(&mut rest).await.unwrap();
        assert!(rest.is_empty());
    }

    #[tokio::test]
    async fn frames_are_datagrams_and_a_closed_port_ends_the_stream() {
        let guest = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let near = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        near.connect(guest.local_addr().unwrap()).await.unwrap();
        guest.connect(near.local_addr().unwrap()).await.unwrap();
        let closed = CancellationToken::new();
        let mut client = client(Datagrams::split(near), &closed).await;
        for text in ["one", "two"] {
            client
                .send(tungstenite::Message::binary(text.as_bytes().to_vec()))
                .await
                .unwrap();
            let mut chunk = [0; 64];
            let count = guest.recv(&mut chunk).await.unwrap();
            assert_eq!(&chunk[..count], text.as_bytes());
        }
        guest.send(b"three").await.unwrap();
        let frame = client.next().await.unwrap().unwrap();
        assert_eq!(frame.into_data().as_ref(), b"three");
        drop(guest);
        client
            .send(tungstenite::Message::binary(b"x".to_vec()))
            .await
            .unwrap();
        let (_, code, reason) = read_all(&mut client).await;
        assert_eq!(code, CloseCode::Error);
        assert!(reason.contains("refused"), "{reason}");
    }

    #[test]
    fn user_who_answers_no_ping_is_lost_after_the_limit() {
        let (alive, start) = (KeepAlive::default(), Instant::now());
        assert!(!alive.is_lost(start));
        assert!(!alive.is_lost(start + PONG_LIMIT / 2));
        alive.heard();
        assert!(!alive.is_lost(start + PONG_LIMIT));
        assert!(alive.is_lost(start + PONG_LIMIT * 2));
    }

    #[test]
    fn reason_of_a_close_frame_has_at_most_the_protocols_length() {
        let frame = close_frame(close_code::ERROR, &"ä".repeat(100));
        assert_eq!(frame.reason.len(), MAX_REASON - 1);
    }
}
