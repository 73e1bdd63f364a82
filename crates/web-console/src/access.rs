//! Who may use the server, and with whose rights a request goes to the API server.
//!
//! Invariant: a server for tokens has no credentials. It looks at no token: the API server decides about each
//! one, with each request.

use std::{fmt, sync::Arc};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{HeaderMap, HeaderValue, Request, header};
use kube::{Client, client::Body};

use crate::{forward, sessions::Sessions};

/// The longest token. Those of identity providers have some kilobytes, all headers together at most 16 KiB at
/// kube-apiserver.
const LONGEST: usize = 12 << 10;

/// How users sign in.
#[derive(Clone)]
pub enum Access {
    /// One user, by links: the client has the user's credentials.
    Links {
        client: Client,
        sessions: Arc<Sessions>,
        /// The namespace that the page shows first.
        namespace: String,
    },
    /// Every user, with a token: the client has no credentials.
    Tokens { client: Client },
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Access {
    /// The word by which the page knows how to ask.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Links { .. } => "link",
            Self::Tokens { .. } => "token",
        }
    }

    /// What a request without a valid key is told.
    pub(crate) fn invitation(&self) -> &'static str {
        match self {
            Self::Links { .. } => "not signed in: open the link that virtctl printed last",
            Self::Tokens { .. } => "not signed in: the request has no token",
        }
    }

    /// A client with the rights of the sender of a request; `None` if the request has no key.
    pub(crate) fn client(&self, headers: &HeaderMap) -> Option<Client> {
        let key = key(headers)?;
        match self {
            Self::Links {
                client, sessions, ..
            } => sessions.knows(&key).then(|| client.clone()),
            Self::Tokens { client } => {
                let token = format!("Bearer {key}");
                let mut token = HeaderValue::try_from(token).ok()?;
                token.set_sensitive(true);
                Some(with_token(client.clone(), token))
            }
        }
    }
}

/// The key in the header or, for a websocket, in a subprotocol.
fn key(headers: &HeaderMap) -> Option<String> {
    let key = if let Some(value) = headers.get(header::AUTHORIZATION) {
        value.to_str().ok()?.strip_prefix("Bearer ")?.to_owned()
    } else {
        let encoded = forward::key_in_protocols(headers)?;
        String::from_utf8(URL_SAFE_NO_PAD.decode(encoded).ok()?).ok()?
    };
    (!key.is_empty() && key.len() <= LONGEST).then_some(key)
}

/// The client, with a token in every request.
fn with_token(client: Client, token: HeaderValue) -> Client {
    let namespace = client.default_namespace().to_owned();
    let service = tower::service_fn(move |mut request: Request<Body>| {
        let headers = request.headers_mut();
        headers.insert(header::AUTHORIZATION, token.clone());
        let client = client.clone();
        async move { client.send(request).await }
    });
    Client::new(service, namespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_is_found_where_browsers_can_put_it() {
        let long = "x".repeat(LONGEST + 1);
        let cases = [
            (header::AUTHORIZATION, "Bearer abc".to_owned(), Some("abc")),
            (header::AUTHORIZATION, "Bearer ".to_owned(), None),
            (header::AUTHORIZATION, "Basic abc".to_owned(), None),
            (header::AUTHORIZATION, format!("Bearer {long}"), None),
            (
                header::SEC_WEBSOCKET_PROTOCOL,
                "plain.kubevirt.io, base64url.bearer.authorization.k8s.io.YWJj".to_owned(),
                Some("abc"),
            ),
            (
                header::SEC_WEBSOCKET_PROTOCOL,
                "base64url.bearer.authorization.k8s.io.!".to_owned(),
                None,
            ),
            (header::COOKIE, "key=abc".to_owned(), None),
        ];
        for (name, value, expected) in cases {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().expect("a header"));
            assert_eq!(key(&headers).as_deref(), expected, "{headers:?}");
        }
    }
}
