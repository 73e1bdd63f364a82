//! Which devices there are.

/// A device node of the host that guests share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostDevice {
    Kvm,
    Tun,
    VhostNet,
    VhostVsock,
}

impl HostDevice {
    /// Those that every node offers; the others belong to a feature gate.
    pub const USUAL: [Self; 3] = [Self::Kvm, Self::Tun, Self::VhostNet];

    /// The last part of its resource name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Tun => "tun",
            Self::VhostNet => "vhost-net",
            Self::VhostVsock => "vhost-vsock",
        }
    }

    pub fn resource(self) -> String {
        format!("devices.kubevirt.io/{}", self.name())
    }

    pub fn path(self) -> &'static str {
        match self {
            Self::Kvm => "/dev/kvm",
            Self::Tun => "/dev/net/tun",
            Self::VhostNet => "/dev/vhost-net",
            Self::VhostVsock => "/dev/vhost-vsock",
        }
    }
}
