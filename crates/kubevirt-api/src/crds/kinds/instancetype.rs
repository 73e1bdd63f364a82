//! Group `instancetype.kubevirt.io`: sizes and preferences, in a namespace and for the cluster. None
//! has a status.

use crate::{
    crds::{
        definition::{Definition, Object, Scope, StatusIs, Version},
        structural,
    },
    instancetype::{
        VirtualMachineClusterInstancetype, VirtualMachineInstancetype,
        VirtualMachineInstancetypeSpec,
    },
    preference::{
        VirtualMachineClusterPreference, VirtualMachinePreference, VirtualMachinePreferenceSpec,
    },
};

const GROUP: &str = "instancetype.kubevirt.io";
const LABEL: Option<&str> = Some("kubevirt.io");

pub(super) fn rows() -> Vec<Definition> {
    vec![
        instancetypes(),
        cluster_instancetypes(),
        preferences(),
        cluster_preferences(),
    ]
}

fn instancetypes() -> Definition {
    let schema = Object::new(
        "A size for VMs of this namespace: vCPUs, memory and what belongs to them. A VM that \
         names it may not set these fields itself.",
    )
    .required(
        "spec",
        structural::of_spec::<VirtualMachineInstancetypeSpec>(),
    )
    .schema();
    Definition {
        group: GROUP,
        kind: VirtualMachineInstancetype::KIND,
        plural: VirtualMachineInstancetype::PLURAL,
        singular: "virtualmachineinstancetype",
        short_names: &["vminstancetype", "vminstancetypes", "vmf", "vmfs"],
        categories: &["all"],
        scope: Scope::Namespaced,
        label: LABEL,
        versions: vec![Version::stored("v1beta1", &schema)],
        status: StatusIs::PartOfObject,
        scale: None,
        columns: Vec::new(),
    }
}

fn cluster_instancetypes() -> Definition {
    let schema = Object::new(
        "A size for VMs of every namespace: vCPUs, memory and what belongs to them. A VM that \
         names it may not set these fields itself.",
    )
    .required(
        "spec",
        structural::of_spec::<VirtualMachineInstancetypeSpec>(),
    )
    .schema();
    Definition {
        group: GROUP,
        kind: VirtualMachineClusterInstancetype::KIND,
        plural: VirtualMachineClusterInstancetype::PLURAL,
        singular: "virtualmachineclusterinstancetype",
        short_names: &[
            "vmclusterinstancetype",
            "vmclusterinstancetypes",
            "vmcf",
            "vmcfs",
        ],
        categories: &[],
        scope: Scope::Cluster,
        label: LABEL,
        versions: vec![Version::stored("v1beta1", &schema)],
        status: StatusIs::PartOfObject,
        scale: None,
        columns: Vec::new(),
    }
}

fn preferences() -> Definition {
    let schema = Object::new(
        "What guests of one system like best, for VMs of this namespace; fills the fields \
         that a VM leaves open.",
    )
    .required(
        "spec",
        structural::of_spec::<VirtualMachinePreferenceSpec>(),
    )
    .schema();
    Definition {
        group: GROUP,
        kind: VirtualMachinePreference::KIND,
        plural: VirtualMachinePreference::PLURAL,
        singular: "virtualmachinepreference",
        short_names: &["vmpref", "vmprefs", "vmp", "vmps"],
        categories: &["all"],
        scope: Scope::Namespaced,
        label: LABEL,
        versions: vec![Version::stored("v1beta1", &schema)],
        status: StatusIs::PartOfObject,
        scale: None,
        columns: Vec::new(),
    }
}

fn cluster_preferences() -> Definition {
    let schema = Object::new(
        "What guests of one system like best, for VMs of every namespace; fills the fields \
         that a VM leaves open.",
    )
    .required(
        "spec",
        structural::of_spec::<VirtualMachinePreferenceSpec>(),
    )
    .schema();
    Definition {
        group: GROUP,
        kind: VirtualMachineClusterPreference::KIND,
        plural: VirtualMachineClusterPreference::PLURAL,
        singular: "virtualmachineclusterpreference",
        short_names: &["vmcp", "vmcps"],
        categories: &[],
        scope: Scope::Cluster,
        label: LABEL,
        versions: vec![Version::stored("v1beta1", &schema)],
        status: StatusIs::PartOfObject,
        scale: None,
        columns: Vec::new(),
    }
}
