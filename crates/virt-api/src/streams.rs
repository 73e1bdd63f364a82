//! A user's websocket joined to the node's, byte by byte: no frame is read in between.

use axum::{body::Body, extract::Request, response::Response};
use error_chain::error_chain;
use http::{HeaderMap, header};
use kubevirt_api::VirtualMachineInstance;
use serving::upgrade;

use crate::{node, refusal::Refusal, settings::Shared};

/// Headers of the handshake, which is between the two ends.
const HANDSHAKE: [header::HeaderName; 6] = [
    header::CONNECTION,
    header::UPGRADE,
    header::SEC_WEBSOCKET_KEY,
    header::SEC_WEBSOCKET_VERSION,
    header::SEC_WEBSOCKET_PROTOCOL,
    header::SEC_WEBSOCKET_EXTENSIONS,
];

pub(crate) async fn join(
    shared: &Shared,
    vmi: &VirtualMachineInstance,
    device: &str,
    mut request: Request,
) -> Result<Response, Refusal> {
    if !upgrade::is_upgrade(request.headers()) {
        return Err(Refusal::bad_request(format!(
            "{device} is a websocket: ask for an upgrade"
        )));
    }
    let target = node::target(shared, vmi).await?;
    let query = request
        .uri()
        .query()
        .map(|query| format!("?{query}"))
        .unwrap_or_default();
    let mut onward = http::Request::builder()
        .uri(node::path(vmi, device) + &query)
        .header(header::HOST, &target.server_name)
        .body(Body::empty())
        .map_err(|err| Refusal::internal(err.to_string()))?;
    carry(request.headers(), onward.headers_mut());
    let user = upgrade::take(&mut request);
    let answer = shared.nodes.send(&target, onward).await.map_err(|err| {
        Refusal::unavailable(format!(
            "the node's agent does not answer: {}",
            error_chain(&err)
        ))
    })?;
    Ok(upgrade::join(
        user,
        answer,
        &shared.tasks,
        shared.stop.clone(),
    ))
}

fn carry(from: &HeaderMap, to: &mut HeaderMap) {
    for name in HANDSHAKE {
        for value in from.get_all(&name) {
            to.append(&name, value.clone());
        }
    }
}
