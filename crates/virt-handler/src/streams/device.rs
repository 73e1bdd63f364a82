//! Copying between a websocket and a unix socket of the guest.

use axum::extract::ws::{Message, WebSocket};
use futures::{SinkExt, StreamExt};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
};
use tokio_util::sync::CancellationToken;

/// Size limit of a frame towards the user.
const CHUNK: usize = 10 * 1024;

/// Copies in both directions until either end closes or `closed` is cancelled. Text frames are
/// ignored.
pub(crate) async fn join(socket: WebSocket, device: UnixStream, closed: &CancellationToken) {
    let (mut to_user, mut from_user) = socket.split();
    let (mut from_device, mut to_device) = device.into_split();
    let outward = async {
        let mut chunk = vec![0; CHUNK];
        loop {
            match from_device.read(&mut chunk).await {
                Ok(0) | Err(_) => break,
                Ok(count) => {
                    let bytes = chunk.get(..count).unwrap_or_default().to_vec();
                    if to_user.send(Message::Binary(bytes.into())).await.is_err() {
                        return;
                    }
                }
            }
        }
        // Fails if the user has already disconnected.
        let _disconnected = to_user.send(Message::Close(None)).await;
    };
    let inward = async {
        while let Some(Ok(message)) = from_user.next().await {
            match message {
                Message::Binary(bytes) => {
                    if to_device.write_all(&bytes).await.is_err() {
                        return;
                    }
                }
                Message::Close(_) => return,
                Message::Text(_) | Message::Ping(_) | Message::Pong(_) => {}
            }
        }
    };
    tokio::select! {
        () = outward => {}
        () = inward => {}
        () = closed.cancelled() => {}
    }
}
