//! Connects the websocket of a user to that of the node, byte by byte, without parsing frames.

use axum::{body::Body, extract::Request, response::Response};
use error_chain::error_chain;
use http::{HeaderMap, header};
use kubevirt_api::VirtualMachineInstance;
use serving::upgrade;

use crate::{node, refusal::Refusal, settings::Shared};

/// Headers of the handshake, which the two ends negotiate.
const HANDSHAKE: [header::HeaderName; 6] = [
    header::CONNECTION,
    header::UPGRADE,
    header::SEC_WEBSOCKET_KEY,
    header::SEC_WEBSOCKET_VERSION,
    header::SEC_WEBSOCKET_PROTOCOL,
    header::SEC_WEBSOCKET_EXTENSIONS,
];

/// `node_request` is the path on the node below that of the VMI, with its query.
pub(crate) async fn join(
    shared: &Shared,
    vmi: &VirtualMachineInstance,
    node_request: &str,
    mut request: Request,
) -> Result<Response, Refusal> {
    if !upgrade::is_upgrade(request.headers()) {
        let device = node_request.split(['?', '/']).next().unwrap_or_default();
        return Err(Refusal::bad_request(format!(
            "{device} is a websocket: request an upgrade"
        )));
    }
    let target = node::target(shared, vmi).await?;
    let mut forwarded = http::Request::builder()
        .uri(node::path(vmi, node_request))
        .header(header::HOST, &target.server_name)
        .body(Body::empty())
        .map_err(|err| Refusal::internal(err.to_string()))?;
    copy_handshake(request.headers(), forwarded.headers_mut());
    let user = upgrade::take(&mut request);
    let response = shared.nodes.send(&target, forwarded).await.map_err(|err| {
        Refusal::unavailable(format!(
            "virt-handler on the node does not answer: {}",
            error_chain(&err)
        ))
    })?;
    Ok(upgrade::join(
        user,
        response,
        &shared.tasks,
        shared.stop.clone(),
    ))
}

fn copy_handshake(from: &HeaderMap, to: &mut HeaderMap) {
    for name in HANDSHAKE {
        for value in from.get_all(&name) {
            to.append(&name, value.clone());
        }
    }
}
