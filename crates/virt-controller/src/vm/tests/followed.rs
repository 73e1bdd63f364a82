//! Fields of a running guest that differ from those of its VM.

use serde_json::{Value, json};

use super::live::{
    MEMORY, SOCKETS, followed, live, marked, outcome, pending, spec, with_condition,
};
use super::set;
use crate::vm::live::{Follow, follow};

#[test]
fn field_that_nobody_changed_stays_as_a_webhook_has_made_it() {
    let sized = || {
        let vmi = set(pending(), "/status/currentCPUTopology/sockets", json!(3));
        let memory = json!({"guestAtBoot": "2Gi", "guestCurrent": "2Gi", "guestRequested": "2Gi"});
        let vmi = set(vmi, "/status/memory", memory);
        let vmi = set(vmi, "/spec/nodeSelector", json!({"zone": "b"}));
        let tolerations = json!([{"key": "k", "operator": "Exists"}]);
        set(vmi, "/spec/tolerations", tolerations)
    };
    let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "k", "operator": "Exists"}]}]}}});
    for (path, value, expected) in [
        ("/terminationGracePeriodSeconds", json!(5), Value::Null),
        ("/affinity", affinity.clone(), json!({"affinity": affinity})),
        (
            SOCKETS,
            json!(4),
            json!({"domain": {"cpu": {"sockets": 4}}}),
        ),
        (
            MEMORY,
            json!("3Gi"),
            json!({"domain": {"memory": {"guest": "3Gi"}}}),
        ),
        (
            "/nodeSelector",
            json!({"zone": "c"}),
            json!({"nodeSelector": {"zone": "c"}}),
        ),
        ("/tolerations", json!([]), Value::Null),
    ] {
        let found = outcome(set(spec(), path, value.clone()), sized());
        assert_eq!(found, (expected, vec![]), "{path} {value}");
    }
    // Written in another way.
    let before = set(spec(), "/tolerations", json!([{"key": "k", "value": null}]));
    let now = set(spec(), "/tolerations", json!([{"key": "k"}]));
    assert_eq!(follow(&live(before, now, sized())), Follow::default());
}

#[test]
fn field_that_was_followed_once_is_that_of_the_vm() {
    let placed = || set(pending(), "/spec/nodeSelector", json!({"zone": "b"}));
    let processors = json!({"domain": {"cpu": {"sockets": 1}}});
    let memory = json!({"domain": {"memory": {"guest": "1Gi"}}});
    for (vmi, expected) in [
        (placed(), Value::Null),
        (marked(placed(), "sockets"), processors.clone()),
        (marked(placed(), "memory"), memory.clone()),
        (
            marked(placed(), "affinity,nodeSelector"),
            json!({"nodeSelector": {"zone": "a"}}),
        ),
        // By an earlier version.
        (
            with_condition(placed(), "HotVCPUChange", "True"),
            processors,
        ),
        (
            set(
                placed(),
                "/metadata/annotations",
                json!({"ferrovirt.io/memory-changed": "true"}),
            ),
            memory,
        ),
    ] {
        assert_eq!(outcome(spec(), vmi.clone()), (expected, vec![]), "{vmi}");
    }
    let later = followed(
        set(spec(), MEMORY, json!("3Gi")),
        marked(placed(), "sockets"),
    );
    let marks = &later.patch.unwrap()["metadata"]["annotations"];
    assert_eq!(marks["ferrovirt.io/followed-fields"], "sockets,memory");
}
