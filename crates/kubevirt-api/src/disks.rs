//! Disks as the guest sees them; where the data comes from is in `volumes`.

#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[cfg(feature = "schema")]
use crate::crds::rules;
use crate::tolerant::null_as_default;
use crate::{features::FeatureState, open_enum::open_enum};

/// A disk as the guest sees it: one of disk, lun and cdrom.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-validations" = [rules::at_most_one(&["disk", "lun", "cdrom"])])))]
pub struct Disk {
    /// Name of the volume that it shows.
    #[serde(deserialize_with = "null_as_default")]
    pub name: String,
    /// An ordinary disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskTarget>,
    /// A SCSI LUN handed through with its commands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lun: Option<LunTarget>,
    /// A CD-ROM drive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cdrom: Option<CdRomTarget>,
    /// Place in the boot order, from 1; unique over disks and interfaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_order: Option<u64>,
    /// Serial number the guest reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// Dedicates an I/O thread to this disk; virtio only.
    #[serde(rename = "dedicatedIOThread", skip_serializing_if = "Option::is_none")]
    pub dedicated_io_thread: Option<bool>,
    /// none, writethrough or writeback.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<DriverCache>,
    /// native or threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io: Option<DriverIo>,
    /// Tag shown in the guest's metadata.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// Block sizes shown to the guest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_size: Option<BlockSize>,
    /// Lets several guests open the volume at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shareable: Option<bool>,
    /// What an I/O error does: stop (the default), ignore, report or enospace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_policy: Option<DiskErrorPolicy>,
    /// Keeps a record of changed blocks for incremental backups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changed_block_tracking: Option<bool>,
}

/// An ordinary disk.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DiskTarget {
    /// virtio (quickest), sata, scsi or usb.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bus: Option<DiskBus>,
    /// Refuses writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub readonly: Option<bool>,
    /// Fixed PCI address, such as 0000:81:01.0; virtio only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pci_address: Option<String>,
}

/// A SCSI LUN.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct LunTarget {
    /// Only scsi makes sense.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bus: Option<DiskBus>,
    /// Refuses writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub readonly: Option<bool>,
    /// Lets the guest make persistent reservations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reservation: Option<bool>,
}

/// A CD-ROM drive.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct CdRomTarget {
    /// sata (the default on amd64), scsi or usb.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bus: Option<DiskBus>,
    /// On unless switched off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub readonly: Option<bool>,
    /// Whether the tray starts open or closed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tray: Option<TrayState>,
}

/// Block sizes; one of custom and `matchVolume`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct BlockSize {
    /// Sizes given by hand.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub custom: Option<CustomBlockSize>,
    /// Takes the sizes of the volume below.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub match_volume: Option<FeatureState>,
}

/// `custom` of [`BlockSize`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct CustomBlockSize {
    /// Smallest unit that can be addressed, in bytes; a power of two from 512 to 2097152.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logical: Option<u64>,
    /// Smallest unit that can be written without reading first, in bytes; not below logical.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub physical: Option<u64>,
    /// Smallest unit that can be given back, in bytes; a multiple of logical.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub discard_granularity: Option<u64>,
}

open_enum! {
    /// How the host caches a disk.
    DriverCache {
        None = "none",
        Writethrough = "writethrough",
        Writeback = "writeback",
    }
}

open_enum! {
    /// How the host does a disk's I/O.
    DriverIo {
        Threads = "threads",
        Native = "native",
    }
}

open_enum! {
    /// What an I/O error does.
    DiskErrorPolicy {
        Stop = "stop",
        Ignore = "ignore",
        Report = "report",
        Enospace = "enospace",
    }
}

open_enum! {
    /// Bus that a disk hangs on.
    DiskBus {
        Scsi = "scsi",
        Sata = "sata",
        Virtio = "virtio",
        Usb = "usb",
    }
}

open_enum! {
    /// Values of `tray`.
    TrayState {
        Open = "open",
        Closed = "closed",
    }
}
