//! The kinds that are always there, as a table.
//!
//! Storing a kind does not mean that anything acts on it.

use apimachinery::Subresource;
use k8s_openapi::api::{
    admissionregistration::v1 as admission, apps::v1 as apps, coordination::v1 as coordination,
    core::v1 as core, events::v1 as events, scheduling::v1 as scheduling, storage::v1 as storage,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1 as extensions;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1 as aggregation;
use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::Value;

/// One row of the table.
#[derive(Debug)]
pub(crate) struct BuiltIn {
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
    pub singular: &'static str,
    pub short_names: &'static [&'static str],
    pub categories: &'static [&'static str],
    pub namespaced: bool,
    pub verbs: &'static [&'static str],
    pub subresources: &'static [Sub],
    /// Where the objects are, when not under the own group and name.
    pub stored_as: Option<Alias>,
    /// Kinds whose `metadata.generation` counts changes of the wanted state.
    pub generation: bool,
    /// The schema, written out or with references.
    pub schema: fn(References) -> Value,
}

/// A kind that shares its objects with another one.
#[derive(Debug)]
pub(crate) struct Alias {
    pub group: &'static str,
    pub plural: &'static str,
    pub api_version: &'static str,
}

/// A subresource of a built-in kind.
#[derive(Debug)]
pub(crate) struct Sub {
    pub name: &'static str,
    pub kind: &'static str,
    pub api_version: Option<&'static str>,
    pub verbs: &'static [&'static str],
}

impl Sub {
    pub(crate) fn to_subresource(&self) -> Subresource {
        Subresource {
            name: self.name.to_owned(),
            kind: self.kind.to_owned(),
            api_version: self.api_version.map(ToOwned::to_owned),
            verbs: self.verbs.iter().map(ToString::to_string).collect(),
        }
    }
}

/// How a schema names the types inside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum References {
    Inlined,
    Kept,
}

pub(crate) const ALL_VERBS: &[&str] = &[
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

const fn kind(
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    names: (&'static str, &'static str),
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

const fn review(
    group: &'static str,
    name: &'static str,
    names: (&'static str, &'static str),
) -> BuiltIn {
    BuiltIn {
        verbs: CREATE,
        namespaced: false,
        ..kind(group, "v1", name, names, no_schema)
    }
}

const fn status(kind: &'static str) -> Sub {
    Sub {
        name: "status",
        kind,
        api_version: None,
        verbs: READ_WRITE,
    }
}

/// Every built-in kind, in the order of discovery.
pub(crate) static KINDS: &[BuiltIn] = &[
    BuiltIn {
        short_names: &["cm"],
        ..kind(
            "",
            "v1",
            "ConfigMap",
            ("configmaps", "configmap"),
            schema::<core::ConfigMap>,
        )
    },
    BuiltIn {
        short_names: &["ep"],
        ..kind(
            "",
            "v1",
            "Endpoints",
            ("endpoints", "endpoints"),
            schema::<core::Endpoints>,
        )
    },
    BuiltIn {
        short_names: &["ev"],
        ..kind(
            "",
            "v1",
            "Event",
            ("events", "event"),
            schema::<core::Event>,
        )
    },
    BuiltIn {
        short_names: &["ns"],
        namespaced: false,
        verbs: &[
            "create", "delete", "get", "list", "patch", "update", "watch",
        ],
        subresources: &[
            Sub {
                name: "finalize",
                kind: "Namespace",
                api_version: None,
                verbs: &["update"],
            },
            status("Namespace"),
        ],
        ..kind(
            "",
            "v1",
            "Namespace",
            ("namespaces", "namespace"),
            schema::<core::Namespace>,
        )
    },
    BuiltIn {
        short_names: &["no"],
        namespaced: false,
        subresources: &[status("Node")],
        ..kind("", "v1", "Node", ("nodes", "node"), schema::<core::Node>)
    },
    BuiltIn {
        short_names: &["pvc"],
        subresources: &[status("PersistentVolumeClaim")],
        ..kind(
            "",
            "v1",
            "PersistentVolumeClaim",
            ("persistentvolumeclaims", "persistentvolumeclaim"),
            schema::<core::PersistentVolumeClaim>,
        )
    },
    BuiltIn {
        short_names: &["po"],
        categories: &["all"],
        generation: true,
        subresources: &[
            Sub {
                name: "attach",
                kind: "PodAttachOptions",
                api_version: None,
                verbs: CONNECT,
            },
            Sub {
                name: "binding",
                kind: "Binding",
                api_version: None,
                verbs: CREATE,
            },
            Sub {
                name: "eviction",
                kind: "Eviction",
                api_version: Some("policy/v1"),
                verbs: CREATE,
            },
            Sub {
                name: "exec",
                kind: "PodExecOptions",
                api_version: None,
                verbs: CONNECT,
            },
            Sub {
                name: "log",
                kind: "Pod",
                api_version: None,
                verbs: &["get"],
            },
            Sub {
                name: "portforward",
                kind: "PodPortForwardOptions",
                api_version: None,
                verbs: CONNECT,
            },
            status("Pod"),
        ],
        ..kind("", "v1", "Pod", ("pods", "pod"), schema::<core::Pod>)
    },
    kind(
        "",
        "v1",
        "Secret",
        ("secrets", "secret"),
        schema::<core::Secret>,
    ),
    BuiltIn {
        short_names: &["sa"],
        ..kind(
            "",
            "v1",
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
            "",
            "v1",
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
            "apiregistration.k8s.io",
            "v1",
            "APIService",
            ("apiservices", "apiservice"),
            schema::<aggregation::APIService>,
        )
    },
    kind(
        "apps",
        "v1",
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
            "events.k8s.io",
            "v1",
            "Event",
            ("events", "event"),
            schema::<events::Event>,
        )
    },
    review(
        "authentication.k8s.io",
        "SelfSubjectReview",
        ("selfsubjectreviews", "selfsubjectreview"),
    ),
    BuiltIn {
        namespaced: true,
        ..review(
            "authorization.k8s.io",
            "LocalSubjectAccessReview",
            ("localsubjectaccessreviews", "localsubjectaccessreview"),
        )
    },
    review(
        "authorization.k8s.io",
        "SelfSubjectAccessReview",
        ("selfsubjectaccessreviews", "selfsubjectaccessreview"),
    ),
    review(
        "authorization.k8s.io",
        "SelfSubjectRulesReview",
        ("selfsubjectrulesreviews", "selfsubjectrulesreview"),
    ),
    review(
        "authorization.k8s.io",
        "SubjectAccessReview",
        ("subjectaccessreviews", "subjectaccessreview"),
    ),
    BuiltIn {
        short_names: &["sc"],
        namespaced: false,
        ..kind(
            "storage.k8s.io",
            "v1",
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
            "admissionregistration.k8s.io",
            "v1",
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
            "admissionregistration.k8s.io",
            "v1",
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
            "apiextensions.k8s.io",
            "v1",
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
            "scheduling.k8s.io",
            "v1",
            "PriorityClass",
            ("priorityclasses", "priorityclass"),
            schema::<scheduling::PriorityClass>,
        )
    },
    kind(
        "coordination.k8s.io",
        "v1",
        "Lease",
        ("leases", "lease"),
        schema::<coordination::Lease>,
    ),
];

fn schema<T: JsonSchema>(references: References) -> Value {
    let settings = SchemaSettings::draft2020_12()
        .with(|settings| settings.inline_subschemas = references == References::Inlined);
    settings
        .into_generator()
        .into_root_schema_for::<T>()
        .to_value()
}

/// A CRD's schema holds schemas of schemas, so it cannot be written out.
fn crd_schema(references: References) -> Value {
    match references {
        References::Inlined => Value::Null,
        References::Kept => schema::<extensions::CustomResourceDefinition>(References::Kept),
    }
}

fn no_schema(_: References) -> Value {
    Value::Null
}
