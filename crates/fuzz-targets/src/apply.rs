//! Server-side apply: an array of the live object, with any list of managed fields, and a configuration.

use apimachinery::{
    apply::{Conflicts, Writer, apply},
    shape::Type,
};
use serde_json::Value;

pub fn run(bytes: &[u8]) {
    let Ok((live, config)) = serde_json::from_slice::<(Value, Value)>(bytes) else {
        return;
    };
    if !live.is_object() || !config.is_object() {
        return;
    }
    let writer = Writer {
        manager: "fuzz",
        api_version: "v1",
        subresource: "",
        ty: Type::built_in("", "Pod"),
        reset: &[],
        now: "2026-01-02T03:04:05Z".parse().expect("a time"),
    };
    for conflicts in [Conflicts::Refuse, Conflicts::TakeOver] {
        if let Ok(applied) = apply(&writer, Some(&live), &config, conflicts) {
            serde_json::to_vec(&applied).expect("what was applied can be written");
            assert!(applied.is_object());
        }
    }
    drop(apply(&writer, None, &config, Conflicts::Refuse));
}
