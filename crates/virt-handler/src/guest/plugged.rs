//! Volumes that the guest gets and loses while it runs, and their part of the VMI's status: pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kubevirt_api::{
    VirtualMachineInstance,
    vmi_status::{VolumePhase as Phase, VolumeStatus},
};
use launcher_channel::{GuestState, HotDisk, HotDiskKind};
use model::{Guest, paths};
use parking_lot::Mutex;
use reasons::Reason;
use tokio::time::Instant;

use super::dumps;

/// Until a failed or unfinished change is attempted again.
pub(super) const RETRY: Duration = Duration::from_secs(3);
/// Until an attachment pod that has just started is looked at again.
pub(super) const SOON: Duration = Duration::from_millis(200);
/// How long storage may take to give a volume to the guest, or to release it.
pub(super) const STORAGE_TIMEOUT: Duration = Duration::from_secs(10);
/// An attachment pod that has not responded for longer probably will not soon.
pub(super) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(20);
/// A guest that has not released a disk for longer probably will not.
pub(super) const RELEASE_TIMEOUT: Duration = Duration::from_secs(20);

/// What happens with a volume on this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    Attached,
    /// The volume receives the guest's memory.
    Dumped,
    /// The volume receives a backup of the guest's disks.
    BackedUp,
    Detached,
    /// virt-controller has the next step.
    Nothing,
}

/// The results of the last changes, in this process alone: each pass looks again.
#[derive(Debug, Clone, Default)]
pub(crate) struct Plugged {
    pub(super) mounted: BTreeSet<String>,
    pub(super) unmounted: BTreeSet<String>,
    pub(super) failures: BTreeMap<String, Failure>,
    /// The volumes that threads of earlier passes still work on.
    pub(super) works: Works,
    /// Since when the attachment pod of each volume has not responded.
    pub(super) awaited: BTreeMap<String, Instant>,
    /// Since when each disk is to leave the guest.
    pub(super) leaving: BTreeMap<String, Instant>,
    /// The disks last requested, when, and over which connection.
    pub(super) requested: Option<(BTreeSet<String>, Instant, u64)>,
    pub(super) retry_in: Option<Duration>,
}

/// Volumes that a thread works on. It may hang with the storage, so each volume has one at most.
#[derive(Debug, Clone, Default)]
pub(super) struct Works(Arc<Mutex<BTreeSet<String>>>);

/// Held by the thread that works on a volume.
#[derive(Debug)]
pub(super) struct Work {
    all: Works,
    volume: String,
}

impl Works {
    /// `None` while another thread works on the volume.
    pub(super) fn begin(&self, volume: &str) -> Option<Work> {
        let is_first = self.0.lock().insert(volume.to_owned());
        is_first.then(|| Work {
            all: self.clone(),
            volume: volume.to_owned(),
        })
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.all.0.lock().remove(&self.volume);
    }
}

/// Why a volume could not be attached or detached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) reason: Reason,
    pub(super) message: String,
}

/// Whether anything of the guest is hot-plugged, or may be.
pub(super) fn is_concerned(vmi: &VirtualMachineInstance) -> bool {
    let status = vmi.status.as_ref();
    status.is_some_and(|status| {
        let mut all = status.volume_status.iter();
        all.any(|volume| volume.hotplug_volume.is_some())
    })
}

/// The volumes that come along with a guest that moves, since it may have disks on them. Those that have left the spec
/// since the hand-over leave the guest after its move.
pub(super) fn coming(vmi: &VirtualMachineInstance) -> BTreeMap<&str, Wanted> {
    let mut all = wanted(vmi);
    all.retain(|_, wanted| matches!(wanted, Wanted::Attached | Wanted::Detached));
    all
}

pub(super) fn wanted(vmi: &VirtualMachineInstance) -> BTreeMap<&str, Wanted> {
    let guest = Guest::of(vmi);
    let in_spec = |name: &str| {
        let mut volumes = guest.volumes.iter();
        let volume = volumes.find(|volume| volume.name == name && guest.is_hotplugged(volume));
        if model::is_backup_volume(vmi, name) {
            return Wanted::BackedUp;
        }
        match volume.map(|volume| volume.source.is_memory_dump()) {
            Some(true) => Wanted::Dumped,
            Some(false) => Wanted::Attached,
            None => Wanted::Detached,
        }
    };
    let all = vmi.status.iter().flat_map(|status| &status.volume_status);
    let plugged = all.filter(|volume| volume.hotplug_volume.is_some());
    plugged
        .map(|volume| {
            let wanted = match &volume.phase {
                Some(
                    Phase::AttachedToNode
                    | Phase::MountedToPod
                    | Phase::Ready
                    | Phase::MemoryDumpInProgress,
                ) => in_spec(&volume.name),
                // The dump has ended, and the volume has to leave the spec.
                Some(Phase::MemoryDumpCompleted | Phase::MemoryDumpFailed) => {
                    match in_spec(&volume.name) {
                        Wanted::Detached => Wanted::Detached,
                        _ => Wanted::Nothing,
                    }
                }
                Some(Phase::Detaching) => Wanted::Detached,
                _ => Wanted::Nothing,
            };
            (volume.name.as_str(), wanted)
        })
        .collect()
}

/// Keeps disks in the request that the guest has and is not to lose, though their volumes cannot be used
/// now: the launcher removes every disk that a request lacks.
pub(super) fn keep_attached(
    disks: &mut Vec<HotDisk>,
    wanted: &BTreeMap<&str, Wanted>,
    attached: &BTreeMap<String, String>,
) {
    for volume in attached.keys() {
        let stays = matches!(
            wanted.get(volume.as_str()),
            Some(Wanted::Attached | Wanted::Dumped | Wanted::BackedUp | Wanted::Nothing)
        );
        let is_usable = |disk: &HotDisk| disk.volume == *volume && disk.source.is_some();
        if !stays || disks.iter().any(is_usable) {
            continue;
        }
        // An empty drive would eject its medium.
        disks.retain(|disk| disk.volume != *volume);
        // The launcher neither attaches nor changes a disk of this kind that the guest has.
        disks.push(HotDisk {
            volume: volume.clone(),
            xml: String::new(),
            source: Some(format!(
                "{}/{}",
                paths::hotplugged(volume),
                paths::CLAIM_IMAGE
            )),
            kind: HotDiskKind::Disk,
            prepare: None,
        });
    }
}

/// The status of all volumes: those of the guest's start, then the hot-plugged ones.
pub(super) fn volume_status(
    vmi: &VirtualMachineInstance,
    at_start: &[VolumeStatus],
    plugged: &Plugged,
    state: &GuestState,
    now: &Time,
) -> Vec<VolumeStatus> {
    let attached = &state.disks;
    let mut all = at_start.to_vec();
    let wanted = wanted(vmi);
    let known = vmi.status.iter().flat_map(|status| &status.volume_status);
    for volume in known {
        if let Some(wanted) = wanted.get(volume.name.as_str()) {
            all.retain(|other| other.name != volume.name);
            all.push(match wanted {
                Wanted::Dumped => dumps::advance(vmi, volume, plugged, state, now),
                _ => advance(volume, *wanted, plugged, attached),
            });
        }
    }
    all
}

fn advance(
    volume: &VolumeStatus,
    wanted: Wanted,
    plugged: &Plugged,
    attached: &BTreeMap<String, String>,
) -> VolumeStatus {
    let name = &volume.name;
    let mut next = volume.clone();
    let (phase, reason, message) = match (wanted, attached.get(name)) {
        (Wanted::Nothing | Wanted::Dumped, _) => return next,
        (Wanted::Attached, Some(target)) => {
            next.target.clone_from(target);
            let message = format!("Successfully attach hotplugged volume {name} to VM");
            (Phase::Ready, Reason::VolumeReady, message)
        }
        (Wanted::Attached | Wanted::BackedUp, None) if plugged.mounted.contains(name) => {
            let message = format!("Volume {name} has been mounted in virt-launcher pod");
            (Phase::MountedToPod, Reason::VolumeMountedToPod, message)
        }
        (Wanted::Detached, None) if plugged.unmounted.contains(name) => {
            next.target.clear();
            let message = format!("Volume {name} has been unmounted from virt-launcher pod");
            let reason = Reason::VolumeUnMountedFromPod;
            (Phase::UnMountedFromPod, reason, message)
        }
        (Wanted::Attached | Wanted::BackedUp | Wanted::Detached, _) => {
            if let Some(failure) = plugged.failures.get(name) {
                next.reason = Some(failure.reason.as_str().to_owned());
                next.message = Some(failure.reason.advise(&failure.message));
            }
            return next;
        }
    };
    // A disk that is mounted and not attached yet shows why.
    let failure = plugged.failures.get(name);
    if let Some(failure) = failure.filter(|_| phase == Phase::MountedToPod) {
        next.reason = Some(failure.reason.as_str().to_owned());
        next.message = Some(failure.reason.advise(&failure.message));
    } else {
        next.reason = Some(reason.as_str().to_owned());
        next.message = Some(message);
    }
    next.phase = Some(phase);
    next
}

/// The reason of a refusal by the hypervisor.
pub(super) fn refused(message: &str) -> Failure {
    // Two guests on one node may mount the same claim; QEMU locks its image.
    let reason = if message.contains("lock") {
        Reason::VolumeInUse
    } else {
        Reason::VolumeNotAttached
    };
    Failure {
        reason,
        message: message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn vmi(volumes: &Value, status: &Value) -> VirtualMachineInstance {
        serde_json::from_value(json!({
            "spec": {"volumes": volumes, "domain": {"devices": {}}},
            "status": {"phase": "Running", "volumeStatus": status},
        }))
        .unwrap()
    }

    fn hot(name: &str) -> Value {
        json!({"name": name, "persistentVolumeClaim": {"claimName": name, "hotpluggable": true}})
    }

    fn entry(phase: &str) -> Value {
        json!({"name": "v", "target": "", "phase": phase, "hotplugVolume": {"attachPodName": "p"}})
    }

    #[test]
    fn phase_and_spec_decide_what_is_wanted() {
        for (phase, is_in_spec, expected) in [
            ("Pending", true, Wanted::Nothing),
            ("Bound", true, Wanted::Nothing),
            ("AttachedToNode", true, Wanted::Attached),
            ("MountedToPod", true, Wanted::Attached),
            ("Ready", true, Wanted::Attached),
            ("Ready", false, Wanted::Detached),
            // Removed and added again: the old disk goes first.
            ("Detaching", true, Wanted::Detached),
            ("Detaching", false, Wanted::Detached),
            ("UnMountedFromPod", false, Wanted::Nothing),
        ] {
            let volumes = if is_in_spec {
                json!([hot("v")])
            } else {
                json!([])
            };
            let vmi = vmi(&volumes, &json!([entry(phase)]));
            assert_eq!(wanted(&vmi)["v"], expected, "{phase} {is_in_spec}");
        }
        for (phase, comes) in [("Ready", true), ("Detaching", true), ("Bound", false)] {
            let vmi = vmi(&json!([hot("v")]), &json!([entry(phase)]));
            assert_eq!(coming(&vmi).contains_key("v"), comes, "{phase}");
        }
        let at_start = json!([{"name": "v", "target": "vda"}]);
        assert!(!is_concerned(&vmi(&json!([hot("v")]), &at_start)));
        assert!(is_concerned(&vmi(&json!([]), &json!([entry("Ready")]))));
    }

    #[test]
    fn volume_has_one_thread_at_most() {
        let works = Plugged::default().works;
        let work = works.begin("v");
        assert!(work.is_some() && works.clone().begin("v").is_none());
        assert!(works.begin("w").is_some());
        drop(work);
        assert!(works.begin("v").is_some());
    }

    #[test]
    fn attached_disk_stays_although_its_volume_cannot_be_used_now() {
        let disk = |volume: &str, source: Option<&str>| HotDisk {
            volume: volume.to_owned(),
            xml: "<disk/>".to_owned(),
            source: source.map(str::to_owned),
            kind: HotDiskKind::Medium,
            prepare: None,
        };
        let attached = BTreeMap::from([("v".to_owned(), "sda".to_owned())]);
        for (state, disks, expected) in [
            // It could be rendered.
            (
                Some(Wanted::Attached),
                vec![disk("v", Some("/v"))],
                vec![("v", false)],
            ),
            (
                Some(Wanted::Attached),
                vec![disk("w", Some("/w"))],
                vec![("w", false), ("v", true)],
            ),
            // Its drive would be emptied.
            (
                Some(Wanted::Attached),
                vec![disk("v", None)],
                vec![("v", true)],
            ),
            (Some(Wanted::Nothing), vec![], vec![("v", true)]),
            (Some(Wanted::Detached), vec![], vec![]),
            (
                Some(Wanted::Detached),
                vec![disk("v", None)],
                vec![("v", false)],
            ),
            (None, vec![], vec![]),
        ] {
            let wanted = state.map(|state| ("v", state)).into_iter().collect();
            let mut found = disks;
            keep_attached(&mut found, &wanted, &attached);
            let shown: Vec<(&str, bool)> = found
                .iter()
                .map(|disk| (disk.volume.as_str(), disk.xml.is_empty()))
                .collect();
            assert_eq!(shown, expected, "{state:?}");
            let kept = found.iter().filter(|disk| disk.xml.is_empty());
            for disk in kept {
                assert_eq!(disk.kind, HotDiskKind::Disk);
                assert!(disk.source.is_some());
            }
        }
    }

    #[test]
    fn status_follows_mount_and_guest() {
        let name = || "v".to_owned();
        let attached = || BTreeMap::from([(name(), "sda".to_owned())]);
        let mounted = || Plugged {
            mounted: [name()].into(),
            ..Plugged::default()
        };
        let unmounted = || Plugged {
            unmounted: [name()].into(),
            ..Plugged::default()
        };
        let failed = |mut plugged: Plugged| {
            plugged
                .failures
                .insert(name(), refused("Failed to get \"write\" lock"));
            plugged
        };
        let none = BTreeMap::new;
        for (before, plugged, attached, phase, reason) in [
            (
                "AttachedToNode",
                Plugged::default(),
                none(),
                "AttachedToNode",
                None,
            ),
            (
                "AttachedToNode",
                mounted(),
                none(),
                "MountedToPod",
                Some("VolumeMountedToPod"),
            ),
            (
                "MountedToPod",
                mounted(),
                attached(),
                "Ready",
                Some("VolumeReady"),
            ),
            (
                "MountedToPod",
                failed(mounted()),
                none(),
                "MountedToPod",
                Some("VolumeInUse"),
            ),
            (
                "AttachedToNode",
                failed(Plugged::default()),
                none(),
                "AttachedToNode",
                Some("VolumeInUse"),
            ),
            (
                "Detaching",
                Plugged::default(),
                attached(),
                "Detaching",
                None,
            ),
            // The guest has it until libvirt says otherwise.
            ("Detaching", unmounted(), attached(), "Detaching", None),
            (
                "Detaching",
                unmounted(),
                none(),
                "UnMountedFromPod",
                Some("VolumeUnMountedFromPod"),
            ),
            ("Bound", mounted(), attached(), "Bound", None),
        ] {
            let vmi = vmi(&json!([hot("v")]), &json!([entry(before)]));
            let root = VolumeStatus {
                name: "root".to_owned(),
                target: "vda".to_owned(),
                ..VolumeStatus::default()
            };
            let state = GuestState {
                disks: attached.clone(),
                ..GuestState::default()
            };
            let now = Time(jiff::Timestamp::UNIX_EPOCH);
            let all = volume_status(&vmi, &[root], &plugged, &state, &now);
            let case = format!("{before} {plugged:?} {attached:?}");
            assert_eq!(all[0].name, "root", "{case}");
            let found = &all[1];
            assert_eq!(
                found.phase.as_ref().map(Phase::as_str),
                Some(phase),
                "{case}"
            );
            assert_eq!(found.reason.as_deref(), reason, "{case}");
            assert!(found.hotplug_volume.is_some(), "{case}");
        }
    }
}
