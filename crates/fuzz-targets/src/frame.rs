//! Messages between virt-handler and a launcher: a message that can be read round-trips.

use launcher_channel::{FromLauncher, ToLauncher};

pub fn run(bytes: &[u8]) {
    if let Ok(message) = serde_json::from_slice::<FromLauncher>(bytes) {
        serde_json::to_vec(&message).expect("what was read can be written");
    }
    if let Ok(message) = serde_json::from_slice::<ToLauncher>(bytes) {
        serde_json::to_vec(&message).expect("what was read can be written");
    }
}
