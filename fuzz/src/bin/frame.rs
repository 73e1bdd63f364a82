//! Messages between a node's handler and a launcher: what is read can be written and reads the same.
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
