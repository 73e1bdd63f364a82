//! CEL rules that a definition can carry, so that an invalid object is refused even while no webhook
//! runs. Every message names the remedy.
//!
//! Used from the types: `schemars(extend("x-kubernetes-validations" = [rules::…]))`. A rule inside a
//! list needs a bound on that list, or an API server refuses the definition as too costly.

use serde_json::{Value, json};

/// `self` is true for good values.
pub(crate) fn rule(rule: &str, message: &str) -> Value {
    json!({ "rule": rule, "message": message })
}

/// The members exclude each other, and one must be there.
pub(crate) fn exactly_one(members: &[&str]) -> Value {
    let message = format!("give exactly one of {}", listed(members));
    rule(&format!("{} == 1", count(members)), &message)
}

/// The members exclude each other.
pub(crate) fn at_most_one(members: &[&str]) -> Value {
    let message = format!("more than one of {}; keep one", listed(members));
    rule(&format!("{} <= 1", count(members)), &message)
}

/// Nothing may change once the object exists.
pub(crate) fn immutable(what: &str, remedy: &str) -> Value {
    rule(
        "self == oldSelf",
        &format!("{what} cannot be changed; {remedy}"),
    )
}

/// A plain sum: API servers bound what a rule may cost at worst, and a list made for the count
/// costs many times more.
fn count(members: &[&str]) -> String {
    let members: Vec<String> = members
        .iter()
        .map(|member| format!("(has(self.{member}) ? 1 : 0)"))
        .collect();
    members.join(" + ")
}

fn listed(members: &[&str]) -> String {
    match members.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => members.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_counted_and_named() {
        assert_eq!(
            exactly_one(&["a", "b", "c"]),
            json!({
                "rule": "(has(self.a) ? 1 : 0) + (has(self.b) ? 1 : 0) + (has(self.c) ? 1 : 0) == 1",
                "message": "give exactly one of a, b and c",
            })
        );
        assert_eq!(
            at_most_one(&["a", "b"])["message"],
            "more than one of a and b; keep one"
        );
    }
}
