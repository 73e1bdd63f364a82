//! Requests and streams through proxies of this process, to a server of this process.

use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use http::Uri;
use http_body_util::{BodyExt, Empty};
use kube::Config;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, copy_bidirectional},
    net::{TcpListener, TcpStream},
};
use tokio_tungstenite::tungstenite::Message;

use super::*;
use crate::{
    https::{self, Trust, Unanswered},
    requests::Requests,
    streams_server, subresource,
};

/// A name that only the proxies can resolve.
const SERVER: &str = "http://server.invalid:8443";

async fn listener() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

fn client_through(proxy: &str) -> kube::Client {
    let server = Uri::from_static(SERVER);
    let proxy = choose(&server, Some(proxy), &Environment::default())
        .unwrap()
        .unwrap();
    client(&Config::new(server), &proxy, &Requests::default()).unwrap()
}

/// Serves one `CONNECT`, to this port whatever the client asks for; returns the request.
async fn http_proxy(listener: TcpListener, server: u16) -> String {
    let (client, _) = listener.accept().await.unwrap();
    let mut client = BufReader::new(client);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        client.read_line(&mut head).await.unwrap();
    }
    let mut server = TcpStream::connect(("127.0.0.1", server)).await.unwrap();
    client
        .write_all(b"HTTP/1.1 200 Connected\r\n\r\n")
        .await
        .unwrap();
    // The other side may end first.
    drop(copy_bidirectional(&mut client, &mut server).await);
    head
}

/// The same by version 5 of SOCKS, with name and password; returns these and the address.
async fn socks_proxy(listener: TcpListener, server: u16) -> String {
    let (mut client, _) = listener.accept().await.unwrap();
    let methods = client.read_u16().await.unwrap() & 0xff;
    for _ in 0..methods {
        client.read_u8().await.unwrap();
    }
    client.write_all(&[5, 2]).await.unwrap();
    assert_eq!(client.read_u8().await.unwrap(), 1);
    let user = text(&mut client).await;
    let password = text(&mut client).await;
    client.write_all(&[1, 0]).await.unwrap();
    let mut request = [0; 4];
    client.read_exact(&mut request).await.unwrap();
    assert_eq!(request, [5, 1, 0, 3], "a connection to a name");
    let host = text(&mut client).await;
    let port = client.read_u16().await.unwrap();
    let mut server = TcpStream::connect(("127.0.0.1", server)).await.unwrap();
    client
        .write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0])
        .await
        .unwrap();
    drop(copy_bidirectional(&mut client, &mut server).await);
    format!("{user} {password} {host}:{port}")
}

/// A text after its length.
async fn text(from: &mut TcpStream) -> String {
    let mut bytes = vec![0; usize::from(from.read_u8().await.unwrap())];
    from.read_exact(&mut bytes).await.unwrap();
    String::from_utf8(bytes).unwrap()
}

async fn answer_once(listener: TcpListener) {
    let (client, _) = listener.accept().await.unwrap();
    let mut client = BufReader::new(client);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        client.read_line(&mut head).await.unwrap();
    }
    assert!(head.starts_with("GET /version "), "{head}");
    let answer = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok";
    client.write_all(answer).await.unwrap();
}

/// Accepts one stream and sends back its first message.
async fn echo_once(listener: TcpListener) {
    let (mut stream, _) = streams_server::accept(&listener, "plain.kubevirt.io").await;
    let message = stream.next().await.unwrap().unwrap();
    stream.send(message).await.unwrap();
}

async fn request(proxy: String) {
    let client = client_through(&proxy);
    let request = http::Request::get("/version").body(vec![]).unwrap();
    assert_eq!(client.request_text(request).await.unwrap(), "ok");
}

async fn stream(proxy: String) {
    let client = client_through(&proxy);
    let mut stream = subresource::open(&client, "/console").await.unwrap();
    stream
        .send(Message::binary(b"typed".to_vec()))
        .await
        .unwrap();
    let echo = stream.next().await.unwrap().unwrap();
    assert_eq!(echo.into_data().as_ref(), b"typed");
}

#[tokio::test]
async fn requests_and_streams_go_through_an_http_proxy() {
    for is_stream in [false, true] {
        let ((proxy, proxy_port), (server, server_port)) = (listener().await, listener().await);
        let address = format!("http://me:pa%40ss@127.0.0.1:{proxy_port}");
        let connect = http_proxy(proxy, server_port);
        let ((), head, ()) = if is_stream {
            tokio::join!(stream(address), connect, echo_once(server))
        } else {
            tokio::join!(request(address), connect, answer_once(server))
        };
        assert!(
            head.starts_with("CONNECT server.invalid:8443 HTTP/1.1\r\n"),
            "{head}"
        );
        // me:pa@ss
        assert!(
            head.to_lowercase()
                .contains("proxy-authorization: basic bwu6cgfac3m=\r\n"),
            "{head}"
        );
    }
}

#[tokio::test]
async fn requests_and_streams_go_through_a_socks_proxy() {
    for is_stream in [false, true] {
        let ((proxy, proxy_port), (server, server_port)) = (listener().await, listener().await);
        let address = format!("socks5://me:pa%40ss@127.0.0.1:{proxy_port}");
        let connect = socks_proxy(proxy, server_port);
        let ((), asked, ()) = if is_stream {
            tokio::join!(stream(address), connect, echo_once(server))
        } else {
            tokio::join!(request(address), connect, answer_once(server))
        };
        assert_eq!(asked, "me pa@ss server.invalid:8443");
    }
}

/// A request to another server than the API server.
async fn other_request(proxy: String) {
    let proxies = Proxies::new(Some(&proxy), Environment::default());
    let request = http::Request::get(format!("{SERVER}/version"));
    let request = request.body(Empty::<Bytes>::new()).unwrap();
    let answer = https::send(&Trust::default(), &proxies, request).await;
    let body = answer.unwrap().into_body().collect().await.unwrap();
    assert_eq!(body.to_bytes().as_ref(), b"ok");
}

#[tokio::test]
async fn requests_to_other_servers_go_through_both_kinds_of_proxies() {
    let ((proxy, proxy_port), (server, server_port)) = (listener().await, listener().await);
    let address = format!("http://me:pa%40ss@127.0.0.1:{proxy_port}");
    let connect = http_proxy(proxy, server_port);
    let ((), head, ()) = tokio::join!(other_request(address), connect, answer_once(server));
    assert!(
        head.starts_with("CONNECT server.invalid:8443 HTTP/1.1\r\n"),
        "{head}"
    );

    let ((proxy, proxy_port), (server, server_port)) = (listener().await, listener().await);
    let address = format!("socks5://me:pa%40ss@127.0.0.1:{proxy_port}");
    let connect = socks_proxy(proxy, server_port);
    let ((), asked, ()) = tokio::join!(other_request(address), connect, answer_once(server));
    assert_eq!(asked, "me pa@ss server.invalid:8443");
}

#[tokio::test]
async fn wrong_proxy_is_no_reason_for_another_attempt() {
    let proxies = Proxies::new(Some("ftp://b"), Environment::default());
    let request = http::Request::get(SERVER).body(Empty::<Bytes>::new());
    let answer = https::send(&Trust::default(), &proxies, request.unwrap()).await;
    let Err(Unanswered::Unprepared(error)) = answer else {
        panic!("{answer:?}");
    };
    assert!(
        error.to_string().contains("write http://HOST:PORT"),
        "{error}"
    );
}

#[tokio::test]
async fn refusal_of_the_proxy_is_named() {
    let (proxy, port) = listener().await;
    let refuse = async {
        let (mut client, _) = proxy.accept().await.unwrap();
        let answer = b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n";
        client.write_all(answer).await.unwrap();
        client
    };
    let client = client_through(&format!("http://127.0.0.1:{port}"));
    let request = http::Request::get("/version").body(vec![]).unwrap();
    let (answer, _connection) = tokio::join!(client.request_text(request), refuse);
    let error = format!("{:#}", subresource::plain(answer.unwrap_err()));
    assert!(error.contains("connect through the proxy"), "{error}");
}
