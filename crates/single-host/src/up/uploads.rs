//! Uploads of disks: the proxy is at the address of the API server, under paths that the API does not have.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
};

use anyhow::{Context, Result};
use embedded_api::{EmbeddedApi, Identity, Statements};
use reconcile::Clock;
use serde_json::{Value, json};
use tokio_util::task::TaskTracker;
use virt_api::{Signer, UploadProxy, UploadTokens};

use super::{
    certificates::Certificates,
    components::{Host, NAMESPACE, nodes},
    install,
};
use crate::identities::ServerName;

/// Signs with the key of service account tokens.
struct Key(Statements);

impl Signer for Key {
    fn sign(&self, claims: &Value) -> Result<String, String> {
        self.0.sign(claims).map_err(|error| error.to_string())
    }

    fn claims(&self, token: &str) -> Option<Value> {
        self.0.claims(token)
    }
}

/// A token outlives this process, as the key does.
pub(super) fn tokens(api: &EmbeddedApi) -> UploadTokens {
    UploadTokens::new(Arc::new(Key(api.statements("uploads"))), Clock::system())
}

pub(super) fn proxy(
    api: &EmbeddedApi,
    certificates: &Certificates,
    tasks: &TaskTracker,
) -> Result<UploadProxy> {
    let identity = Identity::service_account(NAMESPACE, "kubevirt-apiserver");
    let client = api.client(identity, "default");
    Ok(UploadProxy::new(
        tokens(api),
        client,
        nodes(certificates, tasks)?,
    ))
}

/// Writes the address of the proxy to the place where clients look for it.
pub(super) async fn publish(host: &Host<'_>) -> Result<()> {
    let object = json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1",
        "kind": "CDIConfig",
        "metadata": {"name": "config"},
        "status": {
            "uploadProxyURL": address(host)?,
            "uploadProxyCA": host.certificates.first().users.pem(),
        },
    });
    install::apply(&host.client("ferrovirt-up"), &object)
        .await
        .context("publish the address of the upload proxy")?;
    Ok(())
}

/// Where clients of this host and of others reach the port of the API server.
pub(super) fn address(host: &Host<'_>) -> Result<String> {
    let names = host.flags.names.iter();
    let names: Result<Vec<_>> = names.map(|name| ServerName::parse(name)).collect();
    Ok(url(host.listen, &names?))
}

/// The first name that the user gave is that by which others know this host.
fn url(listen: SocketAddr, names: &[ServerName]) -> String {
    let port = listen.port();
    // A wildcard is no address.
    let mut usable = names.iter().filter_map(|name| match name {
        ServerName::Dns(name) if name.starts_with('*') => None,
        ServerName::Dns(name) => Some(format!("https://{name}:{port}")),
        ServerName::Address(ip) => Some(format!("https://{}", SocketAddr::new(*ip, port))),
    });
    usable.next().unwrap_or_else(|| {
        let ip = match listen.ip() {
            ip if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
            ip => ip,
        };
        format!("https://{}", SocketAddr::new(ip, port))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_one_that_the_certificate_has() {
        let check = |listen: &str, names: &[&str], expected: &str| {
            let names = names.iter().map(|name| ServerName::parse(name));
            let names: Vec<ServerName> = names.map(|name| name.expect("a name")).collect();
            assert_eq!(url(listen.parse().expect("an address"), &names), expected);
        };
        check("127.0.0.1:6443", &[], "https://127.0.0.1:6443");
        check("0.0.0.0:6443", &[], "https://127.0.0.1:6443");
        check("[::1]:7", &[], "https://[::1]:7");
        check(
            "0.0.0.0:7",
            &["*.a", "vmhost.example"],
            "https://vmhost.example:7",
        );
        check("0.0.0.0:7", &["192.0.2.7"], "https://192.0.2.7:7");
    }
}
