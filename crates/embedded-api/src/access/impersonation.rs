//! User impersonation, for users with the permission.
//!
//! Invariant: the impersonated identity keeps none of the caller's own permissions.

use std::collections::BTreeMap;

use apimachinery::Status;
use http::HeaderMap;

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
    let users = texts(headers, USER);
    let groups = texts(headers, GROUP);
    let uids = texts(headers, UID);
    let extra = extra(headers);
    let Some(user) = users.first() else {
        if groups.is_empty() && uids.is_empty() && extra.is_empty() {
            return Ok(caller);
        }
        let why = "requested impersonation of a group, a uid or extra without impersonating a user";
        return Err(Status::internal(why).into());
    };
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

fn texts(headers: &HeaderMap, name: &str) -> Vec<String> {
    let found = headers.get_all(name).into_iter();
    found
        .filter_map(|value| value.to_str().ok())
        .map(ToOwned::to_owned)
        .collect()
}

fn extra(headers: &HeaderMap) -> BTreeMap<String, Vec<String>> {
    let mut out: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in headers {
        let key = name.as_str().strip_prefix(EXTRA);
        if let (Some(key), Ok(value)) = (key, value.to_str()) {
            let key = crate::request::path::decode(key).unwrap_or_else(|| key.to_owned());
            out.entry(key).or_default().push(value.to_owned());
        }
    }
    out
}
