//! What a guest gets before its pod, or with it.

use kubevirt_api::vmi_status::VirtualMachineInstancePhase as Phase;
use reasons::Reason;
use serde_json::json;

use super::{observe, pod, vmi};
use crate::vmi::networks::Definitions;
use crate::vmi::observe::Observed;
use crate::vmi::plan::{Step, plan};
use crate::vmi::state_claim::StateClaim;
use crate::vmi::status::{self, Done};

#[test]
fn guest_gets_its_vsock_address_with_its_pod_and_keeps_it() {
    for (phase, given, expected) in [
        ("Pending", None, None),
        ("Scheduling", None, Some(77)),
        ("Scheduling", Some(5), Some(5)),
        ("Running", Some(5), Some(5)),
    ] {
        let mut object = vmi(phase);
        object["status"]["VSOCKCID"] = json!(given);
        let observed = Observed {
            vsock: Some(77),
            acceleration: None,
            ..observe(object, Some(pod("Pending")).filter(|_| phase != "Pending"))
        };
        let status = status::render(&observed, &plan(&observed), &Done::default());
        assert_eq!(status.vsock, expected, "{phase} {given:?}");
    }
}

#[test]
fn handed_over_vmi_has_the_image_of_its_pod() {
    for (given, of_pod, expected) in [
        // virt-controller ended between the pod's creation and its note.
        (None, Some("launcher:1"), Some("launcher:1")),
        (Some("launcher:1"), Some("launcher:1"), Some("launcher:1")),
        (Some("launcher:2"), Some("launcher:1"), Some("launcher:1")),
        (Some("launcher:1"), None, Some("launcher:1")),
    ] {
        let mut object = vmi("Scheduling");
        object["status"]["launcherContainerImageVersion"] = json!(given);
        let mut running = pod("Running");
        running["spec"]["containers"] = json!([{"name": "compute", "image": of_pod}]);
        let observed = observe(object, Some(running));
        let status = status::render(&observed, &plan(&observed), &Done::default());
        assert_eq!(status.phase, Phase::Scheduled);
        let image = status.launcher_image.as_deref();
        assert_eq!(image, expected, "{given:?} {of_pod:?}");
    }
}

#[test]
fn pod_waits_until_the_status_has_the_frequency_of_the_counter() {
    for (given, chosen, steps, expected) in [
        (None, Some(2000), &[][..], Some(2000)),
        (Some(1000), None, &[Step::CreatePod], Some(1000)),
        (None, None, &[Step::CreatePod], None),
    ] {
        let mut object = vmi("Pending");
        object["status"]["topologyHints"] = json!({"tscFrequency": given});
        let observed = Observed {
            tsc_frequency: chosen,
            ..observe(object, None)
        };
        let plan = plan(&observed);
        assert_eq!(plan.steps, steps, "{given:?} {chosen:?}");
        let status = status::render(&observed, &plan, &Done::default());
        assert_eq!(status.tsc_frequency, expected, "{given:?} {chosen:?}");
    }
}

#[test]
fn pod_waits_for_the_claim_of_the_guests_state() {
    for (state_claim, steps) in [
        (StateClaim::NotNeeded, [Step::CreatePod]),
        (StateClaim::Missing, [Step::CreateStateClaim]),
        (StateClaim::Exists, [Step::CreatePod]),
    ] {
        let observed = Observed {
            state_claim,
            ..observe(vmi("Pending"), None)
        };
        assert_eq!(plan(&observed).steps, steps, "{state_claim:?}");
    }
}

#[test]
fn pod_waits_for_the_definitions_of_its_networks() {
    let missing = |names: &[&str]| Definitions {
        missing: names.iter().map(ToString::to_string).collect(),
        ..Definitions::default()
    };
    let of = |networks| Observed {
        networks,
        ..observe(vmi("Pending"), None)
    };
    let waiting = of(missing(&["ns/blue", "other/red"]));
    let wanted = plan(&waiting);
    assert!(wanted.steps.is_empty() && wanted.requeue_in.is_some());
    let problem = wanted.problem.clone().unwrap();
    assert_eq!(problem.reason, Reason::NetworkDefinitionMissing);
    assert_eq!(
        problem.message,
        "there is no NetworkAttachmentDefinition ns/blue, other/red, which the networks name"
    );
    // The condition goes once they exist.
    let status = status::render(&waiting, &wanted, &Done::default());
    let mut mended = vmi("Pending");
    mended["status"]["conditions"] = json!(status.conditions);
    let mended = observe(mended, None);
    let wanted = plan(&mended);
    assert_eq!(wanted.steps, [Step::CreatePod]);
    let status = status::render(&mended, &wanted, &Done::default());
    let mut conditions = status.conditions.iter();
    assert!(!conditions.any(|one| one.type_.as_str() == "Synchronized"));
}
