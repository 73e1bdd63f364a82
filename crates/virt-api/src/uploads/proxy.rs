//! The paths to which clients send disks.

use std::{fmt, sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    response::{IntoResponse as _, Response},
    routing::{any, post},
};
use error_chain::error_chain;
use http::{HeaderMap, Method, StatusCode, header};
use http_body_util::{BodyExt as _, Limited};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::{Api, Client};
use kubevirt_api::annotations;
use reconcile::{Key, merge};
use serde_json::json;
use serving::HttpsClient;
use tokio::time::{self, Instant};

use super::{
    target::{self, Readiness, Receiver},
    token::{Target, UploadTokens},
};
use crate::{node, refusal::Refusal};

/// Clients that wait themselves for the end of the processing use the second path. Both answer when the disk is
/// complete, so that a client learns why it is not.
const PATHS: [&str; 2] = ["/v1beta1/upload", "/v1beta1/upload-async"];
/// The same as forms of a browser.
const FORMS: [&str; 2] = ["/v1beta1/upload-form", "/v1beta1/upload-form-async"];
/// How long a claim may need until its pod is ready, as with CDI.
const PATIENCE: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(500);
/// The longest answer of a pod, in bytes.
const ANSWER: usize = 64 << 10;
/// The longest reason on a claim, in characters.
const REASON: usize = 1000;
const MANAGER: &str = "virt-api";

/// Receives disks for all claims.
#[derive(Clone)]
pub struct UploadProxy {
    tokens: UploadTokens,
    /// Reads claims, pods and nodes.
    client: Client,
    nodes: HttpsClient,
}

impl fmt::Debug for UploadProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UploadProxy").finish_non_exhaustive()
    }
}

impl UploadProxy {
    /// `client` has the rights of virt-api, and `nodes` its certificate for virt-handlers.
    pub fn new(tokens: UploadTokens, client: Client, nodes: HttpsClient) -> Self {
        Self {
            tokens,
            client,
            nodes,
        }
    }

    pub fn router(self) -> Router {
        let mut router = Router::new();
        for path in PATHS {
            router = router.route(path, post(receive).put(receive).head(check));
        }
        for path in FORMS {
            router = router.route(path, any(refuse_form));
        }
        router
            .method_not_allowed_fallback(wrong_method)
            .with_state(Arc::new(self))
    }

    fn token(&self, headers: &HeaderMap) -> Result<Target, Refusal> {
        let missing = || {
            Refusal::unauthorized(
                "the request has no upload token: send \"Authorization: Bearer TOKEN\" with the token of an \
                 UploadTokenRequest",
            )
        };
        let token = bearer(headers).ok_or_else(missing)?;
        let target = self.tokens.check(token);
        target.map_err(|denial| Refusal::unauthorized(denial.to_string()))
    }

    /// Waits until the claim can receive a disk, and finds its pod.
    async fn receiver(&self, target: &Target) -> Result<Receiver, Refusal> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let why = match self.find(target).await? {
                Ok(receiver) => return Ok(receiver),
                Err(why) => why,
            };
            if Instant::now() >= deadline {
                return Err(Refusal::unavailable(why));
            }
            time::sleep(POLL).await;
        }
    }

    /// The pod, or what is awaited.
    async fn find(&self, target: &Target) -> Result<Result<Receiver, String>, Refusal> {
        let client = &self.client;
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), &target.namespace);
        let claim = claims.get_opt(&target.claim).await?;
        if let Readiness::NotYet(why) = target::admit(claim.as_ref(), target)? {
            return Ok(Err(why));
        }
        let pods: Api<Pod> = Api::namespaced(client.clone(), &target.namespace);
        let name = target::pod_name(target);
        let pod = pods.get_opt(&name).await?;
        let receiver = pod.and_then(|pod| target::receiver(&pod, target));
        Ok(receiver.ok_or_else(|| format!("pod {name}, which receives the upload, is gone")))
    }

    async fn send(
        &self,
        target: &Target,
        receiver: &Receiver,
        file: Body,
    ) -> Result<Response, Refusal> {
        let to = node::of_name(&self.client, &receiver.node).await?;
        let request = http::Request::builder()
            .method(Method::PUT)
            .uri(format!("/v1/pods/{}/upload", receiver.uid))
            .header(header::HOST, &to.server_name)
            .body(file)
            .map_err(|err| Refusal::internal(err.to_string()))?;
        let broken = |why: String| {
            Refusal::unavailable(format!(
                "the upload did not reach the node: {why}; send it again"
            ))
        };
        let response = self.nodes.send(&to, request).await;
        let response = response.map_err(|err| broken(error_chain(&err)))?;
        let (parts, body) = response.into_parts();
        let body = Limited::new(body, ANSWER).collect().await;
        let body = body.map_err(|err| broken(err.to_string()))?.to_bytes();
        if is_refused(parts.status) {
            self.note(target, &String::from_utf8_lossy(&body)).await;
        }
        let media_type = parts.headers.get(header::CONTENT_TYPE).cloned();
        let mut answer = (parts.status, body).into_response();
        if let Some(media_type) = media_type {
            answer
                .headers_mut()
                .insert(header::CONTENT_TYPE, media_type);
        }
        Ok(answer)
    }

    /// Writes on the claim why the file was refused. The client has the reason in any case.
    async fn note(&self, target: &Target, why: &str) {
        let why: String = why.trim().chars().take(REASON).collect();
        let body = json!({"metadata": {
            "uid": target.uid,
            "annotations": {annotations::UPLOAD_REFUSED: why},
        }});
        let claims: Api<PersistentVolumeClaim> =
            Api::namespaced(self.client.clone(), &target.namespace);
        let key = Key::new(&target.namespace, &target.claim);
        if let Err(error) = merge(&claims, MANAGER, &key, &body).await {
            let error = error_chain(&error);
            tracing::warn!(%key, %error, "the claim does not say why its upload was refused");
        }
    }
}

/// Whether the pod read the file and refused it. By other codes it did not read one.
fn is_refused(code: StatusCode) -> bool {
    matches!(
        code,
        StatusCode::BAD_REQUEST | StatusCode::INTERNAL_SERVER_ERROR
    )
}

/// Refusals as plain text: clients print the body as it is.
fn plain(refusal: &Refusal) -> Response {
    (refusal.code, format!("{}\n", refusal.message)).into_response()
}

async fn receive(State(proxy): State<Arc<UploadProxy>>, request: Request) -> Response {
    let received = async {
        let target = proxy.token(request.headers())?;
        let receiver = proxy.receiver(&target).await?;
        proxy.send(&target, &receiver, request.into_body()).await
    };
    received.await.unwrap_or_else(|refusal| plain(&refusal))
}

/// Clients ask whether there is the path, with their token.
async fn check(State(proxy): State<Arc<UploadProxy>>, request: Request) -> Response {
    match proxy.token(request.headers()) {
        Ok(_) => StatusCode::OK.into_response(),
        Err(refusal) => plain(&refusal),
    }
}

async fn refuse_form() -> Response {
    let message = "forms are not supported: send the file itself as the body of a POST to \
                   /v1beta1/upload, for example with virtctl image-upload";
    plain(&Refusal::not_implemented(message))
}

async fn wrong_method() -> Response {
    plain(&Refusal::wrong_method("send the file by POST"))
}

/// The token in the headers.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let header = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = header.trim().split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}
