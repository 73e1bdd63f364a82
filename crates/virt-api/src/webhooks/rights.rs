//! The rights of users who request a template of a VM: to all that the controller makes in their place, and to the VM of
//! another namespace.
//!
//! **Invariant**: the right to a request alone has no disk copied, and no template made.

use cluster_view::{Right, Subject};
use error_chain::error_chain;
use k8s_openapi::api::authentication::v1::UserInfo;
use kube::Client;
use kubevirt_api::{
    data_volume_status::DataVolume,
    template::{VirtualMachineTemplate, VirtualMachineTemplateRequest},
};
use serde::Deserialize as _;
use serde_json::Value;

use crate::refusal::Refusal;

/// What a request makes.
const MADE: [Right; 2] = [
    Right::whole(DataVolume::GROUP, DataVolume::PLURAL),
    Right::whole(
        VirtualMachineTemplate::GROUP,
        VirtualMachineTemplate::PLURAL,
    ),
];
/// To have a template made of a VM in the namespace.
const SOURCE: Right = Right::part(
    VirtualMachineTemplateRequest::GROUP,
    VirtualMachineTemplateRequest::PLURAL,
    "source",
);

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
    let subject = Subject::user(user);
    let namespace = request["namespace"].as_str().unwrap_or_default();
    for right in MADE {
        if !subject.may_create(client, namespace, right).await? {
            let Right {
                group, resource, ..
            } = right;
            return Ok(Some(format!(
                "user {:?} cannot create resource {resource} in API group {group} in namespace \
                 {namespace:?}, which a request for a template makes in your place: ask an administrator \
                 for that right; the ClusterRole edit has it",
                subject.name()
            )));
        }
    }
    // Without a namespace, the object is refused.
    let source = request["object"].pointer("/spec/virtualMachineRef/namespace");
    let source = source.and_then(Value::as_str).unwrap_or_default();
    if !source.is_empty()
        && source != namespace
        && !subject.may_create(client, source, SOURCE).await?
    {
        return Ok(Some(format!(
            "user {:?} must not have a template made of a VM in namespace {source:?}: ask an administrator there for \
             the right to create virtualmachinetemplaterequests/source of API group {}; the ClusterRole edit has it",
            subject.name(),
            SOURCE.group
        )));
    }
    Ok(None)
}
