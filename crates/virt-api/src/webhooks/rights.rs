//! The rights of users who request a template of a VM: to all that the controller makes in their place.
//!
//! **Invariant**: the right to a request alone has no disk copied, and no template made.

use error_chain::error_chain;
use k8s_openapi::api::{
    authentication::v1::UserInfo,
    authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
};
use kube::{Api, Client, api::PostParams};
use kubevirt_api::{
    data_volume_status::DataVolume,
    template::{VirtualMachineTemplate, VirtualMachineTemplateRequest},
};
use serde::Deserialize as _;
use serde_json::Value;

use crate::refusal::Refusal;

/// What a request makes, as group and resource.
const MADE: [(&str, &str); 2] = [
    (DataVolume::GROUP, DataVolume::PLURAL),
    (
        VirtualMachineTemplate::GROUP,
        VirtualMachineTemplate::PLURAL,
    ),
];

/// The message about a right that the user lacks to create this object.
pub(super) async fn missing(client: &Client, review: &Value) -> Result<Option<String>, Refusal> {
    let request = &review["request"];
    let kind = &request["kind"];
    let is_request = kind["group"] == VirtualMachineTemplateRequest::GROUP
        && kind["kind"] == VirtualMachineTemplateRequest::KIND;
    if !is_request || request["operation"] != "CREATE" {
        return Ok(None);
    }
    let user = UserInfo::deserialize(&request["userInfo"]).map_err(|error| {
        let error = error_chain(&error);
        Refusal::bad_request(format!("the review is malformed: userInfo: {error}"))
    })?;
    let namespace = request["namespace"].as_str().unwrap_or_default();
    let reviews: Api<SubjectAccessReview> = Api::all(client.clone());
    for (group, resource) in MADE {
        let access = access(&user, namespace, (group, resource));
        let reviewed = reviews.create(&PostParams::default(), &access).await?;
        if reviewed.status.is_none_or(|status| !status.allowed) {
            let name = user.username.unwrap_or_default();
            return Ok(Some(format!(
                "user {name:?} cannot create resource {resource} in API group {group} in namespace \
                 {namespace:?}, which a request for a template makes in your place: ask an administrator \
                 for that right; the ClusterRole edit has it if the cluster has an importer of data volumes, such as CDI"
            )));
        }
    }
    Ok(None)
}

fn access(
    user: &UserInfo,
    namespace: &str,
    (group, resource): (&str, &str),
) -> SubjectAccessReview {
    let spec = SubjectAccessReviewSpec {
        user: user.username.clone(),
        groups: user.groups.clone(),
        uid: user.uid.clone(),
        extra: user.extra.clone(),
        resource_attributes: Some(ResourceAttributes {
            group: Some(group.to_owned()),
            namespace: Some(namespace.to_owned()),
            resource: Some(resource.to_owned()),
            verb: Some("create".to_owned()),
            ..ResourceAttributes::default()
        }),
        ..SubjectAccessReviewSpec::default()
    };
    SubjectAccessReview {
        spec,
        ..SubjectAccessReview::default()
    }
}
