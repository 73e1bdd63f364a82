//! The server's side of a stream, for tests.

use http::{HeaderValue, header::SEC_WEBSOCKET_PROTOCOL};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::{
    WebSocketStream, accept_hdr_async,
    tungstenite::handshake::server::{Request, Response},
};

/// Accepts one stream of the protocol; also returns the path that the client asked for.
#[expect(
    clippy::result_large_err,
    reason = "the callback's type is that of tungstenite"
)]
pub(crate) async fn accept(
    listener: &TcpListener,
    protocol: &'static str,
) -> (WebSocketStream<TcpStream>, String) {
    let (client, _) = listener.accept().await.unwrap();
    let mut path = String::new();
    let accept = |request: &Request, mut response: Response| {
        path = request.uri().to_string();
        let protocol = HeaderValue::from_static(protocol);
        response
            .headers_mut()
            .insert(SEC_WEBSOCKET_PROTOCOL, protocol);
        Ok(response)
    };
    let stream = accept_hdr_async(client, accept).await.unwrap();
    (stream, path)
}
