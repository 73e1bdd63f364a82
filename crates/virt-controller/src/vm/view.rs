//! A VM. Its template is kept unparsed, so that unknown fields reach the VMI.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubevirt_api::VirtualMachine;
use kubevirt_api::vm::VirtualMachineRunStrategy;
use kubevirt_api::vm_status::VirtualMachineStatus;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Vm {
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: VmSpec,
    status: Option<VirtualMachineStatus>,
}

#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct VmSpec {
    pub(crate) running: Option<bool>,
    pub(crate) run_strategy: Option<VirtualMachineRunStrategy>,
    pub(crate) instancetype: Option<Value>,
    pub(crate) preference: Option<Value>,
    pub(crate) data_volume_templates: Option<Vec<Value>>,
    /// Not serialised with the rest of the spec.
    #[serde(skip_serializing)]
    pub(crate) template: Value,
    /// All other fields.
    #[serde(flatten)]
    pub(crate) rest: Map<String, Value>,
}

impl Vm {
    pub(crate) fn status(&self) -> Cow<'_, VirtualMachineStatus> {
        match &self.status {
            Some(status) => Cow::Borrowed(status),
            None => Cow::Owned(VirtualMachineStatus::default()),
        }
    }

    pub(crate) fn annotation(&self, key: &str) -> Option<&str> {
        let all = self.metadata.annotations.as_ref()?;
        all.get(key).map(String::as_str)
    }

    /// Templates of data volumes with their names. Admission refuses templates without a name.
    pub(crate) fn data_volume_templates(&self) -> impl Iterator<Item = (&str, &Value)> {
        let all = self.spec.data_volume_templates.iter().flatten();
        all.filter_map(|one| Some((one.pointer("/metadata/name")?.as_str()?, one)))
    }

    /// The volumes of the template.
    pub(crate) fn volumes(&self) -> &[Value] {
        let volumes = self.spec.template.pointer("/spec/volumes");
        volumes.and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }
}

reconcile::resource_view!(Vm, VirtualMachine, NamespaceResourceScope);
