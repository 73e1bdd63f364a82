//! What the launcher remembers across its own restarts, as a file in the pod.

use std::io;
use std::path::{Path, PathBuf};

use launcher_channel::{GuestPlan, StopReason};
use serde::{Deserialize, Serialize};

use super::ending::Ending;
use super::judge::Phase;
use crate::file;

/// The plan, and how far it has come.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) plan: GuestPlan,
    pub(crate) phase: Phase,
    /// Starts that libvirt refused.
    pub(crate) failed_starts: u32,
    /// The process number of QEMU, once it was seen.
    #[serde(default)]
    pub(crate) qemu: Option<i32>,
    #[serde(default)]
    pub(crate) ending: Ending,
}

/// The record and where it is kept.
#[derive(Debug)]
pub(crate) struct Memory {
    path: PathBuf,
    record: Option<Record>,
}

impl Memory {
    /// Reads what an earlier launcher of this pod has left. A file that cannot be understood is an
    /// error and not an empty memory: forgetting could start a guest twice.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let record = match std::fs::read(path) {
            Ok(bytes) => Some(serde_json::from_slice(&bytes)?),
            Err(err) if err.kind() == io::ErrorKind::NotFound => None,
            Err(err) => return Err(err),
        };
        Ok(Self {
            path: path.to_owned(),
            record,
        })
    }

    pub(crate) fn record(&self) -> Option<&Record> {
        self.record.as_ref()
    }

    pub(crate) fn phase(&self) -> Option<Phase> {
        self.record.as_ref().map(|record| record.phase)
    }

    /// Takes a plan, unless the guest of an earlier one was asked to start already.
    pub(crate) fn plan(&mut self, plan: GuestPlan) -> io::Result<()> {
        let failed_starts = match &self.record {
            Some(Record {
                phase: Phase::Resuming | Phase::Started | Phase::Ended(_),
                ..
            }) => return Ok(()),
            Some(record) => record.failed_starts,
            None => 0,
        };
        let phase = self.phase().unwrap_or(Phase::Planned);
        self.record = Some(Record {
            plan,
            phase,
            failed_starts,
            qemu: None,
            ending: Ending::default(),
        });
        self.save()?;
        failpoints::after(name(Phase::Planned));
        Ok(())
    }

    /// Moves forward. Once the guest has run, what was needed to make it is let go: it may hold
    /// secrets, and it is memory.
    pub(crate) fn advance(&mut self, phase: Phase) -> io::Result<()> {
        let Some(record) = &mut self.record else {
            return Ok(());
        };
        if record.phase == phase {
            return Ok(());
        }
        tracing::info!(?phase, "the guest goes on");
        record.phase = phase;
        if matches!(phase, Phase::Resuming | Phase::Started | Phase::Ended(_)) {
            record.plan.prepare = Vec::new();
            record.plan.domain_xml = String::new();
        }
        self.save()?;
        failpoints::after(name(phase));
        Ok(())
    }

    /// Notes which process the guest is.
    pub(crate) fn qemu(&mut self, pid: i32) -> io::Result<()> {
        match &mut self.record {
            Some(record) if record.qemu != Some(pid) => {
                record.qemu = Some(pid);
                self.save()?;
                failpoints::after("virt-launcher/record/qemu");
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The guest has ended. The first word on it stands.
    pub(crate) fn end(&mut self, reason: StopReason, ending: Ending) -> io::Result<()> {
        if let Some(record) = &mut self.record {
            record.ending = ending;
        }
        self.advance(Phase::Ended(reason))
    }

    /// Counts a refused start and says how many there were.
    pub(crate) fn count_failed_start(&mut self) -> io::Result<u32> {
        let Some(record) = &mut self.record else {
            return Ok(0);
        };
        record.failed_starts += 1;
        let count = record.failed_starts;
        self.save()?;
        failpoints::after("virt-launcher/record/failed-start");
        Ok(count)
    }

    fn save(&self) -> io::Result<()> {
        file::replace(&self.path, &serde_json::to_vec(&self.record)?)
    }
}

/// Of the place after a phase was written down.
fn name(phase: Phase) -> &'static str {
    match phase {
        Phase::Planned => "virt-launcher/record/plan",
        Phase::Starting => "virt-launcher/record/starting",
        Phase::Resuming => "virt-launcher/record/resuming",
        Phase::Started => "virt-launcher/record/started",
        Phase::Ended(_) => "virt-launcher/record/ended",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(uid: &str) -> GuestPlan {
        GuestPlan {
            vmi_uid: uid.to_owned(),
            domain_name: "a_b".to_owned(),
            domain_uuid: String::new(),
            domain_xml: "<domain/>".to_owned(),
            prepare: Vec::new(),
            dhcp: Vec::new(),
            start_paused: false,
            console_to_log: false,
            grace_seconds: 1,
        }
    }

    #[test]
    fn an_end_is_remembered_and_no_plan_undoes_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("launcher/guest.json");
        let mut memory = Memory::open(&path).unwrap();
        assert_eq!(memory.phase(), None);
        memory.plan(plan("a")).unwrap();
        memory.plan(plan("b")).unwrap();
        assert_eq!(memory.record().unwrap().plan.vmi_uid, "b");
        memory.advance(Phase::Started).unwrap();
        assert_eq!(memory.record().unwrap().plan.domain_xml, "");
        memory.advance(Phase::Ended(StopReason::Crashed)).unwrap();

        let mut memory = Memory::open(&path).unwrap();
        memory.plan(plan("c")).unwrap();
        assert_eq!(memory.phase(), Some(Phase::Ended(StopReason::Crashed)));
        assert_eq!(memory.record().unwrap().plan.vmi_uid, "b");
    }

    #[test]
    fn a_broken_memory_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("guest.json");
        std::fs::write(&path, "{").unwrap();
        assert!(Memory::open(&path).is_err());
    }
}
