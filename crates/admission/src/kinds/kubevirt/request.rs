//! Requests about a `KubeVirt` object and the configuration in it.

use cluster_config::ClusterConfig;
use kubevirt_api::{cluster_config::KubeVirtConfiguration, kubevirt::KubeVirt};

use crate::kinds::kind::TypedRequest;

pub(super) type Request<'a> = TypedRequest<'a, KubeVirt>;

pub(super) const CONFIGURATION: &str = "spec.configuration";

pub(super) fn configuration(request: &Request<'_>) -> KubeVirtConfiguration {
    request.new.spec.configuration.clone().unwrap_or_default()
}

/// The effective configuration that this object alone defines.
pub(super) fn own_config(request: &Request<'_>) -> ClusterConfig {
    ClusterConfig::from_kubevirt(&configuration(request))
}
