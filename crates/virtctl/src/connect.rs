//! Makes a client from flags and kubeconfig.

use anyhow::{Context, Result};
use kube::{
    Client, Config,
    client::ClientBuilder,
    config::{KubeConfigOptions, Kubeconfig},
};

use crate::{
    cli::Connection,
    proxy::{self, Environment, Proxies},
    requests::Requests,
};

/// A client and the namespace of the command.
#[derive(Clone)]
pub(crate) struct Cluster {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    /// For other servers than the API server.
    pub(crate) proxies: Proxies,
}

pub(crate) async fn connect(flags: &Connection) -> Result<Cluster> {
    let (mut config, proxy_of_cluster) = config(flags).await?;
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
    if flags.username.is_some() {
        auth.username.clone_from(&flags.username);
    }
    if flags.password.is_some() {
        auth.password.clone_from(&flags.password);
    }
    if flags.impersonate.is_some() {
        auth.impersonate.clone_from(&flags.impersonate);
        auth.impersonate_uid.clone_from(&flags.impersonate_uid);
        auth.impersonate_groups = Some(flags.impersonate_groups.clone());
    }
    // Streams stay open for as long as the user likes.
    config.read_timeout = None;
    let namespace = config.default_namespace.clone();
    let requests = Requests {
        limit: flags.request_timeout.0,
        verbosity: flags.verbosity,
    };
    let configured = flags.proxy_url.as_deref().or(proxy_of_cluster.as_deref());
    let environment = Environment::of_process();
    let proxy = proxy::choose(&config.cluster_url, configured, &environment)?;
    let proxies = Proxies::new(configured, environment);
    // kube compares NO_PROXY with the proxy, not with the server.
    config.proxy_url = None;
    let client = if let Some(proxy) = proxy {
        proxy::client(&config, &proxy, &requests)?
    } else {
        let builder = ClientBuilder::try_from(config);
        let builder = builder.context("make a client from the kubeconfig")?;
        builder.with_layer(&requests).build()
    };
    Ok(Cluster {
        client,
        namespace,
        proxies,
    })
}

/// The configuration, and the proxy that the kubeconfig has for the cluster.
async fn config(flags: &Connection) -> Result<(Config, Option<String>)> {
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
                let config = Config::incluster().map_err(|_| err).context(
                    "find a cluster: give --kubeconfig, or set KUBECONFIG to the file that \
                     `ferrovirt up` named",
                )?;
                return Ok((config, None));
            }
        },
    };
    let proxy = proxy_of_cluster(&kubeconfig, &options);
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .context("parse the kubeconfig")?;
    if let Some(file) = &flags.certificate_authority {
        let pem = std::fs::read(file)
            .with_context(|| format!("read --certificate-authority {}", file.display()))?;
        config.root_cert = Some(certificates(&pem)?);
    }
    Ok((config, proxy))
}

/// The field `proxy-url` of the cluster that is chosen.
fn proxy_of_cluster(kubeconfig: &Kubeconfig, options: &KubeConfigOptions) -> Option<String> {
    let current = options
        .context
        .as_ref()
        .or(kubeconfig.current_context.as_ref());
    let context = kubeconfig
        .contexts
        .iter()
        .find(|it| Some(&it.name) == current);
    let context = context.and_then(|context| context.context.as_ref());
    let cluster = options
        .cluster
        .as_ref()
        .or(context.map(|context| &context.cluster));
    let cluster = kubeconfig
        .clusters
        .iter()
        .find(|it| Some(&it.name) == cluster)?;
    cluster.cluster.as_ref()?.proxy_url.clone()
}

pub(crate) fn certificates(pem: &[u8]) -> Result<Vec<Vec<u8>>> {
    use rustls_pki_types::{CertificateDer, pem::PemObject};
    CertificateDer::pem_slice_iter(pem)
        .map(|certificate| Ok(certificate?.to_vec()))
        .collect::<Result<_, rustls_pki_types::pem::Error>>()
        .context("parse the certificates of the authority as PEM")
}
