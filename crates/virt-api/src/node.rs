//! Requests to virt-handler on the node of a VMI.
//!
//! virt-handler publishes its address in an annotation of its node; its certificate must name that node,
//! so that a node with a false address cannot reach guests of other nodes.

use std::time::Duration;

use axum::{
    body::{Body, Bytes},
    response::{IntoResponse, Response},
};
use error_chain::error_chain;
use http::{HeaderValue, Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client, ResourceExt};
use kubevirt_api::{VirtualMachineInstance, annotations};
use serving::{ClientError, Target};

use crate::{refusal::Refusal, settings::Shared};

/// Time limit of a response. The guest agent has five seconds for each of several commands.
const TIMEOUT: Duration = Duration::from_secs(40);
/// Largest response in JSON that is forwarded, in bytes.
const RESPONSE_LIMIT: usize = 1 << 20;
/// Largest binary response, in bytes; virt-handler has the same limit.
const BYTES_LIMIT: usize = 32 << 20;
const UNKNOWN_TYPE: HeaderValue = HeaderValue::from_static("application/octet-stream");

/// The address of virt-handler on the VMI's node.
pub(crate) async fn target(
    shared: &Shared,
    vmi: &VirtualMachineInstance,
) -> Result<Target, Refusal> {
    let node = vmi
        .status
        .as_ref()
        .and_then(|status| status.node_name.clone());
    let node = node.ok_or_else(|| Refusal::bad_request("the VMI has no node yet"))?;
    of_name(&shared.client, &node).await
}

/// The address of virt-handler on a node.
pub(crate) async fn of_name(client: &Client, node: &str) -> Result<Target, Refusal> {
    let api: Api<Node> = Api::all(client.clone());
    let object = api.get_metadata(node).await?;
    let address = object.annotations().get(annotations::HANDLER_ADDRESS);
    let address = address.and_then(|text| text.parse().ok());
    let address = address.ok_or_else(|| {
        let key = annotations::HANDLER_ADDRESS;
        Refusal::unavailable(format!(
            "virt-handler does not run on node {node}: the annotation {key} is missing"
        ))
    })?;
    Ok(Target::at(address, format!("virt-handler.{node}")))
}

/// The path on the node; it ends like the path of the request.
pub(crate) fn path(vmi: &VirtualMachineInstance, subresource: &str) -> String {
    let namespace = vmi.namespace().unwrap_or_default();
    let name = vmi.name_any();
    format!("/v1/namespaces/{namespace}/virtualmachineinstances/{name}/{subresource}")
}

/// Sends `PUT` and forwards the response.
pub(crate) async fn put(
    shared: &Shared,
    vmi: &VirtualMachineInstance,
    verb: &str,
) -> Result<Response, Refusal> {
    let (code, body) = send(shared, vmi, Method::PUT, verb).await?;
    if code == StatusCode::OK {
        return Ok(code.into_response());
    }
    Ok(forward(code, body))
}

/// Sends `GET` and forwards the response.
pub(crate) async fn get(
    shared: &Shared,
    vmi: &VirtualMachineInstance,
    subresource: &str,
) -> Result<Response, Refusal> {
    let (code, body) = send(shared, vmi, Method::GET, subresource).await?;
    Ok(forward(code, body))
}

/// Sends `GET` and forwards the response as it arrives, with the type that the node gives.
pub(crate) async fn get_bytes(
    shared: &Shared,
    vmi: &VirtualMachineInstance,
    subresource: &str,
) -> Result<Response, Refusal> {
    let response = head(shared, vmi, Method::GET, subresource);
    let response = tokio::time::timeout(TIMEOUT, response)
        .await
        .map_err(timed_out)??;
    Ok(forward_bytes(response))
}

fn forward(code: StatusCode, body: Bytes) -> Response {
    (code, [(header::CONTENT_TYPE, "application/json")], body).into_response()
}

/// Keeps the code, type and body of a response, and no other header of the node's.
fn forward_bytes(response: Response) -> Response {
    let code = response.status();
    let media_type = response.headers().get(header::CONTENT_TYPE).cloned();
    let media_type = media_type.unwrap_or(UNKNOWN_TYPE);
    let body = Body::new(Limited::new(response.into_body(), BYTES_LIMIT));
    (code, [(header::CONTENT_TYPE, media_type)], body).into_response()
}

async fn send(
    shared: &Shared,
    vmi: &VirtualMachineInstance,
    method: Method,
    subresource: &str,
) -> Result<(StatusCode, Bytes), Refusal> {
    let exchange = async {
        let response = head(shared, vmi, method, subresource).await?;
        let code = response.status();
        let body = Limited::new(response.into_body(), RESPONSE_LIMIT)
            .collect()
            .await;
        let body =
            body.map_err(|err| Refusal::unavailable(format!("the response was cut off: {err}")))?;
        Ok((code, body.to_bytes()))
    };
    tokio::time::timeout(TIMEOUT, exchange)
        .await
        .map_err(timed_out)?
}

/// Sends a request; returns when the head of the response has arrived.
async fn head(
    shared: &Shared,
    vmi: &VirtualMachineInstance,
    method: Method,
    subresource: &str,
) -> Result<Response, Refusal> {
    let target = target(shared, vmi).await?;
    let request = Request::builder()
        .method(method)
        .uri(path(vmi, subresource))
        .header(header::HOST, &target.server_name)
        .body(Body::empty())
        .map_err(|err| Refusal::internal(err.to_string()))?;
    let response = shared.nodes.send(&target, request).await;
    let response = response.map_err(|err| Refusal::unavailable(unreachable(&err)))?;
    Ok(response.map(Body::new))
}

/// Why no request was sent. The server at the address of the node may be that of another node, which has a
/// certificate of the same authority.
fn unreachable(error: &ClientError) -> String {
    let cause = error_chain(error);
    match error {
        ClientError::Handshake { name, .. } => format!(
            "the server at the address of the node did not prove to be {name}, so nothing was sent to it: \
             {cause}; if the node has a new address, restart its virt-handler, which publishes it"
        ),
        _ => format!("virt-handler on the node does not answer: {cause}"),
    }
}

fn timed_out(_: tokio::time::error::Elapsed) -> Refusal {
    let seconds = TIMEOUT.as_secs();
    Refusal::unavailable(format!(
        "virt-handler on the node did not answer within {seconds} s"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn type_and_bytes_of_the_node_are_kept() {
        let sent = Response::builder()
            .status(200)
            .header(header::CONTENT_TYPE, "image/png")
            .header(header::SET_COOKIE, "a=b")
            .body(Body::from(&b"\x89PNG\xff\0"[..]))
            .unwrap();
        let forwarded = forward_bytes(sent);
        assert_eq!(forwarded.status(), 200);
        assert_eq!(forwarded.headers()[header::CONTENT_TYPE], "image/png");
        assert_eq!(forwarded.headers().get(header::SET_COOKIE), None);
        let body = forwarded.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(&body[..], b"\x89PNG\xff\0");
    }

    #[tokio::test]
    async fn response_over_the_limit_is_cut_off() {
        let sent = Response::new(Body::from(vec![0; BYTES_LIMIT + 1]));
        forward_bytes(sent).into_body().collect().await.unwrap_err();
    }
}
