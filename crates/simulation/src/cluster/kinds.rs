//! The kinds that the simulated API server stores: those of `KubeVirt`'s API, and the built-in ones that
//! its controllers use.

use apimachinery::resource::{GroupKind, GroupResource};
use apimachinery::shape::Type;

use super::custom::{self, Definition};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    Vm,
    Vmi,
    ReplicaSet,
    /// `VirtualMachineInstanceMigration`.
    Migration,
    Pod,
    Node,
    Claim,
    Revision,
    Lease,
    Event,
    /// `CustomResourceDefinition`: of what the scenario has, and in the bench none.
    Definition,
    /// None exists: that of the legacy configuration is looked for.
    ConfigMap,
    /// None exists.
    Namespace,
    /// `ResourceQuota`: none exists.
    Quota,
    /// `StorageClass`: none exists.
    StorageClass,
    /// Another kind of `KubeVirt`'s API, by its place in [`custom::ALL`].
    Custom(usize),
}

/// Properties of a kind.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) kind: &'static str,
}

const fn facts(group: &'static str, plural: &'static str, kind: &'static str) -> Facts {
    Facts {
        group,
        version: "v1",
        plural,
        kind,
    }
}

const KUBEVIRT: &str = "kubevirt.io";

impl Kind {
    const NAMED: [Self; 15] = [
        Self::Vm,
        Self::Vmi,
        Self::ReplicaSet,
        Self::Migration,
        Self::Pod,
        Self::Node,
        Self::Claim,
        Self::Revision,
        Self::Lease,
        Self::Event,
        Self::Definition,
        Self::ConfigMap,
        Self::Namespace,
        Self::Quota,
        Self::StorageClass,
    ];

    fn all() -> impl Iterator<Item = Self> {
        // A named kind comes first.
        let custom = (0..custom::ALL.len()).map(Self::Custom);
        Self::NAMED.into_iter().chain(custom)
    }

    pub(crate) fn facts(self) -> &'static Facts {
        const VM: Facts = facts(KUBEVIRT, "virtualmachines", "VirtualMachine");
        const VMI: Facts = facts(
            KUBEVIRT,
            "virtualmachineinstances",
            "VirtualMachineInstance",
        );
        const SET: Facts = facts(
            KUBEVIRT,
            "virtualmachineinstancereplicasets",
            "VirtualMachineInstanceReplicaSet",
        );
        const MIGRATION: Facts = facts(
            KUBEVIRT,
            "virtualmachineinstancemigrations",
            "VirtualMachineInstanceMigration",
        );
        const POD: Facts = facts("", "pods", "Pod");
        const NODE: Facts = facts("", "nodes", "Node");
        const CLAIM: Facts = facts("", "persistentvolumeclaims", "PersistentVolumeClaim");
        const REVISION: Facts = facts("apps", "controllerrevisions", "ControllerRevision");
        const LEASE: Facts = facts("coordination.k8s.io", "leases", "Lease");
        const EVENT: Facts = facts("", "events", "Event");
        const DEFINITION: Facts = facts(
            "apiextensions.k8s.io",
            "customresourcedefinitions",
            "CustomResourceDefinition",
        );
        const CONFIG: Facts = facts("", "configmaps", "ConfigMap");
        const PLACE: Facts = facts("", "namespaces", "Namespace");
        const QUOTA: Facts = facts("", "resourcequotas", "ResourceQuota");
        const CLASS: Facts = facts("storage.k8s.io", "storageclasses", "StorageClass");
        match self {
            Self::Vm => &VM,
            Self::Vmi => &VMI,
            Self::ReplicaSet => &SET,
            Self::Migration => &MIGRATION,
            Self::Pod => &POD,
            Self::Node => &NODE,
            Self::Claim => &CLAIM,
            Self::Revision => &REVISION,
            Self::Lease => &LEASE,
            Self::Event => &EVENT,
            Self::Definition => &DEFINITION,
            Self::ConfigMap => &CONFIG,
            Self::Namespace => &PLACE,
            Self::Quota => &QUOTA,
            Self::StorageClass => &CLASS,
            Self::Custom(index) => &custom::ALL[index].facts,
        }
    }

    pub(crate) fn find(group: &str, plural: &str) -> Option<Self> {
        Self::all().find(|kind| kind.facts().group == group && kind.facts().plural == plural)
    }

    /// The kind of that name; the names of all kinds differ.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::all().find(|kind| kind.facts().kind == name)
    }

    pub(crate) fn api_version(self) -> String {
        let facts = self.facts();
        if facts.group.is_empty() {
            facts.version.to_owned()
        } else {
            format!("{}/{}", facts.group, facts.version)
        }
    }

    pub(crate) fn is_custom(self) -> bool {
        self.definition().is_some()
    }

    /// Whether the status is a subresource.
    pub(crate) fn has_status(self) -> bool {
        match self.definition() {
            Some(definition) => definition.content().has_status,
            None => !matches!(self, Self::Revision | Self::Lease | Self::Event),
        }
    }

    pub(crate) fn resource(self) -> GroupResource<'static> {
        GroupResource {
            group: self.facts().group,
            resource: self.facts().plural,
        }
    }

    pub(crate) fn group_kind(self) -> GroupKind<'static> {
        GroupKind {
            group: self.facts().group,
            kind: self.facts().kind,
        }
    }

    /// How its fields merge.
    pub(crate) fn shape(self) -> Type<'static> {
        match self.definition() {
            Some(definition) => Type::Custom(&definition.content().schema),
            None => Type::built_in(self.facts().group, self.facts().kind),
        }
    }

    fn definition(self) -> Option<&'static Definition> {
        match self {
            Self::Custom(index) => custom::ALL.get(index),
            Self::Vm | Self::Vmi | Self::ReplicaSet | Self::Migration => {
                let plural = self.facts().plural;
                let mut all = custom::ALL.iter();
                all.find(|definition| definition.facts.plural == plural)
            }
            Self::Pod
            | Self::Node
            | Self::Claim
            | Self::Revision
            | Self::Lease
            | Self::Event
            | Self::Definition
            | Self::ConfigMap
            | Self::Namespace
            | Self::Quota
            | Self::StorageClass => None,
        }
    }
}
