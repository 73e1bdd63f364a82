//! Downloads of exports: by tickets, with the rights of the user.

use axum::{
    Router,
    response::{IntoResponse as _, Response},
    routing::get,
};
use embedded_api::Identity;
use http::{HeaderMap, Method, StatusCode, header};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use serving::{Authority, ClientCertificates, Leaf, Server, TlsSource, Validity};
use tokio::net::TcpListener;

use crate::{
    serving::Answer,
    support::{Environment, user},
};

const TOKEN: &str = "secret-token";
const DISK: &str = "the bytes of a disk";

async fn disk(headers: HeaderMap) -> Response {
    let token = headers.get("x-kubevirt-export-token");
    if token.is_none_or(|token| token != TOKEN) {
        return (StatusCode::UNAUTHORIZED, "the token is wrong").into_response();
    }
    for name in [header::AUTHORIZATION, header::COOKIE, header::HOST] {
        let value = headers.get(&name).map(|value| value.to_str().unwrap());
        let is_own = value.is_none_or(|value| value.starts_with("localhost:"));
        assert!(is_own, "{name}");
    }
    DISK.into_response()
}

/// Starts an export server, and creates its export. Returns the address of the disk.
async fn export(environment: &Environment) -> String {
    let validity = Validity::starting(Timestamp::now(), SignedDuration::from_hours(1));
    let authority = Authority::create("test", validity).unwrap();
    let leaf = Leaf::server("localhost", validity);
    let leaf = authority.issue(&leaf).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let tls = TlsSource::fixed(&leaf, &ClientCertificates::Ignored).unwrap();
    let router = Router::new().route("/disk.img", get(disk));
    let server = Server::new(listener, tls, router);
    let stop = environment.api.stop.clone();
    environment.api.tasks.spawn(server.run(stop));
    let url = format!("https://localhost:{port}/disk.img");
    let export = json!({
        "apiVersion": "export.kubevirt.io/v1", "kind": "VirtualMachineExport",
        "metadata": {"name": "copy", "namespace": "default"},
        "spec": {"source": {"apiGroup": "", "kind": "PersistentVolumeClaim", "name": "golden"}},
    });
    environment.create(export.clone()).await;
    let volumes = json!([{"name": "root", "formats": [{"format": "raw", "url": url}]}]);
    let links = json!({"external": {"cert": authority.trust().pem(), "volumes": volumes}});
    let status = json!({"phase": "Ready", "tokenSecretRef": "export-token-copy", "links": links});
    environment
        .merge_status(&export, json!({"status": status}))
        .await;
    environment
        .create(json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "export-token-copy", "namespace": "default"},
            // The token in base64.
            "data": {"token": "c2VjcmV0LXRva2Vu"},
        }))
        .await;
    url
}

async fn ask(environment: &Environment, key: &str, url: &str) -> Answer {
    let body = json!({"namespace": "default", "export": "copy", "url": url});
    let headers = [("authorization", key)];
    environment
        .send(Method::POST, "/console/ticket", &headers, &body.to_string())
        .await
}

#[tokio::test]
async fn file_of_an_export_is_saved_once_by_a_ticket() {
    let environment = Environment::start(user()).await;
    let url = export(&environment).await;
    let key = environment.key().await;
    let answer = ask(&environment, &key, &url).await;
    assert_eq!(answer.code, StatusCode::OK, "{}", answer.body);
    let text = String::from_utf8(answer.bytes.to_vec()).unwrap();
    assert!(!text.contains(TOKEN), "{text}");
    let path = answer.body["path"].as_str().unwrap();
    assert!(path.starts_with("/console/download/"), "{path}");
    // Only the use of the ticket ends it.
    let wrong = environment.send(Method::POST, path, &[], "").await;
    assert_eq!(wrong.code, StatusCode::METHOD_NOT_ALLOWED);
    let file = environment.fetch(path).await;
    assert_eq!(file.code, StatusCode::OK, "{}", file.body);
    assert_eq!(file.bytes, DISK);
    assert_eq!(
        file.headers[header::CONTENT_DISPOSITION],
        "attachment; filename=\"copy-root.img\""
    );
    assert_eq!(
        file.headers[header::CONTENT_TYPE],
        "application/octet-stream"
    );
    assert_eq!(file.headers[header::CACHE_CONTROL], "no-store");
    assert_eq!(file.headers[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
    for used in [path, "/console/download/", "/console/download/other"] {
        let again = environment.fetch(used).await;
        assert_eq!(again.code, StatusCode::NOT_FOUND, "{used}");
    }
    environment.api.stop.cancel();
}

#[tokio::test]
async fn page_gets_to_know_why_there_is_no_file() {
    let environment = Environment::start(user()).await;
    let url = export(&environment).await;
    let key = environment.key().await;
    let metadata = json!({"name": "export-token-copy", "namespace": "default"});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata});
    // "other"
    let other = json!({"data": {"token": "b3RoZXI="}});
    environment.merge(&secret, other).await;
    let failure = async |url: &str| {
        let answer = ask(&environment, &key, url).await;
        assert_eq!(answer.code, StatusCode::BAD_GATEWAY, "{}", answer.body);
        answer.body["message"].as_str().unwrap().to_owned()
    };
    // More often than a user has places: a failure gives its place back.
    for _ in 0..5 {
        let message = failure(&url).await;
        assert!(
            message.ends_with("answers 401 Unauthorized: the token is wrong"),
            "{message}"
        );
    }
    let nowhere = "https://localhost:1/disk.img";
    let volumes = json!([{"name": "root", "formats": [{"format": "raw", "url": nowhere}]}]);
    let status = json!({"status": {"links": {"external": {"volumes": volumes}}}});
    let export = json!({
        "apiVersion": "export.kubevirt.io/v1", "kind": "VirtualMachineExport",
        "metadata": {"name": "copy", "namespace": "default"},
    });
    environment.merge_status(&export, status).await;
    let message = failure(nowhere).await;
    assert!(message.contains("cannot be reached"), "{message}");
    // It does not tell whether something listens there.
    assert!(!message.contains("refused"), "{message}");
    environment.api.stop.cancel();
}

#[tokio::test]
async fn ticket_needs_a_key_and_a_link_of_the_export() {
    let environment = Environment::start(user()).await;
    let url = export(&environment).await;
    let answer = ask(&environment, "Bearer wrong", &url).await;
    assert_eq!(answer.code, StatusCode::UNAUTHORIZED);
    let key = environment.key().await;
    for other in ["https://attacker.example/disk.img", "http://localhost/", ""] {
        let answer = ask(&environment, &key, other).await;
        assert_eq!(answer.code, StatusCode::NOT_FOUND, "{other}");
    }
    let headers = [("authorization", &*key)];
    for body in [
        json!({}),
        json!({"namespace": "default", "export": "../secrets/a", "url": url}),
        Value::Null,
    ] {
        let body = body.to_string();
        let answer = environment
            .send(Method::POST, "/console/ticket", &headers, &body)
            .await;
        assert_eq!(answer.code, StatusCode::BAD_REQUEST, "{body}");
    }
    environment.api.stop.cancel();
}

#[tokio::test]
async fn user_without_a_right_to_the_token_gets_no_ticket() {
    let environment = Environment::start_for_tokens().await;
    let url = export(&environment).await;
    environment.users.add("good", Identity::new("vera", &[]));
    let answer = ask(&environment, "Bearer good", &url).await;
    assert_eq!(answer.code, StatusCode::FORBIDDEN, "{}", answer.body);
    environment.users.add("all", user());
    let answer = ask(&environment, "Bearer all", &url).await;
    assert_eq!(answer.code, StatusCode::OK, "{}", answer.body);
    environment.api.stop.cancel();
}

#[tokio::test]
async fn number_of_tickets_of_a_user_is_bounded() {
    let environment = Environment::start_for_tokens().await;
    let url = export(&environment).await;
    environment.users.add("ann", user());
    let other = Identity::new("bob", &["system:masters"]);
    environment.users.add("bob", other);
    for _ in 0..4 {
        let answer = ask(&environment, "Bearer ann", &url).await;
        assert_eq!(answer.code, StatusCode::OK, "{}", answer.body);
    }
    let answer = ask(&environment, "Bearer ann", &url).await;
    assert_eq!(answer.code, StatusCode::TOO_MANY_REQUESTS);
    let answer = ask(&environment, "Bearer bob", &url).await;
    assert_eq!(answer.code, StatusCode::OK, "{}", answer.body);
    environment.api.stop.cancel();
}

#[tokio::test]
async fn ticket_works_at_a_replica_once() {
    let mut environment = Environment::start_for_tokens().await;
    let url = export(&environment).await;
    environment.users.add("ann", user());
    let answer = ask(&environment, "Bearer ann", &url).await;
    assert_eq!(answer.code, StatusCode::OK, "{}", answer.body);
    let path = answer.body["path"].as_str().unwrap();
    assert!(
        !path.contains(TOKEN) && !path.contains("localhost"),
        "{path}"
    );
    let first = environment.address;
    environment.address = environment.replica;
    let changed = path.replace("/console/download/", "/console/download/x");
    for wrong in [changed.as_str(), path.split_once('.').unwrap().0] {
        let answer = environment.fetch(wrong).await;
        assert_eq!(answer.code, StatusCode::NOT_FOUND, "{wrong}");
    }
    let file = environment.fetch(path).await;
    assert_eq!(file.code, StatusCode::OK, "{}", file.body);
    assert_eq!(file.bytes, DISK);
    let again = environment.fetch(path).await;
    assert_eq!(again.code, StatusCode::NOT_FOUND);
    // Also the server that has issued it takes it once.
    environment.address = first;
    for code in [StatusCode::OK, StatusCode::NOT_FOUND] {
        assert_eq!(environment.fetch(path).await.code, code);
    }
    environment.api.stop.cancel();
}
