//! Defaults that the webhook fills into a `VirtualMachine`.

use cluster_config::ClusterConfig;
use kubevirt_api::{
    VirtualMachine, annotations,
    preference::{MachinePreferences, VirtualMachinePreferenceSpec},
};
use validation::{Rule, Subject};

use crate::{environment::Environment, machine};

/// Whether the object is new. Only a new VM gets an identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Age {
    New,
    Existing,
}

/// Objects that the VM refers to, as far as they were found.
#[derive(Clone, Copy, Debug, Default)]
pub struct Found<'a> {
    pub preference: Option<&'a VirtualMachinePreferenceSpec>,
    /// Architecture of the source of the first data volume template.
    pub architecture: Option<&'a str>,
}

/// Input of a default.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    pub age: Age,
    pub found: Found<'a>,
    pub config: &'a ClusterConfig,
    pub env: Environment<'a>,
}

pub type Fill = fn(&mut VirtualMachine, &Context<'_>);

/// All defaults, in the order they are applied.
#[rustfmt::skip]
pub const ALL: &[Rule<Fill>] = &[
    Rule::new("default.vm-preference", Subject::VmDefaults, "preferred architecture, machine type and storage class", set_preferred),
    Rule::new("default.vm-identity", Subject::VmDefaults, "firmware UUID and serial number of a new VM", set_identity),
    Rule::new("default.vm-architecture", Subject::VmDefaults, "architecture of the disk's source, otherwise of the cluster", set_architecture),
    Rule::new("default.vm-machine", Subject::VmDefaults, "machine type", set_machine),
    Rule::new("default.vm-pci-topology", Subject::VmDefaults, "layout of PCI ports of a new VM", set_pci_topology),
];

/// Fills in the template. A VM without a template is unchanged; a check refuses it.
pub fn set(vm: &mut VirtualMachine, context: &Context<'_>) {
    if vm.spec.template.spec.is_none() {
        return;
    }
    for rule in ALL {
        (rule.apply)(vm, context);
    }
}

fn set_preferred(vm: &mut VirtualMachine, context: &Context<'_>) {
    let Some(preference) = context.found.preference else {
        return;
    };
    let spec = vm.spec.template.spec.get_or_insert_default();
    let wanted = preference.preferred_architecture.as_ref();
    if spec.architecture.as_deref().unwrap_or_default().is_empty()
        && let Some(wanted) = wanted
    {
        spec.architecture = Some(wanted.clone());
    }
    let machine = spec.domain.machine.as_ref();
    let has_machine = machine
        .and_then(|machine| machine.type_.as_deref())
        .is_some_and(|machine| !machine.is_empty());
    if let Some(MachinePreferences {
        preferred_machine_type: Some(wanted),
    }) = &preference.machine
        && !has_machine
    {
        spec.domain.machine.get_or_insert_default().type_ = Some(wanted.clone());
    }
    let class = preference.volumes.as_ref();
    let class = class.and_then(|volumes| volumes.preferred_storage_class_name.as_ref());
    let Some(class) = class else { return };
    for template in &mut vm.spec.data_volume_templates {
        let storage = template.spec.storage.as_mut();
        let classes = [
            template
                .spec
                .pvc
                .as_mut()
                .map(|pvc| &mut pvc.storage_class_name),
            storage.map(|storage| &mut storage.storage_class_name),
        ];
        for own in classes.into_iter().flatten() {
            own.get_or_insert_with(|| class.clone());
        }
    }
}

fn set_identity(vm: &mut VirtualMachine, context: &Context<'_>) {
    if context.age == Age::Existing {
        return;
    }
    let spec = vm.spec.template.spec.get_or_insert_default();
    let firmware = spec.domain.firmware.get_or_insert_default();
    for identity in [&mut firmware.uuid, &mut firmware.serial] {
        if identity.as_deref().unwrap_or_default().is_empty() {
            *identity = Some((context.env.new_uuid)().to_string());
        }
    }
}

fn set_architecture(vm: &mut VirtualMachine, context: &Context<'_>) {
    let spec = vm.spec.template.spec.get_or_insert_default();
    if machine::architecture(spec).is_empty()
        && let Some(found) = context.found.architecture
    {
        spec.architecture = Some(found.to_owned());
    }
    machine::set_architecture(spec, context.config);
}

fn set_machine(vm: &mut VirtualMachine, context: &Context<'_>) {
    machine::set_machine(
        vm.spec.template.spec.get_or_insert_default(),
        context.config,
    );
}

fn set_pci_topology(vm: &mut VirtualMachine, context: &Context<'_>) {
    let template = &mut vm.spec.template;
    let spec = template.spec.get_or_insert_default();
    if context.age == Age::New && machine::takes_pci_topology_v3(spec) {
        let metadata = template.metadata.get_or_insert_default();
        metadata
            .annotations
            .get_or_insert_default()
            .entry(annotations::PCI_TOPOLOGY_VERSION.to_owned())
            .or_insert_with(|| annotations::PCI_TOPOLOGY_VERSION_V3.to_owned());
    }
}
