//! One device's plugin: its socket, its registration, its answers.

use std::{os::unix::fs::MetadataExt as _, path::PathBuf, sync::Arc, time::Duration};

use backoff::Backoff;
use device_plugin::{
    Code, ContainerAllocateRequest, ContainerAllocateResponse, DeviceSpec, Devices, KUBELET_SOCKET,
    Plugin, RegisterRequest, Status, VERSION, bind, register, serve_plugin,
};
use error_chain::error_chain;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{HostDevice, directory::Changes};

/// Between attempts that fail one after another.
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(10));

/// The plugin of one device.
#[derive(Debug)]
pub(super) struct OneDevice {
    dir: PathBuf,
    request: RegisterRequest,
    node: Arc<Node>,
    devices: watch::Receiver<Devices>,
}

/// The device node that containers get.
#[derive(Debug)]
struct Node {
    path: PathBuf,
}

/// Why an attempt ended.
#[derive(Debug, thiserror::Error)]
enum PluginError {
    #[error("use the kubelet's directory of plugins")]
    Directory(#[from] std::io::Error),
    #[error("register with the kubelet")]
    Register(#[from] Status),
    #[error("the plugin's server ended")]
    Ended,
}

impl Plugin for Node {
    async fn allocate(
        &self,
        _: &ContainerAllocateRequest,
    ) -> Result<ContainerAllocateResponse, Status> {
        if !self.path.exists() {
            let message = format!("{} is not there", self.path.display());
            return Err(Status::new(Code::FailedPrecondition, message));
        }
        let path = self.path.to_string_lossy();
        Ok(ContainerAllocateResponse {
            devices: vec![DeviceSpec {
                container_path: path.clone().into_owned(),
                host_path: path.into_owned(),
                permissions: "rw".to_owned(),
            }],
            ..ContainerAllocateResponse::default()
        })
    }
}

impl OneDevice {
    pub(super) fn new(dir: PathBuf, device: HostDevice, devices: watch::Receiver<Devices>) -> Self {
        Self {
            dir,
            request: RegisterRequest {
                version: VERSION.to_owned(),
                endpoint: format!("kubevirt-{}.sock", device.name()),
                resource_name: device.resource(),
                options: None,
            },
            node: Arc::new(Node {
                path: device.path().into(),
            }),
            devices,
        }
    }

    /// Keeps the device offered until `stop`.
    pub(super) async fn run(self, stop: CancellationToken) {
        let mut failures = BACKOFF;
        loop {
            let ended = tokio::select! {
                () = stop.cancelled() => return,
                ended = self.offer(&mut failures) => ended,
            };
            let Err(err) = ended else { continue };
            let resource = &self.request.resource_name;
            let error = error_chain(&err);
            tracing::warn!(resource, error, "a device is not offered");
            let wait = failures.failed().delay;
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Registers once there is a kubelet. Comes back when there is another one.
    async fn offer(&self, failures: &mut Backoff) -> Result<(), PluginError> {
        let kubelet = self.dir.join(KUBELET_SOCKET);
        let mut changes = Changes::around(&kubelet)?;
        let Some(known) = identity(&kubelet) else {
            return Ok(changes.next().await?);
        };
        let listener = bind(&self.dir, &self.request.endpoint)?;
        let own = self.dir.join(&self.request.endpoint);
        let ours = identity(&own);
        let stop = CancellationToken::new();
        let serving = serve_plugin(listener, Arc::clone(&self.node), self.devices.clone(), stop);
        let registered = async {
            register(&self.dir, &self.request).await?;
            tracing::info!(resource = self.request.resource_name, "offered");
            failures.reset();
            while identity(&kubelet) == Some(known) && identity(&own) == ours {
                changes.next().await?;
            }
            Ok(())
        };
        tokio::select! {
            () = serving => Err(PluginError::Ended),
            ended = registered => ended,
        }
    }
}

/// Tells a file from another one that took its name later. Numbers of inodes are used again.
fn identity(path: &std::path::Path) -> Option<(u64, u64, i64, i64)> {
    let meta = path.symlink_metadata().ok()?;
    Some((meta.dev(), meta.ino(), meta.mtime(), meta.mtime_nsec()))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use device_plugin::{
        AllocateRequest, HEALTHY, Kubelet, ListAndWatchResponse, PluginClient, Registrations,
        UNHEALTHY,
    };
    use tokio::sync::mpsc;

    use super::*;
    use crate::devices::health;

    const PATIENCE: Duration = Duration::from_secs(20);

    #[derive(Clone)]
    struct Book(mpsc::Sender<RegisterRequest>);

    impl Registrations for Book {
        async fn register(&self, request: RegisterRequest) -> Result<(), Status> {
            self.0.send(request).await.unwrap();
            Ok(())
        }
    }

    /// A kubelet that starts: it removes what it finds, as kubelets do.
    fn start(
        dir: &Path,
    ) -> (
        mpsc::Receiver<RegisterRequest>,
        impl Future<Output = ()> + use<>,
    ) {
        for entry in std::fs::read_dir(dir).unwrap() {
            std::fs::remove_file(entry.unwrap().path()).unwrap();
        }
        let (sender, registered) = mpsc::channel(4);
        let kubelet = Kubelet::new(bind(dir, KUBELET_SOCKET).unwrap());
        let serving = kubelet.serve(Book(sender), CancellationToken::new());
        (registered, serving)
    }

    fn plugin(dir: &Path, path: &Path, devices: watch::Receiver<Devices>) -> OneDevice {
        let mut plugin = OneDevice::new(dir.to_owned(), HostDevice::Tun, devices);
        plugin.node = Arc::new(Node {
            path: path.to_owned(),
        });
        plugin
    }

    fn health(list: Option<ListAndWatchResponse>) -> (usize, String) {
        let list = list.unwrap();
        (list.devices.len(), list.devices[0].health.clone())
    }

    #[test]
    fn failures_are_answered_by_longer_waits() {
        let mut failures = BACKOFF;
        let waits: Vec<u64> = (0..6).map(|_| failures.failed().delay.as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 10, 10]);
    }

    #[tokio::test]
    async fn a_kubelet_that_starts_anew_is_told_again() {
        let dir = tempfile::tempdir().unwrap();
        let device = tempfile::NamedTempFile::new().unwrap();
        let usable = watch::Sender::new(true).subscribe();
        let (devices, _keeping) = health::offer("tun", device.path().to_owned(), 3, usable);
        let stop = CancellationToken::new();
        let running = plugin(dir.path(), device.path(), devices).run(stop.clone());
        let telling = async {
            for _life in 0..3 {
                let (mut registered, serving) = start(dir.path());
                let told = tokio::select! {
                    () = serving => None,
                    told = registered.recv() => told,
                };
                let told = told.unwrap();
                assert_eq!(told.resource_name, "devices.kubevirt.io/tun");
                assert_eq!(told.endpoint, "kubevirt-tun.sock");
            }
        };
        tokio::select! {
            () = running => panic!("the plugin ended"),
            told = tokio::time::timeout(PATIENCE, telling) => told.unwrap(),
        }
    }

    #[tokio::test]
    async fn a_device_that_goes_is_unhealthy_until_it_comes_back() {
        let dir = tempfile::tempdir().unwrap();
        let devices_dir = tempfile::tempdir().unwrap();
        let path = devices_dir.path().join("deep/tun");
        let usable = watch::Sender::new(true);
        let (devices, keeping) = health::offer("tun", path.clone(), 3, usable.subscribe());
        let (mut registered, serving) = start(dir.path());
        let running = plugin(dir.path(), &path, devices).run(CancellationToken::new());
        let checking = async {
            let told = registered.recv().await.unwrap();
            let client = PluginClient::connect(dir.path(), &told.endpoint)
                .await
                .unwrap();
            let mut lists = client.list_and_watch().await.unwrap();
            let ask = AllocateRequest {
                container_requests: vec![ContainerAllocateRequest::default()],
            };
            assert_eq!(health(lists.next().await.unwrap()), (3, UNHEALTHY.into()));
            let refused = client.allocate(&ask).await.unwrap_err();
            assert_eq!(refused.code, Code::FailedPrecondition);

            std::fs::create_dir(path.parent().unwrap()).unwrap();
            std::fs::write(&path, b"").unwrap();
            assert_eq!(health(lists.next().await.unwrap()), (3, HEALTHY.into()));
            let given = client.allocate(&ask).await.unwrap();
            let spec = &given.container_responses[0].devices[0];
            assert_eq!(Path::new(&spec.host_path), path);
            assert_eq!(spec.permissions, "rw");

            usable.send_replace(false);
            assert_eq!(health(lists.next().await.unwrap()), (3, UNHEALTHY.into()));
            usable.send_replace(true);
            assert_eq!(health(lists.next().await.unwrap()), (3, HEALTHY.into()));
            std::fs::remove_file(&path).unwrap();
            assert_eq!(health(lists.next().await.unwrap()), (3, UNHEALTHY.into()));
        };
        tokio::select! {
            () = running => panic!("the plugin ended"),
            () = serving => panic!("the kubelet ended"),
            () = keeping => panic!("nobody looks after the device"),
            checked = tokio::time::timeout(PATIENCE, checking) => checked.unwrap(),
        }
    }
}
