//! Signs the certificates of virt-handlers: requests of the certificates API with our signer's name.
//!
//! **Invariants**: the node in a certificate is the one that the API server reports for the requester's token;
//! only the service account of virt-handler gets a certificate; the certificate names the virt-handler of that
//! node only, for its server and for its connections to other nodes. Servers compare the name, so it does not
//! serve as virt-api's. A request for a client's certificate alone gets one for servers in guests, whose name no
//! server of ours accepts.

use std::time::Duration;

use anyhow::{Context, Result};
use error_chain::error_chain;
use futures::{StreamExt, TryStreamExt};
use installation::{HANDLER_ACCOUNT, HANDLER_SIGNER};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{ByteString, api::certificates::v1::CertificateSigningRequest};
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
    runtime::{WatchStreamExt, watcher},
};
use serde_json::json;
use serving::{Authority, Leaf, Usage, Validity};
use tokio::sync::watch::Receiver;
use tokio_util::sync::CancellationToken;
use virt_handler::VSOCK_CLIENT;

use crate::authority::Installation;

/// The only usages that may be requested.
pub(crate) const USAGES: [&str; 3] = ["digital signature", "server auth", "client auth"];
/// The usages of the certificate for servers in guests.
pub(crate) const USAGES_IN_GUESTS: [&str; 2] = ["digital signature", "client auth"];
const SERVER_AUTH: &str = "server auth";
const CLIENT_AUTH: &str = "client auth";
/// The API server's extra attribute with the node of a token that is bound to a pod.
const NODE_OF_TOKEN: &str = "authentication.kubernetes.io/node-name";
const LIFETIME: SignedDuration = SignedDuration::from_hours(24 * 7);
const RETRY_INTERVAL: Duration = Duration::from_secs(2);

/// The DNS name of the virt-handler on a node.
pub(crate) fn handler_name(node: &str) -> String {
    format!("virt-handler.{node}")
}

/// Answers requests until stopped. Several replicas may run this: an answered request is skipped.
pub(crate) async fn run(
    client: Client,
    namespace: String,
    installation: Receiver<Installation>,
    stop: CancellationToken,
) {
    let watching = async {
        loop {
            if let Err(error) = Box::pin(follow(&client, &namespace, &installation)).await {
                let chain: &(dyn std::error::Error + 'static) = error.as_ref();
                tracing::warn!(
                    error = error_chain(chain),
                    "failed to watch certificate signing requests"
                );
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    };
    tokio::select! {
        () = watching => {}
        () = stop.cancelled() => {}
    }
}

async fn follow(
    client: &Client,
    namespace: &str,
    installation: &Receiver<Installation>,
) -> Result<()> {
    let api: Api<CertificateSigningRequest> = Api::all(client.clone());
    let ours = watcher::Config::default().fields(&format!("spec.signerName={HANDLER_SIGNER}"));
    let mut requests = watcher(api.clone(), ours).applied_objects().boxed();
    while let Some(request) = requests.try_next().await.context("watch the requests")? {
        let authority = installation.borrow().authority.clone();
        if let Err(error) = answer(&api, namespace, &authority, &request).await {
            let chain: &(dyn std::error::Error + 'static) = error.as_ref();
            tracing::warn!(
                request = request.name_any(),
                error = error_chain(chain),
                "failed to answer a certificate signing request"
            );
        }
    }
    Ok(())
}

async fn answer(
    api: &Api<CertificateSigningRequest>,
    namespace: &str,
    authority: &Authority,
    request: &CertificateSigningRequest,
) -> Result<()> {
    if is_answered(request) {
        return Ok(());
    }
    let name = request.name_any();
    let params = PatchParams::default();
    let node = node_of(request, namespace);
    let (decision, message) = match &node {
        Ok(node) => ("Approved", format!("virt-handler of node {node}")),
        Err(reason) => ("Denied", reason.clone()),
    };
    let condition = json!({"status": {"conditions": [{
        "type": decision, "status": "True", "reason": "NodeAgent", "message": message,
    }]}});
    api.patch_approval(&name, &params, &Patch::Merge(condition))
        .await
        .context("write the approval or denial")?;
    let Ok(node) = node else { return Ok(()) };
    let requested =
        String::from_utf8(request.spec.request.0.clone()).context("read the request")?;
    let leaf = leaf(
        request,
        &node,
        Validity::starting(Timestamp::now(), LIFETIME),
    );
    let certificate = authority.sign(&requested, &leaf).context("sign")?;
    let issued = json!({"status": {"certificate": ByteString(certificate.into_bytes())}});
    if let Err(error) = api
        .patch_status(&name, &params, &Patch::Merge(issued))
        .await
    {
        // All replicas watch all requests; another one may have been faster.
        let latest = api.get(&name).await.context("read the request again")?;
        if is_answered(&latest) {
            return Ok(());
        }
        return Err(error).context("write the certificate");
    }
    tracing::info!(node, request = name, "certificate of virt-handler issued");
    Ok(())
}

/// The certificate that an approved request gets. Its content does not count, its usages do.
fn leaf(request: &CertificateSigningRequest, node: &str, validity: Validity) -> Leaf {
    let usages = request.spec.usages.as_deref().unwrap_or_default();
    if usages.iter().any(|usage| usage == SERVER_AUTH) {
        Leaf {
            usage: Usage::Both,
            ..Leaf::server(handler_name(node), validity)
        }
    } else {
        Leaf::user(VSOCK_CLIENT, &[], validity)
    }
}

/// Whether the request has a certificate or was refused.
fn is_answered(request: &CertificateSigningRequest) -> bool {
    let Some(status) = &request.status else {
        return false;
    };
    let conditions = status.conditions.iter().flatten();
    let mut refusals = conditions.filter(|one| matches!(one.type_.as_str(), "Denied" | "Failed"));
    status.certificate.is_some() || refusals.next().is_some()
}

/// The node of the requesting virt-handler, or the reason for a refusal.
fn node_of(request: &CertificateSigningRequest, namespace: &str) -> Result<String, String> {
    let spec = &request.spec;
    let account = format!("system:serviceaccount:{namespace}:{HANDLER_ACCOUNT}");
    let user = spec.username.as_deref().unwrap_or_default();
    if user != account {
        return Err(format!(
            "{user:?} is not the service account of virt-handler"
        ));
    }
    let usages = spec.usages.as_deref().unwrap_or_default();
    if let Some(other) = usages
        .iter()
        .find(|usage| !USAGES.contains(&usage.as_str()))
    {
        return Err(format!("virt-handler does not need the usage {other:?}"));
    }
    if !usages.iter().any(|usage| usage == CLIENT_AUTH) {
        return Err(format!(
            "each certificate of virt-handler is one of a client: the usage {CLIENT_AUTH:?} is missing"
        ));
    }
    let bound = spec
        .extra
        .as_ref()
        .and_then(|extra| extra.get(NODE_OF_TOKEN));
    match bound.map(Vec::as_slice) {
        Some([node]) => Ok(node.clone()),
        _ => Err("the token is not bound to a pod on a node".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn request(change: impl FnOnce(&mut Value)) -> CertificateSigningRequest {
        let mut object = json!({
            "metadata": {"name": "r"},
            "spec": {
                "request": "", "signerName": HANDLER_SIGNER, "usages": USAGES,
                "username": "system:serviceaccount:kubevirt:kubevirt-handler",
                "extra": {NODE_OF_TOKEN: ["n1"]},
            },
        });
        change(&mut object);
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn node_comes_from_the_token() {
        let valid = request(|_| {});
        assert_eq!(node_of(&valid, "kubevirt").unwrap(), "n1");
    }

    #[test]
    fn other_requests_are_refused_with_a_reason() {
        let user = "system:serviceaccount:tenant:kubevirt-handler";
        let other = request(|object| object["spec"]["username"] = user.into());
        let client = request(|object| object["spec"]["usages"] = json!(["code signing"]));
        let server = request(|object| object["spec"]["usages"] = json!([SERVER_AUTH]));
        let neither = request(|object| object["spec"]["usages"] = json!(["digital signature"]));
        let unbound = request(|object| object["spec"]["extra"] = json!({}));
        let two = request(|object| object["spec"]["extra"][NODE_OF_TOKEN] = json!(["n1", "n2"]));
        for (refused, reason) in [
            (other, "is not the service account of virt-handler"),
            (client, "does not need the usage \"code signing\""),
            (server, "the usage \"client auth\" is missing"),
            (neither, "the usage \"client auth\" is missing"),
            (unbound, "not bound to a pod on a node"),
            (two, "not bound to a pod on a node"),
        ] {
            let refusal = node_of(&refused, "kubevirt").unwrap_err();
            assert!(refusal.contains(reason), "{refusal}");
        }
    }

    #[test]
    fn certificate_of_a_client_alone_names_no_node() {
        let validity = Validity::starting(Timestamp::UNIX_EPOCH, LIFETIME);
        let both = leaf(&request(|_| {}), "n1", validity);
        assert_eq!(both.common_name, "virt-handler.n1");
        assert_eq!((both.dns_names.len(), both.usage), (1, Usage::Both));
        let client = request(|object| object["spec"]["usages"] = json!(USAGES_IN_GUESTS));
        assert_eq!(node_of(&client, "kubevirt").unwrap(), "n1");
        let client = leaf(&client, "n1", validity);
        assert_eq!(client.common_name, "kubevirt.io:system:client:vsock");
        assert_eq!((client.dns_names.len(), client.usage), (0, Usage::Client));
    }

    #[test]
    fn answered_request_is_not_answered_again() {
        let status = |status: Value| request(|object| object["status"] = status);
        assert!(!is_answered(&request(|_| {})));
        let approved = json!({"conditions": [{"type": "Approved", "status": "True"}]});
        assert!(!is_answered(&status(approved)));
        let denied = json!({"conditions": [{"type": "Denied", "status": "True"}]});
        assert!(is_answered(&status(denied)));
        assert!(is_answered(&status(json!({"certificate": "QQ=="}))));
    }
}
