//! What the webhook fills in for a `VirtualMachine`.

use kubevirt_api::{VirtualMachine, annotations};

use super::{Surroundings, machine};
use crate::ClusterConfig;

/// Whether the object is new. Identity is given once, never to an old VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Age {
    New,
    Old,
}

/// Fills in the template.
pub fn set(vm: &mut VirtualMachine, age: Age, config: &ClusterConfig, around: Surroundings<'_>) {
    let template = &mut vm.spec.template;
    let spec = template.spec.get_or_insert_default();
    if age == Age::New {
        let firmware = spec.domain.firmware.get_or_insert_default();
        for identity in [&mut firmware.uuid, &mut firmware.serial] {
            if identity.as_deref().unwrap_or_default().is_empty() {
                *identity = Some((around.new_uuid)().to_string());
            }
        }
    }
    machine::set_architecture(spec, config);
    machine::set_machine(spec, config);
    if age == Age::New && machine::takes_pci_topology_v3(spec) {
        template
            .metadata
            .get_or_insert_default()
            .annotations
            .get_or_insert_default()
            .entry(annotations::PCI_TOPOLOGY_VERSION.to_owned())
            .or_insert_with(|| annotations::PCI_TOPOLOGY_VERSION_V3.to_owned());
    }
}
