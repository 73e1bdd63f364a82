//! Claims, data volumes and other objects that a guest's volumes name.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::PersistentVolumeClaim, apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kubevirt_api::data_volume_status::{DataVolume, DataVolumePhase};
use reasons::Reason;

use crate::{Finding, Observed, images, observed::name_of};

const WAIT_FOR_CONSUMER: &[Reason] = &[Reason::WaitForFirstConsumer];
pub(crate) const PROVISIONING: &[Reason] = &[
    Reason::ProvisioningFailed,
    Reason::ExternalProvisioning,
    Reason::FailedBinding,
];

/// Reasons of a data volume's condition `Running` that mean failure.
const FAILURES: &[Reason] = &[
    Reason::Error,
    Reason::ImagePullFailed,
    Reason::ErrExceededQuota,
    Reason::ClaimNotUsable,
    Reason::ImportNotSupported,
    Reason::DataSourceNotReady,
    Reason::SourceNotPermitted,
    Reason::SourceSnapshotNotAvailable,
    Reason::ImportSourceNotUsable,
    Reason::ImportSourceNotFound,
    Reason::ImportSourceRefused,
    Reason::ImportSourceUnreachable,
    Reason::ImportChecksumMismatch,
    Reason::ImportFailed,
    Reason::DiskImageInvalid,
    Reason::DiskImageForbidden,
    Reason::DiskDoesNotFit,
    Reason::UploadRefused,
];

/// Reasons of a volume that a running guest should get.
pub(crate) const NOT_ATTACHED: &[Reason] = &[
    Reason::FailedPvcNotFound,
    Reason::VolumeModeNotSupported,
    Reason::VolumeNotMounted,
    Reason::VolumeNotAttached,
    Reason::VolumeInUse,
    Reason::AttachmentPodFailed,
];
/// Reasons of a volume that should leave a running guest.
pub(crate) const NOT_RELEASED: &[Reason] = &[Reason::VolumeNotReleased, Reason::VolumeNotUnmounted];

pub(crate) fn not_attached(observed: &Observed) -> Vec<Finding> {
    let mut reasons = NOT_ATTACHED.to_vec();
    if is_needed(observed) {
        // The start of the guest waits for the claim: another cause.
        reasons.retain(|reason| *reason != Reason::FailedPvcNotFound);
    }
    plugged(
        observed,
        &reasons,
        "cannot be attached to the running guest",
    )
}

pub(crate) fn not_released(observed: &Observed) -> Vec<Finding> {
    plugged(observed, NOT_RELEASED, "does not leave the running guest")
}

/// Hot-plugged volumes whose status has one of these reasons.
fn plugged(observed: &Observed, reasons: &[Reason], what: &str) -> Vec<Finding> {
    let Some(vmi) = observed.own_vmi() else {
        return Vec::new();
    };
    let all = vmi.status.iter().flat_map(|status| &status.volume_status);
    let found = all.enumerate().filter_map(|(at, volume)| {
        let written = volume.reason.as_deref()?;
        let reason = reasons.iter().find(|reason| reason.as_str() == written)?;
        volume.hotplug_volume.as_ref()?;
        let message = volume.message.as_deref().unwrap_or_default();
        let message = reasons::without_advice(written, message);
        let name = &volume.name;
        let finding = Finding::new(format!("The volume {name:?} {what}: {message}."))
            .because(*reason)
            .evidence(
                observed.vmi_object(),
                format!("status.volumeStatus[{at}].reason"),
                written,
            )
            .next(observed.kubectl(&format!("describe vmi {}", observed.name)));
        Some(finding)
    });
    found.collect()
}

/// Whether a start needs the objects of the spec: a VM that is off does not, and a guest that runs does
/// not need them any more.
fn is_needed(observed: &Observed) -> bool {
    !observed.is_as_requested()
}

pub(crate) fn claim_missing(observed: &Observed) -> Vec<Finding> {
    if !is_needed(observed) {
        return Vec::new();
    }
    let (names, object) = observed.references();
    missing(&names.claims, |name| {
        observed.claims.get(name).is_some_and(Option::is_none)
    })
    .map(|(name, at)| {
        let sentence = format!("The persistent volume claim {name:?} does not exist.");
        Finding::new(sentence)
            .because(Reason::FailedPvcNotFound)
            .evidence(&object, at, name)
            .evidence(format!("pvc/{name}"), "", "not found")
            .next(observed.kubectl("get pvc"))
    })
    .collect()
}

pub(crate) fn claim_lost(observed: &Observed) -> Vec<Finding> {
    claims_in(observed, "Lost")
        .map(|(name, claim)| {
            let volume = claim
                .spec
                .as_ref()
                .and_then(|spec| spec.volume_name.as_deref());
            let volume = volume.unwrap_or_default();
            let sentence =
                format!("The claim {name:?} has lost its volume {volume:?}, and its data with it.");
            Finding::new(sentence)
                .because(Reason::ClaimLost)
                .evidence(format!("pvc/{name}"), "status.phase", "Lost")
                .next(observed.kubectl(&format!("describe pvc {name}")))
        })
        .collect()
}

pub(crate) fn over_capacity(observed: &Observed) -> Vec<Finding> {
    claims_in(observed, "Bound")
        .filter_map(|(name, _)| {
            let reason = Reason::ClaimOverCapacity;
            let event = observed.event("PersistentVolumeClaim", name, &[reason])?;
            let message = event.message.as_deref().unwrap_or_default();
            let sentence = format!(
                "The volume of the claim {name:?} is full, or holds more than its capacity."
            );
            let finding = Finding::new(sentence).because(reason).evidence(
                format!("event of {name}"),
                reason.as_str(),
                message,
            );
            Some(finding.next(observed.kubectl(&format!("describe pvc {name}"))))
        })
        .collect()
}

pub(crate) fn storage_class_missing(observed: &Observed) -> Vec<Finding> {
    claims_in(observed, "Pending")
        .filter_map(|(name, claim)| {
            let class = class_of(claim)?;
            observed
                .storage_classes
                .get(class)
                .filter(|found| found.is_none())?;
            let sentence = format!(
                "The claim {name:?} names the storage class {class:?}, which does not exist."
            );
            let finding = Finding::new(sentence)
                .because(Reason::ProvisioningFailed)
                .evidence(format!("pvc/{name}"), "spec.storageClassName", class)
                .evidence(format!("storageclass/{class}"), "", "not found");
            Some(finding.next("kubectl get storageclass"))
        })
        .collect()
}

pub(crate) fn claim_waits(observed: &Observed) -> Vec<Finding> {
    // Once the pod has a node, the claim should be bound.
    if observed.node_name().is_some() {
        return Vec::new();
    }
    claims_in(observed, "Pending")
        .filter(|(name, _)| waits_for_consumer(observed, name))
        .map(|(name, _)| {
            let sentence = format!("The claim {name:?} is bound once the guest's pod has a node.");
            Finding::new(sentence)
                .because(Reason::WaitForFirstConsumer)
                .evidence(format!("pvc/{name}"), "status.phase", "Pending")
                .next(observed.kubectl(&format!("describe pvc {name}")))
        })
        .collect()
}

pub(crate) fn claim_pending(observed: &Observed) -> Vec<Finding> {
    claims_in(observed, "Pending")
        .filter(|(name, claim)| {
            let has_class = class_of(claim).is_none_or(|class| {
                observed
                    .storage_classes
                    .get(class)
                    .is_none_or(Option::is_some)
            });
            let waits = waits_for_consumer(observed, name) && observed.node_name().is_none();
            has_class && !waits
        })
        .map(|(name, _)| {
            let finding = Finding::new(format!("The claim {name:?} is not bound to a volume."))
                .evidence(format!("pvc/{name}"), "status.phase", "Pending");
            let event = observed.event("PersistentVolumeClaim", name, PROVISIONING);
            let finding = match event {
                Some(event) => {
                    let reason = event.reason.as_deref().unwrap_or_default();
                    let message = event.message.as_deref().unwrap_or_default();
                    finding
                        .reason(reason)
                        .evidence(format!("event of {name}"), reason, message)
                }
                None => finding,
            };
            finding.next(observed.kubectl(&format!("describe pvc {name}")))
        })
        .collect()
}

pub(crate) fn data_volume_missing(observed: &Observed) -> Vec<Finding> {
    if !is_needed(observed) {
        return Vec::new();
    }
    let (names, object) = observed.references();
    let templates = observed
        .vm
        .iter()
        .flat_map(|vm| &vm.spec.data_volume_templates);
    let templated: Vec<&str> = templates
        .filter_map(|template| template.metadata.as_ref()?.name.as_deref())
        .collect();
    missing(&names.data_volumes, |name| {
        let is_missing = observed.data_volumes.get(name).is_some_and(Option::is_none);
        let has_claim = observed.claims.get(name).is_some_and(Option::is_some);
        is_missing && !has_claim && !templated.contains(&name)
    })
    .map(|(name, at)| {
        let sentence = format!("Neither a data volume nor a claim {name:?} exists.");
        Finding::new(sentence)
            .because(Reason::FailedPvcNotFound)
            .evidence(&object, at, name)
            .evidence(format!("datavolume/{name}"), "", "not found")
            .next(observed.kubectl("get pvc"))
    })
    .collect()
}

pub(crate) fn data_volume_failed(observed: &Observed) -> Vec<Finding> {
    data_volumes(observed)
        .filter_map(|(name, volume)| {
            let status = volume.status.as_ref()?;
            let is_failed = status.phase == Some(DataVolumePhase::Failed);
            let problem = status.conditions.iter().find(|condition| {
                condition.status == "False"
                    && FAILURES.iter().any(|known| {
                        condition
                            .reason
                            .as_deref()
                            .is_some_and(|reason| *known == *reason)
                    })
            });
            if !is_failed && problem.is_none() {
                return None;
            }
            let message = problem
                .and_then(|one| one.message.as_deref())
                .unwrap_or("Failed");
            let sentence = format!("The data volume {name:?} cannot be populated: {message}.");
            let finding = Finding::new(sentence)
                .because(Reason::FailedDataVolumeImport)
                .evidence(format!("datavolume/{name}"), "status", message);
            Some(finding.next(observed.kubectl(&format!("describe datavolume {name}"))))
        })
        .collect()
}

pub(crate) fn data_volume_importing(observed: &Observed) -> Vec<Finding> {
    data_volumes(observed)
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
                "The data volume {name:?} is being populated ({}, {progress}); the guest starts afterwards.",
                phase.as_str()
            );
            let finding = Finding::new(sentence)
                .because(Reason::NotAllDVsReady)
                .evidence(format!("datavolume/{name}"), "status.phase", phase.as_str())
                .evidence(format!("datavolume/{name}"), "status.progress", progress);
            Some(finding.next(observed.kubectl(&format!("get datavolume {name} --watch"))))
        })
        .collect()
}

pub(crate) fn secret_missing(observed: &Observed) -> Vec<Finding> {
    let (mut names, object) = observed.references();
    // A public image is pulled without its secret.
    if images::is_waiting(observed) {
        names.secrets.append(&mut names.pull_secrets);
    }
    let wanted = Wanted {
        kind: "secret",
        names: &names.secrets,
        found: &observed.secrets,
    };
    wanted.missing(observed, &object)
}

pub(crate) fn config_map_missing(observed: &Observed) -> Vec<Finding> {
    let (names, object) = observed.references();
    let wanted = Wanted {
        kind: "configmap",
        names: &names.config_maps,
        found: &observed.config_maps,
    };
    wanted.missing(observed, &object)
}

pub(crate) fn service_account_missing(observed: &Observed) -> Vec<Finding> {
    let (names, object) = observed.references();
    let wanted = Wanted {
        kind: "serviceaccount",
        names: &names.service_accounts,
        found: &observed.service_accounts,
    };
    wanted.missing(observed, &object)
}

/// Objects of one kind that the spec names.
struct Wanted<'a> {
    kind: &'a str,
    /// Names and the fields that name them.
    names: &'a BTreeMap<String, String>,
    found: &'a BTreeMap<String, Option<ObjectMeta>>,
}

impl Wanted<'_> {
    fn missing(&self, observed: &Observed, object: &str) -> Vec<Finding> {
        if !is_needed(observed) {
            return Vec::new();
        }
        let kind = self.kind;
        let found =
            self.names.iter().filter_map(|(name, at)| {
                let finding = Finding::new(format!("The {kind} {name:?} does not exist."))
                    .evidence(object, at.as_str(), name.as_str());
                let finding = match self.found.get(name) {
                    Some(Some(_)) => return None,
                    Some(None) => finding.evidence(format!("{kind}/{name}"), "", "not found"),
                    None => {
                        let (event, message) = self.reported(observed, name)?;
                        finding.evidence(event, Reason::FailedMount.as_str(), message)
                    }
                };
                Some(finding.next(observed.kubectl(&format!("get {kind}"))))
            });
        found.collect()
    }

    /// The node's report that an object does not exist, which a user may read without the right to read
    /// the object.
    fn reported<'a>(&self, observed: &'a Observed, name: &str) -> Option<(String, &'a str)> {
        let pod = name_of(&observed.pod()?.metadata);
        let text = format!("{} {name:?} not found", self.kind);
        let event = observed.event_with("Pod", pod, &[Reason::FailedMount], |message| {
            message.contains(&text)
        })?;
        let message = event.message.as_deref().unwrap_or_default();
        Some((format!("event of {pod}"), message))
    }
}

fn missing(
    names: &BTreeMap<String, String>,
    is_missing: impl Fn(&str) -> bool,
) -> impl Iterator<Item = (&str, &str)> {
    let pairs = names.iter().map(|(name, at)| (name.as_str(), at.as_str()));
    pairs.filter(move |(name, _)| is_missing(name))
}

fn claims_in<'a>(
    observed: &'a Observed,
    phase: &'static str,
) -> impl Iterator<Item = (&'a str, &'a PersistentVolumeClaim)> {
    observed.claims.iter().filter_map(move |(name, claim)| {
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

fn waits_for_consumer(observed: &Observed, name: &str) -> bool {
    observed
        .event("PersistentVolumeClaim", name, WAIT_FOR_CONSUMER)
        .is_some()
}

fn data_volumes(observed: &Observed) -> impl Iterator<Item = (&str, &DataVolume)> {
    observed
        .data_volumes
        .iter()
        .filter_map(|(name, volume)| Some((name.as_str(), volume.as_ref()?)))
}
