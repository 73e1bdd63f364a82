//! User impersonation, for users with the permission.
//!
//! Invariants: the impersonated identity keeps none of the caller's own permissions; a request with an
//! impersonation header that cannot be used is refused, and never runs as the caller.

use std::collections::BTreeMap;

use apimachinery::Status;
use http::{HeaderMap, HeaderValue};

use super::{Attributes, ResourceTarget, Target, authorize};
use crate::{api::Api, auth::Identity, error::ApiError};

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA: &str = "impersonate-extra-";

/// The identity of the request after impersonation.
pub(crate) async fn impersonate(
    api: &Api,
    caller: Identity,
    headers: &HeaderMap,
) -> Result<Identity, ApiError> {
    let users = texts(headers, USER)?;
    let groups = texts(headers, GROUP)?;
    let uids = texts(headers, UID)?;
    let extra = extra(headers)?;
    let Some(user) = users.first() else {
        if groups.is_empty() && uids.is_empty() && extra.is_empty() {
            return Ok(caller);
        }
        let why = "requested impersonation of a group, a uid or extra without impersonating a user";
        return Err(Status::internal(why).into());
    };
    if user.is_empty() {
        let why = "header Impersonate-User is empty: name the user, or leave the header out";
        return Err(Status::bad_request(why).into());
    }
    let mut wanted = vec![match Identity::parse_service_account(user) {
        Some((namespace, name)) => target("", "serviceaccounts", "", namespace, name),
        None => target("", "users", "", "", user),
    }];
    wanted.extend(
        groups
            .iter()
            .map(|group| target("", "groups", "", "", group)),
    );
    let of = "authentication.k8s.io";
    wanted.extend(uids.iter().map(|uid| target(of, "uids", "", "", uid)));
    for (key, values) in &extra {
        wanted.extend(
            values
                .iter()
                .map(|value| target(of, "userextras", key, "", value)),
        );
    }
    for wanted in &wanted {
        authorize(api, &caller, wanted).await?;
    }
    Ok(impersonated(user, groups, uids.into_iter().next(), extra))
}

fn impersonated(
    user: &str,
    mut groups: Vec<String>,
    uid: Option<String>,
    extra: BTreeMap<String, Vec<String>>,
) -> Identity {
    if groups.is_empty()
        && let Some((namespace, _)) = Identity::parse_service_account(user)
    {
        groups = Identity::service_account_groups(namespace);
    }
    let everybody = if user == "system:anonymous" {
        "system:unauthenticated"
    } else {
        "system:authenticated"
    };
    if !groups.iter().any(|group| group == everybody) {
        groups.push(everybody.to_owned());
    }
    Identity {
        user: user.to_owned(),
        uid: uid.unwrap_or_default(),
        groups,
        extra,
    }
}

fn target(group: &str, resource: &str, sub: &str, namespace: &str, name: &str) -> Attributes {
    Attributes {
        verb: "impersonate".to_owned(),
        target: Target::Resource(Box::new(ResourceTarget {
            group: group.to_owned(),
            resource: resource.to_owned(),
            subresource: sub.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        })),
    }
}

fn texts(headers: &HeaderMap, name: &str) -> Result<Vec<String>, ApiError> {
    let found = headers.get_all(name).into_iter();
    found.map(|value| text(name, value)).collect()
}

fn extra(headers: &HeaderMap) -> Result<BTreeMap<String, Vec<String>>, ApiError> {
    let mut out: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in headers {
        let name = name.as_str();
        if let Some(key) = name.strip_prefix(EXTRA) {
            let key = crate::request::path::decode(key).unwrap_or_else(|| key.to_owned());
            out.entry(key).or_default().push(text(name, value)?);
        }
    }
    Ok(out)
}

/// User names may contain any character, so values are read as UTF-8.
fn text(name: &str, value: &HeaderValue) -> Result<String, ApiError> {
    let text = str::from_utf8(value.as_bytes()).map_err(|_| {
        Status::bad_request(format!(
            "header {name} is not valid UTF-8: encode its value as UTF-8"
        ))
    })?;
    Ok(text.to_owned())
}
