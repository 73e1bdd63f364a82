//! Network namespaces: held by a descriptor, entered on a dedicated thread.
//!
//! **Invariant**: a thread that entered a namespace ends with the closure it entered for, so nothing
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

/// A handle that keeps a network namespace alive.
#[derive(Debug, Clone)]
pub struct NetworkNamespace {
    fd: Arc<OwnedFd>,
    /// For messages.
    name: Arc<str>,
}

impl NetworkNamespace {
    /// Opens a namespace by path: a pinned one or `/proc/<pid>/ns/net`.
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

    /// From a descriptor of the namespace itself, or a pidfd of a process in it.
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

    /// Creates a namespace; it ends with the last descriptor or process that holds it.
    pub async fn create() -> Result<Self, NetError> {
        on_new_thread(move || {
            // SAFETY: a new network namespace does not affect memory safety, and the thread ends
            // right after.
            let unshared = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) };
            unshared.map_err(|errno| namespace_error("new", errno.into()))?;
            let mut namespace = Self::current()?;
            namespace.name = "new".into();
            Ok(namespace)
        })
        .await
    }

    /// Keeps the namespace under this path until [`Self::unpin`], independent of any process.
    /// Idempotent.
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

    /// Reverts [`Self::pin`]; a missing path is not an error.
    pub fn unpin(path: &Path) -> Result<(), NetError> {
        let failed = |source: io::Error| namespace_error(&path.display().to_string(), source);
        if is_pinned(path) {
            rustix::mount::unmount(path, rustix::mount::UnmountFlags::DETACH)
                .map_err(|errno| failed(errno.into()))?;
        }
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(error)),
            _ => Ok(()),
        }
    }
}

impl AsFd for NetworkNamespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Whether the path is a bind-mounted namespace and not a plain file.
fn is_pinned(path: &Path) -> bool {
    const NSFS: i64 = 0x6e73_6673;
    // The type of the magic number differs between C libraries.
    rustix::fs::statfs(path).is_ok_and(|found| i128::from(found.f_type) == i128::from(NSFS))
}

fn namespace_error(name: &str, source: io::Error) -> NetError {
    if source.kind() == io::ErrorKind::PermissionDenied {
        return NetError::NotPermitted {
            operation: format!("enter the network namespace {name}"),
        };
    }
    NetError::Namespace {
        namespace: name.to_owned(),
        source,
    }
}

/// Runs the closure inside the namespace on a dedicated thread and waits for it. Dropping the future
/// does not stop the closure.
pub async fn in_namespace<T, F>(namespace: NetworkNamespace, work: F) -> Result<T, NetError>
where
    T: Send + 'static,
    F: FnOnce(&mut Net) -> Result<T, NetError> + Send + 'static,
{
    on_new_thread(move || {
        // `setns` also accepts a pidfd, which stands for the network namespace of its process.
        rustix::thread::move_into_thread_name_spaces(
            namespace.as_fd(),
            ThreadNameSpaceType::NETWORK,
        )
        .map_err(|errno| namespace_error(&namespace.name, errno.into()))?;
        work(&mut Net::here()?)
    })
    .await
}

async fn on_new_thread<T, F>(work: F) -> Result<T, NetError>
where
    T: Send + 'static,
    F: FnOnce() -> Result<T, NetError> + Send + 'static,
{
    let (sender, result) = oneshot::channel();
    let started = std::thread::Builder::new()
        .name("netns".to_owned())
        .spawn(move || {
            let done = panics::catch(work).unwrap_or(Err(NetError::ThreadPanicked));
            if sender.send(done).is_err() {
                tracing::debug!("the caller stopped waiting for work in a network namespace");
            }
        });
    started.map_err(NetError::Socket)?;
    result.await.unwrap_or(Err(NetError::ThreadPanicked))
}
