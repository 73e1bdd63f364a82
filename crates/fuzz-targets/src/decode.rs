//! Objects of every kind, as JSON or YAML by the first byte. An object that can be read can be written,
//! and round-trips.

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

pub fn run(bytes: &[u8]) {
    let Some((choice, body)) = bytes.split_first() else {
        return;
    };
    let value: Option<Value> = if choice.is_multiple_of(2) {
        serde_json::from_slice(body).ok()
    } else {
        let text = std::str::from_utf8(body).ok();
        text.and_then(|text| serde_saphyr::from_str(text).ok())
    };
    if let Some(value) = value.filter(Value::is_object) {
        every(&value);
    }
}

macro_rules! every {
    ($($kind:ty,)+) => {
        fn every(value: &Value) {
            let wanted = value["kind"].as_str();
            $(
                if wanted.is_none() || wanted == Some(<$kind>::KIND) {
                    survives::<$kind>(value);
                }
            )+
        }
    };
}
kubevirt_api::for_every_kind!(every);

fn survives<T: Serialize + DeserializeOwned>(value: &Value) {
    let Ok(typed) = T::deserialize(value) else {
        return;
    };
    let once = serde_json::to_value(&typed).expect("what was read can be written");
    let again = T::deserialize(&once).expect("what was written can be read");
    let twice = serde_json::to_value(&again).expect("what was read can be written");
    assert_eq!(once, twice);
}
