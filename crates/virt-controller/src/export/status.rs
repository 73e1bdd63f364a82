//! The status of an export.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kubevirt_api::export::{
    Condition, ConditionType as Type, VirtualMachineExportPhase as Phase,
    VirtualMachineExportStatus as Status,
};
use reasons::Reason;

use super::observe::{Front, Observed, Source};
use super::plan::{Cause, Claims, Progress, claims_condition, expiry};
use super::{ExportProxy, links, names};
use crate::operation::set_conditions;

pub(super) fn render(
    observed: &Observed,
    progress: &Progress,
    proxy: Option<&ExportProxy>,
) -> Status {
    let export = observed.export.as_ref();
    let mut status = export.status.clone().unwrap_or_default();
    if *progress == Progress::Ended {
        return status;
    }
    if let Front::Ready { token, .. } = &observed.front {
        status.token_secret_ref = Some(token.clone());
    }
    status.ttl_expiration_time = expiry(export).map(Time);
    status.virtual_machine_name = match &observed.source {
        Source::Machine { vm, .. } | Source::Snapshot(vm) => {
            vm["metadata"]["name"].as_str().map(str::to_owned)
        }
        _ => status.virtual_machine_name,
    };
    if matches!(observed.front, Front::Ready { .. }) {
        status.service_name = Some(names::server(export));
    }
    let (phase, ready, claims) = shown(progress);
    status.links = (phase == Phase::Ready).then(|| links::of(observed, proxy));
    status.phase = Some(phase.clone());
    let now = Time(observed.now);
    let is_ready = phase == Phase::Ready;
    set(
        &mut status.conditions,
        (Type::Ready, is_ready),
        &ready,
        &now,
    );
    let kind = claims_condition(export);
    let good = match kind {
        Type::VolumesCreated => Reason::AllPVCsReady,
        _ => Reason::PVCBound,
    };
    match claims {
        Claims::Unknown => {}
        Claims::Ready => set(
            &mut status.conditions,
            (kind, true),
            &(good, String::new()),
            &now,
        ),
        Claims::NotReady(cause) => set(&mut status.conditions, (kind, false), &cause, &now),
    }
    status
}

fn shown(progress: &Progress) -> (Phase, Cause, Claims) {
    match progress {
        Progress::Ended => (
            Phase::Terminated,
            (Reason::PodCompleted, String::new()),
            Claims::Unknown,
        ),
        Progress::Waits { ready, claims } => (Phase::Pending, ready.clone(), claims.clone()),
        Progress::Skipped(cause) => (Phase::Skipped, cause.clone(), Claims::Unknown),
        Progress::Starting(cause) => (Phase::Pending, cause.clone(), Claims::Ready),
        Progress::Ready => (
            Phase::Ready,
            (Reason::ExporterPodReady, String::new()),
            Claims::Ready,
        ),
        Progress::Terminated(cause) => (Phase::Terminated, cause.clone(), Claims::Ready),
    }
}

fn set(all: &mut Vec<Condition>, value: (Type, bool), cause: &Cause, now: &Time) {
    set_conditions(all, [value], (cause.0, &cause.1), now);
}
