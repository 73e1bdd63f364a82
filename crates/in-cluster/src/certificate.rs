//! The certificate of a virt-handler: requested, awaited, renewed.

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
use serving::{
    ClientCertificates, HttpsClient, Identity, SigningRequest, TlsSource, TlsSwap, Trust, believes,
};

use crate::{
    authority,
    changes::changes,
    pause::pause,
    run::Process,
    signer::{USAGES, handler_name},
};

/// Time limit for the certificate; virt-api may have to start first.
const ISSUE_TIMEOUT: Duration = Duration::from_mins(5);
const FIRST_RETRY_INTERVAL: Duration = Duration::from_secs(2);
/// Interval of the checks of the bundle and of the certificate's validity.
const CHECK_INTERVAL: Duration = Duration::from_mins(10);
/// Interval after a failed check.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);
const DEBOUNCE: Duration = Duration::from_secs(2);
/// A certificate that is valid for less than this time is replaced.
const RENEW_BEFORE: SignedDuration = SignedDuration::from_hours(24 * 3);

/// The certificate of virt-handler and the authorities of its clients.
struct Credentials {
    identity: Identity,
    trust: Trust,
}

/// Both ends of virt-handler's connections.
pub(crate) struct Ends {
    /// Serves virt-api and other virt-handlers.
    pub(crate) server: TlsSource,
    /// Connects to other virt-handlers.
    pub(crate) client: HttpsClient,
}

/// TLS settings of virt-handler, kept current as long as the process runs.
pub(crate) async fn serve(process: &Process, node: &str) -> Result<Ends> {
    let held = tokio::time::timeout(ISSUE_TIMEOUT, retry_until_obtained(process, node))
        .await
        .context("wait for the certificate of virt-handler: check that virt-api is running")?;
    let (swap, server) = TlsSource::swappable(&held.identity, &callers(&held))?;
    let client = HttpsClient::new(&held.trust, Some(&held.identity), process.tasks.clone())?;
    let (process, node) = (process.clone(), node.to_owned());
    let (stop, renewed) = (process.stop.clone(), client.clone());
    process.tasks.clone().spawn(async move {
        tokio::select! {
            () = keep(&process, &node, held, (&swap, &renewed)) => {}
            () = stop.cancelled() => {}
        }
    });
    Ok(Ends { server, client })
}

async fn retry_until_obtained(process: &Process, node: &str) -> Credentials {
    loop {
        match Box::pin(obtain(process, node)).await {
            Ok(held) => return held,
            Err(error) => {
                let chain: &(dyn std::error::Error + 'static) = error.as_ref();
                tracing::warn!(
                    error = error_chain(chain),
                    "failed to obtain a certificate, retrying"
                );
            }
        }
        tokio::time::sleep(FIRST_RETRY_INTERVAL).await;
    }
}

async fn keep(
    process: &Process,
    node: &str,
    mut held: Credentials,
    (swap, client): (&TlsSwap, &HttpsClient),
) {
    let maps: Api<ConfigMap> = Api::namespaced(process.client.clone(), &process.namespace);
    let mut changes = pin!(changes(maps, authority::NAME));
    let (mut wait, mut began) = (CHECK_INTERVAL, Timestamp::now());
    loop {
        // An unreadable certificate is renewed at once.
        let end = held.identity.valid_until().unwrap_or(began);
        let times = began..end.checked_sub(RENEW_BEFORE).unwrap_or(began);
        tokio::select! {
            () = pause(wait, &times, Timestamp::now) => {}
            // The replicas of virt-api start to use a new authority at nearly the same time.
            _change = changes.next() => tokio::time::sleep(DEBOUNCE).await,
        }
        began = Timestamp::now();
        let renewed = async {
            if let Some(next) = Box::pin(renew(process, node, &held)).await? {
                swap.replace(&next.identity, &callers(&next))?;
                client.replace(&next.trust, Some(&next.identity))?;
                held = next;
            }
            anyhow::Ok(())
        };
        wait = match renewed.await {
            Ok(()) => CHECK_INTERVAL,
            Err(error) => {
                let chain: &(dyn std::error::Error + 'static) = error.as_ref();
                let note = format!(
                    "the certificate of virt-handler on node {node} is not renewed, and virt-api may fail to \
                     connect: {}",
                    error_chain(chain)
                );
                process.notices.warn(Reason::CertificateNotRenewed, &note);
                RETRY_INTERVAL
            }
        };
    }
}

/// New credentials if the current ones must be replaced.
async fn renew(process: &Process, node: &str, held: &Credentials) -> Result<Option<Credentials>> {
    let left = held
        .identity
        .valid_until()?
        .duration_since(Timestamp::now());
    let trust = trust(&process.client, &process.namespace).await?;
    // After the loss of an authority its certificates are no longer trusted.
    if left < RENEW_BEFORE
        || !believes(
            &trust,
            &held.identity,
            &handler_name(node),
            Timestamp::now(),
        )?
    {
        return Box::pin(obtain(process, node)).await.map(Some);
    }
    if trust.pem() == held.trust.pem() {
        return Ok(None);
    }
    let identity = held.identity.clone();
    Ok(Some(Credentials { identity, trust }))
}

fn callers(held: &Credentials) -> ClientCertificates {
    ClientCertificates::Required(held.trust.clone())
}

async fn obtain(process: &Process, node: &str) -> Result<Credentials> {
    let trust = trust(&process.client, &process.namespace).await?;
    let (name, identity) = request(process, node, &handler_name(node), &USAGES).await?;
    ensure!(
        believes(&trust, &identity, &handler_name(node), Timestamp::now())?,
        "the certificate of request {name} is not valid, or its authority is not in the bundle"
    );
    Ok(Credentials { identity, trust })
}

/// Requests a certificate with these usages, and waits for it. Returns also the name of the request.
pub(crate) async fn request(
    process: &Process,
    node: &str,
    subject: &str,
    usages: &[&str],
) -> Result<(String, Identity)> {
    let request = SigningRequest::new(subject)?;
    let api: Api<CertificateSigningRequest> = Api::all(process.client.clone());
    let usages = usages.iter().map(|usage| (*usage).to_owned());
    let object = CertificateSigningRequest {
        metadata: ObjectMeta {
            generate_name: Some(format!("virt-handler-{node}-")),
            ..ObjectMeta::default()
        },
        spec: CertificateSigningRequestSpec {
            request: ByteString(request.pem().as_bytes().to_vec()),
            signer_name: HANDLER_SIGNER.to_owned(),
            usages: Some(usages.collect()),
            ..CertificateSigningRequestSpec::default()
        },
        status: None,
    };
    let made = api
        .create(&PostParams::default(), &object)
        .await
        .context("request a certificate")?;
    let name = made.name_any();
    let is_answered = |found: Option<&CertificateSigningRequest>| {
        found.is_none_or(|found| certificate(found).is_some() || refusal(found).is_some())
    };
    let found = tokio::time::timeout(ISSUE_TIMEOUT, await_condition(api, &name, is_answered))
        .await
        .with_context(|| format!("virt-api did not answer the certificate signing request {name}"))?
        .context("wait for the certificate")?
        .with_context(|| format!("the certificate signing request {name} was deleted"))?;
    if let Some(reason) = refusal(&found) {
        bail!("the certificate signing request {name} was refused: {reason}");
    }
    let certificate = certificate(&found).context("read the issued certificate")?;
    Ok((name, request.complete(certificate)))
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

/// The published bundle of authorities.
pub(crate) async fn trust(client: &Client, namespace: &str) -> Result<Trust> {
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
