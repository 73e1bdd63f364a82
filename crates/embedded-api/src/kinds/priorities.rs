//! Priority classes: defaults and validation.

use apimachinery::{Violation, meta};
use serde_json::Value;

use super::{
    Strategy,
    fields::{check_enum, fill_absent},
};

pub(crate) const PRIORITY_CLASS: Strategy = Strategy {
    default: |class| fill_absent(class, "preemptionPolicy", "PreemptLowerPriority"),
    validate,
    ..Strategy::PLAIN
};

const HIGHEST_OF_USERS: i64 = 1_000_000_000;
const SYSTEM: [(&str, i64); 2] = [
    ("system-cluster-critical", 2_000_000_000),
    ("system-node-critical", 2_000_001_000),
];

fn validate(live: Option<&Value>, class: &Value) -> Vec<Violation> {
    let mut wrong = Vec::new();
    let value = class["value"].as_i64().unwrap_or_default();
    if let Some(live) = live {
        if live["value"].as_i64().unwrap_or_default() != value {
            let why = "may not be changed in an update.";
            wrong.push(Violation::forbidden("value", why));
        }
        if live["preemptionPolicy"] != class["preemptionPolicy"] {
            let found = class["preemptionPolicy"].clone();
            wrong.push(Violation::invalid(
                "preemptionPolicy",
                found,
                "field is immutable",
            ));
        }
        return wrong;
    }
    let name = meta::name(class);
    if name.starts_with("system-") {
        let why = match SYSTEM.iter().find(|(known, _)| *known == name) {
            None => Some(format!("{name} is not a known system priority class")),
            Some((_, expected)) if *expected != value => {
                Some(format!("value of {name} PriorityClass must be {expected}"))
            }
            Some(_) if class["globalDefault"] == true => Some(format!(
                "globalDefault of {name} PriorityClass must be false"
            )),
            Some(_) => None,
        };
        wrong.extend(why.map(|why| {
            let why = format!(
                "priority class names with 'system-' prefix are reserved for system use only. error: {why}"
            );
            Violation::forbidden("metadata.name", why)
        }));
    } else if value > HIGHEST_OF_USERS {
        let why = format!("maximum allowed value of a user defined priority is {HIGHEST_OF_USERS}");
        wrong.push(Violation::forbidden("value", why));
    }
    let mut found = Vec::new();
    check_enum(
        class,
        "",
        "preemptionPolicy",
        &["Never", "PreemptLowerPriority"],
        &mut found,
    );
    for violation in &mut found {
        "preemptionPolicy".clone_into(&mut violation.field);
    }
    wrong.extend(found);
    wrong
}
