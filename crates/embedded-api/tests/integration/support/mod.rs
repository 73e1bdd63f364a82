//! An API server in memory, and requests to it without sockets.
#![expect(clippy::unwrap_used, reason = "a test fails so")]
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::time::Duration;

use axum::{Router, body::Body};
use embedded_api::{
    Clock, Database, EmbeddedApi, Identity, ServiceAccounts, ServiceSettings, Settings,
};
use futures::StreamExt as _;
use http::{Method, Request, StatusCode, header};
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::ServiceExt as _;

pub(crate) struct Running {
    pub(crate) api: EmbeddedApi,
    pub(crate) tasks: TaskTracker,
    pub(crate) stop: CancellationToken,
    router: Router,
}

/// The limit of everything that a test waits for; never a measure of speed.
const DEADLINE: Duration = Duration::from_mins(2);

fn begin() -> Timestamp {
    "2026-01-02T03:04:05Z".parse().unwrap()
}

/// A server whose clock never moves: a busy machine changes no timestamp.
pub(crate) fn settings() -> Settings {
    Settings {
        database: Database::Memory,
        clock: Clock::Fixed(begin()),
        front_proxy: None,
        kubelet: None,
        services: ServiceSettings::usual(),
    }
}

pub(crate) async fn start() -> Running {
    start_with(settings()).await
}

/// A server whose clock follows tokio's.
pub(crate) async fn start_with_moving_clock() -> Running {
    start_with(Settings {
        clock: Clock::tokio_from(begin()),
        ..settings()
    })
    .await
}

pub(crate) async fn start_with(settings: Settings) -> Running {
    run(EmbeddedApi::open(settings).await.unwrap())
}

pub(crate) async fn start_with_accounts(accounts: ServiceAccounts) -> Running {
    run(EmbeddedApi::open_with(settings(), accounts).await.unwrap())
}

fn run(api: EmbeddedApi) -> Running {
    let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
    api.run(&tasks, stop.clone());
    Running {
        router: api.router(),
        api,
        tasks,
        stop,
    }
}

impl Running {
    pub(crate) fn client(&self) -> kube::Client {
        self.api.client(Identity::component("test"), "default")
    }

    /// The server for requests over sockets; every client is the test.
    pub(crate) fn router_of_test(&self) -> Router {
        let router = self.router.clone();
        router.layer(axum::Extension(Identity::component("test")))
    }

    /// Sends a request as it is.
    pub(crate) async fn request(&self, mut request: Request<Body>) -> http::Response<Body> {
        request.extensions_mut().insert(Identity::component("test"));
        self.router.clone().oneshot(request).await.unwrap()
    }

    /// Sends a request of the user in its extensions.
    pub(crate) async fn request_as_it_is(&self, request: Request<Body>) -> http::Response<Body> {
        self.router.clone().oneshot(request).await.unwrap()
    }

    pub(crate) async fn send(
        &self,
        method: Method,
        uri: &str,
        content_type: &str,
        body: String,
    ) -> http::Response<Body> {
        let request = Request::builder()
            .method(method)
            .uri(uri)
            .header(header::CONTENT_TYPE, content_type)
            .body(Body::from(body))
            .unwrap();
        self.request(request).await
    }

    pub(crate) async fn call(&self, method: Method, uri: &str, body: Value) -> (StatusCode, Value) {
        self.call_as(method, uri, "application/json", body).await
    }

    pub(crate) async fn call_as(
        &self,
        method: Method,
        uri: &str,
        content_type: &str,
        body: Value,
    ) -> (StatusCode, Value) {
        let text = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        answer(self.send(method, uri, content_type, text).await).await
    }

    /// A request by a user, with additional headers.
    pub(crate) async fn with_headers(
        &self,
        user: Option<&Identity>,
        headers: &[(&str, impl AsRef<[u8]>)],
        method: Method,
        uri: &str,
        body: Value,
    ) -> (StatusCode, Value) {
        let mut request = Request::builder()
            .method(method)
            .uri(uri)
            .header(header::CONTENT_TYPE, "application/json");
        for (name, value) in headers {
            request = request.header(*name, value.as_ref());
        }
        let text = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let mut request = request.body(Body::from(text)).unwrap();
        if let Some(user) = user {
            request.extensions_mut().insert(user.clone());
        }
        answer(self.router.clone().oneshot(request).await.unwrap()).await
    }

    pub(crate) async fn as_user(
        &self,
        user: &Identity,
        method: Method,
        uri: &str,
        body: Value,
    ) -> (StatusCode, Value) {
        self.with_headers(Some(user), &[] as &[(&str, &str)], method, uri, body)
            .await
    }

    pub(crate) async fn patch_as(
        &self,
        user: &Identity,
        uri: &str,
        language: &str,
        body: Value,
    ) -> (StatusCode, Value) {
        let headers = [(header::CONTENT_TYPE.as_str(), language)];
        let mut request = Request::patch(uri).header(headers[0].0, headers[0].1);
        request.extensions_mut().unwrap().insert(user.clone());
        let request = request.body(Body::from(body.to_string())).unwrap();
        answer(self.router.clone().oneshot(request).await.unwrap()).await
    }

    pub(crate) async fn with_token(
        &self,
        token: &str,
        method: Method,
        uri: &str,
        body: Value,
    ) -> (StatusCode, Value) {
        let header = format!("Bearer {token}");
        self.with_headers(None, &[("authorization", &header)], method, uri, body)
            .await
    }

    /// Waits until the object exists and satisfies the condition.
    pub(crate) async fn until(&self, uri: &str, is_expected: impl Fn(&Value) -> bool) -> Value {
        let (collection, name) = uri.rsplit_once('/').unwrap();
        let (_, list) = self.get(collection).await;
        let version = list["metadata"]["resourceVersion"].as_str().unwrap();
        let watch = format!(
            "{collection}?watch=1&fieldSelector=metadata.name%3D{name}&resourceVersion={version}"
        );
        let mut events = self.watch(&watch).await;
        loop {
            let (code, object) = self.get(uri).await;
            if code == StatusCode::OK && is_expected(&object) {
                return object;
            }
            events.next().await;
        }
    }

    pub(crate) async fn get(&self, uri: &str) -> (StatusCode, Value) {
        self.call(Method::GET, uri, Value::Null).await
    }

    pub(crate) async fn create(&self, uri: &str, body: Value) -> Value {
        let (code, object) = self.call(Method::POST, uri, body).await;
        assert_eq!(code, StatusCode::CREATED, "{object}");
        object
    }

    pub(crate) async fn put(&self, uri: &str, body: Value) -> (StatusCode, Value) {
        self.call(Method::PUT, uri, body).await
    }

    pub(crate) async fn patch(
        &self,
        uri: &str,
        language: &str,
        body: Value,
    ) -> (StatusCode, Value) {
        self.call_as(Method::PATCH, uri, language, body).await
    }

    pub(crate) async fn apply(&self, uri: &str, manager: &str, body: Value) -> (StatusCode, Value) {
        let uri = format!("{uri}?fieldManager={manager}&force=true");
        self.patch(&uri, "application/apply-patch+yaml", body).await
    }

    pub(crate) async fn delete(&self, uri: &str) -> (StatusCode, Value) {
        self.call(Method::DELETE, uri, Value::Null).await
    }

    /// Waits until the object is deleted.
    pub(crate) async fn until_deleted(&self, uri: &str) {
        let (collection, name) = uri.rsplit_once('/').unwrap();
        // A watch sends the current state when it is first polled; with a version it misses
        // nothing.
        let (_, list) = self.get(collection).await;
        let version = list["metadata"]["resourceVersion"]
            .as_str()
            .unwrap()
            .to_owned();
        let mut events = self
            .watch(&format!(
                "{collection}?watch=1&fieldSelector=metadata.name%3D{name}&resourceVersion={version}"
            ))
            .await;
        while self.get(uri).await.0 != StatusCode::NOT_FOUND {
            events.next().await;
        }
    }

    pub(crate) async fn watch(&self, uri: &str) -> Events {
        let response = self
            .send(Method::GET, uri, "application/json", String::new())
            .await;
        assert_eq!(response.status(), StatusCode::OK);
        Events {
            body: response.into_body().into_data_stream(),
        }
    }
}

/// Waits for the end of that work.
pub(crate) async fn within_deadline<T>(work: impl Future<Output = T>) -> T {
    let result = tokio::time::timeout(DEADLINE, work).await;
    result.expect("it did not end in time")
}

async fn answer(response: http::Response<Body>) -> (StatusCode, Value) {
    let code = response.status();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    // Unknown paths are answered with a line of text.
    let text = || String::from_utf8(bytes.to_vec()).unwrap().into();
    (
        code,
        serde_json::from_slice(&bytes).unwrap_or_else(|_| text()),
    )
}

/// The events of a watch. Each comes as one chunk.
pub(crate) struct Events {
    body: axum::body::BodyDataStream,
}

impl Events {
    pub(crate) async fn next(&mut self) -> Value {
        let chunk = tokio::time::timeout(DEADLINE, self.body.next())
            .await
            .expect("no event came");
        serde_json::from_slice(&chunk.expect("the watch ended").unwrap()).unwrap()
    }

    pub(crate) async fn ended(&mut self) -> bool {
        self.body.next().await.is_none()
    }

    /// The type of the next event and the name of its object.
    pub(crate) async fn next_brief(&mut self) -> String {
        let event = self.next().await;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        format!(
            "{} {}",
            text(&event["type"]),
            text(&event["object"]["metadata"]["name"])
        )
    }
}

pub(crate) fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "b"}})
}

pub(crate) fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
           "spec": {"containers": [{"name": "c", "image": "i:1"}]}})
}

pub(crate) fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"]},
            "versions": [
                {"name": "v1", "served": true, "storage": true,
                 "subresources": {"scale": {"specReplicasPath": ".spec.replicas",
                                            "statusReplicasPath": ".status.replicas"}},
                 "additionalPrinterColumns": [
                     {"name": "Size", "type": "integer", "jsonPath": ".spec.size"}],
                 "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                     "spec": {"type": "object", "properties": {
                         "size": {"type": "integer", "default": 3, "minimum": 1},
                         "replicas": {"type": "integer"}}},
                     "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}},
                {"name": "v1beta1", "served": true, "storage": false,
                 "subresources": {"status": {}},
                 "schema": {"openAPIV3Schema": {"type": "object",
                     "x-kubernetes-preserve-unknown-fields": true}}},
            ],
        },
    })
}
