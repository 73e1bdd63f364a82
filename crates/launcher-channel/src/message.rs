//! The messages of the two ends.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    Agent, AgentCredentials, AgentQuestion, AgentReport, BackupPlan, BackupReport, BackupStage,
    DumpPlan, DumpReport, DumpStage, GuestPlan, GuestSize, HotDisk, InterfacePlan, MigrationPlan,
    MigrationReport, MigrationStage, Part, Quiesce, ResizePlan,
};

/// A numbered request from the handler.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ToLauncher {
    pub id: u64,
    pub request: Request,
}

/// All requests of a handler. Each is idempotent.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Request {
    /// Starts this guest, or adopts it if it runs already. After the guest has ended, the reply is its
    /// final state: a launcher starts its guest only once.
    Sync(Box<GuestPlan>),
    Pause,
    Unpause,
    /// Requests a power-off from the guest, and destroys it after the grace period. A later request
    /// can only shorten the period.
    #[serde(rename_all = "camelCase")]
    Shutdown {
        grace_seconds: u64,
    },
    /// Destroys the guest immediately.
    Destroy,
    /// Requests a reboot from the guest, through its agent or the power button.
    SoftReboot,
    /// Resets the machine, like the hardware reset button.
    Reset,
    /// Queries the guest agent. The reply is [`Reply::Agent`].
    AskAgent(AgentQuestion),
    /// Takes a picture of the guest's first screen. The replies are [`Reply::Part`]s of a PNG image.
    #[serde(rename_all = "camelCase")]
    Screenshot {
        /// Moves the guest's pointer first, to wake the screen.
        move_cursor: bool,
    },
    /// Waits for the guest of another launcher instead of starting it. The plan's XML is not used:
    /// the other launcher brings that of the running guest.
    #[serde(rename_all = "camelCase")]
    Receive {
        id: String,
        plan: Box<GuestPlan>,
    },
    /// Runs a guest that was received. Only for a guest that its old launcher has given up.
    #[serde(rename_all = "camelCase")]
    TakeOver {
        id: String,
    },
    /// Copies the guest to the launcher that waits for it. The state shows how it goes.
    Migrate(Box<MigrationPlan>),
    /// Cancels a migration; the guest stays where it is, unless it is gone already.
    #[serde(rename_all = "camelCase")]
    CancelMigration {
        id: String,
    },
    /// Switches a copy to post-copy: the guest runs in the other pod, and the rest of its memory follows. If the plan
    /// says so, the guest is paused until the end of the copy in place of that. Only for a launcher whose state shows that
    /// it can.
    #[serde(rename_all = "camelCase")]
    StartPostCopy {
        id: String,
    },
    /// Makes these the hot-plugged disks of the running guest: attaches missing ones and removes others.
    /// The state shows which are attached; a removal is complete when the disk has left it.
    Disks(Vec<HotDisk>),
    /// Sets the links of these interfaces up or down. Only for a launcher whose state shows them.
    Links(BTreeMap<String, InterfaceLink>),
    /// Attaches interfaces to the running guest and removes others. The state shows which it has; a removal is
    /// complete when the interface has left it. Only for a launcher whose state shows that it takes them.
    Interfaces(Box<InterfacePlan>),
    /// Plugs processors and memory into the running guest. Only for a launcher whose state shows its size.
    Resize(ResizePlan),
    /// Writes the guest's memory to a file. The state shows how it goes; the dump of a name is made once. A
    /// file for a saved state ends the guest.
    Dump(DumpPlan),
    /// Copies disks of the running guest to files. The state shows how it goes; the backup of a name is made
    /// once.
    Backup(BackupPlan),
    /// Cancels a backup that is in progress, and removes its files. The state shows when nothing writes to its
    /// volume any more.
    CancelBackup(BackupPlan),
    /// The handler has recorded the final state: the launcher may exit.
    Release,
    /// Requests the current state.
    State,
}

impl Request {
    /// The name for logs.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Sync(_) => "sync",
            Self::Pause => "pause",
            Self::Unpause => "unpause",
            Self::Shutdown { .. } => "shutdown",
            Self::Destroy => "destroy",
            Self::SoftReboot => "soft reboot",
            Self::Reset => "reset",
            Self::AskAgent(_) => "guest agent query",
            Self::Screenshot { .. } => "screenshot",
            Self::Receive { .. } => "receive",
            Self::TakeOver { .. } => "take over",
            Self::Migrate(_) => "migrate",
            Self::CancelMigration { .. } => "cancel migration",
            Self::StartPostCopy { .. } => "start post-copy",
            Self::Disks(_) => "disks",
            Self::Links(_) => "links",
            Self::Interfaces(_) => "interfaces",
            Self::Resize(_) => "resize",
            Self::Dump(_) => "memory dump",
            Self::Backup(_) => "backup",
            Self::CancelBackup(_) => "cancel backup",
            Self::Release => "release",
            Self::State => "state",
        }
    }
}

/// From the launcher: the reply to a request, or a new state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FromLauncher {
    Reply { id: u64, reply: Reply },
    State(GuestState),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Reply {
    Done(GuestState),
    Agent(Box<AgentReport>),
    /// A part of a binary answer; the reply to its request is complete with the last part.
    Part(Part),
    /// `reason` is a stable CamelCase reason, `message` a sentence for users. With `retry`, the same
    /// request may succeed later.
    Refused {
        reason: String,
        message: String,
        retry: bool,
    },
}

/// The state of the guest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_excessive_bools, reason = "independent of each other")]
pub struct GuestState {
    /// `None` before the domain was started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<DomainState>,
    /// Machine type as resolved by libvirt, such as `pc-q35-10.0`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// A graceful shutdown is in progress.
    #[serde(default)]
    pub shutting_down: bool,
    /// A sentence with details on why the guest is paused or has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The report of the guest agent, while one is connected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Box<Agent>>,
    /// How many pings of the guest agent have failed since the launcher's start.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failed_pings: u32,
    /// The signal that ended QEMU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qemu_signal: Option<i32>,
    /// Filesystems that the guest cannot use any more, because their servers have ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost_filesystems: Vec<String>,
    /// The last migration to or from this launcher.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub migration: Option<Box<MigrationReport>>,
    /// The hot-plugged disks that the domain has, by volume, with the device name in the guest.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub disks: BTreeMap<String, String>,
    /// Why disks could not be attached or removed, by volume.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub disk_failures: BTreeMap<String, String>,
    /// The links of the domain's interfaces, by their names in the VMI. An earlier launcher shows none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub links: BTreeMap<String, InterfaceLink>,
    /// The processors and the memory of the domain. An earlier launcher shows none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<GuestSize>,
    /// The last memory dump.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dump: Option<Box<DumpReport>>,
    /// The last backup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup: Option<Box<BackupReport>>,
    /// A launcher of an earlier version closes the connection when it gets a request for a backup.
    #[serde(default)]
    pub takes_backups: bool,
    /// A launcher of an earlier version would copy the disks instead of offering them.
    #[serde(default)]
    pub offers_disks: bool,
    /// The same for a request for interfaces.
    #[serde(default)]
    pub takes_interfaces: bool,
    /// Why interfaces could not be attached or removed, by their names in the VMI.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub interface_failures: BTreeMap<String, String>,
}

/// Whether the guest sees a cable in an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum InterfaceLink {
    Up,
    Down,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde calls it with a reference"
)]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// The most characters of a text in a state.
const MAX_TEXT: usize = 512;
/// The most items of a list in a state.
const MAX_ITEMS: usize = 64;
/// The most hot-plugged disks in a state.
const MAX_DISKS: usize = 1024;

impl GuestState {
    /// The interfaces that the running domain has, if the launcher takes requests for them and has read them.
    pub fn interfaces(&self) -> Option<&BTreeMap<String, InterfaceLink>> {
        let is_running = self
            .domain
            .is_some_and(|domain| !matches!(domain, DomainState::Stopped(_)));
        // The machine is read along with the interfaces.
        let is_known = self.takes_interfaces && self.machine.is_some();
        (is_running && is_known).then_some(&self.links)
    }

    /// Truncates texts and lists that exceed those of a correct launcher: a guest may have taken over
    /// its launcher, and the handler copies the state into the VMI.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        let cut = |text: &mut String| {
            if let Some((at, _)) = text.char_indices().nth(MAX_TEXT) {
                text.truncate(at);
            }
        };
        self.note.iter_mut().for_each(cut);
        self.machine.iter_mut().for_each(cut);
        for texts in [&mut self.disks, &mut self.disk_failures] {
            let long: Vec<String> = texts.keys().skip(MAX_DISKS).cloned().collect();
            texts.retain(|name, _| name.len() <= MAX_TEXT && !long.contains(name));
            texts.values_mut().for_each(cut);
        }
        let failures = &mut self.interface_failures;
        let long: Vec<String> = failures.keys().skip(MAX_ITEMS).cloned().collect();
        failures.retain(|name, _| name.len() <= MAX_TEXT && !long.contains(name));
        failures.values_mut().for_each(cut);
        let long: Vec<String> = self.links.keys().skip(MAX_ITEMS).cloned().collect();
        self.links
            .retain(|name, _| name.len() <= MAX_TEXT && !long.contains(name));
        self.lost_filesystems.truncate(MAX_ITEMS);
        self.lost_filesystems.iter_mut().for_each(cut);
        if let Some(dump) = &mut self.dump {
            cut(&mut dump.plan.volume);
            cut(&mut dump.plan.file);
            if let DumpStage::Failed(message) = &mut dump.stage {
                cut(message);
            }
        }
        if let Some(backup) = &mut self.backup {
            cut(&mut backup.plan.volume);
            cut(&mut backup.plan.directory);
            backup.plan.disks.truncate(MAX_DISKS);
            backup.plan.disks.iter_mut().for_each(cut);
            backup.plan.parent.iter_mut().for_each(cut);
            backup.plan.kept_checkpoints.clear();
            backup.detail.iter_mut().for_each(cut);
            match &mut backup.stage {
                BackupStage::Failed(message) => cut(message),
                BackupStage::Done { lineage, .. } => {
                    lineage.parent.iter_mut().for_each(cut);
                    lineage.note.iter_mut().for_each(cut);
                }
                BackupStage::Running { .. } | BackupStage::Offered | BackupStage::Cancelled => {}
            }
            if let Some(Quiesce::Failed(message) | Quiesce::Skipped(message)) = &mut backup.quiesce
            {
                cut(message);
            }
        }
        if let Some(migration) = &mut self.migration {
            cut(&mut migration.id);
            if let MigrationStage::Failed(message) = &mut migration.stage {
                cut(message);
            }
        }
        if let Some(agent) = &mut self.agent {
            agent.freeze.iter_mut().for_each(cut);
            if let Some(AgentCredentials::Failed(message)) = &mut agent.credentials {
                cut(message);
            }
            agent.missing.truncate(MAX_ITEMS);
            agent.missing.iter_mut().for_each(cut);
            agent.interfaces.truncate(MAX_ITEMS);
            for interface in &mut agent.interfaces {
                cut(&mut interface.name);
                interface.mac.iter_mut().for_each(cut);
                interface.addresses.truncate(MAX_ITEMS);
                interface.addresses.iter_mut().for_each(cut);
            }
            if let Some(os) = &mut agent.os {
                for text in [
                    &mut os.name,
                    &mut os.kernel_release,
                    &mut os.version,
                    &mut os.pretty_name,
                    &mut os.version_id,
                    &mut os.kernel_version,
                    &mut os.machine,
                    &mut os.id,
                ] {
                    text.iter_mut().for_each(cut);
                }
            }
        }
        self
    }
}

/// The state of the libvirt domain, reduced to the states that decide the VMI's phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum DomainState {
    Running,
    PausedByUser,
    PausedByIoError,
    /// Post-copy migration failed: not all memory arrived.
    PausedPostcopyFailed,
    /// Paused for any other reason (migration, start-up, debugger).
    PausedOther,
    /// The guest has ended and will not come back in this pod.
    Stopped(StopReason),
}

/// Why the guest ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StopReason {
    /// Powered off from inside or after an ACPI request.
    Shutdown,
    /// Destroyed by the launcher, immediately or after the grace period.
    Destroyed,
    /// QEMU exited unexpectedly.
    Crashed,
    /// The guest kernel panicked.
    Panicked,
    /// The watchdog expired, and its action is to end the guest.
    Watchdog,
    Migrated,
    /// The guest was saved to a file.
    Saved,
    /// The guest was reverted to a snapshot in which it was shut off.
    FromSnapshot,
    /// The domain could not be started.
    StartFailed,
    Unknown,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AgentInterface, AgentOs};

    #[test]
    fn texts_of_a_backup_are_bounded() {
        let long = "ä".repeat(MAX_TEXT + 1);
        let report = BackupReport {
            plan: BackupPlan::default(),
            stage: BackupStage::Failed(long.clone()),
            quiesce: Some(Quiesce::Failed(long.clone())),
            detail: Some(long),
        };
        let state = GuestState {
            backup: Some(Box::new(report)),
            ..GuestState::default()
        };
        let cut = "ä".repeat(MAX_TEXT);
        let found = state.bounded().backup.unwrap();
        assert_eq!(found.stage, BackupStage::Failed(cut.clone()));
        assert_eq!(found.quiesce, Some(Quiesce::Failed(cut.clone())));
        assert_eq!(found.detail, Some(cut));
    }

    #[test]
    fn oversized_state_is_truncated() {
        let long = || "ä".repeat(2 * MAX_TEXT);
        let state = GuestState {
            note: Some(long()),
            machine: Some(long()),
            lost_filesystems: vec![long(); 100],
            agent: Some(Box::new(Agent {
                missing: vec![long(); 100],
                os: Some(AgentOs {
                    pretty_name: Some(long()),
                    ..AgentOs::default()
                }),
                interfaces: vec![
                    AgentInterface {
                        name: long(),
                        mac: Some(long()),
                        addresses: vec![long(); 100],
                    };
                    100
                ],
                freeze: Some(long()),
                credentials: Some(AgentCredentials::Failed(long())),
            })),
            ..GuestState::default()
        };
        let bounded = serde_json::to_string(&state.bounded()).unwrap();
        assert!(
            bounded.len() <= MAX_ITEMS * (MAX_ITEMS + 5) * 2 * MAX_TEXT,
            "{}",
            bounded.len()
        );
        let small = GuestState {
            note: Some("disk root: its storage is full".to_owned()),
            ..GuestState::default()
        };
        assert_eq!(small.clone().bounded(), small);
    }
}
