//! Whether a service account may copy data of another namespace, as the importer of `KubeVirt` asks it.

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::Client;
use kube::api::{Api, PostParams};

const GROUP: &str = "cdi.kubevirt.io";

/// The account that objects of a namespace act for, unless they name another one.
pub(crate) const DEFAULT_ACCOUNT: &str = "default";

/// A service account.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Account<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
}

impl Account<'_> {
    /// Its name as a user.
    pub(crate) fn user(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.name)
    }
}

/// Group, resource and subresource that somebody may create.
type Right = (&'static str, &'static str, &'static str);

const COPY: Right = (GROUP, "datavolumes", "source");
/// Together they read all claims and snapshots.
const READ: [Right; 2] = [("", "pods", ""), ("", "persistentvolumeclaims", "")];

/// Whether the account may copy from the namespace: create `datavolumes/source`, or pods and claims, which could read
/// all of it.
pub(crate) async fn may_copy(
    client: &Client,
    account: Account<'_>,
    namespace: &str,
) -> kube::Result<bool> {
    if may_create(client, account, namespace, COPY).await? {
        return Ok(true);
    }
    for right in READ {
        if !may_create(client, account, namespace, right).await? {
            return Ok(false);
        }
    }
    Ok(true)
}

async fn may_create(
    client: &Client,
    account: Account<'_>,
    namespace: &str,
    (group, resource, part): Right,
) -> kube::Result<bool> {
    let own = account.namespace;
    let request = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(account.user()),
            groups: Some(vec![
                "system:serviceaccounts".to_owned(),
                format!("system:serviceaccounts:{own}"),
                "system:authenticated".to_owned(),
            ]),
            resource_attributes: Some(ResourceAttributes {
                namespace: Some(namespace.to_owned()),
                verb: Some("create".to_owned()),
                group: Some(group.to_owned()),
                resource: Some(resource.to_owned()),
                subresource: Some(part.to_owned()).filter(|part| !part.is_empty()),
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
