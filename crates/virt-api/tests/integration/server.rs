//! A running virt-api behind an API server in memory, and requests as the API server forwards them.
#![expect(clippy::unwrap_used, reason = "a test fails so")]

use std::{net::SocketAddr, sync::Arc};

use axum::{
    Router,
    body::{Body, Bytes},
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use embedded_api::Identity as User;
use http::{Method, Request, StatusCode, header};
use http_body_util::BodyExt as _;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use kube::{Api, api::PostParams};
use reconcile::Clock;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use serving::{
    Authority, ClientCertificates, HttpsClient, Leaf, Server, Target, TlsSource, Validity,
};
use test_cluster::TestApi;
use tokio::net::TcpListener;
use tokio_tungstenite::{WebSocketStream, tungstenite::protocol::Role};
use virt_api::{Configuration, FrontProxy, Settings, Signer, UploadTokens, WebhookCallers};

pub(crate) type Stream = WebSocketStream<TokioIo<Upgraded>>;

pub(crate) struct Running {
    pub(crate) api: TestApi,
    authority: Authority,
    target: Target,
    front_proxy: HttpsClient,
    anonymous: HttpsClient,
    pub(crate) tokens: UploadTokens,
    /// Of the server.
    pub(crate) configuration: Configuration,
    /// Of another component in the server's process; it follows no changes.
    pub(crate) neighbour: Configuration,
}

/// A response of which the body was read.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: StatusCode,
    pub(crate) media_type: String,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

impl Running {
    pub(crate) async fn start() -> Self {
        let api = TestApi::start(User::component("test")).await;
        let validity = Validity::starting(Timestamp::now(), SignedDuration::from_hours(1));
        let authority = Authority::create("test", validity).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let target = Target::at(listener.local_addr().unwrap(), "localhost");
        let leaf = authority
            .issue(&Leaf::server("localhost", validity))
            .unwrap();
        let proxy = Leaf::user("front-proxy", &[], validity);
        let proxy = authority.issue(&proxy).unwrap();
        let trust = authority.trust();
        let tokens = UploadTokens::new(Arc::new(PlainSigner), Clock::system());
        let client = |identity| HttpsClient::new(&trust, identity, api.tasks.clone()).unwrap();
        let [configuration, neighbour] = ["kubevirt"; 2].map(Configuration::new);
        let settings = Settings {
            client: api.client.clone(),
            listener,
            tls: TlsSource::fixed(&leaf, &ClientCertificates::Optional(authority.trust())).unwrap(),
            front_proxy: FrontProxy {
                names: vec!["front-proxy".to_owned()],
            },
            webhook_callers: WebhookCallers::FrontProxy,
            nodes: client(None),
            cluster: configuration.clone(),
            neighbours: vec![neighbour.clone()],
            clock: Clock::system(),
            uploads: Some(tokens.clone()),
            metrics: vec![&virt_api::METRICS],
        };
        api.tasks.spawn(virt_api::run(settings, api.stop.clone()));
        Self {
            target,
            front_proxy: client(Some(&proxy)),
            anonymous: client(None),
            authority,
            api,
            tokens,
            configuration,
            neighbour,
        }
    }

    /// Starts a server with a certificate of this name, which answers 200 to everything.
    pub(crate) async fn serve_as(&self, name: &str) -> SocketAddr {
        self.serve(name, Router::new().fallback(async || "")).await
    }

    /// A client that trusts servers of [`Self::serve`].
    pub(crate) fn nodes(&self) -> HttpsClient {
        self.anonymous.clone()
    }

    /// Starts a server with a certificate of this name.
    pub(crate) async fn serve(&self, name: &str, answers: Router) -> SocketAddr {
        let validity = Validity::starting(Timestamp::now(), SignedDuration::from_hours(1));
        let leaf = self.authority.issue(&Leaf::server(name, validity)).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let tls = TlsSource::fixed(&leaf, &ClientCertificates::Ignored).unwrap();
        let server = Server::new(listener, tls, answers);
        self.api.tasks.spawn(server.run(self.api.stop.clone()));
        address
    }

    /// Creates an object in the namespace `default`.
    pub(crate) async fn create<K>(&self, object: Value)
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
            + Clone
            + std::fmt::Debug
            + Serialize
            + DeserializeOwned,
    {
        let object = serde_json::from_value(object).unwrap();
        let api: Api<K> = Api::default_namespaced(self.api.client.clone());
        api.create(&PostParams::default(), &object).await.unwrap();
    }

    /// A request of a user without groups.
    pub(crate) async fn request_of(&self, user: &str, method: &Method, path: &str) -> Answer {
        let request = Request::builder().method(method).uri(path);
        let request = request.header("x-remote-user", user);
        send(&self.front_proxy, &self.target, request).await
    }

    /// A request of an administrator.
    pub(crate) async fn request(&self, method: &Method, path: &str) -> Answer {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("x-remote-user", "admin")
            .header("x-remote-group", "system:masters");
        send(&self.front_proxy, &self.target, request).await
    }

    /// A node whose virt-handler has this address.
    pub(crate) async fn add_node(&self, name: &str, address: SocketAddr) {
        let key = kubevirt_api::annotations::HANDLER_ADDRESS;
        let annotations = json!({key: address.to_string()});
        let node = json!({"metadata": {"name": name, "annotations": annotations}});
        let node: Node = serde_json::from_value(node).unwrap();
        let nodes: Api<Node> = Api::all(self.api.client.clone());
        nodes.create(&PostParams::default(), &node).await.unwrap();
    }

    /// A stream of an administrator.
    pub(crate) async fn open(&self, path: &str) -> Stream {
        let request = Request::get(path)
            .header("x-remote-user", "admin")
            .header("x-remote-group", "system:masters")
            .header(header::HOST, "localhost")
            .header(header::CONNECTION, "Upgrade")
            .header(header::UPGRADE, "websocket")
            .header(header::SEC_WEBSOCKET_VERSION, "13")
            .header(header::SEC_WEBSOCKET_KEY, "c3RyZWFtcyBvZiB0ZXN0cw==")
            .header(header::SEC_WEBSOCKET_PROTOCOL, "plain.kubevirt.io");
        let request = request.body(Body::empty()).unwrap();
        let mut response = self.front_proxy.send(&self.target, request).await.unwrap();
        assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
        let upgraded = hyper::upgrade::on(&mut response).await.unwrap();
        WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Client, None).await
    }

    /// A review that the API server did not send.
    pub(crate) async fn post_without_certificate(&self, path: &str) -> Answer {
        send(&self.anonymous, &self.target, Request::post(path)).await
    }

    /// A request of an administrator with a body.
    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        let request = Request::post(path)
            .header("x-remote-user", "admin")
            .header("x-remote-group", "system:masters");
        send_body(&self.front_proxy, &self.target, request, body.to_string()).await
    }

    /// A request that did not come through the API server.
    pub(crate) async fn request_without_certificate(&self, path: &str) -> Answer {
        send(&self.anonymous, &self.target, Request::get(path)).await
    }
}

/// Signs nothing: the claims are the token.
struct PlainSigner;

impl Signer for PlainSigner {
    fn sign(&self, claims: &Value) -> Result<String, String> {
        Ok(BASE64_STANDARD.encode(claims.to_string()))
    }

    fn claims(&self, token: &str) -> Option<Value> {
        serde_json::from_slice(&BASE64_STANDARD.decode(token).ok()?).ok()
    }
}

async fn send(client: &HttpsClient, target: &Target, request: http::request::Builder) -> Answer {
    send_body(client, target, request, String::new()).await
}

async fn send_body(
    client: &HttpsClient,
    target: &Target,
    request: http::request::Builder,
    body: String,
) -> Answer {
    let request = request.body(Body::from(body)).unwrap();
    let response = client.send(target, request).await.unwrap();
    let media_type = response.headers().get(header::CONTENT_TYPE);
    let media_type = media_type.map(|value| value.to_str().unwrap().to_owned());
    Answer {
        code: response.status(),
        media_type: media_type.unwrap_or_default(),
        body: response.into_body().collect().await.unwrap().to_bytes(),
    }
}
