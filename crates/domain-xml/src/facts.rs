//! Facts that the domain depends on besides the VMI.

use std::collections::{BTreeMap, BTreeSet};

use model::{AllocatedDevices, PciAddress, Supported};

/// Everything that a domain is rendered from.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    pub guest: &'a Supported<'a>,
    pub facts: &'a Facts,
}

/// Facts about the node, the cluster's settings and the plumbed pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    pub acceleration: Acceleration,
    /// Whether files of the pod may bypass the page cache; decides the cache mode of disks that set
    /// none.
    pub direct_io: DirectIo,
    /// Storage of volumes that the launcher does not create itself, by volume.
    pub volumes: BTreeMap<String, VolumeFacts>,
    /// Volumes that another pod brings while the guest runs.
    pub hotplugged: BTreeSet<String>,
    /// One per plugged interface of the VMI.
    pub interfaces: Vec<InterfaceFacts>,
    /// Devices of the node that the pod has.
    pub allocated: AllocatedDevices,
    /// The device behind each SR-IOV interface, by interface.
    pub virtual_functions: BTreeMap<String, PciAddress>,
    /// NUMA cells of PCI devices of the node that the pod has, as far as the kernel knows them.
    pub device_cells: BTreeMap<PciAddress, u32>,
    pub smbios: SmbiosFacts,
    /// Seconds between balloon statistics; 0 for none.
    pub balloon_stats_seconds: u32,
    /// Whether guests give back memory that they do not use.
    pub free_page_reporting: bool,
    pub efi: EfiFirmware,
    /// Block size of the file systems with the pod's own files.
    pub block_size: u32,
    /// The pod's own CPUs; of no importance to a guest that shares them.
    pub cpus: Vec<HostCpu>,
    /// The host's NUMA cells.
    pub cells: Vec<HostCell>,
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

/// A persistent volume claim or a directory of the node, as the pod mounts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VolumeFacts {
    pub mode: VolumeMode,
    pub direct_io: DirectIo,
    pub blocks: BlockSizes,
    pub provisioning: Provisioning,
    pub allocation: Allocation,
}

/// Whether freed space may be returned to the storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provisioning {
    Thin,
    /// The claim is marked as preallocated: space that a guest discards stays allocated.
    Thick,
}

/// How much of an image's size is allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allocation {
    Sparse,
    Full,
}

/// Sizes of the blocks that the storage reads, writes and discards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockSizes {
    pub logical: u32,
    pub physical: u32,
    /// Zero if the storage has none.
    pub discard: u32,
}

/// A CPU of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostCpu {
    pub id: u32,
    /// The lowest of the CPUs that share its core.
    pub core: u32,
    /// Its NUMA cell.
    pub cell: u32,
}

/// A NUMA cell of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostCell {
    pub id: u32,
    /// Distance of other cells, by cell.
    pub distances: BTreeMap<u32, u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VolumeMode {
    /// A directory with an image in it.
    Filesystem,
    /// A device.
    Block,
}

/// An interface as it is plumbed into the pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterfaceFacts {
    /// Name of the interface in the VMI.
    pub name: String,
    /// Its end in the pod; passt has none.
    pub tap: Option<String>,
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
    /// The entries of a cluster that configures none.
    pub fn defaults() -> Self {
        Self {
            manufacturer: "KubeVirt".into(),
            product: "None".into(),
            version: String::new(),
            sku: String::new(),
            family: "KubeVirt".into(),
        }
    }
}

/// Firmware files of the launcher image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EfiFirmware {
    pub code: String,
    pub vars: String,
    pub secure_code: String,
    pub secure_vars: String,
    /// For guests with AMD SEV-SNP; it keeps no variables.
    pub snp_code: String,
    /// For guests with Intel TDX; it keeps no variables.
    pub tdx_code: String,
    /// The same with signed boot loaders only.
    pub tdx_secure_code: String,
    /// For guests of arm64.
    pub arm64_code: String,
    pub arm64_vars: String,
}

impl EfiFirmware {
    /// The paths of Debian's package.
    pub fn debian() -> Self {
        Self {
            code: "/usr/share/OVMF/OVMF_CODE_4M.fd".into(),
            vars: "/usr/share/OVMF/OVMF_VARS_4M.fd".into(),
            secure_code: "/usr/share/OVMF/OVMF_CODE_4M.secboot.fd".into(),
            secure_vars: "/usr/share/OVMF/OVMF_VARS_4M.ms.fd".into(),
            snp_code: "/usr/share/ovmf/OVMF.amdsev.fd".into(),
            tdx_code: "/usr/share/ovmf/OVMF.inteltdx.fd".into(),
            tdx_secure_code: "/usr/share/ovmf/OVMF.inteltdx.secboot.fd".into(),
            arm64_code: "/usr/share/AAVMF/AAVMF_CODE.fd".into(),
            arm64_vars: "/usr/share/AAVMF/AAVMF_VARS.fd".into(),
        }
    }
}
