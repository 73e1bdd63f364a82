//! What must be known besides the VMI.

use std::collections::BTreeMap;

use kubevirt_api::VirtualMachineInstance;

/// All that a domain is rendered from.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    pub vmi: &'a VirtualMachineInstance,
    pub facts: &'a Facts,
}

/// About the node, the cluster's settings and the plumbed pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    pub acceleration: Acceleration,
    /// Whether files of the pod may be opened past the page cache; decides the cache mode of
    /// disks that ask for none.
    pub direct_io: DirectIo,
    /// What the pod has behind volumes that are not made in it, by volume.
    pub volumes: BTreeMap<String, VolumeFacts>,
    /// One per interface of the VMI that is to be in the domain.
    pub interfaces: Vec<InterfaceFacts>,
    pub smbios: SmbiosFacts,
    /// Seconds between balloon statistics; 0 for none.
    pub balloon_stats_seconds: u32,
    pub efi: EfiFirmware,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acceleration {
    Kvm,
    /// Software emulation.
    Emulation,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DirectIo {
    Supported,
    Unsupported,
}

/// A claim or a directory of the node, as the pod has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VolumeFacts {
    pub mode: VolumeMode,
    pub direct_io: DirectIo,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VolumeMode {
    /// A directory with an image in it.
    Filesystem,
    /// A device.
    Block,
}

/// An interface as the pod has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterfaceFacts {
    /// Name of the interface in the VMI.
    pub name: String,
    pub tap: String,
    pub mac: String,
    pub mtu: u16,
}

/// The cluster's SMBIOS entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SmbiosFacts {
    pub manufacturer: String,
    pub product: String,
    pub version: String,
    pub sku: String,
    pub family: String,
}

impl SmbiosFacts {
    /// What guests see when the cluster says nothing.
    pub fn usual() -> Self {
        Self {
            manufacturer: "KubeVirt".into(),
            product: "None".into(),
            version: String::new(),
            sku: String::new(),
            family: "KubeVirt".into(),
        }
    }
}

/// Files of the launcher image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EfiFirmware {
    pub code: String,
    pub vars: String,
    pub secure_code: String,
    pub secure_vars: String,
}

impl EfiFirmware {
    /// Where Debian keeps them.
    pub fn debian() -> Self {
        Self {
            code: "/usr/share/OVMF/OVMF_CODE_4M.fd".into(),
            vars: "/usr/share/OVMF/OVMF_VARS_4M.fd".into(),
            secure_code: "/usr/share/OVMF/OVMF_CODE_4M.secboot.fd".into(),
            secure_vars: "/usr/share/OVMF/OVMF_VARS_4M.ms.fd".into(),
        }
    }
}
