//! The installation's certificate authority: a secret that only `ferrovirt api` reads.
//!
//! The first replica creates it; the others use the existing one. A new authority is created long before the
//! current one expires, and the old one stays in the bundle until it expires, so clients that trust the bundle
//! trust every certificate in use.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    ByteString,
    api::core::v1::{ConfigMap, Secret},
};
use kube::{
    Api, Client,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
};
use reasons::Reason;
use serving::{Authority, Identity, Leaf, Trust, Validity, believes};

use crate::notices::Notices;

/// Name of the secret, and of the config map that all service accounts may read.
pub(crate) const NAME: &str = "kubevirt-ca";
/// The key of the config map's bundle.
pub(crate) const BUNDLE: &str = "ca-bundle";
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
const MANAGER: &str = "ferrovirt-api";

const LIFETIME: SignedDuration = SignedDuration::from_hours(24 * 365);
/// A new authority is created when the current one is valid for less than this time.
const OVERLAP: SignedDuration = SignedDuration::from_hours(24 * 90);
/// Limit on attempts, which fail when replicas write at the same time.
const ATTEMPTS: usize = 5;

/// The signing authority and the bundle of trusted authorities.
#[derive(Debug, Clone)]
pub(crate) struct Installation {
    pub(crate) authority: Authority,
    pub(crate) bundle: Trust,
}

/// The current authority, created or renewed if necessary, and published.
pub(crate) async fn current(
    client: &Client,
    namespace: &str,
    now: Timestamp,
    notices: &Notices,
) -> Result<Installation> {
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    for _ in 0..ATTEMPTS {
        let found = api.get_opt(NAME).await.context("read the authority")?;
        let kept = found.as_ref().map(|found| read(found, now)).transpose()?;
        if let Some(kept) = &kept
            && !is_ending(&kept.authority, now)?
        {
            publish(client, namespace, &kept.bundle).await?;
            return Ok(kept.clone());
        }
        let next = renewed(kept.as_ref(), now)?;
        let written = match found {
            None => {
                let secret = secret(ObjectMeta::default(), &next);
                api.create(&PostParams::default(), &secret).await
            }
            // With the resource version that was read, so only one of two replicas succeeds.
            Some(found) => {
                let secret = secret(found.metadata, &next);
                api.replace(NAME, &PostParams::default(), &secret).await
            }
        };
        match written {
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            outcome => {
                outcome.context("write the authority")?;
                if let Some(Validity { from, until }) = invalid(kept.as_ref(), now)? {
                    let note = format!(
                        "the certificate authority in the secret {namespace}/{NAME} is valid from {from} \
                         until {until}, and it is {now}: a new one was created, and all certificates are \
                         issued again. Check the clock of this node."
                    );
                    notices.warn(Reason::AuthorityExpired, &note);
                }
            }
        }
    }
    bail!("other replicas keep changing the secret {namespace}/{NAME}")
}

/// The validity of an authority that is not valid now.
fn invalid(kept: Option<&Installation>, now: Timestamp) -> Result<Option<Validity>> {
    let Some(kept) = kept else { return Ok(None) };
    let validity = kept.authority.identity().validity()?;
    Ok((now < validity.from || validity.until < now).then_some(validity))
}

fn read(secret: &Secret, now: Timestamp) -> Result<Installation> {
    let text = |key: &str| -> Result<String> {
        let data = secret.data.as_ref().and_then(|data| data.get(key));
        let bytes = data.with_context(|| {
            format!("the secret {NAME} has no {key}: delete it, and a new authority is created")
        })?;
        String::from_utf8(bytes.0.clone()).with_context(|| format!("read {key} of {NAME}"))
    };
    let identity = Identity::from_pem(text(CERTIFICATE)?, text(KEY)?);
    let unusable = || format!("use the secret {NAME}: delete it, and a new authority is created");
    let authority = Authority::from_identity(identity).with_context(unusable)?;
    if !signs(&authority, now).with_context(unusable)? {
        bail!(
            "the key in the secret {NAME} is not that of its certificate: delete it, and a new authority is created"
        );
    }
    // The bundle of a manually created secret may not include its authority.
    let mut bundle = text(BUNDLE)?;
    let own = authority.trust();
    let known = Trust::from_pem(&bundle)
        .certificates()
        .with_context(unusable)?;
    if own.certificates()?.iter().any(|one| !known.contains(one)) {
        bundle.push_str(own.pem());
    }
    Ok(Installation {
        authority,
        bundle: Trust::from_pem(bundle),
    })
}

/// Whether certificates signed by its key are valid for clients that trust its certificate.
fn signs(authority: &Authority, now: Timestamp) -> Result<bool> {
    let name = "proof";
    let proof = Leaf::server(name, Validity::starting(now, SignedDuration::from_hours(1)));
    let proof = authority.issue(&proof)?;
    Ok(believes(&authority.trust(), &proof, name, now)?)
}

/// Whether a new authority is needed, also because the clock was ahead when this one was created.
fn is_ending(authority: &Authority, now: Timestamp) -> Result<bool> {
    let validity = authority.identity().validity()?;
    Ok(now < validity.from || validity.until.duration_since(now) < OVERLAP)
}

/// A new authority; its bundle includes the previous one.
fn renewed(before: Option<&Installation>, now: Timestamp) -> Result<Installation> {
    let authority = Authority::create("kubevirt-ca", Validity::starting(now, LIFETIME))?;
    let mut bundle = authority.trust().pem().to_owned();
    if let Some(before) = before {
        bundle.push_str(before.authority.trust().pem());
    }
    Ok(Installation {
        authority,
        bundle: Trust::from_pem(bundle),
    })
}

fn secret(metadata: ObjectMeta, installation: &Installation) -> Secret {
    let identity = installation.authority.identity();
    let bytes = |text: &str| ByteString(text.as_bytes().to_vec());
    Secret {
        metadata: ObjectMeta {
            name: Some(NAME.to_owned()),
            ..metadata
        },
        type_: Some("Opaque".to_owned()),
        data: Some(BTreeMap::from([
            (CERTIFICATE.to_owned(), bytes(identity.certificate_pem())),
            (KEY.to_owned(), bytes(identity.key_pem())),
            (BUNDLE.to_owned(), bytes(installation.bundle.pem())),
        ])),
        ..Secret::default()
    }
}

/// Writes the bundle to the config map.
async fn publish(client: &Client, namespace: &str, bundle: &Trust) -> Result<()> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let params = PatchParams::apply(MANAGER).force();
    let body = serde_json::json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": NAME},
        "data": {BUNDLE: bundle.pem()},
    });
    api.patch(NAME, &params, &Patch::Apply(body))
        .await
        .context("publish the authority")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(days: i64) -> Timestamp {
        "2026-01-01T00:00:00Z"
            .parse::<Timestamp>()
            .unwrap()
            .checked_add(SignedDuration::from_hours(24 * days))
            .unwrap()
    }

    #[test]
    fn what_is_kept_is_read_back() {
        let made = renewed(None, at(0)).unwrap();
        let read = read(&secret(ObjectMeta::default(), &made), at(0)).unwrap();
        assert_eq!(read.bundle.pem(), made.bundle.pem());
        assert_eq!(
            read.authority.identity().key_pem(),
            made.authority.identity().key_pem()
        );
    }

    #[test]
    fn an_authority_is_renewed_before_it_ends_and_the_older_one_stays_trusted() {
        let first = renewed(None, at(0)).unwrap();
        assert!(!is_ending(&first.authority, at(200)).unwrap());
        assert!(is_ending(&first.authority, at(300)).unwrap());
        let second = renewed(Some(&first), at(300)).unwrap();
        assert!(!is_ending(&second.authority, at(301)).unwrap());
        assert_eq!(second.bundle.certificates().unwrap().len(), 2);
        let third = renewed(Some(&second), at(600)).unwrap();
        assert_eq!(third.bundle.certificates().unwrap().len(), 2);
    }

    #[test]
    fn invalid_authority_is_replaced() {
        let made = renewed(None, at(0)).unwrap();
        for (day, expected) in [(-1, true), (0, false), (300, false), (366, true)] {
            let found = invalid(Some(&made), at(day)).unwrap();
            assert_eq!(found.is_some(), expected, "{day}");
        }
        assert_eq!(invalid(None, at(0)).unwrap(), None);
        // The clock was ahead when it was created.
        assert!(is_ending(&made.authority, at(-1)).unwrap());
        // It is still readable, since the bundle of its successor includes it.
        let kept = read(&secret(ObjectMeta::default(), &made), at(366)).unwrap();
        assert!(is_ending(&kept.authority, at(366)).unwrap());
    }

    #[test]
    fn manually_created_authority_is_in_its_bundle() {
        let (made, other) = (renewed(None, at(0)).unwrap(), renewed(None, at(0)).unwrap());
        let by_hand = Installation {
            bundle: other.bundle.clone(),
            ..made
        };
        let read = read(&secret(ObjectMeta::default(), &by_hand), at(0)).unwrap();
        assert_eq!(read.bundle.certificates().unwrap().len(), 2);
    }

    #[test]
    fn key_of_another_certificate_is_refused_with_the_remedy() {
        let (one, other) = (renewed(None, at(0)).unwrap(), renewed(None, at(0)).unwrap());
        let (one, other) = (one.authority.identity(), other.authority.identity());
        let mixed = Identity::from_pem(one.certificate_pem(), other.key_pem());
        let mixed = Installation {
            authority: Authority::from_identity(mixed).unwrap(),
            bundle: Trust::from_pem(one.certificate_pem()),
        };
        let error = read(&secret(ObjectMeta::default(), &mixed), at(0)).unwrap_err();
        assert!(error.to_string().contains("delete it"), "{error}");
    }

    #[test]
    fn missing_key_of_the_secret_is_named() {
        let error = read(&Secret::default(), at(0)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the secret kubevirt-ca has no tls.crt: delete it, and a new authority is created"
        );
    }
}
