//! Connections to ports inside a pod's network, as if from within the pod.

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

/// What answers at all on the same machine answers at once.
const PATIENCE: Duration = Duration::from_secs(10);

/// The network of a pod, held for as long as somebody may want a connection.
#[derive(Debug, Clone)]
pub(super) struct PodNetwork {
    namespace: Arc<File>,
}

impl PodNetwork {
    pub(super) fn of(status: &PodStatus) -> io::Result<Self> {
        let path = format!("/proc/{}/ns/net", status.supervisor.pid);
        let namespace = File::open(path)?;
        // Numbers of processes come around again.
        if namespace.metadata()?.ino() != status.network_namespace {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(Self {
            namespace: Arc::new(namespace),
        })
    }

    /// Connects on a thread of its own, which ends right after: it is in the pod's network.
    pub(super) async fn dial(&self, port: u16) -> io::Result<TcpStream> {
        let namespace = Arc::clone(&self.namespace);
        let (answer, answered) = oneshot::channel();
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
                if answer.send(work()).is_err() {
                    tracing::debug!("nobody waits for the connection any more");
                }
            })?;
        let gone = || io::Error::other("the thread that connects has died");
        let stream = answered.await.map_err(|_| gone())??;
        stream.set_nonblocking(true)?;
        TcpStream::from_std(stream)
    }
}

/// The first that answers; else what the first of all said.
fn connect(all: &[SocketAddr]) -> io::Result<Blocking> {
    let mut first = None;
    for address in all {
        match Blocking::connect_timeout(address, PATIENCE) {
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
