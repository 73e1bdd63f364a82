//! How a guest is held still while its disks are copied, recorded in an annotation of the snapshot.

use kubevirt_api::snapshot::{Indication, SourceIndication, VirtualMachineSnapshot};
use serde::{Deserialize, Serialize};

/// The annotation of a snapshot: present from before the guest is held until it is released.
pub(super) const ANNOTATION: &str = "ferrovirt.io/guest-hold";

/// The record of a hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Hold {
    pub(super) by: By,
    /// The VMI that is held; empty if there is none.
    pub(super) uid: String,
    /// When it was recorded, in seconds since 1970.
    #[serde(default)]
    pub(super) since: i64,
    /// When the hold ends at the latest, in seconds since 1970: a frozen guest is thawed, and a snapshot that
    /// has paused its guest fails.
    pub(super) until: i64,
    /// The agent did not freeze the guest, which was paused instead.
    #[serde(default)]
    pub(super) agent_failed: bool,
}

/// What holds the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum By {
    /// There is no guest; the lock of the VM keeps it from being started.
    Lock,
    /// The agent has frozen the file systems.
    Agent,
    /// We have paused it.
    Pause,
    /// A user has paused it before.
    User,
}

impl Hold {
    /// The hold that is recorded. One that cannot be read counts as a pause, which is released.
    pub(super) fn of(snapshot: &VirtualMachineSnapshot) -> Option<Self> {
        let annotations = snapshot.metadata.annotations.as_ref()?;
        let text = annotations.get(ANNOTATION)?;
        Some(serde_json::from_str(text).unwrap_or(Self {
            by: By::Pause,
            uid: String::new(),
            since: 0,
            until: 0,
            agent_failed: false,
        }))
    }

    /// Whether the guest has to be released.
    pub(super) fn is_ours(&self) -> bool {
        matches!(self.by, By::Agent | By::Pause)
    }

    /// What users should know about the state in which the guest was copied.
    pub(super) fn indications(&self) -> Vec<SourceIndication> {
        let one = |indication, message: &str| SourceIndication {
            indication,
            message: message.to_owned(),
        };
        if self.by == By::Lock {
            return Vec::new();
        }
        let mut all = vec![one(
            Indication::Online,
            "the guest was running while its disks were copied",
        )];
        match self.by {
            By::Agent => all.push(one(
                Indication::GuestAgent,
                "the guest agent froze the file systems during the copy",
            )),
            By::Pause if self.agent_failed => all.push(one(
                Indication::QuiesceTimeout,
                "the guest agent did not freeze the file systems; the guest was paused during the \
                 copy, which is as after a power cut",
            )),
            By::Pause => all.push(one(
                Indication::NoGuestAgent,
                "there is no guest agent; the guest was paused during the copy, which is as after a \
                 power cut",
            )),
            By::User => all.push(one(
                Indication::Paused,
                "a user had paused the guest; the copy is as after a power cut",
            )),
            By::Lock => {}
        }
        all
    }
}
