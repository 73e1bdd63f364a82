//! Dumps of the guest's memory into a volume that the guest does not have.
//!
//! The name of the file is in the VMI's status before anything is written: after a restart of this process
//! the same dump goes on. The launcher has it made. To the volume for a saved state it writes the whole state,
//! and the guest ends.

use std::{io, sync::Arc};

use error_chain::error_chain;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kubevirt_api::{
    VirtualMachineInstance,
    vmi_status::{DomainMemoryDumpInfo, VolumePhase as Phase, VolumeStatus},
};
use launcher_channel::{
    DUMP_SUFFIX, DumpPlan, DumpReport, DumpStage, GuestState, Request, SAVED_SUFFIX,
};
use model::{Guest, SAVING_VOLUME, VolumeSource};
use reasons::Reason;
use tokio::time::timeout;

use super::{
    plug::{BringError, Pass, hangs, not_mounted},
    plugged::{self, Failure, Plugged},
};

/// The longest name of a file.
const MAX_NAME: usize = 255;

impl Pass<'_> {
    /// Brings the volume, and once the status names the file, has the launcher write it.
    pub(super) async fn dump(&self, volume: &str, next: &mut Plugged) -> Result<(), BringError> {
        if is_read_only(self.vmi, volume) {
            return Ok(());
        }
        self.mount(volume).await?;
        next.mounted.insert(volume.to_owned());
        let Some(file) = begun(self.vmi, volume) else {
            return Ok(());
        };
        let plan = DumpPlan {
            volume: volume.to_owned(),
            file: file.to_owned(),
        };
        // Without the launcher's state it is unknown whether the dump is made already.
        let Some(state) = &self.link.state else {
            next.retry_in.get_or_insert(plugged::RETRY);
            return Ok(());
        };
        match report_of(state, &plan).map(|report| &report.stage) {
            Some(DumpStage::Running | DumpStage::Done) => return Ok(()),
            Some(DumpStage::Failed(_)) => {
                let removed = self.on_storage(volume, |plugs, name| plugs.remove_dumps(name, ""));
                if let Err(error) = removed.await {
                    tracing::warn!(volume, %error, "failed to remove a memory dump that failed");
                }
                return Ok(());
            }
            None => {}
        }
        let name = plan.file.clone();
        let prepared = self.on_storage(volume, move |plugs, volume| {
            plugs.prepare_dump(volume, &name)
        });
        prepared.await?;
        if let Err(error) = self.entry.session.call(Request::Dump(plan)).await {
            let failure = Failure {
                reason: Reason::MemoryDumpInProgress,
                message: error_chain(&error),
            };
            next.failures.insert(volume.to_owned(), failure);
            next.retry_in.get_or_insert(plugged::RETRY);
        }
        Ok(())
    }

    /// Runs the closure with the volumes on a thread, which may hang with the storage.
    pub(super) async fn on_storage<F>(&self, volume: &str, work: F) -> io::Result<()>
    where
        F: FnOnce(&crate::volumes::Plugs, &str) -> io::Result<()> + Send + 'static,
    {
        let held = self.entry.plugged.works.begin(volume).ok_or_else(hangs)?;
        let (plugs, name) = (Arc::clone(&self.plugs), volume.to_owned());
        let done = tokio::task::spawn_blocking(move || {
            let _held = held;
            panics::catch_io(|| work(&plugs, &name))
        });
        let done = timeout(plugged::STORAGE_TIMEOUT, done).await;
        done.map_err(|_late| hangs())?.map_err(io::Error::other)?
    }

    /// Dumps and backups of all these volumes. One that fails does not hold up the others.
    pub(super) async fn receive_all(&self, volumes: &[&str], next: &mut Plugged) {
        for volume in volumes {
            let received = if model::is_backup_volume(self.vmi, volume) {
                self.back_up(volume, next).await
            } else {
                self.dump(volume, next).await
            };
            match received {
                Ok(()) => {
                    next.awaited.remove(*volume);
                }
                Err(error @ BringError::NotYet) => super::plug::await_pod(volume, &error, next),
                Err(error) => {
                    next.awaited.remove(*volume);
                    let failure = not_mounted(&error);
                    next.failures.insert((*volume).to_owned(), failure);
                    next.retry_in.get_or_insert(plugged::RETRY);
                }
            }
        }
    }

    /// Whether QEMU still writes to the volume.
    pub(super) fn is_dumping(&self, volume: &str) -> bool {
        let state = self.link.state.as_ref();
        let report = state.and_then(|state| state.dump.as_deref());
        report.is_some_and(|report| {
            report.plan.volume == volume && report.stage == DumpStage::Running
        })
    }
}

/// The next status of a volume that is to receive a dump.
pub(super) fn advance(
    vmi: &VirtualMachineInstance,
    volume: &VolumeStatus,
    plugged: &Plugged,
    state: &GuestState,
    now: &Time,
) -> VolumeStatus {
    let name = &volume.name;
    let now = || Time(Timestamp::from_second(now.0.as_second()).unwrap_or(now.0));
    let mut next = volume.clone();
    let mut info = volume.memory_dump_volume.clone().unwrap_or_default();
    let report = begun(vmi, name).and_then(|file| {
        let plan = DumpPlan {
            volume: name.clone(),
            file: file.to_owned(),
        };
        report_of(state, &plan)
    });
    let (phase, reason, message) = match report.map(|report| &report.stage) {
        Some(DumpStage::Done) => {
            info.end_timestamp = Some(now());
            let message = format!("Memory dump to Volume {name} has completed successfully");
            (Phase::MemoryDumpCompleted, Reason::VolumeReady, message)
        }
        Some(DumpStage::Failed(why)) => {
            info.end_timestamp = Some(now());
            failed(name, why)
        }
        _ if is_read_only(vmi, name) => failed(name, "the volume is read-only"),
        _ if begun(vmi, name).is_none() && plugged.mounted.contains(name) => {
            info = DomainMemoryDumpInfo {
                start_timestamp: Some(now()),
                target_file_name: Some(file_name(vmi, name, now().0)),
                end_timestamp: None,
                ..info
            };
            let message = format!("Memory dump Volume {name} is attached, getting memory dump");
            let reason = Reason::MemoryDumpInProgress;
            (Phase::MemoryDumpInProgress, reason, message)
        }
        _ => {
            if let Some(failure) = plugged.failures.get(name) {
                next.reason = Some(failure.reason.as_str().to_owned());
                next.message = Some(failure.reason.advise(&failure.message));
            }
            return next;
        }
    };
    next.phase = Some(phase);
    next.reason = Some(reason.as_str().to_owned());
    next.message = Some(message);
    next.memory_dump_volume = Some(info);
    next
}

fn failed(volume: &str, why: &str) -> (Phase, Reason, String) {
    if volume == SAVING_VOLUME {
        // virt-controller adds what to do.
        return (
            Phase::MemoryDumpFailed,
            Reason::SuspendFailed,
            why.to_owned(),
        );
    }
    let reason = Reason::MemoryDumpFailed;
    let message = reason.advise(&format!("Memory dump to Volume {volume} failed: {why}"));
    (Phase::MemoryDumpFailed, reason, message)
}

/// The file of the dump that has begun, by the VMI's status.
fn begun<'a>(vmi: &'a VirtualMachineInstance, volume: &str) -> Option<&'a str> {
    let mut all = vmi.status.iter().flat_map(|status| &status.volume_status);
    let status = all.find(|one| one.name == volume)?;
    let is_begun = status.phase == Some(Phase::MemoryDumpInProgress);
    let info = status.memory_dump_volume.as_ref().filter(|_| is_begun)?;
    info.target_file_name.as_deref()
}

fn report_of<'a>(state: &'a GuestState, plan: &DumpPlan) -> Option<&'a DumpReport> {
    let report = state.dump.as_deref();
    report.filter(|report| report.plan == *plan)
}

fn is_read_only(vmi: &VirtualMachineInstance, volume: &str) -> bool {
    let guest = Guest::of(vmi);
    let source = guest.volume(volume).map(|volume| volume.source);
    matches!(source, Some(VolumeSource::MemoryDump(dump)) if dump.read_only == Some(true))
}

/// The name that `KubeVirt` gives to a dump, cut where it is longer than a file's name can be.
fn file_name(vmi: &VirtualMachineInstance, volume: &str, now: Timestamp) -> String {
    let time = now.strftime("-%Y%m%d-%H%M%S").to_string();
    let suffix = if volume == SAVING_VOLUME {
        SAVED_SUFFIX
    } else {
        DUMP_SUFFIX
    };
    let end = format!("{time}{suffix}");
    let name = vmi.metadata.name.as_deref().unwrap_or_default();
    let mut text = format!("{name}-{volume}");
    // Both are ASCII.
    text.truncate(MAX_NAME - end.len());
    text + &end
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const NOW: &str = "2026-11-25T12:00:10Z";

    fn vmi(phase: &str, source: &Value) -> VirtualMachineInstance {
        let file = (phase == "MemoryDumpInProgress").then_some("f.memory.dump");
        serde_json::from_value(json!({
            "metadata": {"name": "a"},
            "spec": {"volumes": [{"name": "v", "memoryDump": source}], "domain": {"devices": {}}},
            "status": {"phase": "Running", "volumeStatus": [{
                "name": "v", "target": "", "phase": phase, "hotplugVolume": {"attachPodName": "p"},
                "memoryDumpVolume": {"claimName": "c", "targetFileName": file},
            }]},
        }))
        .unwrap()
    }

    fn state(file: &str, stage: DumpStage) -> GuestState {
        let plan = DumpPlan {
            volume: "v".to_owned(),
            file: file.to_owned(),
        };
        GuestState {
            dump: Some(Box::new(DumpReport { plan, stage })),
            ..GuestState::default()
        }
    }

    fn next(vmi: &VirtualMachineInstance, plugged: &Plugged, state: &GuestState) -> VolumeStatus {
        let known = &vmi.status.as_ref().unwrap().volume_status[0];
        let now = Time(NOW.parse().unwrap());
        assert_eq!(plugged::wanted(vmi)["v"], plugged::Wanted::Dumped);
        advance(vmi, known, plugged, state, &now)
    }

    #[test]
    fn status_follows_the_mount_and_the_launcher() {
        let claim = || json!({"claimName": "c"});
        let mounted = || Plugged {
            mounted: ["v".to_owned()].into(),
            ..Plugged::default()
        };
        let own = |stage| state("f.memory.dump", stage);
        let fails = || DumpStage::Failed("no space".to_owned());
        let (waits, runs) = ("AttachedToNode", "MemoryDumpInProgress");
        for (before, source, plugged, state, after) in [
            (
                waits,
                claim(),
                Plugged::default(),
                GuestState::default(),
                waits,
            ),
            (waits, claim(), mounted(), GuestState::default(), runs),
            // An earlier dump.
            (waits, claim(), mounted(), own(DumpStage::Done), runs),
            (runs, claim(), mounted(), GuestState::default(), runs),
            (runs, claim(), mounted(), own(DumpStage::Running), runs),
            (
                runs,
                claim(),
                mounted(),
                state("g.memory.dump", DumpStage::Done),
                runs,
            ),
            (
                runs,
                claim(),
                mounted(),
                own(DumpStage::Done),
                "MemoryDumpCompleted",
            ),
            (runs, claim(), mounted(), own(fails()), "MemoryDumpFailed"),
            (
                waits,
                json!({"claimName": "c", "readOnly": true}),
                Plugged::default(),
                GuestState::default(),
                "MemoryDumpFailed",
            ),
        ] {
            let found = next(&vmi(before, &source), &plugged, &state);
            let phase = found.phase.as_ref().map(Phase::as_str);
            assert_eq!(phase, Some(after), "{before} {plugged:?} {state:?}");
            let info = found.memory_dump_volume.unwrap();
            assert_eq!(info.claim_name.as_deref(), Some("c"));
        }
    }

    #[test]
    fn state_that_was_not_saved_has_its_own_reason_and_name() {
        let now = || NOW.parse().unwrap();
        let before = vmi("AttachedToNode", &json!({"claimName": "c"}));
        let name = file_name(&before, SAVING_VOLUME, now());
        assert_eq!(name, "a-ferrovirt-saving-20261125-120010.saved");
        let (phase, reason, message) = failed(SAVING_VOLUME, "no space");
        assert_eq!(phase, Phase::MemoryDumpFailed);
        assert_eq!(
            (reason, message.as_str()),
            (Reason::SuspendFailed, "no space")
        );
    }

    #[test]
    fn names_and_times_are_in_the_status() {
        let plugged = Plugged {
            mounted: ["v".to_owned()].into(),
            ..Plugged::default()
        };
        let before = vmi("AttachedToNode", &json!({"claimName": "c"}));
        let begun = next(&before, &plugged, &GuestState::default());
        let info = json!(begun.memory_dump_volume);
        let expected = json!({
            "claimName": "c", "startTimestamp": NOW,
            "targetFileName": "a-v-20261125-120010.memory.dump",
        });
        assert_eq!(info, expected);
        let running = vmi("MemoryDumpInProgress", &json!({"claimName": "c"}));
        let ended = next(
            &running,
            &plugged,
            &state("f.memory.dump", DumpStage::Failed("no space".to_owned())),
        );
        assert_eq!(json!(ended.memory_dump_volume)["endTimestamp"], NOW);
        let message = ended.message.unwrap();
        let expected = "Memory dump to Volume v failed: no space";
        assert!(message.starts_with(expected), "{message}");
        let long = VirtualMachineInstance {
            metadata: kube::api::ObjectMeta {
                name: Some("n".repeat(250)),
                ..kube::api::ObjectMeta::default()
            },
            ..VirtualMachineInstance::default()
        };
        let name = file_name(&long, "v", NOW.parse().unwrap());
        assert_eq!(name.len(), MAX_NAME);
        assert!(name.ends_with("-20261125-120010.memory.dump"), "{name}");
    }
}
