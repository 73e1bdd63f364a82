//! Servers and clients of this crate, connected over loopback.

use std::os::unix::fs::PermissionsExt as _;

use axum::{Extension, Router, body::Body, routing::get};
use futures::StreamExt as _;
use http::{Request, StatusCode, header};
use http_body_util::BodyExt as _;
use jiff::{SignedDuration, Timestamp};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::*;

fn validity() -> Validity {
    Validity::starting(Timestamp::now(), SignedDuration::from_hours(1))
}

fn authority() -> Authority {
    Authority::create("test", validity()).unwrap()
}

struct Running {
    target: Target,
    swap: TlsSwap,
    stop: CancellationToken,
    tasks: TaskTracker,
}

async fn serve(identity: &Identity, clients: &ClientCertificates, router: Router) -> Running {
    let (swap, tls) = TlsSource::swappable(identity, clients).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = Server::new(listener, tls, router);
    let target = Target::at(server.local_addr().unwrap(), "server.test");
    let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
    tasks.spawn(server.run(stop.clone()));
    Running {
        target,
        swap,
        stop,
        tasks,
    }
}

async fn whoami(Extension(peer): Extension<Peer>) -> String {
    peer.certificate.map_or_else(
        || "anonymous".to_owned(),
        |c| {
            format!(
                "{} of {}",
                c.common_name.unwrap_or_default(),
                c.organizations.join("+")
            )
        },
    )
}

async fn request_identity(client: &HttpsClient, target: &Target) -> Result<String, ClientError> {
    let response = client
        .send(target, Request::get("/").body(Body::empty()).unwrap())
        .await?;
    Ok(String::from_utf8(
        response
            .into_body()
            .collect()
            .await
            .unwrap()
            .to_bytes()
            .to_vec(),
    )
    .unwrap())
}

fn app() -> Router {
    Router::new().route("/", get(whoami))
}

#[tokio::test]
async fn server_knows_the_names_in_a_client_certificate() {
    let ca = authority();
    let server = ca.issue(&Leaf::server("server.test", validity())).unwrap();
    let user = ca
        .issue(&Leaf::user("ann", &["admins", "staff"], validity()))
        .unwrap();
    let running = serve(&server, &ClientCertificates::Optional(ca.trust()), app()).await;
    let named = HttpsClient::new(&ca.trust(), Some(&user), running.tasks.clone()).unwrap();
    let nameless = HttpsClient::new(&ca.trust(), None, running.tasks.clone()).unwrap();
    assert_eq!(
        request_identity(&named, &running.target).await.unwrap(),
        "ann of admins+staff"
    );
    assert_eq!(
        request_identity(&nameless, &running.target).await.unwrap(),
        "anonymous"
    );
    running.stop.cancel();
    running.tasks.close();
    running.tasks.wait().await;
}

#[tokio::test]
async fn server_refuses_clients_without_a_required_certificate() {
    let (ca, other) = (authority(), authority());
    let server = ca.issue(&Leaf::server("server.test", validity())).unwrap();
    let untrusted = other.issue(&Leaf::user("ann", &[], validity())).unwrap();
    let running = serve(&server, &ClientCertificates::Required(ca.trust()), app()).await;
    for identity in [None, Some(&untrusted)] {
        let client = HttpsClient::new(&ca.trust(), identity, running.tasks.clone()).unwrap();
        request_identity(&client, &running.target)
            .await
            .unwrap_err();
    }
}

#[tokio::test]
async fn connection_that_may_not_be_silent_is_watched_by_the_kernel() {
    let ca = authority();
    let server = ca.issue(&Leaf::server("server.test", validity())).unwrap();
    let running = serve(&server, &ClientCertificates::Ignored, app()).await;
    let client = HttpsClient::new(&ca.trust(), None, running.tasks.clone()).unwrap();
    let limit = std::time::Duration::from_secs(8);
    let watched = client.clone().ending_after_silence(limit);
    for (client, expected) in [(client, 0), (watched, 8000)] {
        let stream = client.connect(&running.target).await.unwrap();
        let found = rustix::net::sockopt::tcp_user_timeout(stream.get_ref().0);
        assert_eq!(found.unwrap(), expected);
    }
    running.stop.cancel();
    running.tasks.close();
    running.tasks.wait().await;
}

/// The class of CVE-2025-64434.
#[tokio::test]
async fn client_refuses_a_server_with_another_name_or_authority() {
    let (ca, other) = (authority(), authority());
    let server = ca
        .issue(&Leaf::server("elsewhere.test", validity()))
        .unwrap();
    let running = serve(&server, &ClientCertificates::Ignored, app()).await;
    let client = HttpsClient::new(&ca.trust(), None, running.tasks.clone()).unwrap();
    assert!(matches!(
        request_identity(&client, &running.target).await,
        Err(ClientError::Handshake { .. })
    ));
    let right_name = Target {
        server_name: "elsewhere.test".into(),
        ..running.target.clone()
    };
    request_identity(&client, &right_name).await.unwrap();
    let wary = HttpsClient::new(&other.trust(), None, running.tasks.clone()).unwrap();
    assert!(matches!(
        request_identity(&wary, &right_name).await,
        Err(ClientError::Handshake { .. })
    ));
}

#[tokio::test]
async fn replaced_certificate_is_presented_to_the_next_client() {
    let (old, new) = (authority(), authority());
    let first = old.issue(&Leaf::server("server.test", validity())).unwrap();
    let second = new.issue(&Leaf::server("server.test", validity())).unwrap();
    let running = serve(&first, &ClientCertificates::Ignored, app()).await;
    let client = HttpsClient::new(&new.trust(), None, running.tasks.clone()).unwrap();
    request_identity(&client, &running.target)
        .await
        .unwrap_err();
    running
        .swap
        .replace(&second, &ClientCertificates::Ignored)
        .unwrap();
    request_identity(&client, &running.target).await.unwrap();
    let broken = Identity::from_pem("", "");
    running
        .swap
        .replace(&broken, &ClientCertificates::Ignored)
        .unwrap_err();
    request_identity(&client, &running.target).await.unwrap();
}

#[tokio::test]
async fn address_with_too_many_connections_waits_for_one_to_end() {
    let ca = authority();
    let identity = ca.issue(&Leaf::server("server.test", validity())).unwrap();
    let tls = TlsSource::fixed(&identity, &ClientCertificates::Ignored).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let limits = Limits {
        per_address: 1,
        ..Limits::STANDARD
    };
    let server = Server::new(listener, tls, app()).with_limits(limits);
    let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
    tasks.spawn(server.run(stop.clone()));
    let mut first = tokio::net::TcpStream::connect(address).await.unwrap();
    let mut second = tokio::net::TcpStream::connect(address).await.unwrap();
    // The kernel accepted the second; the server closes it. The first waits for a handshake.
    assert_eq!(second.read(&mut [0; 1]).await.unwrap_or(0), 0);
    first.write_all(b"x").await.unwrap();
    drop(first);
    let client = HttpsClient::new(&ca.trust(), None, tasks.clone()).unwrap();
    let target = Target::at(address, "server.test");
    let served = async {
        while request_identity(&client, &target).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    let deadline = std::time::Duration::from_mins(1);
    tokio::time::timeout(deadline, served).await.unwrap();
    stop.cancel();
}

async fn echo(mut request: Request<Body>) -> http::Response<Body> {
    let upgraded = upgrade::take(&mut request);
    TaskTracker::new().spawn(async move {
        let stream = hyper_util::rt::TokioIo::new(upgraded.await.unwrap());
        let (mut read, mut write) = tokio::io::split(stream);
        tokio::io::copy(&mut read, &mut write).await.unwrap();
    });
    http::Response::builder()
        .status(StatusCode::SWITCHING_PROTOCOLS)
        .header(header::CONNECTION, "upgrade")
        .header(header::UPGRADE, "echo")
        .body(Body::empty())
        .unwrap()
}

#[tokio::test]
async fn proxy_forwards_an_upgrade() {
    let ca = authority();
    let identity = ca.issue(&Leaf::server("server.test", validity())).unwrap();
    let backend = serve(
        &identity,
        &ClientCertificates::Ignored,
        Router::new().route("/", get(echo)),
    )
    .await;
    let tasks = backend.tasks.clone();
    let client = HttpsClient::new(&ca.trust(), None, tasks.clone()).unwrap();
    let (forward, target, stop) = (client.clone(), backend.target.clone(), backend.stop.clone());
    let proxy = Router::new().fallback(move |mut request: Request<Body>| async move {
        assert!(upgrade::is_upgrade(request.headers()));
        let caller = upgrade::take(&mut request);
        let response = forward.send(&target, request).await.unwrap();
        upgrade::join(caller, response, &tasks, stop)
    });
    let front = serve(&identity, &ClientCertificates::Ignored, proxy).await;
    let request = Request::get("/")
        .header(header::CONNECTION, "Upgrade")
        .header(header::UPGRADE, "echo")
        .body(Body::empty())
        .unwrap();
    let response = client.send(&front.target, request).await.unwrap();
    assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
    let mut stream = hyper_util::rt::TokioIo::new(hyper::upgrade::on(response).await.unwrap());
    stream.write_all(b"ping").await.unwrap();
    let mut back = [0; 4];
    stream.read_exact(&mut back).await.unwrap();
    assert_eq!(&back, b"ping");
}

#[test]
fn authority_survives_its_files_and_keys_are_private() {
    let folder = std::env::temp_dir().join(format!("serving-pki-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (certificate, key) = (folder.join("ca.crt"), folder.join("ca.key"));
    let made = authority();
    made.save(&certificate, &key).unwrap();
    assert_eq!(
        std::fs::metadata(&key).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let read = Authority::load(&certificate, &key).unwrap();
    assert_eq!(read.trust(), made.trust());
    let leaf = read
        .issue(&Leaf::server("server.test", validity()))
        .unwrap();
    assert!(leaf.valid_until().unwrap() > Timestamp::now());
    assert!(!format!("{leaf:?} {read:?}").contains("PRIVATE"));
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn certificate_is_accepted_by_authority_name_and_time() {
    let (known, unknown) = (authority(), authority());
    let leaf = Leaf::server("server.test", validity());
    let (good, untrusted) = (known.issue(&leaf).unwrap(), unknown.issue(&leaf).unwrap());
    let trust = known.trust();
    let now = Timestamp::now();
    let later = now.checked_add(SignedDuration::from_hours(2)).unwrap();
    for (identity, name, time, expected) in [
        (&good, "server.test", now, true),
        (&good, "other.test", now, false),
        (&good, "no name", now, false),
        (&good, "server.test", later, false),
        (&untrusted, "server.test", now, false),
    ] {
        let is_accepted = believes(&trust, identity, name, time).unwrap();
        assert_eq!(is_accepted, expected, "{name} at {time}");
    }
}

async fn bug() -> String {
    panic!("a bug in a handler");
}

/// A body that panics after its first part.
async fn broken_body() -> Body {
    Body::from_stream(futures::stream::iter(0..2).then(async |part| {
        // The first part is sent while the second is waited for.
        tokio::task::yield_now().await;
        assert!(part == 0, "a bug in a body");
        Ok::<_, std::convert::Infallible>("first part")
    }))
}

#[tokio::test]
async fn panic_ends_one_request_and_the_server_goes_on() {
    let ca = authority();
    let server = ca.issue(&Leaf::server("server.test", validity())).unwrap();
    let router = app()
        .route("/bug", get(bug))
        .route("/body", get(broken_body));
    let running = serve(&server, &ClientCertificates::Optional(ca.trust()), router).await;
    let client = HttpsClient::new(&ca.trust(), None, running.tasks.clone()).unwrap();
    let request = |path: &str| Request::get(path).body(Body::empty()).unwrap();
    for _ in 0..2 {
        let response = client.send(&running.target, request("/bug")).await.unwrap();
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        let text = response.into_body().collect().await.unwrap().to_bytes();
        assert!(text.starts_with(b"the server panicked"), "{text:?}");
        let response = client.send(&running.target, request("/body")).await;
        let body = response.unwrap().into_body().collect().await;
        assert!(
            body.is_err(),
            "the client notices that the body is not whole"
        );
        let identity = request_identity(&client, &running.target).await;
        assert_eq!(identity.unwrap(), "anonymous");
    }
    running.stop.cancel();
    running.tasks.close();
    running.tasks.wait().await;
}

/// A server in a guest, which asks for a certificate and has one of an authority that the client does not know.
async fn server_in_a_guest(
    known: &Authority,
    stream: tokio::io::DuplexStream,
) -> std::io::Result<Option<String>> {
    let own = authority();
    let identity = own.issue(&Leaf::server("guest", validity())).unwrap();
    let clients = ClientCertificates::Required(known.trust());
    let source = TlsSource::fixed(&identity, &clients).unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(source.current());
    let mut stream = acceptor.accept(stream).await?;
    let mut text = [0; 5];
    stream.read_exact(&mut text).await?;
    stream.write_all(&text).await?;
    stream.shutdown().await?;
    let peer = stream.get_ref().1.peer_certificates();
    let leaf = peer.and_then(<[_]>::first).and_then(PeerCertificate::parse);
    Ok(leaf.and_then(|leaf| leaf.common_name))
}

#[tokio::test]
async fn server_without_a_known_authority_learns_who_connects() {
    let known = authority();
    let name = "kubevirt.io:system:client:vsock";
    let identity = known.issue(&Leaf::user(name, &[], validity())).unwrap();
    let (near, far) = tokio::io::duplex(64 << 10);
    let client = async {
        let mut stream = unverified::connect_as(near, &identity).await.unwrap();
        stream.write_all(b"hello").await.unwrap();
        let mut text = Vec::new();
        stream.read_to_end(&mut text).await.unwrap();
        text
    };
    let (text, found) = tokio::join!(client, server_in_a_guest(&known, far));
    assert_eq!(text, b"hello");
    assert_eq!(found.unwrap().as_deref(), Some(name));
}

#[tokio::test]
async fn certificate_of_another_authority_is_refused_by_the_server() {
    let identity = authority()
        .issue(&Leaf::user("a", &[], validity()))
        .unwrap();
    let (near, far) = tokio::io::duplex(64 << 10);
    let known = authority();
    let client = async {
        // With TLS 1.3 the client learns of the refusal when it reads.
        let mut stream = unverified::connect_as(near, &identity).await?;
        stream.write_all(b"hello").await?;
        stream.read_to_end(&mut Vec::new()).await
    };
    let (answer, found) = tokio::join!(client, server_in_a_guest(&known, far));
    found.unwrap_err();
    answer.unwrap_err();
}

#[test]
fn client_is_believed_by_its_name_authority_and_time() {
    let (known, other, now) = (authority(), authority(), Timestamp::now());
    let identity = known.issue(&Leaf::user("a", &[], validity())).unwrap();
    let server = known.issue(&Leaf::server("a", validity())).unwrap();
    let late = now.checked_add(SignedDuration::from_hours(2)).unwrap();
    for (authority, identity, name, time, expected) in [
        (&known, &identity, "a", now, true),
        (&known, &identity, "b", now, false),
        (&other, &identity, "a", now, false),
        (&known, &identity, "a", late, false),
        (&known, &server, "a", now, false),
    ] {
        let believed = believes_client(&authority.trust(), identity, name, time);
        assert_eq!(believed.unwrap(), expected, "{name} {time}");
    }
}
