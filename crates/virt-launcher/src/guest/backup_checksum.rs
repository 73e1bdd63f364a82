//! Checksums of the files of a backup: computed after QEMU has ended its copy, from what is on disk.
//!
//! **Invariant**: the guest hardly notices: a thread with the lowest priority reads, and what it has read does not
//! stay in the page cache.

use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt as _;
use std::thread;

use rustix::fs::{Advice, fadvise};
use rustix::process::setpriority_process;
use sha2::{Digest as _, Sha256};
use tokio_util::sync::CancellationToken;

const CHUNK: usize = 1 << 20;
/// What leaves the page cache at once.
const WINDOW: u64 = 32 << 20;
const LOWEST_PRIORITY: i32 = 19;

/// The SHA-256 of a file, which is on disk, in hexadecimal digits; `None` if the backup was cancelled.
pub(super) fn sha256(file: &File, cancel: &CancellationToken) -> io::Result<Option<String>> {
    // A priority cannot be raised again, so the thread is not one of a pool.
    thread::scope(|scope| {
        let reading = thread::Builder::new().name("backup-checksum".to_owned());
        let reading = reading.spawn_scoped(scope, || {
            // Linux sets it for the calling thread alone.
            if let Err(error) = setpriority_process(None, LOWEST_PRIORITY) {
                tracing::debug!(%error, "checksums are computed with the usual priority");
            }
            read(file, cancel)
        })?;
        let sum = reading.join();
        sum.map_err(|_| io::Error::other("the thread that reads a file panicked"))?
    })
}

fn read(file: &File, cancel: &CancellationToken) -> io::Result<Option<String>> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; CHUNK];
    let (mut at, mut forgotten) = (0, 0);
    loop {
        if cancel.is_cancelled() {
            return Ok(None);
        }
        let read = match file.read_at(&mut buffer, at) {
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        hasher.update(buffer.get(..read).unwrap_or_default());
        at += u64::try_from(read).unwrap_or_default();
        if read == 0 || at - forgotten >= WINDOW {
            // Only a wish: some storage has no page cache.
            let length = NonZeroU64::new(at - forgotten);
            let _done = fadvise(file, forgotten, length, Advice::DontNeed).is_ok();
            forgotten = at;
        }
        if read == 0 {
            return Ok(Some(hex::encode(hasher.finalize())));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn sum_is_that_of_the_whole_file() {
        let mut file = tempfile::tempfile().unwrap();
        let cancel = CancellationToken::new();
        let sum = |file: &File| sha256(file, &cancel).unwrap().unwrap();
        assert_eq!(
            sum(&file),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
        let content = vec![7; CHUNK + 5];
        file.write_all(&content).unwrap();
        assert_eq!(sum(&file), hex::encode(Sha256::digest(&content)));
        cancel.cancel();
        assert_eq!(sha256(&file, &cancel).unwrap(), None);
    }
}
