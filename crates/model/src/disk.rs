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
        let (target, bus, is_read_only) = match (&spec.disk, &spec.lun, &spec.cdrom) {
            (Some(disk), _, _) => (Target::Disk, &disk.bus, disk.readonly == Some(true)),
            (None, Some(lun), _) => {
                let is_reserving = lun.reservation == Some(true);
                let target = Target::Lun { is_reserving };
                (target, &lun.bus, lun.readonly == Some(true))
            }
            (None, None, Some(cdrom)) => {
                let is_tray_open = cdrom.tray == Some(TrayState::Open);
                let target = Target::CdRom { is_tray_open };
                (target, &cdrom.bus, cdrom.readonly != Some(false))
            }
            (None, None, None) => (Target::Disk, &None, false),
        };
        Self {
            index,
            spec,
            target,
            bus: Bus::of(bus.as_ref()),
            is_read_only,
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
