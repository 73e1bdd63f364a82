//! Views: the parts of objects that the controllers read; caches hold no more.
//!
//! **Invariant**: a view is parsed from the whole object and never written back; writes contain
//! named fields only.

mod claim;
mod guest;
mod host;
mod launcher_pod;
mod namespace;
mod replica_set;
mod vm;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

pub(crate) use claim::{Claim, DataVolume, Volumes};
pub(crate) use guest::{Guest, GuestStatus};
pub(crate) use host::Host;
pub(crate) use launcher_pod::{Container, ContainerState, LauncherPod, PodCondition};
pub(crate) use namespace::{Namespace, Quota, Quotas};
pub(crate) use replica_set::ReplicaSet;
pub(crate) use vm::{Vm, VmSpec};

/// Whether a view keeps labels: only where a selector needs them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Labels {
    Kept,
    Dropped,
}

/// Metadata without the parts that no controller reads.
fn slim(mut meta: ObjectMeta, labels: Labels, annotations: &[&str]) -> ObjectMeta {
    meta.managed_fields = None;
    meta.self_link = None;
    meta.generate_name = None;
    if labels == Labels::Dropped {
        meta.labels = None;
    }
    if let Some(all) = &mut meta.annotations {
        all.retain(|key, _| annotations.contains(&key.as_str()));
    }
    meta.annotations = meta.annotations.filter(|all| !all.is_empty());
    meta
}

/// Implements `Resource` for a view, with the kind that it is parsed from.
macro_rules! resource_view {
    ($view:ident, $kind:ty, $scope:ident) => {
        impl kube::Resource for $view {
            type DynamicType = ();
            type Scope = k8s_openapi::$scope;

            fn kind((): &()) -> std::borrow::Cow<'_, str> {
                <$kind as kube::Resource>::kind(&())
            }

            fn group((): &()) -> std::borrow::Cow<'_, str> {
                <$kind as kube::Resource>::group(&())
            }

            fn version((): &()) -> std::borrow::Cow<'_, str> {
                <$kind as kube::Resource>::version(&())
            }

            fn plural((): &()) -> std::borrow::Cow<'_, str> {
                <$kind as kube::Resource>::plural(&())
            }

            fn meta(&self) -> &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &self.metadata
            }

            fn meta_mut(
                &mut self,
            ) -> &mut k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

use resource_view;
