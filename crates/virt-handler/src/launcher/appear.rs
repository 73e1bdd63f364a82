//! Waiting for a file to appear, without polling.

use std::{
    io,
    path::{Path, PathBuf},
};

use futures::StreamExt;
use inotify::{Inotify, WatchMask};

/// Comes back when `path` may exist or may have been made anew: at once if it is there, else
/// after the next change to the deepest directory on its way. The caller looks again.
pub(crate) async fn appeared(path: &Path) -> io::Result<()> {
    let inotify = Inotify::init()?;
    // Watch first and look second, so that nothing slips between.
    watch_deepest(&inotify, path)?;
    if path.exists() {
        return Ok(());
    }
    changed(inotify).await
}

/// Comes back at the next change in `path`'s directory.
pub(crate) async fn replaced(path: &Path) -> io::Result<()> {
    let inotify = Inotify::init()?;
    watch_deepest(&inotify, path)?;
    changed(inotify).await
}

fn watch_deepest(inotify: &Inotify, path: &Path) -> io::Result<()> {
    let mask = WatchMask::CREATE | WatchMask::MOVED_TO | WatchMask::DELETE_SELF;
    let mut deepest: Option<PathBuf> = None;
    // Every directory on the way is watched: one made while we look is then noticed as well.
    for dir in path.ancestors().skip(1) {
        match inotify.watches().add(dir, mask | WatchMask::ONLYDIR) {
            Ok(_) => deepest = deepest.or_else(|| Some(dir.to_owned())),
            Err(err) if err.kind() == io::ErrorKind::NotFound => {}
            Err(err) => return Err(err),
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
        Some(Err(err)) => Err(err),
        Some(Ok(_)) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_file_made_three_directories_down_is_seen() {
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
