//! API groups of other servers: requests are proxied, including upgrades.
//!
//! Invariant: the user's identity comes from our own authentication; headers in which a client
//! claims an identity are dropped. Bodies are not inspected.

use std::sync::Arc;

use apimachinery::Status;
use axum::{extract::Request, response::Response};
use error_chain::error_chain;
use http::{HeaderName, HeaderValue, Uri, header};
use serving::upgrade;

use crate::{
    api::Api,
    auth::Identity,
    backend,
    error::ApiError,
    fairness,
    registry::{Aggregated, Backend},
};

const USER: HeaderName = HeaderName::from_static("x-remote-user");
const GROUP: HeaderName = HeaderName::from_static("x-remote-group");
const UID: HeaderName = HeaderName::from_static("x-remote-uid");

/// The server of this path, if it is an aggregated one.
pub(crate) fn owner(api: &Api, path: &str) -> Option<Arc<Aggregated>> {
    let mut parts = path.strip_prefix("/apis/")?.split('/');
    api.registry.aggregated(parts.next()?, parts.next()?)
}

pub(crate) async fn proxy(
    api: &Api,
    identity: &Identity,
    to: &Aggregated,
    mut request: Request,
) -> Result<Response, ApiError> {
    let caller = upgrade::is_upgrade(request.headers()).then(|| upgrade::take(&mut request));
    let path = request
        .uri()
        .path_and_query()
        .map_or("/", |path| path.as_str());
    *request.uri_mut() = path
        .parse::<Uri>()
        .map_err(|_| Status::bad_request("the path is not valid"))?;
    *request.version_mut() = http::Version::HTTP_11;
    set_user_headers(identity, &mut request)?;
    let answer = send(api, &to.backend, request).await?;
    Ok(match caller {
        Some(caller) => {
            let (tasks, stop) = (&api.tasks, api.stopping.clone());
            let seat = fairness::current::take();
            upgrade::join_holding(caller, answer, tasks, stop, seat)
        }
        None => answer.map(axum::body::Body::new),
    })
}

/// Sends a request to another API server with our own client certificate.
pub(crate) async fn send(
    api: &Api,
    to: &Backend,
    request: Request,
) -> Result<Response<hyper::body::Incoming>, ApiError> {
    let target = backend::resolve(api, &to.namespace, &to.service, to.port).await?;
    let client = backend::client(api, &to.ca_bundle, backend::ClientIdentity::FrontProxy)?;
    client.send(&target, request).await.map_err(|error| {
        let why = format!("error trying to reach service: {}", error_chain(&error));
        Status::service_unavailable(why).into()
    })
}

/// Sets the user headers of an authenticating proxy. An identity that headers cannot carry is an
/// error: the other server would authorize another one.
pub(crate) fn set_user_headers(identity: &Identity, request: &mut Request) -> Result<(), ApiError> {
    let headers = request.headers_mut();
    let claims: Vec<HeaderName> = headers
        .keys()
        .filter(|name| {
            let name = name.as_str();
            name.starts_with("x-remote-") || name.starts_with("impersonate-")
        })
        .cloned()
        .collect();
    for claim in claims {
        headers.remove(claim);
    }
    headers.remove(header::AUTHORIZATION);
    headers.remove(header::HOST);
    headers.insert(USER, header_value(&identity.user)?);
    for group in &identity.groups {
        headers.append(GROUP, header_value(group)?);
    }
    if !identity.uid.is_empty() {
        headers.insert(UID, header_value(&identity.uid)?);
    }
    for (key, values) in &identity.extra {
        let name: HeaderName = format!("x-remote-extra-{}", encoded(key))
            .parse()
            .map_err(|_| unusable(key))?;
        for value in values {
            headers.append(name.clone(), header_value(value)?);
        }
    }
    Ok(())
}

fn header_value(text: &str) -> Result<HeaderValue, ApiError> {
    HeaderValue::from_str(text).map_err(|_| unusable(text))
}

fn unusable(text: &str) -> ApiError {
    Status::bad_request(format!(
        "the user's attribute {text:?} has characters that HTTP headers do not allow: use a \
         credential without control characters"
    ))
    .into()
}

/// Percent-encodes characters that header names do not allow.
fn encoded(key: &str) -> String {
    let mut out = String::new();
    for byte in key.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push('%');
            out.extend([byte >> 4, byte & 15].map(hex_digit));
        }
    }
    out
}

fn hex_digit(half: u8) -> char {
    char::from_digit(u32::from(half), 16).unwrap_or('0')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_is_forwarded_whole_or_not_at_all() {
        let mut request = Request::default();
        let user = Identity::new("jörg", &["büro"]);
        set_user_headers(&user, &mut request).expect("headers");
        let sent = |name| request.headers()[name].as_bytes();
        assert_eq!(sent("x-remote-user"), "jörg".as_bytes());
        assert_eq!(sent("x-remote-group"), "büro".as_bytes());
        let mut with_extra = Identity::new("a", &[]);
        with_extra
            .extra
            .insert("k".to_owned(), vec!["a\nb".to_owned()]);
        for identity in [
            Identity::new("a\nb", &[]),
            Identity::new("a", &["b\r\n"]),
            with_extra,
        ] {
            let result = set_user_headers(&identity, &mut Request::default());
            assert!(result.is_err(), "{identity:?}");
        }
    }
}
