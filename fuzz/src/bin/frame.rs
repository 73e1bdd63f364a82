//! Messages between virt-handler and a launcher: a message that can be read round-trips.
#![no_main]

use launcher_channel::{FromLauncher, ToLauncher};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(message) = serde_json::from_slice::<FromLauncher>(bytes) {
        serde_json::to_vec(&message).expect("what was read can be written");
    }
    if let Ok(message) = serde_json::from_slice::<ToLauncher>(bytes) {
        serde_json::to_vec(&message).expect("what was read can be written");
    }
});
