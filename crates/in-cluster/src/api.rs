//! `ferrovirt api`: keeps the installation's authority, signs for agents, and serves.

use std::{pin::pin, time::Duration};

use anyhow::{Context, Result};
use cluster_config::ClusterConfig;
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
    cli, front_proxy, health, metrics,
    pause::pause,
    run::Process,
    signer, trust,
};

/// Of the certificates that this process makes for itself.
const LIFETIME: SignedDuration = SignedDuration::from_hours(24);
/// Between two looks at the authority; a certificate of ours lasts many of them.
const LOOK: Duration = Duration::from_mins(10);
/// After one that failed.
const RETRY: Duration = Duration::from_secs(10);
/// Somebody who changes one thing may change another.
const SETTLE: Duration = Duration::from_secs(1);
/// How node agents know us.
const CLIENT_NAME: &str = "virt-api";

/// What changes while the process runs.
struct Changing {
    serving: TlsSwap,
    agents: HttpsClient,
    installation: watch::Sender<Installation>,
}

pub(crate) async fn run(process: &Process, flags: &cli::Api) -> Result<()> {
    let client = &process.client;
    let (proxies, front_proxy) = front_proxy::read(client).await?;
    let installation = current(process)
        .await
        .inspect_err(|error| tell(process, error))?;
    let listener = health::listen(flags.port).await?;
    let (server, caller) = identities(&installation, &process.namespace)?;
    let (swap, tls) =
        TlsSource::swappable(&server, &ClientCertificates::Optional(proxies.clone()))?;
    let agents = HttpsClient::new(&installation.bundle, Some(&caller), process.tasks.clone())?;
    let (sender, receiver) = watch::channel(installation.clone());
    let settings = virt_api::Settings {
        client: client.clone(),
        listener,
        tls,
        front_proxy,
        nodes: agents.clone(),
        cluster: ClusterConfig::default(),
        namespace: process.namespace.clone(),
        clock: Clock::system(),
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
    let changing = Changing {
        serving: swap,
        agents,
        installation: sender,
    };
    tokio::select! {
        ended = serving => ended.context("virt-api ended"),
        () = keep(process, &changing) => Ok(()),
    }
}

/// Publishes whom to trust, and renews; never ends by itself.
async fn keep(process: &Process, changing: &Changing) {
    let secrets: Api<Secret> = Api::namespaced(process.client.clone(), &process.namespace);
    let mut changes = pin!(stream::select(
        changes(secrets, authority::NAME),
        trust::webhook_changes(&process.client),
    ));
    loop {
        // Half of the time that our certificates are good for.
        let now = Timestamp::now();
        let times = now..now.checked_add(LIFETIME / 2).unwrap_or(Timestamp::MAX);
        let wait = match Box::pin(renew(process, changing)).await {
            Ok(()) => LOOK,
            Err(error) => {
                tell(process, &error);
                RETRY
            }
        };
        tokio::select! {
            () = pause(wait, &times, Timestamp::now) => {}
            _change = changes.next() => {
                tokio::time::sleep(SETTLE).await;
                while let Some(Some(())) = changes.next().now_or_never() {}
            }
        }
    }
}

fn tell(process: &Process, error: &anyhow::Error) {
    let chain: &(dyn std::error::Error + 'static) = error.as_ref();
    let note = format!("certificates are not renewed: {}", error_chain(chain));
    process.notices.warn(Reason::CertificateNotRenewed, &note);
}

async fn current(process: &Process) -> Result<Installation> {
    let (now, notices) = (Timestamp::now(), &process.notices);
    authority::current(&process.client, &process.namespace, now, notices).await
}

async fn renew(process: &Process, changing: &Changing) -> Result<()> {
    let client = &process.client;
    let installation = current(process).await?;
    // Whoever calls us must trust a new authority before it signs what we show.
    let namespace = &process.namespace;
    for other in trust::publish(client, namespace, &installation.bundle).await? {
        let note = format!(
            "Ferrovirt is installed in namespace {namespace}, and a cluster has one installation: another one \
             in namespace {other} had taken the webhooks, which are put right. Delete it: kubectl delete \
             namespace {other}"
        );
        process.notices.warn(Reason::SecondInstallation, &note);
    }
    // API servers renew the authority of their front proxy, too.
    let (proxies, _names) = front_proxy::read(client).await?;
    let (server, caller) = identities(&installation, &process.namespace)?;
    let callers = ClientCertificates::Optional(proxies);
    changing.serving.replace(&server, &callers)?;
    changing
        .agents
        .replace(&installation.bundle, Some(&caller))?;
    changing.installation.send_replace(installation);
    Ok(())
}

/// What virt-api shows to those who call it, and to those it calls.
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
