//! The messages between `virt-handler` and `virt-launcher`, and how they are framed.
//!
//! The launcher listens on a unix socket in its pod; the handler connects, one connection at a
//! time. The handler sends [`Request`]s, and the launcher answers each with a [`Reply`] of the same
//! number; a binary answer comes as several, each with a [`Part`]. The launcher also sends its [`GuestState`] after every change. The launcher knows nothing
//! of Kubernetes; the handler renders everything that it needs into a [`GuestPlan`].
//!
//! **Invariants**: both ends may be killed at any byte; every request may be repeated; a frame has at
//! most [`MAX_FRAME`] bytes; unknown members are ignored, so that the two ends may differ in version.

mod agent;
mod backup;
mod backup_manifest;
mod content;
mod dump;
mod frame;
mod interfaces;
mod message;
mod migration;
mod plan;
mod size;

pub use agent::{
    Agent, AgentCommand, AgentCredentials, AgentDisk, AgentFileSystem, AgentInterface, AgentOs,
    AgentQuestion, AgentReport, AgentUser,
};
pub use backup::{
    BACKUP_DRAFT, BACKUP_MANIFEST, BACKUP_SOCKET, BackupPlan, BackupReport, BackupStage, Lineage,
    MAX_INCREMENTS, Quiesce, backup_file, is_plain_name,
};
pub use backup_manifest::{
    BackedUpVolume, BackupKind, BackupManifest, MAX_BACKUP_MANIFEST, ManifestError,
};
pub use content::{MAX_PART, Part};
pub use dump::{DUMP_SUFFIX, DumpPlan, DumpReport, DumpStage, SAVED_SUFFIX};
pub use frame::{FrameError, MAX_FRAME, MAX_FROM_LAUNCHER, read_frame, write_frame};
pub use interfaces::{HotInterface, InterfacePlan};
pub use message::{
    DomainState, FromLauncher, GuestState, InterfaceLink, Reply, Request, StopReason, ToLauncher,
};
pub use migration::{
    MAX_PARALLEL_CONNECTIONS, MigrationCompression, MigrationPlan, MigrationProgress,
    MigrationReport, MigrationSocket, MigrationStage,
};
pub use plan::{
    Backing, ClaimDisk, Credential, DhcpBoot, DhcpServer, DiskAccess, DownwardMetrics, FileServer,
    FileSource, ForwardedPorts, GuestPlan, HookSidecar, Hooks, HotDisk, HotDiskKind, Ipv6Router,
    Ipv6Server, PasstServer, PortRange, Prepare, PrivateOption, Route, SeedFile,
};
pub use size::{GuestSize, MemoryPlan, ResizePlan};

/// Volumes that are attached while the guest runs, as a path inside the pod.
pub const HOTPLUG_DISKS: &str = "/var/run/kubevirt/hotplug-disks";

/// The directory of a hook sidecar's socket, as a path inside its container.
pub const HOOKS: &str = "/var/run/kubevirt-hooks";

/// The socket of a pod that brings volumes, as a path inside the pod. Nothing is said over it: whoever
/// listens is a process of the pod.
pub const ATTACHMENT_SOCKET: &str = "/path/hp.sock";

/// The launcher's socket, as a path inside the pod.
pub const SOCKET_PATH: &str = "/var/run/kubevirt/sockets/launcher-sock";
