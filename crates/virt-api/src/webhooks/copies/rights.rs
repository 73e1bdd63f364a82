//! Whether the service account of a VM may copy disks of a namespace.

use apimachinery::names::is_subdomain;
use cluster_view::{DEFAULT_ACCOUNT, Subject};
use kube::{Api, Client};
use kubevirt_api::{VirtualMachine, data_volume_status::DataVolume};
use serde::Deserialize as _;
use serde_json::Value;

use super::source;
use crate::refusal::Refusal;

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
        if let Some(name) = name.filter(|name| is_subdomain(name))
            && made.get_opt(name).await?.is_some()
        {
            continue;
        }
        for namespace in copied.namespaces.iter().filter(|one| *one != own) {
            if !subject.may_copy(client, namespace).await? {
                let account = subject.name();
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
