//! The certificates of all components, from three separate authorities.
//!
//! One signs the API server and its users, one the front proxy (the holder of its certificate may name any
//! user), one the servers behind the API server. The authorities are stored; leaf certificates are issued at
//! each start with the lifetime of their authority, since both are on the same disk.

use std::{
    io::Write as _,
    net::{IpAddr, Ipv4Addr},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt as _},
    path::Path,
};

use anyhow::{Context, Result};
use embedded_api::SigningKey;
use jiff::{SignedDuration, Timestamp};
use serving::{Authority, Identity, Leaf, Trust, Usage, Validity};

const LIFETIME: SignedDuration = SignedDuration::from_hours(24 * 365 * 10);
/// Common name of the front proxy's certificate.
pub(crate) const FRONT_PROXY: &str = "front-proxy-client";

/// The certificates and authorities of all components.
#[derive(Debug)]
pub(crate) struct Identities {
    /// The authority of the API server and its users.
    pub(crate) users: Trust,
    pub(crate) api_server: Identity,
    pub(crate) admin: Identity,
    /// The authority of the front proxy.
    pub(crate) proxies: Trust,
    pub(crate) front_proxy: Identity,
    /// The authority of the servers behind the API server.
    pub(crate) servers: Trust,
    pub(crate) kubelet: Identity,
    pub(crate) kubelet_client: Identity,
    pub(crate) handler: Identity,
    pub(crate) virt_api: Identity,
    pub(crate) virt_api_client: Identity,
}

/// Names and addresses that go into certificates.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Names<'a> {
    pub(crate) listen: IpAddr,
    pub(crate) node: &'a str,
    pub(crate) node_address: IpAddr,
}

pub(crate) fn load_or_create(dir: &Path, names: Names<'_>) -> Result<Identities> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .with_context(|| format!("create {}", dir.display()))?;
    let validity = Validity::starting(Timestamp::now(), LIFETIME);
    let authority = |name: &str| authority(dir, name, validity);
    let (users, proxies, servers) = (
        authority("ferrovirt-ca")?,
        authority("front-proxy-ca")?,
        authority("servers-ca")?,
    );
    let client = |name: &str, groups: &[&str]| Leaf::user(name, groups, validity);
    let server = |name: &str, addresses: Vec<IpAddr>| Leaf {
        addresses,
        ..Leaf::server(name, validity)
    };
    let mut api_server = server("kubernetes.default.svc", addresses(names.listen));
    api_server
        .dns_names
        .extend(["kubernetes", "kubernetes.default", "localhost"].map(Into::into));
    let mut kubelet = server(names.node, vec![names.node_address]);
    kubelet.usage = Usage::Server;
    Ok(Identities {
        api_server: users.issue(&api_server)?,
        admin: users.issue(&client("kubernetes-admin", &["system:masters"]))?,
        front_proxy: proxies.issue(&client(FRONT_PROXY, &[]))?,
        kubelet: servers.issue(&kubelet)?,
        kubelet_client: servers.issue(&client("kube-apiserver-kubelet-client", &[]))?,
        handler: servers.issue(&server(&format!("virt-handler.{}", names.node), vec![]))?,
        virt_api: servers.issue(&server("virt-api.kubevirt.svc", vec![]))?,
        virt_api_client: servers.issue(&client("virt-api", &[]))?,
        users: users.trust(),
        proxies: proxies.trust(),
        servers: servers.trust(),
    })
}

/// The key that signs tokens of service accounts; made once, since tokens outlive this process.
pub(crate) fn token_key(dir: &Path) -> Result<SigningKey> {
    let path = dir.join("service-accounts.key");
    if path.exists() {
        let der = std::fs::read(&path).with_context(|| format!("read {}", path.display()))?;
        return SigningKey::from_pkcs8(&der)
            .with_context(|| format!("load {}: remove it to create a new one", path.display()));
    }
    let key = SigningKey::generate()?;
    // Replaced atomically, and readable only by root.
    let part = path.with_extension("part");
    std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&part)
        .and_then(|mut file| file.write_all(&key.to_pkcs8().map_err(std::io::Error::other)?))
        .and_then(|()| std::fs::rename(&part, &path))
        .with_context(|| format!("write {}", path.display()))?;
    Ok(key)
}

fn authority(dir: &Path, name: &str, validity: Validity) -> Result<Authority> {
    let (certificate, key) = (
        dir.join(format!("{name}.crt")),
        dir.join(format!("{name}.key")),
    );
    if certificate.exists() && key.exists() {
        return Authority::load(&certificate, &key).with_context(|| {
            format!(
                "load {}: remove it to create a new one",
                certificate.display()
            )
        });
    }
    let authority = Authority::create(name, validity)?;
    authority
        .save(&certificate, &key)
        .with_context(|| format!("save {}", certificate.display()))?;
    Ok(authority)
}

/// Addresses in the API server's certificate; a wildcard includes at least the loopback address.
fn addresses(listen: IpAddr) -> Vec<IpAddr> {
    let mut addresses = vec![IpAddr::V4(Ipv4Addr::LOCALHOST)];
    if !listen.is_unspecified() && !addresses.contains(&listen) {
        addresses.push(listen);
    }
    addresses
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn token_key_is_persistent_and_private() {
        let dir = tempfile::tempdir().expect("a directory");
        let made = token_key(dir.path()).expect("a key");
        let path = dir.path().join("service-accounts.key");
        let mode = std::fs::metadata(&path)
            .expect("a file")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
        let kept = token_key(dir.path()).expect("the same key");
        assert_eq!(made.to_pkcs8().expect("der"), kept.to_pkcs8().expect("der"));
        std::fs::write(&path, b"nonsense").expect("written");
        assert!(token_key(dir.path()).is_err());
    }
}
