//! What a review of a VM or of an instance depends on: what the VM chose, what its volumes say,
//! what its disk is made for; presets.
//!
//! What is not found stays empty: a VM may be there before what it names, and is told when it
//! starts. Only where the way from a volume to a name breaks off, the review says so.

use admission::{kinds::Related, review::Stage};
use cluster_view::sizes;
use defaults::source::{self, DataSourceRef};
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

/// A way has two or three steps; longer ones are none.
const MOST_STEPS: usize = 8;

/// Adds to what was found what a review of a VM or an instance needs.
pub(in crate::webhooks) async fn complete(
    client: &Client,
    stage: Stage,
    review: &Value,
    found: &mut Related,
) -> Result<(), kube::Error> {
    let request = &review["request"];
    let is_part = request["subResource"]
        .as_str()
        .is_some_and(|part| !part.is_empty());
    if request["kind"]["group"] != kubevirt_api::GROUP || is_part {
        return Ok(());
    }
    match (request["kind"]["kind"].as_str(), stage) {
        (Some(VirtualMachine::KIND), _) => of_machine(client, stage, request, found).await,
        (Some(VirtualMachineInstance::KIND), Stage::Mutate) if request["operation"] == "CREATE" => {
            let namespace = request["namespace"].as_str().unwrap_or_default();
            found.presets = super::every(client, namespace).await?;
        }
        _ => {}
    }
    Ok(())
}

async fn of_machine(client: &Client, stage: Stage, request: &Value, found: &mut Related) {
    // What cannot be read is refused by the review itself.
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
            let error = reconcile::error_chain(&error);
            tracing::warn!(error, "a machine is judged without what it names");
            None
        }
        Err(_) => None,
    }
}

/// Walks from the volume of a VM to the name that its source has on a label.
async fn inferred(client: &Client, vm: &VirtualMachine, family: Family) -> Option<Outcome> {
    let mut step = infer::first_step(vm, family)?;
    for _ in 0..MOST_STEPS {
        step = match step {
            Step::Done(outcome) => return Some(outcome),
            Step::Lookup(source) => match look(client, &source).await {
                Ok(found) => infer::next_step(&source, found.as_ref(), family),
                Err(error) => {
                    let message = format!("{source} cannot be looked up: {error}");
                    return Some(Outcome::Fatal(message));
                }
            },
        };
    }
    let message = "its source is a copy of a copy, and so on";
    Some(Outcome::Ignorable(message.to_owned()))
}

async fn look(client: &Client, source: &infer::Source) -> Result<Option<Value>, kube::Error> {
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

/// What the disk is made for; nobody needs to know, so whatever goes wrong says nothing.
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
            tracing::info!(error = %error, "a data source cannot be looked up");
            None
        }
    }
}
