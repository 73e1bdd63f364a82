//! `ferrovirt api`: keeps the installation's authority, signs certificates of virt-handlers, and serves.

use std::{pin::pin, time::Duration};

use anyhow::{Context, Result};
use error_chain::error_chain;
use futures::{FutureExt as _, StreamExt as _, stream};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use reasons::Reason;
use reconcile::Clock;
use serving::{ClientCertificates, HttpsClient, Identity, Leaf, TlsSource, TlsSwap, Validity};
use tokio::sync::watch;

use crate::{
    authority::{self, Installation},
    changes::changes,
    cli, console, front_proxy, health, metrics,
    pause::pause,
    run::Process,
    signer, transfers, trust,
};

/// Lifetime of the certificates that this process issues to itself.
const LIFETIME: SignedDuration = SignedDuration::from_hours(24);
/// Interval of the checks of the authority, much shorter than the lifetime of certificates.
const CHECK_INTERVAL: Duration = Duration::from_mins(10);
/// Interval after a failed check.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);
/// Related changes often arrive together; one check handles them all.
const DEBOUNCE: Duration = Duration::from_secs(1);
/// The common name that virt-handlers accept.
const CLIENT_NAME: &str = "virt-api";

/// The parts that are replaced while the process runs.
struct Replaceable {
    serving: TlsSwap,
    /// Of the web console, if there is one.
    console: Option<console::Replaceable>,
    transfers: transfers::Replaceable,
    handlers: HttpsClient,
    installation: watch::Sender<Installation>,
}

pub(crate) async fn run(process: &Process, flags: &cli::Api) -> Result<()> {
    let client = &process.client;
    let (proxies, front_proxy) = front_proxy::read(client).await?;
    let installation = current(process)
        .await
        .inspect_err(|error| publish_failure(process, error))?;
    let listener = health::listen(flags.port).await?;
    let (server, caller) = identities(&installation, &process.namespace)?;
    let console = match flags.console_port {
        Some(port) => {
            let secret = installation.authority.identity().key_pem();
            Some(console::serve(process, port, (&server, secret)).await?)
        }
        None => None,
    };
    let (swap, tls) =
        TlsSource::swappable(&server, &ClientCertificates::Optional(proxies.clone()))?;
    let handlers = HttpsClient::new(&installation.bundle, Some(&caller), process.tasks.clone())?;
    let tokens = transfers::TokenKey::of(installation.authority.identity().key_pem());
    let transfers = transfers::serve(
        process,
        flags.transfer_port,
        &transfer_identity(&installation, &process.namespace)?,
        (tokens.clone(), handlers.clone()),
    )
    .await?;
    let (sender, receiver) = watch::channel(installation.clone());
    let settings = virt_api::Settings {
        client: client.clone(),
        listener,
        tls,
        front_proxy,
        webhook_callers: virt_api::WebhookCallers::Anyone,
        nodes: handlers.clone(),
        cluster: process.cluster.clone(),
        neighbours: Vec::new(),
        clock: Clock::system(),
        // No API server asks for tokens where CDI issues them.
        uploads: Some(tokens.tokens()),
        metrics: metrics::api(),
    };
    let serving = process
        .tasks
        .spawn(virt_api::run(settings, process.stop.clone()));
    process.tasks.spawn(signer::run(
        client.clone(),
        process.namespace.clone(),
        receiver,
        process.stop.clone(),
    ));
    let replaceable = Replaceable {
        serving: swap,
        console,
        transfers,
        handlers,
        installation: sender,
    };
    tokio::select! {
        ended = serving => ended.context("virt-api ended"),
        () = keep(process, &replaceable) => Ok(()),
    }
}

/// Publishes the authority and renews certificates; never returns.
async fn keep(process: &Process, replaceable: &Replaceable) {
    let secrets: Api<Secret> = Api::namespaced(process.client.clone(), &process.namespace);
    let mut changes = pin!(stream::select(
        changes(secrets, authority::NAME),
        trust::webhook_changes(&process.client),
    ));
    loop {
        // Half of our certificates' lifetime.
        let now = Timestamp::now();
        let times = now..now.checked_add(LIFETIME / 2).unwrap_or(Timestamp::MAX);
        let wait = match Box::pin(renew(process, replaceable)).await {
            Ok(()) => CHECK_INTERVAL,
            Err(error) => {
                publish_failure(process, &error);
                RETRY_INTERVAL
            }
        };
        tokio::select! {
            () = pause(wait, &times, Timestamp::now) => {}
            _change = changes.next() => {
                tokio::time::sleep(DEBOUNCE).await;
                while let Some(Some(())) = changes.next().now_or_never() {}
            }
        }
    }
}

fn publish_failure(process: &Process, error: &anyhow::Error) {
    let chain: &(dyn std::error::Error + 'static) = error.as_ref();
    let note = format!("certificates are not renewed: {}", error_chain(chain));
    process.notices.warn(Reason::CertificateNotRenewed, &note);
}

async fn current(process: &Process) -> Result<Installation> {
    let (now, notices) = (Timestamp::now(), &process.notices);
    authority::current(&process.client, &process.namespace, now, notices).await
}

async fn renew(process: &Process, replaceable: &Replaceable) -> Result<()> {
    let client = &process.client;
    let installation = current(process).await?;
    // API servers must trust a new authority before we present a certificate of it.
    let namespace = &process.namespace;
    for other in trust::publish(client, namespace, &installation.bundle).await? {
        let note = format!(
            "Ferrovirt is installed in namespace {namespace}, and a cluster has one installation: another one \
             in namespace {other} had replaced the webhooks, which are restored now. Delete it: kubectl delete \
             namespace {other}"
        );
        process.notices.warn(Reason::SecondInstallation, &note);
    }
    // API servers renew the authority of their front proxy, too.
    let (proxies, _names) = front_proxy::read(client).await?;
    let (server, caller) = identities(&installation, &process.namespace)?;
    let callers = ClientCertificates::Optional(proxies);
    replaceable.serving.replace(&server, &callers)?;
    let secret = installation.authority.identity().key_pem();
    if let Some(console) = &replaceable.console {
        let certificate = &console.certificate;
        certificate.replace(&server, &ClientCertificates::Ignored)?;
        console.tickets.replace(secret);
    }
    let certificate = transfer_identity(&installation, &process.namespace)?;
    replaceable.transfers.replace(&certificate, secret)?;
    replaceable
        .handlers
        .replace(&installation.bundle, Some(&caller))?;
    replaceable.installation.send_replace(installation);
    Ok(())
}

fn transfer_identity(installation: &Installation, namespace: &str) -> Result<Identity> {
    let validity = Validity::starting(Timestamp::now(), LIFETIME);
    transfers::identity(&installation.authority, namespace, validity)
}

/// The certificates of virt-api as a server and as a client.
fn identities(installation: &Installation, namespace: &str) -> Result<(Identity, Identity)> {
    let validity = Validity::starting(Timestamp::now(), LIFETIME);
    let authority = &installation.authority;
    let mut server = Leaf::server(format!("virt-api.{namespace}.svc"), validity);
    server
        .dns_names
        .push(format!("virt-api.{namespace}.svc.cluster.local"));
    Ok((
        authority.issue(&server)?,
        authority.issue(&Leaf::user(CLIENT_NAME, &[], validity))?,
    ))
}
