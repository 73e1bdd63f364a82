//! Service account tokens for projected volumes.
//!
//! Each is bound to its pod and becomes invalid with it. Tokens are renewed well before they
//! expire.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::api::{
    authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec},
    core::v1::{Pod, ServiceAccount, ServiceAccountTokenProjection},
};
use kube::{Api, Client, api::PostParams};
use reasons::Reason;

use crate::Failure;

const FAILED: Reason = Reason::FailedMount;
/// Lifetime in seconds without `expirationSeconds`.
const DEFAULT_LIFETIME: i64 = 3600;
/// Fraction of a token's lifetime after which it is renewed.
const RENEW_AFTER: f64 = 0.8;
/// Lower bound of the renewal interval.
const MIN_INTERVAL: Duration = Duration::from_mins(1);

/// The tokens of a pod, by volume and path.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tokens {
    all: BTreeMap<(String, String), String>,
    /// When to renew the tokens; `None` if there are no tokens.
    pub(crate) fresh_for: Option<Duration>,
}

impl Tokens {
    pub(crate) fn get(&self, volume: &str, path: &str) -> Option<&str> {
        let key = (volume.to_owned(), path.to_owned());
        self.all.get(&key).map(String::as_str)
    }
}

/// Requests every token that the pod's volumes project.
pub(crate) async fn fetch(client: &Client, pod: &Pod) -> Result<Tokens, Failure> {
    let mut tokens = Tokens::default();
    for (volume, source) in wanted(pod) {
        let lifetime = source.expiration_seconds.unwrap_or(DEFAULT_LIFETIME);
        let token = request(client, pod, source).await?;
        tokens
            .all
            .insert((volume.to_owned(), source.path.clone()), token);
        let fresh = fresh_for(lifetime);
        let shortest = tokens.fresh_for.map_or(fresh, |other| other.min(fresh));
        tokens.fresh_for = Some(shortest);
    }
    Ok(tokens)
}

fn wanted(pod: &Pod) -> impl Iterator<Item = (&str, &ServiceAccountTokenProjection)> {
    let volumes = pod.spec.iter().flat_map(|s| s.volumes.iter().flatten());
    volumes.flat_map(|volume| {
        let sources = volume
            .projected
            .iter()
            .flat_map(|source| source.sources.iter().flatten());
        sources.filter_map(|part| Some((&*volume.name, part.service_account_token.as_ref()?)))
    })
}

fn fresh_for(lifetime: i64) -> Duration {
    let lifetime = Duration::from_secs(u64::try_from(lifetime).unwrap_or(0));
    lifetime.mul_f64(RENEW_AFTER).max(MIN_INTERVAL)
}

async fn request(
    client: &Client,
    pod: &Pod,
    source: &ServiceAccountTokenProjection,
) -> Result<String, Failure> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let account = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.service_account_name.as_deref())
        .filter(|name| !name.is_empty())
        .unwrap_or("default");
    let tried = format!("failed to fetch token of serviceaccount {namespace}/{account}");
    let api = Api::<ServiceAccount>::namespaced(client.clone(), namespace);
    let body = TokenRequest {
        spec: TokenRequestSpec {
            audiences: source.audience.iter().cloned().collect(),
            expiration_seconds: Some(source.expiration_seconds.unwrap_or(DEFAULT_LIFETIME)),
            bound_object_ref: Some(BoundObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Pod".to_owned()),
                name: pod.metadata.name.clone(),
                uid: pod.metadata.uid.clone(),
            }),
        },
        ..TokenRequest::default()
    };
    let response = api
        .create_token_request(account, &PostParams::default(), &body)
        .await
        .map_err(|error| Failure::of(FAILED, &tried, &error))?;
    let token = response.status.map(|status| status.token);
    token.ok_or_else(|| Failure::new(FAILED, format!("{tried}: the response has no token")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_projected_token_is_requested_and_renewed() {
        let pod: Pod = serde_json::from_value(json!({"spec": {"containers": [], "volumes": [
            {"name": "a", "projected": {"sources": [
                {"configMap": {"name": "m"}}, {"serviceAccountToken": {"path": "token"}},
                {"serviceAccountToken": {"path": "vault", "audience": "vault"}}]}},
            {"name": "b", "emptyDir": {}},
        ]}}))
        .unwrap();
        let found: Vec<(&str, &str)> = wanted(&pod).map(|(v, one)| (v, &*one.path)).collect();
        assert_eq!(found, [("a", "token"), ("a", "vault")]);
        assert_eq!(fresh_for(3600), Duration::from_mins(48));
        assert_eq!(fresh_for(-1), MIN_INTERVAL);
    }
}
