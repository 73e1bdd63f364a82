//! Telling glibc's allocator that this process is to stay small.
//!
//! By its own choice it keeps a heap for every thread that was ever busy, and keeps what was freed:
//! after the start, when many kinds are read at once, that is a third of our memory. One heap that
//! is given back when it shrinks costs a few waits for a lock and no more. What is free between pieces
//! that are in use, another third, goes back when it is asked for.
#![cfg_attr(
    target_env = "gnu",
    expect(unsafe_code, reason = "glibc's settings have no safe way in")
)]

use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// Between two times at which all that is free is given back.
const LOOK: Duration = Duration::from_secs(30);
/// Free memory at the end of the heap, and single pieces, from this size on go back to the kernel.
#[cfg(target_env = "gnu")]
const GIVEN_BACK: libc::c_int = 64 * 1024;

/// To be called before there are other threads.
pub(super) fn keep_small() {
    #[cfg(target_env = "gnu")]
    for (setting, value) in [
        (libc::M_ARENA_MAX, 1),
        (libc::M_TRIM_THRESHOLD, GIVEN_BACK),
        (libc::M_MMAP_THRESHOLD, GIVEN_BACK),
    ] {
        // SAFETY: the settings exist and take any number; no other thread allocates meanwhile.
        let taken = unsafe { libc::mallopt(setting, value) };
        if taken == 0 {
            tracing::debug!(setting, "the allocator does not take a setting");
        }
    }
}

/// Gives back what is free, now and from time to time, until `stop`.
pub(super) async fn give_back(stop: CancellationToken) {
    let mut ticks = tokio::time::interval(LOOK);
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        #[cfg(target_env = "gnu")]
        // SAFETY: it may be called at any time, from any thread; it takes some milliseconds.
        unsafe {
            libc::malloc_trim(0);
        }
    }
}
