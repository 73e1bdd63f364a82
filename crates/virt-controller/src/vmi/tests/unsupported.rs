//! VMIs that this version cannot run.

use kubevirt_api::vmi_status::VirtualMachineInstancePhase as Phase;
use reasons::Reason;
use serde_json::json;

use super::{deleting, observe, vmi};
use crate::vmi::plan::{Step, plan};
use crate::vmi::status::{self, Done};

#[test]
fn unsupported_vmi_gets_no_pod() {
    let mut asking = vmi("Pending");
    let interfaces = json!([
        {"name": "a", "passt": {}},
        {"name": "b", "masquerade": {}},
        {"name": "c", "slirp": {}},
    ]);
    asking["spec"]["domain"] = json!({"devices": {"interfaces": interfaces}});
    let observed = observe(asking.clone(), None);
    let wanted = plan(&observed);
    assert!(wanted.steps.is_empty(), "{:?}", wanted.steps);
    assert_eq!(wanted.phase, Phase::Pending);
    let message = "this version cannot run it yet: spec.domain.devices.interfaces[2].slirp: use masquerade: {}, \
                   bridge: {} or passtBinding: {}; spec.domain.devices.interfaces[0].passt: use masquerade: {}, \
                   bridge: {} or passtBinding: {}";
    let problem = wanted.problem.clone().unwrap();
    assert_eq!(problem.message, message);
    let status = status::render(&observed, &wanted, &Done::default());
    let advised = Reason::FeatureNotSupported.advise(message);
    for (kind, reason, message) in [
        ("Synchronized", "FeatureNotSupported", advised.as_str()),
        ("PodScheduled", "Unschedulable", message),
    ] {
        let mut conditions = status.conditions.iter();
        let condition = conditions
            .find(|condition| condition.type_.as_str() == kind)
            .expect(kind);
        assert_eq!(condition.status, "False");
        assert_eq!(condition.reason.as_deref(), Some(reason));
        assert_eq!(condition.message.as_deref(), Some(message));
    }

    // It can be deleted like any other, and the conditions go once it is supported.
    assert_eq!(plan(&observe(deleting(asking), None)).phase, Phase::Failed);
    let mut can_run = vmi("Pending");
    can_run["status"]["conditions"] = json!(status.conditions);
    let observed = observe(can_run, None);
    let wanted = plan(&observed);
    assert_eq!(wanted.steps, [Step::CreatePod]);
    let status = status::render(&observed, &wanted, &Done::default());
    assert!(
        status
            .conditions
            .iter()
            .all(|condition| condition.reason.as_deref() != Some("FeatureNotSupported"))
    );
}
