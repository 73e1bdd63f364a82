//! Request bodies in protobuf: parsed input is an object with a kind, and can be written.
#![no_main]

use libfuzzer_sys::fuzz_target;

// One file of the API server is included: the whole crate would bring SQLite.
#[path = "../../../crates/embedded-api/src/request/protobuf.rs"]
mod protobuf;

fuzz_target!(|bytes: &[u8]| {
    if let Some(object) = protobuf::decode(bytes) {
        assert!(object["kind"].is_string());
        serde_json::to_vec(&object).expect("what was read can be written");
    }
});
