//! Whether a device is there: the list that a plugin shows.

use std::{
    fs::File,
    path::{Path, PathBuf},
    time::Duration,
};

use device_plugin::{Device, Devices, HEALTHY, UNHEALTHY};
use tokio::sync::watch;

use super::directory::Changes;

/// When the file system cannot be watched.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// The list, and the task that keeps it true.
pub(super) fn offer(
    name: &'static str,
    path: PathBuf,
    count: u32,
    mut usable: watch::Receiver<bool>,
) -> (watch::Receiver<Devices>, impl Future<Output = ()> + Send) {
    let healthy = *usable.borrow_and_update() && opens(&path);
    let (sender, receiver) = watch::channel(devices(name, count, healthy));
    let keeping = async move {
        let mut shown = healthy;
        loop {
            let changes = Changes::around(&path);
            let healthy = *usable.borrow_and_update() && opens(&path);
            if healthy != shown {
                tracing::info!(device = name, healthy, "a device changed");
                shown = healthy;
                sender.send_replace(devices(name, count, healthy));
            }
            tokio::select! {
                () = changed(changes) => {}
                () = news(&mut usable) => {}
            }
        }
    };
    (receiver, keeping)
}

/// A device node may be there without a driver behind it. Opening it loads the driver, which a guest may
/// not be allowed to cause.
fn opens(path: &Path) -> bool {
    File::open(path)
        .inspect_err(|err| tracing::debug!(device = %path.display(), %err, "not offered now"))
        .is_ok()
}

async fn changed(changes: std::io::Result<Changes>) {
    let seen = match changes {
        Ok(mut changes) => changes.next().await,
        Err(err) => Err(err),
    };
    if let Err(err) = seen {
        tracing::warn!(%err, "cannot watch for devices");
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

async fn news(usable: &mut watch::Receiver<bool>) {
    if usable.changed().await.is_err() {
        // Nobody will say anything else.
        std::future::pending::<()>().await;
    }
}

fn devices(name: &str, count: u32, healthy: bool) -> Devices {
    let health = if healthy { HEALTHY } else { UNHEALTHY };
    (0..count)
        .map(|number| Device {
            id: format!("{name}{number}"),
            health: health.to_owned(),
            topology: None,
        })
        .collect()
}
