//! Logs over a websocket: one message for each part of the log.

use apimachinery::Status;
use axum::{
    body::BodyDataStream,
    extract::{
        FromRequestParts as _, Request, WebSocketUpgrade,
        ws::{Message, WebSocket},
    },
    response::{IntoResponse as _, Response},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use futures::StreamExt as _;
use http::header;

use crate::error::ApiError;

const BINARY: &str = "binary.k8s.io";
const TEXT: &str = "base64.binary.k8s.io";

/// An accepted websocket for a log.
pub(super) struct LogSocket {
    upgrade: WebSocketUpgrade,
    encoding: Encoding,
}

#[derive(Debug, Clone, Copy)]
enum Encoding {
    Binary,
    Base64,
}

impl LogSocket {
    pub(super) async fn accept(request: Request) -> Result<Self, ApiError> {
        let (mut parts, _) = request.into_parts();
        let upgrade = WebSocketUpgrade::from_request_parts(&mut parts, &()).await;
        let upgrade = upgrade.map_err(|error| Status::bad_request(error.body_text()))?;
        let upgrade = upgrade.protocols([BINARY, TEXT]);
        let selected = upgrade.selected_protocol().cloned();
        let encoding = match selected.as_ref().and_then(|name| name.to_str().ok()) {
            Some(TEXT) => Encoding::Base64,
            Some(_) => Encoding::Binary,
            None if !parts.headers.contains_key(header::SEC_WEBSOCKET_PROTOCOL) => Encoding::Binary,
            None => {
                let why =
                    format!("the websocket protocol is not supported: use {BINARY} or {TEXT}");
                return Err(Status::bad_request(why).into());
            }
        };
        Ok(Self { upgrade, encoding })
    }

    pub(super) fn send(self, log: Response) -> Response {
        let encoding = self.encoding;
        let parts = log.into_body().into_data_stream();
        let upgraded = self.upgrade.on_upgrade(async move |socket| {
            // The log of the server has a panic; the client's ends.
            panics::confined(send_parts(socket, parts, encoding))
                .await
                .ok();
        });
        upgraded.into_response()
    }
}

async fn send_parts(mut socket: WebSocket, mut parts: BodyDataStream, encoding: Encoding) {
    loop {
        tokio::select! {
            part = parts.next() => match part {
                Some(Ok(bytes)) => {
                    if socket.send(encoding.message(bytes)).await.is_err() {
                        return;
                    }
                }
                Some(Err(error)) => {
                    tracing::debug!(%error, "log ended early");
                    break;
                }
                None => break,
            },
            // A client sends nothing but the end.
            message = socket.recv() => match message {
                Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                Some(Ok(_)) => {}
            },
        }
    }
    if let Err(error) = socket.send(Message::Close(None)).await {
        tracing::debug!(%error, "client of a log has disconnected");
    }
}

impl Encoding {
    fn message(self, bytes: Bytes) -> Message {
        match self {
            Self::Binary => Message::Binary(bytes),
            Self::Base64 => Message::Text(STANDARD.encode(bytes).into()),
        }
    }
}
