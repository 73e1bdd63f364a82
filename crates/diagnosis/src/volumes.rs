//! What a guest's disks are made of.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::PersistentVolumeClaim, apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kubevirt_api::data_volume_status::{DataVolume, DataVolumePhase};

use crate::{Finding, Observed};

const WAIT_FOR_CONSUMER: &[&str] = &["WaitForFirstConsumer"];
const PROVISIONING: &[&str] = &[
    "ProvisioningFailed",
    "ExternalProvisioning",
    "FailedBinding",
];

pub(crate) fn claim_missing(seen: &Observed) -> Vec<Finding> {
    let (names, object) = seen.references();
    missing(&names.claims, |name| {
        seen.claims.get(name).is_some_and(Option::is_none)
    })
    .map(|(name, at)| {
        let sentence = format!("The persistent volume claim {name:?} does not exist.");
        Finding::new(sentence)
            .seen(&object, at, name)
            .seen(format!("pvc/{name}"), "", "not found")
            .next(seen.kubectl("get pvc"))
    })
    .collect()
}

pub(crate) fn claim_lost(seen: &Observed) -> Vec<Finding> {
    claims_in(seen, "Lost")
        .map(|(name, claim)| {
            let volume = claim
                .spec
                .as_ref()
                .and_then(|spec| spec.volume_name.as_deref());
            let volume = volume.unwrap_or_default();
            let sentence = format!(
                "The claim {name:?} has lost its volume {volume:?}; its data is gone with it."
            );
            Finding::new(sentence)
                .seen(format!("pvc/{name}"), "status.phase", "Lost")
                .next(seen.kubectl(&format!("describe pvc {name}")))
        })
        .collect()
}

pub(crate) fn storage_class_missing(seen: &Observed) -> Vec<Finding> {
    claims_in(seen, "Pending")
        .filter_map(|(name, claim)| {
            let class = class_of(claim)?;
            seen.storage_classes
                .get(class)
                .filter(|found| found.is_none())?;
            let sentence = format!(
                "The claim {name:?} names the storage class {class:?}, which is not there."
            );
            let finding = Finding::new(sentence)
                .seen(format!("pvc/{name}"), "spec.storageClassName", class)
                .seen(format!("storageclass/{class}"), "", "not found");
            Some(finding.next("kubectl get storageclass"))
        })
        .collect()
}

pub(crate) fn claim_waits(seen: &Observed) -> Vec<Finding> {
    // As soon as the pod has a node, the claim should be bound.
    if seen.node_name().is_some() {
        return Vec::new();
    }
    claims_in(seen, "Pending")
        .filter(|(name, _)| waits_for_consumer(seen, name))
        .map(|(name, _)| {
            let sentence =
                format!("The claim {name:?} is bound when the guest's pod is given a node.");
            Finding::new(sentence)
                .seen(format!("pvc/{name}"), "status.phase", "Pending")
                .next(seen.kubectl(&format!("describe pvc {name}")))
        })
        .collect()
}

pub(crate) fn claim_pending(seen: &Observed) -> Vec<Finding> {
    claims_in(seen, "Pending")
        .filter(|(name, claim)| {
            let has_class = class_of(claim)
                .is_none_or(|class| seen.storage_classes.get(class).is_none_or(Option::is_some));
            let waits = waits_for_consumer(seen, name) && seen.node_name().is_none();
            has_class && !waits
        })
        .map(|(name, _)| {
            let finding = Finding::new(format!("The claim {name:?} is not bound to a volume."))
                .seen(format!("pvc/{name}"), "status.phase", "Pending");
            let event = seen.event("PersistentVolumeClaim", name, PROVISIONING);
            let finding = match event {
                Some(event) => finding.seen(
                    format!("event of {name}"),
                    event.reason.as_deref().unwrap_or_default(),
                    event.message.as_deref().unwrap_or_default(),
                ),
                None => finding,
            };
            finding.next(seen.kubectl(&format!("describe pvc {name}")))
        })
        .collect()
}

pub(crate) fn data_volume_missing(seen: &Observed) -> Vec<Finding> {
    let (names, object) = seen.references();
    let templates = seen.vm.iter().flat_map(|vm| &vm.spec.data_volume_templates);
    let made: Vec<&str> = templates
        .filter_map(|template| template.metadata.as_ref()?.name.as_deref())
        .collect();
    missing(&names.data_volumes, |name| {
        let is_gone = seen.data_volumes.get(name).is_some_and(Option::is_none);
        let has_claim = seen.claims.get(name).is_some_and(Option::is_some);
        is_gone && !has_claim && !made.contains(&name)
    })
    .map(|(name, at)| {
        let sentence = format!("Neither a data volume nor a claim {name:?} exists.");
        Finding::new(sentence)
            .seen(&object, at, name)
            .seen(format!("datavolume/{name}"), "", "not found")
            .next(seen.kubectl("get datavolume,pvc"))
    })
    .collect()
}

pub(crate) fn data_volume_failed(seen: &Observed) -> Vec<Finding> {
    data_volumes(seen)
        .filter_map(|(name, volume)| {
            let status = volume.status.as_ref()?;
            let is_failed = status.phase == Some(DataVolumePhase::Failed);
            let trouble = status.conditions.iter().find(|condition| {
                condition.status == "False"
                    && matches!(
                        condition.reason.as_deref(),
                        Some("Error" | "ImagePullFailed" | "ErrExceededQuota")
                    )
            });
            if !is_failed && trouble.is_none() {
                return None;
            }
            let message = trouble
                .and_then(|one| one.message.as_deref())
                .unwrap_or("Failed");
            let sentence = format!("The data volume {name:?} cannot be filled: {message}.");
            let finding =
                Finding::new(sentence).seen(format!("datavolume/{name}"), "status", message);
            Some(finding.next(seen.kubectl(&format!("describe datavolume {name}"))))
        })
        .collect()
}

pub(crate) fn data_volume_importing(seen: &Observed) -> Vec<Finding> {
    data_volumes(seen)
        .filter_map(|(name, volume)| {
            let status = volume.status.as_ref()?;
            let phase = status.phase.as_ref().filter(|phase| {
                !matches!(
                    phase,
                    DataVolumePhase::Succeeded
                        | DataVolumePhase::Failed
                        | DataVolumePhase::PendingPopulation
                )
            })?;
            let progress = status.progress.as_deref().unwrap_or("N/A");
            let sentence = format!(
                "The data volume {name:?} is being filled ({}, {progress}); the guest starts then.",
                phase.as_str()
            );
            let finding = Finding::new(sentence)
                .seen(format!("datavolume/{name}"), "status.phase", phase.as_str())
                .seen(format!("datavolume/{name}"), "status.progress", progress);
            Some(finding.next(seen.kubectl(&format!("get datavolume {name} --watch"))))
        })
        .collect()
}

pub(crate) fn secret_missing(seen: &Observed) -> Vec<Finding> {
    let (names, object) = seen.references();
    named(seen, "secret", (&names.secrets, &seen.secrets), &object)
}

pub(crate) fn config_map_missing(seen: &Observed) -> Vec<Finding> {
    let (names, object) = seen.references();
    named(
        seen,
        "configmap",
        (&names.config_maps, &seen.config_maps),
        &object,
    )
}

pub(crate) fn service_account_missing(seen: &Observed) -> Vec<Finding> {
    let (names, object) = seen.references();
    named(
        seen,
        "serviceaccount",
        (&names.service_accounts, &seen.service_accounts),
        &object,
    )
}

fn named(
    seen: &Observed,
    kind: &str,
    (names, found): (
        &BTreeMap<String, String>,
        &BTreeMap<String, Option<ObjectMeta>>,
    ),
    object: &str,
) -> Vec<Finding> {
    missing(names, |name| found.get(name).is_some_and(Option::is_none))
        .map(|(name, at)| {
            Finding::new(format!("The {kind} {name:?} does not exist."))
                .seen(object, at, name)
                .seen(format!("{kind}/{name}"), "", "not found")
                .next(seen.kubectl(&format!("get {kind}")))
        })
        .collect()
}

fn missing(
    names: &BTreeMap<String, String>,
    is_missing: impl Fn(&str) -> bool,
) -> impl Iterator<Item = (&str, &str)> {
    let pairs = names.iter().map(|(name, at)| (name.as_str(), at.as_str()));
    pairs.filter(move |(name, _)| is_missing(name))
}

fn claims_in<'a>(
    seen: &'a Observed,
    phase: &'static str,
) -> impl Iterator<Item = (&'a str, &'a PersistentVolumeClaim)> {
    seen.claims.iter().filter_map(move |(name, claim)| {
        let claim = claim.as_ref()?;
        let own = claim
            .status
            .as_ref()
            .and_then(|status| status.phase.as_deref());
        (own.unwrap_or("Pending") == phase).then_some((name.as_str(), claim))
    })
}

fn class_of(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim
        .spec
        .as_ref()?
        .storage_class_name
        .as_deref()
        .filter(|name| !name.is_empty())
}

fn waits_for_consumer(seen: &Observed, name: &str) -> bool {
    seen.event("PersistentVolumeClaim", name, WAIT_FOR_CONSUMER)
        .is_some()
}

fn data_volumes(seen: &Observed) -> impl Iterator<Item = (&str, &DataVolume)> {
    seen.data_volumes
        .iter()
        .filter_map(|(name, volume)| Some((name.as_str(), volume.as_ref()?)))
}
