//! Settings of glibc's allocator that reduce the resident memory of this process.
//!
//! By default it keeps a heap for every thread that was ever busy, and keeps freed memory: after the start, when
//! many kinds are read at once, that is a third of our memory. A single heap that is trimmed when it shrinks costs
//! only a little lock contention. Free memory between blocks in use, another third, is released on request.
#![cfg_attr(
    target_env = "gnu",
    expect(unsafe_code, reason = "glibc's settings have no safe interface")
)]

use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// Interval of the release of free memory.
const TRIM_INTERVAL: Duration = Duration::from_secs(30);
/// From this size on, free memory at the end of the heap and single blocks are returned to the kernel.
#[cfg(target_env = "gnu")]
const TRIM_THRESHOLD: libc::c_int = 64 * 1024;

/// Call it before other threads start.
pub(super) fn configure() {
    #[cfg(target_env = "gnu")]
    for (setting, value) in [
        (libc::M_ARENA_MAX, 1),
        (libc::M_TRIM_THRESHOLD, TRIM_THRESHOLD),
        (libc::M_MMAP_THRESHOLD, TRIM_THRESHOLD),
    ] {
        // SAFETY: the settings exist and take any number; no other thread allocates meanwhile.
        let accepted = unsafe { libc::mallopt(setting, value) };
        if accepted == 0 {
            tracing::debug!(setting, "the allocator rejected a setting");
        }
    }
}

/// Releases free memory, now and periodically, until `stop`.
pub(super) async fn trim_periodically(stop: CancellationToken) {
    let mut ticks = tokio::time::interval(TRIM_INTERVAL);
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        #[cfg(target_env = "gnu")]
        // SAFETY: it may be called at any time, from any thread; it takes some milliseconds.
        unsafe {
            libc::malloc_trim(0);
        }
    }
}
