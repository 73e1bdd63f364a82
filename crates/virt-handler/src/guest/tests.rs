use std::{convert::Infallible, time::Duration};

use kube::{Api, Client};
use kubevirt_api::{
    VirtualMachineInstance,
    conditions::{self, Condition as _},
    vmi_status::{
        VirtualMachineInstanceConditionType as Condition, VirtualMachineInstancePhase as Phase,
    },
};
use launcher_channel::{DomainState, GuestState, StopReason};
use net_plan::PlanError;
use reconcile::{Key, ReconcileError as _, Retry};
use serde_json::{Value, json};

use super::{error::GuestError, fixture::Fixture, observe, status::StatusInput};
use crate::{launcher::CallError, prepare::PrepareError};

const DEADLINE: Duration = Duration::from_mins(1);

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

/// The reason that `KubeVirt`'s clients wait for.
const REJECTED: &str = "Synchronizing with the Domain failed.";

fn domain_rejected(transient: bool) -> GuestError {
    GuestError::Call(CallError::Refused {
        reason: REJECTED.to_owned(),
        message: "Failed to define the guest: the PCI controller must be pcie-root.".to_owned(),
        transient,
    })
}

fn plan_error(error: PlanError) -> GuestError {
    GuestError::Prepare(PrepareError::from(error))
}

/// Refuses the start of a new guest with the error: the result, and the VMI after it.
async fn refuse_start(error: GuestError) -> (Result<(), GuestError>, VirtualMachineInstance) {
    let on_node = json!({"phase": "Scheduled", "nodeName": "n1"});
    Box::pin(refuse_start_with(error, on_node)).await
}

/// The same for a VMI with this status.
async fn refuse_start_with(
    error: GuestError,
    status: Value,
) -> (Result<(), GuestError>, VirtualMachineInstance) {
    let fixture = Fixture::new().await;
    fixture.create_guest_with(status).await;
    let guests = fixture.guests().await;
    let parts = &guests.parts;
    let sources = observe::Sources {
        client: &fixture.client,
        node: &parts.node,
        vmis: [&parts.vmis, &parts.arrivals],
        pods: &parts.pods,
    };
    let pairs = observe::pairs(&sources, &key()).await;
    let pair = pairs.unwrap().remove(0);
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
        // As with KubeVirt, a definition that libvirt rejects is tried again; whatever the launcher says.
        (domain_rejected(true), REJECTED, true),
        (domain_rejected(false), REJECTED, true),
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

/// Issue: a start that failed at once was published before the VMI was on its node, which the API server
/// refuses, and reports.
#[tokio::test]
async fn refusal_is_published_once_the_vmi_is_on_the_node() {
    let on_no_node = json!({"phase": "Scheduling"});
    let (result, vmi) = Box::pin(refuse_start_with(refused(true), on_no_node)).await;
    assert_eq!(result.unwrap_err().retry(), Retry::BackOff);
    assert!(vmi.status.unwrap().conditions.is_empty());
}

/// A server that rejects every request.
fn rejecting_client() -> Client {
    let reject = |_request: axum::http::Request<kube::client::Body>| async {
        Ok::<_, Infallible>(rejection("status.x: Invalid value"))
    };
    Client::new(tower::service_fn(reject), "default")
}

fn rejection(message: &str) -> axum::http::Response<kube::client::Body> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": "Invalid", "code": 422,
    });
    let body = kube::client::Body::from(serde_json::to_vec(&status).unwrap());
    let response = axum::http::Response::builder().status(422).body(body);
    response.unwrap()
}

/// A client of this server that has every write of a guest agent's report rejected.
fn client_without_agent_reports(server: Client) -> Client {
    let forward = move |request: axum::http::Request<kube::client::Body>| {
        let server = server.clone();
        async move {
            let (parts, body) = request.into_parts();
            let bytes = body.collect_bytes().await.unwrap();
            let is_report = bytes.windows(14).any(|part| part == b"\"guestOSInfo\":");
            if is_report {
                return Ok::<_, Infallible>(rejection("status.guestOSInfo: Invalid value: null"));
            }
            let request = axum::http::Request::from_parts(parts, bytes.to_vec().into());
            Ok(server.send(request).await.unwrap())
        }
    };
    Client::new(tower::service_fn(forward), "default")
}

/// Issue: a rejected field froze the whole status, so a paused guest could never be resumed.
#[tokio::test]
async fn paused_guest_is_shown_as_paused_although_its_report_is_rejected() {
    let fixture = Fixture::new().await;
    let vmi = fixture.create_guest().await;
    let client = client_without_agent_reports(fixture.client.clone());
    let guests = fixture.guests_with_client(client).await;
    let mut status = vmi.status.clone().unwrap();
    status.phase = Some(Phase::Running);
    status.guest_os_info = Some(
        kubevirt_api::vmi_status::VirtualMachineInstanceGuestOsInfo {
            name: Some("Debian".to_owned()),
            ..Default::default()
        },
    );
    let now = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::UNIX_EPOCH);
    let paused = conditions::ConditionValue::holds();
    conditions::set(&mut status.conditions, Condition::Paused, &paused, &now);
    let error = guests.write(&key(), &vmi, &status).await.unwrap_err();
    assert_eq!(error.reason(), "Refused");
    let vmis: Api<VirtualMachineInstance> = Api::default_namespaced(fixture.client.clone());
    let written = vmis.get("a").await.unwrap().status.unwrap();
    assert_eq!(written.phase, Some(Phase::Running));
    assert!(conditions::is_true(&written.conditions, &Condition::Paused));
    let synchronized = conditions::find(&written.conditions, &Condition::Synchronized).unwrap();
    assert_eq!(synchronized.reason(), "FailedStatusUpdate");
    fixture.stop().await;
}

/// The count of rejected writes of VMIs, by all tests of this process.
fn rejected_writes() -> u64 {
    let metrics = ::metrics::render(&[&reconcile::METRICS]);
    let series = "ferrovirt_reconcile_rejected_writes_total{kind=\"VirtualMachineInstance\"} ";
    let count = metrics.lines().find_map(|line| line.strip_prefix(series));
    count.map_or(0, |count| count.parse().unwrap())
}

#[tokio::test]
async fn rejected_status_is_published_as_an_event_and_counted() {
    let fixture = Fixture::new().await;
    let vmi = fixture.create_guest().await;
    let counted = rejected_writes();
    let guests = fixture.guests_with_client(rejecting_client()).await;
    let mut status = vmi.status.clone().unwrap();
    status.phase = Some(Phase::Running);
    let error = guests.write(&key(), &vmi, &status).await.unwrap_err();
    assert_eq!(error.reason(), "Refused");
    let event = tokio::time::timeout(DEADLINE, fixture.next_event()).await;
    let event = event.unwrap();
    assert_eq!(event.reason.as_deref(), Some("FailedStatusUpdate"));
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    assert_eq!(event.involved_object.uid, vmi.metadata.uid);
    let message = event.message.unwrap();
    assert!(message.contains("status.x: Invalid value"), "{message}");
    assert!(rejected_writes() > counted);
    fixture.stop().await;
}

/// Issue: a panic was published as `Stopped` only.
#[tokio::test]
async fn panic_of_a_guest_is_an_event_of_its_own() {
    let fixture = Fixture::new().await;
    let vmi = fixture.create_guest().await;
    let guests = fixture.guests().await;
    let mut status = vmi.status.clone().unwrap();
    status.phase = Some(Phase::Failed);
    let state = GuestState {
        domain: Some(DomainState::Stopped(StopReason::Panicked)),
        ..GuestState::default()
    };
    let input = StatusInput {
        state: Some(&state),
        ..StatusInput::default()
    };
    guests.publish_phase_change(&vmi, &status, &input);
    for expected in ["GuestPanicked", "Stopped"] {
        let found = fixture.event(|event| event.reason.as_deref() == Some(expected));
        let event = tokio::time::timeout(DEADLINE, found).await.expect(expected);
        assert_eq!(event.type_.as_deref(), Some("Warning"));
    }
    fixture.stop().await;
}

#[tokio::test]
async fn end_of_a_deleted_guest_is_published_once() {
    let fixture = Fixture::new().await;
    let mut vmi = fixture.create_guest().await;
    let guests = fixture.guests().await;
    let now = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::UNIX_EPOCH);
    vmi.metadata.deletion_timestamp = Some(now);
    let mut status = vmi.status.clone().unwrap();
    status.phase = Some(Phase::Succeeded);
    guests.publish_phase_change(&vmi, &status, &StatusInput::default());
    // Its power-off is an event, too.
    let found = fixture.event(|event| event.reason.as_deref() == Some("Deleted"));
    let event = tokio::time::timeout(DEADLINE, found).await.unwrap();
    assert_eq!(event.message.as_deref(), Some("Signaled Deletion"));
    assert_eq!(event.count, Some(1));
    fixture.stop().await;
}

#[tokio::test]
async fn failed_pings_of_the_guest_agent_are_one_event_for_each_report() {
    let fixture = Fixture::new().await;
    fixture.create_guest().await;
    let guests = fixture.guests().await;
    let parts = &guests.parts;
    let sources = observe::Sources {
        client: &fixture.client,
        node: &parts.node,
        vmis: [&parts.vmis, &parts.arrivals],
        pods: &parts.pods,
    };
    let pairs = observe::pairs(&sources, &key()).await;
    let pair = pairs.unwrap().remove(0);
    guests.entry(&key(), &pair);
    // Failures before this process, none, two in a row, a restart of the launcher, none, one.
    for failed_pings in [5, 5, 7, 0, 0, 1] {
        let state = GuestState {
            failed_pings,
            ..GuestState::default()
        };
        guests.publish_failed_pings(&key(), &pair, Some(&state));
    }
    let event = fixture.event(|event| event.count == Some(2)).await;
    assert_eq!(event.reason.as_deref(), Some("GuestAgentPingFailed"));
    let message = event.message.unwrap();
    assert!(
        message.starts_with("GuestAgentPing probe failed for VMI a. Start "),
        "{message}"
    );
    fixture.stop().await;
}
