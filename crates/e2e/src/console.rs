//! A guest's serial console over a plain websocket.

use futures::{SinkExt, StreamExt};
use http::{Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use kube::{Client, client::Body};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{Message, protocol::Role},
};

use crate::DEADLINE;

/// An open stream and its unread output.
#[derive(Debug)]
pub struct Console {
    stream: WebSocketStream<TokioIo<hyper::upgrade::Upgraded>>,
    pending: Vec<u8>,
}

impl Console {
    /// Opens a stream (`console`, `vnc`) of a VMI; the error is the refusal.
    pub async fn open(client: &Client, path: &str) -> Result<Self, String> {
        let request = Request::get(path)
            .header(header::CONNECTION, "Upgrade")
            .header(header::UPGRADE, "websocket")
            .header(header::SEC_WEBSOCKET_VERSION, "13")
            .header(header::SEC_WEBSOCKET_KEY, "ZmVycm92aXJ0LWUyZS0xMg==")
            .header(header::SEC_WEBSOCKET_PROTOCOL, "plain.kubevirt.io")
            .body(Body::empty())
            .map_err(|err| err.to_string())?;
        let mut response = client.send(request).await.map_err(|err| err.to_string())?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Err(response.status().to_string());
        }
        let upgraded = hyper::upgrade::on(&mut response)
            .await
            .map_err(|err| err.to_string())?;
        let stream = WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Client, None);
        Ok(Self {
            stream: stream.await,
            pending: Vec::new(),
        })
    }

    pub async fn send(&mut self, text: &str) {
        let message = Message::binary(text.as_bytes().to_vec());
        self.stream
            .send(message)
            .await
            .expect("write to the console");
    }

    /// Reads until `text` appears, and returns everything up to its end.
    pub async fn expect(&mut self, text: &str) -> String {
        let waited = tokio::time::timeout(DEADLINE, self.read_until(text)).await;
        waited.unwrap_or_else(|_elapsed| {
            let seen = String::from_utf8_lossy(&self.pending);
            panic!("the console does not show {text:?} within {DEADLINE:?}, but {seen:?}")
        })
    }

    async fn read_until(&mut self, text: &str) -> String {
        let wanted = text.as_bytes();
        loop {
            let found = self
                .pending
                .windows(wanted.len())
                .position(|part| part == wanted);
            if let Some(at) = found {
                let rest = self.pending.split_off(at + wanted.len());
                let read = std::mem::replace(&mut self.pending, rest);
                return String::from_utf8_lossy(&read).into_owned();
            }
            match self.stream.next().await {
                Some(Ok(Message::Binary(bytes))) => self.pending.extend_from_slice(&bytes),
                Some(Ok(Message::Text(text))) => self.pending.extend_from_slice(text.as_bytes()),
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
                end @ (None | Some(Ok(Message::Close(_)) | Err(_))) => {
                    let seen = String::from_utf8_lossy(&self.pending);
                    panic!("the console ended ({end:?}) before {text:?}, after {seen:?}")
                }
            }
        }
    }

    /// Runs a command in the guest's shell and returns its output.
    pub async fn shell(&mut self, command: &str) -> String {
        // The terminal echoes the command, and a shell that was not reading yet echoes it again. No
        // echo may look like the markers around the output.
        self.send(&format!("echo 'be''gin'; {command}; echo 'do''ne'\n"))
            .await;
        self.expect("begin").await;
        let shown = self.expect("done").await;
        shown.trim_end_matches("done").trim().to_owned()
    }

    /// Asserts that the address answers one of a few pings: on a busy host the first may be late.
    pub async fn pings(&mut self, address: &str) {
        let once = format!("ping -c 1 -W 5 {address}");
        let several = format!("for i in 1 2 3 4 5; do {once} && break; done");
        let answer = self.shell(&several).await;
        assert!(answer.contains(" 0% packet loss"), "{address}: {answer}");
    }
}
