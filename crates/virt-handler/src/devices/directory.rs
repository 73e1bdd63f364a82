//! Noticing that files come and go.

use std::{io, path::Path};

use futures::StreamExt as _;
use inotify::{EventStream, Inotify, WatchMask};

/// Changes in the directory of a path, or in the deepest one above that exists.
pub(super) struct Changes(EventStream<[u8; 1024]>);

impl Changes {
    /// Watch first and look second: then nothing slips between.
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
                Err(err) if err.kind() == io::ErrorKind::NotFound => {}
                Err(err) => return Err(err),
            }
        }
        Err(io::ErrorKind::NotFound.into())
    }

    pub(super) async fn next(&mut self) -> io::Result<()> {
        match self.0.next().await {
            Some(Err(err)) => Err(err),
            Some(Ok(_)) | None => Ok(()),
        }
    }
}
