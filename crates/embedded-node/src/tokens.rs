//! Tokens of service accounts, for volumes that project them.
//!
//! Each is bound to its pod: the API server forgets it with the pod. They end by themselves, and
//! are asked for anew well before.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::api::{
    authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec},
    core::v1::{Pod, ServiceAccount, ServiceAccountTokenProjection},
};
use kube::{Api, Client, api::PostParams};
use reasons::Reason;

use crate::Failure;

const FAILED: Reason = Reason::FailedMount;
/// As long as a token lasts if nobody says otherwise.
const USUAL_LIFE: i64 = 3600;
/// So much of a token's life has passed when the next one is asked for.
const LATEST: f64 = 0.8;
/// Not more often than this, however short tokens last.
const SOONEST: Duration = Duration::from_mins(1);

/// The tokens of a pod, by volume and path.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tokens {
    all: BTreeMap<(String, String), String>,
    /// How long they may be used before others are asked for; none if there are none.
    pub(crate) fresh_for: Option<Duration>,
}

impl Tokens {
    pub(crate) fn get(&self, volume: &str, path: &str) -> Option<&str> {
        let key = (volume.to_owned(), path.to_owned());
        self.all.get(&key).map(String::as_str)
    }
}

/// Asks for every token that the pod's volumes project.
pub(crate) async fn fetch(client: &Client, pod: &Pod) -> Result<Tokens, Failure> {
    let mut tokens = Tokens::default();
    for (volume, source) in wanted(pod) {
        let life = source.expiration_seconds.unwrap_or(USUAL_LIFE);
        let token = request(client, pod, source).await?;
        tokens
            .all
            .insert((volume.to_owned(), source.path.clone()), token);
        let fresh = fresh_for(life);
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

fn fresh_for(life: i64) -> Duration {
    let life = Duration::from_secs(u64::try_from(life).unwrap_or(0));
    life.mul_f64(LATEST).max(SOONEST)
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
            expiration_seconds: Some(source.expiration_seconds.unwrap_or(USUAL_LIFE)),
            bound_object_ref: Some(BoundObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Pod".to_owned()),
                name: pod.metadata.name.clone(),
                uid: pod.metadata.uid.clone(),
            }),
        },
        ..TokenRequest::default()
    };
    let answer = api
        .create_token_request(account, &PostParams::default(), &body)
        .await
        .map_err(|error| Failure::of(FAILED, &tried, &error))?;
    let token = answer.status.map(|status| status.token);
    token.ok_or_else(|| Failure::new(FAILED, format!("{tried}: the answer holds none")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_projected_token_is_asked_for_in_time() {
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
        assert_eq!(fresh_for(-1), SOONEST);
    }
}
