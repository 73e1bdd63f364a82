//! JSON patches, merge patches and strategic ones: an array of an object and its patch.

use apimachinery::{patch, shape::Type};
use serde_json::Value;

pub fn run(bytes: &[u8]) {
    let Ok((target, change)) = serde_json::from_slice::<(Value, Value)>(bytes) else {
        return;
    };
    if let Ok(patched) = patch::json::apply(&target, &change) {
        serde_json::to_vec(&patched).expect("what was patched can be written");
    }
    let merged = patch::merge::apply(&target, &change);
    if let Some(difference) = patch::merge::diff(&target, &merged) {
        assert_eq!(patch::merge::apply(&target, &difference), merged);
    }
    drop(patch::strategic::apply(
        &target,
        &change,
        Type::built_in("", "Pod"),
    ));
}
