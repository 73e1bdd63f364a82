//! Network namespaces: held by a descriptor, entered on a thread of its own.
//!
//! **Invariant**: a thread that entered a namespace ends with the work it entered for, so nothing
//! else ever runs in a namespace by accident.

use std::{
    fs::File,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
    sync::Arc,
};

use rustix::thread::{ThreadNameSpaceType, UnshareFlags};
use tokio::sync::oneshot;

use crate::{Net, NetError};

/// A network namespace; it lives at least as long as this value.
#[derive(Debug, Clone)]
pub struct NetworkNamespace {
    fd: Arc<OwnedFd>,
    /// For messages.
    name: Arc<str>,
}

impl NetworkNamespace {
    /// By path: a pinned namespace or `/proc/<pid>/ns/net`.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, NetError> {
        let path = path.as_ref();
        let name = path.display().to_string();
        match File::open(path) {
            Ok(file) => Ok(Self {
                fd: Arc::new(file.into()),
                name: name.into(),
            }),
            Err(source) => Err(NetError::Namespace {
                namespace: name,
                source,
            }),
        }
    }

    /// The namespace behind a descriptor: of the namespace itself, or a pidfd of a process in it.
    pub fn of(fd: OwnedFd, name: &str) -> Self {
        Self {
            fd: Arc::new(fd),
            name: name.into(),
        }
    }

    /// The namespace of the calling thread.
    pub fn current() -> Result<Self, NetError> {
        Self::open("/proc/thread-self/ns/net")
    }

    /// A new namespace, gone with the last descriptor or process that holds it.
    pub async fn create() -> Result<Self, NetError> {
        on_a_thread(move || {
            // SAFETY: a network namespace of its own changes nothing that memory safety rests on,
            // and the thread ends right after.
            let unshared = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) };
            unshared.map_err(|errno| namespace_error("new", errno.into()))?;
            let mut namespace = Self::current()?;
            namespace.name = "new".into();
            Ok(namespace)
        })
        .await
    }

    /// Keeps the namespace under this path until [`Self::unpin`], whoever ends meanwhile. Pinning
    /// again is fine.
    pub fn pin(&self, path: &Path) -> Result<(), NetError> {
        use std::os::fd::AsRawFd as _;
        let failed = |source: io::Error| namespace_error(&path.display().to_string(), source);
        if is_pinned(path) {
            return Ok(());
        }
        File::create(path).map_err(failed)?;
        let source = format!("/proc/self/fd/{}", self.fd.as_raw_fd());
        rustix::mount::mount_bind(source, path).map_err(|errno| failed(errno.into()))
    }

    /// Takes back [`Self::pin`]; a path that is not there is fine.
    pub fn unpin(path: &Path) -> Result<(), NetError> {
        let failed = |source: io::Error| namespace_error(&path.display().to_string(), source);
        if is_pinned(path) {
            rustix::mount::unmount(path, rustix::mount::UnmountFlags::DETACH)
                .map_err(|errno| failed(errno.into()))?;
        }
        match std::fs::remove_file(path) {
            Err(err) if err.kind() != io::ErrorKind::NotFound => Err(failed(err)),
            _ => Ok(()),
        }
    }
}

impl AsFd for NetworkNamespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Whether a namespace, and not a plain file, is at the path.
fn is_pinned(path: &Path) -> bool {
    const NSFS: i64 = 0x6e73_6673;
    // The type of the magic number differs between C libraries.
    rustix::fs::statfs(path).is_ok_and(|seen| i128::from(seen.f_type) == i128::from(NSFS))
}

fn namespace_error(name: &str, source: io::Error) -> NetError {
    if source.kind() == io::ErrorKind::PermissionDenied {
        return NetError::NotPermitted {
            doing: format!("enter the network namespace {name}"),
        };
    }
    NetError::Namespace {
        namespace: name.to_owned(),
        source,
    }
}

/// Runs the work inside the namespace, on a thread of its own, and waits for it. Whoever stops
/// waiting does not stop the work: it ends by itself, soon.
pub async fn in_namespace<T, F>(namespace: NetworkNamespace, work: F) -> Result<T, NetError>
where
    T: Send + 'static,
    F: FnOnce(&mut Net) -> Result<T, NetError> + Send + 'static,
{
    on_a_thread(move || {
        // The call takes descriptors of processes too, and then means their network namespace.
        rustix::thread::move_into_thread_name_spaces(
            namespace.as_fd(),
            ThreadNameSpaceType::NETWORK,
        )
        .map_err(|errno| namespace_error(&namespace.name, errno.into()))?;
        work(&mut Net::here()?)
    })
    .await
}

async fn on_a_thread<T, F>(work: F) -> Result<T, NetError>
where
    T: Send + 'static,
    F: FnOnce() -> Result<T, NetError> + Send + 'static,
{
    let (answer, answered) = oneshot::channel();
    let started = std::thread::Builder::new()
        .name("netns".to_owned())
        .spawn(move || {
            if answer.send(work()).is_err() {
                tracing::debug!("nobody waits for the work in a namespace any more");
            }
        });
    started.map_err(NetError::Socket)?;
    answered.await.unwrap_or(Err(NetError::ThreadDied))
}
