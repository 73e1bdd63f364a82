//! Servers and clients of this crate talking to each other over loopback.

use std::os::unix::fs::PermissionsExt as _;

use axum::{Extension, Router, body::Body, routing::get};
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
        || "nobody".to_owned(),
        |c| {
            format!(
                "{} of {}",
                c.common_name.unwrap_or_default(),
                c.organizations.join("+")
            )
        },
    )
}

async fn ask(client: &HttpsClient, target: &Target) -> Result<String, ClientError> {
    let answer = client
        .send(target, Request::get("/").body(Body::empty()).unwrap())
        .await?;
    Ok(String::from_utf8(
        answer
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
        ask(&named, &running.target).await.unwrap(),
        "ann of admins+staff"
    );
    assert_eq!(ask(&nameless, &running.target).await.unwrap(), "nobody");
    running.stop.cancel();
    running.tasks.close();
    running.tasks.wait().await;
}

#[tokio::test]
async fn required_certificate_keeps_others_out() {
    let (ca, other) = (authority(), authority());
    let server = ca.issue(&Leaf::server("server.test", validity())).unwrap();
    let stranger = other.issue(&Leaf::user("ann", &[], validity())).unwrap();
    let running = serve(&server, &ClientCertificates::Required(ca.trust()), app()).await;
    for identity in [None, Some(&stranger)] {
        let client = HttpsClient::new(&ca.trust(), identity, running.tasks.clone()).unwrap();
        ask(&client, &running.target).await.unwrap_err();
    }
}

#[tokio::test]
async fn client_refuses_a_server_with_another_name_or_authority() {
    let (ca, other) = (authority(), authority());
    let server = ca
        .issue(&Leaf::server("elsewhere.test", validity()))
        .unwrap();
    let running = serve(&server, &ClientCertificates::Ignored, app()).await;
    let client = HttpsClient::new(&ca.trust(), None, running.tasks.clone()).unwrap();
    assert!(matches!(
        ask(&client, &running.target).await,
        Err(ClientError::Handshake { .. })
    ));
    let right_name = Target {
        server_name: "elsewhere.test".into(),
        ..running.target.clone()
    };
    ask(&client, &right_name).await.unwrap();
    let wary = HttpsClient::new(&other.trust(), None, running.tasks.clone()).unwrap();
    assert!(matches!(
        ask(&wary, &right_name).await,
        Err(ClientError::Handshake { .. })
    ));
}

#[tokio::test]
async fn swapped_certificate_is_shown_to_the_next_caller() {
    let (old, new) = (authority(), authority());
    let first = old.issue(&Leaf::server("server.test", validity())).unwrap();
    let second = new.issue(&Leaf::server("server.test", validity())).unwrap();
    let running = serve(&first, &ClientCertificates::Ignored, app()).await;
    let client = HttpsClient::new(&new.trust(), None, running.tasks.clone()).unwrap();
    ask(&client, &running.target).await.unwrap_err();
    running
        .swap
        .replace(&second, &ClientCertificates::Ignored)
        .unwrap();
    ask(&client, &running.target).await.unwrap();
    let broken = Identity::from_pem("", "");
    running
        .swap
        .replace(&broken, &ClientCertificates::Ignored)
        .unwrap_err();
    ask(&client, &running.target).await.unwrap();
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
async fn upgrade_passes_through_a_proxy() {
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
        let answer = forward.send(&target, request).await.unwrap();
        upgrade::join(caller, answer, &tasks, stop)
    });
    let front = serve(&identity, &ClientCertificates::Ignored, proxy).await;
    let request = Request::get("/")
        .header(header::CONNECTION, "Upgrade")
        .header(header::UPGRADE, "echo")
        .body(Body::empty())
        .unwrap();
    let answer = client.send(&front.target, request).await.unwrap();
    assert_eq!(answer.status(), StatusCode::SWITCHING_PROTOCOLS);
    let mut stream = hyper_util::rt::TokioIo::new(hyper::upgrade::on(answer).await.unwrap());
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
fn who_is_believed_depends_on_the_authority_the_name_and_the_time() {
    let (known, stranger) = (authority(), authority());
    let leaf = Leaf::server("server.test", validity());
    let (good, strange) = (known.issue(&leaf).unwrap(), stranger.issue(&leaf).unwrap());
    let trust = known.trust();
    let now = Timestamp::now();
    let later = now.checked_add(SignedDuration::from_hours(2)).unwrap();
    for (identity, name, time, expected) in [
        (&good, "server.test", now, true),
        (&good, "other.test", now, false),
        (&good, "no name", now, false),
        (&good, "server.test", later, false),
        (&strange, "server.test", now, false),
    ] {
        let is_believed = believes(&trust, identity, name, time).unwrap();
        assert_eq!(is_believed, expected, "{name} at {time}");
    }
}
