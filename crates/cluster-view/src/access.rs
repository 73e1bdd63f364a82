//! Asks the API server what users and service accounts may create, and whether they may copy data of a namespace.

use std::collections::BTreeMap;

use k8s_openapi::api::authentication::v1::UserInfo;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::Client;
use kube::api::{Api, PostParams};
use kubevirt_api::data_volume_status::DataVolume;

/// The account that objects of a namespace act for, unless they name another one.
pub const DEFAULT_ACCOUNT: &str = "default";

const COPY: Right = Right::part(DataVolume::GROUP, DataVolume::PLURAL, "source");
/// Together they read all claims and snapshots.
const READ: [Right; 2] = [
    Right::whole("", "pods"),
    Right::whole("", "persistentvolumeclaims"),
];

/// What a subject may be allowed to create.
#[derive(Debug, Clone, Copy)]
pub struct Right {
    pub group: &'static str,
    pub resource: &'static str,
    /// The subresource; empty for the resource itself.
    part: &'static str,
}

impl Right {
    pub const fn whole(group: &'static str, resource: &'static str) -> Self {
        Self::part(group, resource, "")
    }

    pub const fn part(group: &'static str, resource: &'static str, part: &'static str) -> Self {
        Self {
            group,
            resource,
            part,
        }
    }
}

/// Whose rights are asked for.
#[derive(Debug, Clone, Default)]
pub struct Subject {
    user: Option<String>,
    groups: Option<Vec<String>>,
    uid: Option<String>,
    extra: Option<BTreeMap<String, Vec<String>>>,
}

impl Subject {
    /// The user of a request.
    pub fn user(user: UserInfo) -> Self {
        Self {
            user: user.username,
            groups: user.groups,
            uid: user.uid,
            extra: user.extra,
        }
    }

    /// A service account.
    pub fn account(namespace: &str, name: &str) -> Self {
        Self {
            user: Some(format!("system:serviceaccount:{namespace}:{name}")),
            groups: Some(vec![
                "system:serviceaccounts".to_owned(),
                format!("system:serviceaccounts:{namespace}"),
                "system:authenticated".to_owned(),
            ]),
            ..Self::default()
        }
    }

    /// The name of the user.
    pub fn name(&self) -> &str {
        self.user.as_deref().unwrap_or_default()
    }

    /// Whether the subject may create that in a namespace.
    pub async fn may_create(
        &self,
        client: &Client,
        namespace: &str,
        right: Right,
    ) -> kube::Result<bool> {
        let request = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: self.user.clone(),
                groups: self.groups.clone(),
                uid: self.uid.clone(),
                extra: self.extra.clone(),
                resource_attributes: Some(ResourceAttributes {
                    namespace: Some(namespace.to_owned()),
                    verb: Some("create".to_owned()),
                    group: Some(right.group.to_owned()),
                    resource: Some(right.resource.to_owned()),
                    subresource: Some(right.part.to_owned()).filter(|part| !part.is_empty()),
                    ..ResourceAttributes::default()
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let api = Api::<SubjectAccessReview>::all(client.clone());
        let review = api.create(&PostParams::default(), &request).await?;
        Ok(review.status.is_some_and(|status| status.allowed))
    }

    /// Whether the subject may copy from the namespace: create `datavolumes/source`, or pods and claims, which could
    /// read all of it.
    pub async fn may_copy(&self, client: &Client, namespace: &str) -> kube::Result<bool> {
        if self.may_create(client, namespace, COPY).await? {
            return Ok(true);
        }
        for right in READ {
            if !self.may_create(client, namespace, right).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
