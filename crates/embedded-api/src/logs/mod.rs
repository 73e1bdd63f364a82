//! Requests to kubelets, and logs of pods: proxied from the kubelet of the pod's node.
//!
//! [`socket`] sends a log over a websocket.

mod socket;

use apimachinery::Status;
use axum::{body::Body, response::Response};
use error_chain::error_chain;
use http::{Request, StatusCode, Uri};
use serde_json::Value;
use serving::{HttpsClient, Target, upgrade};

use socket::LogSocket;

use crate::{
    api::Api,
    error::ApiError,
    fairness,
    request::query,
    store::Collection,
    verbs::{Call, read},
};

/// The largest message of a failed request that is read.
const MAX_MESSAGE: usize = 4 << 10;

/// Streams a log, over a websocket if the client requests one.
pub(crate) async fn stream(
    api: &Api,
    call: &Call,
    request: axum::extract::Request,
) -> Result<Response, ApiError> {
    let uri = request.uri().clone();
    let socket = if upgrade::is_upgrade(request.headers()) {
        Some(LogSocket::accept(request).await?)
    } else {
        None
    };
    let log = open(api, call, &uri).await?;
    Ok(match socket {
        Some(socket) => {
            let seat = fairness::current::take();
            socket.send(log.map(|body| serving::hold(body, seat)))
        }
        None => log,
    })
}

async fn open(api: &Api, call: &Call, uri: &Uri) -> Result<Response, ApiError> {
    let pod = read::load(api, call, call.name()).await?.parse()?;
    let pairs = query::pairs(uri)?;
    let requested = pairs
        .iter()
        .find(|(key, _)| key == "container")
        .map(|(_, value)| value.as_str());
    let container = container(call.name(), &pod, requested.unwrap_or_default())?;
    let node = node_of(call, &pod)?;
    let (namespace, name) = (&call.namespace, call.name());
    let query = uri
        .query()
        .map(|query| format!("?{query}"))
        .unwrap_or_default();
    let path = format!("/containerLogs/{namespace}/{name}/{container}{query}");
    let request = Request::get(path)
        .body(Body::empty())
        .map_err(|error| Status::bad_request(error.to_string()))?;
    let answer = send_to_kubelet(api, node, request).await?.map(Body::new);
    if answer.status().is_success() {
        return Ok(answer);
    }
    Err(refused(answer).await)
}

/// A kubelet answers in plain text.
async fn refused(answer: Response) -> ApiError {
    let code = answer.status();
    let text = axum::body::to_bytes(answer.into_body(), MAX_MESSAGE).await;
    let text = text.unwrap_or_default();
    let message = String::from_utf8_lossy(&text).into_owned();
    match code {
        StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND => Status::bad_request(message),
        _ => Status::internal(message),
    }
    .into()
}

/// The node of the pod.
pub(crate) fn node_of<'a>(call: &Call, pod: &'a Value) -> Result<&'a str, ApiError> {
    let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
    if node.is_empty() {
        let why = format!("pod {} does not have a host assigned", call.name());
        return Err(Status::bad_request(why).into());
    }
    Ok(node)
}

/// Sends a request to a node's kubelet with our own client certificate.
pub(crate) async fn send_to_kubelet(
    api: &Api,
    node: &str,
    request: Request<Body>,
) -> Result<http::Response<hyper::body::Incoming>, ApiError> {
    let target = kubelet(api, node).await?;
    let Some(settings) = api.certificates.read().kubelet.clone() else {
        let why = "this API server has no certificate for kubelets";
        return Err(Status::service_unavailable(why).into());
    };
    let unavailable = |why: String| ApiError::from(Status::service_unavailable(why));
    let client = HttpsClient::new(&settings.trust, Some(&settings.identity), api.tasks.clone())
        .map_err(|error| unavailable(error_chain(&error)))?;
    client
        .send(&target, request)
        .await
        .map_err(|error| unavailable(format!("kubelet of node {node}: {}", error_chain(&error))))
}

pub(crate) fn container(name: &str, pod: &Value, requested: &str) -> Result<String, ApiError> {
    let names: Vec<&str> = ["initContainers", "containers"]
        .into_iter()
        .filter_map(|list| pod["spec"][list].as_array())
        .flatten()
        .filter_map(|container| container["name"].as_str())
        .collect();
    let default = apimachinery::meta::annotation(pod, "kubectl.kubernetes.io/default-container");
    let wanted = if requested.is_empty() {
        default.unwrap_or_default()
    } else {
        requested
    };
    match names.as_slice() {
        [only] if wanted.is_empty() => Ok((*only).to_owned()),
        _ if wanted.is_empty() => Err(Status::bad_request(format!(
            "a container name must be specified for pod {name}, choose one of: [{}]",
            names.join(" ")
        ))
        .into()),
        _ if names.contains(&wanted) => Ok(wanted.to_owned()),
        _ => {
            let why = format!("container {wanted} is not valid for pod {name}");
            Err(Status::bad_request(why).into())
        }
    }
}

async fn kubelet(api: &Api, node: &str) -> Result<Target, ApiError> {
    let unavailable = |why: &str| Status::service_unavailable(format!("node {node}: {why}"));
    let key = Collection::new("", "nodes").key("", node);
    let Some(stored) = api.store.get(&key).await? else {
        return Err(unavailable("not found").into());
    };
    let object = stored.parse()?;
    let address = object["status"]["addresses"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|address| address["type"] == "InternalIP")
        .and_then(|address| address["address"].as_str());
    let port = object["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"].as_u64();
    match (address, port.and_then(|port| u16::try_from(port).ok())) {
        (Some(address), Some(port)) => Ok(Target::host(address, port)),
        _ => Err(unavailable("names no kubelet endpoint").into()),
    }
}
