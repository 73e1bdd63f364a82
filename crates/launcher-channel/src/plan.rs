//! The guest as the launcher is told to make it.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

/// Everything between an empty pod and a running guest, in the order it is done: prepare, DHCP,
/// define and start. All paths are paths inside the pod.
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
    /// Leave the guest paused after its start.
    #[serde(default)]
    pub start_paused: bool,
    /// What the guest prints on its serial console goes to the pod's log as well.
    #[serde(default)]
    pub console_to_log: bool,
    /// Grace of a shutdown that the pod's own end (SIGTERM) asks for.
    pub grace_seconds: u64,
}

/// A file to have before the domain is defined. One that exists already is left as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Prepare {
    /// A qcow2 overlay, writable and thrown away with the pod.
    Overlay { path: String, backing: Backing },
    /// An empty qcow2 of that virtual size.
    EmptyDisk { path: String, bytes: u64 },
    /// An ISO 9660 image that holds these files.
    Seed {
        path: String,
        label: String,
        files: Vec<SeedFile>,
    },
    /// A symbolic link `path` to `target`.
    Link { path: String, target: String },
    /// An ISO 9660 image of all files of a mounted directory, small ones all of them.
    FilesImage {
        path: String,
        label: String,
        directory: String,
    },
    /// A raw image in a directory that outlives the pod. Nothing about its content is read.
    RawDisk {
        directory: String,
        /// A plain name in it.
        name: String,
        access: DiskAccess,
    },
}

/// What is to be done with an image that is not ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum DiskAccess {
    /// It is there, and only read.
    Read,
    /// It is there.
    Write,
    /// Made when it is missing or empty: sparse, of that size, or as far below it as is tolerated
    /// when the filesystem is smaller.
    Create {
        bytes: u64,
        /// How much of the size may be missing.
        tolerated_percent: u8,
        /// Bytes of the filesystem that stay free.
        reserve_bytes: u64,
    },
}

/// What lies under an overlay. The format of an image from outside is probed, never believed;
/// what a tenant keeps on a claim is raw, whatever its first bytes look like.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Backing {
    File(String),
    /// The root of a container disk's image: the named file if `path` is given, else the single
    /// file at its root, else the single file in `disk/`.
    ImageRoot {
        root: String,
        path: Option<String>,
    },
    /// A raw image of that plain name in a claim's filesystem.
    Claim {
        directory: String,
        name: String,
    },
    /// A claim that is a block device.
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
    /// The first of these files that exists in the pod (a mounted secret); none: the file is
    /// missing and the start is refused.
    FirstOf(Vec<String>),
}

/// A `DHCPv4` server on one in-pod bridge, for one guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DhcpServer {
    /// The bridge, such as `k6t-eth0`.
    pub interface: String,
    /// Only this guest is answered, `aa:bb:cc:dd:ee:ff`.
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
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Route {
    pub destination: Ipv4Addr,
    pub prefix_length: u8,
    pub via: Ipv4Addr,
}
