//! The certificates of all components, from three separate authorities.
//!
//! One signs the API server and its users, one the front proxy (the holder of its certificate may name any
//! user), one the servers behind the API server. The authorities are stored; leaf certificates are issued at
//! each start with the lifetime of their authority, since both are on the same disk.

use std::{
    net::{IpAddr, Ipv4Addr},
    os::unix::fs::DirBuilderExt,
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
    /// The address of the service `kubernetes`.
    pub(crate) service: IpAddr,
}

/// The names of the service `kubernetes`, by which pods reach the API server.
const SERVER_NAMES: [&str; 5] = [
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
    "localhost",
];

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
    let mut api_server = server("kube-apiserver", addresses(names));
    api_server.dns_names = SERVER_NAMES.map(Into::into).to_vec();
    let mut kubelet = server(names.node, vec![names.node_address]);
    kubelet.usage = Usage::Server;
    Ok(Identities {
        api_server: users.issue(&api_server)?,
        admin: users.issue(&client("kubernetes-admin", &["system:masters"]))?,
        front_proxy: proxies.issue(&client(FRONT_PROXY, &[]))?,
        kubelet: servers.issue(&kubelet)?,
        kubelet_client: servers.issue(&client(embedded_node::API_SERVER, &[]))?,
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
    key.to_pkcs8()
        .map_err(std::io::Error::other)
        .and_then(|der| durable_file::replace(&path, &der, durable_file::PRIVATE))
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

/// Addresses in the API server's certificate; a wildcard includes at least those of loopback and pods.
fn addresses(names: Names<'_>) -> Vec<IpAddr> {
    let mut addresses = vec![
        IpAddr::V4(Ipv4Addr::LOCALHOST),
        names.node_address,
        names.service,
    ];
    if !names.listen.is_unspecified() && !addresses.contains(&names.listen) {
        addresses.push(names.listen);
    }
    addresses
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn certificate_of_the_api_server_has_its_names_inside_of_pods() {
        use x509_parser::prelude::FromDer as _;
        let dir = tempfile::tempdir().expect("a directory");
        let names = Names {
            listen: "192.0.2.1".parse().expect("an address"),
            node: "here",
            node_address: "10.244.0.1".parse().expect("an address"),
            service: "10.96.0.1".parse().expect("an address"),
        };
        let made = load_or_create(dir.path(), names).expect("certificates");
        let pem = made.api_server.certificate_pem().to_owned();
        let (_, pem) = x509_parser::pem::parse_x509_pem(pem.as_bytes()).expect("PEM");
        let (_, parsed) = x509_parser::certificate::X509Certificate::from_der(&pem.contents)
            .expect("a certificate");
        let found = parsed
            .subject_alternative_name()
            .expect("readable")
            .expect("names");
        let text = format!("{:?}", found.value.general_names);
        for expected in SERVER_NAMES {
            assert!(text.contains(&format!("DNSName({expected:?})")), "{text}");
        }
        for octets in [
            "[10, 96, 0, 1]",
            "[10, 244, 0, 1]",
            "[127, 0, 0, 1]",
            "[192, 0, 2, 1]",
        ] {
            assert!(text.contains(&format!("IPAddress({octets})")), "{text}");
        }
    }

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
