//! The definition of data volumes.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;

/// The definition of data volumes, if it was installed with Ferrovirt; only its existence matters.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ImporterDefinition {
    metadata: ObjectMeta,
}

reconcile::resource_view!(
    ImporterDefinition,
    CustomResourceDefinition,
    ClusterResourceScope
);
