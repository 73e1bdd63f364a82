//! Whether a user or a service account may copy disks of a namespace.

use std::collections::BTreeMap;

use k8s_openapi::api::{
    authentication::v1::UserInfo,
    authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
};
use kube::{Api, Client, api::PostParams};
use kubevirt_api::{VirtualMachine, data_volume_status::DataVolume};
use serde::Deserialize as _;
use serde_json::Value;

use super::source;
use crate::refusal::Refusal;

/// Group, resource and subresource that a user or a service account may create.
type Right = (&'static str, &'static str, &'static str);

const COPY: Right = (DataVolume::GROUP, DataVolume::PLURAL, "source");
/// Together they read all claims and snapshots.
const READ: [Right; 2] = [("", "pods", ""), ("", "persistentvolumeclaims", "")];
/// The account of guests without one.
const DEFAULT_ACCOUNT: &str = "default";

/// Who wants to copy.
#[derive(Debug, Clone, Default)]
pub(super) struct Subject {
    user: Option<String>,
    groups: Option<Vec<String>>,
    uid: Option<String>,
    extra: Option<BTreeMap<String, Vec<String>>>,
}

impl Subject {
    pub(super) fn user(user: UserInfo) -> Self {
        Self {
            user: user.username,
            groups: user.groups,
            uid: user.uid,
            extra: user.extra,
        }
    }

    fn account(namespace: &str, name: &str) -> Self {
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
}

/// With the right to copy, or with those to read all that is copied.
pub(super) async fn may_copy(
    client: &Client,
    subject: &Subject,
    namespace: &str,
) -> Result<bool, kube::Error> {
    if may_create(client, subject, namespace, COPY).await? {
        return Ok(true);
    }
    for right in READ {
        if !may_create(client, subject, namespace, right).await? {
            return Ok(false);
        }
    }
    Ok(true)
}

async fn may_create(
    client: &Client,
    subject: &Subject,
    namespace: &str,
    (group, resource, part): Right,
) -> Result<bool, kube::Error> {
    let spec = SubjectAccessReviewSpec {
        user: subject.user.clone(),
        groups: subject.groups.clone(),
        uid: subject.uid.clone(),
        extra: subject.extra.clone(),
        resource_attributes: Some(ResourceAttributes {
            group: Some(group.to_owned()),
            namespace: Some(namespace.to_owned()),
            resource: Some(resource.to_owned()),
            subresource: Some(part.to_owned()).filter(|part| !part.is_empty()),
            verb: Some("create".to_owned()),
            ..ResourceAttributes::default()
        }),
        ..SubjectAccessReviewSpec::default()
    };
    let access = SubjectAccessReview {
        spec,
        ..SubjectAccessReview::default()
    };
    let reviews: Api<SubjectAccessReview> = Api::all(client.clone());
    let reviewed = reviews.create(&PostParams::default(), &access).await?;
    Ok(reviewed.status.is_some_and(|status| status.allowed))
}

/// The message about a data volume template of a VM that its service account must not copy; `None` if there is none.
///
/// The controller asks again when it creates the data volume: the right may be gone, and the data source another one.
pub(in crate::webhooks) async fn missing(
    client: &Client,
    review: &Value,
) -> Result<Option<String>, Refusal> {
    let request = &review["request"];
    let is_vm = request["kind"]["group"] == VirtualMachine::GROUP
        && request["kind"]["kind"] == VirtualMachine::KIND
        && request["subResource"].as_str().is_none_or(str::is_empty);
    let is_write = request["operation"] == "CREATE" || request["operation"] == "UPDATE";
    let templates = "/spec/dataVolumeTemplates";
    let is_changed =
        request["object"].pointer(templates) != request["oldObject"].pointer(templates);
    if !is_vm || !is_write || !is_changed {
        return Ok(None);
    }
    // The review itself refuses a VM that cannot be parsed.
    let Ok(vm) = VirtualMachine::deserialize(&request["object"]) else {
        return Ok(None);
    };
    if vm.metadata.deletion_timestamp.is_some() {
        return Ok(None);
    }
    let own = request["namespace"].as_str().unwrap_or_default();
    let subject = Subject::account(own, account(&vm));
    for (index, template) in vm.spec.data_volume_templates.iter().enumerate() {
        let Some(copied) = source::find(client, own, &template.spec).await? else {
            continue;
        };
        // Nothing is copied for a data volume that exists.
        let metadata = template.metadata.as_ref();
        let name = metadata.and_then(|metadata| metadata.name.as_deref());
        let made: Api<DataVolume> = Api::namespaced(client.clone(), own);
        if let Some(name) = name.filter(|name| source::is_name(name))
            && made.get_opt(name).await?.is_some()
        {
            continue;
        }
        for namespace in copied.namespaces.iter().filter(|one| *one != own) {
            if !may_copy(client, &subject, namespace).await? {
                let account = subject.user.as_deref().unwrap_or_default();
                return Ok(Some(format!(
                    "spec.dataVolumeTemplates[{index}]: account {account:?} must not copy disks from namespace \
                     {namespace:?}: allow it to create datavolumes/source of API group {} there",
                    DataVolume::GROUP
                )));
            }
        }
    }
    Ok(None)
}

/// The service account of the guest in its namespace.
fn account(vm: &VirtualMachine) -> &str {
    let spec = vm.spec.template.spec.as_ref();
    let mut volumes = spec.iter().flat_map(|spec| &spec.volumes);
    let named = volumes.find_map(|volume| {
        let account = volume.service_account.as_ref()?;
        account.service_account_name.as_deref()
    });
    named
        .filter(|name| !name.is_empty())
        .unwrap_or(DEFAULT_ACCOUNT)
}
