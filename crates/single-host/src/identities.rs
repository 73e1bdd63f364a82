//! The certificates of all components, from three separate authorities.
//!
//! One signs the API server and its users, one the front proxy (the holder of its certificate may name any
//! user), one the servers behind the API server. The authorities are stored; leaf certificates are issued at
//! each start with the lifetime of their authority, since both are on the same disk.
//!
//! An authority that ends soon, or that was made while the clock was wrong, is made anew with the same key, so that
//! what trusts the old certificate trusts the new one.

use std::{
    net::{IpAddr, Ipv4Addr},
    os::unix::fs::DirBuilderExt,
    path::Path,
};

use anyhow::{Context, Result, ensure};
use embedded_api::SigningKey;
use jiff::{SignedDuration, Timestamp};
use serving::{Authority, Identity, Leaf, Trust, Usage, Validity};

const LIFETIME: SignedDuration = SignedDuration::from_hours(24 * 365 * 10);
/// An authority that is valid for less than this time is renewed.
const RENEW_BEFORE: SignedDuration = SignedDuration::from_hours(24 * 365);
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
    /// Shown to servers in guests.
    pub(crate) guest_client: Identity,
    pub(crate) virt_api: Identity,
    pub(crate) virt_api_client: Identity,
    /// When all of them are valid.
    validity: Validity,
}

impl Identities {
    /// Whether they have to be issued again: they end soon, or the clock was wrong when they were issued.
    pub(crate) fn are_due(&self, now: Timestamp) -> bool {
        is_due(self.validity, now)
    }
}

fn is_due(validity: Validity, now: Timestamp) -> bool {
    now < validity.from || validity.until.duration_since(now) < RENEW_BEFORE
}

/// Names and addresses that go into certificates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Names {
    pub(crate) listen: IpAddr,
    /// The addresses of the host's interfaces, for a server that listens at all of them.
    pub(crate) host: Vec<IpAddr>,
    /// Further names and addresses, from `--name`.
    pub(crate) further: Vec<ServerName>,
    pub(crate) node: String,
    pub(crate) node_address: IpAddr,
    /// The address of the service `kubernetes`.
    pub(crate) service: IpAddr,
}

/// A name or an address of this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ServerName {
    Dns(String),
    Address(IpAddr),
}

impl ServerName {
    /// Reads a value of `--name`.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        if let Ok(address) = text.parse() {
            return Ok(Self::Address(address));
        }
        let name = text.to_ascii_lowercase();
        let is_label = |label: &str| {
            !label.is_empty()
                && label.len() <= 63
                && !label.starts_with('-')
                && !label.ends_with('-')
                && label
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        };
        // The first label may be a wildcard.
        let labels = name.strip_prefix("*.").unwrap_or(&name);
        ensure!(
            name.len() <= 253 && labels.split('.').all(is_label),
            "give a DNS name such as vmhost.example, or an IP address"
        );
        Ok(Self::Dns(name))
    }
}

/// The names of the service `kubernetes`, by which pods reach the API server.
const SERVER_NAMES: [&str; 5] = [
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
    "localhost",
];

pub(crate) fn load_or_create(dir: &Path, names: &Names, now: Timestamp) -> Result<Identities> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .with_context(|| format!("create {}", dir.display()))?;
    let validity = Validity::starting(now, LIFETIME);
    let authority = |name: &str| authority(dir, name, now);
    let (users, proxies, servers) = (
        authority("ferrovirt-ca")?,
        authority("front-proxy-ca")?,
        authority("servers-ca")?,
    );
    // Those of the leaf certificates end last.
    let mut valid = validity;
    for authority in [&users, &proxies, &servers] {
        let own = authority.identity().validity()?;
        valid.until = valid.until.min(own.until);
    }
    let client = |name: &str, groups: &[&str]| Leaf::user(name, groups, validity);
    let server = |name: &str, addresses: Vec<IpAddr>| Leaf {
        addresses,
        ..Leaf::server(name, validity)
    };
    let mut api_server = server("kube-apiserver", addresses(names));
    api_server.dns_names = dns_names(names);
    let mut kubelet = server(&names.node, vec![names.node_address]);
    kubelet.usage = Usage::Server;
    Ok(Identities {
        api_server: users.issue(&api_server)?,
        admin: users.issue(&client("kubernetes-admin", &["system:masters"]))?,
        front_proxy: proxies.issue(&client(FRONT_PROXY, &[]))?,
        kubelet: servers.issue(&kubelet)?,
        kubelet_client: servers.issue(&client(embedded_node::API_SERVER, &[]))?,
        handler: servers.issue(&server(&format!("virt-handler.{}", names.node), vec![]))?,
        guest_client: servers.issue(&client(virt_handler::VSOCK_CLIENT, &[]))?,
        virt_api: servers.issue(&server("virt-api.kubevirt.svc", vec![]))?,
        virt_api_client: servers.issue(&client("virt-api", &[]))?,
        users: users.trust(),
        proxies: proxies.trust(),
        servers: servers.trust(),
        validity: valid,
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

fn authority(dir: &Path, name: &str, now: Timestamp) -> Result<Authority> {
    let (certificate, key) = (
        dir.join(format!("{name}.crt")),
        dir.join(format!("{name}.key")),
    );
    let validity = Validity::starting(now, LIFETIME);
    let authority = if certificate.exists() && key.exists() {
        let unusable = || {
            let file = certificate.display();
            format!("load {file}: remove it to create a new one")
        };
        let kept = Authority::load(&certificate, &key).with_context(unusable)?;
        let own = kept.identity().validity().with_context(unusable)?;
        if !is_due(own, now) {
            return Ok(kept);
        }
        tracing::warn!(
            authority = name,
            from = %own.from,
            until = %own.until,
            %now,
            "the certificate of an authority ends soon, or the clock was wrong when it was made: it is made anew"
        );
        kept.renew(name, validity)?
    } else {
        Authority::create(name, validity)?
    };
    authority
        .save(&certificate, &key)
        .with_context(|| format!("save {}", certificate.display()))?;
    Ok(authority)
}

/// Addresses in the API server's certificate; a wildcard stands for those of all interfaces.
fn addresses(names: &Names) -> Vec<IpAddr> {
    let mut addresses = vec![
        IpAddr::V4(Ipv4Addr::LOCALHOST),
        names.node_address,
        names.service,
    ];
    let listen = if names.listen.is_unspecified() {
        names.host.clone()
    } else {
        vec![names.listen]
    };
    let further = names.further.iter().filter_map(|name| match name {
        ServerName::Address(address) => Some(*address),
        ServerName::Dns(_) => None,
    });
    for address in listen.into_iter().chain(further) {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    addresses
}

fn dns_names(names: &Names) -> Vec<String> {
    let further = names.further.iter().filter_map(|name| match name {
        ServerName::Dns(name) => Some(name.clone()),
        ServerName::Address(_) => None,
    });
    let usual = SERVER_NAMES.map(ToOwned::to_owned).into_iter();
    usual.chain(further).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn names() -> Names {
        let address = |text: &str| text.parse().expect("an address");
        Names {
            listen: address("127.0.0.1"),
            host: vec![],
            further: vec![],
            node: "here".to_owned(),
            node_address: address("10.244.0.1"),
            service: address("10.96.0.1"),
        }
    }

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    #[test]
    fn certificates_of_a_wrong_clock_are_issued_again() {
        for wrong in ["1970-01-01T00:01:00Z", "2036-11-23T00:00:00Z"] {
            let dir = tempfile::tempdir().expect("a directory");
            let now = at("2026-11-23T00:00:00Z");
            let before = load_or_create(dir.path(), &names(), at(wrong)).expect("certificates");
            assert!(before.are_due(now), "{wrong}");
            assert!(!before.are_due(at(wrong)), "{wrong}");
            let after = load_or_create(dir.path(), &names(), now).expect("certificates");
            assert!(!after.are_due(now), "{wrong}");
            // A client that trusts either authority trusts the server now.
            for trust in [&before.users, &after.users] {
                let valid = serving::believes(trust, &after.api_server, "localhost", now);
                assert!(valid.expect("readable"), "{wrong}");
            }
            let stale = serving::believes(&after.users, &before.api_server, "localhost", now);
            assert!(!stale.expect("readable"), "{wrong}");
            let again = load_or_create(dir.path(), &names(), now).expect("certificates");
            assert_eq!(again.users, after.users, "{wrong}: renewed once");
        }
    }

    #[test]
    fn certificates_are_due_a_year_before_they_end() {
        let validity = Validity {
            from: at("2026-01-01T00:00:00Z"),
            until: at("2036-01-01T00:00:00Z"),
        };
        for (now, expected) in [
            ("2025-12-31T00:00:00Z", true),
            ("2026-01-01T00:00:00Z", false),
            ("2034-12-31T00:00:00Z", false),
            ("2035-01-02T00:00:00Z", true),
            ("2040-01-01T00:00:00Z", true),
        ] {
            assert_eq!(is_due(validity, at(now)), expected, "{now}");
        }
    }

    #[test]
    fn certificate_of_the_api_server_has_its_names_inside_of_pods() {
        use x509_parser::prelude::FromDer as _;
        let dir = tempfile::tempdir().expect("a directory");
        let names = Names {
            listen: "192.0.2.1".parse().expect("an address"),
            host: vec![],
            further: vec![ServerName::Dns("vmhost.example".to_owned())],
            ..names()
        };
        let made = load_or_create(dir.path(), &names, Timestamp::now()).expect("certificates");
        let pem = made.api_server.certificate_pem().to_owned();
        let (_, pem) = x509_parser::pem::parse_x509_pem(pem.as_bytes()).expect("PEM");
        let (_, parsed) = x509_parser::certificate::X509Certificate::from_der(&pem.contents)
            .expect("a certificate");
        let found = parsed
            .subject_alternative_name()
            .expect("readable")
            .expect("names");
        let text = format!("{:?}", found.value.general_names);
        for expected in SERVER_NAMES.into_iter().chain(["vmhost.example"]) {
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
    fn server_at_all_addresses_is_named_by_all_of_them() {
        let address = |text: &str| text.parse::<IpAddr>().expect("an address");
        let host = [
            address("192.0.2.7"),
            address("10.244.0.1"),
            address("2001:db8::7"),
        ];
        let further = [ServerName::Address(address("198.51.100.9"))];
        for (listen, expected) in [
            ("0.0.0.0", vec!["192.0.2.7", "2001:db8::7", "198.51.100.9"]),
            ("::", vec!["192.0.2.7", "2001:db8::7", "198.51.100.9"]),
            ("192.0.2.7", vec!["192.0.2.7", "198.51.100.9"]),
            ("127.0.0.1", vec!["198.51.100.9"]),
        ] {
            let names = Names {
                listen: address(listen),
                host: host.to_vec(),
                further: further.to_vec(),
                ..names()
            };
            let usual = ["127.0.0.1", "10.244.0.1", "10.96.0.1"];
            let expected: Vec<IpAddr> = usual.into_iter().chain(expected).map(address).collect();
            assert_eq!(addresses(&names), expected, "{listen}");
        }
    }

    #[test]
    fn names_of_the_host_are_checked() {
        let dns = |name: &str| Some(ServerName::Dns(name.to_owned()));
        for (text, expected) in [
            ("vmhost.example", dns("vmhost.example")),
            ("VMHost", dns("vmhost")),
            ("*.vms.example", dns("*.vms.example")),
            (
                "192.0.2.7",
                Some(ServerName::Address([192, 0, 2, 7].into())),
            ),
            ("", None),
            ("a b", None),
            ("a..b", None),
            ("-a", None),
            ("https://a", None),
            ("a.*.b", None),
        ] {
            assert_eq!(ServerName::parse(text).ok(), expected, "{text:?}");
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
