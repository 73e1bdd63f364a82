//! Disks as the guest sees them; where the data comes from is in `volumes`.

#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{features::FeatureState, open_enum::open_enum};

/// `Disk`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Disk {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskTarget>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lun: Option<LunTarget>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cdrom: Option<CdRomTarget>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_order: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    #[serde(rename = "dedicatedIOThread", skip_serializing_if = "Option::is_none")]
    pub dedicated_io_thread: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<DriverCache>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io: Option<DriverIo>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_size: Option<BlockSize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shareable: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_policy: Option<DiskErrorPolicy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changed_block_tracking: Option<bool>,
}

/// `DiskTarget`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DiskTarget {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bus: Option<DiskBus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub readonly: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pci_address: Option<String>,
}

/// `LunTarget`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct LunTarget {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bus: Option<DiskBus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub readonly: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reservation: Option<bool>,
}

/// `CDRomTarget`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct CdRomTarget {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bus: Option<DiskBus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub readonly: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tray: Option<TrayState>,
}

/// `BlockSize`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct BlockSize {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub custom: Option<CustomBlockSize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub match_volume: Option<FeatureState>,
}

/// `CustomBlockSize`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct CustomBlockSize {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logical: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub physical: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub discard_granularity: Option<u64>,
}

open_enum! {
    /// Values of `DriverCache`.
    DriverCache {
        None = "none",
        Writethrough = "writethrough",
        Writeback = "writeback",
    }
}

open_enum! {
    /// Values of `DriverIO`.
    DriverIo {
        Threads = "threads",
        Native = "native",
    }
}

open_enum! {
    /// Values of `DiskErrorPolicy`.
    DiskErrorPolicy {
        Stop = "stop",
        Ignore = "ignore",
        Report = "report",
        Enospace = "enospace",
    }
}

open_enum! {
    /// Values of `DiskBus`.
    DiskBus {
        Scsi = "scsi",
        Sata = "sata",
        Virtio = "virtio",
        Usb = "usb",
    }
}

open_enum! {
    /// Values of `TrayState`.
    TrayState {
        Open = "open",
        Closed = "closed",
    }
}
