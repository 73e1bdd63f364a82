//! The user of a request, and the access check.
//!
//! The API server forwards a request with its own client certificate and the user's name in headers.
//! The headers count only with that certificate; the API server then checks the user's right.

use axum::extract::Request;
use http::HeaderMap;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::{Api, api::PostParams};
use serving::Peer;

use crate::{refusal::Refusal, settings::Shared};

/// The right that a request needs.
#[derive(Debug)]
pub(crate) struct Access<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) resource: &'a str,
    pub(crate) subresource: &'a str,
    pub(crate) verb: &'a str,
}

/// Checks that the user has the right to a subresource.
pub(crate) async fn authorize(
    shared: &Shared,
    user: User,
    access: &Access<'_>,
) -> Result<(), Refusal> {
    authorize_in(shared, user, ("subresources.kubevirt.io", "v1"), access).await
}

/// Checks that the user has the right in that group and version.
pub(crate) async fn authorize_in(
    shared: &Shared,
    user: User,
    group: (&str, &str),
    access: &Access<'_>,
) -> Result<(), Refusal> {
    let review = SubjectAccessReview {
        spec: spec(user, group, access),
        ..SubjectAccessReview::default()
    };
    let api: Api<SubjectAccessReview> = Api::all(shared.client.clone());
    let reviewed = api.create(&PostParams::default(), &review).await?;
    let status = reviewed.status.unwrap_or_default();
    if status.allowed {
        return Ok(());
    }
    let user = review.spec.user.unwrap_or_default();
    let Access {
        namespace,
        name,
        resource,
        subresource,
        verb,
    } = access;
    let part = match *subresource {
        "" => String::new(),
        subresource => format!("/{subresource}"),
    };
    let mut message = format!(
        "user {user:?} cannot {verb} resource {resource}{part} in API group {} in namespace \
         {namespace:?} (object {name:?})",
        group.0
    );
    if let Some(reason) = status.reason {
        message.push_str(": ");
        message.push_str(&reason);
    }
    Err(Refusal::forbidden(message))
}

/// The user that the API server names.
pub(crate) struct User {
    name: String,
    groups: Vec<String>,
}

impl User {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

/// Whether the peer presented the certificate of the API server.
pub(crate) fn is_front_proxy(shared: &Shared, peer: Option<&Peer>) -> bool {
    let certificate = peer.and_then(|peer| peer.certificate.as_ref());
    let common_name = certificate.and_then(|certificate| certificate.common_name.as_deref());
    common_name.is_some_and(|name| shared.front_proxy.allows(name))
}

/// Reads the user from the headers.
pub(crate) fn user(shared: &Shared, request: &Request) -> Result<User, Refusal> {
    if !is_front_proxy(shared, request.extensions().get::<Peer>()) {
        return Err(Refusal::unauthorized(
            "this server accepts requests from the Kubernetes API server only",
        ));
    }
    let name = header(request.headers(), "x-remote-user")?
        .into_iter()
        .next();
    let name = name.ok_or_else(|| Refusal::unauthorized("the request names no user"))?;
    Ok(User {
        name,
        groups: header(request.headers(), "x-remote-group")?,
    })
}

/// The values of a header. An unreadable one is refused: without it the user would be another one.
fn header(headers: &HeaderMap, name: &str) -> Result<Vec<String>, Refusal> {
    let values = headers.get_all(name).iter();
    values
        .map(|value| match str::from_utf8(value.as_bytes()) {
            Ok(text) => Ok(text.to_owned()),
            Err(_) => Err(Refusal::bad_request(format!(
                "header {name} is not valid UTF-8"
            ))),
        })
        .collect()
}

fn spec(
    user: User,
    (group, version): (&str, &str),
    access: &Access<'_>,
) -> SubjectAccessReviewSpec {
    SubjectAccessReviewSpec {
        user: Some(user.name),
        groups: Some(user.groups),
        resource_attributes: Some(ResourceAttributes {
            group: Some(group.to_owned()),
            version: Some(version.to_owned()),
            namespace: Some(access.namespace.to_owned()),
            name: Some(access.name.to_owned()),
            resource: Some(access.resource.to_owned()),
            subresource: Some(access.subresource.to_owned()),
            verb: Some(access.verb.to_owned()),
            ..ResourceAttributes::default()
        }),
        ..SubjectAccessReviewSpec::default()
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn user_headers_are_utf_8_or_refused() {
        let mut headers = HeaderMap::new();
        let utf8 = HeaderValue::from_bytes("jörg".as_bytes()).unwrap();
        headers.insert("x-remote-user", utf8);
        headers.append("x-remote-group", HeaderValue::from_static("a"));
        headers.append(
            "x-remote-group",
            HeaderValue::from_bytes(b"j\xf6rg").unwrap(),
        );
        assert_eq!(header(&headers, "x-remote-user").unwrap(), ["jörg"]);
        let refusal = header(&headers, "x-remote-group").unwrap_err();
        assert_eq!(refusal.code.as_u16(), 400);
    }
}
