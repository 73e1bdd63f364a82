//! Makes a client from flags and kubeconfig.

use anyhow::{Context, Result};
use kube::{
    Client, Config,
    client::ClientBuilder,
    config::{KubeConfigOptions, Kubeconfig},
};

use crate::{cli::Connection, requests::Requests};

/// A client and the namespace of the command.
#[derive(Clone)]
pub(crate) struct Cluster {
    pub(crate) client: Client,
    pub(crate) namespace: String,
}

pub(crate) async fn connect(flags: &Connection) -> Result<Cluster> {
    let mut config = config(flags).await?;
    if let Some(server) = &flags.server {
        config.cluster_url = server
            .parse()
            .with_context(|| format!("--server {server:?}"))?;
    }
    if let Some(namespace) = &flags.namespace {
        config.default_namespace.clone_from(namespace);
    }
    config.accept_invalid_certs |= flags.insecure_skip_tls_verify;
    if flags.tls_server_name.is_some() {
        config.tls_server_name.clone_from(&flags.tls_server_name);
    }
    let auth = &mut config.auth_info;
    let path = |path: &std::path::Path| path.to_string_lossy().into_owned();
    if let Some(file) = &flags.client_certificate {
        (auth.client_certificate, auth.client_certificate_data) = (Some(path(file)), None);
    }
    if let Some(file) = &flags.client_key {
        (auth.client_key, auth.client_key_data) = (Some(path(file)), None);
    }
    if let Some(token) = &flags.token {
        auth.token = Some(secrecy::SecretString::from(token.clone()));
    }
    if flags.impersonate.is_some() {
        auth.impersonate.clone_from(&flags.impersonate);
        auth.impersonate_groups = Some(flags.impersonate_groups.clone());
    }
    // Streams stay open for as long as the user likes.
    config.read_timeout = None;
    let namespace = config.default_namespace.clone();
    let requests = Requests {
        limit: flags.request_timeout.0,
        verbosity: flags.verbosity,
    };
    let builder = ClientBuilder::try_from(config).context("make a client from the kubeconfig")?;
    let client: Client = builder.with_layer(&requests).build();
    Ok(Cluster { client, namespace })
}

async fn config(flags: &Connection) -> Result<Config> {
    let options = KubeConfigOptions {
        context: flags.context.clone(),
        cluster: flags.cluster.clone(),
        user: flags.user.clone(),
    };
    let kubeconfig = match &flags.kubeconfig {
        Some(path) => Kubeconfig::read_from(path)
            .with_context(|| format!("read the kubeconfig {}", path.display()))?,
        None => match Kubeconfig::read() {
            Ok(kubeconfig) => kubeconfig,
            Err(err) => {
                return Config::incluster().map_err(|_| err).context(
                    "find a cluster: give --kubeconfig, or set KUBECONFIG to the file that \
                     `ferrovirt up` named",
                );
            }
        },
    };
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .context("parse the kubeconfig")?;
    if let Some(file) = &flags.certificate_authority {
        let pem = std::fs::read(file)
            .with_context(|| format!("read --certificate-authority {}", file.display()))?;
        config.root_cert = Some(certificates(&pem)?);
    }
    Ok(config)
}

pub(crate) fn certificates(pem: &[u8]) -> Result<Vec<Vec<u8>>> {
    use rustls_pki_types::{CertificateDer, pem::PemObject};
    CertificateDer::pem_slice_iter(pem)
        .map(|certificate| Ok(certificate?.to_vec()))
        .collect::<Result<_, rustls_pki_types::pem::Error>>()
        .context("parse the certificates of the authority as PEM")
}
