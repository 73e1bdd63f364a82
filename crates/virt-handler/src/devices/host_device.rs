//! The host devices that guests use.

/// A device node of the host, shared by guests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostDevice {
    Kvm,
    Tun,
    VhostNet,
    VhostVsock,
}

impl HostDevice {
    /// The devices that every node offers. Admission requires a feature gate for VMs that use a vsock.
    pub const USUAL: [Self; 4] = [Self::Kvm, Self::Tun, Self::VhostNet, Self::VhostVsock];

    /// The last part of the resource name.
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
