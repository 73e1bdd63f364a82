//! The administrator's kubeconfig.

use std::{
    io::Write,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use anyhow::{Context, Result};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::json;

use crate::identities::Identities;

/// Replaces the file atomically; only root can read it.
pub(crate) fn write(path: &Path, listen: SocketAddr, identities: &Identities) -> Result<()> {
    let host = match listen.ip() {
        ip if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        ip => ip,
    };
    let server = format!("https://{}", SocketAddr::new(host, listen.port()));
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
    let part = path.with_extension("part");
    let explain = || format!("write {}", path.display());
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&part)
        .with_context(explain)?;
    file.write_all(text.as_bytes()).with_context(explain)?;
    std::fs::rename(&part, path).with_context(explain)
}
