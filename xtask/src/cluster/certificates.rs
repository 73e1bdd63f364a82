//! Certificates of the cluster's servers and users, and the users' kubeconfigs.
//!
//! Made once, with the cluster's directory; a year is more than any test cluster lives.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr},
    path::Path,
};

use anyhow::{Context as _, Result};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use serving::{Authority, Identity, Leaf, Usage, Validity};

use super::place::{API_PORT, CONTROL_PLANE, MOST_NODES, NodeNumber, Place, api_addresses};

const LIFETIME: SignedDuration = SignedDuration::from_hours(24 * 365);

/// Users with a kubeconfig: file, name, groups.
const USERS: [(&str, &str, &[&str]); 5] = [
    ("admin", "admin", &["system:masters"]),
    ("controller-manager", "system:kube-controller-manager", &[]),
    ("scheduler", "system:kube-scheduler", &[]),
    ("proxy", "system:kube-proxy", &[]),
    ("multus", "test-cluster:multus", &[]),
];

/// Makes all of them unless they are there.
pub(super) fn make(place: &Place) -> Result<()> {
    // Written last.
    if place.kubeconfig("admin").exists() {
        return Ok(());
    }
    let validity = Validity::starting(Timestamp::now(), LIFETIME);
    let authority = Authority::create("test-cluster", validity)?;
    save(place, "ca", authority.identity())?;
    let front = Authority::create("test-cluster-front-proxy", validity)?;
    save(place, "front-ca", front.identity())?;
    save(
        place,
        "front",
        &front.issue(&Leaf::user("front-proxy-client", &[], validity))?,
    )?;
    // The API server serves, and is a client of kubelets.
    let names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc"];
    let mut server = Leaf::server("kubernetes.default.svc.cluster.local", validity);
    server.dns_names.extend(names.map(str::to_owned));
    server.dns_names.push("localhost".to_owned());
    server.addresses = api_addresses();
    save(place, "api-server", &authority.issue(&server)?)?;
    let to_kubelets = Leaf::user(
        "kube-apiserver-kubelet-client",
        &["system:masters"],
        validity,
    );
    save(place, "kubelet-client", &authority.issue(&to_kubelets)?)?;
    // Only the key matters: tokens are signed with it.
    save(
        place,
        "accounts",
        &authority.issue(&Leaf::server("service-accounts", validity))?,
    )?;
    for node in NodeNumber::first(MOST_NODES) {
        let name = node.name();
        let serves = Leaf {
            addresses: vec![IpAddr::V4(node.address())],
            usage: Usage::Server,
            ..Leaf::server(name.as_str(), validity)
        };
        save(
            place,
            &format!("kubelet-{name}"),
            &authority.issue(&serves)?,
        )?;
        let user = Leaf::user(format!("system:node:{name}"), &["system:nodes"], validity);
        kubeconfig(place, &name, &authority, &authority.issue(&user)?)?;
    }
    for (file, name, groups) in USERS.iter().rev() {
        let user = authority.issue(&Leaf::user(*name, groups, validity))?;
        kubeconfig(place, file, &authority, &user)?;
    }
    Ok(())
}

fn save(place: &Place, name: &str, identity: &Identity) -> Result<()> {
    identity
        .save(&place.certificate(name), &place.key(name))
        .with_context(|| format!("keep the certificate of {name}"))
}

fn kubeconfig(place: &Place, file: &str, authority: &Authority, user: &Identity) -> Result<()> {
    let base64 = |pem: &str| k8s_openapi::ByteString(pem.as_bytes().to_vec());
    let server: Ipv4Addr = CONTROL_PLANE;
    let text = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "test-cluster",
        "clusters": [{"name": "test-cluster", "cluster": {
            "server": format!("https://{server}:{API_PORT}"),
            "certificate-authority-data": base64(authority.trust().pem()),
        }}],
        "users": [{"name": file, "user": {
            "client-certificate-data": base64(user.certificate_pem()),
            "client-key-data": base64(user.key_pem()),
        }}],
        "contexts": [{"name": "test-cluster", "context": {"cluster": "test-cluster", "user": file}}],
    });
    write_private(
        &place.kubeconfig(file),
        serde_json::to_string_pretty(&text)?.as_bytes(),
    )
}

fn write_private(path: &Path, bytes: &[u8]) -> Result<()> {
    use std::{io::Write as _, os::unix::fs::OpenOptionsExt as _};
    let draft = path.with_extension("draft");
    fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&draft)
        .and_then(|mut file| file.write_all(bytes))
        .and_then(|()| fs::rename(&draft, path))
        .with_context(|| format!("write {}", path.display()))
}
