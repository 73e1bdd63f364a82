//! The kinds that the simulated API server stores.

use std::sync::{Arc, LazyLock};

use apimachinery::resource::{GroupKind, GroupResource};
use apimachinery::schema::Schema;
use apimachinery::shape::Type;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    Vm,
    Vmi,
    ReplicaSet,
    Pod,
    Node,
    Claim,
    Revision,
    Lease,
    Event,
    /// The configuration: none exists.
    KubeVirt,
    /// `CustomResourceDefinition`: none exists.
    Definition,
    /// None exists.
    Namespace,
    /// `ResourceQuota`: none exists.
    Quota,
}

/// Properties of a kind.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) has_status: bool,
}

const fn facts(
    group: &'static str,
    version: &'static str,
    plural: &'static str,
    kind: &'static str,
    has_status: bool,
) -> Facts {
    Facts {
        group,
        version,
        plural,
        kind,
        has_status,
    }
}

const CUSTOM: &str = "kubevirt.io";

impl Kind {
    pub(crate) const ALL: [Self; 13] = [
        Self::Vm,
        Self::Vmi,
        Self::ReplicaSet,
        Self::Pod,
        Self::Node,
        Self::Claim,
        Self::Revision,
        Self::Lease,
        Self::Event,
        Self::KubeVirt,
        Self::Definition,
        Self::Namespace,
        Self::Quota,
    ];

    pub(crate) fn facts(self) -> &'static Facts {
        const VM: Facts = facts(CUSTOM, "v1", "virtualmachines", "VirtualMachine", true);
        const VMI: Facts = facts(
            CUSTOM,
            "v1",
            "virtualmachineinstances",
            "VirtualMachineInstance",
            false,
        );
        const SET: Facts = facts(
            CUSTOM,
            "v1",
            "virtualmachineinstancereplicasets",
            "VirtualMachineInstanceReplicaSet",
            true,
        );
        const POD: Facts = facts("", "v1", "pods", "Pod", true);
        const NODE: Facts = facts("", "v1", "nodes", "Node", true);
        const CLAIM: Facts = facts(
            "",
            "v1",
            "persistentvolumeclaims",
            "PersistentVolumeClaim",
            true,
        );
        const REVISION: Facts = facts(
            "apps",
            "v1",
            "controllerrevisions",
            "ControllerRevision",
            false,
        );
        const LEASE: Facts = facts("coordination.k8s.io", "v1", "leases", "Lease", false);
        const EVENT: Facts = facts("", "v1", "events", "Event", false);
        const KUBEVIRT: Facts = facts(CUSTOM, "v1", "kubevirts", "KubeVirt", true);
        const DEFINITION: Facts = facts(
            "apiextensions.k8s.io",
            "v1",
            "customresourcedefinitions",
            "CustomResourceDefinition",
            true,
        );
        const PLACE: Facts = facts("", "v1", "namespaces", "Namespace", true);
        const QUOTA: Facts = facts("", "v1", "resourcequotas", "ResourceQuota", true);
        match self {
            Self::Vm => &VM,
            Self::Vmi => &VMI,
            Self::ReplicaSet => &SET,
            Self::Pod => &POD,
            Self::Node => &NODE,
            Self::Claim => &CLAIM,
            Self::Revision => &REVISION,
            Self::Lease => &LEASE,
            Self::Event => &EVENT,
            Self::KubeVirt => &KUBEVIRT,
            Self::Definition => &DEFINITION,
            Self::Namespace => &PLACE,
            Self::Quota => &QUOTA,
        }
    }

    pub(crate) fn find(group: &str, plural: &str) -> Option<Self> {
        let is = |kind: &Self| kind.facts().group == group && kind.facts().plural == plural;
        Self::ALL.into_iter().find(is)
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
        self.facts().group == CUSTOM
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
        match self {
            Self::Vm => Type::Custom(&SCHEMAS[0]),
            Self::Vmi => Type::Custom(&SCHEMAS[1]),
            Self::ReplicaSet => Type::Custom(&SCHEMAS[2]),
            _ => Type::built_in(self.facts().group, self.facts().kind),
        }
    }
}

/// Schemas of the custom kinds.
static SCHEMAS: LazyLock<Vec<Arc<Schema>>> = LazyLock::new(|| {
    let all = [Kind::Vm, Kind::Vmi, Kind::ReplicaSet];
    all.into_iter().map(schema).collect()
});

fn schema(kind: Kind) -> Arc<Schema> {
    let name = format!("{}.{}", kind.facts().plural, kind.facts().group);
    let mut definitions = kubevirt_api::crds::ALL.iter();
    let text = definitions.find(|(known, _)| *known == name);
    let text = text.map_or("", |(_, text)| *text);
    let raw: serde_json::Value = serde_saphyr::from_str(text).unwrap_or_default();
    let raw = &raw["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    Schema::parse(raw, "").expect("the definitions that are checked in are structural")
}
