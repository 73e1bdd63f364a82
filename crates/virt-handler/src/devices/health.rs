//! The device list of a plugin, which follows the presence of the device.

use std::{
    fs::File,
    os::unix::fs::FileTypeExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use device_plugin::{Device, Devices, HEALTHY, UNHEALTHY};
use tokio::sync::watch;

use super::directory_watch::Changes;

/// Polling interval when the file system cannot be watched.
const POLL_INTERVAL: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Health {
    Healthy,
    Unhealthy,
}

impl Health {
    fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => HEALTHY,
            Self::Unhealthy => UNHEALTHY,
        }
    }
}

/// The list, and the task that keeps it up to date.
pub(super) fn offer(
    name: &'static str,
    path: PathBuf,
    count: u32,
    mut usable: watch::Receiver<bool>,
) -> (watch::Receiver<Devices>, impl Future<Output = ()> + Send) {
    let initial = check(&path, &mut usable);
    let (sender, receiver) = watch::channel(devices(name, count, initial));
    let updating = async move {
        let mut published = initial;
        loop {
            let changes = Changes::around(&path);
            let health = check(&path, &mut usable);
            if health != published {
                tracing::info!(
                    device = name,
                    health = health.as_str(),
                    "device health changed"
                );
                published = health;
                sender.send_replace(devices(name, count, health));
            }
            tokio::select! {
                () = changed(changes) => {}
                () = usable_changed(&mut usable) => {}
            }
        }
    };
    (receiver, updating)
}

fn check(path: &Path, usable: &mut watch::Receiver<bool>) -> Health {
    if *usable.borrow_and_update() && opens(path) {
        Health::Healthy
    } else {
        Health::Unhealthy
    }
}

/// Opens the device: a device node may exist without a loaded driver. Opening it loads the driver,
/// which a guest may not be permitted to do. A socket is there or not.
fn opens(path: &Path) -> bool {
    if path
        .metadata()
        .is_ok_and(|found| found.file_type().is_socket())
    {
        return true;
    }
    File::open(path)
        .inspect_err(
            |error| tracing::debug!(device = %path.display(), %error, "cannot open device"),
        )
        .is_ok()
}

async fn changed(changes: std::io::Result<Changes>) {
    let result = match changes {
        Ok(mut changes) => changes.next().await,
        Err(error) => Err(error),
    };
    if let Err(error) = result {
        tracing::warn!(%error, "cannot watch for devices");
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

async fn usable_changed(usable: &mut watch::Receiver<bool>) {
    if usable.changed().await.is_err() {
        // The sender was dropped: the value no longer changes.
        std::future::pending::<()>().await;
    }
}

fn devices(name: &str, count: u32, health: Health) -> Devices {
    (0..count)
        .map(|number| Device {
            id: format!("{name}{number}"),
            health: health.as_str().to_owned(),
            topology: None,
        })
        .collect()
}
