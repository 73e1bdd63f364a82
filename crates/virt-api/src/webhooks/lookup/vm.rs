//! Reads the objects that a review of a VM or VMI depends on: instance type and preference, the labels of
//! its volumes, the architecture of its disk, presets.
//!
//! A missing object stays empty: a VM may exist before the objects that it names, and then fails at its
//! start. Only if an instance type cannot be inferred from a volume, the review is refused.

use admission::{kinds::Related, review::Stage};
use cluster_view::sizes;
use defaults::source::{self, DataSourceRef};
use error_chain::error_chain;
use instancetype::{
    infer::{self, Inferred, Outcome, SourceKind, Step},
    reference::{self, Family, Reference},
};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind},
};
use kubevirt_api::{
    VirtualMachine, VirtualMachineInstance, data_source::DataSource, data_volume_status::DataVolume,
};
use serde::{Deserialize as _, de::DeserializeOwned};
use serde_json::Value;

/// Inferring takes two or three steps; more are an error.
const MAX_STEPS: usize = 8;

/// Adds the objects that a review of a VM or VMI needs.
pub(in crate::webhooks) async fn complete(
    client: &Client,
    stage: Stage,
    review: &Value,
    found: &mut Related,
) -> Result<(), kube::Error> {
    let request = &review["request"];
    let is_subresource = request["subResource"]
        .as_str()
        .is_some_and(|part| !part.is_empty());
    if request["kind"]["group"] != kubevirt_api::GROUP || is_subresource {
        return Ok(());
    }
    match (request["kind"]["kind"].as_str(), stage) {
        (Some(VirtualMachine::KIND), _) => complete_vm(client, stage, request, found).await,
        (Some(VirtualMachineInstance::KIND), Stage::Mutate) if request["operation"] == "CREATE" => {
            let namespace = request["namespace"].as_str().unwrap_or_default();
            found.presets = super::every(client, namespace).await?;
        }
        _ => {}
    }
    Ok(())
}

async fn complete_vm(client: &Client, stage: Stage, request: &Value, found: &mut Related) {
    // The review itself refuses a VM that cannot be parsed.
    let Ok(mut vm) = VirtualMachine::deserialize(&request["object"]) else {
        return;
    };
    if vm.metadata.deletion_timestamp.is_some() {
        return;
    }
    if vm.metadata.namespace.is_none() {
        vm.metadata.namespace = request["namespace"].as_str().map(str::to_owned);
    }
    if stage == Stage::Mutate {
        found.inferred = Inferred {
            instancetype: inferred(client, &vm, Family::Instancetype).await,
            preference: inferred(client, &vm, Family::Preference).await,
        };
        found.architecture = architecture(client, &vm).await;
        if infer::resolve(&mut vm, &found.inferred).is_err() {
            return;
        }
    }
    let namespace = vm.metadata.namespace.clone().unwrap_or_default();
    let status = vm.status.unwrap_or_default();
    let preference =
        reference::preference(vm.spec.preference.as_ref(), status.preference_ref.as_ref());
    found.preference = spec(client, &namespace, preference).await;
    if stage == Stage::Validate {
        let instancetype = reference::instancetype(
            vm.spec.instancetype.as_ref(),
            status.instancetype_ref.as_ref(),
        );
        found.instancetype = spec(client, &namespace, instancetype).await;
    }
}

async fn spec<T: DeserializeOwned>(
    client: &Client,
    namespace: &str,
    reference: Option<Reference>,
) -> Option<Box<T>> {
    match sizes::find(client, namespace, &reference?).await {
        Ok(found) => Some(Box::new(found.spec)),
        Err(error) if error.is_transient() => {
            let error = error_chain(&error);
            tracing::warn!(
                error,
                "validating the VM without its instance type or preference"
            );
            None
        }
        Err(_) => None,
    }
}

/// Follows the source of a VM's volume to the label with the name.
async fn inferred(client: &Client, vm: &VirtualMachine, family: Family) -> Option<Outcome> {
    let mut step = infer::first_step(vm, family)?;
    for _ in 0..MAX_STEPS {
        step = match step {
            Step::Done(outcome) => return Some(outcome),
            Step::Lookup(source) => match read(client, &source).await {
                Ok(found) => infer::next_step(&source, found.as_ref(), family),
                Err(error) => {
                    let message = format!("{source} cannot be read: {}", error_chain(&error));
                    return Some(Outcome::Fatal(message));
                }
            },
        };
    }
    let message = "its source is a copy of a copy, and so on";
    Some(Outcome::Ignorable(message.to_owned()))
}

async fn read(client: &Client, source: &infer::Source) -> Result<Option<Value>, kube::Error> {
    let resource = match source.kind {
        SourceKind::Claim => ApiResource::erase::<PersistentVolumeClaim>(&()),
        SourceKind::DataVolume => ApiResource::erase::<DataVolume>(&()),
        SourceKind::DataSource => ApiResource::erase::<DataSource>(&()),
        SourceKind::Snapshot => ApiResource::from_gvk(&GroupVersionKind::gvk(
            "snapshot.storage.k8s.io",
            "v1",
            "VolumeSnapshot",
        )),
    };
    let api: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), &source.namespace, &resource);
    let found = api.get_opt(&source.name).await?;
    Ok(found.and_then(|object| serde_json::to_value(object).ok()))
}

/// The architecture of the disk, if it can be found; it is optional.
async fn architecture(client: &Client, vm: &VirtualMachine) -> Option<String> {
    let spec = vm.spec.template.spec.as_ref()?;
    if spec
        .architecture
        .as_ref()
        .is_some_and(|own| !own.is_empty())
    {
        return None;
    }
    let first = data_source(client, source::of_vm(vm)?).await?;
    if let Some(found) = source::architecture(&first) {
        return Some(found);
    }
    let second = data_source(client, source::referenced_by(&first)?).await?;
    source::architecture(&second)
}

async fn data_source(client: &Client, reference: DataSourceRef) -> Option<DataSource> {
    let api: Api<DataSource> = Api::namespaced(client.clone(), &reference.namespace);
    match api.get_opt(&reference.name).await {
        Ok(found) => found,
        Err(error) => {
            tracing::info!(error = %error, "a data source cannot be read");
            None
        }
    }
}
