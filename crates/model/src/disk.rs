//! Disks: how the guest sees a volume.

use kubevirt_api::disks::{self as wire, DiskBus, TrayState};

/// A disk of the VMI.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Disk<'a> {
    /// Position in `spec.domain.devices.disks`.
    pub index: usize,
    pub spec: &'a wire::Disk,
    pub target: Target,
    pub bus: Bus<'a>,
    /// The guest cannot write to it.
    pub is_read_only: bool,
}

/// The kind of device that the guest sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    Disk,
    /// A device whose SCSI commands pass through to the storage.
    Lun {
        /// The guest makes persistent reservations.
        is_reserving: bool,
    },
    CdRom {
        is_tray_open: bool,
    },
}

/// A device as the wire type gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Device<'a> {
    pub target: Target,
    pub bus: Option<&'a DiskBus>,
    pub is_read_only: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bus<'a> {
    Virtio,
    Sata,
    Scsi,
    Usb,
    Unknown(&'a str),
}

impl<'a> Disk<'a> {
    pub(crate) fn of(index: usize, spec: &'a wire::Disk) -> Self {
        let device = Device::all(spec).next().unwrap_or(Device::DEFAULT);
        Self {
            index,
            spec,
            target: device.target,
            bus: Bus::of(device.bus),
            is_read_only: device.is_read_only,
        }
    }

    /// Name of the disk and of its volume.
    pub fn name(&self) -> &'a str {
        &self.spec.name
    }

    /// Path of one of its members in the VMI.
    pub fn field(&self, member: &str) -> String {
        format!("spec.domain.devices.disks[{}].{member}", self.index)
    }
}

impl<'a> Device<'a> {
    /// Of a disk that names none.
    const DEFAULT: Self = Self {
        target: Target::Disk,
        bus: None,
        is_read_only: false,
    };

    /// Every device that the wire type carries, in order of precedence; admission refuses more than
    /// one.
    pub fn all(spec: &'a wire::Disk) -> impl Iterator<Item = Self> {
        let disk = spec.disk.as_ref().map(|disk| Self {
            target: Target::Disk,
            bus: disk.bus.as_ref(),
            is_read_only: disk.readonly == Some(true),
        });
        let lun = spec.lun.as_ref().map(|lun| Self {
            target: Target::Lun {
                is_reserving: lun.reservation == Some(true),
            },
            bus: lun.bus.as_ref(),
            is_read_only: lun.readonly == Some(true),
        });
        let cdrom = spec.cdrom.as_ref().map(|cdrom| Self {
            target: Target::CdRom {
                is_tray_open: cdrom.tray == Some(TrayState::Open),
            },
            bus: cdrom.bus.as_ref(),
            is_read_only: cdrom.readonly != Some(false),
        });
        [disk, lun, cdrom].into_iter().flatten()
    }
}

impl Target {
    /// Name of the member of the wire type.
    pub fn member(self) -> &'static str {
        match self {
            Self::Disk => "disk",
            Self::Lun { .. } => "lun",
            Self::CdRom { .. } => "cdrom",
        }
    }
}

impl<'a> Bus<'a> {
    fn of(bus: Option<&'a DiskBus>) -> Self {
        match bus {
            None | Some(DiskBus::Sata) => Self::Sata,
            Some(DiskBus::Virtio) => Self::Virtio,
            Some(DiskBus::Scsi) => Self::Scsi,
            Some(DiskBus::Usb) => Self::Usb,
            Some(DiskBus::Other(name)) => Self::Unknown(name),
        }
    }

    pub fn as_str(self) -> &'a str {
        match self {
            Self::Virtio => "virtio",
            Self::Sata => "sata",
            Self::Scsi => "scsi",
            Self::Usb => "usb",
            Self::Unknown(name) => name,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn target_bus_and_access_follow_from_the_given_device() {
        let lun = |is_reserving| Target::Lun { is_reserving };
        let cdrom = |is_tray_open| Target::CdRom { is_tray_open };
        let cases: [(Value, Target, Bus<'_>, bool); 8] = [
            (json!({}), Target::Disk, Bus::Sata, false),
            (
                json!({"disk": {"bus": "virtio"}}),
                Target::Disk,
                Bus::Virtio,
                false,
            ),
            (
                json!({"disk": {"readonly": true}}),
                Target::Disk,
                Bus::Sata,
                true,
            ),
            (
                json!({"lun": {"bus": "scsi"}}),
                lun(false),
                Bus::Scsi,
                false,
            ),
            (
                json!({"lun": {"reservation": true}}),
                lun(true),
                Bus::Sata,
                false,
            ),
            (json!({"cdrom": {}}), cdrom(false), Bus::Sata, true),
            (
                json!({"cdrom": {"tray": "open", "readonly": false}}),
                cdrom(true),
                Bus::Sata,
                false,
            ),
            (
                json!({"disk": {"bus": "ide"}}),
                Target::Disk,
                Bus::Unknown("ide"),
                false,
            ),
        ];
        for (spec, target, bus, is_read_only) in cases {
            let spec: wire::Disk = serde_json::from_value(spec).expect("a disk");
            let disk = Disk::of(0, &spec);
            let found = (disk.target, disk.bus, disk.is_read_only);
            assert_eq!(found, (target, bus, is_read_only), "{spec:?}");
        }
    }
}
