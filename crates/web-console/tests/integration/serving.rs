//! The server: headers, keys, origins, and the requests that it passes on.

use axum::body::{Body, Bytes};
use http::{HeaderMap, Method, Request, StatusCode, header};
use http_body_util::BodyExt as _;
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use serde_json::{Value, json};
use web_console::assets::ALL;

use crate::support::{Environment, Outcome, Proxy, user, viewer_rights, vm};

const VMS: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines";

pub(crate) struct Answer {
    pub(crate) code: StatusCode,
    pub(crate) headers: HeaderMap,
    /// Null if it is no JSON.
    pub(crate) body: Value,
    pub(crate) bytes: Bytes,
}

impl Environment {
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", self.address));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::from(body.to_owned())).unwrap();
        let client = Client::builder(TokioExecutor::new()).build_http();
        let response = client.request(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        Answer {
            code: parts.status,
            headers: parts.headers,
            body: serde_json::from_slice(&bytes).unwrap_or_default(),
            bytes,
        }
    }

    /// The header of a tab that is signed in.
    pub(crate) async fn key(&self) -> String {
        let link = self.sessions.issue_link().unwrap();
        let body = json!({"link": link.secret()}).to_string();
        let answer = self
            .send(Method::POST, "/console/session", &[], &body)
            .await;
        assert_eq!(answer.code, StatusCode::OK);
        assert_eq!(answer.body["namespace"], "default");
        format!("Bearer {}", answer.body["key"].as_str().unwrap())
    }

    pub(crate) async fn fetch(&self, path: &str) -> Answer {
        self.send(Method::GET, path, &[], "").await
    }
}

#[tokio::test]
async fn files_have_types_and_a_strict_policy() {
    let environment = Environment::start(user()).await;
    let paths = ALL.iter().map(|asset| (asset.path, asset.media_type));
    for (path, media_type) in paths.chain([("/console/", "text/html; charset=utf-8")]) {
        let answer = environment.fetch(path).await;
        assert_eq!(answer.code, StatusCode::OK, "{path}");
        assert_eq!(answer.headers[header::CONTENT_TYPE], media_type, "{path}");
        let policy = answer.headers[header::CONTENT_SECURITY_POLICY]
            .to_str()
            .unwrap();
        for part in [
            "default-src 'none'",
            "script-src 'self'",
            "frame-ancestors 'none'",
            "trusted-types 'none'",
        ] {
            assert!(policy.contains(part), "{policy}");
        }
        assert!(
            !policy.contains("unsafe") && !policy.contains("http"),
            "{policy}"
        );
        assert_eq!(answer.headers[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
        assert_eq!(answer.headers[header::REFERRER_POLICY], "no-referrer");
    }
    for path in ["/", "/console"] {
        let answer = environment.fetch(path).await;
        assert_eq!(answer.code, StatusCode::SEE_OTHER);
        assert_eq!(answer.headers[header::LOCATION], "/console/");
    }
    let answer = environment
        .send(Method::POST, "/console/js/main.js", &[], "")
        .await;
    assert_eq!(answer.code, StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test]
async fn other_paths_are_not_served() {
    let environment = Environment::start(user()).await;
    let key = environment.key().await;
    let paths = [
        "/console/../Cargo.toml",
        "/console/js/../../Cargo.toml",
        "/console/%2e%2e/Cargo.toml",
        "/console//etc/passwd",
        "/console/js/",
        "/console/js/missing.js",
        "/etc/passwd",
        "/api/v1/namespaces/default/secrets",
        "/api/v1/namespaces/default/pods/p/proxy/",
        "/api/v1/namespaces/default/services/s/proxy/",
        "/metrics",
        "/openapi/v2",
    ];
    for path in paths {
        let answer = environment.fetch(path).await;
        assert_eq!(answer.code, StatusCode::UNAUTHORIZED, "{path}");
        assert!(answer.headers.contains_key(header::WWW_AUTHENTICATE));
        let headers = [("authorization", &*key)];
        let answer = environment.send(Method::GET, path, &headers, "").await;
        assert_eq!(answer.code, StatusCode::NOT_FOUND, "{path}");
        assert!(
            environment.log.last(&format!("GET {path}")).is_none(),
            "{path}"
        );
    }
}

#[tokio::test]
async fn requests_without_the_key_of_a_tab_are_rejected() {
    let environment = Environment::start(user()).await;
    let link = environment.sessions.issue_link().unwrap();
    let link = format!("Bearer {}", link.secret());
    for given in [
        None,
        Some("Bearer "),
        Some("Bearer wrong"),
        Some("Basic wrong"),
        Some(&*link),
    ] {
        let headers: Vec<(&str, &str)> = given
            .map(|key| ("authorization", key))
            .into_iter()
            .collect();
        for path in [VMS, "/console/why/default/a"] {
            let answer = environment.send(Method::GET, path, &headers, "").await;
            assert_eq!(answer.code, StatusCode::UNAUTHORIZED, "{given:?}");
        }
    }
    for body in ["", "{}", "{\"link\": \"wrong\"}", "[]"] {
        let answer = environment
            .send(Method::POST, "/console/session", &[], body)
            .await;
        assert!(answer.code.is_client_error(), "{body}");
        assert!(answer.body["key"].is_null());
    }
    assert!(environment.log.last(&format!("GET {VMS}")).is_none());
}

#[tokio::test]
async fn requests_that_another_site_caused_are_rejected() {
    let environment = Environment::start(user()).await;
    let key = environment.key().await;
    let own = format!("http://{}", environment.address);
    let cases = [
        (vec![("host", "attacker.example")], StatusCode::FORBIDDEN),
        (
            vec![("origin", "http://attacker.example")],
            StatusCode::FORBIDDEN,
        ),
        (vec![("origin", "null")], StatusCode::FORBIDDEN),
        (vec![("origin", &*own)], StatusCode::OK),
    ];
    for (mut headers, expected) in cases {
        headers.push(("authorization", &key));
        for path in [VMS, "/console/"] {
            let answer = environment.send(Method::GET, path, &headers, "").await;
            assert_eq!(answer.code, expected, "{headers:?} {path}");
        }
    }
}

#[tokio::test]
async fn forwarded_requests_have_no_credentials_of_the_browser() {
    let environment = Environment::start(user()).await;
    let key = environment.key().await;
    let headers = [
        ("authorization", &*key),
        ("cookie", "a=b"),
        ("impersonate-user", "root"),
        ("x-remote-user", "root"),
        ("x-forwarded-for", "10.0.0.1"),
        ("accept", "application/json"),
        ("content-type", "application/json"),
    ];
    let body = vm("tiny").to_string();
    let answer = environment.send(Method::POST, VMS, &headers, &body).await;
    assert_eq!(answer.code, StatusCode::CREATED, "{}", answer.body);
    let policy = answer.headers[header::CONTENT_SECURITY_POLICY]
        .to_str()
        .unwrap();
    assert!(policy.contains("sandbox"), "{policy}");
    assert_eq!(answer.headers[header::CACHE_CONTROL], "no-store");
    let arrived = environment.log.last(&format!("POST {VMS}")).unwrap();
    for name in [
        "authorization",
        "cookie",
        "impersonate-user",
        "x-remote-user",
        "x-forwarded-for",
    ] {
        assert!(!arrived.contains_key(name), "{name}");
    }
    assert_eq!(arrived[header::CONTENT_TYPE], "application/json");
}

#[tokio::test]
async fn websockets_are_only_for_devices() {
    let environment = Environment::start(user()).await;
    let key = environment.key().await;
    let upgrade = [
        ("authorization", &*key),
        ("connection", "Upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "ZmVycm92aXJ0IHZpcnRjdGw="),
    ];
    let answer = environment.send(Method::GET, VMS, &upgrade, "").await;
    assert_eq!(answer.code, StatusCode::BAD_REQUEST);
    let device =
        "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachineinstances/a/vnc";
    let answer = environment
        .send(Method::GET, device, &upgrade[..1], "")
        .await;
    assert_eq!(answer.code, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn diagnosis_is_made_with_the_rights_of_the_user() {
    let environment = Environment::start(user()).await;
    let key = environment.key().await;
    environment.create(vm("tiny")).await;
    let headers = [("authorization", &*key)];
    let ask = async |path: &str| environment.send(Method::GET, path, &headers, "").await;
    let answer = ask("/console/why/default/tiny").await;
    assert_eq!(answer.code, StatusCode::OK, "{}", answer.body);
    assert_eq!(answer.body["name"], "tiny");
    assert_eq!(
        ask("/console/why/default/other").await.code,
        StatusCode::NOT_FOUND
    );
    for path in [
        "/console/why/default",
        "/console/why/a/b/c",
        "/console/why/default/..",
    ] {
        assert_eq!(ask(path).await.code, StatusCode::BAD_REQUEST, "{path}");
    }

    let environment = Environment::start(embedded_api::Identity::new("stranger", &[])).await;
    let key = environment.key().await;
    let headers = [("authorization", &*key)];
    let answer = environment
        .send(Method::GET, "/console/why/default/tiny", &headers, "")
        .await;
    assert_eq!(answer.code, StatusCode::FORBIDDEN, "{}", answer.body);
}

#[tokio::test]
async fn server_for_tokens_acts_as_the_user_of_each_request() {
    let environment = Environment::start_for_tokens().await;
    viewer_rights(&environment, "vera").await;
    environment.create(vm("tiny")).await;
    let vera = embedded_api::Identity::new("vera", &[]);
    environment.users.add("good", vera);
    let answer = environment.fetch("/console/sign-in").await;
    assert_eq!(answer.body["method"], "token");
    let cases = [
        (None, StatusCode::UNAUTHORIZED, true),
        (Some("Bearer "), StatusCode::UNAUTHORIZED, true),
        (Some("Basic good"), StatusCode::UNAUTHORIZED, true),
        (Some("Bearer wrong"), StatusCode::UNAUTHORIZED, false),
        (Some("Bearer good"), StatusCode::OK, false),
    ];
    for (given, expected, is_ours) in cases {
        let headers: Vec<(&str, &str)> = given
            .map(|key| ("authorization", key))
            .into_iter()
            .collect();
        let before = environment.log.last(&format!("GET {VMS}"));
        let answer = environment.send(Method::GET, VMS, &headers, "").await;
        assert_eq!(answer.code, expected, "{given:?}");
        // The page tells by the header whether the request has reached the API server.
        let has_scheme = answer.headers.contains_key(header::WWW_AUTHENTICATE);
        assert_eq!(has_scheme, is_ours, "{given:?}");
        if is_ours {
            assert!(before.is_none() && environment.log.last(&format!("GET {VMS}")).is_none());
        }
    }
    let arrived = environment.log.last(&format!("GET {VMS}")).unwrap();
    assert_eq!(arrived[header::AUTHORIZATION], "Bearer good");
    // The diagnosis has the rights of the token, and there are no links.
    let headers = [("authorization", "Bearer good")];
    let why = "/console/why/default/tiny";
    let answer = environment.send(Method::GET, why, &headers, "").await;
    assert_eq!(answer.code, StatusCode::OK, "{}", answer.body);
    let unread = answer.body["unread"].to_string();
    assert!(unread.contains("vera"), "{unread}");
    let answer = environment
        .send(Method::POST, "/console/session", &[], "{\"link\": \"x\"}")
        .await;
    assert_eq!(answer.code, StatusCode::NOT_FOUND);
    // Pages of other sites cannot send requests, whatever name they know this server by.
    for (origin, expected) in [
        ("http://vmhost:8440", StatusCode::OK),
        ("https://attacker.example", StatusCode::FORBIDDEN),
    ] {
        let headers = [
            ("host", "vmhost:8440"),
            ("origin", origin),
            ("authorization", "Bearer good"),
        ];
        let answer = environment.send(Method::GET, VMS, &headers, "").await;
        assert_eq!(answer.code, expected, "{origin}");
    }
    environment.api.stop.cancel();
}

#[tokio::test]
async fn file_goes_to_the_proxy_of_the_configuration_alone() {
    let environment = Environment::start(user()).await;
    let key = environment.key().await;
    let with_token = [
        ("authorization", &*key),
        ("x-upload-token", "token-of-an-upload"),
    ];
    let send = async |method: Method, headers: &[(&str, &str)]| {
        environment
            .send(method, "/console/upload", headers, "image")
            .await
    };
    assert_eq!(
        send(Method::POST, &with_token[1..]).await.code,
        StatusCode::UNAUTHORIZED
    );
    let missing = send(Method::POST, &with_token).await;
    assert_eq!(
        missing.code,
        StatusCode::NOT_IMPLEMENTED,
        "{}",
        missing.body
    );
    let message = missing.body["message"].as_str().unwrap();
    assert!(message.contains("receives no uploads"), "{message}");

    let proxy = Proxy::start(&environment).await;
    let cases = [
        (Method::GET, &with_token[..], StatusCode::METHOD_NOT_ALLOWED),
        (Method::POST, &with_token[..1], StatusCode::BAD_REQUEST),
        (Method::POST, &with_token[..], StatusCode::BAD_REQUEST),
    ];
    for (method, headers, expected) in cases {
        assert_eq!(send(method, headers).await.code, expected);
    }
    assert!(proxy.sizes().is_empty());
    proxy.next(Outcome::Accept);
    assert_eq!(send(Method::POST, &with_token).await.code, StatusCode::OK);
    assert_eq!(proxy.sizes(), ["image".len()]);
    environment.api.stop.cancel();
}
