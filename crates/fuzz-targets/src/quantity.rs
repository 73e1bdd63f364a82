//! Quantities: parsed values are within bounds and round-trip.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubevirt_api::quantity::Amount;

pub fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let Ok(amount) = Amount::parse(&Quantity(text.to_owned())) else {
        return;
    };
    assert!(amount.is_negative() || amount.millis() >= amount.units());
    if amount.is_whole() && !amount.is_negative() && amount.units() < u64::MAX {
        let again = Amount::parse(&amount.to_binary()).expect("what was written can be read");
        assert_eq!(again, amount);
    }
}
