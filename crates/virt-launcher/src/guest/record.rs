//! What the launcher remembers across its own restarts, as a file in the pod.

use std::io;
use std::path::{Path, PathBuf};

use launcher_channel::{BackupReport, DhcpServer, DumpReport, GuestPlan, Ipv6Server, StopReason};
use serde::{Deserialize, Serialize};

use super::ending::Ending;
use super::status::Phase;
use crate::file;

/// The plan and its progress.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) plan: GuestPlan,
    pub(crate) phase: Phase,
    /// Starts that libvirt refused.
    pub(crate) failed_starts: u32,
    /// QEMU's process ID, once it is known.
    #[serde(default)]
    pub(crate) qemu: Option<i32>,
    #[serde(default)]
    pub(crate) ending: Ending,
    #[serde(default)]
    pub(crate) migration: Option<MigrationRecord>,
    /// The guest has come from another pod, and its links were not taken down for it yet.
    #[serde(default)]
    pub(crate) refreshes_links: bool,
    /// The last memory dump that has ended.
    #[serde(default)]
    pub(crate) dump: Option<DumpReport>,
    /// The last backup that has ended.
    #[serde(default)]
    pub(crate) backup: Option<BackupReport>,
}

/// The guest's move to or from another pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MigrationRecord {
    pub(crate) id: String,
    pub(crate) step: MigrationStep,
    /// At the end of the move the guest stays paused, as its user has paused it.
    #[serde(default)]
    pub(crate) stays_paused: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum MigrationStep {
    /// The guest is to come here.
    Incoming,
    /// The guest is copied, and belongs to this pod.
    Copying,
    /// The guest belongs to the other pod: it must not run here again.
    GivenUp,
    /// The same, but the rest of its memory is still to be copied from here: its QEMU must not end before.
    Switched,
    /// The guest belongs to this pod and runs here, while the rest of its memory follows.
    Following,
    /// The guest has come here, and belongs to this pod.
    Arrived,
}

/// The record and the file that holds it.
#[derive(Debug)]
pub(crate) struct RecordStore {
    path: PathBuf,
    record: Option<Record>,
}

impl RecordStore {
    /// Reads the record of an earlier launcher of this pod. A file that cannot be parsed is an
    /// error and not an empty record: forgetting a guest could start it twice.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let record = match std::fs::read(path) {
            Ok(bytes) => Some(serde_json::from_slice(&bytes)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
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

    /// Stores a plan. Once the guest of an earlier plan has been started, only that what may change in a
    /// running guest.
    pub(crate) fn set_plan(&mut self, plan: GuestPlan) -> io::Result<()> {
        let paused = plan.agent_probes_paused;
        let known = self.record.as_ref();
        let was_paused = known.is_some_and(|record| record.plan.agent_probes_paused);
        if paused != was_paused {
            // Specs of KubeVirt wait for these words.
            tracing::info!("Guest agent probe pause state changed: paused={paused}");
        }
        let failed_starts = match &self.record {
            Some(Record {
                phase:
                    Phase::Receiving
                    | Phase::Received
                    | Phase::Resuming
                    | Phase::Started
                    | Phase::Ended(_),
                ..
            }) => return self.pause_agent_probes(paused),
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
            migration: None,
            refreshes_links: false,
            dump: None,
            backup: None,
        });
        self.save()?;
        failpoints::after(failpoint(Phase::Planned));
        Ok(())
    }

    fn pause_agent_probes(&mut self, paused: bool) -> io::Result<()> {
        match &mut self.record {
            Some(record) if record.plan.agent_probes_paused != paused => {
                record.plan.agent_probes_paused = paused;
                self.save()
            }
            _ => Ok(()),
        }
    }

    /// Advances the phase. Once the guest has run, the XML, the VMI and the preparation steps are dropped:
    /// they may hold secrets, and they take store.
    pub(crate) fn advance(&mut self, phase: Phase) -> io::Result<()> {
        let Some(record) = &mut self.record else {
            return Ok(());
        };
        if record.phase == phase {
            return Ok(());
        }
        tracing::info!(?phase, "guest phase changed");
        record.phase = phase;
        if matches!(phase, Phase::Resuming | Phase::Started | Phase::Ended(_)) {
            record.plan.prepare = Vec::new();
            record.plan.domain_xml = String::new();
            if let Some(hooks) = &mut record.plan.hooks {
                hooks.vmi = String::new();
            }
        }
        self.save()?;
        failpoints::after(failpoint(phase));
        Ok(())
    }

    /// Records the UUID of a guest that comes from another VMI.
    pub(crate) fn set_domain_uuid(&mut self, uuid: &str) -> io::Result<()> {
        match &mut self.record {
            Some(record) if record.plan.domain_uuid != uuid => {
                uuid.clone_into(&mut record.plan.domain_uuid);
                self.save()
            }
            _ => Ok(()),
        }
    }

    /// Records which process is QEMU.
    pub(crate) fn set_qemu_pid(&mut self, pid: i32) -> io::Result<()> {
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

    /// Records the guest's end.
    pub(crate) fn end(&mut self, reason: StopReason, ending: Ending) -> io::Result<()> {
        if let Some(record) = &mut self.record {
            record.ending = ending;
        }
        self.advance(Phase::Ended(reason))
    }

    /// Records how far a migration is; `None` when it has ended.
    pub(crate) fn set_migration(&mut self, migration: Option<MigrationRecord>) -> io::Result<()> {
        match &mut self.record {
            Some(record) if record.migration != migration => {
                record.migration = migration;
                self.save_migration()
            }
            _ => Ok(()),
        }
    }

    /// Records that the guest has come here; the first time also that its links are to be refreshed.
    pub(crate) fn arrive(&mut self) -> io::Result<()> {
        let Some(record) = &mut self.record else {
            return Ok(());
        };
        let refreshes = !record.plan.refreshed_links.is_empty();
        match &mut record.migration {
            Some(migration) if migration.step != MigrationStep::Arrived => {
                migration.step = MigrationStep::Arrived;
                record.refreshes_links = refreshes;
                self.save_migration()
            }
            _ => Ok(()),
        }
    }

    /// Whether links are to be taken down for a moment.
    pub(crate) fn refreshes_links(&self) -> bool {
        self.record
            .as_ref()
            .is_some_and(|record| record.refreshes_links)
    }

    /// Records that the links were taken down.
    pub(crate) fn set_links_refreshed(&mut self) -> io::Result<()> {
        let Some(record) = &mut self.record else {
            return Ok(());
        };
        record.refreshes_links = false;
        self.save()
    }

    /// Records the DHCP servers of a guest whose interfaces change.
    pub(crate) fn set_servers(
        &mut self,
        dhcp: &[DhcpServer],
        ipv6: &[Ipv6Server],
    ) -> io::Result<()> {
        match &mut self.record {
            Some(record) if record.plan.dhcp != dhcp || record.plan.ipv6 != ipv6 => {
                record.plan.dhcp = dhcp.to_vec();
                record.plan.ipv6 = ipv6.to_vec();
                self.save()
            }
            _ => Ok(()),
        }
    }

    /// Records a memory dump that has ended.
    pub(crate) fn set_dump(&mut self, report: DumpReport) -> io::Result<()> {
        let Some(record) = &mut self.record else {
            return Ok(());
        };
        record.dump = Some(report);
        self.save()?;
        failpoints::after("virt-launcher/dump/record");
        Ok(())
    }

    pub(crate) fn dump(&self) -> Option<&DumpReport> {
        self.record.as_ref()?.dump.as_ref()
    }

    /// Records a backup that has ended, or whose disks are offered.
    pub(crate) fn set_backup(&mut self, report: BackupReport) -> io::Result<()> {
        let Some(record) = &mut self.record else {
            return Ok(());
        };
        record.backup = Some(report);
        self.save()?;
        failpoints::after("virt-launcher/backup/record");
        Ok(())
    }

    pub(crate) fn backup(&self) -> Option<&BackupReport> {
        self.record.as_ref()?.backup.as_ref()
    }

    pub(crate) fn migration(&self) -> Option<&MigrationRecord> {
        self.record.as_ref()?.migration.as_ref()
    }

    /// How far the migration is.
    pub(crate) fn migration_step(&self) -> Option<MigrationStep> {
        self.migration().map(|record| record.step)
    }

    /// Whether the guest moves from or to this pod, and has not been given up: users may pause it, which has
    /// to hold at the end of the move.
    pub(crate) fn is_moving(&self) -> bool {
        let step = self.migration_step();
        let has_arrived =
            step == Some(MigrationStep::Incoming) && self.phase() == Some(Phase::Received);
        step == Some(MigrationStep::Copying) || has_arrived
    }

    /// Records whether the guest is paused at the end of its move.
    pub(crate) fn set_stays_paused(&mut self, stays_paused: bool) -> io::Result<()> {
        let record = self.migration().cloned();
        self.set_migration(record.map(|record| MigrationRecord {
            stays_paused,
            ..record
        }))
    }

    /// Whether the guest runs here before all of its memory is here. libvirt admits no query of its QEMU meanwhile.
    pub(crate) fn is_following(&self) -> bool {
        self.migration_step() == Some(MigrationStep::Following)
    }

    /// Whether the guest was given up to another pod.
    pub(crate) fn is_given_up(&self) -> bool {
        let step = self.migration_step();
        matches!(step, Some(MigrationStep::GivenUp | MigrationStep::Switched))
    }

    /// Whether this pod waits for a guest that belongs to another one.
    pub(crate) fn is_receiving(&self) -> bool {
        let step = self.migration_step();
        let is_incoming = matches!(
            step,
            Some(MigrationStep::Incoming | MigrationStep::Following)
        );
        let may_run = matches!(
            self.phase(),
            Some(Phase::Resuming | Phase::Started | Phase::Ended(_))
        );
        is_incoming && !may_run
    }

    /// Counts a failed start and returns the new count.
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

    fn save_migration(&self) -> io::Result<()> {
        self.save()?;
        failpoints::after("virt-launcher/record/migration");
        Ok(())
    }

    fn save(&self) -> io::Result<()> {
        file::replace(&self.path, &serde_json::to_vec(&self.record)?)
    }
}

/// The failpoint after this phase was recorded.
fn failpoint(phase: Phase) -> &'static str {
    match phase {
        Phase::Planned => "virt-launcher/record/plan",
        Phase::Starting => "virt-launcher/record/starting",
        Phase::Receiving => "virt-launcher/record/receiving",
        Phase::Received => "virt-launcher/record/received",
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
            ipv6: Vec::new(),
            start_paused: false,
            console_to_log: false,
            agent_probes_paused: false,
            credentials: Vec::new(),
            filesystems: Vec::new(),
            passt: Vec::new(),
            separate_cpus: Vec::new(),
            metrics: None,
            hooks: None,
            refreshed_links: Vec::new(),
            claim_disks: Vec::new(),
            restore: None,
            grace_seconds: 1,
        }
    }

    #[test]
    fn recorded_end_survives_a_restart_and_a_new_plan() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("launcher/guest.json");
        let mut store = RecordStore::open(&path).unwrap();
        assert_eq!(store.phase(), None);
        store.set_plan(plan("a")).unwrap();
        store.set_plan(plan("b")).unwrap();
        assert_eq!(store.record().unwrap().plan.vmi_uid, "b");
        store.advance(Phase::Started).unwrap();
        assert_eq!(store.record().unwrap().plan.domain_xml, "");
        store.advance(Phase::Ended(StopReason::Crashed)).unwrap();

        let mut store = RecordStore::open(&path).unwrap();
        store.set_plan(plan("c")).unwrap();
        assert_eq!(store.phase(), Some(Phase::Ended(StopReason::Crashed)));
        assert_eq!(store.record().unwrap().plan.vmi_uid, "b");
    }

    #[test]
    fn pod_waits_for_a_guest_until_it_may_run_here() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = RecordStore::open(&dir.path().join("guest.json")).unwrap();
        let record = |step| {
            Some(MigrationRecord {
                id: "m".to_owned(),
                step,
                stays_paused: false,
            })
        };
        store.set_plan(plan("a")).unwrap();
        assert!(!store.is_receiving());
        store
            .set_migration(record(MigrationStep::Incoming))
            .unwrap();
        for (phase, expected) in [
            (Phase::Planned, true),
            (Phase::Receiving, true),
            (Phase::Received, true),
            (Phase::Resuming, false),
            (Phase::Started, false),
        ] {
            store.advance(phase).unwrap();
            for step in [MigrationStep::Following, MigrationStep::Incoming] {
                store.set_migration(record(step)).unwrap();
                assert_eq!(store.is_receiving(), expected, "{phase:?} {step:?}");
            }
        }
        store.set_migration(record(MigrationStep::Arrived)).unwrap();
        assert!(!store.is_receiving());
        assert!(!store.is_given_up());
        for step in [MigrationStep::GivenUp, MigrationStep::Switched] {
            store.set_migration(record(step)).unwrap();
            assert!(store.is_given_up(), "{step:?}");
        }
        store
            .set_migration(record(MigrationStep::Following))
            .unwrap();
        assert!(!store.is_given_up() && !store.is_receiving() && !store.is_moving());
    }

    /// Issue: a launcher that was killed right after the arrival forgot the links.
    #[test]
    fn links_are_to_be_refreshed_from_the_arrival_until_it_is_done() {
        for (links, expected) in [(vec!["lan".to_owned()], true), (Vec::new(), false)] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("guest.json");
            let mut store = RecordStore::open(&path).unwrap();
            let refreshed = GuestPlan {
                refreshed_links: links,
                ..plan("a")
            };
            store.set_plan(refreshed).unwrap();
            let incoming = MigrationRecord {
                id: "m".to_owned(),
                step: MigrationStep::Following,
                stays_paused: false,
            };
            store.set_migration(Some(incoming)).unwrap();
            assert!(!store.refreshes_links());
            store.arrive().unwrap();
            let mut store = RecordStore::open(&path).unwrap();
            assert_eq!(store.migration_step(), Some(MigrationStep::Arrived));
            assert_eq!(store.refreshes_links(), expected);
            store.set_links_refreshed().unwrap();
            // The request to run the guest may be repeated.
            store.arrive().unwrap();
            assert!(!RecordStore::open(&path).unwrap().refreshes_links());
        }
    }

    #[test]
    fn probes_of_a_running_guest_can_be_paused_and_nothing_else_changes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("guest.json");
        let mut store = RecordStore::open(&path).unwrap();
        store.set_plan(plan("a")).unwrap();
        store.advance(Phase::Started).unwrap();
        for paused in [true, false, true] {
            let changed = GuestPlan {
                agent_probes_paused: paused,
                grace_seconds: 9,
                ..plan("a")
            };
            store.set_plan(changed).unwrap();
            let read = RecordStore::open(&path).unwrap();
            let plan = &read.record().unwrap().plan;
            assert_eq!((plan.agent_probes_paused, plan.grace_seconds), (paused, 1));
        }
    }

    #[test]
    fn malformed_record_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("guest.json");
        std::fs::write(&path, "{").unwrap();
        assert!(RecordStore::open(&path).is_err());
    }
}
