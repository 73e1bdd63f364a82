//! The claim of a data volume, and the size of the disk on it.

use std::collections::BTreeMap;

use kube::ResourceExt as _;
use kubevirt_api::annotations;
use kubevirt_api::data_volume_status::DataVolume;
use kubevirt_api::quantity::Amount;
use kubevirt_api::volume_snapshot::VolumeSnapshot;
use launcher_pod::ClaimMode;
use serde_json::{Value, json};

use super::named::{self, Named};
use super::request::{Form, Request, Source};
use crate::view::Claim;

/// The part of a file system that disks do not get, in thousandths, as in CDI: the file system needs
/// space for itself.
const OVERHEAD: u64 = 55;
const MIB: u64 = 1 << 20;
const SECTOR: u64 = 512;
/// Annotations that say nothing about the claim.
const NOT_COPIED: [&str; 12] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    annotations::CDI_POPULATED_FOR,
    annotations::CDI_PRE_POPULATED,
    annotations::CDI_UPLOAD_TARGET,
    annotations::CDI_POD_PHASE,
    annotations::CDI_POD_READY,
    annotations::CDI_RUNNING,
    annotations::CDI_RUNNING_REASON,
    annotations::CDI_RUNNING_MESSAGE,
    annotations::UPLOAD_REFUSED,
    annotations::COPIED_FROM,
    annotations::COPY_PERMITTED,
];

/// The claim to create. `copied` is the size of the claim or snapshot that is copied, and `named` what a data
/// source stands for.
pub(super) fn render(
    whole: &DataVolume,
    request: &Request,
    copied: Option<u64>,
    named: Option<&Named>,
) -> Value {
    let mut spec = match &request.form {
        Form::Pvc(pvc) => json!(pvc),
        Form::Storage(storage) => json!(storage),
    };
    if let Form::Storage(storage) = &request.form {
        if storage.access_modes.is_empty() {
            spec["accessModes"] = json!(["ReadWriteOnce"]);
        }
        if storage.volume_mode.is_none() {
            spec["volumeMode"] = "Filesystem".into();
        }
    }
    if let Source::Snapshot(name) = &request.source {
        spec["dataSource"] = json!({
            "apiGroup": VolumeSnapshot::GROUP,
            "kind": VolumeSnapshot::KIND,
            "name": name,
        });
    }
    let size = requested(request).or(copied);
    if let Some(size) = size.filter(|size| Some(*size) != request.size) {
        spec["resources"]["requests"]["storage"] = json!(Amount::of(size).to_binary());
    }
    let mut notes: BTreeMap<String, String> = whole.annotations().clone();
    notes.retain(|name, _| !NOT_COPIED.contains(&name.as_str()));
    notes.insert(
        annotations::CDI_CONTENT_TYPE.to_owned(),
        "kubevirt".to_owned(),
    );
    if request.source == Source::Upload {
        notes.insert(annotations::CDI_UPLOAD_TARGET.to_owned(), String::new());
    }
    if let Some(named) = named {
        notes.insert(
            annotations::COPIED_FROM.to_owned(),
            named::record(named, whole),
        );
    }
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": whole.name_any(),
            "namespace": whole.namespace(),
            "labels": whole.labels(),
            "annotations": notes,
            "ownerReferences": [owner(whole)],
        },
        "spec": spec,
    })
}

/// Has the storage make the claim from another one of the namespace.
pub(super) fn clone_by_storage(body: &mut Value, source: &Claim) {
    body["spec"]["dataSource"] = json!({
        "kind": "PersistentVolumeClaim",
        "name": source.name_any(),
    });
}

/// The size of the claim that the data volume asks for, in bytes.
pub(super) fn requested(request: &Request) -> Option<u64> {
    match &request.form {
        Form::Storage(storage) if storage.volume_mode.as_deref() != Some("Block") => {
            request.size.map(with_overhead)
        }
        _ => request.size,
    }
}

pub(super) fn owner(whole: &DataVolume) -> Value {
    json!({
        "apiVersion": DataVolume::API_VERSION,
        "kind": DataVolume::KIND,
        "name": whole.name_any(),
        "uid": whole.metadata.uid,
        "controller": true,
        "blockOwnerDeletion": true,
    })
}

/// The size of the disk on the claim, which is a file system; `None` while its size is unknown.
pub(super) fn disk_bytes(request: &Request, claim: &Claim) -> Option<u64> {
    match (&request.form, request.size) {
        (Form::Storage(_), Some(size)) => Some(size - size % SECTOR),
        _ => usable_bytes(claim),
    }
}

/// The size of the largest disk on the claim, which is a file system.
pub(crate) fn usable_bytes(claim: &Claim) -> Option<u64> {
    capacity(claim).map(without_overhead)
}

/// What the claim offers, or else what it requests.
pub(crate) fn capacity(claim: &Claim) -> Option<u64> {
    let info = &claim.facts.info;
    let found = info.capacity.get("storage");
    let found = found.or_else(|| info.requests.get("storage"))?;
    Amount::parse(found).ok().map(Amount::units)
}

pub(crate) fn is_block(claim: &Claim) -> bool {
    claim.facts.mode() == ClaimMode::Block
}

/// The size of a claim whose file system has room for the disk.
pub(crate) fn with_overhead(disk: u64) -> u64 {
    let all = u128::from(disk) * 1000 / u128::from(1000 - OVERHEAD) + 1;
    let all = u64::try_from(all).unwrap_or(u64::MAX - MIB);
    all.div_ceil(MIB).saturating_mul(MIB)
}

fn without_overhead(all: u64) -> u64 {
    let disk = u128::from(all) * u128::from(1000 - OVERHEAD) / 1000;
    let disk = u64::try_from(disk).unwrap_or(all);
    disk - disk % SECTOR
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disk_of_the_requested_size_fits_its_claim() {
        for disk in [1, SECTOR, MIB, 10 * MIB, (1 << 30) + SECTOR, 1 << 40] {
            let claim = with_overhead(disk);
            assert_eq!(claim % MIB, 0);
            assert!(without_overhead(claim) + SECTOR > disk, "{disk} {claim}");
            assert!(claim <= disk + disk / 17 + 2 * MIB, "{disk} {claim}");
        }
        assert_eq!(with_overhead(u64::MAX) % MIB, 0);
    }
}
