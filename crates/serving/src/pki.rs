//! Certificate authorities and leaf certificates: creates, stores and reads them as PEM.
//!
//! Invariants: private keys are written with mode 0600 and never appear in `Debug` output; the time
//! of validity comes from the caller. Must not know: sockets, servers.

use std::{
    fmt, fs, io,
    net::IpAddr,
    path::{Path, PathBuf},
    time::SystemTime,
};

use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};

/// Why a certificate could not be created, read or written.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    #[error("create certificate for {name}")]
    Make {
        name: String,
        #[source]
        source: rcgen::Error,
    },
    #[error("create certificate for {name} with more than two organizations")]
    TooManyOrganizations { name: String },
    #[error("read PEM of {what}")]
    Parse {
        what: &'static str,
        #[source]
        source: rustls_pki_types::pem::Error,
    },
    #[error("PEM has no {what}")]
    Empty { what: &'static str },
    #[error("load certificate authority")]
    Issuer {
        #[source]
        source: rcgen::Error,
    },
    #[error("access {}", path.display())]
    File {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// When a certificate is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    pub from: Timestamp,
    pub until: Timestamp,
}

impl Validity {
    /// From five minutes before `now` (peers' clocks differ) until `lifetime` after it.
    pub fn starting(now: Timestamp, lifetime: SignedDuration) -> Self {
        Self {
            from: now.checked_sub(SignedDuration::from_mins(5)).unwrap_or(now),
            until: now.checked_add(lifetime).unwrap_or(Timestamp::MAX),
        }
    }
}

/// What a leaf certificate may be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Usage {
    Client,
    Server,
    Both,
}

/// The contents of a leaf certificate.
#[derive(Debug, Clone)]
pub struct Leaf {
    /// The subject's CN: a user's name, for client certificates.
    pub common_name: String,
    /// The subject's O entries: a user's groups. At most two.
    pub organizations: Vec<String>,
    pub dns_names: Vec<String>,
    pub addresses: Vec<IpAddr>,
    pub usage: Usage,
    pub validity: Validity,
}

impl Leaf {
    /// A client certificate for a user.
    pub fn user(name: impl Into<String>, groups: &[&str], validity: Validity) -> Self {
        Self {
            common_name: name.into(),
            organizations: groups.iter().map(ToString::to_string).collect(),
            dns_names: Vec::new(),
            addresses: Vec::new(),
            usage: Usage::Client,
            validity,
        }
    }

    /// A server certificate for a DNS name, which is also its common name.
    pub fn server(name: impl Into<String>, validity: Validity) -> Self {
        let name = name.into();
        Self {
            common_name: name.clone(),
            organizations: Vec::new(),
            dns_names: vec![name],
            addresses: Vec::new(),
            usage: Usage::Server,
            validity,
        }
    }
}

/// A certificate chain (leaf first) and its private key, as PEM.
#[derive(Clone)]
pub struct Identity {
    certificate_pem: String,
    key_pem: String,
}

impl Identity {
    /// Takes PEM text; checked when it is used or saved.
    pub fn from_pem(certificate_pem: impl Into<String>, key_pem: impl Into<String>) -> Self {
        Self {
            certificate_pem: certificate_pem.into(),
            key_pem: key_pem.into(),
        }
    }

    /// Reads the two PEM files.
    pub fn load(certificate: &Path, key: &Path) -> Result<Self, PkiError> {
        let identity = Self::from_pem(read(certificate)?, read(key)?);
        identity.chain()?;
        identity.key()?;
        Ok(identity)
    }

    /// Writes the two PEM files; the key readable by its owner only.
    #[cfg(unix)]
    pub fn save(&self, certificate: &Path, key: &Path) -> Result<(), PkiError> {
        write(key, &self.key_pem, 0o600)?;
        write(certificate, &self.certificate_pem, 0o644)
    }

    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// The private key: a secret.
    pub fn key_pem(&self) -> &str {
        &self.key_pem
    }

    /// The chain, leaf first.
    pub fn chain(&self) -> Result<Vec<CertificateDer<'static>>, PkiError> {
        certificates(&self.certificate_pem)
    }

    /// The private key, parsed.
    pub fn key(&self) -> Result<PrivateKeyDer<'static>, PkiError> {
        PrivateKeyDer::from_pem_slice(self.key_pem.as_bytes()).map_err(|source| PkiError::Parse {
            what: "private key",
            source,
        })
    }

    /// When the leaf expires.
    pub fn valid_until(&self) -> Result<Timestamp, PkiError> {
        Ok(self.validity()?.until)
    }

    /// When the leaf is valid.
    pub fn validity(&self) -> Result<Validity, PkiError> {
        let chain = self.chain()?;
        let leaf = chain.first().ok_or(PkiError::Empty {
            what: "certificate",
        })?;
        let (_, parsed) =
            x509_parser::parse_x509_certificate(leaf).map_err(|_| PkiError::Empty {
                what: "X.509 certificate",
            })?;
        let time = |seconds| {
            Timestamp::from_second(seconds).map_err(|_| PkiError::Empty {
                what: "time of validity",
            })
        };
        let validity = parsed.validity();
        Ok(Validity {
            from: time(validity.not_before.timestamp())?,
            until: time(validity.not_after.timestamp())?,
        })
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").finish_non_exhaustive()
    }
}

/// Trusted authorities, as PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trust {
    pem: String,
}

impl Trust {
    pub fn from_pem(pem: impl Into<String>) -> Self {
        Self { pem: pem.into() }
    }

    pub fn load(path: &Path) -> Result<Self, PkiError> {
        let trust = Self::from_pem(read(path)?);
        trust.certificates()?;
        Ok(trust)
    }

    pub fn pem(&self) -> &str {
        &self.pem
    }

    pub fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, PkiError> {
        certificates(&self.pem)
    }
}

/// A certificate authority that can sign.
#[derive(Debug, Clone)]
pub struct Authority {
    identity: Identity,
}

impl Authority {
    /// Creates a self-signed authority with a new P-256 key.
    pub fn create(common_name: &str, validity: Validity) -> Result<Self, PkiError> {
        let key = KeyPair::generate().map_err(|source| PkiError::Make {
            name: common_name.to_owned(),
            source,
        })?;
        let mut params = CertificateParams::default();
        set_validity(&mut params, validity);
        Self::self_signed(common_name, &key, params)
    }

    /// The same authority with a new validity: same name and key, so everything that trusts one of the two
    /// trusts the certificates of both.
    pub fn renew(&self, common_name: &str, validity: Validity) -> Result<Self, PkiError> {
        let key = KeyPair::from_pem(&self.identity.key_pem);
        let key = key.map_err(|source| PkiError::Issuer { source })?;
        let mut params = CertificateParams::default();
        set_validity(&mut params, validity);
        // By default it follows from the key, and no two certificates of an authority may share one.
        let seconds = u64::try_from(validity.until.as_second()).unwrap_or_default();
        params.serial_number = Some(seconds.into());
        Self::self_signed(common_name, &key, params)
    }

    fn self_signed(
        common_name: &str,
        key: &KeyPair,
        mut params: CertificateParams,
    ) -> Result<Self, PkiError> {
        params.distinguished_name = rcgen::DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::CommonName, common_name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::CrlSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        let certificate = params.self_signed(key).map_err(|source| PkiError::Make {
            name: common_name.to_owned(),
            source,
        })?;
        Ok(Self {
            identity: Identity::from_pem(certificate.pem(), key.serialize_pem()),
        })
    }

    /// Takes an authority made before.
    pub fn from_identity(identity: Identity) -> Result<Self, PkiError> {
        let authority = Self { identity };
        drop(authority.issuer()?);
        Ok(authority)
    }

    /// Reads an authority from its two PEM files.
    pub fn load(certificate: &Path, key: &Path) -> Result<Self, PkiError> {
        Self::from_identity(Identity::load(certificate, key)?)
    }

    #[cfg(unix)]
    pub fn save(&self, certificate: &Path, key: &Path) -> Result<(), PkiError> {
        self.identity.save(certificate, key)
    }

    /// The authority's own certificate and key.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// What others need to trust this authority.
    pub fn trust(&self) -> Trust {
        Trust::from_pem(self.identity.certificate_pem.clone())
    }

    /// Signs a leaf certificate with a fresh P-256 key.
    pub fn issue(&self, leaf: &Leaf) -> Result<Identity, PkiError> {
        let failed = |source| PkiError::Make {
            name: leaf.common_name.clone(),
            source,
        };
        if leaf.organizations.len() > 2 {
            return Err(PkiError::TooManyOrganizations {
                name: leaf.common_name.clone(),
            });
        }
        let issuer = self.issuer()?;
        let params = leaf_params(leaf).map_err(failed)?;
        let key = KeyPair::generate().map_err(failed)?;
        let certificate = params.signed_by(&key, &issuer).map_err(failed)?;
        Ok(Identity::from_pem(certificate.pem(), key.serialize_pem()))
    }

    /// Signs a certificate for the key of a request. Everything else comes from the leaf, not from the request.
    pub fn sign(&self, request_pem: &str, leaf: &Leaf) -> Result<String, PkiError> {
        let failed = |source| PkiError::Make {
            name: leaf.common_name.clone(),
            source,
        };
        let request = CertificateSigningRequestParams::from_pem(request_pem).map_err(failed)?;
        let params = leaf_params(leaf).map_err(failed)?;
        let signed = params.signed_by(&request.public_key, &self.issuer()?);
        Ok(signed.map_err(failed)?.pem())
    }

    fn issuer(&self) -> Result<Issuer<'static, KeyPair>, PkiError> {
        let unusable = |source| PkiError::Issuer { source };
        let key = KeyPair::from_pem(&self.identity.key_pem).map_err(unusable)?;
        Issuer::from_ca_cert_pem(&self.identity.certificate_pem, key).map_err(unusable)
    }
}

/// A new P-256 key and the signing request for its certificate; the key stays here.
#[derive(Clone)]
pub struct SigningRequest {
    pem: String,
    key_pem: String,
}

impl SigningRequest {
    pub fn new(common_name: &str) -> Result<Self, PkiError> {
        let failed = |source| PkiError::Make {
            name: common_name.to_owned(),
            source,
        };
        let key = KeyPair::generate().map_err(failed)?;
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::CommonName, common_name);
        let request = params.serialize_request(&key).map_err(failed)?;
        Ok(Self {
            pem: request.pem().map_err(failed)?,
            key_pem: key.serialize_pem(),
        })
    }

    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// Combines the issued certificate with the key.
    pub fn complete(self, certificate_pem: impl Into<String>) -> Identity {
        Identity::from_pem(certificate_pem, self.key_pem)
    }
}

impl fmt::Debug for SigningRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningRequest").finish_non_exhaustive()
    }
}

fn leaf_params(leaf: &Leaf) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(leaf.dns_names.clone())?;
    params
        .subject_alt_names
        .extend(leaf.addresses.iter().copied().map(SanType::IpAddress));
    set_validity(&mut params, leaf.validity);
    params.distinguished_name = rcgen::DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, leaf.common_name.as_str());
    // The library keeps one value per attribute type; the same type written as an object identifier is a
    // second key, so that two values fit.
    let kinds = [
        DnType::OrganizationName,
        DnType::CustomDnType(vec![2, 5, 4, 10]),
    ];
    for (kind, organization) in kinds.into_iter().zip(&leaf.organizations) {
        params.distinguished_name.push(kind, organization.as_str());
    }
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = match leaf.usage {
        Usage::Client => vec![ExtendedKeyUsagePurpose::ClientAuth],
        Usage::Server => vec![ExtendedKeyUsagePurpose::ServerAuth],
        Usage::Both => {
            vec![
                ExtendedKeyUsagePurpose::ServerAuth,
                ExtendedKeyUsagePurpose::ClientAuth,
            ]
        }
    };
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}

fn set_validity(params: &mut CertificateParams, validity: Validity) {
    params.not_before = SystemTime::from(validity.from).into();
    params.not_after = SystemTime::from(validity.until).into();
}

fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, PkiError> {
    let found = CertificateDer::pem_slice_iter(pem.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|source| PkiError::Parse {
            what: "certificate",
            source,
        })?;
    if found.is_empty() {
        return Err(PkiError::Empty {
            what: "certificate",
        });
    }
    Ok(found)
}

fn read(path: &Path) -> Result<String, PkiError> {
    fs::read_to_string(path).map_err(|source| PkiError::File {
        path: path.to_owned(),
        source,
    })
}

/// Writes a temporary file and renames it, so that a reader never sees a partial file.
#[cfg(unix)]
fn write(path: &Path, text: &str, mode: u32) -> Result<(), PkiError> {
    durable_file::replace(path, text.as_bytes(), mode).map_err(|source| PkiError::File {
        path: path.to_owned(),
        source,
    })
}
