//! Bodies of requests in protobuf: what is read is an object of a kind, and can be written.
#![no_main]

use libfuzzer_sys::fuzz_target;

// The API server is taken apart: it would bring a database with it.
#[path = "../../../crates/embedded-api/src/request/protobuf.rs"]
mod protobuf;

fuzz_target!(|bytes: &[u8]| {
    if let Some(object) = protobuf::decode(bytes) {
        assert!(object["kind"].is_string());
        serde_json::to_vec(&object).expect("what was read can be written");
    }
});
