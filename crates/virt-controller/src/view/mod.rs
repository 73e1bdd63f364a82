//! Views: the parts of objects that the controllers read; caches hold no more. Those of kinds that
//! several controllers read are here, the others in the folder of their controller.
//!
//! **Invariant**: a view is parsed from the whole object and never written back; writes contain
//! named fields only.

mod claim;
mod guest;
mod host;
mod importer;
mod nic;
mod snapshot_class;
mod whole;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

pub(crate) use claim::{Claim, DataVolume, Volumes};
pub(crate) use guest::{Guest, GuestStatus, Plug, Purpose, permanent_claims, plugs};
pub(crate) use host::Host;
pub(crate) use importer::ImporterDefinition;
pub(crate) use nic::Nic;
pub(crate) use snapshot_class::{SnapshotClasses, StorageClass};
pub(crate) use whole::WholeVmi;

/// Whether a view keeps labels: only where a selector needs them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Labels {
    Kept,
    Dropped,
}

/// Metadata without the parts that no controller reads.
pub(crate) fn slim(mut meta: ObjectMeta, labels: Labels, annotations: &[&str]) -> ObjectMeta {
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
