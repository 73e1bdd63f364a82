//! Authentication of requests.
//!
//! Invariant: an [`Identity`] comes from the process itself, from a verified client certificate or
//! from a token that this server signed, never from claims in the request.

use std::collections::BTreeMap;

use apimachinery::Status;
use http::{Extensions, HeaderMap, header};
use serving::Peer;

use crate::{api::Api, error::ApiError, tokens};

/// A user and its groups. In-process callers attach one to their requests as an extension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pub user: String,
    /// Distinguishes users with the same name; empty if unknown.
    pub uid: String,
    pub groups: Vec<String>,
    /// Further attributes of the credential.
    pub extra: BTreeMap<String, Vec<String>>,
}

const AUTHENTICATED: &str = "system:authenticated";
const ACCOUNT: &str = "system:serviceaccount:";

impl Identity {
    pub fn new(user: impl Into<String>, groups: &[&str]) -> Self {
        let mut groups: Vec<String> = groups.iter().map(ToString::to_string).collect();
        if !groups.iter().any(|group| group == AUTHENTICATED) {
            groups.push(AUTHENTICATED.to_owned());
        }
        Self {
            user: user.into(),
            uid: String::new(),
            groups,
            extra: BTreeMap::new(),
        }
    }

    /// A component of this process, with all permissions.
    pub fn component(name: &str) -> Self {
        Self::new(name, &["system:masters"])
    }

    /// A component of this process with the permissions of a service account.
    pub fn service_account(namespace: &str, name: &str) -> Self {
        let groups = Self::service_account_groups(namespace);
        let groups: Vec<&str> = groups.iter().map(String::as_str).collect();
        Self::new(Self::service_account_user(namespace, name), &groups)
    }

    pub(crate) fn service_account_user(namespace: &str, name: &str) -> String {
        format!("{ACCOUNT}{namespace}:{name}")
    }

    pub(crate) fn service_account_groups(namespace: &str) -> Vec<String> {
        vec![
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{namespace}"),
        ]
    }

    /// Namespace and name, if the user is a service account.
    pub(crate) fn parse_service_account(user: &str) -> Option<(&str, &str)> {
        let (namespace, name) = user.strip_prefix(ACCOUNT)?.split_once(':')?;
        (!namespace.is_empty() && !name.is_empty() && !name.contains(':'))
            .then_some((namespace, name))
    }

    fn anonymous() -> Self {
        Self {
            user: "system:anonymous".to_owned(),
            uid: String::new(),
            groups: vec!["system:unauthenticated".to_owned()],
            extra: BTreeMap::new(),
        }
    }
}

/// Authenticates the request. Without credentials it is anonymous; invalid credentials are a 401.
pub(crate) async fn authenticate(
    api: &Api,
    connection: &Extensions,
    headers: &HeaderMap,
) -> Result<Identity, ApiError> {
    if let Some(identity) = connection.get::<Identity>() {
        return Ok(identity.clone());
    }
    let peer = connection.get::<Peer>();
    let certificate = peer.and_then(|peer| peer.certificate.as_ref());
    if let Some(certificate) = certificate
        && let Some(user) = certificate
            .common_name
            .as_deref()
            .filter(|name| !name.is_empty())
    {
        let groups: Vec<&str> = certificate
            .organizations
            .iter()
            .map(String::as_str)
            .collect();
        return Ok(Identity::new(user, &groups));
    }
    let Some(token) = bearer(headers) else {
        return Ok(Identity::anonymous());
    };
    let audience = [tokens::ISSUER.to_owned()];
    match tokens::authenticate(api, token, &audience).await? {
        Ok(verified) => Ok(verified.identity),
        Err(why) => {
            tracing::debug!(%why, "token rejected");
            Err(Status::unauthorized().into())
        }
    }
}

/// The bearer token. Tokens in websocket subprotocols, as browsers send them, are not supported.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let header = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = header.trim().split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_account_user_names_are_parsed() {
        assert_eq!(
            Identity::parse_service_account("system:serviceaccount:n:a"),
            Some(("n", "a"))
        );
        for user in [
            "a",
            "system:serviceaccount:n",
            "system:serviceaccount:n:a:b",
        ] {
            assert_eq!(Identity::parse_service_account(user), None, "{user}");
        }
    }

    #[test]
    fn bearer_scheme_is_case_insensitive() {
        for (text, expected) in [
            ("Bearer x.y.z", Some("x.y.z")),
            ("bearer  x", Some("x")),
            ("Basic x", None),
            ("Bearer", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, text.parse().expect(text));
            assert_eq!(bearer(&headers), expected, "{text}");
        }
    }
}
