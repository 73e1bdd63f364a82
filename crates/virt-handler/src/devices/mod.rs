//! The devices of this node that guests use, offered to the kubelet as resources
//! `devices.kubevirt.io/<name>`.
//!
//! Each device has its own plugin, which registers with the kubelet at start and after each restart of
//! the kubelet. A device node can be shared, so a plugin offers one slot per possible guest; all slots
//! are healthy if the device is present.
//!
//! **Invariant**: no state that a restart would lose, as the kubelet records the allocations; except which USB
//! devices are one unit (`permitted/usb.rs`).

mod directory_watch;
mod health;
mod host_device;
mod mediated;
mod numa;
mod permitted;
mod plugin;
mod sysfs;

use std::path::PathBuf;

use futures::future::join_all;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use host_device::HostDevice;
pub use mediated::MediatedDevices;
pub(crate) use numa::{SYS, numa_cells};
pub use permitted::{DeviceFiles, PermittedDevices};

/// The devices to offer, and where.
#[derive(Debug)]
pub struct DevicePlugins {
    /// The kubelet's directory of plugins, such as `/var/lib/kubelet/device-plugins`.
    pub dir: PathBuf,
    /// Number of guests that may use a device concurrently.
    pub max_devices: u32,
    pub devices: Vec<HostDevice>,
    /// Whether guests can run under KVM: the device alone does not prove it.
    pub kvm: watch::Receiver<bool>,
}

impl DevicePlugins {
    /// Offers the devices until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        let plugins = self.devices.iter().map(|device| {
            let usable = match device {
                HostDevice::Kvm => self.kvm.clone(),
                _ => watch::Sender::new(true).subscribe(),
            };
            let (list, updating) = health::offer(
                device.name(),
                device.path().into(),
                self.max_devices,
                usable,
            );
            let plugin = plugin::OnePlugin::shared(self.dir.clone(), *device, list);
            let stop = stop.clone();
            async move {
                tokio::select! {
                    () = updating => {}
                    () = plugin.run(stop) => {}
                }
            }
        });
        join_all(plugins).await;
    }
}
