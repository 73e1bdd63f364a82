//! A node agent's own certificate: asked for, waited for, renewed.

use std::{pin::pin, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use error_chain::error_chain;
use futures::StreamExt as _;
use installation::HANDLER_SIGNER;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    ByteString,
    api::{
        certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec},
        core::v1::ConfigMap,
    },
};
use kube::{
    Api, Client, ResourceExt,
    api::{ObjectMeta, PostParams},
    runtime::wait::await_condition,
};
use reasons::Reason;
use serving::{ClientCertificates, Identity, SigningRequest, TlsSource, TlsSwap, Trust, believes};

use crate::{
    authority,
    changes::changes,
    pause::pause,
    run::Process,
    signer::{USAGES, agent_name},
};

/// virt-api may have to start first.
const PATIENCE: Duration = Duration::from_mins(5);
const RETRY: Duration = Duration::from_secs(2);
/// Between two looks at what is trusted and how long the certificate lasts.
const LOOK: Duration = Duration::from_mins(10);
/// After one that failed.
const AGAIN: Duration = Duration::from_secs(10);
const SETTLE: Duration = Duration::from_secs(2);
/// A certificate with less left is replaced.
const LEFT: SignedDuration = SignedDuration::from_hours(24 * 3);

/// What an agent shows and whom it lets in.
struct Held {
    identity: Identity,
    trust: Trust,
}

/// TLS settings of the agent, kept current as long as the process runs.
pub(crate) async fn serve(process: &Process, node: &str) -> Result<TlsSource> {
    let held = tokio::time::timeout(PATIENCE, patiently(process, node))
        .await
        .context("no certificate for this node's agent: does virt-api run?")?;
    let (swap, source) = TlsSource::swappable(&held.identity, &callers(&held))?;
    let (process, node) = (process.clone(), node.to_owned());
    let stop = process.stop.clone();
    process.tasks.clone().spawn(async move {
        tokio::select! {
            () = keep(&process, &node, held, &swap) => {}
            () = stop.cancelled() => {}
        }
    });
    Ok(source)
}

async fn patiently(process: &Process, node: &str) -> Held {
    loop {
        match Box::pin(obtain(process, node)).await {
            Ok(held) => return held,
            Err(error) => {
                let chain: &(dyn std::error::Error + 'static) = error.as_ref();
                tracing::warn!(error = error_chain(chain), "no certificate yet");
            }
        }
        tokio::time::sleep(RETRY).await;
    }
}

async fn keep(process: &Process, node: &str, mut held: Held, swap: &TlsSwap) {
    let maps: Api<ConfigMap> = Api::namespaced(process.client.clone(), &process.namespace);
    let mut changes = pin!(changes(maps, authority::NAME));
    let (mut wait, mut began) = (LOOK, Timestamp::now());
    loop {
        // What cannot be read is renewed at once.
        let end = held.identity.valid_until().unwrap_or(began);
        let times = began..end.checked_sub(LEFT).unwrap_or(began);
        tokio::select! {
            () = pause(wait, &times, Timestamp::now) => {}
            // Replicas of virt-api take up a new authority at nearly the same time.
            _change = changes.next() => tokio::time::sleep(SETTLE).await,
        }
        began = Timestamp::now();
        let renewed = async {
            if let Some(next) = Box::pin(renew(process, node, &held)).await? {
                swap.replace(&next.identity, &callers(&next))?;
                held = next;
            }
            anyhow::Ok(())
        };
        wait = match renewed.await {
            Ok(()) => LOOK,
            Err(error) => {
                let chain: &(dyn std::error::Error + 'static) = error.as_ref();
                let note = format!(
                    "the certificate of the agent of node {node} is not renewed, and virt-api may not reach \
                     it: {}",
                    error_chain(chain)
                );
                process.notices.warn(Reason::CertificateNotRenewed, &note);
                AGAIN
            }
        };
    }
}

/// What to hold instead, if anything.
async fn renew(process: &Process, node: &str, held: &Held) -> Result<Option<Held>> {
    let left = held
        .identity
        .valid_until()?
        .duration_since(Timestamp::now());
    let trust = trust(&process.client, &process.namespace).await?;
    // An authority that was lost, and not just followed by another one, leaves us with its word.
    if left < LEFT || !believes(&trust, &held.identity, &agent_name(node), Timestamp::now())? {
        return Box::pin(obtain(process, node)).await.map(Some);
    }
    if trust.pem() == held.trust.pem() {
        return Ok(None);
    }
    let identity = held.identity.clone();
    Ok(Some(Held { identity, trust }))
}

fn callers(held: &Held) -> ClientCertificates {
    ClientCertificates::Required(held.trust.clone())
}

async fn obtain(process: &Process, node: &str) -> Result<Held> {
    let trust = trust(&process.client, &process.namespace).await?;
    let request = SigningRequest::new(&agent_name(node))?;
    let api: Api<CertificateSigningRequest> = Api::all(process.client.clone());
    let object = CertificateSigningRequest {
        metadata: ObjectMeta {
            generate_name: Some(format!("virt-handler-{node}-")),
            ..ObjectMeta::default()
        },
        spec: CertificateSigningRequestSpec {
            request: ByteString(request.pem().as_bytes().to_vec()),
            signer_name: HANDLER_SIGNER.to_owned(),
            usages: Some(USAGES.map(str::to_owned).to_vec()),
            ..CertificateSigningRequestSpec::default()
        },
        status: None,
    };
    let made = api
        .create(&PostParams::default(), &object)
        .await
        .context("ask for a certificate")?;
    let name = made.name_any();
    let answered = |found: Option<&CertificateSigningRequest>| {
        found.is_none_or(|found| certificate(found).is_some() || refusal(found).is_some())
    };
    let found = tokio::time::timeout(PATIENCE, await_condition(api, &name, answered))
        .await
        .with_context(|| format!("nobody answered the certificate signing request {name}"))?
        .context("wait for the certificate")?
        .with_context(|| format!("the certificate signing request {name} was deleted"))?;
    if let Some(reason) = refusal(&found) {
        bail!("the certificate signing request {name} was refused: {reason}");
    }
    let certificate = certificate(&found).context("an answer without certificate")?;
    let identity = request.complete(certificate);
    ensure!(
        believes(&trust, &identity, &agent_name(node), Timestamp::now())?,
        "the certificate of request {name} is not valid, or signed by an authority that is not in the bundle"
    );
    Ok(Held { identity, trust })
}

fn certificate(request: &CertificateSigningRequest) -> Option<String> {
    let bytes = request.status.as_ref()?.certificate.as_ref()?;
    String::from_utf8(bytes.0.clone()).ok()
}

fn refusal(request: &CertificateSigningRequest) -> Option<String> {
    let conditions = request.status.as_ref()?.conditions.as_ref()?;
    let refused = conditions
        .iter()
        .find(|one| matches!(one.type_.as_str(), "Denied" | "Failed"))?;
    Some(refused.message.clone().unwrap_or_default())
}

/// The authority's bundle, which everybody may read.
async fn trust(client: &Client, namespace: &str) -> Result<Trust> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let found = api
        .get(authority::NAME)
        .await
        .with_context(|| format!("read the config map {namespace}/{}", authority::NAME))?;
    let bundle = found
        .data
        .as_ref()
        .and_then(|data| data.get(authority::BUNDLE));
    let bundle = bundle
        .with_context(|| format!("the config map {namespace}/{} is empty", authority::NAME))?;
    Ok(Trust::from_pem(bundle))
}
