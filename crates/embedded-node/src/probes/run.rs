//! Executes one probe: an HTTP request, a connection, a gRPC call or a command in the container.

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::rt::{TokioExecutor, TokioIo};
use k8s_openapi::{
    api::core::v1::{Container, GRPCAction, HTTPGetAction, Probe},
    apimachinery::pkg::util::intstr::IntOrString,
};
use pod_supervisor::exec::{Outcome, Terminal};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};

use crate::exec::{self, Flow, Wanted};

const USER_AGENT: &str = concat!("kube-probe/", env!("CARGO_PKG_VERSION"));
/// How much of a response may appear in a message.
const MAX_RESPONSE: usize = 10 << 10;

/// The probed container and the means to reach it.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) address: IpAddr,
    pub(crate) container: Container,
    pub(crate) pod_dir: PathBuf,
    pub(crate) supervisor: PathBuf,
}

/// Returns why the probe failed.
pub(crate) async fn run(target: &Target, probe: &Probe, limit: Duration) -> Result<(), String> {
    let late = || format!("timed out after {} s", limit.as_secs());
    let work = async {
        if let Some(action) = &probe.exec {
            let args = action.command.clone().unwrap_or_default();
            return command(target, args).await;
        }
        if let Some(action) = &probe.http_get {
            return request(target, action).await;
        }
        if let Some(action) = &probe.tcp_socket {
            let port = port(&target.container, &action.port)?;
            return connect(target, action.host.as_deref(), port)
                .await
                .map(drop);
        }
        if let Some(action) = &probe.grpc {
            return call(target, action).await;
        }
        Err("the probe has no action".to_owned())
    };
    timeout(limit, work).await.unwrap_or_else(|_| Err(late()))
}

/// Runs a command in the container; an exit code other than zero is an error.
pub(crate) async fn command(target: &Target, args: Vec<String>) -> Result<(), String> {
    let wanted = Wanted {
        container: target.container.name.clone(),
        args,
        terminal: Terminal::None,
        input: Flow::Closed,
        output: Flow::Open,
        error: Flow::Open,
    };
    let (supervisor, dir): (&Path, &Path) = (&target.supervisor, &target.pod_dir);
    match exec::run(supervisor, dir, wanted, MAX_RESPONSE).await {
        Ok((Outcome::Exited { code: 0 }, _)) => Ok(()),
        Ok((Outcome::Exited { code }, output)) => match output.trim_ascii() {
            [] => Err(format!("command exited with code {code}")),
            output => Err(String::from_utf8_lossy(output).into_owned()),
        },
        Ok((Outcome::Failed { message }, _)) => Err(message),
        Err(error) => Err(error.to_string()),
    }
}

async fn connect(target: &Target, host: Option<&str>, port: u16) -> Result<TcpStream, String> {
    let host = match host {
        None | Some("") => target.address.to_string(),
        Some(host) => host.to_owned(),
    };
    let stream = TcpStream::connect((host.as_str(), port)).await;
    stream.map_err(|error| format!("dial tcp {host}:{port}: {error}"))
}

/// A redirect counts as success.
async fn request(target: &Target, action: &HTTPGetAction) -> Result<(), String> {
    let status = get(target, action).await?;
    if status.is_success() || status.is_redirection() {
        return Ok(());
    }
    let code = status.as_u16();
    Err(format!("HTTP probe failed with statuscode: {code}"))
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Sends an HTTP request to the container. Returns the status of the response.
pub(crate) async fn get(target: &Target, action: &HTTPGetAction) -> Result<StatusCode, String> {
    let port = port(&target.container, &action.port)?;
    let stream = connect(target, action.host.as_deref(), port).await?;
    let host = match action.host.as_deref() {
        None | Some("") => target.address.to_string(),
        Some(host) => host.to_owned(),
    };
    let stream: Box<dyn Stream> = match action.scheme.as_deref() {
        Some("HTTPS") => {
            let secured = serving::unverified::connect(stream, &host).await;
            Box::new(secured.map_err(|error| format!("TLS handshake with {host}:{port}: {error}"))?)
        }
        _ => Box::new(stream),
    };
    let path = match action.path.as_deref() {
        None | Some("") => "/".to_owned(),
        Some(path) if path.starts_with('/') => path.to_owned(),
        Some(path) => format!("/{path}"),
    };
    let mut request = Request::get(path)
        .header(header::HOST, format!("{host}:{port}"))
        .header(header::USER_AGENT, USER_AGENT)
        .header(header::ACCEPT, "*/*")
        .header(header::CONNECTION, "close")
        .body(Full::<Bytes>::default())
        .map_err(|error| error.to_string())?;
    for one in action.http_headers.iter().flatten() {
        let name = HeaderName::try_from(&one.name).map_err(|error| error.to_string())?;
        let value = HeaderValue::try_from(&one.value).map_err(|error| error.to_string())?;
        request.headers_mut().insert(name, value);
    }
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| error.to_string())?;
    let response = async {
        let response = sender.send_request(request).await;
        Ok(response.map_err(|error| error.to_string())?.status())
    };
    driven(connection, response).await
}

/// Drives the connection until the response arrives. A server may respond and close at once.
async fn driven<C, A, T>(connection: C, response: A) -> Result<T, String>
where
    C: Future<Output = hyper::Result<()>>,
    A: Future<Output = Result<T, String>>,
{
    let mut response = std::pin::pin!(response);
    tokio::select! {
        biased;
        response = &mut response => return response,
        ended = connection => ended.map_err(|error| error.to_string())?,
    }
    response.await
}

/// The gRPC health checking protocol: one message each way.
async fn call(target: &Target, action: &GRPCAction) -> Result<(), String> {
    let failed = |error: hyper::Error| error.to_string();
    let port = u16::try_from(action.port).map_err(|error| error.to_string())?;
    let stream = connect(target, None, port).await?;
    let service = action.service.as_deref().unwrap_or_default();
    let request = Request::post(format!(
        "http://{}:{port}/grpc.health.v1.Health/Check",
        target.address
    ))
    .header(header::CONTENT_TYPE, "application/grpc")
    .header(header::USER_AGENT, USER_AGENT)
    .header(header::TE, "trailers")
    .body(Full::new(health_request(service)?))
    .map_err(|error| error.to_string())?;
    let handshake =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (mut sender, connection) = handshake.await.map_err(failed)?;
    let response = async {
        let response = sender.send_request(request).await.map_err(failed)?;
        let body = Limited::new(response.into_body(), MAX_RESPONSE);
        let body = body.collect().await.map_err(|error| error.to_string())?;
        match body.to_bytes().get(5..) {
            // Field 1 of the message is the state; 1 means serving.
            Some([0x08, 0x01, ..]) => Ok(()),
            Some([0x08, state, ..]) => Err(format!("service unhealthy (state {state})")),
            _ => Err("service unhealthy (the response has no state)".to_owned()),
        }
    };
    driven(connection, response).await
}

fn health_request(service: &str) -> Result<Bytes, String> {
    let length = u8::try_from(service.len())
        .ok()
        .filter(|length| *length < 126)
        .ok_or("the service name is too long")?;
    let mut message = Vec::new();
    if length > 0 {
        message.extend([0x0a, length]);
        message.extend_from_slice(service.as_bytes());
    }
    // The frame: uncompressed, then the length.
    let mut framed = vec![0, 0, 0, 0];
    framed.push(u8::try_from(message.len()).map_err(|error| error.to_string())?);
    framed.extend(message);
    Ok(framed.into())
}

/// A port by number or by the name of a container port.
fn port(container: &Container, wanted: &IntOrString) -> Result<u16, String> {
    let number = match wanted {
        IntOrString::Int(number) => *number,
        IntOrString::String(name) => {
            let named = container
                .ports
                .iter()
                .flatten()
                .find(|port| port.name.as_deref() == Some(name));
            match named {
                Some(port) => port.container_port,
                None => name
                    .parse()
                    .map_err(|_| format!("couldn't find port {name:?} of the container"))?,
            }
        }
    };
    u16::try_from(number).map_err(|_| format!("{number} is not a port"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::*;

    fn target() -> Target {
        let container = json!({"name": "c", "ports": [{"name": "web", "containerPort": 81}]});
        Target {
            address: [127, 0, 0, 1].into(),
            container: serde_json::from_value(container).unwrap(),
            pod_dir: "/nowhere".into(),
            supervisor: "/nowhere".into(),
        }
    }

    async fn probe(probe: Value) -> Result<(), String> {
        let probe = serde_json::from_value(probe).unwrap();
        run(&target(), &probe, Duration::from_secs(5)).await
    }

    #[test]
    fn ports_are_found_by_name_or_number() {
        let container = target().container;
        let find = |wanted: Value| port(&container, &serde_json::from_value(wanted).unwrap());
        assert_eq!(find(json!(80)), Ok(80));
        assert_eq!(find(json!("web")), Ok(81));
        assert_eq!(find(json!("82")), Ok(82));
        assert!(find(json!("other")).unwrap_err().contains("other"));
        assert!(find(json!(70000)).is_err());
    }

    #[test]
    fn health_request_is_framed() {
        assert_eq!(health_request("").unwrap(), &[0, 0, 0, 0, 0][..]);
        assert_eq!(
            health_request("ab").unwrap(),
            &[0, 0, 0, 0, 4, 0x0a, 2, b'a', b'b'][..]
        );
        assert!(health_request(&"x".repeat(200)).is_err());
    }

    #[tokio::test]
    async fn http_status_decides() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let get = json!({"httpGet": {
            "port": port, "path": "health", "httpHeaders": [{"name": "X-One", "value": "1"}],
        }});
        for (code, expected) in [
            (200, Ok(())),
            (302, Ok(())),
            (
                500,
                Err("HTTP probe failed with statuscode: 500".to_owned()),
            ),
        ] {
            let serve = async {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut head = vec![0; 4096];
                let count = stream.read(&mut head).await.unwrap();
                let head = String::from_utf8_lossy(&head[..count]).to_lowercase();
                assert!(head.starts_with("get /health http/1.1\r\n"), "{head}");
                assert!(head.contains("x-one: 1\r\n"), "{head}");
                let response = format!("HTTP/1.1 {code} X\r\ncontent-length: 0\r\n\r\n");
                stream.write_all(response.as_bytes()).await.unwrap();
            };
            let (got, ()) = tokio::join!(probe(get.clone()), serve);
            assert_eq!(got, expected);
        }
        assert_eq!(probe(json!({"tcpSocket": {"port": port}})).await, Ok(()));
        drop(listener);
        let refused = probe(json!({"tcpSocket": {"port": port}})).await;
        assert!(refused.unwrap_err().contains("dial tcp"));
        assert!(probe(json!({})).await.is_err());
    }

    #[tokio::test]
    async fn https_is_used_without_a_check_of_the_certificate() {
        let validity = serving::Validity::starting(
            jiff::Timestamp::now(),
            jiff::SignedDuration::from_hours(1),
        );
        let authority = serving::Authority::create("unknown", validity).unwrap();
        let leaf = serving::Leaf::server("another", validity);
        let tls = serving::TlsSource::fixed(
            &authority.issue(&leaf).unwrap(),
            &serving::ClientCertificates::Ignored,
        )
        .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let router = axum::Router::new().route("/", axum::routing::get(async || "up"));
        let stop = tokio_util::sync::CancellationToken::new();
        let server = serving::Server::new(listener, tls, router);
        let probing = async {
            let get = json!({"httpGet": {"port": port, "scheme": "HTTPS"}});
            assert_eq!(probe(get).await, Ok(()));
            stop.cancel();
        };
        tokio::join!(server.run(stop.clone()), probing);
    }
}
