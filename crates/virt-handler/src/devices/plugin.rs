//! The plugin of one resource: its socket, its registration and its allocations.

use std::{os::unix::fs::MetadataExt as _, path::PathBuf, sync::Arc, time::Duration};

use backoff::Backoff;
use device_plugin::{
    Code, ContainerAllocateRequest, ContainerAllocateResponse, DeviceSpec, Devices, KUBELET_SOCKET,
    Plugin, RegisterRequest, Status, VERSION, bind, register, serve_plugin,
};
use error_chain::error_chain;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{HostDevice, directory_watch::Changes};

/// Waits after consecutive failures.
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(10));

/// The plugin of one resource.
#[derive(Debug)]
pub(super) struct OnePlugin<P> {
    dir: PathBuf,
    request: RegisterRequest,
    allocations: Arc<P>,
    devices: watch::Receiver<Devices>,
}

/// A device node that all containers share.
#[derive(Debug)]
pub(super) struct SharedNode {
    path: PathBuf,
}

/// Why offering the device failed.
#[derive(Debug, thiserror::Error)]
enum PluginError {
    #[error("access the kubelet's plugin directory")]
    Directory(#[from] std::io::Error),
    #[error("register with the kubelet")]
    Register(#[from] Status),
    #[error("the plugin's server ended")]
    Ended,
}

impl Plugin for SharedNode {
    async fn allocate(
        &self,
        _: &ContainerAllocateRequest,
    ) -> Result<ContainerAllocateResponse, Status> {
        if !self.path.exists() {
            let message = format!("{} does not exist", self.path.display());
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

impl OnePlugin<SharedNode> {
    /// The plugin of a device node that guests share.
    pub(super) fn shared(
        dir: PathBuf,
        device: HostDevice,
        devices: watch::Receiver<Devices>,
    ) -> Self {
        let node = SharedNode {
            path: device.path().into(),
        };
        let endpoint = format!("kubevirt-{}.sock", device.name());
        Self::new(dir, device.resource(), endpoint, node, devices)
    }
}

impl<P: Plugin> OnePlugin<P> {
    /// `endpoint` is the name of the socket.
    pub(super) fn new(
        dir: PathBuf,
        resource_name: String,
        endpoint: String,
        allocations: P,
        devices: watch::Receiver<Devices>,
    ) -> Self {
        Self {
            dir,
            request: RegisterRequest {
                version: VERSION.to_owned(),
                endpoint,
                resource_name,
                options: None,
            },
            allocations: Arc::new(allocations),
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
            let Err(error) = ended else { continue };
            let resource = &self.request.resource_name;
            let error = error_chain(&error);
            let failure = failures.failed();
            tracing::warn!(
                resource,
                error,
                failures = failure.count,
                "cannot offer device to the kubelet"
            );
            let wait = failure.delay;
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Registers once a kubelet is present. Returns when the kubelet was restarted.
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
        let serving = serve_plugin(
            listener,
            Arc::clone(&self.allocations),
            self.devices.clone(),
            stop,
        );
        let registered = async {
            register(&self.dir, &self.request).await?;
            tracing::info!(
                resource = self.request.resource_name,
                "device is offered to the kubelet"
            );
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

/// Distinguishes a file from a later one of the same name. The inode number alone is not enough, as
/// it may be reused.
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

    const TIMEOUT: Duration = Duration::from_mins(1);

    #[derive(Clone)]
    struct Registered(mpsc::Sender<RegisterRequest>);

    impl Registrations for Registered {
        async fn register(&self, request: RegisterRequest) -> Result<(), Status> {
            self.0.send(request).await.unwrap();
            Ok(())
        }
    }

    /// A kubelet that starts: it removes all files in the directory, as kubelets do.
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
        let serving = kubelet.serve(Registered(sender), CancellationToken::new());
        (registered, serving)
    }

    fn plugin(dir: &Path, path: &Path, devices: watch::Receiver<Devices>) -> OnePlugin<SharedNode> {
        let mut plugin = OnePlugin::shared(dir.to_owned(), HostDevice::Tun, devices);
        plugin.allocations = Arc::new(SharedNode {
            path: path.to_owned(),
        });
        plugin
    }

    fn health(list: Option<ListAndWatchResponse>) -> (usize, String) {
        let list = list.unwrap();
        (list.devices.len(), list.devices[0].health.clone())
    }

    #[test]
    fn waits_grow_with_consecutive_failures() {
        let mut failures = BACKOFF;
        let waits: Vec<u64> = (0..6).map(|_| failures.failed().delay.as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 10, 10]);
    }

    #[tokio::test]
    async fn plugin_registers_again_after_kubelet_restart() {
        let dir = tempfile::tempdir().unwrap();
        let device = tempfile::NamedTempFile::new().unwrap();
        let usable = watch::Sender::new(true).subscribe();
        let (devices, _updating) = health::offer("tun", device.path().to_owned(), 3, usable);
        let stop = CancellationToken::new();
        let running = plugin(dir.path(), device.path(), devices).run(stop.clone());
        let restarting = async {
            for _restart in 0..3 {
                let (mut registered, serving) = start(dir.path());
                let request = tokio::select! {
                    () = serving => None,
                    request = registered.recv() => request,
                };
                let request = request.unwrap();
                assert_eq!(request.resource_name, "devices.kubevirt.io/tun");
                assert_eq!(request.endpoint, "kubevirt-tun.sock");
            }
        };
        tokio::select! {
            () = running => panic!("the plugin ended"),
            result = tokio::time::timeout(TIMEOUT, restarting) => result.unwrap(),
        }
    }

    #[tokio::test]
    async fn missing_device_is_unhealthy_until_it_returns() {
        let dir = tempfile::tempdir().unwrap();
        let devices_dir = tempfile::tempdir().unwrap();
        let path = devices_dir.path().join("deep/tun");
        let usable = watch::Sender::new(true);
        let (devices, updating) = health::offer("tun", path.clone(), 3, usable.subscribe());
        let (mut registered, serving) = start(dir.path());
        let running = plugin(dir.path(), &path, devices).run(CancellationToken::new());
        let checking = async {
            let request = registered.recv().await.unwrap();
            let client = PluginClient::connect(dir.path(), &request.endpoint)
                .await
                .unwrap();
            let mut lists = client.list_and_watch().await.unwrap();
            let request = AllocateRequest {
                container_requests: vec![ContainerAllocateRequest::default()],
            };
            assert_eq!(health(lists.next().await.unwrap()), (3, UNHEALTHY.into()));
            let refused = client.allocate(&request).await.unwrap_err();
            assert_eq!(refused.code, Code::FailedPrecondition);

            std::fs::create_dir(path.parent().unwrap()).unwrap();
            std::fs::write(&path, b"").unwrap();
            assert_eq!(health(lists.next().await.unwrap()), (3, HEALTHY.into()));
            let allocated = client.allocate(&request).await.unwrap();
            let spec = &allocated.container_responses[0].devices[0];
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
            () = updating => panic!("the health task ended"),
            checked = tokio::time::timeout(TIMEOUT, checking) => checked.unwrap(),
        }
    }
}
