//! Waiting for a file to appear, by inotify.

use std::{
    io,
    path::{Path, PathBuf},
};

use futures::StreamExt;
use inotify::{Inotify, WatchMask};

/// Returns when `path` may exist: at once if it does, else after the next change to its deepest
/// existing ancestor. The caller checks again.
pub(crate) async fn appeared(path: &Path) -> io::Result<()> {
    let inotify = Inotify::init()?;
    // Watch before checking, so that no change is missed between the two.
    watch_deepest(&inotify, path)?;
    if path.exists() {
        return Ok(());
    }
    changed(inotify).await
}

/// Returns at the next change in `path`'s directory.
pub(crate) async fn replaced(path: &Path) -> io::Result<()> {
    let inotify = Inotify::init()?;
    watch_deepest(&inotify, path)?;
    changed(inotify).await
}

fn watch_deepest(inotify: &Inotify, path: &Path) -> io::Result<()> {
    let mask = WatchMask::CREATE | WatchMask::MOVED_TO | WatchMask::DELETE_SELF;
    let mut deepest: Option<PathBuf> = None;
    // All ancestors are watched, so that a directory created in between is noticed.
    for dir in path.ancestors().skip(1) {
        match inotify.watches().add(dir, mask | WatchMask::ONLYDIR) {
            Ok(_) => deepest = deepest.or_else(|| Some(dir.to_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        if deepest.as_deref().is_some_and(Path::exists) {
            return Ok(());
        }
    }
    Ok(())
}

async fn changed(inotify: Inotify) -> io::Result<()> {
    let mut events = inotify.into_event_stream([0; 1024])?;
    match events.next().await {
        Some(Err(error)) => Err(error),
        Some(Ok(_)) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn file_in_new_nested_directories_is_noticed() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a/b/sock");
        let waiting = async {
            while !path.exists() {
                appeared(&path).await.unwrap();
            }
        };
        let making = async {
            std::fs::create_dir(root.path().join("a")).unwrap();
            tokio::task::yield_now().await;
            std::fs::create_dir(root.path().join("a/b")).unwrap();
            tokio::task::yield_now().await;
            std::fs::write(&path, b"").unwrap();
        };
        let both = futures::future::join(waiting, making);
        tokio::time::timeout(Duration::from_secs(10), both)
            .await
            .unwrap();
    }
}
