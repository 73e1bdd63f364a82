//! Watching a directory for created and deleted files.

use std::{io, path::Path};

use futures::StreamExt as _;
use inotify::{EventStream, Inotify, WatchMask};

/// Changes in a path's deepest existing parent directory.
pub(super) struct Changes(EventStream<[u8; 1024]>);

impl Changes {
    /// Create this before checking the path, so that no change is missed between the two.
    pub(super) fn around(path: &Path) -> io::Result<Self> {
        let inotify = Inotify::init()?;
        let mask = WatchMask::CREATE
            | WatchMask::DELETE
            | WatchMask::MOVE
            | WatchMask::DELETE_SELF
            | WatchMask::ONLYDIR;
        for dir in path.ancestors().skip(1) {
            match inotify.watches().add(dir, mask) {
                Ok(_) => return Ok(Self(inotify.into_event_stream([0; 1024])?)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::NotFound.into())
    }

    pub(super) async fn next(&mut self) -> io::Result<()> {
        match self.0.next().await {
            Some(Err(error)) => Err(error),
            Some(Ok(_)) | None => Ok(()),
        }
    }
}
