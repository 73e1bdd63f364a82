//! The administrator's kubeconfig.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::Path,
};

use anyhow::{Context, Result};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::json;

use crate::identities::Identities;

/// Where this host reaches a server that listens there.
pub(crate) fn url(listen: SocketAddr) -> String {
    let host = match listen.ip() {
        ip if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        ip => ip,
    };
    format!("https://{}", SocketAddr::new(host, listen.port()))
}

/// Replaces the file atomically; only root can read it.
pub(crate) fn write(path: &Path, listen: SocketAddr, identities: &Identities) -> Result<()> {
    let server = url(listen);
    let encode = |pem: &str| STANDARD.encode(pem);
    let text = serde_saphyr::to_string(&json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{
            "name": "ferrovirt",
            "cluster": {
                "server": server,
                "certificate-authority-data": encode(identities.users.pem()),
            },
        }],
        "users": [{
            "name": "admin",
            "user": {
                "client-certificate-data": encode(identities.admin.certificate_pem()),
                "client-key-data": encode(identities.admin.key_pem()),
            },
        }],
        "contexts": [{
            "name": "ferrovirt",
            "context": {"cluster": "ferrovirt", "user": "admin", "namespace": "default"},
        }],
        "current-context": "ferrovirt",
    }))
    .context("write the kubeconfig")?;
    durable_file::replace(path, text.as_bytes(), durable_file::PRIVATE)
        .with_context(|| format!("write {}", path.display()))
}
