//! A server that receives data volumes, and its upload proxy.

use std::sync::Arc;

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::State,
    response::{IntoResponse as _, Response},
    routing::post,
};
use http::{HeaderMap, StatusCode, header};
use parking_lot::Mutex;
use serde_json::json;
use tokio::net::TcpListener;

use super::{Environment, devices::UPLOAD_TOKEN};

const LIMIT: usize = 64 << 20;

/// What the proxy does with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Reads it and refuses it.
    Refuse,
    /// Reads none of it.
    Hang,
    Accept,
}

/// The proxy: what it does with the next file, and the sizes of those that it accepted.
#[derive(Clone, Debug)]
pub(crate) struct Proxy {
    outcome: Arc<Mutex<Outcome>>,
    sizes: Arc<Mutex<Vec<usize>>>,
}

impl Proxy {
    /// Starts it and writes its address into CDI's configuration.
    pub(crate) async fn start(environment: &Environment) -> Self {
        environment.api.install_importer().await;
        let proxy = Self {
            outcome: Arc::new(Mutex::new(Outcome::Refuse)),
            sizes: Arc::default(),
        };
        let router = Router::new()
            .route("/v1beta1/upload", post(receive))
            .with_state(proxy.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = environment.api.stop.clone();
        environment.api.tasks.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                served = axum::serve(listener, router) => served.unwrap(),
            }
        });
        environment
            .create(json!({
                "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "CDIConfig",
                "metadata": {"name": "config"},
                "status": {"uploadProxyURL": format!("http://{address}")},
            }))
            .await;
        proxy
    }

    pub(crate) fn next(&self, outcome: Outcome) {
        *self.outcome.lock() = outcome;
    }

    pub(crate) fn sizes(&self) -> Vec<usize> {
        self.sizes.lock().clone()
    }
}

async fn receive(State(proxy): State<Proxy>, headers: HeaderMap, body: Body) -> Response {
    assert_eq!(
        headers[header::AUTHORIZATION],
        format!("Bearer {UPLOAD_TOKEN}")
    );
    assert!(!headers.contains_key("x-upload-token") && !headers.contains_key(header::COOKIE));
    let outcome = *proxy.outcome.lock();
    if outcome == Outcome::Hang {
        std::future::pending::<()>().await;
    }
    let file = to_bytes(body, LIMIT).await.unwrap();
    if outcome == Outcome::Refuse {
        return (StatusCode::BAD_REQUEST, "the image is damaged\n").into_response();
    }
    proxy.sizes.lock().push(file.len());
    StatusCode::OK.into_response()
}
