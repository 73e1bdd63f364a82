use kube::Api;
use kubevirt_api::{
    VirtualMachineInstance,
    conditions::{self, Condition as _},
    vmi_status::{
        VirtualMachineInstanceConditionType as Condition, VirtualMachineInstancePhase as Phase,
    },
};
use net_plan::PlanError;
use reconcile::{Key, ReconcileError as _, Retry};

use super::{error::GuestError, fixture::Fixture, observe};
use crate::{launcher::CallError, prepare::PrepareError};

fn key() -> Key {
    Key::new("default", "a")
}

fn refused(transient: bool) -> GuestError {
    GuestError::Call(CallError::Refused {
        reason: "LauncherReason".to_owned(),
        message: "refused".to_owned(),
        transient,
    })
}

fn plan_error(error: PlanError) -> GuestError {
    GuestError::Prepare(PrepareError::from(error))
}

/// Refuses the start of a new guest with the error: the result, and the VMI after it.
async fn refuse_start(error: GuestError) -> (Result<(), GuestError>, VirtualMachineInstance) {
    let fixture = Fixture::new().await;
    fixture.create_guest().await;
    let guests = fixture.guests().await;
    let parts = &guests.parts;
    let pair = observe::pair(&fixture.client, &parts.vmis, &parts.pods, &key()).await;
    let pair = pair.unwrap().unwrap();
    let result = guests.refuse_start(&key(), &pair, error).await;
    let vmis: Api<VirtualMachineInstance> = Api::default_namespaced(fixture.client.clone());
    let vmi = vmis.get("a").await.unwrap();
    fixture.stop().await;
    (result, vmi)
}

#[tokio::test]
async fn transient_refusal_keeps_the_vmi_waiting_and_permanent_refusal_fails_it() {
    let interface = || "eth0".to_owned();
    let no_address = PlanError::PodHasNoAddress {
        interface: interface(),
    };
    let no_network = PlanError::NoSuchNetwork {
        interface: interface(),
    };
    for (error, reason, transient) in [
        (plan_error(no_address), "PodHasNoAddress", true),
        (refused(true), "LauncherReason", true),
        (CallError::TimedOut.into(), "LauncherUnavailable", true),
        (plan_error(no_network), "NoSuchNetwork", false),
        (refused(false), "LauncherReason", false),
    ] {
        let message = error.to_string();
        let (result, vmi) = refuse_start(error).await;
        let status = vmi.status.unwrap();
        let synchronized = conditions::find(&status.conditions, &Condition::Synchronized).unwrap();
        assert_eq!(synchronized.status(), conditions::FALSE);
        assert_eq!(synchronized.reason(), reason);
        assert!(synchronized.message().contains(&message), "{message}");
        if transient {
            assert_eq!(result.unwrap_err().retry(), Retry::BackOff, "{reason}");
            assert_eq!(status.phase, Some(Phase::Scheduled), "{reason}");
            assert_eq!(status.reason, None);
        } else {
            assert!(result.is_ok(), "{reason}");
            assert_eq!(status.phase, Some(Phase::Failed), "{reason}");
            assert_eq!(status.reason.as_deref(), Some(reason));
        }
    }
}
