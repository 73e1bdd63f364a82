//! Request bodies in protobuf: parsed input is an object with a kind, and can be written in both
//! formats.

use apimachinery::protobuf;

pub fn run(bytes: &[u8]) {
    if let Ok(object) = protobuf::decode(bytes) {
        assert!(object["kind"].is_string());
        serde_json::to_vec(&object).expect("what was read can be written");
        let written = protobuf::encode(&object).expect("what was read can be encoded");
        assert!(protobuf::decode(&written).is_ok());
    }
}
