//! Links of a running guest that follow its VM's template: pure.

use std::collections::BTreeMap;

use kubevirt_api::vmi_status::VirtualMachineInstancePhase as Phase;
use model::LinkState;
use serde_json::{Value, json};

use crate::view::Guest;

const INTERFACES: &str = "/domain/devices/interfaces";

/// Whether an interface of the guest has another link than in the template.
pub(super) fn is_behind(template: &Value, vmi: &Guest) -> bool {
    if *vmi.phase() != Phase::Running || vmi.is_deleting() || vmi.status.is_migrating {
        return false;
    }
    let wanted = of_template(template);
    wanted.iter().any(|(name, wanted)| {
        let now = vmi.links.get(*name);
        now.is_some_and(|now| is_change(*now, *wanted))
    })
}

/// The merge patch of a VMI that follows the template; `None` if there is nothing to change.
pub(super) fn patch(template: &Value, vmi: &Value) -> Option<Value> {
    let wanted = of_template(template);
    let before = vmi.pointer(&format!("/spec{INTERFACES}"))?.as_array()?;
    let mut after = before.clone();
    for interface in &mut after {
        let now = state(interface);
        let wanted = wanted.get(name(interface)).copied();
        if let Some(wanted) = wanted.filter(|wanted| is_change(now, *wanted)) {
            let text = if wanted == LinkState::Down {
                "down"
            } else {
                "up"
            };
            interface["state"] = text.into();
        }
    }
    (after != *before).then(|| {
        json!({
            "metadata": {"resourceVersion": vmi.pointer("/metadata/resourceVersion")},
            "spec": {"domain": {"devices": {"interfaces": after}}},
        })
    })
}

/// The spec of a template without links that a running guest follows.
pub(super) fn without_links(spec: &Value) -> Value {
    let mut rest = spec.clone();
    let interfaces = rest.pointer_mut(INTERFACES).and_then(Value::as_array_mut);
    for interface in interfaces.into_iter().flatten() {
        if state(interface) != LinkState::Absent
            && let Value::Object(members) = interface
        {
            members.remove("state");
        }
    }
    rest
}

/// The links by interface.
fn of_template(template: &Value) -> BTreeMap<&str, LinkState> {
    let interfaces = template.pointer(&format!("/spec{INTERFACES}"));
    let interfaces = interfaces.and_then(Value::as_array).into_iter().flatten();
    let links = interfaces.map(|interface| (name(interface), state(interface)));
    links.collect()
}

/// Whether a running guest can follow: only a restart plugs an interface or takes it away.
fn is_change(now: LinkState, wanted: LinkState) -> bool {
    now != wanted && now != LinkState::Absent && wanted != LinkState::Absent
}

fn name(interface: &Value) -> &str {
    interface["name"].as_str().unwrap_or_default()
}

fn state(interface: &Value) -> LinkState {
    match interface["state"].as_str() {
        Some("down") => LinkState::Down,
        Some("absent") => LinkState::Absent,
        _ => LinkState::Up,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(interfaces: &Value) -> Value {
        json!({"domain": {"devices": {"interfaces": interfaces}}})
    }

    fn interface(state: &Value) -> Value {
        let mut interface = json!({"name": "lan", "bridge": {}});
        if !state.is_null() {
            interface["state"] = state.clone();
        }
        interface
    }

    fn vmi(state: &Value, phase: &str) -> Value {
        json!({
            "metadata": {"name": "a", "resourceVersion": "7"},
            "spec": spec(&json!([{"name": "default", "masquerade": {}}, interface(state)])),
            "status": {"phase": phase},
        })
    }

    #[test]
    fn links_of_the_vmi_follow_the_template() {
        let (up, down, absent, none) = (json!("up"), json!("down"), json!("absent"), json!(null));
        for (template, now, phase, expected) in [
            (&down, &none, "Running", Some("down")),
            (&down, &up, "Running", Some("down")),
            (&none, &down, "Running", Some("up")),
            (&up, &none, "Running", None),
            (&down, &down, "Running", None),
            // Only a restart plugs an interface or takes it away.
            (&absent, &up, "Running", None),
            (&up, &absent, "Running", None),
        ] {
            let template = json!({"spec": spec(&json!([interface(template)]))});
            let vmi = vmi(now, phase);
            let patch = patch(&template, &vmi);
            let guest: Guest = serde_json::from_value(vmi.clone()).unwrap();
            assert_eq!(
                is_behind(&template, &guest),
                expected.is_some(),
                "{template} {vmi}"
            );
            let Some(expected) = expected else {
                assert_eq!(patch, None, "{template} {vmi}");
                continue;
            };
            let patch = patch.unwrap();
            assert_eq!(patch["metadata"]["resourceVersion"], "7");
            let after = &patch["spec"]["domain"]["devices"]["interfaces"];
            assert_eq!(after[0], json!({"name": "default", "masquerade": {}}));
            assert_eq!(after[1]["state"], expected);
        }
    }

    #[test]
    fn guest_that_does_not_run_is_left_alone() {
        let template = json!({"spec": spec(&json!([interface(&json!("down"))]))});
        let guest: Guest = serde_json::from_value(vmi(&json!("up"), "Scheduled")).unwrap();
        assert!(!is_behind(&template, &guest));
    }

    #[test]
    fn restart_is_required_for_what_is_plugged_only() {
        let of = |state: Value| without_links(&spec(&json!([interface(&state)])));
        assert_eq!(of(json!("down")), of(json!("up")));
        assert_eq!(of(json!(null)), of(json!("up")));
        assert_ne!(of(json!("absent")), of(json!("up")));
        let bare = json!({"domain": {}});
        assert_eq!(without_links(&bare), bare);
    }
}
