//! Short texts of users: selectors, JSON paths of columns, network addresses.

use apimachinery::{
    jsonpath::JsonPath,
    selector::{FieldSelector, LabelSelector},
};
use net_plan::{Cidr, MacAddress};
use serde_json::json;

pub fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let object = json!({
        "metadata": { "name": "a", "labels": { "a": "b" } },
        "spec": { "list": [{ "type": "Ready", "status": "True" }, 1, null] },
    });
    if let Ok(selector) = LabelSelector::parse(text) {
        selector.matches(&object);
    }
    if let Ok(selector) = FieldSelector::parse(text) {
        selector.matches(&object);
    }
    if let Ok(path) = JsonPath::parse(text) {
        path.find(&object);
    }
    if let Ok(cidr) = text.parse::<Cidr>() {
        let again: Cidr = cidr
            .to_string()
            .parse()
            .expect("what was written can be read");
        assert_eq!(again, cidr);
        cidr.nth(u32::MAX);
    }
    if let Ok(address) = text.parse::<MacAddress>() {
        let again: MacAddress = address
            .to_string()
            .parse()
            .expect("what was written can be read");
        assert_eq!(again, address);
    }
}
