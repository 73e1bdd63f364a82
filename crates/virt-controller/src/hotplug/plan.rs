//! Pure planning: maps the observed state to the steps of one reconcile.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;
use kubevirt_api::vmi_status::{
    DomainMemoryDumpInfo, HotplugVolumeStatus, PersistentVolumeClaimInfo,
    VirtualMachineInstancePhase as GuestPhase, VolumePhase as Phase, VolumeStatus,
};
use launcher_pod::attachment_pod_name;
use reasons::Reason;

use super::observe::{Observed, Storage};
use super::view::{AttachmentPod, State};
use crate::view::{Guest, Plug, Purpose};

/// The shortest time between two pods for the same set: a node may refuse each of them at once.
const SHORTEST_LIFE: SignedDuration = SignedDuration::from_secs(10);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// A pod that mounts these claims, by volume.
    Create(BTreeMap<String, String>),
    /// The attachment pod of that name.
    Delete(String),
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
    /// All of `status.volumeStatus`.
    pub(super) volumes: Vec<VolumeStatus>,
    pub(super) requeue_in: Option<Duration>,
}

pub(super) fn plan(observed: &Observed) -> Plan {
    let vmi = observed.vmi.as_ref();
    let mut plan = Plan {
        volumes: vmi.status.volumes.clone(),
        ..Plan::default()
    };
    if vmi.is_final() || vmi.is_deleting() {
        // The guest has ended, or is about to: its pod takes the others with it.
        if vmi.is_final() {
            plan.steps = observed.attachments.iter().filter_map(delete).collect();
        }
        return plan;
    }
    let (GuestPhase::Running, Some(launcher)) = (vmi.phase(), &observed.launcher) else {
        return plan;
    };
    // The new pod has the volumes of the hand-over.
    if model::is_under_way(&vmi.identity()) {
        return plan;
    }
    plan.volumes = follow_spec(observed, launcher.takes_volumes);
    let claims = claims(&plan.volumes);
    let launcher_uid = launcher.uid().unwrap_or_default();
    let name = attachment_pod_name(&launcher_uid, &claims);
    let (current, others): (Vec<_>, Vec<_>) = observed
        .attachments
        .iter()
        .partition(|pod| !claims.is_empty() && pod.name_any() == name);
    let is_replaced = if claims.is_empty() {
        true
    } else {
        plan_current(
            &mut plan,
            current.first().copied().map(AsRef::as_ref),
            &claims,
            observed.now,
        )
    };
    if is_replaced {
        plan.steps
            .extend(others.iter().filter_map(|pod| delete(pod)));
        if others.is_empty() {
            // No pod has them any more.
            plan.volumes.retain(|volume| !is_gone(volume));
        }
    }
    plan
}

/// Plans the pod for the present set of volumes; returns whether it has replaced all others.
fn plan_current(
    plan: &mut Plan,
    current: Option<&AttachmentPod>,
    claims: &BTreeMap<String, String>,
    now: Timestamp,
) -> bool {
    let Some(pod) = current else {
        plan.steps.push(Step::Create(claims.clone()));
        return false;
    };
    if pod.metadata.deletion_timestamp.is_some() {
        return false;
    }
    if pod.claims != *claims {
        let name = pod.name_any();
        let message =
            format!("pod {name} has the name of the attachment pod and mounts other claims");
        explain(
            &mut plan.volumes,
            claims,
            Reason::AttachmentPodFailed,
            &message,
        );
        return false;
    }
    match &pod.state {
        State::Ended => {
            replace_ended(plan, pod, claims, now);
            false
        }
        State::Starting(message) if message.is_empty() => false,
        State::Starting(message) => {
            let message = format!("pod {}: {message}", pod.name_any());
            explain(&mut plan.volumes, claims, Reason::VolumePending, &message);
            false
        }
        State::Ready => {
            for volume in &mut plan.volumes {
                if claims.contains_key(&volume.name) {
                    publish(volume, pod);
                }
            }
            true
        }
    }
}

fn replace_ended(
    plan: &mut Plan,
    pod: &AttachmentPod,
    claims: &BTreeMap<String, String>,
    now: Timestamp,
) {
    let name = pod.name_any();
    let message = format!("pod {name} has ended: {}", pod.message);
    let message = message.trim_end_matches([':', ' ']);
    explain(
        &mut plan.volumes,
        claims,
        Reason::AttachmentPodFailed,
        message,
    );
    let created = pod.metadata.creation_timestamp.as_ref();
    let due = created.map_or(now, |created| created.0 + SHORTEST_LIFE);
    if due <= now {
        plan.steps.push(Step::Delete(name));
    } else {
        plan.requeue_in = Some(now.duration_until(due).unsigned_abs());
    }
}

/// A volume is in the pod.
fn publish(volume: &mut VolumeStatus, pod: &AttachmentPod) {
    let name = pod.name_any();
    volume.hotplug_volume = Some(HotplugVolumeStatus {
        attach_pod_name: Some(name.clone()),
        attach_pod_uid: pod.uid(),
    });
    if volume.phase == Some(Phase::Bound) {
        let volume_name = &volume.name;
        let message = format!("Created hotplug attachment pod {name}, for volume {volume_name}");
        set(
            volume,
            Phase::AttachedToNode,
            Reason::VolumeAttachedToNode,
            message,
        );
    }
}

/// Why volumes do not get into the pod.
pub(super) fn explain(
    volumes: &mut [VolumeStatus],
    claims: &BTreeMap<String, String>,
    reason: Reason,
    message: &str,
) {
    let waiting = volumes.iter_mut();
    let is_waiting = |volume: &&mut VolumeStatus| {
        claims.contains_key(&volume.name)
            && matches!(volume.phase, Some(Phase::Bound | Phase::Pending))
    };
    for volume in waiting.filter(is_waiting) {
        volume.reason = Some(reason.as_str().to_owned());
        volume.message = Some(reason.advise(message));
    }
}

/// The status of all volumes, as far as it follows from the spec and the claims.
fn follow_spec(observed: &Observed, takes_volumes: bool) -> Vec<VolumeStatus> {
    let vmi = observed.vmi.as_ref();
    let mut all = Vec::new();
    for known in &vmi.status.volumes {
        if known.hotplug_volume.is_none() {
            all.push(known.clone());
            continue;
        }
        let plug = vmi.plugs.iter().find(|plug| plug.volume == known.name);
        let plug = plug.filter(|plug| is_same_claim(known, plug));
        all.extend(follow(known, plug, observed));
    }
    for plug in &vmi.plugs {
        if all.iter().any(|volume| volume.name == plug.volume) {
            continue;
        }
        let mut new = VolumeStatus {
            name: plug.volume.clone(),
            hotplug_volume: Some(HotplugVolumeStatus::default()),
            memory_dump_volume: dump_of(plug),
            ..VolumeStatus::default()
        };
        if takes_volumes {
            await_claim(&mut new, plug, observed);
        } else {
            let message = "the pod of the guest was created without a place for volumes that come later: \
                           enable the feature gate DeclarativeHotplugVolumes, leave out disableHotplug, and \
                           restart the VM";
            set(&mut new, Phase::Pending, Reason::VolumePending, message);
        }
        all.push(new);
    }
    all
}

/// The next status of a hot-plugged volume; `None` if it was never in the guest's pod and has left the
/// spec. `plug` is the volume in the spec.
fn follow(known: &VolumeStatus, plug: Option<&Plug>, observed: &Observed) -> Option<VolumeStatus> {
    let mut next = known.clone();
    match (&known.phase, plug) {
        (None | Some(Phase::Pending | Phase::Bound), None) => return None,
        (None | Some(Phase::Pending | Phase::Bound), Some(plug)) => {
            await_claim(&mut next, plug, observed);
        }
        // It left the guest's pod and comes again.
        (Some(Phase::UnMountedFromPod), Some(plug)) => {
            next = VolumeStatus {
                name: known.name.clone(),
                hotplug_volume: Some(HotplugVolumeStatus::default()),
                memory_dump_volume: dump_of(plug),
                ..VolumeStatus::default()
            };
            await_claim(&mut next, plug, observed);
        }
        (Some(Phase::UnMountedFromPod | Phase::Detaching), _) | (Some(_), Some(_)) => {}
        (Some(_), None) => {
            let message = format!("Volume {} is leaving the guest", known.name);
            set(
                &mut next,
                Phase::Detaching,
                Reason::VolumeDetaching,
                message,
            );
        }
    }
    Some(next)
}

/// virt-handler fills it in when the dump begins.
fn dump_of(plug: &Plug) -> Option<DomainMemoryDumpInfo> {
    (plug.purpose == Purpose::MemoryDump).then(|| DomainMemoryDumpInfo {
        claim_name: Some(plug.claim.clone()),
        ..DomainMemoryDumpInfo::default()
    })
}

/// Pending until the claim is bound.
fn await_claim(volume: &mut VolumeStatus, plug: &Plug, observed: &Observed) {
    let claim = &plug.claim;
    let pending = |volume: &mut VolumeStatus, reason: Reason, message: String| {
        set(volume, Phase::Pending, reason, reason.advise(&message));
    };
    match observed.storage.get(&plug.volume) {
        None | Some(Storage::Missing) => {
            let name = &plug.volume;
            let message = format!("volume {name}: there is no persistentvolumeclaim {claim}");
            pending(volume, Reason::FailedPvcNotFound, message);
        }
        Some(Storage::NotFilled(message)) => {
            pending(volume, Reason::VolumePending, message.clone());
        }
        Some(Storage::BlockDevice) => {
            let message = format!("claim {claim} is a block device");
            pending(volume, Reason::VolumeModeNotSupported, message);
        }
        Some(Storage::NotBound(info)) => {
            volume.persistent_volume_claim_info = Some(info.clone());
            let is_explained = volume.phase == Some(Phase::Pending)
                && volume.reason.as_deref() == Some(Reason::VolumePending.as_str());
            if !is_explained {
                let message = format!("claim {claim} is not bound");
                pending(volume, Reason::VolumePending, message);
            }
        }
        Some(Storage::Bound(info)) => {
            volume.persistent_volume_claim_info = Some(info.clone());
            if volume.phase != Some(Phase::Bound) {
                let message = format!("PVC {claim} is in phase Bound");
                set(volume, Phase::Bound, Reason::VolumeBound, message);
            }
        }
    }
}

/// The claims that the attachment pod mounts: of volumes that may be in the guest's pod, and of those
/// that may get there.
fn claims(volumes: &[VolumeStatus]) -> BTreeMap<String, String> {
    let plugged = volumes
        .iter()
        .filter(|volume| volume.hotplug_volume.is_some() && !is_gone(volume));
    let claims = plugged.filter_map(|volume| {
        let info = volume.persistent_volume_claim_info.as_ref()?;
        let claim = info.claim_name.clone()?;
        let is_wanted = match volume.phase {
            Some(Phase::Pending) => waits_for_binding(volume),
            _ => true,
        };
        is_wanted.then(|| (volume.name.clone(), claim))
    });
    claims.collect()
}

/// The claims, by volume, that a pod needs to which the guest moves: of volumes that the guest may have, though their
/// status does not show that yet.
pub(crate) fn carried(volumes: &[VolumeStatus]) -> BTreeMap<String, String> {
    let plugged = volumes.iter().filter(|volume| may_be_attached(volume));
    let claims = plugged.filter_map(|volume| {
        let info = volume.persistent_volume_claim_info.as_ref()?;
        Some((volume.name.clone(), info.claim_name.clone()?))
    });
    claims.collect()
}

fn may_be_attached(volume: &VolumeStatus) -> bool {
    let phase = volume.phase.as_ref();
    let may_be = matches!(
        phase,
        Some(Phase::AttachedToNode | Phase::MountedToPod | Phase::Ready)
    );
    volume.hotplug_volume.is_some() && may_be
}

/// A volume that is leaving the guest, or is to: its mount may leave the guest's pod at any moment.
pub(crate) fn leaving(vmi: &Guest) -> Option<&str> {
    let mut volumes = vmi.status.volumes.iter();
    let leaves = |volume: &VolumeStatus| {
        let mut plugs = vmi.plugs.iter();
        let stays = plugs.any(|plug| plug.volume == volume.name && is_same_claim(volume, plug));
        let is_leaving = volume.phase == Some(Phase::Detaching);
        volume.hotplug_volume.is_some() && (is_leaving || may_be_attached(volume) && !stays)
    };
    let found = volumes.find(|volume| leaves(volume))?;
    Some(&found.name)
}

/// A volume into which the guest's memory is written, or is about to be: a job of the old pod, which does not move.
pub(crate) fn receiving_memory(volumes: &[VolumeStatus]) -> Option<&str> {
    let mut volumes = volumes.iter();
    let receives = |volume: &VolumeStatus| {
        let is_there = matches!(
            volume.phase,
            Some(
                Phase::AttachedToNode
                    | Phase::MountedToPod
                    | Phase::Ready
                    | Phase::MemoryDumpInProgress
            )
        );
        volume.memory_dump_volume.is_some() && is_there
    };
    let found = volumes.find(|volume| receives(volume))?;
    Some(&found.name)
}

/// A claim may be bound only once a pod uses it.
fn waits_for_binding(volume: &VolumeStatus) -> bool {
    volume.reason.as_deref() == Some(Reason::VolumePending.as_str())
        && volume.persistent_volume_claim_info.is_some()
}

fn is_gone(volume: &VolumeStatus) -> bool {
    volume.hotplug_volume.is_some() && volume.phase == Some(Phase::UnMountedFromPod)
}

fn is_same_claim(known: &VolumeStatus, plug: &Plug) -> bool {
    let info: Option<&PersistentVolumeClaimInfo> = known.persistent_volume_claim_info.as_ref();
    let claim = info.and_then(|info| info.claim_name.as_deref());
    claim.is_none_or(|claim| claim == plug.claim)
}

fn delete(pod: &std::sync::Arc<AttachmentPod>) -> Option<Step> {
    let is_live = pod.metadata.deletion_timestamp.is_none();
    is_live.then(|| Step::Delete(pod.name_any()))
}

fn set(volume: &mut VolumeStatus, phase: Phase, reason: Reason, message: impl Into<String>) {
    volume.phase = Some(phase);
    volume.reason = Some(reason.as_str().to_owned());
    volume.message = Some(message.into());
}
