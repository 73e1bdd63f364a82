//! The plan of a guest, which the launcher carries out.

use std::net::{Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

/// The steps from an empty pod to a running guest, in this order: ask the hook sidecars, prepare, start
/// DHCP and file servers, define and start the domain. All paths are paths inside the pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GuestPlan {
    /// UID of the VMI; a plan with another UID is refused.
    pub vmi_uid: String,
    /// Domain name, `<namespace>_<vmi>`.
    pub domain_name: String,
    /// Domain UUID, equal to the firmware UUID in the XML.
    pub domain_uuid: String,
    pub domain_xml: String,
    #[serde(default)]
    pub prepare: Vec<Prepare>,
    #[serde(default)]
    pub dhcp: Vec<DhcpServer>,
    #[serde(default)]
    pub ipv6: Vec<Ipv6Server>,
    /// Directories that the guest mounts.
    #[serde(default)]
    pub filesystems: Vec<FileServer>,
    /// Processes that connect interfaces of the guest to the pod's network.
    #[serde(default)]
    pub passt: Vec<PasstServer>,
    /// The guest stays paused after its start.
    #[serde(default)]
    pub start_paused: bool,
    /// Output of the guest's serial console is copied to the pod's log.
    #[serde(default)]
    pub console_to_log: bool,
    /// Pings of the guest agent succeed without asking it. A later plan may change it.
    #[serde(default)]
    pub agent_probes_paused: bool,
    /// Keys and passwords that the guest agent sets.
    #[serde(default)]
    pub credentials: Vec<Credential>,
    /// CPUs for everything in the pod except the guest's virtual CPUs; empty for no such limit.
    #[serde(default)]
    pub separate_cpus: Vec<u32>,
    /// Metrics of the node that the guest may read.
    #[serde(default)]
    pub metrics: Option<DownwardMetrics>,
    /// Sidecars that may change the seed and the domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hooks: Option<Hooks>,
    /// Interfaces whose links go down for a moment when the guest has come from another pod, whereupon it asks for its
    /// addresses. The launcher sets them up again; the handler does if the launcher could not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refreshed_links: Vec<String>,
    /// A directory with the saved state of the guest, from which it goes on instead of booting. That state is
    /// used at most once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore: Option<String>,
    /// Of a pod that a guest moves to: the disks that are on claims. Empty if the handler is of an earlier version.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub claim_disks: Vec<ClaimDisk>,
    /// Grace period of a shutdown that the end of the pod (SIGTERM) triggers.
    pub grace_seconds: u64,
}

/// A disk on a claim, in a pod that a guest moves to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimDisk {
    /// The device name in the guest.
    pub target: String,
    /// It is another claim than in the pod that the guest leaves: it has to be copied. Otherwise it must not be.
    pub is_new: bool,
}

/// The hook sidecars of a guest, and what each of them gets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Hooks {
    pub sidecars: Vec<HookSidecar>,
    /// The VMI as JSON.
    pub vmi: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HookSidecar {
    /// Name of the container.
    pub name: String,
    /// The directory in which it opens its socket.
    pub directory: String,
}

/// A disk that a running guest gets, or the drive for a medium.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HotDisk {
    /// Name of the volume.
    pub volume: String,
    /// The device in the domain; empty for a disk that the guest has and keeps.
    pub xml: String,
    /// The file or device in it; `None` for a drive without a medium.
    #[serde(default)]
    pub source: Option<String>,
    #[serde(default)]
    pub kind: HotDiskKind,
    /// A file that must exist before.
    #[serde(default)]
    pub prepare: Option<Prepare>,
}

/// How a volume gets into a running guest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum HotDiskKind {
    /// As a new disk.
    #[default]
    Disk,
    /// As the medium of a drive that the guest has since its start.
    Medium,
}

/// A file that must exist before the domain is defined. An existing file is not changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Prepare {
    /// A writable qcow2 overlay, which is deleted with the pod.
    Overlay { path: String, backing: Backing },
    /// An empty qcow2 of that virtual size.
    EmptyDisk { path: String, bytes: u64 },
    /// An ISO 9660 image of these files.
    Seed {
        path: String,
        label: String,
        files: Vec<SeedFile>,
    },
    /// A text file, which only the launcher's user may read.
    Text { path: String, text: String },
    /// A symbolic link `path` to `target`.
    Link { path: String, target: String },
    /// An ISO 9660 image of all files of a mounted directory; they are small.
    FilesImage {
        path: String,
        label: String,
        directory: String,
    },
    /// A raw image in a directory that outlives the pod. Its content is never read.
    RawDisk {
        directory: String,
        /// Name of the file.
        name: String,
        access: DiskAccess,
    },
}

/// Access to an image of the tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum DiskAccess {
    /// It must exist, and is only read.
    Read,
    /// It must exist.
    Write,
    /// If missing or empty, it is created as a sparse file of that size; if the file system is
    /// smaller, up to the tolerated percentage smaller.
    Create {
        bytes: u64,
        /// How much smaller the file may be.
        tolerated_percent: u8,
        /// Bytes of the file system that stay free.
        reserve_bytes: u64,
    },
}

/// The backing file of an overlay. The format of a container disk is probed, since its name may be
/// wrong; an image on a claim is always raw, even if its first bytes look like another format.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Backing {
    File(String),
    /// The root of a container disk's image: the file at `path` if given, else the single file at its
    /// root, else the single file in `disk/`.
    ImageRoot {
        root: String,
        path: Option<String>,
    },
    /// A raw image of that name in the file system of a persistent volume claim.
    Claim {
        directory: String,
        name: String,
    },
    /// A persistent volume claim in block mode.
    Device(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SeedFile {
    /// Path inside the image, such as `user-data` or `openstack/latest/meta_data.json`.
    pub name: String,
    pub source: FileSource,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FileSource {
    Text(String),
    /// The first of these files that exists in the pod (a mounted secret); if none does, the start is
    /// refused.
    FirstOf(Vec<String>),
    /// A JSON object, with the public keys in all files of these directories (mounted secrets) as one
    /// more member.
    #[serde(rename_all = "camelCase")]
    WithKeys {
        object: String,
        member: String,
        directories: Vec<String>,
    },
}

/// The files of a mounted secret that the guest agent sets in the guest, and sets again when they
/// change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Credential {
    /// Public keys of these users.
    Keys {
        directory: String,
        users: Vec<String>,
    },
    /// Passwords; the names of the files are the users.
    Passwords { directory: String },
}

/// A `DHCPv4` server on one in-pod bridge, for one guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DhcpServer {
    /// The bridge, such as `k6t-eth0`.
    pub interface: String,
    /// The guest's address, `aa:bb:cc:dd:ee:ff`; the server answers no other client.
    pub client_mac: String,
    pub server: Ipv4Addr,
    pub address: Ipv4Addr,
    pub prefix_length: u8,
    pub router: Option<Ipv4Addr>,
    #[serde(default)]
    pub dns: Vec<Ipv4Addr>,
    #[serde(default)]
    pub search: Vec<String>,
    #[serde(default)]
    pub routes: Vec<Route>,
    pub mtu: u16,
    pub host_name: String,
    #[serde(default)]
    pub boot: DhcpBoot,
    #[serde(default)]
    pub ntp: Vec<Ipv4Addr>,
    /// Options that the user gave by number.
    #[serde(default)]
    pub private: Vec<PrivateOption>,
}

/// Router advertisements and a `DHCPv6` server on one in-pod bridge, for one guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ipv6Server {
    /// The tap by which the server is connected to the bridge.
    pub tap: String,
    /// The guest's address, `aa:bb:cc:dd:ee:ff`; the server answers no other client.
    pub client_mac: String,
    /// The server's own address.
    pub mac: String,
    /// `None`: the guest gets no default route.
    pub router: Option<Ipv6Router>,
    pub address: Ipv6Addr,
    pub prefix_length: u8,
    #[serde(default)]
    pub dns: Vec<Ipv6Addr>,
    #[serde(default)]
    pub search: Vec<String>,
    pub mtu: u16,
}

/// The router that a guest uses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ipv6Router {
    /// Link-local, as router advertisements require.
    pub address: Ipv6Addr,
    /// `None`: the guest asks the router for it.
    pub mac: Option<String>,
}

/// A server of a directory of the pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FileServer {
    /// Name by which the guest mounts the directory.
    pub name: String,
    /// The socket that QEMU connects to.
    pub socket: String,
    pub directory: String,
    /// The guest cannot write.
    pub is_read_only: bool,
}

/// Where the guest finds metrics of its node, and what the launcher does not know itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DownwardMetrics {
    /// Name of the node.
    pub node: String,
    /// Of the guest.
    pub virtual_cpus: u64,
    /// Of the guest.
    pub memory_bytes: u64,
    /// The disk that holds them.
    pub disk: Option<String>,
    /// The socket of the port on which the guest asks for them.
    pub port: Option<String>,
}

/// A process that connects an interface of the guest to the pod's network, with the pod's own sockets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PasstServer {
    /// Name of the guest's interface.
    pub name: String,
    /// The socket that QEMU connects to.
    pub socket: String,
    /// The pod's interface whose addresses the guest gets.
    pub pod_interface: String,
    pub mtu: u16,
    /// Ports of the pod that lead to the guest; all if unset.
    pub ports: Option<ForwardedPorts>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ForwardedPorts {
    pub tcp: Vec<PortRange>,
    pub udp: Vec<PortRange>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PortRange {
    pub first: u16,
    /// Included.
    pub last: u16,
}

/// What a guest that boots from the network loads.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DhcpBoot {
    pub server: Option<String>,
    pub file: Option<String>,
}

/// An option of the range for private use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PrivateOption {
    pub code: u8,
    pub value: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Route {
    pub destination: Ipv4Addr,
    pub prefix_length: u8,
    pub via: Ipv4Addr,
}
