//! The devices of this node that guests use, offered to the kubelet as resources
//! `devices.kubevirt.io/<name>`.
//!
//! Each device has a plugin of its own: it registers with the kubelet, and again whenever the
//! kubelet has started anew, and says of all its places at once whether the device is there. A
//! device node can be shared, so the number of places is a number of guests and no more.
//!
//! **Invariant**: nothing is kept that a restart would lose: who has what is the kubelet's to know.

mod directory;
mod health;
mod kind;
mod plugin;

use std::path::PathBuf;

use futures::future::join_all;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use kind::HostDevice;

/// What is offered, and where.
#[derive(Debug)]
pub struct DevicePlugins {
    /// The kubelet's directory of plugins, such as `/var/lib/kubelet/device-plugins`.
    pub dir: PathBuf,
    /// Guests that may use a device at once.
    pub max_devices: u32,
    pub devices: Vec<HostDevice>,
    /// Whether guests really run by KVM: a device alone does not tell.
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
            let (offer, keeping) = health::offer(
                device.name(),
                device.path().into(),
                self.max_devices,
                usable,
            );
            let plugin = plugin::OneDevice::new(self.dir.clone(), *device, offer);
            let stop = stop.clone();
            async move {
                tokio::select! {
                    () = keeping => {}
                    () = plugin.run(stop) => {}
                }
            }
        });
        join_all(plugins).await;
    }
}
