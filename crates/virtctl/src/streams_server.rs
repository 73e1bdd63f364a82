//! The server's side of a stream, for tests.

use http::{HeaderName, HeaderValue, header::SEC_WEBSOCKET_PROTOCOL};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::{
    WebSocketStream, accept_hdr_async,
    tungstenite::handshake::server::{Request, Response},
};

/// Accepts one stream of the protocol; also returns the path that the client asked for.
pub(crate) async fn accept(
    listener: &TcpListener,
    protocol: &'static str,
) -> (WebSocketStream<TcpStream>, String) {
    accept_with(listener, &[(SEC_WEBSOCKET_PROTOCOL, protocol)]).await
}

/// Accepts one stream to a device, and says that another session to it was closed.
pub(crate) async fn accept_replacing(
    listener: &TcpListener,
    device: &'static str,
) -> (WebSocketStream<TcpStream>, String) {
    let headers = [
        (SEC_WEBSOCKET_PROTOCOL, "plain.kubevirt.io"),
        (
            HeaderName::from_static("x-ferrovirt-replaced-session"),
            device,
        ),
    ];
    accept_with(listener, &headers).await
}

#[expect(
    clippy::result_large_err,
    reason = "the callback's type is that of tungstenite"
)]
async fn accept_with(
    listener: &TcpListener,
    headers: &[(HeaderName, &'static str)],
) -> (WebSocketStream<TcpStream>, String) {
    let (client, _) = listener.accept().await.unwrap();
    let mut path = String::new();
    let accept = |request: &Request, mut response: Response| {
        path = request.uri().to_string();
        for (name, value) in headers {
            let value = HeaderValue::from_static(value);
            response.headers_mut().insert(name.clone(), value);
        }
        Ok(response)
    };
    let stream = accept_hdr_async(client, accept).await.unwrap();
    (stream, path)
}
