//! Every built-in kind, in the order of discovery.
//!
//! Groups are in the order of their priority in kube-apiserver, kinds of a group by name.

use k8s_openapi::api::{
    admissionregistration::v1 as admission, apps::v1 as apps, coordination::v1 as coordination,
    core::v1 as core, discovery::v1 as discovery, events::v1 as events,
    networking::v1 as networking, policy::v1 as policy, rbac::v1 as rbac,
    scheduling::v1 as scheduling, storage::v1 as storage,
};
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1 as aggregation;
use serde_json::Value;

use super::{Alias, BuiltIn, References, Sub, crd_schema, no_schema, schema};
use crate::kinds::{self, Strategy};

const ALL_VERBS: &[&str] = &[
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
];
const CREATE: &[&str] = &["create"];
const READ_WRITE: &[&str] = &["get", "patch", "update"];
const CONNECT: &[&str] = &["create", "get"];

const CORE: Group = v1("");
const APPS: Group = v1("apps");
const AUTHENTICATION: Group = v1("authentication.k8s.io");
const AUTHORIZATION: Group = v1("authorization.k8s.io");
const RBAC: Group = v1("rbac.authorization.k8s.io");
const WEBHOOKS: Group = v1("admissionregistration.k8s.io");

/// A group and version.
#[derive(Clone, Copy)]
struct Group {
    name: &'static str,
    version: &'static str,
}

const fn v1(name: &'static str) -> Group {
    Group {
        name,
        version: "v1",
    }
}

/// The names of a kind.
#[derive(Clone, Copy)]
struct Names {
    kind: &'static str,
    plural: &'static str,
    singular: &'static str,
}

const fn names(kind: &'static str, plural: &'static str, singular: &'static str) -> Names {
    Names {
        kind,
        plural,
        singular,
    }
}

/// A namespaced kind with all verbs and no special behaviour.
const fn kind(group: Group, names: Names, schema: fn(References) -> Value) -> BuiltIn {
    BuiltIn {
        group: group.name,
        version: group.version,
        kind: names.kind,
        plural: names.plural,
        singular: names.singular,
        short_names: &[],
        categories: &[],
        namespaced: true,
        verbs: ALL_VERBS,
        subresources: &[],
        stored_as: None,
        generation: false,
        schema,
        strategy: Strategy::PLAIN,
    }
}

/// A query that is answered and not stored.
const fn review(group: Group, names: Names) -> BuiltIn {
    BuiltIn {
        verbs: CREATE,
        namespaced: false,
        ..kind(group, names, no_schema)
    }
}

const fn sub(name: &'static str, kind: &'static str, verbs: &'static [&'static str]) -> Sub {
    Sub {
        name,
        kind,
        api_version: None,
        verbs,
    }
}

const fn status(kind: &'static str) -> Sub {
    sub("status", kind, READ_WRITE)
}

pub(crate) static KINDS: &[BuiltIn] = &[
    BuiltIn {
        short_names: &["cm"],
        strategy: kinds::data::CONFIG_MAP,
        ..kind(
            CORE,
            names("ConfigMap", "configmaps", "configmap"),
            schema::<core::ConfigMap>,
        )
    },
    BuiltIn {
        short_names: &["ep"],
        strategy: kinds::services::ENDPOINTS,
        ..kind(
            CORE,
            names("Endpoints", "endpoints", "endpoints"),
            schema::<core::Endpoints>,
        )
    },
    BuiltIn {
        short_names: &["ev"],
        strategy: kinds::events::EVENT,
        ..kind(
            CORE,
            names("Event", "events", "event"),
            schema::<core::Event>,
        )
    },
    BuiltIn {
        short_names: &["limits"],
        strategy: kinds::limits::RANGE,
        ..kind(
            CORE,
            names("LimitRange", "limitranges", "limitrange"),
            schema::<core::LimitRange>,
        )
    },
    BuiltIn {
        short_names: &["ns"],
        namespaced: false,
        verbs: &[
            "create", "delete", "get", "list", "patch", "update", "watch",
        ],
        subresources: &[
            sub("finalize", "Namespace", &["update"]),
            status("Namespace"),
        ],
        strategy: kinds::namespaces::NAMESPACE,
        ..kind(
            CORE,
            names("Namespace", "namespaces", "namespace"),
            schema::<core::Namespace>,
        )
    },
    BuiltIn {
        short_names: &["no"],
        namespaced: false,
        subresources: &[status("Node")],
        ..kind(CORE, names("Node", "nodes", "node"), schema::<core::Node>)
    },
    BuiltIn {
        short_names: &["pvc"],
        subresources: &[status("PersistentVolumeClaim")],
        strategy: kinds::storage::CLAIM,
        ..kind(
            CORE,
            names(
                "PersistentVolumeClaim",
                "persistentvolumeclaims",
                "persistentvolumeclaim",
            ),
            schema::<core::PersistentVolumeClaim>,
        )
    },
    BuiltIn {
        short_names: &["pv"],
        namespaced: false,
        subresources: &[status("PersistentVolume")],
        strategy: kinds::storage::VOLUME,
        ..kind(
            CORE,
            names("PersistentVolume", "persistentvolumes", "persistentvolume"),
            schema::<core::PersistentVolume>,
        )
    },
    BuiltIn {
        short_names: &["po"],
        categories: &["all"],
        generation: true,
        subresources: &[
            sub("attach", "PodAttachOptions", CONNECT),
            sub("binding", "Binding", CREATE),
            Sub {
                api_version: Some("policy/v1"),
                ..sub("eviction", "Eviction", CREATE)
            },
            sub("exec", "PodExecOptions", CONNECT),
            sub("log", "Pod", &["get"]),
            sub("portforward", "PodPortForwardOptions", CONNECT),
            status("Pod"),
        ],
        strategy: kinds::pods::POD,
        ..kind(CORE, names("Pod", "pods", "pod"), schema::<core::Pod>)
    },
    BuiltIn {
        short_names: &["quota"],
        subresources: &[status("ResourceQuota")],
        strategy: kinds::quotas::QUOTA,
        ..kind(
            CORE,
            names("ResourceQuota", "resourcequotas", "resourcequota"),
            schema::<core::ResourceQuota>,
        )
    },
    BuiltIn {
        strategy: kinds::data::SECRET,
        ..kind(
            CORE,
            names("Secret", "secrets", "secret"),
            schema::<core::Secret>,
        )
    },
    BuiltIn {
        short_names: &["sa"],
        subresources: &[Sub {
            api_version: Some("authentication.k8s.io/v1"),
            ..sub("token", "TokenRequest", CREATE)
        }],
        strategy: kinds::accounts::SERVICE_ACCOUNT,
        ..kind(
            CORE,
            names("ServiceAccount", "serviceaccounts", "serviceaccount"),
            schema::<core::ServiceAccount>,
        )
    },
    BuiltIn {
        short_names: &["svc"],
        categories: &["all"],
        subresources: &[status("Service")],
        strategy: kinds::services::SERVICE,
        ..kind(
            CORE,
            names("Service", "services", "service"),
            schema::<core::Service>,
        )
    },
    BuiltIn {
        categories: &["api-extensions"],
        namespaced: false,
        subresources: &[status("APIService")],
        strategy: kinds::webhooks::API_SERVICE,
        ..kind(
            v1("apiregistration.k8s.io"),
            names("APIService", "apiservices", "apiservice"),
            schema::<aggregation::APIService>,
        )
    },
    kind(
        APPS,
        names(
            "ControllerRevision",
            "controllerrevisions",
            "controllerrevision",
        ),
        schema::<apps::ControllerRevision>,
    ),
    BuiltIn {
        short_names: &["ev"],
        stored_as: Some(Alias {
            group: "",
            plural: "events",
            api_version: "v1",
        }),
        ..kind(
            v1("events.k8s.io"),
            names("Event", "events", "event"),
            schema::<events::Event>,
        )
    },
    review(
        AUTHENTICATION,
        names(
            "SelfSubjectReview",
            "selfsubjectreviews",
            "selfsubjectreview",
        ),
    ),
    review(
        AUTHENTICATION,
        names("TokenReview", "tokenreviews", "tokenreview"),
    ),
    BuiltIn {
        namespaced: true,
        ..review(
            AUTHORIZATION,
            names(
                "LocalSubjectAccessReview",
                "localsubjectaccessreviews",
                "localsubjectaccessreview",
            ),
        )
    },
    review(
        AUTHORIZATION,
        names(
            "SelfSubjectAccessReview",
            "selfsubjectaccessreviews",
            "selfsubjectaccessreview",
        ),
    ),
    review(
        AUTHORIZATION,
        names(
            "SelfSubjectRulesReview",
            "selfsubjectrulesreviews",
            "selfsubjectrulesreview",
        ),
    ),
    review(
        AUTHORIZATION,
        names(
            "SubjectAccessReview",
            "subjectaccessreviews",
            "subjectaccessreview",
        ),
    ),
    BuiltIn {
        short_names: &["netpol"],
        generation: true,
        strategy: kinds::policies::NETWORK_POLICY,
        ..kind(
            v1("networking.k8s.io"),
            names("NetworkPolicy", "networkpolicies", "networkpolicy"),
            schema::<networking::NetworkPolicy>,
        )
    },
    BuiltIn {
        short_names: &["pdb"],
        generation: true,
        subresources: &[status("PodDisruptionBudget")],
        strategy: kinds::budgets::BUDGET,
        ..kind(
            v1("policy"),
            names(
                "PodDisruptionBudget",
                "poddisruptionbudgets",
                "poddisruptionbudget",
            ),
            schema::<policy::PodDisruptionBudget>,
        )
    },
    BuiltIn {
        namespaced: false,
        strategy: kinds::access::BINDING,
        ..kind(
            RBAC,
            names(
                "ClusterRoleBinding",
                "clusterrolebindings",
                "clusterrolebinding",
            ),
            schema::<rbac::ClusterRoleBinding>,
        )
    },
    BuiltIn {
        namespaced: false,
        strategy: kinds::access::ROLE,
        ..kind(
            RBAC,
            names("ClusterRole", "clusterroles", "clusterrole"),
            schema::<rbac::ClusterRole>,
        )
    },
    BuiltIn {
        strategy: kinds::access::BINDING,
        ..kind(
            RBAC,
            names("RoleBinding", "rolebindings", "rolebinding"),
            schema::<rbac::RoleBinding>,
        )
    },
    BuiltIn {
        strategy: kinds::access::ROLE,
        ..kind(RBAC, names("Role", "roles", "role"), schema::<rbac::Role>)
    },
    BuiltIn {
        short_names: &["sc"],
        namespaced: false,
        strategy: kinds::storage::CLASS,
        ..kind(
            v1("storage.k8s.io"),
            names("StorageClass", "storageclasses", "storageclass"),
            schema::<storage::StorageClass>,
        )
    },
    BuiltIn {
        categories: &["api-extensions"],
        namespaced: false,
        generation: true,
        strategy: kinds::webhooks::WEBHOOKS,
        ..kind(
            WEBHOOKS,
            names(
                "MutatingWebhookConfiguration",
                "mutatingwebhookconfigurations",
                "mutatingwebhookconfiguration",
            ),
            schema::<admission::MutatingWebhookConfiguration>,
        )
    },
    BuiltIn {
        categories: &["api-extensions"],
        namespaced: false,
        generation: true,
        strategy: kinds::webhooks::WEBHOOKS,
        ..kind(
            WEBHOOKS,
            names(
                "ValidatingWebhookConfiguration",
                "validatingwebhookconfigurations",
                "validatingwebhookconfiguration",
            ),
            schema::<admission::ValidatingWebhookConfiguration>,
        )
    },
    BuiltIn {
        short_names: &["crd", "crds"],
        categories: &["api-extensions"],
        namespaced: false,
        generation: true,
        subresources: &[status("CustomResourceDefinition")],
        strategy: kinds::definitions::DEFINITION,
        ..kind(
            v1("apiextensions.k8s.io"),
            names(
                "CustomResourceDefinition",
                "customresourcedefinitions",
                "customresourcedefinition",
            ),
            crd_schema,
        )
    },
    BuiltIn {
        short_names: &["pc"],
        namespaced: false,
        generation: true,
        strategy: kinds::priorities::PRIORITY_CLASS,
        ..kind(
            v1("scheduling.k8s.io"),
            names("PriorityClass", "priorityclasses", "priorityclass"),
            schema::<scheduling::PriorityClass>,
        )
    },
    kind(
        v1("coordination.k8s.io"),
        names("Lease", "leases", "lease"),
        schema::<coordination::Lease>,
    ),
    BuiltIn {
        generation: true,
        strategy: kinds::services::ENDPOINT_SLICE,
        ..kind(
            v1("discovery.k8s.io"),
            names("EndpointSlice", "endpointslices", "endpointslice"),
            schema::<discovery::EndpointSlice>,
        )
    },
];
