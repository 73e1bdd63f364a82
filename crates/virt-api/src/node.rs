//! Reaching the node agent of a VMI.
//!
//! A node publishes its agent's address in an annotation; its certificate must name the very
//! node, so that a node that lies about its address reaches nobody else's guests.

use std::time::Duration;

use axum::{
    body::{Body, Bytes},
    response::{IntoResponse, Response},
};
use error_chain::error_chain;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use k8s_openapi::api::core::v1::Node;
use kube::{Api, ResourceExt};
use kubevirt_api::{VirtualMachineInstance, annotations};
use serving::Target;

use crate::{refusal::Refusal, settings::Shared};

/// For an answer. A guest's agent has five seconds for each of several questions.
const ANSWER_WITHIN: Duration = Duration::from_secs(40);
/// Largest answer that is passed on.
const ANSWER_LIMIT: usize = 1 << 20;

/// Where the agent of the VMI's node is.
pub(crate) async fn target(
    shared: &Shared,
    vmi: &VirtualMachineInstance,
) -> Result<Target, Refusal> {
    let node = vmi
        .status
        .as_ref()
        .and_then(|status| status.node_name.clone());
    let node = node.ok_or_else(|| Refusal::bad_request("the VMI is on no node yet"))?;
    let api: Api<Node> = Api::all(shared.client.clone());
    let object = api.get_metadata(&node).await?;
    let address = object.annotations().get(annotations::HANDLER_ADDRESS);
    let address = address.and_then(|text| text.parse().ok());
    let address = address.ok_or_else(|| {
        let key = annotations::HANDLER_ADDRESS;
        Refusal::unavailable(format!(
            "node {node} has no agent: its annotation {key} is missing"
        ))
    })?;
    Ok(Target::at(address, format!("virt-handler.{node}")))
}

/// The path on the node, which ends like the one asked for.
pub(crate) fn path(vmi: &VirtualMachineInstance, subresource: &str) -> String {
    let namespace = vmi.namespace().unwrap_or_default();
    let name = vmi.name_any();
    format!("/v1/namespaces/{namespace}/virtualmachineinstances/{name}/{subresource}")
}

/// Sends a plain verb and passes the answer on.
pub(crate) async fn put(
    shared: &Shared,
    vmi: &VirtualMachineInstance,
    verb: &str,
) -> Result<Response, Refusal> {
    let (code, body) = ask(shared, vmi, (Method::PUT, verb)).await?;
    if code == StatusCode::OK {
        return Ok(code.into_response());
    }
    Ok(passed_on(code, body))
}

/// Asks a question and passes the answer on.
pub(crate) async fn get(
    shared: &Shared,
    vmi: &VirtualMachineInstance,
    question: &str,
) -> Result<Response, Refusal> {
    let (code, body) = ask(shared, vmi, (Method::GET, question)).await?;
    Ok(passed_on(code, body))
}

fn passed_on(code: StatusCode, body: Bytes) -> Response {
    (code, [(header::CONTENT_TYPE, "application/json")], body).into_response()
}

async fn ask(
    shared: &Shared,
    vmi: &VirtualMachineInstance,
    (method, verb): (Method, &str),
) -> Result<(StatusCode, Bytes), Refusal> {
    let target = target(shared, vmi).await?;
    let request = Request::builder()
        .method(method)
        .uri(path(vmi, verb))
        .header(header::HOST, &target.server_name)
        .body(Body::empty())
        .map_err(|err| Refusal::internal(err.to_string()))?;
    let asking = async {
        let answer = shared.nodes.send(&target, request).await.map_err(|err| {
            Refusal::unavailable(format!(
                "the node's agent does not answer: {}",
                error_chain(&err)
            ))
        })?;
        let code = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_LIMIT)
            .collect()
            .await;
        let body =
            body.map_err(|err| Refusal::unavailable(format!("the answer broke off: {err}")))?;
        Ok::<_, Refusal>((code, body.to_bytes()))
    };
    tokio::time::timeout(ANSWER_WITHIN, asking)
        .await
        .map_err(|_elapsed| {
            let seconds = ANSWER_WITHIN.as_secs();
            Refusal::unavailable(format!(
                "the node's agent did not answer within {seconds} s"
            ))
        })?
}
