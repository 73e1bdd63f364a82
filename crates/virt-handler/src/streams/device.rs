//! A websocket joined to a unix socket of the guest.

use axum::extract::ws::{Message, WebSocket};
use futures::{SinkExt, StreamExt};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
};
use tokio_util::sync::CancellationToken;

/// As much as one frame carries towards the user.
const CHUNK: usize = 10 * 1024;

/// Copies both ways until either side ends or `ended` says so. Text frames carry no data.
pub(crate) async fn join(socket: WebSocket, device: UnixStream, ended: &CancellationToken) {
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
        // The user may be gone already; then there is nobody to say goodbye to.
        let _gone = to_user.send(Message::Close(None)).await;
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
        () = ended.cancelled() => {}
    }
}
