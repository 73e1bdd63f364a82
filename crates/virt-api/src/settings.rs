//! Settings of the server, and its router.

use std::{fmt, sync::Arc};

use ::metrics::Table;
use axum::{
    Router,
    extract::Request,
    middleware::{self, Next},
    response::{IntoResponse as _, Response},
    routing::get,
};
use cluster_view::Configuration;
use kube::Client;
use reconcile::Clock;
use serving::{HttpsClient, Server, TlsSource};
use tokio::net::TcpListener;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    UploadTokens, discovery, fallback, metrics, openapi, refusal::Refusal, uploads, verbs, webhooks,
};

pub struct Settings {
    pub client: Client,
    pub listener: TcpListener,
    /// Our certificate; client certificates are optional (webhooks come without) and checked
    /// against the front proxy's authority.
    pub tls: TlsSource,
    /// The API servers that may name users.
    pub front_proxy: FrontProxy,
    pub webhook_callers: WebhookCallers,
    /// The client for virt-handlers: it trusts their authority and has a certificate with the common name
    /// `virt-api`.
    pub nodes: HttpsClient,
    /// The administrator's configuration; [`run`] keeps it current.
    pub cluster: Configuration,
    /// The configurations of other components in this process, for `/healthz`.
    pub neighbours: Vec<Configuration>,
    pub clock: Clock,
    /// For the group `upload.cdi.kubevirt.io`, which is served only with them.
    pub uploads: Option<UploadTokens>,
    /// Served to every caller at `/metrics`; without tables there is no such path.
    pub metrics: Vec<&'static Table>,
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("front_proxy", &self.front_proxy)
            .finish_non_exhaustive()
    }
}

/// Common names that a forwarding API server may have; an empty list allows every certificate of the
/// authority.
#[derive(Debug, Clone, Default)]
pub struct FrontProxy {
    pub names: Vec<String>,
}

impl FrontProxy {
    pub(crate) fn allows(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|allowed| allowed == name)
    }
}

/// Whose reviews may have an effect. All others are only answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WebhookCallers {
    /// Callers with the certificate of the front proxy: the API server of a single host presents it.
    FrontProxy,
    /// Kubernetes presents no certificate to webhooks, unless its administrator configures one.
    Anyone,
}

/// State that all requests share.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) client: Client,
    pub(crate) nodes: HttpsClient,
    pub(crate) front_proxy: Arc<FrontProxy>,
    pub(crate) webhook_callers: WebhookCallers,
    pub(crate) cluster: Configuration,
    /// Of all components in this process.
    pub(crate) configurations: Arc<[Configuration]>,
    pub(crate) clock: Clock,
    pub(crate) uploads: Option<UploadTokens>,
    pub(crate) tasks: TaskTracker,
    pub(crate) stop: CancellationToken,
}

/// Serves until stopped.
pub async fn run(settings: Settings, stop: CancellationToken) {
    let Settings {
        client,
        listener,
        tls,
        front_proxy,
        webhook_callers,
        nodes,
        cluster,
        neighbours: mut configurations,
        clock,
        uploads,
        metrics: tables,
    } = settings;
    let tasks = TaskTracker::new();
    configurations.push(cluster.clone());
    cluster.follow(&client, &tasks, &stop);
    let shared = Shared {
        client,
        nodes,
        front_proxy: Arc::new(front_proxy),
        webhook_callers,
        cluster,
        configurations: configurations.into(),
        clock,
        uploads,
        tasks: tasks.clone(),
        stop: stop.clone(),
    };
    let mut router = router(shared);
    if !tables.is_empty() {
        router = router.route("/metrics", metrics::endpoint(tables));
    }
    Server::new(listener, tls, router).run(stop).await;
    tasks.close();
    tasks.wait().await;
}

/// A panic is the failure of its request.
async fn confine(request: Request, next: Next) -> Response {
    let served = panics::confined(next.run(request)).await;
    served.unwrap_or_else(|_panicked| {
        let text = "virt-api panicked while it served this request: report the message in its log";
        Refusal::internal(text).into_response()
    })
}

fn router(shared: Shared) -> Router {
    let mut router = Router::new()
        .route("/livez", get(|| async { "ok" }))
        .route("/healthz", get(verbs::healthz::check))
        // Tools that follow a change of the configuration join host and path with a slash too many.
        .route("//healthz", get(verbs::healthz::check));
    router = webhooks::mount(openapi::mount(discovery::mount(router)));
    if shared.uploads.is_some() {
        router = uploads::request::mount(router);
    }
    let mut subresources = Router::new();
    for entry in verbs::ALL {
        for version in entry.object.api().versions {
            subresources = entry.mount(subresources, version);
        }
    }
    router
        .merge(subresources)
        .fallback(fallback::not_found)
        .method_not_allowed_fallback(fallback::wrong_method)
        .layer(middleware::from_fn(confine))
        .with_state(shared)
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;
    use serde_json::Value;
    use tower::ServiceExt as _;

    use super::*;

    async fn bug() -> String {
        panic!("a bug in a handler");
    }

    #[tokio::test]
    async fn panic_of_a_handler_is_a_status_and_other_requests_are_served() {
        let router = Router::new()
            .route("/bug", get(bug))
            .route("/livez", get(|| async { "ok" }))
            .layer(middleware::from_fn(confine));
        for (path, expected) in [("/bug", 500), ("/livez", 200), ("/bug", 500)] {
            let request = Request::builder().uri(path).body(axum::body::Body::empty());
            let response = router.clone().oneshot(request.unwrap()).await.unwrap();
            assert_eq!(response.status().as_u16(), expected, "{path}");
            let body = response.into_body().collect().await.unwrap().to_bytes();
            if expected == 500 {
                let status: Value = serde_json::from_slice(&body).unwrap();
                assert_eq!(status["kind"], "Status");
                assert_eq!(status["reason"], "InternalError");
            }
        }
    }
}
