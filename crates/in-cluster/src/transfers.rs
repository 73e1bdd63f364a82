//! The proxies of uploads and exports, on a port of their own: users reach it by a service, an ingress or a forwarded
//! port, and none of virt-api's other paths is there.
//!
//! **Invariants**: a token of one replica is accepted by all, and by nothing else that knows the installation's
//! authority; the key of tokens reveals nothing of that of the authority.

use std::{
    net::{Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

use anyhow::Result;
use aws_lc_rs::hmac;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use installation::registration::{EXPORT_SERVICE, UPLOAD_SERVICE};
use parking_lot::RwLock;
use reconcile::Clock;
use serde_json::Value;
use serving::{
    Authority, ClientCertificates, HttpsClient, Identity, Leaf, Server, TlsSource, TlsSwap,
    Validity,
};
use virt_api::{ExportProxy, Signer, UploadProxy, UploadTokens};

use crate::{health, run::Process};

const PURPOSE: &[u8] = b"tokens of uploads";

/// Signs tokens by a key that all replicas derive from the authority's.
#[derive(Clone)]
pub(crate) struct TokenKey {
    key: Arc<RwLock<hmac::Key>>,
}

impl TokenKey {
    /// Derives it from a secret that all replicas have.
    pub(crate) fn of(secret: &str) -> Self {
        Self {
            key: Arc::new(RwLock::new(derived(secret))),
        }
    }

    /// Tokens of the old key are no longer accepted: a client requests another one.
    fn replace(&self, secret: &str) {
        *self.key.write() = derived(secret);
    }

    pub(crate) fn tokens(&self) -> UploadTokens {
        UploadTokens::new(Arc::new(self.clone()), Clock::system())
    }
}

impl Signer for TokenKey {
    fn sign(&self, claims: &Value) -> Result<String, String> {
        let text = URL_SAFE_NO_PAD.encode(claims.to_string());
        let tag = hmac::sign(&self.key.read(), text.as_bytes());
        Ok(format!("{text}.{}", URL_SAFE_NO_PAD.encode(tag)))
    }

    fn claims(&self, token: &str) -> Option<Value> {
        let (text, tag) = token.split_once('.')?;
        let tag = URL_SAFE_NO_PAD.decode(tag).ok()?;
        hmac::verify(&self.key.read(), text.as_bytes(), &tag).ok()?;
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text).ok()?).ok()
    }
}

fn derived(secret: &str) -> hmac::Key {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let derived = hmac::sign(&key, PURPOSE);
    hmac::Key::new(hmac::HMAC_SHA256, derived.as_ref())
}

/// What is replaced while the proxies run.
pub(crate) struct Replaceable {
    certificate: TlsSwap,
    tokens: TokenKey,
}

impl Replaceable {
    pub(crate) fn replace(&self, identity: &Identity, secret: &str) -> Result<()> {
        self.certificate
            .replace(identity, &ClientCertificates::Ignored)?;
        self.tokens.replace(secret);
        Ok(())
    }
}

/// Serves the proxies until the process stops.
pub(crate) async fn serve(
    process: &Process,
    port: u16,
    identity: &Identity,
    (tokens, nodes): (TokenKey, HttpsClient),
) -> Result<Replaceable> {
    let uploads = UploadProxy::new(tokens.tokens(), process.client.clone(), nodes);
    let exports = ExportProxy::new(process.client.clone(), process.tasks.clone());
    let router = uploads.router().merge(exports.router());
    let listener = health::listen(port).await?;
    let (certificate, tls) = TlsSource::swappable(identity, &ClientCertificates::Ignored)?;
    let server = Server::new(listener, tls, router);
    process.tasks.spawn(server.run(process.stop.clone()));
    Ok(Replaceable {
        certificate,
        tokens,
    })
}

/// The certificate for the services, and for a port that a user forwards.
pub(crate) fn identity(
    authority: &Authority,
    namespace: &str,
    validity: Validity,
) -> Result<Identity> {
    let mut leaf = Leaf::server(format!("{UPLOAD_SERVICE}.{namespace}.svc"), validity);
    let more = [
        format!("{UPLOAD_SERVICE}.{namespace}.svc.cluster.local"),
        format!("{EXPORT_SERVICE}.{namespace}.svc"),
        format!("{EXPORT_SERVICE}.{namespace}.svc.cluster.local"),
        "localhost".to_owned(),
    ];
    leaf.dns_names.extend(more);
    leaf.addresses = vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
    Ok(authority.issue(&leaf)?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn token_is_accepted_by_replicas_with_the_same_authority_only() {
        let (one, two) = (TokenKey::of("authority"), TokenKey::of("authority"));
        let claims = json!({"namespace": "n", "claim": "disk"});
        let token = one.sign(&claims).unwrap();
        assert_eq!(two.claims(&token), Some(claims.clone()));
        assert_eq!(TokenKey::of("other").claims(&token), None);
        let other = URL_SAFE_NO_PAD.encode(json!({"namespace": "m"}).to_string());
        let (_, tag) = token.split_once('.').unwrap();
        for forged in [
            format!("{other}.{tag}"),
            format!("{other}."),
            format!("{token}A"),
            other,
            String::new(),
        ] {
            assert_eq!(two.claims(&forged), None, "{forged}");
        }
        two.replace("renewed");
        assert_eq!(two.claims(&token), None);
        assert_eq!(one.claims(&token), Some(claims));
    }
}
