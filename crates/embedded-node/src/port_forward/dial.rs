//! Connects to ports in a pod's network namespace.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream as Blocking};
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::time::Duration;

use pod_supervisor::status::PodStatus;
use rustix::thread::ThreadNameSpaceType;
use tokio::net::TcpStream;
use tokio::sync::oneshot;

/// Local connections normally succeed or fail at once.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The network namespace of a pod, kept open for further connections.
#[derive(Debug, Clone)]
pub(super) struct PodNetwork {
    namespace: Arc<File>,
}

impl PodNetwork {
    pub(super) fn of(status: &PodStatus) -> io::Result<Self> {
        let path = format!("/proc/{}/ns/net", status.supervisor.pid);
        let namespace = File::open(path)?;
        // The process ID may have been reused.
        if namespace.metadata()?.ino() != status.network_namespace {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(Self {
            namespace: Arc::new(namespace),
        })
    }

    /// Connects on a new thread, which enters the pod's network namespace and then ends.
    pub(super) async fn dial(&self, port: u16) -> io::Result<TcpStream> {
        let namespace = Arc::clone(&self.namespace);
        let (sender, receiver) = oneshot::channel();
        let work = move || {
            rustix::thread::move_into_thread_name_spaces(
                namespace.as_fd(),
                ThreadNameSpaceType::NETWORK,
            )?;
            let localhost = [
                SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
                SocketAddr::from((Ipv6Addr::LOCALHOST, port)),
            ];
            connect(&localhost)
        };
        std::thread::Builder::new()
            .name("port-forward".to_owned())
            .spawn(move || {
                if sender.send(panics::catch_io(work)).is_err() {
                    tracing::debug!("client disconnected before the connection was made");
                }
            })?;
        let stream = receiver.await.map_err(io::Error::other)??;
        stream.set_nonblocking(true)?;
        TcpStream::from_std(stream)
    }
}

/// Connects to the first address that accepts; returns the error of the first otherwise.
fn connect(all: &[SocketAddr]) -> io::Result<Blocking> {
    let mut first = None;
    for address in all {
        match Blocking::connect_timeout(address, TIMEOUT) {
            Ok(stream) => return Ok(stream),
            Err(error) => {
                first.get_or_insert_with(|| {
                    io::Error::new(error.kind(), format!("connect to {address}: {error}"))
                });
            }
        }
    }
    Err(first.unwrap_or_else(|| io::ErrorKind::AddrNotAvailable.into()))
}
