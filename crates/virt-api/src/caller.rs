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

/// Checks that the user has the right.
pub(crate) async fn authorize(
    shared: &Shared,
    user: User,
    access: &Access<'_>,
) -> Result<(), Refusal> {
    let review = SubjectAccessReview {
        spec: spec(user, access),
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
        "user {user:?} cannot {verb} resource {resource}{part} in API group \
         subresources.kubevirt.io in namespace {namespace:?} (object {name:?})"
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

/// Reads the user from the headers.
pub(crate) fn user(shared: &Shared, request: &Request) -> Result<User, Refusal> {
    let peer = request.extensions().get::<Peer>();
    let certificate = peer.and_then(|peer| peer.certificate.as_ref());
    let common_name = certificate.and_then(|certificate| certificate.common_name.as_deref());
    if !common_name.is_some_and(|name| shared.front_proxy.allows(name)) {
        return Err(Refusal::unauthorized(
            "this server accepts requests from the Kubernetes API server only",
        ));
    }
    let header = |headers: &HeaderMap, name: &str| -> Vec<String> {
        headers
            .get_all(name)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .map(ToOwned::to_owned)
            .collect()
    };
    let name = header(request.headers(), "x-remote-user")
        .into_iter()
        .next();
    let name = name.ok_or_else(|| Refusal::unauthorized("the request names no user"))?;
    Ok(User {
        name,
        groups: header(request.headers(), "x-remote-group"),
    })
}

fn spec(user: User, access: &Access<'_>) -> SubjectAccessReviewSpec {
    SubjectAccessReviewSpec {
        user: Some(user.name),
        groups: Some(user.groups),
        resource_attributes: Some(ResourceAttributes {
            group: Some("subresources.kubevirt.io".to_owned()),
            version: Some("v1".to_owned()),
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
