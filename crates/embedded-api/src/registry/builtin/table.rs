//! Every built-in kind, in the order of discovery.
//!
//! Groups come in the order of their priority on a real API server, kinds of a group by name.

use k8s_openapi::api::{
    admissionregistration::v1 as admission, apps::v1 as apps, coordination::v1 as coordination,
    core::v1 as core, discovery::v1 as discovery, events::v1 as events, policy::v1 as policy,
    rbac::v1 as rbac, scheduling::v1 as scheduling, storage::v1 as storage,
};
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1 as aggregation;
use serde_json::Value;

use super::{Alias, BuiltIn, References, Sub, crd_schema, no_schema, schema};

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

const CORE: (&str, &str) = ("", "v1");
const APPS: (&str, &str) = ("apps", "v1");
const AUTHENTICATION: (&str, &str) = ("authentication.k8s.io", "v1");
const AUTHORIZATION: (&str, &str) = ("authorization.k8s.io", "v1");
const RBAC: (&str, &str) = ("rbac.authorization.k8s.io", "v1");
const WEBHOOKS: (&str, &str) = ("admissionregistration.k8s.io", "v1");

/// Plural and singular.
type Names = (&'static str, &'static str);

const fn kind(
    (group, version): (&'static str, &'static str),
    kind: &'static str,
    names: Names,
    schema: fn(References) -> Value,
) -> BuiltIn {
    BuiltIn {
        group,
        version,
        kind,
        plural: names.0,
        singular: names.1,
        short_names: &[],
        categories: &[],
        namespaced: true,
        verbs: ALL_VERBS,
        subresources: &[],
        stored_as: None,
        generation: false,
        schema,
    }
}

/// A question that is answered and not stored.
const fn review(group: (&'static str, &'static str), name: &'static str, names: Names) -> BuiltIn {
    BuiltIn {
        verbs: CREATE,
        namespaced: false,
        ..kind(group, name, names, no_schema)
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
        ..kind(
            CORE,
            "ConfigMap",
            ("configmaps", "configmap"),
            schema::<core::ConfigMap>,
        )
    },
    BuiltIn {
        short_names: &["ep"],
        ..kind(
            CORE,
            "Endpoints",
            ("endpoints", "endpoints"),
            schema::<core::Endpoints>,
        )
    },
    BuiltIn {
        short_names: &["ev"],
        ..kind(CORE, "Event", ("events", "event"), schema::<core::Event>)
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
        ..kind(
            CORE,
            "Namespace",
            ("namespaces", "namespace"),
            schema::<core::Namespace>,
        )
    },
    BuiltIn {
        short_names: &["no"],
        namespaced: false,
        subresources: &[status("Node")],
        ..kind(CORE, "Node", ("nodes", "node"), schema::<core::Node>)
    },
    BuiltIn {
        short_names: &["pvc"],
        subresources: &[status("PersistentVolumeClaim")],
        ..kind(
            CORE,
            "PersistentVolumeClaim",
            ("persistentvolumeclaims", "persistentvolumeclaim"),
            schema::<core::PersistentVolumeClaim>,
        )
    },
    BuiltIn {
        short_names: &["pv"],
        namespaced: false,
        subresources: &[status("PersistentVolume")],
        ..kind(
            CORE,
            "PersistentVolume",
            ("persistentvolumes", "persistentvolume"),
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
        ..kind(CORE, "Pod", ("pods", "pod"), schema::<core::Pod>)
    },
    BuiltIn {
        short_names: &["quota"],
        subresources: &[status("ResourceQuota")],
        ..kind(
            CORE,
            "ResourceQuota",
            ("resourcequotas", "resourcequota"),
            schema::<core::ResourceQuota>,
        )
    },
    kind(
        CORE,
        "Secret",
        ("secrets", "secret"),
        schema::<core::Secret>,
    ),
    BuiltIn {
        short_names: &["sa"],
        subresources: &[Sub {
            api_version: Some("authentication.k8s.io/v1"),
            ..sub("token", "TokenRequest", CREATE)
        }],
        ..kind(
            CORE,
            "ServiceAccount",
            ("serviceaccounts", "serviceaccount"),
            schema::<core::ServiceAccount>,
        )
    },
    BuiltIn {
        short_names: &["svc"],
        categories: &["all"],
        subresources: &[status("Service")],
        ..kind(
            CORE,
            "Service",
            ("services", "service"),
            schema::<core::Service>,
        )
    },
    BuiltIn {
        categories: &["api-extensions"],
        namespaced: false,
        subresources: &[status("APIService")],
        ..kind(
            ("apiregistration.k8s.io", "v1"),
            "APIService",
            ("apiservices", "apiservice"),
            schema::<aggregation::APIService>,
        )
    },
    kind(
        APPS,
        "ControllerRevision",
        ("controllerrevisions", "controllerrevision"),
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
            ("events.k8s.io", "v1"),
            "Event",
            ("events", "event"),
            schema::<events::Event>,
        )
    },
    review(
        AUTHENTICATION,
        "SelfSubjectReview",
        ("selfsubjectreviews", "selfsubjectreview"),
    ),
    review(
        AUTHENTICATION,
        "TokenReview",
        ("tokenreviews", "tokenreview"),
    ),
    BuiltIn {
        namespaced: true,
        ..review(
            AUTHORIZATION,
            "LocalSubjectAccessReview",
            ("localsubjectaccessreviews", "localsubjectaccessreview"),
        )
    },
    review(
        AUTHORIZATION,
        "SelfSubjectAccessReview",
        ("selfsubjectaccessreviews", "selfsubjectaccessreview"),
    ),
    review(
        AUTHORIZATION,
        "SelfSubjectRulesReview",
        ("selfsubjectrulesreviews", "selfsubjectrulesreview"),
    ),
    review(
        AUTHORIZATION,
        "SubjectAccessReview",
        ("subjectaccessreviews", "subjectaccessreview"),
    ),
    BuiltIn {
        short_names: &["pdb"],
        generation: true,
        subresources: &[status("PodDisruptionBudget")],
        ..kind(
            ("policy", "v1"),
            "PodDisruptionBudget",
            ("poddisruptionbudgets", "poddisruptionbudget"),
            schema::<policy::PodDisruptionBudget>,
        )
    },
    BuiltIn {
        namespaced: false,
        ..kind(
            RBAC,
            "ClusterRoleBinding",
            ("clusterrolebindings", "clusterrolebinding"),
            schema::<rbac::ClusterRoleBinding>,
        )
    },
    BuiltIn {
        namespaced: false,
        ..kind(
            RBAC,
            "ClusterRole",
            ("clusterroles", "clusterrole"),
            schema::<rbac::ClusterRole>,
        )
    },
    kind(
        RBAC,
        "RoleBinding",
        ("rolebindings", "rolebinding"),
        schema::<rbac::RoleBinding>,
    ),
    kind(RBAC, "Role", ("roles", "role"), schema::<rbac::Role>),
    BuiltIn {
        short_names: &["sc"],
        namespaced: false,
        ..kind(
            ("storage.k8s.io", "v1"),
            "StorageClass",
            ("storageclasses", "storageclass"),
            schema::<storage::StorageClass>,
        )
    },
    BuiltIn {
        categories: &["api-extensions"],
        namespaced: false,
        generation: true,
        ..kind(
            WEBHOOKS,
            "MutatingWebhookConfiguration",
            (
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
        ..kind(
            WEBHOOKS,
            "ValidatingWebhookConfiguration",
            (
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
        ..kind(
            ("apiextensions.k8s.io", "v1"),
            "CustomResourceDefinition",
            ("customresourcedefinitions", "customresourcedefinition"),
            crd_schema,
        )
    },
    BuiltIn {
        short_names: &["pc"],
        namespaced: false,
        generation: true,
        ..kind(
            ("scheduling.k8s.io", "v1"),
            "PriorityClass",
            ("priorityclasses", "priorityclass"),
            schema::<scheduling::PriorityClass>,
        )
    },
    kind(
        ("coordination.k8s.io", "v1"),
        "Lease",
        ("leases", "lease"),
        schema::<coordination::Lease>,
    ),
    BuiltIn {
        generation: true,
        ..kind(
            ("discovery.k8s.io", "v1"),
            "EndpointSlice",
            ("endpointslices", "endpointslice"),
            schema::<discovery::EndpointSlice>,
        )
    },
];
